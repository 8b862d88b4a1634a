"""Strings of values and bounds of files compared with DuckDB, for every leaf type."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.format.files.statistics import truncate_bounds
from ducklake_core.format.types.data_types import BLOB, FLOAT32, FLOAT64, JSON, VARCHAR, DataType, Field
from ducklake_core.format.types.schema import Schema, to_arrow_schema
from ducklake_core.format.values.arrow_cast import cast_to, from_values
from ducklake_core.format.values.leaf_values import (
    from_cast_text,
    from_text,
    order_key,
    python_values,
    stat_text,
    stat_value,
    to_cast_text,
    to_text,
)  # fmt: skip
from tests.support.oracle import LakeAddress, Oracle, attached, new_connection
from tests.unit.format.samples import NO_FILE_BOUNDS, SAMPLES, SQL_TYPES, in_files_of_duckdb, literal

Samples = Callable[[DataType], list[str]]
TYPES = pytest.mark.parametrize("data_type", list(SAMPLES), ids=str)


TYPE_LIST = list(SAMPLES)
SCHEMA = Schema(columns=tuple(Field(id=i, name=f"c{i}", type=data_type) for i, data_type in enumerate(TYPE_LIST, 1)))
ROWS = 1 + max(len(strings) for strings in SAMPLES.values())


def _create(duck: Oracle) -> None:
    """A table with a column of every type, holding all samples and NULL; its columns have the ids of SCHEMA."""
    columns = ", ".join(f"c{i} {SQL_TYPES[data_type]}" for i, data_type in enumerate(TYPE_LIST, 1))
    duck.run(f"CREATE TABLE t ({columns})")


def _rows_sql(samples: Samples) -> str:
    def cell(data_type: DataType, row: int) -> str:
        strings = samples(data_type)
        return literal(strings[row], data_type) if row < len(strings) else f"NULL::{SQL_TYPES[data_type]}"

    return ", ".join("(" + ", ".join(cell(data_type, row) for data_type in TYPE_LIST) + ")" for row in range(ROWS))


def _logical_column(data_type: DataType, strings: list[str], rows: int) -> pa.Array:
    values = [from_cast_text(text, data_type) for text in strings]
    return from_values([*values, *[None] * (rows - len(values))], data_type)


def _write(path: Path, samples: Samples) -> pq.FileMetaData:
    logical = pa.table({column.name: _logical_column(column.type, samples(column.type), ROWS) for column in SCHEMA})
    pq.write_table(cast_to(logical, SCHEMA), path, store_decimal_as_integer=True)
    return pq.read_metadata(path)


def test_cast_strings_are_those_of_duckdb() -> None:
    connection = new_connection()
    for data_type, strings in SAMPLES.items():
        for text in strings:
            (printed,) = connection.execute(f"SELECT CAST({literal(text, data_type)} AS VARCHAR)").fetchall()[0]
            value = from_cast_text(printed, data_type)
            assert to_cast_text(value, data_type) == printed
            assert from_text(to_text(value, data_type), data_type) == value


def test_bounds_of_files_are_those_of_duckdb(lake_address: LakeAddress, tmp_path: Path) -> None:
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        _create(duck)
        duck.run(f"INSERT INTO t VALUES {_rows_sql(in_files_of_duckdb)}")
        found = duck.rows("SELECT column_id, min_value, max_value FROM __ducklake_metadata_lake.ducklake_file_column_stats")
    expected = {str(column.type): next(row[1:] for row in found if row[0] == column.id) for column in SCHEMA}
    row_group = _write(tmp_path / "written.parquet", in_files_of_duckdb).row_group(0)
    by_library = {}
    for index, column in enumerate(SCHEMA):
        raw = row_group.column(index).statistics
        bounds = truncate_bounds(stat_text(raw.min_raw, column.type), stat_text(raw.max_raw, column.type), column.type)
        by_library[str(column.type)] = (bounds.min_value, bounds.max_value)
        if column.type not in NO_FILE_BOUNDS:
            values = [from_cast_text(text, column.type) for text in in_files_of_duckdb(column.type)]
            extremes = stat_value(raw.min_raw, column.type), stat_value(raw.max_raw, column.type)
            assert extremes == (min(values, key=order_key), max(values, key=order_key))
    assert by_library == expected
    assert {name for name, bounds in by_library.items() if bounds == (None, None)} == {str(data_type) for data_type in NO_FILE_BOUNDS}


@TYPES
def test_physical_and_logical_forms_hold_the_same_values(data_type: DataType) -> None:
    schema = Schema(columns=(Field(id=1, name="a", type=data_type),))
    logical = pa.table({"a": _logical_column(data_type, SAMPLES[data_type], len(SAMPLES[data_type]) + 1)})
    assert logical.schema.field("a").type == to_arrow_schema(schema).field("a").type
    physical = cast_to(logical, schema)
    assert physical.schema.equals(to_arrow_schema(schema, physical=True), check_metadata=True)
    back = cast_to(physical, schema, physical=False)
    expected = [*(from_cast_text(text, data_type) for text in SAMPLES[data_type]), None]
    for table in (logical, physical, back):
        values = python_values(table["a"], data_type)
        if table is physical and data_type in NO_FILE_BOUNDS and pa.types.is_string(table["a"].type):
            values = [None if value is None else from_text(str(value), data_type) for value in values]
        assert values == expected


@pytest.mark.parametrize("data_type", [FLOAT32, FLOAT64], ids=str)
def test_floats_print_as_in_duckdb(data_type: DataType) -> None:
    generator = np.random.default_rng(7)
    kind = np.float32 if data_type == FLOAT32 else np.float64
    exponents = (-35, 37) if data_type == FLOAT32 else (-300, 300)
    numbers = (generator.uniform(-1, 1, 3000) * 10.0 ** generator.integers(*exponents, 3000)).astype(kind)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e15, 1e16, 0.0001, 0.00001, 0.1, 16777216.0], kind)
    numbers_and_special = pa.table({"a": np.concatenate([numbers, special])})
    printed = [text for (text,) in new_connection().execute("SELECT CAST(a AS VARCHAR) FROM numbers_and_special").fetchall()]
    by_library = [to_text(value, data_type) for value in numbers_and_special["a"].to_pylist()]
    differing = [(a, b) for a, b in zip(by_library, printed, strict=True) if a != b]
    # DuckDB does not always find the shortest digits of a float32; both strings are the same number then.
    assert len(differing) < len(by_library) / 50
    assert all(kind(a) == kind(b) and len(a) <= len(b) for a, b in differing)
    assert by_library[-11:] == printed[-11:]


def test_one_power_of_two_is_printed_wrongly_by_duckdb() -> None:
    (printed,) = new_connection().execute("SELECT CAST(2::DOUBLE ** 81 AS VARCHAR)").fetchall()[0]
    assert float(printed) == 2.0**82
    assert float(to_text(2.0**81, FLOAT64)) == 2.0**81


def _cutting_samples() -> list[str]:
    pieces = ["a" * 256, "a" * 257, "z" * 300, "~" * 300, "é" * 150, "a" * 255 + "é", "a" * 255 + "éé", "a" * 250 + "~é" + "z" * 20]
    return [
        *pieces, "é" * 120 + "b" + "é" * 60, "a" * 255 + "\x7fbb", "é" * 128, "😀" * 64, "😀" * 65, "b" * 300 + "\0", "ab\0c", "\x7f" * 300,
    ]  # fmt: skip


@pytest.mark.parametrize("data_type", [VARCHAR, BLOB], ids=str)
def test_bounds_are_cut_as_duckdb_cuts_them(data_type: DataType, sqlite_address: LakeAddress) -> None:
    strings = _cutting_samples()
    blobs = [text.encode() for text in strings] + [
        b"\xff" * 300, b"\x80" * 300, b"a" * 255 + b"\xff\xff", b"a" * 255 + b"\x7f\xff", b"\0" * 300,
    ]  # fmt: skip
    samples: list[str] | list[bytes] = strings if data_type == VARCHAR else blobs
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t (a {SQL_TYPES[data_type]})")
        for sample in samples:
            duck.rows("INSERT INTO t VALUES (?)", [sample])
        found = duck.rows("SELECT min_value, max_value FROM __ducklake_metadata_lake.ducklake_file_column_stats ORDER BY data_file_id")
    for sample, expected in zip(samples, found, strict=True):
        text = to_text(sample, data_type)
        bounds = truncate_bounds(text, text, data_type)
        assert (bounds.min_value, bounds.max_value) == expected, sample
        if (bounds.min_value, bounds.max_value) != (text, text):
            assert bounds.exact_min is not None
            assert bounds.exact_max is not None
            assert bounds.exact_min <= text <= bounds.exact_max
            assert "\0" not in bounds.exact_min + bounds.exact_max


def test_decimals_never_pass_through_a_context() -> None:
    wide = next(data_type for data_type, sql in SQL_TYPES.items() if sql == "DECIMAL(38,10)")
    assert to_text(Decimal("-9999999999999999999999999999.9999999999"), wide) == "-9999999999999999999999999999.9999999999"
    assert from_text("-9999999999999999999999999999.9999999999", wide) == Decimal("-9999999999999999999999999999.9999999999")


def test_json_has_string_bounds() -> None:
    assert truncate_bounds('{"a":1}', '{"b":1}', JSON).max_value == '{"b":1}'
