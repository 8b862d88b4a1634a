"""Random typed expressions of views: Spark's values of the stored SQL are those of DuckDB, row by row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.spark.scan_schema import run_query
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.comparison import round_to_float32
from ducklake_core.format.types.data_types import FLOAT32, FLOATS, INTEGERS, DataType, children_of
from ducklake_core.view_sql.functions import DATE_FUNCTIONS, FUNCTIONS
from ducklake_core.view_sql.translation import Translation, translate
from tests.property.expressions.edge_values import load
from tests.property.expressions.generator import Generator
from tests.property.expressions.judge import Expected, cells_of, expected
from tests.property.expressions.of_views import CALLS_OF_VIEWS, GROUPS
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake
from tests.support.parameters import slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOGETHER = 30
_ERROR = re.compile(r"CAST\(raise_error\('[^']*'\) AS (\w+(?:\(\d+,\d+\))?)\)")
"""Messages of the translation for values that would differ between Spark and DuckDB."""
_FLOAT = re.compile(r"(?<![\w.'-])-?\d+(\.\d+)?e[-+]?\d+\b")
"""DuckDB writes 1e0 down as 1.0, which is a decimal when the view is read."""


class Views:
    """A lake with the table of edge values, and a view for each expression."""

    def __init__(self, duck: Oracle, address: LakeAddress) -> None:
        self.duck = duck
        self.lake = DuckLake.connect(address.url)
        self.made = 0
        self.raises = False

    def of(self, columns: list[str]) -> Any:
        """Return a view of these columns and the row's number, as DuckDB has stored it."""
        self.made += 1
        listed = ", ".join(f"{column} AS x{position}" for position, column in enumerate(columns))
        self.duck.run(f'CREATE VIEW v{self.made} AS SELECT "row", {listed} FROM lake.t')
        return self.lake.view(f"v{self.made}")

    def translated(self, column: str) -> Translation:
        with self.lake.reader() as reader:
            return translate(reader, self.of([column])._state)


@pytest.fixture
def without_errors(monkeypatch: pytest.MonkeyPatch, views: Views) -> None:
    """Replace errors of single rows by NULL, as they would end the job for all others, unless errors are expected."""

    def run(sql: str, *rest: Any) -> Any:
        return run_query(sql if views.raises else _ERROR.sub(r"CAST(NULL AS \1)", sql), *rest)

    monkeypatch.setattr("ducklake_core.engines.spark.scan_schema.run_query", run)


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    position: Path = tmp_path_factory.mktemp("expressions")
    address = sqlite_lake(position)
    with attached(address) as duck:
        duck.run("SET TimeZone = 'UTC'", "PRAGMA disable_optimizer")
        load(duck.connection, "memory.t")
        # DuckDB cannot write these into a file, or not exactly.
        duck.run(
            "UPDATE memory.t SET h = NULL WHERE h NOT BETWEEN -9007199254740992 AND 9007199254740992",
            "UPDATE memory.t SET uh = NULL WHERE uh > 9007199254740992",
        )
        # Spark has an error for any use of days that no timestamp reaches.
        duck.run(
            *(f"UPDATE memory.t SET {name} = NULL WHERE isfinite({name}) AND abs({name} - DATE '1970-01-01') > 100000000" for name in "de")
        )
        duck.run("UPDATE memory.t SET iv = INTERVAL 1 DAY WHERE iv IS NOT NULL")
        duck.run(*(f"UPDATE memory.t SET {name} = NULL WHERE NOT isfinite({name})" for name in ("ts_s", "ts_ms")))
        duck.run("CREATE TABLE lake.t AS FROM memory.t")
        # What is in the files decides: dictionaries of DuckDB's Parquet writer give all zeros of a column one sign.
        duck.run('CREATE OR REPLACE TABLE memory.t AS FROM lake.t ORDER BY "row"')
        yield Views(duck, address)
        duck.run("PRAGMA enable_optimizer", "DROP TABLE memory.t")


def test_no_function_is_left_out() -> None:
    assert set(CALLS_OF_VIEWS) == {*FUNCTIONS, *DATE_FUNCTIONS}


def _cells(array: Any, data_type: DataType) -> list[object]:
    if data_type in INTEGERS:
        return [None if value is None else str(int(value)) for value in array.to_pylist()]
    cells = cells_of(array, data_type)
    if data_type == FLOAT32:
        return [None if text is None else repr(round_to_float32(float(str(text)))) for text in cells]
    return cells


def _wanted(found: Expected, data_type: DataType) -> list[object]:
    cells = [None if row in found.failing else text for row, text in enumerate(found.cells)]
    if children_of(data_type):
        return [None if text is None else "nested" for text in cells]
    if data_type in FLOATS:
        cells = ["nan" if text == "-nan" else text for text in cells]
    if data_type == FLOAT32:
        cells = [None if text is None else repr(round_to_float32(float(str(text)))) for text in cells]
    return cells


def _results(session: SparkSession, views: Views, columns: list[str]) -> list[Any]:
    """Values of each column in order of rows; None for one that Spark has an error for."""
    try:
        table = views.of(columns).to_spark(session).toArrow().sort_by("row")
    except Exception:  # noqa: BLE001 - whatever Spark has against one of them
        if len(columns) == 1:
            return [None]
        half = len(columns) // 2
        return _results(session, views, columns[:half]) + _results(session, views, columns[half:])
    return [table.column(position + 1) for position in range(len(columns))]


def _raises(session: SparkSession, views: Views, column: str, row: int) -> bool:
    """Return True where the value of a row is an error, which NULL would hide in functions such as concat."""
    views.raises = True
    try:
        return _results(session, views, [f'CASE WHEN "row" = {row} THEN {column} END']) == [None]
    finally:
        views.raises = False


def check(session: SparkSession, views: Views, seed: int, count: int) -> None:
    """Compare random expressions; an error of Spark is never wrong, another value is."""
    made = Generator(Random(seed), wild=0.03, groups=GROUPS)
    tally, wrong, kept = Counter[str](), [], []
    for depth in [1, 1, 2] * (count // 3):
        sql = _FLOAT.sub(r"CAST('\g<0>' AS DOUBLE)", made.expression(depth).sql)
        by_duckdb = expected(sql, views.duck.connection, "memory.t")
        if len(by_duckdb.failing) == len(by_duckdb.cells) or not by_duckdb.cells:
            tally["error in DuckDB"] += 1
            continue
        # The rows that DuckDB has an error for are no row's value.
        column = f'CASE WHEN "row" NOT IN ({", ".join(map(str, by_duckdb.failing))}) THEN {sql} END' if by_duckdb.failing else sql
        try:
            made_of = views.translated(column)
            kept.append((sql, column, by_duckdb, made_of.schema.columns[1].type, bool(_ERROR.search(made_of.sql))))
        except UnsupportedFeatureError:
            tally["rejected"] += 1
    for start in range(0, len(kept), TOGETHER):
        part = kept[start : start + TOGETHER]
        arrays = _results(session, views, [column for _, column, *_ in part])
        for (sql, column, by_duckdb, data_type, may_fail), array in zip(part, arrays, strict=True):
            if array is None:
                tally["error in Spark"] += 1
                continue
            if by_duckdb.type is not None and by_duckdb.type != data_type:
                wrong.append(f"seed {seed}: {sql}: library {data_type}, DuckDB {by_duckdb.type}")
                continue
            by_spark, cells = _cells(array, data_type), _wanted(by_duckdb, data_type)
            rows = [
                (row, own, text)
                for row, (own, text) in enumerate(zip(by_spark, cells, strict=True))
                if own != text and not (may_fail and own is None)
            ]
            if rows and may_fail:
                rows = [found for found in rows[:3] if not _raises(session, views, column, found[0])]
            tally["equal"] += not rows
            if rows:
                wrong.append(
                    f"seed {seed}: {sql}: {len(rows)} rows: " + "; ".join(f"row {r}: library {o!r}, DuckDB {t!r}" for r, o, t in rows[:3])
                )
    print(tally)
    assert not wrong, "\n".join(wrong)
    assert tally["equal"] > tally["error in Spark"], tally


@pytest.mark.parametrize("seed", [0, *(slow(seed) for seed in range(100, 110))])
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("without_errors")
def test_random_expressions_of_views(spark: SparkSession, views: Views, seed: int) -> None:
    check(spark, views, seed, 30 if seed == 0 else 240)
