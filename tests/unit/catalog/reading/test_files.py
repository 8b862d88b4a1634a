"""Live files and pruning: never a file less than DuckDB finds rows in, and as few more as the bounds allow."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import String, literal_column, update
from sqlalchemy.dialects import postgresql

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.catalog.reading.files import DataFiles, data_files
from ducklake_core.catalog.reading.pruning import Bounds, Exclusion, any_of, excluded
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.predicates import ColumnReference, InList, Literal
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.types.data_types import INT32
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import SQLITE_THEN_SLOW, spread
from tests.support.statements import noted_statements
from tests.unit.catalog.catalog_access import database_of, reading

TO_FILES = "DATA_INLINING_ROW_LIMIT 0"


def pruned(reader: CatalogReader, condition: str | None, table: str = "t") -> tuple[set[str], DataFiles]:
    """Paths of the files that are kept for a condition."""
    state = reader.table("main", table, reader.latest_snapshot().id)
    found = data_files(reader, state, None if condition is None else bind(condition, state.schema))
    return {file.path for file, _ in found}, found


NUMBERS = """
    CREATE TABLE t (i INT, big BIGINT, h HUGEINT, u UBIGINT, s VARCHAR, d DATE, ts TIMESTAMP, ns TIMESTAMP_NS, tz TIMESTAMPTZ,
                    f DOUBLE, n DECIMAL(10, 2), b BOOLEAN, j INT)
"""
ROWS = """
    INSERT INTO t SELECT g * 10 + k, (g * 10 + k)::BIGINT * 1000000000, g - 5, g, chr((97 + g)::INT) || k,
      DATE '2024-01-01' + (g * 10 + k)::INT,
      TIMESTAMP '2024-01-01 00:00:00.5' + INTERVAL (g * 10 + k) MINUTE,
      make_timestamp_ns(1704067200000000000 + g * 1000000000::BIGINT + k),
      TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (g * 10 + k) HOUR,
      CASE WHEN g = 3 AND k = 0 THEN 'nan'::DOUBLE ELSE g + k / 10 END, g + k / 100, g % 2 = 0, CASE WHEN g < 4 THEN k END
    FROM range(10) r(k)
"""
CONDITIONS = [
    "i = 35", "i > 61", "i <= 9", "i IN (5, 95, 1000)", "i = -1", "i <> 5", "35 = i", "20 > i", "i BETWEEN 15 AND 24", "i = 35 OR i = 81",
    "i > 20 AND s < 'd'", "NOT (i > 20)", "big = 35000000000", "big >= 9223372036854775807", "h = -5", "h > 3", "u = 4",
    "u > 18446744073709551614",
    "s = 'c3'", "s < 'b5'", "s > 'h'", "s LIKE 'd%'", "s LIKE 'd9%'", "s = 'Ärger'", "s >= 'j9'", "s IS NULL", "d = DATE '2024-01-12'",
    "d < DATE '2024-01-12'", "d > DATE '0044-03-15'", "ts = TIMESTAMP '2024-01-01 00:12:00.5'", "ts < TIMESTAMP '2024-01-01 00:10:00.5'",
    "ts <= TIMESTAMP '2024-01-01 00:10:00.5'", "ts > TIMESTAMP '2024-01-01 01:39:00.4'", "d >= DATE '2024-03-25' OR ts IS NULL",
    "ns = TIMESTAMP_NS '2024-01-01 00:00:03.000000004'", "tz >= TIMESTAMPTZ '2024-01-01 12:00:00+09'",
    "tz < TIMESTAMPTZ '2024-01-01 10:00:00+00'",

    "f > 8.5", "f = 'nan'::DOUBLE", "f < 1", "n = 3.05", "n > 9.05", "b", "NOT b", "b = true", "j IS NULL", "j IS NOT NULL", "j = 3",
    "i + 1 = 20",
    "i = 2.5", "i < 10.5", "FALSE", "i = NULL", "lower(s) = 'a1'",
]  # fmt: skip


@pytest.fixture
def numbers(lake_address: LakeAddress) -> LakeAddress:
    """Ten files of ten rows, with one type a column."""
    with attached(lake_address, TO_FILES) as duck:
        duck.run(NUMBERS, *(re.sub(r"\bg\b", str(g), ROWS) for g in range(10)))
        assert duck.value("SELECT count(DISTINCT filename) FROM t") == 10
    return lake_address


# Expressions, and a type that has no bounds.
INEXACT = {"i + 1 = 20", "lower(s) = 'a1'", "h = -5", "h > 3"}


def files_holding(duck: Any, conditions: Iterable[str]) -> dict[str, set[str]]:
    """The files with matching rows for each condition, found without DuckDB's own pruning."""
    duck.run("CREATE TEMP TABLE rows AS SELECT *, filename AS file FROM t")
    return {condition: {name for (name,) in duck.rows(f"SELECT DISTINCT file FROM rows WHERE {condition}")} for condition in conditions}


@pytest.mark.parametrize("lake_address", SQLITE_THEN_SLOW, indirect=True)
def test_no_file_with_matching_rows_is_pruned(numbers: LakeAddress) -> None:
    with attached(numbers, TO_FILES) as duck:
        holding = files_holding(duck, CONDITIONS)
    with reading(numbers) as reader:
        everything, _ = pruned(reader, None)
        assert len(everything) == 10
        for condition, matching in holding.items():
            kept, found = pruned(reader, condition)
            assert matching <= kept, condition
            if condition not in INEXACT:
                assert len(kept) <= len(matching) + 1, (condition, len(kept), len(matching))
            assert found.counts.files_kept == len(kept), condition
            assert found.counts.files_total == 10, condition


def test_plain_listing_is_that_of_duckdb(lake_address: LakeAddress) -> None:
    with attached(lake_address, TO_FILES) as duck:
        duck.run(
            "CREATE TABLE t (a INT, s VARCHAR)",
            "INSERT INTO t SELECT range, 'x' FROM range(100)",
            "INSERT INTO t SELECT range, 'y' FROM range(50)",
        )
        duck.run("DELETE FROM t WHERE a = 7", "DELETE FROM t WHERE a = 8", "TRUNCATE t", "INSERT INTO t VALUES (1, NULL)")
        columns = (
            "data_file, data_file_size_bytes, data_file_footer_size, data_file_encryption_key, "
            "delete_file, delete_file_size_bytes, delete_file_footer_size, delete_file_encryption_key"
        )
        by_duckdb = {
            number: duck.rows(f"SELECT {columns} FROM ducklake_list_files('lake', 't', snapshot_version => {number})")
            for (number,) in duck.rows("SELECT snapshot_id FROM lake.snapshots() WHERE snapshot_id > 0")
        }
    with reading(lake_address) as reader:
        assert [snapshot.id for snapshot in reader.snapshots()[1:]] == sorted(by_duckdb)
        for number, expected in by_duckdb.items():
            by_library = [summary(file) for file, _ in data_files(reader, reader.table("main", "t", number))]
            assert sorted(by_library) == sorted(expected), number


def summary(file: DataFile) -> tuple[object, ...]:
    (delete,) = file.delete_files or (None,)
    hidden = (None,) * 4 if delete is None else (delete.path, delete.file_size_bytes, delete.footer_size, delete.encryption_key)
    return (file.path, file.file_size_bytes, file.footer_size, file.encryption_key, *hidden)


def test_statistics_of_wanted_columns_only(numbers: LakeAddress) -> None:
    with reading(numbers) as reader:
        state = reader.table("main", "t", reader.latest_snapshot().id)
        number, nullable = state.schema.column("i").id, state.schema.column("j").id
        predicate = bind("s = 'c3'", state.schema)
        ((_, found),) = data_files(reader, state, predicate, frozenset({number, nullable, 999}))
    assert found.keys() == {number, nullable}
    assert (found[number].min_value, found[number].max_value, found[number].value_count, found[number].null_count) == ("20", "29", 10, 0)


@pytest.mark.parametrize(
    "text", spread([None, "abc", "", "-", "--5", "1e3", "99999999999999999999999", "infinity", "2024-01-01", "0044-03-15 (BC)"], 2)
)
def test_unexpected_bounds_keep_the_file(lake_address: LakeAddress, text: str | None) -> None:
    """DuckDB loses rows here: it takes strings that do not cast for bounds that exclude everything."""
    with attached(lake_address, TO_FILES) as duck:
        duck.run(
            "CREATE TABLE t (i INT, d DATE, ts TIMESTAMP)", "INSERT INTO t VALUES (5, DATE '2024-05-05', TIMESTAMP '2024-05-05 05:05:05')"
        )
    database = database_of(lake_address)
    stats = database.tables["file_column_stats"]
    with database.write() as connection:
        connection.execute(update(stats).values(min_value=text, max_value=text))
    database.close()
    with reading(lake_address) as reader:
        for condition in ("i = 5", "i > 4", "i < 6"):
            if text != "99999999999999999999999":
                assert len(pruned(reader, condition)[0]) == 1, condition
        if text not in {"2024-01-01", "0044-03-15 (BC)", "infinity"}:
            for condition in ("d = DATE '2024-05-05'", "ts > TIMESTAMP '2024-05-05 05:05:04'"):
                assert len(pruned(reader, condition)[0]) == 1, condition


@pytest.mark.parametrize(("low", "high"), spread([("4", "x"), ("", "6"), (None, "9"), ("1", None), ("9", "1"), (" 5 ", "5")], 2))
def test_a_readable_bound_is_used_next_to_an_unreadable_one(lake_address: LakeAddress, low: str | None, high: str | None) -> None:
    with attached(lake_address, TO_FILES) as duck:
        duck.run("CREATE TABLE t (i INT)", "INSERT INTO t VALUES (5)")
    database = database_of(lake_address)
    with database.write() as connection:
        connection.execute(update(database.tables["file_column_stats"]).values(min_value=low, max_value=high))
    database.close()
    with reading(lake_address) as reader:
        for condition in ("i = 5", "i > 4", "i < 6", "i IN (5, 50, 60, 70)", "i = 5 OR i = 7", "i BETWEEN 3 AND 6 OR i BETWEEN 12 AND 14"):
            assert len(pruned(reader, condition)[0]) == 1, condition
        out = {("4", "x"): "i < 3", ("1", None): "i < 1", ("", "6"): "i > 7", (None, "9"): "i > 10"}
        if (low, high) in out:
            assert not pruned(reader, out[low, high])[0]


def test_postgresql_tests_each_bound_once_where_both_can_be_read() -> None:
    column = ColumnReference(column_id=1, path=("i",), type=INT32)
    wanted = InList(operand=column, values=tuple(Literal(value=value, type=INT32) for value in (5, 70, 900, 8000)))
    found = excluded(wanted, replace(abilities_of(postgresql.dialect()), validates_input=True))
    assert isinstance(found, Exclusion)
    bounds = Bounds(low=literal_column("low", String), high=literal_column("high", String))
    text = str(any_of(found.bounds, bounds))
    usual, otherwise = text.removeprefix("CASE").split(" ELSE ", 1)
    tested, compared = usual.split(" THEN ", 1)
    assert tested.count("pg_input_is_valid(") == 2
    assert "pg_input_is_valid(" not in compared
    assert compared.count("CAST") == 2 * 4 + 2
    assert otherwise.count("pg_input_is_valid(") == 2 * 4 + 2


def test_statements_do_not_grow_with_files(lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    with attached(lake_address, TO_FILES) as duck:
        duck.run("CREATE TABLE t (a INT)", *(f"INSERT INTO t VALUES ({n})" for n in range(12)))
    for stream_from in (5, 5000):
        monkeypatch.setattr("ducklake_core.catalog.reading.files._STREAM_FROM", stream_from)
        monkeypatch.setattr("ducklake_core.catalog.reading.file_rows._ROWS_PER_FETCH", 3)
        with reading(lake_address) as reader:
            state = reader.table("main", "t", 13)
            with noted_statements() as statements:
                files = list(data_files(reader, state, bind("a >= 0", state.schema), frozenset({1})))
        assert [statistics[1].min_value for _, statistics in files] == [str(n) for n in range(12)]
        # One statement reads whether the statistics are a table, whose rows have positions.
        assert len(statements) == 5 + (lake_address.backend == "postgresql")
