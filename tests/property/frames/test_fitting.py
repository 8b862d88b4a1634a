"""Random frames against the rule by which a write fits values to a table.

Whatever the frame is made of (pandas with numpy, nullable or Arrow types, polars, Arrow, Python): stored values never change, new values
are the given ones, and a write that cannot store them raises ``SchemaError`` before anything is written. Values that the column's type has
are always taken, and leave the type as it is.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake
from tests.support.parameters import slow

TYPES: dict[str, Sequence[Any]] = {
    "int32": (0, 7, -1, 2**31 - 1, -(2**31)),
    "int64": (1, -5, 2**53 + 1, 2**63 - 1, -(2**63)),
    "uint8": (0, 255),
    "float32": (0.5, 0.1, math.inf),
    "float64": (0.1, 1e300, -0.0, 2.0**60),
    "decimal(9,2)": (Decimal("0.10"), Decimal("-1234567.89")),
    "varchar": ("a", "", "7"),
    "timestamp": (datetime(1600, 1, 1), datetime(2020, 2, 3, 4, 5, 6, 789)),  # noqa: DTZ001 - the type has no zone
    "date": (date(1, 1, 1), date(2020, 2, 29)),
    "bool": (True, False),
}
GIVEN: dict[str, Sequence[Any]] = {
    "integers": (0, 1, -1, 200, 2**31, 2**53 + 1),
    "whole floats": (1.0, -2.0, 3e9, 2.0**53),
    "floats": (0.5, 0.1, 0.125, 1e300),
    "decimals": (Decimal("1.00"), Decimal("0.10"), Decimal("1.125"), Decimal("123456789.01")),
    "strings": ("x", "7", ""),
    "times": (datetime(2020, 1, 1), datetime(2020, 1, 1, 12, 30), datetime(1999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001 - the type has no zone
    "days": (date(2020, 1, 1), date(1970, 1, 1)),
    "booleans": (True, False),
    "nothing": (None,),
}
KINDS = {"int32": "INTEGER", "int64": "BIGINT", "uint8": "UTINYINT", "float32": "FLOAT", "float64": "DOUBLE"}
"""DuckDB's names of types that DuckLake calls otherwise."""
INTEGERS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint8": (0, 255)}


def fits(value: Any, kind: str) -> bool:
    """Return whether a column has a value: the rule in plain Python."""
    match value:
        case None:
            return True
        case bool():
            return kind == "bool" or kind in INTEGERS
        case int() | float() | Decimal() if kind in INTEGERS:
            low, high = INTEGERS[kind]
            return not math.isinf(value) and value == int(value) and low <= value <= high
        case int() if kind in ("float32", "float64"):
            return int(struct.unpack("f", struct.pack("f", value))[0] if kind == "float32" else float(value)) == value
        case float() if kind == "float32":
            short = float("nan") if abs(value) > 1e38 and not math.isinf(value) else np.float32(value)
            return value in (float(short), float(str(short)))
        case float():
            return kind == "float64" or (kind == "decimal(9,2)" and math.isfinite(value) and _is_decimal(Decimal(repr(value))))
        case int():
            return kind == "decimal(9,2)" and abs(value) < 10**7
        case Decimal() if kind in ("float32", "float64"):
            nearest = float(np.float32(float(value))) if kind == "float32" else float(value)
            return Decimal(repr(nearest)).quantize(value) == value
        case Decimal():
            return kind == "decimal(9,2)" and _is_decimal(value)
        case str():
            return kind == "varchar"
        case datetime():
            return kind == "timestamp" or (kind == "date" and value == datetime.combine(value.date(), datetime.min.time()))
        case date():
            return kind in ("date", "timestamp")
    raise AssertionError(value)


def _is_decimal(value: Decimal) -> bool:
    return abs(value) < 10**7 and value == value.quantize(Decimal("0.01"))


def same(stored: Any, given: Any) -> bool:
    """Return whether a stored value is the given one."""
    if given is None or stored is None:
        return stored is given
    if isinstance(given, date) and not isinstance(given, datetime) and isinstance(stored, datetime):
        return bool(stored == datetime.combine(given, datetime.min.time()))
    if isinstance(given, datetime) and isinstance(stored, date) and not isinstance(stored, datetime):
        return bool(datetime.combine(stored, datetime.min.time()) == given)
    if isinstance(stored, float) and isinstance(given, int | float):
        return stored == given or (isinstance(given, float) and abs(given) < 1e38 and float(np.float32(given)) == stored)
    if isinstance(stored, float) and isinstance(given, Decimal):
        # A float of 32 bits has the digits that it is written with.
        return given in (Decimal(repr(stored)), Decimal(str(np.float32(stored))))
    if isinstance(stored, Decimal) or isinstance(given, Decimal):
        return Decimal(str(stored)) == Decimal(str(given))
    # Truth values are 0 and 1 in columns of integers, as in DuckDB.
    return bool(stored == given)


def frames(ids: Sequence[int], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The same rows in each kind of frame that can hold them."""
    yield "list of dicts", [{"id": i, "c": value} for i, value in zip(ids, values, strict=True)]
    # With a missing value, pandas itself turns integers into floats of fewer digits.
    is_pandas = None not in values or not any(isinstance(value, int) and abs(value) > 2**53 for value in values)
    if is_pandas:
        yield "pandas", pd.DataFrame({"id": list(ids), "c": list(values)})
    try:
        arrow = pa.table({"id": pa.array(ids, pa.int64()), "c": pa.array(values)})
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return
    yield "Arrow", arrow
    yield "stream", pa.RecordBatchReader.from_batches(arrow.schema, arrow.to_batches())
    yield "polars", pl.from_arrow(arrow)
    yield "pandas, Arrow types", arrow.to_pandas(types_mapper=pd.ArrowDtype)
    if any(isinstance(value, datetime | date) for value in values):
        if any(isinstance(value, date) and value.year < 1700 for value in values):
            return
        yield "pandas, datetime64", pd.DataFrame({"id": list(ids), "c": pd.to_datetime(pd.Series(list(values)))})
    elif is_pandas and not any(isinstance(value, Decimal) or (isinstance(value, float) and abs(value) > 2**60) for value in values):
        yield "pandas, nullable", pd.DataFrame({"id": list(ids), "c": list(values)}).convert_dtypes()


def rows(lake: DuckLake, table: str) -> dict[int, Any]:
    found = lake.table(table).scan().to_arrow()
    return dict(zip(found.column("id").to_pylist(), found.column("c").to_pylist(), strict=True))


def _spark_frame(spark: SparkSession, frame: pa.Table) -> DataFrame:
    found = spark.createDataFrame(frame)
    # createDataFrame turns timestamps without a zone into those with the zone of the session.
    return found.withColumn("c", sf.col("c").cast("timestamp_ntz")) if pa.types.is_timestamp(frame.schema.field("c").type) else found


class Trial:
    """One table, one write of the same rows in each kind of frame.

    Args:
        lake: Where to create the table.
        seed: What decides the type, the values and the operations.
        spark: Writes Spark frames instead of those of this process.
    """

    def __init__(self, lake: DuckLake, seed: int, spark: SparkSession | None = None) -> None:
        self.lake, self.random, self.spark = lake, random.Random(seed), spark
        self.table = f"t{seed}"
        self.kind = self.random.choice(list(TYPES))
        self.inline = self.random.random() < 0.5
        self.old = dict(enumerate((*TYPES[self.kind], None)))
        lake.create_table(self.table, {"id": "int64", "c": self.kind})
        given = [{"id": n, "c": value} for n, value in self.old.items()]
        lake.table(self.table).append(given, inline=self.inline)
        kinds = [GIVEN["nothing"], self.random.choice(list(GIVEN.values()))]
        self.values = [self.random.choice(self.random.choice(kinds)) for _ in range(self.random.randint(1, 4))]
        if self.random.random() < 0.2:
            self.values = [self.random.choice(TYPES[self.kind]) for _ in self.values]

    def run(self) -> None:
        first = 100 if self.random.random() < 0.6 else 0
        ids = range(first, first + len(self.values))
        for name, frame in self._frames(ids):
            self._write(name, frame, dict(zip(ids, self.values, strict=True)))

    def _frames(self, ids: Sequence[int]) -> Iterator[tuple[str, Any]]:
        made = frames(ids, self.values)
        if self.spark is None:
            return made
        return (("Spark", _spark_frame(self.spark, frame)) for name, frame in made if name == "Arrow")

    def _write(self, name: str, frame: Any, new: dict[int, Any]) -> None:
        lake, operation = self.lake, self.random.choice(["append", "overwrite", "upsert"])
        mode = self.random.choice(["strict", "additive"])
        before, kind = rows(lake, self.table), str(lake.table(self.table).schema.column("c").type)
        snapshot = lake.snapshot().id
        table = lake.table(self.table)
        what = (self.table, name, operation, mode, kind, self.values)
        fits_all = all(fits(value, self.kind) for value in self.values) and kind == self.kind
        try:
            if operation == "append":
                table.append(frame, schema_evolution=mode, inline=self.inline)
            elif operation == "overwrite":
                table.overwrite(frame, where="id >= 0", schema_evolution=mode)
            else:
                table.upsert(frame, on="id", schema_evolution=mode)
        except SchemaError:
            assert not fits_all, what
            assert lake.snapshot().id == snapshot, what
            assert rows(lake, self.table) == before, what
            return
        after = rows(lake, self.table) if operation != "append" or not (new.keys() & before.keys()) else None
        # The values of a stream or a Spark frame are not known when its types are compared.
        if fits_all and (name not in ("stream", "Spark") or mode == "strict"):
            assert str(lake.table(self.table).schema.column("c").type) == kind, what
        if after is None:
            # Rows with ids of other rows: only the count is compared.
            assert lake.table(self.table).count() == len(before) + len(new), what
            lake.table(self.table).overwrite([{"id": n, "c": None} for n in before])
            return
        kept = {n: value for n, value in before.items() if operation != "overwrite" and n not in new}
        assert after.keys() == kept.keys() | new.keys(), what
        assert all(same(after[n], value) for n, value in (*kept.items(), *new.items())), (what, after)
        for n in set(new) - set(before):
            table.refresh()
            lake.table(self.table).delete(f"id = {n}")


def _run(folder: Path, seeds: Sequence[int], spark: SparkSession | None = None) -> LakeAddress:
    address = sqlite_lake(folder)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    for seed in seeds:
        Trial(lake, seed, spark).run()
    lake.close()
    return address


def _check_by_duckdb(address: LakeAddress, seeds: Sequence[int]) -> None:
    """DuckDB reads what is left of every table as this library does, and adds rows."""
    lake = DuckLake.connect(address.url)
    with attached(address) as duck:
        for seed in seeds:
            _compare(lake, duck, f"t{seed}")


def _compare(lake: DuckLake, duck: Oracle, table: str) -> None:
    by_library = rows(lake, table)
    by_duckdb: dict[Any, Any] = dict(duck.rows(f"SELECT id, c FROM lake.{table}"))  # type: ignore[arg-type]
    assert by_library.keys() == by_duckdb.keys(), table
    assert all(same(by_duckdb[n], value) for n, value in by_library.items()), (table, by_library, by_duckdb)


def test_random_frames_are_stored_exactly_or_rejected(tmp_path: Path) -> None:
    seeds = range(20)
    _check_by_duckdb(_run(tmp_path, seeds), seeds)


@pytest.mark.slow
def test_many_random_frames_are_stored_exactly_or_rejected(tmp_path: Path) -> None:
    seeds = range(1000, 1300)
    _check_by_duckdb(_run(tmp_path, seeds), seeds)


@pytest.mark.parametrize("seeds", [range(4), slow(range(2000, 2060))])
def test_random_spark_frames_are_stored_exactly_or_rejected(tmp_path: Path, spark: SparkSession, seeds: range) -> None:
    _check_by_duckdb(_run(tmp_path, seeds, spark), seeds)


def test_values_that_duckdb_inserts_exactly_fit() -> None:
    """Strings apart, which DuckDB parses, the rule rejects only values that DuckDB rejects or changes."""
    duck = duckdb.connect()
    rejected: list[tuple[str, Any, Any]] = []
    for kind in TYPES:
        duck.execute(f"CREATE OR REPLACE TABLE t (c {KINDS.get(kind, kind)})")
        for values in GIVEN.values():
            for value in values:
                if isinstance(value, str | bool):
                    continue
                duck.execute("DELETE FROM t")
                frame = pa.table({"c": [value]})  # noqa: F841 - DuckDB finds it by its name
                try:
                    duck.execute("INSERT INTO t SELECT c FROM frame")
                except duckdb.Error:
                    continue
                ((stored,),) = duck.execute("FROM t").fetchall()
                if type(stored) in (int, float, Decimal, date, datetime) and same(stored, value) and not fits(value, kind):
                    rejected.append((kind, value, stored))
    assert not rejected, rejected
