"""Nested and unusual columns of other writers: what DuckDB reads is added, what it cannot read only on request."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from thrift.Thrift import TType

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.storage.encryption.compact import Items, Struct
from tests.behaviour.foreign_files.added import check, put
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached
from tests.support.parquet_bytes import (
    CHILDREN,
    COLUMNS,
    CONVERTED,
    LOGICAL,
    NAME,
    PATH,
    ROW_GROUPS,
    SCHEMA,
    TYPE,
    change_footer,
    chunks_of,
    rename,
)  # fmt: skip
from tests.support.scans import open_lake

NUMBERS = pa.array([[1, 2], None, []], pa.list_(pa.int32()))
PAIRS = pa.array(
    [[{"x": 1, "y": "a"}], [], None],
    pa.list_(pa.field("element", pa.struct([("x", pa.int32()), ("y", pa.string())]), nullable=False)),
)
MAPS = pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32()))
Change = Callable[[Path], object]


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    return lake_of_files(sqlite_address)


def as_it_is(_path: Path) -> None:
    """Change nothing."""


def renamed(**names: str) -> Change:
    def change(path: Path) -> None:
        for old, new in names.items():
            rename(path, old.encode(), new.encode())

    return change


def two_levels(name: bytes) -> Change:
    """Return a change that removes the group around the elements of a list of structs."""

    def change(tree: Struct) -> None:
        elements = tree[SCHEMA][1]
        assert isinstance(elements, Items)
        group, element = tree.structs(SCHEMA)[2:4]
        group[NAME] = (TType.STRING, name)
        group[CHILDREN] = element[CHILDREN]
        del elements.values[3]
        for column in range(len(tree.structs(ROW_GROUPS)[0].structs(COLUMNS))):
            for chunk in chunks_of(tree, column):
                path = chunk[PATH][1]
                assert isinstance(path, Items)
                path.values[1:3] = [name]

    return lambda path: change_footer(path, change)


def not_annotated(path: Path) -> None:
    change_footer(path, lambda tree: tree.structs(SCHEMA)[1].drop(CONVERTED, LOGICAL))


def repeated_leaf(path: Path) -> None:
    """Turn a list of numbers into a group with a repeated number."""

    def change(tree: Struct) -> None:
        elements = tree[SCHEMA][1]
        assert isinstance(elements, Items)
        column, group, element = tree.structs(SCHEMA)[1:4]
        column.drop(CONVERTED, LOGICAL)
        group[TYPE] = element[TYPE]
        group.drop(CHILDREN)
        del elements.values[3]
        for chunk in chunks_of(tree, 0):
            names = chunk[PATH][1]
            assert isinstance(names, Items)
            names.values.pop()

    change_footer(path, change)


FORMS: dict[str, tuple[pa.Array, Change]] = {
    "as the specification has it": (NUMBERS, as_it_is),
    "an item": (NUMBERS, renamed(element="item")),
    "Hive": (NUMBERS, renamed(list="bag", element="array_element")),
    "Hive, of structs": (PAIRS, renamed(list="bag", element="array_element")),
    "earlier versions of Spark": (NUMBERS, renamed(list="bag", element="array")),
    "two levels of Avro": (PAIRS, two_levels(b"array")),
    "a map in another group": (MAPS, renamed(key_value="entries")),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_duckdb_reads(lake: DuckLake, sqlite_address: LakeAddress, tmp_path: Path, name: str) -> None:
    values, change = FORMS[name]
    path = put(tmp_path / "f.parquet", pa.table({"a": values}), store_schema=False)
    change(path)
    lake.create_table("t", pa.schema([("a", values.type)]))
    lake.add_data_files("t", path)
    assert lake.table("t").scan().to_arrow().column("a").to_pylist() == values.to_pylist()
    with attached(sqlite_address) as duck:
        check(duck, open_lake(sqlite_address))


OBSTACLES: dict[str, tuple[pa.Array, Change, pa.DataType, list[Any], str]] = {
    "repeated numbers": (
        pa.array([[1, 2], None, []], pa.list_(pa.field("element", pa.int32(), nullable=False))), repeated_leaf,
        pa.struct([("list", pa.list_(pa.int32()))]), [{"list": [1, 2]}, None, {"list": []}], r"'a\.list' .*without the annotation LIST",
    ),
    "a repeated group": (
        NUMBERS, not_annotated, pa.struct([("list", pa.list_(pa.struct([("element", pa.int32())])))]),
        [{"list": [{"element": 1}, {"element": 2}]}, None, {"list": []}], r"'a\.list' .*without the annotation LIST",
    ),
    "two levels of Thrift": (PAIRS, two_levels(b"a_tuple"), PAIRS.type, PAIRS.to_pylist(), "'a' .*list of structs without a group"),
    "a map of other names": (MAPS, renamed(key="k", value="v"), MAPS.type, MAPS.to_pylist(), "'a' .*is a map of 'k' and 'v'"),
}  # fmt: skip


@pytest.mark.parametrize("name", OBSTACLES)
def test_forms_that_duckdb_cannot_read(lake: DuckLake, tmp_path: Path, name: str) -> None:
    values, change, wanted, expected, message = OBSTACLES[name]
    path = put(tmp_path / "f.parquet", pa.table({"a": values}), store_schema=False)
    change(path)
    lake.create_table("t", pa.schema([("a", wanted)]))
    with pytest.raises(UnsupportedFeatureError, match=message + ".*for_duckdb=False"):
        lake.add_data_files("t", path)
    lake.add_data_files("t", path, for_duckdb=False)
    assert lake.table("t").scan().to_arrow().column("a").to_pylist() == expected


COLUMN_TYPES = {
    "interval": "interval",
    "float16": pa.array([1.5, None, 0.0], pa.float16()),
    "string_view": pa.array(["a", None, "b"], pa.string_view()),
    "binary_view": pa.array([b"a", None, b"b"], pa.binary_view()),
    "list_view": pa.array([[1], None, []], pa.list_view(pa.int64())),
    "large_list_view": pa.array([["a"], None, []], pa.large_list_view(pa.string_view())),
    "large_list": pa.array([[1], None, []], pa.large_list(pa.int32())),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "nested views": pa.array([{"x": ["a"]}] * 3, pa.struct([("x", pa.list_(pa.string_view()))])),
    "date64": pa.array([0, None, 86_400_000], pa.date64()),
    "time32": pa.array([0, None, 5], pa.time32("ms")),
    "nanoseconds": pa.array([0, None, 5], pa.timestamp("ns")),
}


@pytest.mark.parametrize("name", COLUMN_TYPES)
def test_tables_created_from_the_schema_of_a_file(lake: DuckLake, sqlite_address: LakeAddress, tmp_path: Path, name: str) -> None:
    path, column = tmp_path / "f.parquet", COLUMN_TYPES[name]
    if isinstance(column, str):
        values = "VALUES (1, INTERVAL '1 month 2 days 3 seconds'), (2, NULL), (3, INTERVAL 5 DAY)"
        duckdb.execute(f"COPY (SELECT * FROM ({values}) AS v(i, a)) TO '{path}' (FORMAT parquet)")
        schema = pa.schema([("i", pa.int32()), ("a", pa.month_day_nano_interval())])
    else:
        put(path, pa.table({"i": [1, 2, 3], "a": column}))
        schema = pq.read_schema(path)
    lake.create_table("t", schema)
    lake.add_data_files("t", path)
    table = lake.table("t")
    assert table.scan(where="i = 3").to_arrow().column("a").null_count == 0
    assert table.scan(where="a IS NULL").to_arrow().num_rows == (0 if name == "nested views" else 1)
    table.delete("i = 1")
    with attached(sqlite_address) as duck:
        check(duck, open_lake(sqlite_address))


def test_required_nested_columns_are_not_null(lake: DuckLake, sqlite_address: LakeAddress, tmp_path: Path) -> None:
    types = {"l": NUMBERS.type, "s": pa.struct([("x", pa.int32())]), "m": MAPS.type}
    schema = pa.schema([pa.field(name, data_type, nullable=False) for name, data_type in types.items()])
    data = pa.Table.from_pylist([{"l": [1], "s": {"x": None}, "m": [("k", 1)]}], schema)
    lake.create_table("t", schema)
    lake.add_data_files("t", put(tmp_path / "f.parquet", data))
    with attached(sqlite_address) as duck:
        check(duck, open_lake(sqlite_address))
    with pytest.raises(SchemaError, match="NULLs are in column 'l', which is NOT NULL"):
        lake.add_data_files("t", put(tmp_path / "g.parquet", data.cast(pa.schema([field.with_nullable(True) for field in schema]))))


def test_null_in_a_column_with_a_point_in_its_name(lake: DuckLake, tmp_path: Path) -> None:
    lake.create_table("t", pa.schema([pa.field("a.b", pa.int32(), nullable=False)]))
    with pytest.raises(SchemaError, match=r"1 NULLs in column 'a\.b'"):
        lake.add_data_files("t", put(tmp_path / "f.parquet", pa.table({"a.b": pa.array([None], pa.int32())})))


@pytest.mark.parametrize("is_nested", [False, True])
def test_timestamps_of_96_bits_beyond_microseconds(lake: DuckLake, tmp_path: Path, is_nested: bool) -> None:
    day, days_of_epoch = 2_458_850, 2_440_588
    moments = pa.array([0, (day - days_of_epoch) * 86_400 * 10**9], pa.timestamp("ns"))
    values = pa.array([[moment] for moment in moments], pa.list_(pa.timestamp("ns"))) if is_nested else moments
    options = {"use_deprecated_int96_timestamps": True, "use_dictionary": False, "compression": "none", "store_schema": False}
    path = put(tmp_path / "f.parquet", pa.table({"i": [1, 2], "a": values}), **options)
    lake.create_table("t", pa.schema([("i", pa.int64()), ("a", pa.list_(pa.timestamp("us")) if is_nested else pa.timestamp("us"))]))
    lake.add_data_files("t", path)
    assert lake.table("t").scan(where="i = 2").to_arrow().num_rows == 1
    content = path.read_bytes()
    old, new = (struct.pack("<qi", 0, days) for days in (day, days_of_epoch + 110_000_000))
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    with pytest.raises(SchemaError, match=r"column 'a' of .*f\.parquet of table main\.t has timestamps \(INT96\) outside of the years"):
        lake.table("t").scan().to_arrow()
    assert lake.table("t").scan(columns=["i"]).to_arrow().num_rows == 2


def test_variants_of_a_file_for_another_column(lake: DuckLake, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    duckdb.execute(f"COPY (SELECT 1::INTEGER::VARIANT AS a) TO '{path}' (FORMAT parquet)")
    lake.create_table("t", pa.schema([("a", pa.int32())]))
    with pytest.raises(SchemaError, match=r"'a' of .*is of type variant, which does not fit"):
        lake.add_data_files("t", path)
    lake.sql("CREATE TABLE v (a VARIANT)")
    with pytest.raises(UnsupportedFeatureError, match="type variant, which can be added with DuckDB's ducklake_add_data_files only"):
        lake.add_data_files("v", path)


def test_duckdb_relations_with_variants(lake: DuckLake) -> None:
    lake.sql("CREATE TABLE t (v VARIANT)")
    for query in ("SELECT 1::VARIANT AS v", "SELECT [1::VARIANT] AS v"):
        with (
            duckdb.connect() as connection,
            pytest.raises(UnsupportedFeatureError, match="column 'v' of a DuckDB relation: DuckDB does not"),
        ):
            lake.write("t", connection.sql(query))
