"""A lake of very many tables, snapshots and files in minutes: DuckDB makes it and its first table, the others are rows of the catalog.

Sizes by ``BENCH_TABLES``, ``BENCH_SNAPSHOTS`` and ``BENCH_FILES``. Every table is like the first; all files have the path of its one file.
Nothing has an index that DuckDB does not make.
"""

from __future__ import annotations

import os
import time

import sqlalchemy as sa

from tests.support.oracle import LakeAddress, attached

TABLES = int(os.environ.get("BENCH_TABLES", "10000"))
SNAPSHOTS = int(os.environ.get("BENCH_SNAPSHOTS", "500000"))
FILES = int(os.environ.get("BENCH_FILES", "1000000"))
ROWS = 1000
_FIRST = 1000
"""Id of the first table that is only rows of the catalog."""


def make_large_lake(address: LakeAddress, tables: int = TABLES, snapshots: int = SNAPSHOTS, files: int = FILES) -> float:
    """Make the lake, of these numbers; the seconds that the rows of the catalog took."""
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (a BIGINT, b VARCHAR)", f"INSERT INTO t SELECT n, 'x' FROM range({ROWS}) r(n)")
    started = time.perf_counter()
    engine = sa.create_engine(address.url)
    with engine.begin() as connection:
        for statement in _statements(_numbers(address.backend), _minutes_later(address.backend), tables, snapshots, files):
            connection.execute(sa.text(statement))
    if address.backend == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")
    engine.dispose()
    return time.perf_counter() - started


def _numbers(backend: str) -> str:
    """Numbers from 1 to a count, which takes the place of ``{}``, as a table ``s`` with a column ``n``."""
    if backend == "postgresql":
        return "(SELECT CAST(n AS bigint) AS n FROM generate_series(1, {}) n) s"
    return "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s) s"


def _minutes_later(backend: str) -> str:
    """The time of a snapshot, one minute after the one before it."""
    if backend == "postgresql":
        return "to_timestamp(1600000000 + 60 * s.n)"
    return "strftime('%Y-%m-%d %H\\:%M\\:%S', 1600000000 + 60 * s.n, 'unixepoch') || '+00'"


def _statements(numbers: str, time: str, table_count: int, snapshot_count: int, file_count: int) -> list[str]:
    tables, snapshots, files = (numbers.format(count - 1) for count in (table_count, snapshot_count, file_count))
    table = f"({_FIRST} + s.n)"
    owner = f"({_FIRST} + 1 + s.n % {table_count - 1})"
    at = f"(2 + s.n % {snapshot_count - 1})"
    rows = {
        "table": (f"{table}, o.table_uuid, 1, NULL, o.schema_id, 'other' || s.n, o.path, o.path_is_relative", tables),
        "column": (
            (
                f"o.column_id, 1, NULL, {table}, o.column_order, o.column_name, o.column_type, o.initial_default, o.default_value, "
                "o.nulls_allowed, o.parent_column, o.default_value_type, o.default_value_dialect"
            ),
            tables,
        ),
        "table_stats": (f"{table}, o.record_count, o.next_row_id, o.file_size_bytes", tables),
        "table_column_stats": (
            f"{table}, o.column_id, o.contains_null, o.contains_nan, o.min_value, o.max_value, o.extra_stats",
            tables,
        ),
        "file_column_stats": (
            (
                f"1000 + s.n, {owner}, o.column_id, o.column_size_bytes, o.value_count, o.null_count, o.min_value, o.max_value, "
                "o.contains_nan, o.extra_stats"
            ),
            files,
        ),
        "data_file": (
            (
                f"1000 + s.n, {owner}, {at}, NULL, NULL, o.path, o.path_is_relative, o.file_format, o.record_count, o.file_size_bytes, "
                "o.footer_size, s.n * 1000, NULL, NULL, NULL, NULL"
            ),
            files,
        ),
    }
    copies = [f"INSERT INTO ducklake_{name} SELECT {columns} FROM ducklake_{name} o, {source}" for name, (columns, source) in rows.items()]
    newest = f"2 + s.n, {time}, o.schema_version, {_FIRST + table_count + 1}, {1000 + file_count + 1}"
    return [
        *copies,
        f"INSERT INTO ducklake_schema_versions SELECT 1, 1, {table} FROM {tables}",
        f"INSERT INTO ducklake_snapshot SELECT {newest} FROM ducklake_snapshot o, {snapshots} WHERE o.snapshot_id = 2",
        f"INSERT INTO ducklake_snapshot_changes SELECT 2 + s.n, 'inserted_into_table\\:' || {owner}, NULL, NULL, NULL FROM {snapshots}",
    ]
