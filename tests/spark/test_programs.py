"""Programs of Spark users: settings of the session, names, types and shapes of frames give the rows that plain Spark and DuckDB give."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached

WORDS = ["a%b", "a\\b", "A_B", "a_b", "axb", None, "\\", "%", "\xc4B", "it's"]
PATTERNS = (
    "LIKE 'a\\%b'", "LIKE '%\\%'", "LIKE '\\'", "= 'a\\b'", "IN ('it''s', '\\')", "ILIKE 'A_b'", "ILIKE 'a\\_b'", "NOT ILIKE '\xe4%'",
    "LIKE 'a\\_b' ESCAPE '\\'", "LIKE 'a!%b' ESCAPE '!'", "LIKE 'a!xb' ESCAPE '!'", "ILIKE 'A!_b' ESCAPE '!'", "NOT LIKE 'a!%%' ESCAPE '!'",
)  # fmt: skip


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    return lake_of_files(sqlite_address)


def rows(lake: DuckLake, table: str = "t") -> list[Any]:
    return sorted((tuple(row.values()) for row in lake.table(table).scan().to_arrow().to_pylist()), key=repr)


def matching(lake: DuckLake, spark: SparkSession, conditions: tuple[str, ...]) -> dict[str, list[str]]:
    """Values of x that Spark finds by each condition in files, and in queries; one Spark job for all of them."""
    frames = []
    for number, condition in enumerate(conditions):
        query = lake.sql(f"SELECT x FROM t WHERE x {condition}", spark=spark)
        assert query is not None
        for way, frame in (("scan", lake.table("t").scan(where=f"x {condition}").to_spark(spark)), ("sql", query.to_spark(spark))):
            frames.append(frame.selectExpr(f"'{number} {way}' AS name", "x"))
    found: dict[str, list[str]] = {f"{condition} {way}": [] for condition in conditions for way in ("scan", "sql")}
    for name, value in reduce(DataFrame.unionAll, frames).collect():
        number, way = name.split()
        found[f"{conditions[int(number)]} {way}"].append(value)
    return {name: sorted(values) for name, values in found.items()}


@pytest.mark.parametrize("escaped", [pytest.param("false", marks=pytest.mark.slow), "true"])
def test_patterns_and_strings_match_alike_under_every_setting_of_the_parser(
    lake: DuckLake, sqlite_address: LakeAddress, spark: SparkSession, escaped: str
) -> None:
    lake.write("t", pa.table({"x": WORDS}))
    with attached(sqlite_address) as duck:
        wanted = {pattern: sorted(value for (value,) in duck.rows(f"SELECT x FROM t WHERE x {pattern}")) for pattern in PATTERNS}
    for pattern in PATTERNS:
        assert sorted(lake.table("t").scan(where=f"x {pattern}").to_arrow()["x"].to_pylist()) == wanted[pattern], pattern
    with setting(spark, "spark.sql.parser.escapedStringLiterals", escaped):
        found = matching(lake, spark, PATTERNS)
    assert found == {f"{pattern} {way}": wanted[pattern] for pattern in PATTERNS for way in ("scan", "sql")}


@pytest.mark.parametrize("ansi", [pytest.param("true", marks=pytest.mark.slow), "false"])
def test_divisions_by_zero_and_overflows_with_and_without_ansi(
    lake: DuckLake, sqlite_address: LakeAddress, spark: SparkSession, ansi: str
) -> None:
    lake.write(
        "t", pa.table({"i": pa.array([7, 0, -7, None], pa.int32()), "z": pa.array([0, 0, 0, 2], pa.int32()), "x": [1.0, 2.0, 3.0, 4.0]})
    )
    conditions = ("i / z > 0", "i % z IS NULL", "i // z IS NULL", "isnan(i / z)", "i / 2 < -3", "x / (i - 7) > 1")
    with attached(sqlite_address) as duck:
        wanted = {condition: duck.value(f"SELECT count(*) FROM t WHERE {condition}") for condition in conditions}
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        frames = [lake.table("t").scan(where=one).to_spark(spark).select(sf.lit(one).alias("one")) for one in conditions]
        assert dict(reduce(DataFrame.unionAll, frames).groupBy("one").count().collect()) == wanted
        with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
            lake.table("t").scan(where="i + 2147483647 > 0").to_spark(spark).collect()
        # An expression that only Spark evaluates.
        with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
            lake.table("t").delete("reverse('x') = 'x' AND i + 2147483647 > 0", spark=spark)
        assert spark.conf.get("spark.sql.ansi.enabled") == ansi
    if ansi == "false":
        with setting(spark, "spark.sql.ansi.enabled", ansi), pytest.raises(UsageError, match=r"while spark\.sql\.ansi\.enabled is false"):
            lake.sql("SELECT i + 1 FROM t", spark=spark).to_spark(spark)  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_written_values_that_overflow_with_and_without_ansi(lake: DuckLake, spark: SparkSession, ansi: str) -> None:
    lake.write("t", pa.table({"i": pa.array([7, 0], pa.int32())}))
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
            lake.table("t").update({"i": "length(reverse('ab')) + i + 2147483647"}, spark=spark)
        with pytest.raises(SchemaError, match="column 'i': 3000000000 is not a value of type int32"):
            lake.table("t").append(spark.sql("SELECT 3000000000L AS i"))
    assert rows(lake) == [(0,), (7,)]


@pytest.mark.slow
def test_names_are_compared_without_case_in_sessions_that_distinguish_it(lake: DuckLake, spark: SparkSession) -> None:
    lake.create_table("t", {"k": "int64", "v": "varchar"}, partition_by=["K"]).set_sorted_by(["V"])
    with setting(spark, "spark.sql.caseSensitive", "true"):
        with pytest.raises(SchemaError, match="two columns 'a' and 'A'"):
            lake.write("two", spark.sql("SELECT 1 AS a, 2 AS A"))
        frame = spark.sql("SELECT 1L AS K, 'q' AS V")
        lake.write("t", frame, mode="append")
        lake.write("t", frame.withColumn("V", sf.lit("r")), mode="upsert", on=["k"])
        assert rows(lake) == [(1, "r")]
        lake.table("t").update({"V": "reverse(V) || 's'"}, where="K = 1", spark=spark)
        assert [tuple(row) for row in lake.table("t").scan(where="K = 1 AND V LIKE 'r%'").to_spark(spark).collect()] == [(1, "rs")]
        query = lake.sql("SELECT V, K FROM T WHERE k = 1", spark=spark)
        assert query is not None
        assert [tuple(row) for row in query.to_spark(spark).collect()] == [("rs", 1)]


@pytest.mark.slow
def test_names_with_dots_quotes_and_backticks(lake: DuckLake, spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("1L AS `a.b`", "2L AS `c``d`", '3L AS `e"f`', "4L AS `g h`")
    name = '"x.y`z"'
    lake.create_table(name, frame.limit(0), partition_by=["a.b", '"c`d"']).set_sorted_by(['"c`d" DESC'])
    table = lake.table(name)
    table.append(frame)
    table.upsert(frame, on=["a.b", "c`d"])
    table.update({"g h": "length(reverse('ab'))"}, where='"e""f" = 3 AND "a.b" = 1', spark=spark)
    table.merge(frame, on="c`d").when_matched_update({"a.b": 's."a.b" + t."c`d"'}).execute()
    assert [tuple(row) for row in table.scan().to_spark(spark).filter("`a.b` = 3 AND `c``d` = 2").collect()] == [(3, 2, 3, 2)]
    query = lake.sql(f'SELECT "c`d", "a.b" FROM {name}', spark=spark)
    assert query is not None
    assert [tuple(row) for row in query.to_spark(spark).collect()] == [(2, 3)]


@pytest.mark.slow
def test_columns_of_void_and_char(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    lake.write("made", spark.sql("SELECT 1L AS k, NULL AS v"))
    assert str(lake.table("made").schema.column("v").type) == "int32", "as DuckDB chooses"
    lake.create_table("t", {"k": "int64", "v": "varchar", "s": "struct(a int32)"}).append(spark.sql("SELECT 1L AS k, NULL AS v, NULL AS s"))
    assert rows(lake) == [(1, None, None)]
    lake.write("t", spark.sql("SELECT 1L AS k, NULL AS v, struct(NULL AS a) AS s"), mode="upsert", on=["k"])
    assert rows(lake) == [(1, None, {"a": None})]
    spark.sql(f"CREATE TABLE of_chars (c CHAR(4), d VARCHAR(5)) USING parquet LOCATION '{tmp_path / 'chars'}'")
    try:
        spark.sql("INSERT INTO of_chars VALUES ('ab', 'cd')")
        lake.write("chars", spark.table("of_chars"))
        assert rows(lake, "chars") == [tuple(row) for row in spark.table("of_chars").collect()] == [("ab  ", "cd")]
    finally:
        spark.sql("DROP TABLE of_chars")


def test_frames_without_partitions(lake: DuckLake, spark: SparkSession) -> None:
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), "k bigint, v string")
    assert empty.rdd.getNumPartitions() == 0
    lake.write("made", empty)
    assert rows(lake, "made") == []
    lake.write("t", pa.table({"k": [1], "v": ["a"]}))
    before = lake.snapshot().id
    lake.write("t", empty, mode="append")
    lake.write("t", empty, mode="upsert", on=["k"])
    lake.table("t").merge(empty, on="k").when_not_matched_insert().execute()
    assert (lake.snapshot().id, rows(lake)) == (before, [(1, "a")])
    lake.write("t", empty, mode="overwrite")
    assert lake.table("t").scan().to_spark(spark).collect() == []


@pytest.mark.slow
def test_many_columns(lake: DuckLake, sqlite_address: LakeAddress, spark: SparkSession) -> None:
    count = 2000
    wide = spark.range(3).select(*((sf.col("id") + number).alias(f"c{number}") for number in range(count)))
    lake.write("t", wide)
    lake.write("t", wide.filter("c0 = 1").withColumn("c5", sf.lit(-1)), mode="upsert", on=["c0"])
    lake.table("t").delete("c0 = 2")
    last = f"c{count - 1}"
    found = lake.table("t").scan(where=f"{last} >= {count - 1}").to_spark(spark).select("c0", "c5", last).collect()
    assert sorted(map(tuple, found)) == [(0, 5, count - 1), (1, -1, count)]
    with attached(sqlite_address) as duck:
        assert duck.rows(f"SELECT c0, c5, {last} FROM t ORDER BY c0") == [(0, 5, count - 1), (1, -1, count)]


@pytest.mark.parametrize("kind", ["arrow", pytest.param("spark", marks=pytest.mark.slow)])
def test_keys_of_structs_need_duckdb(lake: DuckLake, request: pytest.FixtureRequest, kind: str) -> None:
    struct = pa.struct([("a", pa.int64()), ("b", pa.string())])
    lake.write("t", pa.table({"s": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None], struct), "v": [1, 2, 3]}))
    new: Any = pa.table({"s": pa.array([{"a": 2, "b": None}, {"a": 5, "b": "q"}], struct), "v": [20, 50]})
    frame = new if kind == "arrow" else request.getfixturevalue("spark").createDataFrame(new)
    with pytest.raises(UnsupportedFeatureError, match=r"column 's' of type struct.* cannot be a key.*lake\.sql\('MERGE INTO t USING rows"):
        lake.write("t", frame, mode="upsert", on=["s"])
    with pytest.raises(UnsupportedFeatureError, match=r"column 's' of type struct.*lake\.sql\('MERGE INTO t USING rows"):
        lake.table("t").merge(frame, on="s").when_not_matched_insert().execute()
    merge = "MERGE INTO t USING rows ON t.s = rows.s WHEN MATCHED THEN UPDATE SET v = rows.v WHEN NOT MATCHED THEN INSERT"
    lake.sql(merge, rows=new)
    assert sorted(row[1] for row in rows(lake)) == [1, 3, 20, 50]


@pytest.mark.slow
def test_a_repeated_foreach_batch_is_stored_once(lake: DuckLake, spark: SparkSession, tmp_path: Path) -> None:
    """The second run finds no note of the first one's batches, as after a crash between the commits and Spark's own note."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("1,a\n2,b\n")
    lake.write("t", pa.table({"k": [1], "v": ["old"]}))
    lake.create_table("log", {"k": "int64", "v": "varchar"})

    def store(batch: Any, batch_id: int) -> None:
        lake.write("t", batch, mode="upsert", on=["k"], commit_id=f"load-{batch_id}-t")
        lake.write("log", batch, mode="append", commit_id=f"load-{batch_id}-log")

    for run in range(2):
        stream = spark.readStream.schema("k bigint, v string").csv(str(tmp_path / "in"))
        sink = stream.writeStream.foreachBatch(store).option("checkpointLocation", str(tmp_path / f"checkpoint {run}"))
        sink.trigger(availableNow=True).start().awaitTermination()
    assert rows(lake) == rows(lake, "log") == [(1, "a"), (2, "b")]
    assert len(lake.snapshots()) == 5
