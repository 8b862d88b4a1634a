"""The code on the pages of the documentation runs as it stands; what needs Spark or a server is in tests/spark and tests/dagster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ducklake_core import DuckLake, load_lake
from tests.support.old_lakes import old_lake
from tests.support.oracle import new_connection
from tests.support.page_setups import PAGES_OF_SPARK, SETUPS, Setup
from tests.support.pages import DOCS, Reader, blocks, pages, run_python
from tests.support.postgres import PostgresServer
from tests.support.s3 import BUCKET, KEY, SECRET, S3Server

ALONE = ["README.md", "reference/errors.md", "operations/backup.md", *SETUPS]
# Pages that a server, a lake of an earlier version, or another test is needed for.
ELSEWHERE = ["how-to/versions.md", "reference/catalogs.md", "how-to/from-delta-and-iceberg.md", "reference/sql.md"]
FREE = [page for page in pages("plain") if page not in (*ALONE, *ELSEWHERE, "how-to/postgres-s3.md", *PAGES_OF_SPARK)]


@pytest.mark.parametrize("page", ALONE)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    setup = SETUPS.get(page, Setup)()
    run_python(DOCS / page, setup.names, setup.replaced)


@pytest.mark.parametrize("page", FREE)
def test_pages_run_in_an_empty_folder(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Reader(DOCS / page).run()


def test_postgresql_and_s3(postgres: PostgresServer, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "PGHOST": postgres.socket,
        "PGUSER": postgres.user,
        "PGDATABASE": postgres.new_database(),
        "S3_BUCKET": BUCKET,
        "S3_ACCESS_KEY_ID": KEY,
        "S3_SECRET_ACCESS_KEY": SECRET,
        "S3_REGION": "us-east-1",
        "S3_ENDPOINT_URL": s3.endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    Reader(DOCS / "how-to/postgres-s3.md").run()


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
