"""The code on the pages of the documentation runs as it stands; what needs Spark or a server is in tests/spark and tests/dagster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ducklake_core import DuckLake, load_lake
from tests.support.old_lakes import old_lake
from tests.support.oracle import new_connection
from tests.support.page_setups import PAGES_OF_SPARK, SETUPS, Setup
from tests.support.pages import DOCS, blocks, run_python
from tests.support.postgres import PostgresServer

ALONE = ["README.md", "reference/errors.md", "tutorials/notebook.md", "operations/backup.md", *SETUPS]


@pytest.mark.parametrize("page", ALONE)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    setup = SETUPS.get(page, Setup)()
    run_python(DOCS / page, setup.names, setup.replaced)


def test_duckdb_with_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python(DOCS / "README.md")
    (statements,) = blocks(DOCS / "README.md", "sql")
    with new_connection() as duck:
        assert duck.execute(statements).fetchall() == [("AA", 0), ("B6", 5), ("UA", 12)]


def test_duckdb_in_an_asset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lake = DuckLake.create("sqlite:///lake.sqlite", data_path="files/")
    lake.write("orders", [{"id": 1}, {"id": 2}])
    (statements,) = blocks(DOCS / "how-to/dagster/from-dagster-duckdb.md", "sql")
    with new_connection() as duck:
        # The tests have the extension already.
        duck.execute(statements.replace("INSTALL ducklake; ", ""))
    assert lake.table("daily").to_arrow().to_pylist() == [{"n": 2}]


def test_lakes_with_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file", "variables"):
        DuckLake.create(f"sqlite:///{name}.sqlite", data_path=f"{name}/").set_option("data_inlining_row_limit", 0)
    (file,) = blocks(DOCS / "how-to/opening.md", "toml")
    Path("ducklake.toml").write_text(file.replace("postgresql+psycopg://me@db/lake", f"sqlite:///{tmp_path}/file.sqlite"))
    lake = load_lake("sales")
    assert (lake.read_only, lake.info.data_path) == (True, f"{tmp_path}/file/")
    (variables,) = blocks(DOCS / "how-to/opening.md", "sh")
    for name, value in re.findall(r"^export (\w+)=(\S+)$", variables, re.MULTILINE):
        monkeypatch.setenv(name, value.replace("postgresql+psycopg://me:secret@db/lake", f"sqlite:///{tmp_path}/variables.sqlite"))
    assert load_lake("sales").info.data_path == f"{tmp_path}/variables/"


def test_an_old_lake_is_read_and_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    old = old_lake("0.3", "sqlite", tmp_path)
    (name, by_snapshot) = next(iter(old.expected.items()))
    address = {"sqlite:///old.sqlite": old.address.url, '"flights", at=7': f'"{name}", at={max(by_snapshot)}'}
    lake = run_python(DOCS / "how-to/versions.md", {"DuckLake": DuckLake}, address)["lake"]
    assert isinstance(lake, DuckLake)
    assert DuckLake.connect(old.address.url).info.version == "1.1"
    assert DuckLake.connect("sqlite:///new.sqlite").info.version == "1.1"


def test_a_catalog_in_a_schema_of_its_own(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    here = {"postgresql+psycopg://me@host/lakes": address.url, "s3://bucket/sales/": address.data_path}
    lake = run_python(DOCS / "reference/catalogs.md", {"DuckLake": DuckLake}, here)["lake"]
    assert isinstance(lake, DuckLake)
    assert DuckLake.connect(address.url, metadata_schema="sales").tables() == lake.tables()


def test_every_page_with_python_is_run() -> None:
    with_code = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if blocks(page, "python")}
    here = {*ALONE, "how-to/versions.md", "reference/catalogs.md"}
    # These are run by tests/behaviour/command_line, tests/behaviour/sql, tests/dagster and tests/spark.
    elsewhere = {"reference/command-line.md", "how-to/from-delta-and-iceberg.md", "reference/sql.md", "tutorials/dagster-project.md"}
    guides = {page for page in with_code if page.startswith("how-to/dagster/") and page not in SETUPS}
    assert with_code - guides == here | elsewhere | set(PAGES_OF_SPARK)


def test_every_block_that_is_not_python_is_known() -> None:
    languages = ("sh", "sql", "toml", "yaml")
    found = {
        (page.relative_to(DOCS).as_posix(), language) for page in DOCS.rglob("*.md") for language in languages if blocks(page, language)
    }
    here = {
        ("README.md", "sql"),
        ("how-to/dagster/from-dagster-duckdb.md", "sql"),
        ("how-to/opening.md", "toml"),
        ("how-to/opening.md", "sh"),
    }
    # Run by tests/dagster and tests/behaviour/command_line.
    elsewhere = {("how-to/dagster/components.md", "yaml"), ("reference/command-line.md", "yaml")}
    # Submitted by tests/spark; what installs is done by `make release-check` in other words.
    installing = {("README.md", "sh"), ("tutorials/spark-job.md", "sh"), ("tutorials/dagster-project.md", "sh")}
    assert found == here | elsewhere | installing
