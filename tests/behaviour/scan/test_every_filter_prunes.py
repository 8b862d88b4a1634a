"""Each kind of filter leaves files out, already in SQL, and the rows are those of a scan that opens every file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.catalog.database.abilities import DUCKDB, POSTGRESQL, SQLITE
from ducklake_core.catalog.reading import files
from ducklake_core.catalog.reading.pruning import excluded
from ducklake_core.engines.arrow.evaluate import evaluate
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.predicates import as_filter
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_all_catalogs, slow

pytestmark = on_all_catalogs

FILES = 6
ROWS = 4
MANY = ", ".join(str(1000 + n) for n in range(300))
# How many of the files stay; each holds 4 quarters of a year from 1967 on.
FILTERS = {
    "n = 9": 1,
    "n IN (1, 21)": 2,
    f"n IN (9, {MANY})": 1,
    "n BETWEEN 5 AND 9": 2,
    "n IS NOT DISTINCT FROM 9": 1,
    "NOT (n < 20)": 1,
    "x > 20": 1,
    "name LIKE 'f3%'": 1,
    "name LIKE 'nothing%'": 0,
    "missing IS NULL": 5,
    "missing IS NOT NULL": 1,
    "box.a > 20": 1,
    "box.a IN (1, 2)": 1,
    "box.deep.at >= TIMESTAMP '1972-01-01'": 1,
    "year(box.deep.at) = 1968": 1,
    "CAST(n AS BIGINT) = 9": 1,
    "CAST(n AS DOUBLE) >= 20.5": 1,
    "CAST(n AS DECIMAL(12, 2)) < 1.5": 1,
    "ts < '1968-01-01'": 1,
    "year(ts) = 1970": 1,
    "year(ts) IN (1968, 1972)": 2,
    "extract(year FROM ts) BETWEEN 1969 AND 1970": 2,
    "CAST(ts AS DATE) = DATE '1969-07-15'": 1,
    "ts::DATE IN ('1967-01-15', '1971-01-15', '2000-01-01')": 2,
    "date_trunc('month', ts) >= DATE '1972-01-01'": 1,
    "date_trunc('quarter', ts) = '1969-04-01'": 1,
    "date_trunc('hour', ts) < '1967-02-01'": 1,
    "year(day) <> 1970 AND year(day) > 1969": 2,
    "CAST(day AS TIMESTAMP) > TIMESTAMP '1972-06-01 12:00:00'": 1,
    "date_trunc('week', day) = '1969-07-14'": 1,
}


@contextmanager
def _table(address: LakeAddress) -> Iterator[Any]:
    lake = DuckLake.connect(address.url)
    try:
        yield lake.table("t")
    finally:
        lake.close()


def _rows(file: int) -> pa.Table:
    numbers = range(file * ROWS, (file + 1) * ROWS)
    times = [datetime.fromisoformat(f"{1967 + file}-{1 + 3 * (n % ROWS):02}-15T10:30:00") for n in numbers]
    return pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "x": pa.array([float(n) for n in numbers]),
            "name": [f"f{file} {n}" for n in numbers],
            "missing": pa.array([None if file != 2 else n for n in numbers], pa.int32()),
            "box": [{"a": n, "deep": {"at": at}} for n, at in zip(numbers, times, strict=True)],
            "ts": pa.array(times, pa.timestamp("us")),
            "day": pa.array([at.date() for at in times]),
        }
    )


def _check(address: LakeAddress, filters: dict[str, int]) -> None:
    with _table(address) as table:
        every = table.scan().to_arrow().sort_by("n").combine_chunks()
        assert every.num_rows == FILES * ROWS
        for condition, kept in filters.items():
            by_database = table.scan(where=condition).plan().plan
            assert len(by_database.tasks) == kept, condition
            # Few files are pruned without the database, and alike.
            with pytest.MonkeyPatch.context() as here:
                here.setattr(files, "FEW_FILES", FILES * ROWS)
                assert table.scan(where=condition).plan().plan == by_database, condition
            wanted = every.filter(evaluate(bind(condition, table.schema), every))
            assert table.scan(where=condition).to_arrow().sort_by("n").combine_chunks() == wanted, condition


def test_by_statistics(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    lake.write("t", _rows(0))
    for file in range(1, FILES):
        lake.table("t").append(_rows(file))
    schema = lake.table("t").schema
    lake.close()
    _check(lake_address, FILTERS)
    for condition in FILTERS:
        for abilities in (SQLITE, POSTGRESQL, DUCKDB):
            # Floats are decided after the query.
            exclusion = excluded(as_filter(bind(condition, schema)), abilities)
            assert (exclusion is None) == (condition.startswith("x ") or "DOUBLE" in condition), condition


PARTITIONED = {
    "year(ts) = 1970": 1,
    "year(ts) > 1970": 2,
    "CAST(ts AS DATE) = DATE '1969-07-15'": 1,
    "date_trunc('year', ts) = DATE '1968-01-01'": 1,
    "date_trunc('month', ts) >= DATE '1971-11-01'": 2,
    "date_trunc('week', day) = '1969-07-14'": 1,
    "year(day) IN (1967, 1972)": 2,
    "n = 9": FILES,
}


@pytest.mark.parametrize(
    "keys", [slow(("year(ts)", "year(day)")), ("year(ts)", "month(ts)", "year(day)", "month(day)")], ids=["years", "months"]
)
def test_by_partition_alone(lake_address: LakeAddress, keys: tuple[str, ...]) -> None:
    """Without statistics; by the spec that the files were written with, although the table has none any more."""
    whole = pa.concat_tables(_rows(file) for file in range(FILES))
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.connection.register("whole", whole)
        duck.run("CREATE TABLE t AS SELECT * FROM whole LIMIT 0", f"ALTER TABLE t SET PARTITIONED BY ({', '.join(keys)})")
        duck.run("INSERT INTO t SELECT * FROM whole", "ALTER TABLE t RESET PARTITIONED BY")
    with DuckLake.connect(lake_address.url) as lake, lake.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM ducklake_file_column_stats")
    months = len(keys) > 2
    quarters = {"year(ts) = 1970": 4, "year(ts) > 1970": 8, "date_trunc('year', ts) = DATE '1968-01-01'": 4}
    by_month = {**PARTITIONED, **quarters, "date_trunc('month', ts) >= DATE '1971-11-01'": 4, "year(day) IN (1967, 1972)": 8, "n = 9": 24}
    _check(lake_address, by_month if months else PARTITIONED)
