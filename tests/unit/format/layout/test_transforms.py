"""Partition values: byte for byte those of DuckDB, and sound when they prune."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec, TransformName
from ducklake_core.format.layout.transforms import check_spec, partition_arrays, partition_may_match, partition_must_match
from ducklake_core.format.types.data_types import Field, StructType
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import from_values
from tests.support.oracle import attached, sqlite_lake
from tests.unit.format.expressions.samples import SCHEMA, TYPES

VALUES: dict[str, list[object]] = {
    "i8": [-128, 0, 5, None],
    "i32": [1, 7, -7, 1420, None],
    "i64": [2**62, -1, 200],
    "i128": [9, 2**100, -(2**100)],
    "u8": [200, 0],
    "u64": [2**64 - 1, 3],
    "f32": [0.5, -1.5, None],
    "f64": [0.1, 1e300, 2.5, 1e-5],
    "dec": ["14.20", "-0.05", "0.00"],
    "dec38": ["14.200000", "-123456789012345678901234567890.000001"],
    "flag": [True, False, None],
    "day": [0, -1, 15_737, -735_160, 2**31 - 1, -(2**31) + 1, None],
    "clock": [0, 36_000_500_000, 86_399_999_999],
    "ts": [0, -1, 1_704_153_601_500_000, -63_517_788_000_000_000, 2**63 - 1, -(2**63) + 1, None],
    "ts_s": [0, -1_000_000, 1_704_153_601_000_000],
    "ts_ms": [0, -1000, 1_704_153_601_500_000],
    "ts_ns": [0, -1, 1_704_153_601_500_000_001],
    "tz": [0, -1, 1_704_153_601_500_000, -63_517_788_000_000_000],
    "text": ["a", "", "200", "14.20", "é𝄞", "it's", "a/b=c", None],
    'we"ird, näme': [b"ab", b"", b"a'b", b"a\\b"],
    "id": ["00000000-0000-0000-0000-000000000001", "ffffffff-0000-4000-8000-000000000000"],
}


def spec_of(name: str, transform: TransformName, buckets: int | None = None) -> PartitionSpec:
    column = SCHEMA.column(name)
    return PartitionSpec(fields=(PartitionField(column_id=column.id, column=column.name, transform=transform, buckets=buckets),))


def array_of(name: str, values: list[object], physical: bool) -> pa.Array:
    if name.startswith("dec"):
        return pa.array(values, pa.string()).cast(pa.decimal128(*((9, 2) if name == "dec" else (38, 6))))
    return from_values(values, TYPES[name][0], physical=physical)


def test_every_key_is_the_string_that_duckdb_writes(tmp_path: Path) -> None:
    keys: list[tuple[str, TransformName, int | None]] = []
    for name, (_, sql) in TYPES.items():
        keys += [(name, "identity", None), (name, "bucket", 7)]
        if sql.startswith(("DATE", "TIMESTAMP")):
            keys += [(name, part, None) for part in ("year", "month", "day", "hour")]  # type: ignore[misc]
    with attached(sqlite_lake(tmp_path), "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("SET TimeZone = 'UTC'", "BEGIN")
        for number, (name, transform, buckets) in enumerate(keys):
            values = VALUES[name]
            expression = f"bucket({buckets}, v)" if buckets else "v" if transform == "identity" else f"{transform}(v)"
            duck.connection.register("plain", pa.table({"v": _loadable(name, values), "n": pa.array(range(len(values)))}))
            duck.run(
                f"CREATE TABLE t{number} (v {TYPES[name][1]}, n INTEGER)",
                f"ALTER TABLE t{number} SET PARTITIONED BY ({expression}, n)",
                f"INSERT INTO t{number} SELECT v::{TYPES[name][1]}, n FROM plain",
            )
        duck.run("COMMIT")
        metadata = "__ducklake_metadata_lake"
        written = duck.rows(
            f"SELECT t.table_name, a.partition_value FROM {metadata}.ducklake_file_partition_value a"
            f" JOIN {metadata}.ducklake_file_partition_value b USING (data_file_id)"
            f" JOIN {metadata}.ducklake_table t ON t.table_id = a.table_id"
            " WHERE a.partition_key_index = 0 AND b.partition_key_index = 1 ORDER BY CAST(b.partition_value AS INTEGER)"
        )
    for number, (name, transform, buckets) in enumerate(keys):
        expected = [value for table, value in written if table == f"t{number}"]
        assert len(expected) == len(VALUES[name])
        for physical in (False, True):
            batch = pa.table({name: array_of(name, VALUES[name], physical)})
            (found,) = partition_arrays(spec_of(name, transform, buckets), SCHEMA, batch)
            assert found.to_pylist() == expected, (name, transform)


def _loadable(name: str, values: list[object]) -> pa.Array:
    if name == "id":
        return pa.array(values, pa.string())
    return array_of(name, values, physical=True)


def test_every_file_is_kept_that_holds_a_matching_row() -> None:
    for name, transform, buckets, value, condition, other in [
        ("ts", "year", None, "2013", "ts = '2013-12-31 23:59:59.999999'", "ts >= '2014-01-01'"),
        ("tz", "year", None, "2013", "tz = '2013-01-01 13:00:00+00' OR tz < '0001-01-01'", "tz > '2014-01-02 13:00:00+00'"),
        ("day", "year", None, "-43", "day = '0044-03-15 (BC)'", "day > '1970-01-01'"),
        ("i32", "identity", None, "5", "i32 < 5.5", "i32 IS NULL"),
        ("i32", "identity", None, None, "i32 IS NULL", "i32 < 5"),
        ("text", "identity", None, "ab", "text LIKE 'a%'", "text LIKE 'b%'"),
        ("flag", "identity", None, "true", "flag", "NOT flag"),
        ("f64", "identity", None, "nan", "f64 > 1e300", "f64 < 'nan'"),
        ('we"ird, näme', "identity", None, "\\xFFa", '"we""ird, näme" = \'\\xFFa\'', '"we""ird, näme" = \'a\''),
        ("text", "bucket", 4, "3", "text <> 'a'", "text IS NULL"),
    ]:
        spec = spec_of(name, transform, buckets)  # type: ignore[arg-type]
        assert partition_may_match(spec, (value,), bind(condition, SCHEMA), SCHEMA), condition
        assert not partition_may_match(spec, (value,), bind(other, SCHEMA), SCHEMA), other


def test_buckets_keep_exactly_the_files_of_the_value() -> None:
    spec = spec_of("text", "bucket", 4)
    (found,) = partition_arrays(spec, SCHEMA, pa.table({"text": ["a", "b"]}))
    first, second = found.to_pylist()
    for value in map(str, range(4)):
        assert partition_may_match(spec, (value,), bind("text = 'a'", SCHEMA), SCHEMA) == (value == first)
        assert partition_may_match(spec, (value,), bind("text IN ('a', 'b')", SCHEMA), SCHEMA) == (value in (first, second))
        assert partition_may_match(spec, (value,), bind("text > 'a'", SCHEMA), SCHEMA)
        assert partition_must_match(spec, (value,), bind("NOT (text = 'a')", SCHEMA), SCHEMA) == (value != first)


@pytest.mark.parametrize("transforms", [("bucket", "year", "month"), ("year", "bucket", "month"), ("bucket", "epoch_month")])
def test_other_keys_of_a_bucketed_column_prune(transforms: tuple[TransformName, ...]) -> None:
    keys_by_name = {"year": "2013", "month": "2", "epoch_month": str(43 * 12 + 1)}
    keys = [spec_of("ts", name, 8 if name == "bucket" else None).fields[0] for name in transforms]
    spec, values = PartitionSpec(fields=tuple(keys)), [keys_by_name.get(name, "3") for name in transforms]
    assert partition_may_match(spec, values, bind("ts >= '2013-02-28'", SCHEMA), SCHEMA)
    assert not partition_may_match(spec, values, bind("ts >= '2013-03-01'", SCHEMA), SCHEMA)
    assert not partition_may_match(spec, values, bind("ts IS NULL", SCHEMA), SCHEMA)
    assert partition_must_match(spec, values, bind("ts < '2013-03-01'", SCHEMA), SCHEMA)
    # Infinite timestamps have no parts, only a bucket.
    infinite = ["3" if name == "bucket" else None for name in transforms]
    assert partition_may_match(spec, infinite, bind("ts >= '2013-03-01'", SCHEMA), SCHEMA)
    assert not partition_may_match(spec, infinite, bind("ts IS NULL", SCHEMA), SCHEMA)


def test_buckets_of_an_earlier_type_prune_nothing() -> None:
    from dataclasses import replace

    columns = tuple(replace(column, begin_snapshot=5) for column in SCHEMA)
    schema, spec = Schema(columns=columns), spec_of("i32", "bucket", 3)
    predicate = bind("i32 = 1", schema)
    assert not partition_may_match(spec, ("0",), predicate, schema, 5)
    assert partition_may_match(spec, ("2",), predicate, schema, 5)
    assert partition_may_match(spec, ("0",), predicate, schema, 4)
    assert partition_may_match(spec, ("0",), predicate, schema)


def test_an_identity_value_decides_for_all_rows() -> None:
    spec = spec_of("day", "identity")
    assert partition_must_match(spec, ("2013-02-01",), bind("day = DATE '2013-02-01'", SCHEMA), SCHEMA)
    assert not partition_must_match(spec, ("2013-02-01",), bind("day = DATE '2013-02-02'", SCHEMA), SCHEMA)
    assert not partition_must_match(spec, (None,), bind("day = DATE '2013-02-01'", SCHEMA), SCHEMA)
    assert not partition_must_match(spec_of("ts", "month"), ("2",), bind("ts > '2013-02-01'", SCHEMA), SCHEMA)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (PartitionField(column_id=2, column="i32", transform="year"), UsageError),
        (PartitionField(column_id=2, column="i32", transform="bucket", buckets=0), UsageError),
        (PartitionField(column_id=99, column="nope", transform="identity"), NotFoundError),
        (PartitionField(column_id=22, column="box", transform="identity"), UnsupportedFeatureError),
    ],
)
def test_impossible_keys_raise(key: PartitionField, error: type[Exception]) -> None:
    with pytest.raises(error, match=key.column if error is not UnsupportedFeatureError else "Box"):
        check_spec(PartitionSpec(fields=(key,)), SCHEMA)
    assert isinstance(SCHEMA.column("box").type, StructType)
    assert isinstance(SCHEMA.column("box"), Field)
