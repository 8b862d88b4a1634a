"""Cells that SQLite joins, against the same cells fetched one by one: the same, or no answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Column, MetaData, Table, create_engine, true
from sqlalchemy.sql import quoted_name
from sqlalchemy.types import NullType

from ducklake_core import DuckLake
from ducklake_core.catalog.inlined import rows as rows_module
from ducklake_core.catalog.inlined.cells import declared_types, integer_columns, joined_cells, row_index
from ducklake_core.catalog.inlined.rows import stored_batches
from tests.support.oracle import LakeAddress, attached
from tests.unit.catalog.catalog_access import reading

_STRINGS = st.none() | st.text(max_size=4) | st.text("\0\x1e\x1f,'", max_size=3)
_INTEGERS = st.none() | st.integers(-(2**63), 2**63 - 1)
_ODD = st.binary(max_size=2) | st.floats() | st.sampled_from(["1", " 2", "x", "", "\x1e", "\x1f", "1\x1f2"])


def fetched_and_joined(cells: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any] | None]:
    """Rows of an integer and a string, as the driver fetches them and as they are joined."""
    engine = create_engine("sqlite://")
    table = Table("t", MetaData(), Column("a", BigInteger), Column("b", NullType()))
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a BIGINT, b VARCHAR)")
        connection.exec_driver_sql("INSERT INTO t VALUES (?, ?)", list(cells))
        assert integer_columns(declared_types(connection, "t"), list(table.c)) == (True, False)
        joined = joined_cells(connection, list(table.c), [True, False], true())
        fetched = [tuple(row) for row in connection.exec_driver_sql("SELECT a, b FROM t ORDER BY rowid")]
    engine.dispose()
    return fetched, None if joined is None else list(zip(*(array.to_pylist() for array in joined), strict=True))


@given(cells=st.lists(st.tuples(_INTEGERS, _STRINGS), min_size=1, max_size=6))
@example(cells=[(None, None)])
@example(cells=[(1, "\x1e"), (2, None)])
@example(cells=[(1, "\x1e")])
@example(cells=[(1, ""), (2, ""), (None, "")])
def test_joined_cells_are_those_that_are_fetched(cells: list[tuple[int | None, str | None]]) -> None:
    fetched, joined = fetched_and_joined(cells)
    strings = [text or "" for _, text in cells]
    ambiguous = any("\x1f" in text for text in strings) or ("\x1e" in strings and None in [text for _, text in cells])
    assert (joined is None) == ambiguous
    assert joined in (None, fetched)


@given(cells=st.lists(st.tuples(_INTEGERS | _ODD, _STRINGS | _ODD), min_size=1, max_size=6))
@example(cells=[(b"12", "x"), (1, "y")])
@example(cells=[(2.0**63, "x"), (1.5, "y")])
def test_integers_that_are_none_are_left_to_fetching(cells: list[tuple[Any, Any]]) -> None:
    """Blobs among strings are strings; a number among strings became a string when it was inserted."""
    try:
        fetched, joined = fetched_and_joined(cells)
    except sqlite3.Error:
        return
    if joined is not None:
        assert joined == [(a, b.decode() if isinstance(b, bytes) else b) for a, b in fetched]
        assert all(a is None or type(a) is int for a, _ in joined)


def test_invalid_unicode_is_left_to_fetching() -> None:
    fetched, joined = fetched_and_joined([(1, b"\x31\x32")])
    assert (fetched, joined) == ([(1, b"12")], [(1, "12")])
    engine = create_engine("sqlite://")
    table = Table("t", MetaData(), Column("b", NullType()))
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (b TEXT)")
        connection.exec_driver_sql("INSERT INTO t VALUES (x'ff')")
        assert joined_cells(connection, list(table.c), [False], true()) is None
    engine.dispose()


@pytest.mark.parametrize(
    ("declared", "kinds"),
    [
        ("a BIGINT, b VARCHAR", (True, False)), ("A int, B text", (True, False)), ("a BIGINT, b DOUBLE", None), ("a BIGINT, b BLOB", None),
        ("a, b TEXT", None), ("a BIGINT", None),
    ],
)  # fmt: skip
def test_columns_that_may_hold_something_else_are_fetched(declared: str, kinds: tuple[bool, ...] | None) -> None:
    engine = create_engine("sqlite://")
    # As tables of inlined rows have them, whose names are not folded by lower().
    table = Table("t", MetaData(), Column("a", BigInteger), Column(quoted_name("B", quote=True), NullType()))
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE TABLE t ({declared})")
        assert integer_columns(declared_types(connection, "t"), list(table.c)) == kinds
    engine.dispose()


def test_a_name_for_the_place_of_a_row_that_no_column_has() -> None:
    for names, index in (
        (("a", "b"), "_rowid_"),
        (("_rowid_",), "oid"),
        (("_rowid_", "oid"), "rowid"),
        (("oid", "rowid", "_rowid_"), None),
    ):
        found = row_index(dict.fromkeys(names, "TEXT"))
        assert (found if found is None else str(found)) == index


TYPES = {
    "BOOLEAN": "true",
    "UTINYINT": "255",
    "BIGINT": "-9223372036854775808",
    "UBIGINT": "18446744073709551615",
    "HUGEINT": "170141183460469231731687303715884105727",
    "FLOAT": "0.1",
    "DOUBLE": "1.2345678901234568e17",
    "DECIMAL(38, 10)": "-1.5",
    "DATE": "'0001-01-01'",
    "TIME": "'23:59:59.999999'",
    "TIMESTAMPTZ": "'1600-01-15 10:00:00.5+09'",
    "VARCHAR": "'a' || chr(10) || 'ünï, \"q\"'",
    "UUID": "'550e8400-e29b-41d4-a716-446655440000'",
    "INT[]": "[1, NULL]",
    "STRUCT(x VARCHAR)": "{'x': 'it''s'}",
}


def batches(address: LakeAddress, *, ordered: bool) -> list[pa.Table]:
    with reading(address) as reader:
        state = reader.table("main", "t", reader.latest_snapshot().id)
        (source,) = state.inlined_tables
        with closing(stored_batches(reader, state, source, state.schema, row_count=100, ordered=ordered)) as found:
            return list(found)


@pytest.mark.parametrize(
    "odd", ["", "'between ' || chr(31) || ' strings'", "chr(30)"], ids=["joined", "with a separator", "with what stands for NULL"]
)
def test_rows_of_every_type_a_few_at_a_time(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    monkeypatch.setattr(rows_module, "JOINED_ROWS", 3)
    monkeypatch.setattr(rows_module, "JOINED_FROM", 1)
    columns = ", ".join(f'"{name.lower()}" {name}' for name in TYPES)
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 100") as duck:
        duck.run(f"CREATE TABLE t ({columns}, s VARCHAR)")
        for row in (*TYPES.values(), odd or "'x'"), ("NULL" for _ in (*TYPES, "s")), (*TYPES.values(), "''"):
            duck.run(f"INSERT INTO t SELECT {', '.join(row)} FROM range(4)")
        duck.run("DELETE FROM t WHERE rowid IN (1, 6)")
    joined, fetched = batches(sqlite_address, ordered=False), batches(sqlite_address, ordered=True)
    assert [part.num_rows for part in joined] == [3, 3, 3, 3]
    assert pa.concat_tables(joined).equals(pa.concat_tables(fetched))


def test_rows_whose_places_have_gaps(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column has one of the names of the place; rows were taken out of the middle, and one was moved before all others."""
    monkeypatch.setattr(rows_module, "JOINED_ROWS", 2)
    monkeypatch.setattr(rows_module, "JOINED_FROM", 1)
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 100") as duck:
        duck.run('CREATE TABLE t (_rowid_ INT, "oid" VARCHAR)', "INSERT INTO t SELECT range, range FROM range(9)")
    with closing(sqlite3.connect(Path(sqlite_address.url.removeprefix("sqlite:///")))) as catalog, catalog:
        ((name,),) = catalog.execute("SELECT name FROM sqlite_master WHERE name LIKE 'ducklake_inlined_data_1_%'")
        catalog.execute(f"DELETE FROM {name} WHERE row_id IN (2, 3, 4, 5)")
        catalog.execute(f"UPDATE {name} SET rowid = -7 WHERE row_id = 8")
    joined = pa.concat_tables(batches(sqlite_address, ordered=False))
    assert joined["_rowid_"].to_pylist() == [8, 0, 1, 6, 7]
    assert joined["oid"].to_pylist() == ["8", "0", "1", "6", "7"]
    with DuckLake.connect(sqlite_address.url) as lake:
        assert lake.flush_inlined_data().rows_flushed == 5
        assert sorted(lake.table("t").scan().to_arrow()["_rowid_"].to_pylist()) == [0, 1, 6, 7, 8]


def test_names_that_differ_in_letters_beyond_ascii(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are two columns in SQLite, as in DuckDB: one of them has blobs, which are not joined."""
    monkeypatch.setattr(rows_module, "JOINED_FROM", 1)
    rows = [{"ä": "x", "Ä": rb"\x41"}, {"ä": None, "Ä": None}]
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        for names in (["Ä", "ä"], ["ä", "Ä"]):
            table = f"t_{names[0]}"
            lake.write(table, pa.Table.from_pylist(rows).select(names))
            assert lake.table(table).list_files() == []
            assert lake.table(table).to_arrow().to_pylist() == rows


def test_reads_of_some_columns_at_every_snapshot(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updated rows stand after others, and a column that is not read has the name of SQLite's place of a row."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 100") as duck:
        duck.run("CREATE TABLE t (_rowid_ VARCHAR, a INT, d DATE)", "INSERT INTO t SELECT 'x' || range, range, NULL FROM range(7)")
        duck.run("UPDATE t SET a = a + 100, d = '2024-01-31' WHERE a IN (1, 4)", "DELETE FROM t WHERE a IN (0, 101)")
        duck.run("ALTER TABLE t ADD COLUMN e INT DEFAULT 5", "INSERT INTO t VALUES ('y', 8, NULL, NULL)", "UPDATE t SET a = -1 WHERE a = 2")

    def read() -> list[list[dict[str, Any]]]:
        with DuckLake.connect(sqlite_address.url) as lake:
            scans = [
                lake.table("t", at=snapshot.id).scan(columns=columns)
                for snapshot in lake.snapshots()[1:]
                for columns in (["a"], ["d", "rowid"], ["_rowid_", "a", "snapshot_id"], None)
            ]
            feed = lake.table("t").changes(1).to_arrow().to_pylist()
            return [*(scan.to_arrow().to_pylist() for scan in scans), feed]

    fetched = read()
    monkeypatch.setattr(rows_module, "JOINED_ROWS", 2)
    monkeypatch.setattr(rows_module, "JOINED_FROM", 1)
    assert read() == fetched
    assert max(map(len, fetched)) >= 7
