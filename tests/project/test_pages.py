"""The code on the pages of the documentation runs as it stands; what needs Spark or a server is in tests/spark and tests/dagster."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.old_lakes import old_lake
from tests.support.oracle import new_connection
from tests.support.page_setups import PAGES_OF_SPARK, SETUPS, Setup
from tests.support.pages import DOCS, blocks, run_python
from tests.support.postgres import PostgresServer

ALONE = ["README.md", "tutorials/notebook.md", "operations/backup.md", *SETUPS]


@pytest.mark.takes_seconds
@pytest.mark.parametrize("page", ALONE)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    setup = SETUPS.get(page, Setup)()
    run_python(DOCS / page, setup.names, setup.replaced)


def test_duckdb_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python(DOCS / "README.md")
    (statements,) = blocks(DOCS / "README.md", "sql")
    with new_connection() as duck:
        assert duck.execute(statements).fetchall() == [("AA", 0), ("B6", 5), ("UA", 12)]


def test_an_old_lake_is_read_and_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = old_lake("0.3", "sqlite", tmp_path)
    (name, by_snapshot) = next(iter(old.expected.items()))
    address = {"sqlite:///old.sqlite": old.address.url, '"flights", at=7': f'"{name}", at={max(by_snapshot)}'}
    lake = run_python(DOCS / "versions.md", {"DuckLake": DuckLake}, address)["lake"]
    assert isinstance(lake, DuckLake)
    assert DuckLake.connect(old.address.url).info.version == "1.1"
    assert DuckLake.connect("sqlite:///new.sqlite").info.version == "1.1"


def test_a_catalog_in_a_schema_of_its_own(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    here = {"postgresql+psycopg://me@host/lakes": address.url, "s3://bucket/sales/": address.data_path}
    lake = run_python(DOCS / "catalogs.md", {"DuckLake": DuckLake}, here)["lake"]
    assert isinstance(lake, DuckLake)
    assert DuckLake.connect(address.url, metadata_schema="sales").tables() == lake.tables()


def test_every_page_with_python_is_run() -> None:
    with_code = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if blocks(page, "python")}
    here = {*ALONE, "versions.md", "catalogs.md"}
    # These are run by tests/behaviour/command_line, tests/behaviour/sql, tests/dagster and tests/spark.
    elsewhere = {"command-line.md", "from-delta-and-iceberg.md", "sql.md", "tutorials/dagster-project.md"}
    guides = {page for page in with_code if page.startswith("dagster/")}
    assert with_code - guides == here | elsewhere | set(PAGES_OF_SPARK)
