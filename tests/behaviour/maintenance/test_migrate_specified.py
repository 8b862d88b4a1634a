"""Catalogs of 0.1 whose tables are those of the specification's page of that time, with ``nan_count`` and ``schema_snapshot``."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.support.old_lakes import JsonRows, changes, old_lake, rows_at
from tests.support.oracle import attached
from tests.support.parameters import slow

_STATISTICS = (
    "CREATE TABLE bounds AS SELECT data_file_id, table_id, column_id, column_size_bytes, value_count, null_count, "
    "CASE WHEN contains_nan THEN CAST(2 AS BIGINT) ELSE 0 END AS nan_count, min_value, max_value, {unknown} AS contains_nan "
    "FROM ducklake_file_column_statistics"
)
_MARK = "UPDATE bounds SET nan_count = 1 WHERE column_id = 1 AND table_id = (SELECT min(table_id) FROM bounds)"
_COLUMNS = "row_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, i INTEGER, s VARCHAR, d DECIMAL(10, 2), ts TIMESTAMP"
_INLINED = (
    f"CREATE TABLE ducklake_inlined_data_{{table}}_{{version}} ({_COLUMNS})",
    "INSERT INTO ducklake_inlined_data_{table}_{version} VALUES (100000, {snapshot}, NULL, 7777, 'inlined', NULL, NULL)",
    "CREATE TABLE registered (table_id BIGINT, table_name VARCHAR, schema_snapshot BIGINT)",
    "INSERT INTO registered VALUES ({table}, 'ducklake_inlined_data_{table}_{version}', {number})",
    "DROP TABLE ducklake_inlined_data_tables",
    "ALTER TABLE registered RENAME TO ducklake_inlined_data_tables",
)


@pytest.mark.parametrize(
    ("backend", "number"),
    [("sqlite", "snapshot"), ("sqlite", "version"), ("postgresql", "snapshot"), slow("duckdb", "snapshot")],
)
def test_the_layout_of_the_specification(backend: str, number: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    old = old_lake("0.1", backend, tmp_path, request.getfixturevalue("postgres") if backend == "postgresql" else None)
    ((snapshot, version),) = old.execute("SELECT snapshot_id, schema_version FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1")
    ((table,),) = old.execute("SELECT table_id FROM ducklake_table WHERE table_name = 'numbers' AND end_snapshot IS NULL")
    unknown = "CAST(NULL AS BIGINT)" if backend == "sqlite" else "CAST(NULL AS BOOLEAN)"
    old.execute(_STATISTICS.format(unknown=unknown))
    old.execute(_MARK, "DROP TABLE ducklake_file_column_statistics", "ALTER TABLE bounds RENAME TO ducklake_file_column_statistics")
    wanted = {"table": table, "version": version, "snapshot": snapshot, "number": snapshot if number == "snapshot" else version}
    old.execute(*(statement.format(**wanted) for statement in _INLINED))

    json_rows = JsonRows()
    shown = {(name, at) for name, expected in old.expected.items() for at in changes(expected) if at < snapshot}
    lake = DuckLake.connect(old.address.url)
    for name, at in shown:
        assert json_rows.of(rows_at(lake, name, at)) == old.expected[name][at]
    before = lake.table("numbers").scan().to_arrow().sort_by([("i", "ascending"), ("s", "ascending")]).to_pylist()
    assert [row["s"] for row in before if row["i"] == 7777] == ["inlined"]
    steps = [str(step) for step in lake.migrate().steps]
    assert "replace ducklake_file_column_stats.nan_count by contains_nan" in steps
    assert "replace ducklake_inlined_data_tables.schema_snapshot by schema_version" in steps

    assert old.execute("SELECT table_name, schema_version FROM ducklake_inlined_data_tables") == [
        (f"ducklake_inlined_data_{table}_{version}", version)
    ]
    assert old.execute("SELECT count(*) > 0 FROM ducklake_file_column_stats WHERE contains_nan")[0][0]
    after = DuckLake.connect(old.address.url)
    assert after.table("numbers").scan().to_arrow().sort_by([("i", "ascending"), ("s", "ascending")]).to_pylist() == before
    with attached(old.address) as duck:
        assert sorted(duck.rows("SELECT i, s FROM numbers")) == [(row["i"], row["s"]) for row in before]
        duck.run("INSERT INTO numbers (i, s) VALUES (7778, 'duck')", "CALL ducklake_flush_inlined_data('lake')")
    assert after.table("numbers").refresh().scan(where="i >= 7777").count() == 2
