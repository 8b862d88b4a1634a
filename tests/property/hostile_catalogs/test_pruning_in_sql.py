"""Pruning in SQL and after it, end to end: no file with a matching row is left out, whatever the catalog contains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.evaluate import evaluate
from ducklake_core.format.expressions.conditions import bind
from tests.property.hostile_catalogs.lake import DamagedLake
from tests.support.oracle import LakeAddress, attached

pytestmark = pytest.mark.usefixtures("pruned_by_the_database")

_ATOMS = {
    "n": ("0", "3", "7", "12", "25", "99999999999999999999", "4.5"),
    "s": ("''", "'a'", "'ab'", "'b'", "'Z'", "'é'"),
    "day": ("DATE '2022-01-05'", "DATE '2022-02-01'", "DATE '2023-01-01'"),
    "ts": ("TIMESTAMP '2022-01-05 12:00:00'", "TIMESTAMP '2022-02-01 00:00:00.5'"),
}
_GARBAGE = ("x?", "", "-", "1e3", "2022-99-99", "2022-01-05 99:00:00", " 5", "--5", "007?")


@st.composite
def _atom(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(_ATOMS)))
    literal = st.sampled_from(_ATOMS[name])
    match draw(st.integers(0, 5)):
        case 0:
            return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
        case 1:
            return f"{name} IN ({', '.join(draw(st.lists(literal, min_size=1, max_size=3)))})"
        case 2 if name == "s":
            return f"s LIKE '{draw(st.sampled_from(['a', 'ab', 'é', 'Z']))}%'"
        case 3:
            return f"{name} BETWEEN {draw(literal)} AND {draw(literal)}"
        case _:
            return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(literal)}"


_CONDITIONS = st.one_of(_atom(), st.builds("({} AND {})".format, _atom(), _atom()), st.builds("({} OR NOT {})".format, _atom(), _atom()))


@st.composite
def _edit(draw: st.DrawFn) -> str:
    """Return an edit that removes statistics, or makes them detectably wrong."""
    column = draw(st.integers(1, 4))
    count = draw(st.sampled_from(["NULL", "0", "99", "-1"]))
    # Any string is a bound of strings.
    bounds = ("NULL", *(f"'{text}'" for text in _GARBAGE)) if column != 2 else ("NULL",)
    side = draw(st.sampled_from(["min_value", "max_value", "value_count", "null_count"]))
    value = draw(st.sampled_from(bounds)) if side.endswith("value") else count
    files = f"data_file_id % 2 = {draw(st.integers(0, 1))}"
    return f"UPDATE ducklake_file_column_stats SET {side} = {value} WHERE column_id = {column} AND {files}"


class _Files:
    """The table ``p`` and the rows of each of its files."""

    def __init__(self, lake: DuckLake) -> None:
        self._table = lake.table("p")
        names = [*self._table.schema.names, "filename"]
        found = self._table.scan(columns=names).to_arrow()
        self.pruned = 0
        self._rows: dict[str, pa.RecordBatch] = {}
        for path in set(found.column("filename").to_pylist()):
            rows = found.filter(pa.compute.equal(found.column("filename"), path)).drop_columns(["filename"])
            (self._rows[path],) = rows.combine_chunks().to_batches()

    def check(self, condition: str) -> None:
        """The plan holds every file with a matching row."""
        predicate = bind(condition, self._table.schema)
        planned = {task.file.path for task in self._table.scan(where=condition).plan().plan.tasks}
        matching = {path for path, rows in self._rows.items() if rows.filter(evaluate(predicate, rows)).num_rows}
        assert matching <= planned, condition
        self.pruned += len(self._rows) - len(planned)


@contextmanager
def _files(address: LakeAddress) -> Iterator[_Files]:
    lake = DuckLake.connect(address.url)
    try:
        yield _Files(lake)
    finally:
        lake.close()


def _build(address: LakeAddress) -> None:
    """Files of every spec that the table ever had, and of none; the columns were renamed and promoted in between."""

    def rows(first: int, last: int) -> str:
        return (
            f"SELECT CASE WHEN i % 5 <> 4 THEN i END, CASE i % 4 WHEN 0 THEN 'ab' WHEN 1 THEN 'a' WHEN 2 THEN 'é' END, "
            f"CASE WHEN i % 7 <> 6 THEN DATE '2022-01-01' + (i * 9)::INTEGER END, TIMESTAMP '2022-01-01' + to_hours(i * 30) "
            f"FROM range({first}, {last}) r(i)"
        )

    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE p(num SMALLINT, s VARCHAR, day DATE, ts TIMESTAMP)", f"INSERT INTO p {rows(0, 6)}")
        duck.run("ALTER TABLE p SET PARTITIONED BY (s)", f"INSERT INTO p {rows(6, 12)}")
        duck.run("ALTER TABLE p RENAME num TO n", "ALTER TABLE p SET PARTITIONED BY (n)", f"INSERT INTO p {rows(10, 14)}")
        duck.run("ALTER TABLE p SET PARTITIONED BY (bucket(3, n), month(day))", f"INSERT INTO p {rows(12, 18)}")
        duck.run("ALTER TABLE p ALTER n TYPE BIGINT", "ALTER TABLE p SET PARTITIONED BY (day, year(ts))", f"INSERT INTO p {rows(18, 24)}")
        duck.run("ALTER TABLE p SET PARTITIONED BY (bucket(2, n))", f"INSERT INTO p {rows(20, 26)}")
        duck.run("ALTER TABLE p RESET PARTITIONED BY", f"INSERT INTO p {rows(0, 3)}")


def test_partitions_of_every_spec(lake_address: LakeAddress) -> None:
    _build(lake_address)
    with _files(lake_address) as files:

        @settings(max_examples=50, derandomize=True, deadline=None)
        @given(_CONDITIONS)
        def check(condition: str) -> None:
            files.check(condition)

        check()
        assert files.pruned > 50


def test_statistics_that_are_missing_or_wrong(sqlite_address: LakeAddress) -> None:
    _check_spoiled(sqlite_address, 40)


@pytest.mark.slow
def test_statistics_that_are_missing_or_wrong_for_long(sqlite_address: LakeAddress) -> None:
    _check_spoiled(sqlite_address, 1000)


def _check_spoiled(address: LakeAddress, examples: int) -> None:
    _build(address)
    spoiled = DamagedLake(address)
    # Values of partitions would prune too.
    spoiled.edit("UPDATE ducklake_data_file SET partition_id = NULL", "CREATE TABLE kept AS SELECT * FROM ducklake_file_column_stats")
    restore = ("DELETE FROM ducklake_file_column_stats", "INSERT INTO ducklake_file_column_stats SELECT * FROM kept")
    with _files(address) as files:

        @settings(max_examples=examples, derandomize=True, deadline=None)
        @given(st.lists(_edit(), min_size=1, max_size=3), st.lists(_CONDITIONS, min_size=3, max_size=3))
        def check(edits: list[str], conditions: list[str]) -> None:
            spoiled.edit(*restore, *edits)
            for condition in conditions:
                files.check(condition)

        check()
        assert files.pruned > 50


# One after the other: MySQL sees in a statement what it has set before.
_SWAPPED = tuple(
    f"UPDATE ducklake_file_column_stats SET {cells} WHERE data_file_id IN (0, 2, 4, 6, 8, 10)"
    for cells in ("extra_stats = min_value", "min_value = max_value", "max_value = extra_stats", "extra_stats = NULL")
)
_BLOBS = (
    "UPDATE ducklake_file_column_stats SET min_value = CAST(min_value AS BLOB) WHERE data_file_id IN (0, 3, 6, 9)",
    "UPDATE ducklake_file_column_stats SET max_value = CAST(max_value AS BLOB) WHERE data_file_id IN (1, 4, 7, 10)",
)


def test_swapped_bounds_are_ignored(lake_address: LakeAddress) -> None:
    _build(lake_address)
    DamagedLake(lake_address).edit("UPDATE ducklake_data_file SET partition_id = NULL", *_SWAPPED)
    _check_examples(lake_address)


def test_bounds_of_blobs_are_ignored(sqlite_address: LakeAddress) -> None:
    _build(sqlite_address)
    DamagedLake(sqlite_address).edit("UPDATE ducklake_data_file SET partition_id = NULL", *_BLOBS)
    _check_examples(sqlite_address)


def _check_examples(address: LakeAddress) -> None:
    with _files(address) as files:

        @settings(max_examples=40, derandomize=True, deadline=None)
        @given(_CONDITIONS)
        def check(condition: str) -> None:
            files.check(condition)

        check()
        assert files.pruned > 30
