"""The lake of a run: its tables, a log of snapshots in the catalog, and reads with both engines."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow.parquet as pq

from ducklake_core import DuckLake
from tests.chaos.changes import ACCOUNT_TABLES, ACCOUNTS, ROW_TABLES, START_BALANCE, TABLES, Insert, Row, frame, generated_rows
from tests.chaos.ledger import Intent, Ledger, Result, Success
from tests.support.oracle import LakeAddress, new_connection

FIRST_SNAPSHOT = 13
"""Newest snapshot after ``create_lake``."""

_LOG = {
    "postgres": """
        CREATE TABLE chaos_log (number BIGSERIAL, kind TEXT, snapshot_id BIGINT, changes TEXT, extra_info TEXT);
        CREATE FUNCTION log_commit() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO chaos_log (kind, snapshot_id, changes, extra_info)
            VALUES ('commit', NEW.snapshot_id, NEW.changes_made, NEW.commit_extra_info);
            RETURN NEW; END $$;
        CREATE FUNCTION log_expiry() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO chaos_log (kind, snapshot_id) VALUES ('expiry', OLD.snapshot_id);
            RETURN OLD; END $$;
        CREATE TRIGGER log_commit AFTER INSERT ON ducklake_snapshot_changes FOR EACH ROW EXECUTE FUNCTION log_commit();
        CREATE TRIGGER log_expiry AFTER DELETE ON ducklake_snapshot FOR EACH ROW EXECUTE FUNCTION log_expiry();""",
    "sqlite": """
        CREATE TABLE chaos_log (number INTEGER PRIMARY KEY, kind TEXT, snapshot_id INTEGER, changes TEXT, extra_info TEXT);
        CREATE TRIGGER log_commit AFTER INSERT ON ducklake_snapshot_changes BEGIN
            INSERT INTO chaos_log (kind, snapshot_id, changes, extra_info)
            VALUES ('commit', NEW.snapshot_id, NEW.changes_made, NEW.commit_extra_info); END;
        CREATE TRIGGER log_expiry AFTER DELETE ON ducklake_snapshot BEGIN
            INSERT INTO chaos_log (kind, snapshot_id) VALUES ('expiry', OLD.snapshot_id); END;""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Settings of a run and its lake."""

    catalog: str
    seed: int
    seconds: float
    writers: int
    """Number of processes that write with the library."""
    duckdb_writers: int
    operations: frozenset[str]
    """Kinds of operations of the library; all if empty."""
    folder: Path
    address: LakeAddress
    database: str
    """Connection string of psycopg, or path of the SQLite file."""
    min_age: float = 0
    """Minimum age in seconds of snapshots that the library expires."""
    last_expiry: float = 0
    """Time after which no operation expires snapshots, so that the last snapshots are verified."""

    @property
    def ended(self) -> bool:
        """True when the supervisor requests all processes to end."""
        return (self.folder / "END").exists()


def create_lake(run: Run, name: str) -> None:
    """Create the lake with its log, its tables and their first rows."""
    lake = DuckLake.create(run.address.url, data_path=run.address.data_path)
    if run.catalog == "postgres":
        with psycopg.connect(run.database, autocommit=True) as postgres:
            postgres.execute(_LOG["postgres"])
    else:
        with closing(sqlite3.connect(run.database)) as sqlite:
            sqlite.executescript(_LOG["sqlite"])
    columns = {"uid": "varchar", "k": "int64", "v": "int64", "p": "int32", "note": "varchar"}
    for table in TABLES:
        lake.create_table(table, columns, partition_by=["p"] if table == "partitioned" else ())
    lake.table("sorted").set_sorted_by(["k"])
    lake.set_option("data_inlining_row_limit", 60, table="inlined")
    if run.seed % 2:
        lake.set_option("data_inlining_row_limit", 0, table="savings")
    ledger = Ledger(run.folder, name)
    for number, table in enumerate((*ROW_TABLES[:3], *ACCOUNT_TABLES)):
        operation = f"{name}.0.{number}"
        accounts = {f"{table}-{i}": Row(i, START_BALANCE, i % 6, "start", {}) for i in range(ACCOUNTS)}
        rows = accounts if table in ACCOUNT_TABLES else generated_rows(operation, 600)
        ledger.append(Intent(operation=operation, kind="create_lake", changes=[Insert(table, rows)]))
        written = lake.write(table, frame(rows), create=False, extra_info={"operation": operation})
        ledger.append(Success(operation=operation, seconds=0, result=Result(snapshot=written.snapshot_id, committed=True)))
    assert lake.snapshots()[-1].id == FIRST_SNAPSHOT
    lake.close()


def query(run: Run, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query to the catalog."""
    if run.catalog == "postgres":
        with psycopg.connect(run.database) as postgres:
            return postgres.execute(statement).fetchall()
    with closing(sqlite3.connect(f"file:{run.database}?mode=ro", uri=True, timeout=20)) as sqlite:
        return sqlite.execute(statement).fetchall()


def remove_doubled_deletes(run: Run) -> int:
    """Remove inlined deletes from the catalog whose rows a delete file deletes as well, and return their number.

    DuckDB's flush leaves them if its commit is repeated. DuckDB then reads deleted rows again, and writes them when it updates.
    """
    removed = 0
    with psycopg.connect(run.database) as postgres:
        postgres.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for number, name in postgres.execute("SELECT table_id, table_name FROM ducklake_table WHERE end_snapshot IS NULL").fetchall():
            inlined = f"ducklake_inlined_delete_{number}"
            if postgres.execute("SELECT to_regclass(%s)", (inlined,)).fetchone() == (None,):
                continue
            found = postgres.execute(
                f"SELECT path, data_file_id, array_agg(row_id) FROM {inlined} JOIN ducklake_delete_file ON data_file_id = file_id "
                "WHERE end_snapshot IS NULL GROUP BY path, data_file_id"
            ).fetchall()
            for path, file, positions in found:
                deleted = pq.read_table(f"{run.address.data_path}main/{name}/{path}", columns=["pos"])["pos"].to_pylist()
                doubled = [position for position in positions if position in deleted]
                removed += len(doubled)
                postgres.execute(f"DELETE FROM {inlined} WHERE file_id = %s AND row_id = ANY(%s)", (file, doubled))
    return removed


def duckdb_connection(run: Run, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection that uses the lake."""
    connection = new_connection()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET ducklake_max_retry_count = 60; SET ducklake_retry_wait_ms = 10; SET ducklake_retry_backoff = 1.05")
    connection.execute(f"ATTACH '{run.address.attach}' AS lake {run.address.options('READ_ONLY' if read_only else '')}")
    connection.execute("USE lake")
    return connection


@dataclass(frozen=True, slots=True)
class TableRead:
    """Rows of a table as an engine read them: values and row id by unique id."""

    columns: list[str]
    rows: dict[str, tuple[tuple[Any, ...], int]]
    duplicates: list[str]


def read_with_library(lake: DuckLake, table: str, snapshot: int) -> TableRead:
    """Read a table at a snapshot with the library."""
    opened = lake.table(table, at=snapshot)
    return _table_read(opened.scan(columns=[*(column.name for column in opened.schema), "rowid"]).to_arrow().to_pydict())


def read_with_duckdb(connection: duckdb.DuckDBPyConnection, table: str, snapshot: int) -> TableRead:
    """Read a table at a snapshot with DuckDB."""
    return _table_read(connection.execute(f"SELECT *, rowid FROM lake.{table} AT (VERSION => {snapshot})").to_arrow_table().to_pydict())


def _table_read(data: dict[str, list[Any]]) -> TableRead:
    row_ids, uids = data.pop("rowid"), data.pop("uid")
    rows: dict[str, tuple[tuple[Any, ...], int]] = {}
    duplicates = []
    for uid, row_id, *values in zip(uids, row_ids, *data.values(), strict=True):
        if uid in rows:
            duplicates.append(uid)
        rows[uid] = (tuple(values), row_id)
    if len(set(row_ids)) != len(row_ids):
        duplicates.append("rowid")
    return TableRead(list(data), rows, duplicates)
