"""Every kind of frame with every type that it can hold, through every operation that accepts one, read by DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.format.types.data_types import TIME_NS, VARCHAR, DataType, Field, ListType, StructType
from tests.behaviour.frames.kinds import KINDS, Kind
from tests.behaviour.types.samples import FILE_TYPES, TYPES, constant, strings_of
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import spread

each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
some_kinds = pytest.mark.parametrize("kind", spread(KINDS, 4), ids=str)


def samples(data_type: DataType, kind: Kind) -> str:
    """A query for the samples of a type, and NULL."""
    strings: list[str | None] = [*strings_of(data_type, in_file=True), *([] if data_type in kind.no_null else [None])]
    rows = ", ".join(f"({number}, {constant(text, TYPES[data_type])})" for number, text in enumerate(strings))
    return f"SELECT * FROM (VALUES {rows}) AS samples(n, v)"


@some_kinds
@pytest.mark.parametrize("inline", [True, False], ids=["inlined", "in files"])
def test_values_of_every_type_are_those_that_duckdb_has(kind: Kind, inline: bool, small: DuckLake, sqlite_address: LakeAddress) -> None:
    types = {f"t{number}": data_type for number, data_type in enumerate(FILE_TYPES) if data_type not in kind.lacks}
    assert len(types) >= 25
    with small.transaction() as tx:
        for name, data_type in types.items():
            tx.create_table(name, {"n": "int32", "v": data_type})
            tx.append(name, kind.make(duckdb.sql(samples(data_type, kind)).to_arrow_table()), inline=inline)
    with attached(sqlite_address) as duck:
        for name, data_type in types.items():
            wanted = duck.rows(f"SELECT n, v::VARCHAR FROM ({samples(data_type, kind)}) ORDER BY n")
            assert duck.rows(f"SELECT n, v::VARCHAR FROM lake.{name} ORDER BY n") == wanted, data_type


@each_kind
def test_nested_values(kind: Kind, small: DuckLake, sqlite_address: LakeAddress) -> None:
    fields = (Field(name="x", type=VARCHAR), Field(name="y", type=ListType(element=Field(name="element", type=VARCHAR))))
    small.create_table("t", {"n": "int32", "l": "int32[]", "s": StructType(fields=fields)})
    # In pandas integers with a NULL among them become floats.
    middle = "2" if kind.no_null else "NULL"
    query = f"SELECT 1::INTEGER n, [1, {middle}, -3]::INTEGER[] l, {{'x': 'a', 'y': ['b', NULL]}} s UNION ALL SELECT 2, [], NULL"
    rows = duckdb.sql(query).to_arrow_table()
    small.table("t").append(kind.make(rows), inline=False)
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT * FROM lake.t ORDER BY n") == duck.rows(f"SELECT * FROM ({query}) ORDER BY n")


@some_kinds
def test_every_operation_accepts_it(kind: Kind, small: DuckLake, sqlite_address: LakeAddress) -> None:
    def frame(**columns: list[object]) -> object:
        return kind.make(pa.table({"k": pa.array(columns["k"], pa.int64()), "v": pa.array(columns["v"], pa.string())}))

    small.write("t", frame(k=[1, 2], v=["a", "b"]))
    table = small.table("t")
    table.append(frame(k=[3], v=["c"]), inline=False)
    table.overwrite(frame(k=[2], v=["B"]), where="k = 2")
    table.upsert(frame(k=[3, 4], v=["C", "d"]), on=["k"])
    table.merge(frame(k=[4, 5], v=["D", "e"]), on="k").when_matched_update("all").when_not_matched_insert("all").execute()
    small.create_table("empty", frame(k=[1], v=["a"]))
    small.create_table_as("copy", frame(k=[7], v=["g"]))
    with small.transaction() as tx:
        tx.write("copy", frame(k=[8], v=["h"]))
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT k, v FROM lake.t ORDER BY k") == [(1, "a"), (2, "B"), (3, "C"), (4, "D"), (5, "e")]
        assert duck.rows("SELECT k, v FROM lake.copy ORDER BY k") == [(7, "g"), (8, "h")]
        assert duck.rows("SELECT k, v FROM lake.empty") == []
        for name in ("t", "copy", "empty"):
            types = duck.rows(f"SELECT column_name, column_type FROM (DESCRIBE lake.{name})")
            assert types == [("k", "BIGINT"), ("v", "VARCHAR")]


@each_kind
def test_a_column_of_nulls_takes_the_type_of_the_table(kind: Kind, small: DuckLake) -> None:
    small.create_table("t", {"k": "int32", "d": "date"})
    small.table("t").append(kind.make(pa.table({"k": pa.array([1], pa.int32()), "d": pa.nulls(1, pa.date32())})))
    assert small.table("t").scan().to_arrow().to_pylist() == [{"k": 1, "d": None}]


def test_all_types_of_duckdb_are_tried() -> None:
    assert set(TYPES) - set(FILE_TYPES) == {TIME_NS}
