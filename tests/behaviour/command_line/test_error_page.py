"""The page on errors has a fix for every code, and errors have the messages that users search for."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.spark import work_units
from ducklake_core.errors import DuckLakeError

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "errors.md").read_text()
EXAMPLES = {
    "usage": (
        "older_than selects items younger than min_age (1 hour), which running queries and writes may still use. Choose a "
        "longer age, or a smaller min_age if nothing else uses the lake [usage]"
    ),
    "unsupported-feature": (
        "oracle as catalog database is not supported. Use SQLite, PostgreSQL, MySQL, MariaDB or a DuckDB file [unsupported-feature]"
    ),
    "not-found": "there is no table main.order at snapshot 1 (did you mean 'main.orders'?) [not-found]",
    "already-exists": (
        "The database sqlite:////srv/lake/lake.sqlite already holds a lake. Open it with DuckLake.connect(...), or choose "
        "another database or metadata_schema [already-exists]"
    ),
    "schema": (
        "the data does not fit the table: column 'id' is int64 in the table and varchar in the frame. Cast the data, or "
        "change the column with table.set_column_type(...) [schema]"
    ),
    "catalog": "The catalog sqlite:////srv/lake/lake.sqlite rejected a statement (database disk image is malformed) [catalog]",
    "not-a-lake": (
        "The file of sqlite:////srv/lake/rows.parquet is not a SQLite database, so it holds no DuckLake catalog. Check the "
        "path, and write duckdb:/// in place of sqlite:/// for a DuckDB file [not-a-lake]"
    ),
    "catalog-version": (
        "The catalog sqlite:////srv/lake/lake.sqlite has version 2.7, but this library reads 0.1, 0.2, 0.3-dev1, 0.3, "
        "0.4-dev1, 0.4, 1.0, 1.1-dev1, 1.1 and writes 1.0, 1.1. Use a newer release of this library [catalog-version]"
    ),
    "catalog-corrupt": (
        "The catalog sqlite:////srv/lake/lake.sqlite has no data_path in ducklake_metadata. Restore the row from a backup [catalog-corrupt]"
    ),
    "catalog-unavailable": (
        "The catalog sqlite:////srv/lake/lake.sqlite was busy with another writer (database is locked). Try again [catalog-unavailable]"
    ),
    "storage": (
        "cannot read s3://bucket/lake/main/orders/f.parquet: PermissionError: Access Denied; check the path, the permissions "
        "and the credentials [storage]"
    ),
    "store-unavailable": (
        "cannot read s3://bucket/lake/main/orders/f.parquet: TimeoutError: timed out; check that the store is reachable and "
        "retry; docs/how-to/object-stores.md lists the storage options for timeouts [store-unavailable]"
    ),
    "corrupt-file": (
        "/srv/lake/files/main/orders/ducklake-UUID.parquet of table main.orders is not a Parquet file, or is truncated [corrupt-file]"
    ),
    "job-failed": (
        "the Spark job for main.orders failed or was cancelled: RuntimeError: Job 7 cancelled because SparkContext was shut "
        "down [job-failed]"
    ),
    "commit-conflict": (
        "Transaction conflict - attempting to insert into table main.orders - but another transaction has dropped it in "
        "snapshot 2 (the table of the rows no longer exists). Nothing was changed. Run the write again on the newest "
        "snapshot [commit-conflict]"
    ),
    "commit-outcome-unknown": (
        "It is unknown whether commit id nightly was committed: no snapshot has it, but 2 of 3 snapshots have expired, and "
        "one of them may have had it. Check the rows of the table before you write them again [commit-outcome-unknown]"
    ),
}
ORDERS = pa.table({"id": pa.array([1, 2], pa.int64()), "country": ["DE", "FR"]})


def _classes(base: type[DuckLakeError] = DuckLakeError) -> list[type[DuckLakeError]]:
    return [one for sub in base.__subclasses__() for one in (sub, *_classes(sub))]


def test_every_code_has_a_fix() -> None:
    for code in {one.code for one in _classes() if one.__module__ == "ducklake_core.errors"}:
        section = PAGE.split(f"### `{code}`\n")[1].split("\n### ")[0]
        assert "\n\n**Fix.** " in section


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lake(folder: Path) -> DuckLake:
    lake = DuckLake.create("sqlite:///lake.sqlite", data_path="files/")
    lake.write("orders", ORDERS, inline=False)
    return lake


def _edited(statement: str) -> None:
    with closing(sqlite3.connect("lake.sqlite")) as connection, connection:
        connection.execute(statement)


def _a_version_of_the_future(_lake: DuckLake) -> None:
    _edited("UPDATE ducklake_metadata SET value = '2.7' WHERE key = 'version'")
    DuckLake.connect("sqlite:///lake.sqlite")


def _a_missing_setting(_lake: DuckLake) -> None:
    _edited("DELETE FROM ducklake_metadata WHERE key = 'data_path'")
    DuckLake.connect("sqlite:///lake.sqlite")


def _half_a_catalog(_lake: DuckLake) -> None:
    path = Path("lake.sqlite")
    path.write_bytes(path.read_bytes()[:3000])
    DuckLake.connect("sqlite:///lake.sqlite")


def _a_parquet_file(_lake: DuckLake) -> None:
    pq.write_table(ORDERS, "rows.parquet")
    DuckLake.connect("sqlite:///rows.parquet")


def _a_damaged_file(lake: DuckLake) -> None:
    path = Path(lake.table("orders").list_files()[0].path)
    path.write_bytes(b"x" * path.stat().st_size)
    lake.table("orders").scan().to_arrow()


def _a_dropped_table(lake: DuckLake) -> None:
    with lake.transaction() as tx:
        tx.append("orders", ORDERS)
        lake.drop_table("orders")


def _a_busy_catalog(lake: DuckLake) -> None:
    with closing(sqlite3.connect("lake.sqlite")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with lake.database.write():
            pass


def _expired_snapshots(lake: DuckLake) -> None:
    lake.write("orders", ORDERS)
    lake.expire_snapshots(keep_last=1, older_than="0 seconds", min_age="0 seconds")
    lake.find_commit("nightly")


def _raised_by_a_store(error: Exception) -> Callable[[DuckLake], None]:
    def read(lake: DuckLake) -> None:
        with lake.storage.reporting("read", "s3://bucket/lake/main/orders/f.parquet"):
            raise error

    return read


def _a_stopped_session(_lake: DuckLake) -> None:
    raise work_units._failure("main.orders", RuntimeError("Job 7 cancelled because SparkContext was shut down"))


CAUSES: dict[str, Callable[[DuckLake], object]] = {
    "usage": lambda lake: lake.expire_snapshots(older_than="0 days"),
    "unsupported-feature": lambda _: DuckLake.connect("oracle://db/lake"),
    "not-found": lambda lake: lake.table("order"),
    "already-exists": lambda _: DuckLake.create("sqlite:///lake.sqlite", data_path="files/"),
    "schema": lambda lake: lake.table("orders").append(pa.table({"id": ["a"], "country": ["DE"]})),
    "catalog": _half_a_catalog,
    "not-a-lake": _a_parquet_file,
    "catalog-version": _a_version_of_the_future,
    "catalog-corrupt": _a_missing_setting,
    "catalog-unavailable": _a_busy_catalog,
    "storage": _raised_by_a_store(PermissionError("Access Denied")),
    "store-unavailable": _raised_by_a_store(TimeoutError("timed out")),
    "corrupt-file": _a_damaged_file,
    "job-failed": _a_stopped_session,
    "commit-conflict": _a_dropped_table,
    "commit-outcome-unknown": _expired_snapshots,
}


@pytest.mark.parametrize("code", CAUSES)
def test_messages_of_each_code(lake: DuckLake, folder: Path, code: str) -> None:
    with pytest.raises(DuckLakeError) as caught:
        CAUSES[code](lake)
    printed = re.sub(r"ducklake-[0-9a-f-]{36}", "ducklake-UUID", str(caught.value).replace(str(folder), "/srv/lake"))
    assert printed == EXAMPLES[code]
