"""Codecs as functions with inverses over generated values, and their errors."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ducklake_core.errors import CatalogCorruptError, CorruptFileError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.statistics import truncate_bounds, verify_written_file
from ducklake_core.format.types.data_types import (  # fmt: skip
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    PRIMITIVES,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import ColumnRow, Schema, build_schema, flatten, parse_leaf_type, type_text, with_ids
from ducklake_core.format.values.leaf_values import from_cast_text, from_text, to_cast_text, to_text
from ducklake_core.format.values.temporal import civil_from_days, date_text, days_from_civil, parse_date, parse_timestamp, timestamp_text
from ducklake_core.format.values.value_text import Interval, interval_text, parse_interval

LEAVES: st.SearchStrategy[DataType] = st.one_of(
    st.sampled_from(sorted(PRIMITIVES.values(), key=str)),
    st.integers(1, 38).flatmap(lambda p: st.builds(DecimalType, precision=st.just(p), scale=st.integers(0, p))),
)


def _nested(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    def node(name: str) -> st.SearchStrategy[Field]:
        return st.builds(Field, name=st.just(name), type=inner)

    named = st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5), inner),
        min_size=1,
        max_size=3,
        unique_by=lambda pair: folded(pair[0]),
    )
    structs = named.map(lambda pairs: StructType(fields=tuple(Field(name=name, type=data_type) for name, data_type in pairs)))
    return st.one_of(st.builds(ListType, element=node("element")), st.builds(MapType, key=node("key"), value=node("value")), structs)


COLUMNS = st.builds(
    Field,
    name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5),
    type=st.recursive(LEAVES, _nested, max_leaves=6),
    nullable=st.booleans(),
    initial_default=st.none() | st.text(max_size=4),
)


@given(st.lists(COLUMNS, min_size=1, max_size=4, unique_by=lambda column: folded(column.name)), st.randoms())
def test_rows_of_a_schema_build_it_again_in_any_order(columns: list[Field], random: object) -> None:
    schema = with_ids(Schema(columns=tuple(columns)))
    rows = list(flatten(schema))
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert build_schema(rows) == schema


@given(LEAVES)
def test_type_names_have_an_inverse(data_type: DataType) -> None:
    assert parse_leaf_type(type_text(data_type)) == data_type


def test_columns_are_sorted_by_order_then_id() -> None:
    def row(column_id: int, order: int | None) -> ColumnRow:
        return ColumnRow(column_id=column_id, column_order=order, column_name=f"c{column_id}", column_type="int32")

    assert build_schema([row(1, 9), row(2, 3), row(4, 3), row(3, 3)]).names == ("c2", "c3", "c4", "c1")
    assert build_schema([row(2, None), row(1, None), row(3, 7)]).names == ("c3", "c1", "c2")


@pytest.mark.parametrize("text", ["unknown", "enum", "decimal(39,0)", "decimal(2,3)", "list", "integer[3]", ""])
def test_unknown_types_raise(text: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="not supported"):
        parse_leaf_type(text)


@pytest.mark.parametrize(
    "rows",
    [
        [ColumnRow(column_id=1, column_name="a", column_type="list")],
        [ColumnRow(column_id=1, column_name="a", column_type="struct")],
        [ColumnRow(column_id=2, parent_column=7, column_name="x", column_type="int32")],
        [
            ColumnRow(column_id=1, column_name="a", column_type="int32"),
            ColumnRow(column_id=2, parent_column=1, column_name="x", column_type="int32"),
        ],
    ],
)
def test_rows_that_are_no_tree_raise(rows: list[ColumnRow]) -> None:
    with pytest.raises(CatalogCorruptError):
        build_schema(rows)


def test_a_default_of_the_text_null_is_no_default() -> None:
    row = ColumnRow(column_id=1, column_name="a", column_type="varchar", default_value="NULL", default_value_type=None)
    assert build_schema([row]).columns[0].default is None
    assert build_schema([replace(row, default_value=None)]).columns[0].default is None


@given(st.dates())
def test_days_are_those_of_the_calendar(day: dt.date) -> None:
    days = (day - dt.date(1970, 1, 1)).days
    assert civil_from_days(days) == (day.year, day.month, day.day)
    assert date_text(days) == day.isoformat()


@given(st.integers(-(2**31) + 2, 2**31 - 2))
def test_all_days_have_one_text(days: int) -> None:
    assert days_from_civil(*civil_from_days(days)) == days
    assert parse_date(date_text(days)) == days


@given(st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from([6, 9]))
def test_all_timestamps_have_one_text(units: int, digits: int) -> None:
    assert parse_timestamp(timestamp_text(units, digits), digits) == units
    assert parse_timestamp(timestamp_text(units, digits, "+00"), digits) == units


@given(
    st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30)), dt.timezone(-dt.timedelta(hours=3))]))
)
def test_iso_timestamps_with_offsets_are_read(moment: dt.datetime) -> None:
    expected = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    assert parse_timestamp(moment.isoformat()) == expected
    assert parse_timestamp(moment.isoformat(sep=" ")) == expected


WHOLE = st.integers(-(10**9), 10**9)


@given(st.builds(Interval, months=WHOLE, days=WHOLE, microseconds=st.integers(-(2**62), 2**62)))
def test_intervals_have_one_text(value: Interval) -> None:
    assert parse_interval(interval_text(value)) == value


@given(st.floats() | st.integers(-(10**20), 10**20).map(float))
def test_floats_come_back_from_their_text(value: float) -> None:
    back = from_text(to_text(value, FLOAT64), FLOAT64)
    assert math.isnan(value) if back != value else math.copysign(1, value) == math.copysign(1, float(str(back)))


@given(st.floats(width=32))
def test_float32_comes_back_from_its_text(value: float) -> None:
    assert from_text(to_text(value, FLOAT32), FLOAT32) == value or math.isnan(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**30), max_value=10**30))
def test_decimals_come_back_from_their_text(value: Decimal) -> None:
    data_type = DecimalType(precision=38, scale=5)
    assert from_text(to_text(value, data_type), data_type) == value


@given(st.binary())
def test_blobs_come_back_from_both_spellings(value: bytes) -> None:
    assert from_text(to_text(value, BLOB), BLOB) == value
    assert from_cast_text(to_cast_text(value, BLOB), BLOB) == value


@pytest.mark.parametrize(
    ("text", "data_type", "expected"),
    [
        ("12", FLOAT64, 12.0), ("true", INT32, 1), ("2024-01-15", TIMESTAMPTZ, 1705276800000000),
        ("7", DecimalType(precision=9, scale=2), 7), ("2024-01-15 10:00:00", TIMESTAMPTZ, 1705312800000000), ("false", BOOLEAN, False),
        ("1.50", DecimalType(precision=9, scale=3), Decimal("1.5")),
    ],
)  # fmt: skip
def test_strings_of_narrower_types_are_read_after_a_promotion(text: str, data_type: DataType, expected: object) -> None:
    assert from_text(text, data_type) == expected


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("128", INT8), ("1.5", INT32), ("", INT32), ("\u0661", INT32), ("x", FLOAT64), ("1e39", FLOAT32), ("yes", BOOLEAN), ("0F0", BLOB),
        ("2023-02-29", DATE), ("24:00:01", TIME), ("2024-01-15 10:00:00 Europe/Berlin", TIMESTAMPTZ), ("300000-01-01 00:00:00", TIMESTAMP),
        ("1.23", DecimalType(precision=3, scale=1)), ("1000", DecimalType(precision=3, scale=0)), ("no", UUID),
        ("NaN", DecimalType(precision=3, scale=0)),
    ],
)  # fmt: skip
def test_strings_that_are_no_values_raise(text: str, data_type: DataType) -> None:
    with pytest.raises(SchemaError):
        from_text(text, data_type)


@pytest.mark.parametrize(
    ("value", "data_type"),
    [(True, INT32), ("1", INT32), (1.5, INT32), (None, VARCHAR), (1, VARCHAR), (Decimal("NaN"), DecimalType(precision=3, scale=0))],
)
def test_values_of_another_form_raise(value: object, data_type: DataType) -> None:
    with pytest.raises(SchemaError):
        to_text(value, data_type)


def test_variant_has_no_text() -> None:
    for call in (lambda: to_text("x", VARIANT), lambda: from_text("x", VARIANT)):
        with pytest.raises(UnsupportedFeatureError, match="variant"):
            call()


@given(st.text(max_size=400) | st.text("az~\x7f\0é😀", min_size=200, max_size=400))
def test_cut_bounds_still_bound(text: str) -> None:
    bounds = truncate_bounds(text, text, VARCHAR)
    assert bounds.min_value is None or (bounds.min_value <= text and len(bounds.min_value.encode()) <= 256)
    assert bounds.max_value is None or (bounds.max_value >= text and len(bounds.max_value.encode()) <= 256)
    low, high = bounds.exact_min or bounds.min_value, bounds.exact_max or bounds.max_value
    assert (low or "") <= text
    assert high is not None and high >= text  # noqa: PT018 - one statement about the upper bound


SCHEMA = with_ids(
    Schema(
        columns=(
            Field(name="a", type=INT64),
            Field(name="f", type=FLOAT64),
            Field(name="l", type=ListType(element=Field(name="element", type=VARCHAR))),
        )
    )
)
GOOD = WrittenFile(
    path="x.parquet",
    record_count=3,
    file_size_bytes=900,
    footer_size=300,
    statistics=(
        ColumnStatistics(column_id=1, column_size_bytes=9, value_count=2, null_count=1, min_value="9", max_value="10"),
        ColumnStatistics(column_id=2, column_size_bytes=9, value_count=0, null_count=3, contains_nan=False),
        ColumnStatistics(column_id=4, column_size_bytes=9, value_count=7, null_count=1, min_value="a", max_value="b"),
    ),
)


def _changed(index: int, **changes: object) -> WrittenFile:
    statistics = list(GOOD.statistics)
    statistics[index] = replace(statistics[index], **changes)  # type: ignore[arg-type]
    return replace(GOOD, statistics=tuple(statistics))


def test_a_right_report_passes() -> None:
    verify_written_file(GOOD, SCHEMA)


@pytest.mark.parametrize(
    "report",
    [
        replace(GOOD, statistics=GOOD.statistics[:2]), replace(GOOD, statistics=(*GOOD.statistics, GOOD.statistics[0])),
        replace(GOOD, footer_size=900), replace(GOOD, record_count=4), replace(GOOD, partition_values=("1",)), _changed(0, value_count=3),
        _changed(0, min_value="11"), _changed(0, min_value="x"), _changed(0, contains_nan=False), _changed(1, contains_nan=None),
        _changed(1, min_value="1.0"), _changed(2, null_count=-1), _changed(0, column_id=3),
    ],
)  # fmt: skip
def test_contradictory_reports_raise(report: WrittenFile) -> None:
    with pytest.raises(CorruptFileError, match=r"x\.parquet"):
        verify_written_file(report, SCHEMA)
