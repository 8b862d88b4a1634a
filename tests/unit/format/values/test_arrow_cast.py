"""Arrow data brought to a table's types: by name at every level, without losing a value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.data_types import (  # fmt: skip
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    GEOMETRY,
    INT8,
    INT16,
    INT32,
    INT64,
    INT128,
    INTERVAL,
    JSON,
    PRIMITIVES,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    UINT64,
    UINT128,
    UUID,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from ducklake_core.format.types.schema import FIELD_ID_KEY, Schema, from_arrow_schema, to_arrow_schema, with_ids
from ducklake_core.format.values.arrow_cast import cast_array, cast_to, constant_array
from ducklake_core.format.values.leaf_values import python_values
from ducklake_core.format.values.value_text import Interval


def column(name: str, data_type: DataType, **rest: object) -> Field:
    return Field(name=name, type=data_type, **rest)  # type: ignore[arg-type]


def schema(*columns: Field) -> Schema:
    return with_ids(Schema(columns=columns))


def list_of(data_type: DataType) -> ListType:
    return ListType(element=column("element", data_type))


def map_of(key: DataType, value: DataType) -> MapType:
    return MapType(key=column("key", key), value=column("value", value))


def struct(**fields: DataType) -> StructType:
    return StructType(fields=tuple(column(name, data_type) for name, data_type in fields.items()))


def test_schemas_go_to_arrow_and_back() -> None:
    leaves = [column(name, data_type) for name, data_type in PRIMITIVES.items() if data_type not in (VARIANT, GEOMETRY)]
    nested = [column("l", list_of(struct(u=UUID, h=UINT128))), column("m", map_of(VARCHAR, list_of(INT8)))]
    whole = schema(*leaves, *nested, column("n", INT32, nullable=False), column("d", DecimalType(precision=38, scale=38)))
    assert with_ids(from_arrow_schema(to_arrow_schema(whole))) == whole


def test_every_node_carries_its_id() -> None:
    whole = schema(column("l", list_of(struct(a=INT32))), column("m", map_of(VARCHAR, list_of(INT8))))
    arrow = to_arrow_schema(whole, physical=True)
    entries, items = arrow.field("m").type, arrow.field("l").type
    fields = [arrow.field("l"), items.value_field, items.value_field.type.field(0), arrow.field("m"), entries.key_field, entries.item_field]
    fields.append(entries.item_field.type.value_field)
    assert [int(field.metadata[FIELD_ID_KEY]) for field in fields] == [1, 2, 3, 4, 5, 6, 7]
    assert not entries.key_field.nullable


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.null(), INT32), (pa.float16(), FLOAT32), (pa.date64(), DATE), (pa.large_string(), VARCHAR), (pa.string_view(), VARCHAR),
        (pa.binary_view(), BLOB), (pa.binary(7), BLOB), (pa.time32("ms"), TIME), (pa.timestamp("s"), TIMESTAMP_S),
        (pa.timestamp("ms"), TIMESTAMP_MS), (pa.timestamp("us"), TIMESTAMP), (pa.timestamp("ns"), TIMESTAMP_NS),
        (pa.timestamp("s", "America/New_York"), TIMESTAMPTZ), (pa.duration("ns"), INTERVAL),
        (pa.dictionary(pa.int8(), pa.large_string()), VARCHAR), (pa.run_end_encoded(pa.int32(), pa.int64()), INT64),
        (pa.decimal256(38, 4), DecimalType(precision=38, scale=4)), (pa.decimal32(5, 2), DecimalType(precision=5, scale=2)),
        (pa.bool8(), BOOLEAN), (pa.list_(pa.int8(), 3), list_of(INT8)), (pa.large_list(pa.json_()), list_of(JSON)),
        (pa.list_view(pa.uuid()), list_of(UUID)),
    ],
    ids=str,
)  # fmt: skip
def test_arrow_types_have_one_meaning(arrow: pa.DataType, expected: DataType) -> None:
    assert from_arrow_schema(pa.schema([("a", arrow)])).columns[0].type == expected


@pytest.mark.parametrize("arrow", [pa.decimal256(39, 0), pa.decimal128(5, -2), pa.dense_union([pa.field("a", pa.int8())])], ids=str)
def test_arrow_types_without_a_ducklake_type_raise(arrow: pa.DataType) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'s\.bad'"):
        from_arrow_schema(pa.schema([("s", pa.struct([("bad", arrow)]))]))


@pytest.mark.parametrize("data_type", [TIME_NS], ids=str)
def test_types_that_are_only_read_have_no_physical_form(data_type: DataType) -> None:
    table = schema(column("a", data_type))
    assert from_arrow_schema(to_arrow_schema(table)).columns[0].type == data_type
    with pytest.raises(UnsupportedFeatureError, match=f"{data_type} can be read, but not written"):
        to_arrow_schema(table, physical=True)


def test_columns_and_fields_are_found_by_name_at_every_level() -> None:
    wanted = schema(
        column("Id", INT64),
        column("s", struct(X=INT64, y=list_of(struct(p=VARCHAR, q=INT32)))),
        column("m", map_of(VARCHAR, struct(a=INT8, b=INT8))),
    )
    data = pa.table(
        {
            "M": pa.array([[("k", {"B": 2, "a": 1})], None], pa.map_(pa.large_string(), pa.struct([("B", pa.int8()), ("a", pa.int8())]))),
            "S": [{"y": [{"q": 3, "P": "x"}, None], "x": 1}, None],
            "ID": pa.array([1, None], pa.int32()),
        }
    )
    for physical in (True, False):
        cast = cast_to(data, wanted, physical=physical)
        cast.validate(full=True)
        assert cast.schema.equals(to_arrow_schema(wanted, physical=physical), check_metadata=True)
        assert cast.to_pylist() == [
            {"Id": 1, "s": {"X": 1, "y": [{"p": "x", "q": 3}, None]}, "m": [("k", {"a": 1, "b": 2})]},
            {"Id": None, "s": None, "m": None},
        ]


def test_batches_stay_batches_and_right_columns_are_not_copied() -> None:
    wanted = schema(column("a", INT64), column("b", VARCHAR))
    batch = pa.record_batch({"b": ["x"], "a": [1]})
    cast = cast_to(batch, wanted)
    assert isinstance(cast, pa.RecordBatch)
    assert cast["a"].buffers()[1].address == batch["a"].buffers()[1].address


def test_slices_of_nested_data_keep_their_rows() -> None:
    wanted = schema(column("l", list_of(INT64)), column("m", map_of(VARCHAR, INT64)))
    rows = [{"l": [i, None], "m": [(str(i), i)]} if i % 3 else {"l": None, "m": None} for i in range(20)]
    data = pa.Table.from_pylist(rows, pa.schema([("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32()))]))
    for start, length in [(0, 20), (5, 7), (19, 1), (20, 0)]:
        cast = cast_to(data.slice(start, length), wanted)
        cast.validate(full=True)
        assert cast.to_pylist() == rows[start : start + length]


@pytest.mark.parametrize("arrow", [pa.large_list(pa.int32()), pa.list_view(pa.int32()), pa.list_(pa.int32(), 2)], ids=str)
def test_other_list_layouts_are_understood(arrow: pa.DataType) -> None:
    array = pa.array([[1, 2], None, [3, None]], arrow)
    assert cast_array(array, column("l", list_of(INT64))).to_pylist() == [[1, 2], None, [3, None]]


def test_absent_columns_get_their_default_or_null() -> None:
    wanted = schema(
        column("a", INT32),
        column("n", UUID),
        column("i", DecimalType(precision=9, scale=2), default="1.5"),
        column("b", BLOB, default="\\x00a"),
        column("d", DATE, default="0044-03-15 (BC)"),
        column("t", TIMESTAMPTZ, default="2024-01-15 01:00:00+01"),
        column("f", BOOLEAN, default="true"),
        column("v", INTERVAL, default="1 day"),
        column("h", INT128, default="170141183460469231731687303715884105727"),
    )
    cast = cast_to(pa.table({"a": [1, 2]}), wanted, physical=False)
    values = {field.name: python_values(cast[field.name], field.type) for field in wanted}
    assert {name: found for name, (found, again) in values.items() if found == again} == {
        "n": None,
        "i": Decimal("1.50"),
        "b": b"\0a",
        "d": -735160,
        "t": 1705276800000000,
        "f": True,
        "v": Interval(months=0, days=1, microseconds=0),
        "h": 2**127 - 1,
    }
    assert constant_array(None, wanted.column("h"), 3).null_count == 3


@pytest.mark.parametrize(
    ("data", "wanted", "message"),
    [
        ({"a": [1], "z": [1]}, column("a", INT64), "'z'"),
        ({"a": [1], "A": [1]}, column("a", INT64), "two columns"),
        ({"a": [None, 1]}, column("a", INT64, nullable=False), "NOT NULL"),
        ({"b": [1]}, column("a", INT64, nullable=False), "lacks it"),
        ({"a": [300]}, column("a", INT8), "'a'"),
        ({"a": [{"x": 1, "z": 1}]}, column("a", struct(x=INT64)), r"a\.z"),
        ({"a": [[1]]}, column("a", INT64), "'a'"),
        ({"a": [1]}, column("a", list_of(INT64)), "'a'"),
        ({"a": [-1]}, column("a", UINT128), "uint128"),
        ({"a": ["x"]}, column("a", UUID), "'a'"),
        ({"a": [Decimal("1.234")]}, column("a", DecimalType(precision=5, scale=2)), "'a'"),
        # Ten times as much is beyond 128 bits, which Arrow does not notice.
        ({"a": [Decimal(-(2**126))]}, column("a", DecimalType(precision=4, scale=1)), "'a'"),
        ({"a": [Decimal(7 * 10**60)]}, column("a", DecimalType(precision=38, scale=38)), "'a'"),
        ({"a": pa.array([1], pa.timestamp("ns"))}, column("a", TIMESTAMP), "'a'"),
        ({"a": pa.array([(0, 0, 1)], pa.month_day_nano_interval())}, column("a", INTERVAL), "nanoseconds"),
    ],
)
def test_values_that_do_not_fit_raise(data: dict[str, object], wanted: Field, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        cast_to(pa.table(data), schema(wanted))


def test_an_absent_column_with_an_expression_as_default_raises() -> None:
    wanted = schema(column("a", INT32), column("b", TIMESTAMPTZ, default="now()", default_is_expression=True))
    with pytest.raises(UnsupportedFeatureError, match=r"now\(\)"):
        cast_to(pa.table({"a": [1]}), wanted)


INFINITE = 2**63 - 1


@pytest.mark.parametrize(
    ("array", "data_type", "expected"),
    [
        (pa.array([1, 2**40], pa.int64()), DecimalType(precision=18, scale=2), [Decimal("1.00"), Decimal("1099511627776.00")]),
        (pa.array([1], pa.int8()), DecimalType(precision=4, scale=2), [Decimal("1.00")]),
        (pa.array([Decimal("9.5"), None], pa.decimal128(38, 1)), DecimalType(precision=5, scale=3), [Decimal("9.500"), None]),
        (pa.array([Decimal("0.5")], pa.decimal64(10, 2)), DecimalType(precision=20, scale=20), [Decimal("0.5")]),
        (pa.array([2**53 + 1], pa.int64()), FLOAT64, [2.0**53]),
        (pa.array([True, None]), INT16, [1, None]),
        (
            pa.array([1, 2**31 - 1, -(2**31) + 1, None], pa.int32()).cast(pa.date32()),
            TIMESTAMP,
            [86_400_000_000, INFINITE, -INFINITE, None],
        ),
        (pa.array([1, INFINITE], pa.int64()).cast(pa.timestamp("s")), TIMESTAMP, [1_000_000, INFINITE]),
        (pa.array([2_000_000, -INFINITE], pa.int64()).cast(pa.timestamp("us")), TIMESTAMP_S, [2_000_000, -INFINITE]),
        (pa.array([0], pa.timestamp("us", "America/New_York")), TIMESTAMPTZ, [0]),
        (pa.array(["12345678-1234-5678-1234-567812345678"]), UUID, ["12345678-1234-5678-1234-567812345678"]),
        (pa.array([dt.timedelta(days=1, microseconds=5)]), INTERVAL, [Interval(months=0, days=0, microseconds=86_400_000_005)]),
        (pa.array([bytes.fromhex("010000000200000003000000")], pa.binary(12)), INTERVAL, [Interval(months=1, days=2, microseconds=3000)]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), VARCHAR, ["a", "b", "a"]),
        (pa.array([2**64 - 1], pa.uint64()), INT128, [2**64 - 1]),
        (pa.array([1e37]), INT128, [int(1e37)]),
        (pa.nulls(2), list_of(UUID), [None, None]),
    ],
)
def test_values_keep_their_meaning(array: pa.Array, data_type: DataType, expected: list[object]) -> None:
    cast = cast_array(array, column("a", data_type))
    assert python_values(cast, data_type) == expected


def test_unsigned_64_bit_numbers_stay_whole() -> None:
    assert cast_array(pa.array([2**64 - 1], pa.uint64()), column("a", UINT64)).to_pylist() == [2**64 - 1]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("int128", "12x"), ("int128", str(2**127)), ("uint128", "-1"), ("interval", "soon"), ("time", "24:00:01"), ("timetz", "noon")],
)
@pytest.mark.parametrize("physical", [True, False])
def test_strings_that_are_no_value_of_the_type_raise(kind: str, text: str, physical: bool) -> None:
    """Also where files store the type as a string."""
    column = Field(name="c", type=PrimitiveType(name=kind))
    for array in (pa.array([text, None]), pa.array(["x", text]).slice(1)):
        with pytest.raises(SchemaError):
            cast_to(pa.table({"c": array}), Schema(columns=(column,)), physical=physical)
