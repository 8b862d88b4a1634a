"""Inlined rows compared with DuckDB's (or with the inserted values, where DuckDB itself fails)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal
from sqlalchemy import update

from ducklake_core import DuckLake
from ducklake_core.catalog.inlined.rows import inlined_rows
from ducklake_core.errors import CatalogError, UnsupportedFeatureError
from ducklake_core.format.types.schema import to_arrow_schema
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import SQLITE_THEN_SLOW
from tests.unit.catalog.catalog_access import database_of, reading


def read(address: LakeAddress, table: str = "t", at: int | None = None, columns: Sequence[str] = (), **options: bool) -> pa.Table | None:
    with reading(address) as reader:
        state = reader.table("main", table, reader.latest_snapshot().id if at is None else at)
        wanted = state.schema.select(columns) if columns else state.schema
        found = inlined_rows(reader, state, wanted, **options)
    if found is not None:
        assert found.schema.names[: len(wanted)] == list(wanted.names)
        assert pa.schema(list(found.schema)[: len(wanted)]).equals(to_arrow_schema(wanted), check_metadata=True)
    return found


def values(found: pa.Table | None, column: str) -> list[object]:
    assert found is not None
    return found.column(column).to_pylist()


NESTED: dict[str, tuple[str, str, object]] = {
    "strings": (
        "VARCHAR[]",
        "['a', 'x,y', NULL, '', 'it''s', 'b\\s', ' sp ', 'null', 'q\"q', 'a' || chr(10) || 'b', '(p)', 'a:b', '{z}', '\\']",
        ["a", "x,y", None, "", "it's", "b\\s", " sp ", "null", 'q"q', "a\nb", "(p)", "a:b", "{z}", "\\"],
    ),
    "lists": ("INT[][]", "[[1, 2], [], NULL, [NULL]]", [[1, 2], [], None, [None]]),
    "empty": ("INT[]", "[]", []),
    "blobs": ("BLOB[]", "['\\x00ab,'::BLOB, NULL]", [b"\x00ab,", None]),
    "times": ("TIMESTAMPTZ[]", "[TIMESTAMPTZ '2024-01-01 10:00:00+01', NULL]", [datetime(2024, 1, 1, 9, tzinfo=UTC), None]),
    "intervals": ("INTERVAL[]", "[INTERVAL '1 month 2 days 03:00:00', INTERVAL 3 DAY]",
                  [pa.MonthDayNano([1, 2, 10_800_000_000_000]), pa.MonthDayNano([0, 3, 0])]),
    "structs": ("STRUCT(s VARCHAR, d DATE)[]", "[{'s': 'it''s', 'd': DATE '2024-01-01'}, NULL, {'s': NULL, 'd': NULL}]",
                [{"s": "it's", "d": date(2024, 1, 1)}, None, {"s": None, "d": None}]),
    "map": ("MAP(VARCHAR, VARCHAR)", "MAP {'k': '1', 'c=d': 'e,f', '': NULL}", [("k", "1"), ("c=d", "e,f"), ("", None)]),
    "empty_map": ("MAP(INT, INT)", "MAP {}", []),
    "deep_map": ("MAP(INT, STRUCT(a INT, b VARCHAR[]))", "MAP {1: {'a': 1, 'b': ['x', 'y z']}}", [(1, {"a": 1, "b": ["x", "y z"]})]),
    "dates": ("MAP(DATE, DOUBLE)", "MAP {DATE '2024-01-01': 1.5}", [(date(2024, 1, 1), 1.5)]),
    "struct": (
        "STRUCT(x INT, y VARCHAR, l VARCHAR[], m MAP(VARCHAR, INT), n STRUCT(q VARCHAR, d DOUBLE))",
        "{'x': 1, 'y': 'it''s', 'l': ['a', 'it''s', NULL, ''], 'm': MAP {'k': 1}, 'n': {'q': 'back\\slash\\\\two', 'd': 1.5}}",
        {"x": 1, "y": "it's", "l": ["a", "it's", None, ""], "m": [("k", 1)], "n": {"q": "back\\slash\\\\two", "d": 1.5}},
    ),
    "literals": (
        "STRUCT(d DATE, ts TIMESTAMP, tz TIMESTAMPTZ, u UUID, b BLOB, h HUGEINT, n DECIMAL(10, 2), bo BOOLEAN, i INTERVAL, t TIME)",
        ("{'d': DATE '2024-01-01', 'ts': TIMESTAMP '2024-01-01 10:00:00.5', 'tz': TIMESTAMPTZ '2024-01-01 10:00:00+00', "
        "'u': '550e8400-e29b-41d4-a716-446655440000', 'b': '\\x00ab'::BLOB, 'h': 170141183460469231731687303715884105727, 'n': 1.50, "
        "'bo': true, 'i': INTERVAL '14 months 3 days 00:00:02', 't': TIME '10:00:00'}"),
        {"d": date(2024, 1, 1), "ts": datetime(2024, 1, 1, 10, 0, 0, 500000), "tz": datetime(2024, 1, 1, 10, tzinfo=UTC),  # noqa: DTZ001
         "u": "550e8400-e29b-41d4-a716-446655440000", "b": b"\x00ab", "h": Decimal(2**127 - 1), "n": Decimal("1.50"), "bo": True,
         "i": pa.MonthDayNano([14, 3, 2_000_000_000]), "t": time(10)},
    ),
    "names": (
        "STRUCT(\"a b\" INT, \"q'q\" VARCHAR, j JSON, v VARCHAR, \"w:x,y\" VARCHAR)",
        "{'a b': NULL, 'q''q': 'NULL', 'j': '{\"k\": [1, \"x\"]}', 'v': '', 'w:x,y': 'ends with \\'}",
        {"a b": None, "q'q": "NULL", "j": '{"k": [1, "x"]}', "v": "", "w:x,y": "ends with \\"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("lake_address", SQLITE_THEN_SLOW, indirect=True)
def test_nested_values_are_what_was_inserted(lake_address: LakeAddress) -> None:
    """DuckDB itself loses quotes and backslashes in structs, and cannot read dates in them."""
    with attached(lake_address) as duck:
        for name, (sql, text, _) in NESTED.items():
            duck.run(f"CREATE TABLE {name} (c {sql})", f"INSERT INTO {name} VALUES ({text}), (NULL)")
    for name, (_, _, wanted) in NESTED.items():
        found = values(read(lake_address, name), "c")
        if name == "literals":
            assert isinstance(found[0], dict)
            found[0]["u"] = str(found[0]["u"])
        assert found == [wanted, None], name


def test_versions_that_were_expired(lake_address: LakeAddress) -> None:
    """The columns of an inlined table are known even after its first snapshot was expired."""
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)", "ALTER TABLE t RENAME a TO b", "INSERT INTO t VALUES (2)")
        duck.run("CALL ducklake_expire_snapshots('lake', versions => [1, 2, 3])")
    assert values(read(lake_address), "b") == [1, 2]


def test_the_physical_table_of_each_row(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1), (2)", "ALTER TABLE t ADD COLUMN b INT", "INSERT INTO t VALUES (3, 3)")
    found = read(lake_address, with_table=True)
    assert values(found, "inlined_table") == ["ducklake_inlined_data_1_1"] * 2 + ["ducklake_inlined_data_1_2"]


def test_an_unreadable_value_is_named(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT, l INT[])", "INSERT INTO t VALUES (1, [1])")
    database = database_of(lake_address)
    stored = database.tables.inlined_data("ducklake_inlined_data_1_1", ["l"])
    spoil = update(stored).values({list(stored.c)[-1]: "[1, broken"})
    if lake_address.backend == "duckdb":
        # There the column is a list itself.
        with pytest.raises(CatalogError, match="cast"), database.write() as connection:
            connection.execute(spoil)
        return
    with database.write() as connection:
        connection.execute(spoil)
    database.close()
    with pytest.raises(UnsupportedFeatureError, match=r"'l' of main\.t"):
        read(lake_address)
    assert values(read(lake_address, columns=["a"]), "a") == [1]


def test_a_table_that_vanished_is_an_error(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)")
    database = database_of(lake_address)
    with database.write() as connection:
        database.tables.inlined_data("ducklake_inlined_data_1_1").drop(connection)
    database.close()
    with pytest.raises(CatalogError) as caught:
        read(lake_address)
    if lake_address.backend == "postgresql":
        assert caught.value.retriable


VARIANTS = ["42", "'text'", "1.5::DECIMAL(5, 2)", "DATE '2024-01-15'", "{'a': [1, 2], 'b': NULL}", "true", "NULL", "'\\x00'::BLOB"]


@pytest.mark.parametrize("lake_address", ["duckdb"], indirect=True)
def test_variants_are_those_of_a_file(lake_address: LakeAddress) -> None:
    rows = ", ".join(f"({number}, ({value})::VARIANT)" for number, value in enumerate(VARIANTS))
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (n INT, v VARIANT)", f"INSERT INTO t VALUES {rows}")
        assert duck.rows("FROM ducklake_list_files('lake', 't')") == []
    inlined = read(lake_address)
    lake = DuckLake.connect(lake_address.url)
    assert lake.table("t").scan(where="n = 0").to_arrow().num_rows == 1
    with attached(lake_address) as duck:
        duck.run("CALL ducklake_flush_inlined_data('lake')")
    flushed = lake.table("t").scan().to_arrow()
    assert read(lake_address) is None
    assert values(inlined, "v") == values(flushed, "v")
    assert values(inlined, "v")[VARIANTS.index("NULL")] is None


INSIDE = {
    'STRUCT(v VARIANT, "Order" INT)': [
        "{'v': 42::VARIANT, 'Order': 1}",
        "{'v': 'a''b'::VARIANT, 'Order': NULL}",
        "{'v': NULL, 'Order': 2}",
        "NULL",
    ],
    "VARIANT[]": ["[1::VARIANT, 2::VARIANT, NULL]", "['x,y]'::VARIANT]", "[{'a': [1, 2], 'b': NULL}::VARIANT]", "[]", "NULL"],
    "MAP(VARCHAR, VARIANT)": [
        "MAP {'k,=': 'q'::VARIANT, 'NULL': 'NULL'::VARIANT}",
        "MAP {'d': DATE '1969-12-31'::VARIANT}",
        "MAP {}",
        "NULL",
    ],
    "STRUCT(x STRUCT(w VARIANT, t TIME)[])[]": ["[{'x': [{'w': 1.5::VARIANT, 't': '01:02:03'}, NULL]}, NULL, {'x': NULL}]", "NULL"],
    "MAP(INT, STRUCT(l VARIANT[]))": ["MAP {1: {'l': ['it''s \\'::VARIANT]}, 2: NULL}", "MAP {3: {'l': NULL}}"],
}


@pytest.mark.parametrize("lake_address", ["duckdb"], indirect=True)
def test_variants_inside_other_values(lake_address: LakeAddress) -> None:
    """DuckDB can keep them nowhere else: it writes them to no file."""
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(INSIDE))
    with attached(lake_address) as duck:
        duck.run(f"CREATE TABLE t (n INT, {columns})")
        rows = [(position, text) for position, literals in enumerate(INSIDE.values()) for text in literals]
        for number, (position, text) in enumerate(rows):
            duck.run(f"INSERT INTO t (n, c{position}) VALUES ({number}, {text})")
        duck.run("ALTER TABLE t RENAME c0 TO renamed", "DELETE FROM t WHERE n = 2")
        names = ("renamed", *(f"c{number}" for number in range(1, len(INSIDE))))
        literals = ", ".join(f"CAST(CAST({name} AS JSON) AS VARCHAR)" for name in names)
        by_duckdb = [
            [None if text is None else json.loads(str(text)) or [] for text in row]
            for row in duck.rows(f"SELECT {literals} FROM t ORDER BY n")
        ]
    found = read(lake_address)
    assert found is not None
    by_library = zip(*(found.column(name).to_pylist() for name in names), strict=True)
    assert [[_plain(value) for value in row] for row in by_library] == by_duckdb
    assert len(by_duckdb) == len(rows) - 1


def _plain(value: Any) -> Any:
    """As JSON, variants decoded."""
    match value:
        case {"metadata": bytes() as metadata, "value": bytes() as content}:
            return json.loads(VariantVal(content, metadata).toJson())
        case dict():
            return {name: _plain(held) for name, held in value.items()}
        case [(_, _), *_]:
            return {str(key): _plain(held) for key, held in value}
        case list():
            return [_plain(held) for held in value]
        case time():
            return str(value)
        case _:
            return value
