"""lake.sql over variants and geometries in process: what DuckDB gives over the lake itself, and what statements write of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import duckdb
import pytest
from duckdb_extensions import import_extension

from ducklake_core import DuckLake
from ducklake_core.engines.arrow import evaluate
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.sql.query import Query
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = """
    (1, 5::VARIANT, 'POINT(1 2)'), (2, {'a': 1, 'b': [DATE '2020-01-01', NULL]}::VARIANT, NULL), (3, NULL, 'LINESTRING(0 0, 5 5)'),
    (4, 'text'::VARIANT, 'POLYGON((0 0, 4 0, 4 4, 0 4, 0 0))'), (5, {'a': 1.50::DECIMAL(4, 2)}::VARIANT, 'POINT EMPTY'),
    (6, TIMESTAMP_NS '2020-01-01 00:00:00.123456789'::VARIANT, 'POINT(4 4)'), (7, 0.5::DOUBLE::VARIANT, 'POINT(3 1)')
"""
NESTED = "SELECT i, [v, NULL] AS l, {'x y': v, 'n': i} AS s, map {'k': v} AS m, [{'v': [v]}] AS deep FROM t"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DuckLake, Oracle]]:
    address = sqlite_lake(tmp_path_factory.mktemp("variants"))
    with attached(address) as duck:
        duck.run("CREATE TABLE t (i INTEGER, v VARIANT, g GEOMETRY)", f"INSERT INTO t VALUES {ROWS}")
        duck.run("CREATE VIEW w AS SELECT i, v.a AS a FROM t", "CREATE MACRO kind(v) AS variant_typeof(v)")
        lake = DuckLake.connect(address.url)
        yield lake, duck
        lake.close()


def shown(columns: list[str]) -> str:
    return ", ".join(f'CAST("{name}" AS VARCHAR)' for name in columns)


QUERIES = [
    "SELECT v.a::VARCHAR AS x, variant_typeof(v) AS k, i FROM t ORDER BY i",
    "SELECT kind(v) AS k, count(*) AS n FROM t GROUP BY ALL ORDER BY ALL",
    "SELECT w.i, CAST(a AS DOUBLE) AS a FROM w JOIN t USING (i) WHERE a IS NOT NULL ORDER BY 1",
    "SELECT a.i, b.i AS j FROM t AS a JOIN t AS b USING (v) ORDER BY ALL",
    "SELECT i, st_astext(g) AS g FROM t WHERE g && 'POLYGON((0 0, 0 3, 3 3, 3 0, 0 0))'::GEOMETRY AND i + 0 > 0 ORDER BY i",
]


@pytest.mark.parametrize("query", QUERIES)
def test_answers(made: tuple[DuckLake, Oracle], query: str) -> None:
    lake, duck = made
    found = lake.sql(query)
    assert isinstance(found, Query)
    assert [tuple(row.values()) for row in found.to_arrow().to_pylist()] == duck.rows(query.replace("kind(v)", "variant_typeof(v)"))


def test_variants_are_given_as_scans_give_them(made: tuple[DuckLake, Oracle]) -> None:
    lake, _ = made
    found = lake.sql("SELECT i, v FROM t WHERE i + 0 > 0 ORDER BY i").to_arrow()  # type: ignore[union-attr]
    scanned = lake.table("t").scan(columns=["i", "v"]).to_arrow()
    assert found.schema.field("v").equals(scanned.schema.field("v").remove_metadata().with_metadata(found.schema.field("v").metadata))
    assert found.schema.field("v").metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"
    assert found.column("v").to_pylist() == scanned.column("v").to_pylist()
    for statement in ("DESCRIBE t", "SUMMARIZE t"):
        assert lake.sql(statement).to_arrow().num_rows == 3  # type: ignore[union-attr]


def test_statements_write_them(small: DuckLake, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (i INTEGER, v VARIANT, g GEOMETRY)", f"INSERT INTO t VALUES {ROWS}")
        small.sql("CREATE TABLE u AS SELECT i, v, v.a AS a, g FROM t")
        small.sql(f"CREATE TABLE nested AS {NESTED}")
        small.sql("INSERT INTO u VALUES (10, [1, 2], 7, 'POINT(9 9)'), (11, NULL, {'k': DATE '2021-01-01'}, NULL)")
        small.sql("INSERT INTO u (i, v) SELECT i + 20, v FROM u WHERE i < 3")
        small.sql("MERGE INTO u USING (SELECT 1 AS i, 'merged'::VARIANT AS v) AS n ON u.i = n.i WHEN MATCHED THEN UPDATE SET v = n.v")
        expected = duckdb.connect()
        expected.execute("CREATE TABLE t (i INTEGER, v VARIANT, g GEOMETRY)").execute(f"INSERT INTO t VALUES {ROWS}")
        expected.execute("CREATE TABLE u AS SELECT i, v, v.a AS a, g FROM t").execute(f"CREATE TABLE nested AS {NESTED}")
        expected.execute("INSERT INTO u VALUES (10, [1, 2]::VARIANT, 7, 'POINT(9 9)'), (11, NULL, {'k': DATE '2021-01-01'}, NULL)")
        expected.execute("INSERT INTO u (i, v) SELECT i + 20, v FROM u WHERE i < 3")
        expected.execute("UPDATE u SET v = 'merged' WHERE i = 1")
        for table, columns in (("u", ["i", "v", "a"]), ("nested", ["i", "l", "s", "m", "deep"])):
            query = f"SELECT {shown(columns)} FROM {table} ORDER BY i"
            assert duck.rows(query) == expected.execute(query).fetchall()
        kinds = "SELECT i, variant_typeof(v), st_astext(g) FROM u ORDER BY i"
        assert duck.rows(kinds) == expected.execute(kinds).fetchall()


BOX = "'POLYGON((1 1, 5 1, 5 5, 1 5, 1 1))'::GEOMETRY"
RELATIONS = [
    *(
        f"{name}(g, {BOX})"
        for name in ("st_intersects", "st_within", "st_coveredby", "st_touches", "st_overlaps", "st_crosses", "st_covers")
    ),
    *(f"{name}({BOX}, g)" for name in ("st_contains", "st_intersects", "st_overlaps", "st_within", "st_covers")),
    "st_contains(g, st_geomfromtext('POINT(2 2)'))",
    "st_equals(g, 'POINT(4 4)'::GEOMETRY)",
    "st_equals(g, 'POINT EMPTY'::GEOMETRY)",
    "st_intersects(g, 'POINT EMPTY'::GEOMETRY)",
    "st_intersects(g, st_makeenvelope(3, 1, 4, 4))",
    f"NOT st_intersects(g, {BOX})",
    f"st_intersects(g, {BOX}) AND i > 3 OR st_within(g, st_makeenvelope(0, 0, 2, 2))",
]


@pytest.fixture(scope="module")
def spatial() -> duckdb.DuckDBPyConnection:
    """DuckDB with its spatial extension, and the rows."""
    own = duckdb.connect()
    import_extension("spatial", con=own)
    own.execute("LOAD spatial").execute("CREATE TABLE t (i INTEGER, v VARIANT, g GEOMETRY)").execute(f"INSERT INTO t VALUES {ROWS}")
    return own


@pytest.mark.parametrize("where", RELATIONS)
def test_relations_are_those_of_duckdb(made: tuple[DuckLake, Oracle], spatial: duckdb.DuckDBPyConnection, where: str) -> None:
    lake, _ = made
    expected = spatial.execute(f"SELECT i FROM t WHERE {where} ORDER BY i").fetchall()
    table = "(SELECT i, g FROM t WHERE i + random() > 0)"
    for query in (f"SELECT i FROM t WHERE {where} ORDER BY i", f"SELECT i FROM {table} WHERE {where} ORDER BY i"):
        assert [tuple(row.values()) for row in lake.sql(query).to_arrow().to_pylist()] == expected  # type: ignore[union-attr]
    if "EMPTY" not in where or "equals" not in where:
        found = lake.table("t").scan(columns=["i"], where=where).to_arrow()
        assert sorted(found.column("i").to_pylist()) == [i for (i,) in expected]


def test_relations_between_columns_in_queries(made: tuple[DuckLake, Oracle], spatial: duckdb.DuckDBPyConnection) -> None:
    query = "SELECT a.i, b.i AS j FROM t AS a JOIN t AS b ON st_intersects(a.g, b.g) ORDER BY ALL"
    found = made[0].sql(query).to_arrow().to_pylist()  # type: ignore[union-attr]
    assert [tuple(row.values()) for row in found] == spatial.execute(query).fetchall()


def test_relations_choose_rows_to_delete(small: DuckLake) -> None:
    small.sql("CREATE TABLE t AS SELECT range AS i, ('POINT(' || range || ' 0)')::GEOMETRY AS g FROM range(10)")
    small.table("t").delete(where="st_within(g, st_makeenvelope(2.5, -1, 7.5, 1))")
    assert small.table("t").scan().to_arrow().column("i").to_pylist() == [0, 1, 2, 8, 9]


def test_without_shapely(made: tuple[DuckLake, Oracle], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(evaluate, "import_module", missing)
    where = f"st_intersects(g, {BOX})"
    with pytest.raises(UnsupportedFeatureError, match=r"pip install 'ducklake-dagster\[spatial\]'"):
        made[0].table("t").scan(where=where).to_arrow()
    with pytest.raises(UnsupportedFeatureError, match="shapely"):
        made[0].sql(f"SELECT count(*) FROM t WHERE {where}").to_arrow()  # type: ignore[union-attr]


def test_constants_that_are_no_geometries(made: tuple[DuckLake, Oracle]) -> None:
    with pytest.raises(UsageError, match="not a geometry in well-known text"):
        made[0].table("t").scan(where="st_intersects(g, 'POLYGON((0 0, 1 1))'::GEOMETRY)").to_arrow()


REJECTED_BY_SPARK = {
    "SELECT v.a FROM t": "'v.a' is a part of variant 'v', which only DuckDB supports",
    "SELECT t.v.a AS a FROM t": "'t.v.a' is a part of variant 'v'",
    "SELECT v['a'] AS a FROM t": "it takes the part 'a' of a variant",
    "SELECT v[1] AS a FROM t": "it takes an element of a variant",
    "SELECT count(*) AS n FROM t WHERE v.a::INTEGER = 1": "'v.a' is a part of variant",
    "SELECT variant_typeof(v) AS k FROM t": "function variant_typeof",
    "SELECT v::INTEGER AS k FROM t": "it casts variant to int32",
    "SELECT count(*) AS n FROM t WHERE st_intersects(g, 'POINT(1 2)'::GEOMETRY)": "function st_intersects",
    "SELECT count(*) AS n FROM t WHERE g && 'POINT(1 2)'::GEOMETRY": "the operator &&",
    "SELECT i FROM t WHERE st_equals(g, 'POINT EMPTY'::GEOMETRY)": "function st_equals",
    "SELECT count(*) AS n FROM t GROUP BY v": "it groups by values of type variant",
}


def test_spark_raises(made: tuple[DuckLake, Oracle], spark: SparkSession) -> None:
    lake, _ = made
    with pytest.raises(UnsupportedFeatureError, match=r"cannot read view main\.w: 'v\.a' is a part of variant 'v'"):
        lake.view("w").to_spark(spark)
    for query, reason in REJECTED_BY_SPARK.items():
        with pytest.raises(UnsupportedFeatureError, match=re.escape(reason)):
            lake.sql(query, spark=spark).to_arrow()  # type: ignore[union-attr]
    # The name of a table is no variant of another one.
    assert lake.sql("SELECT v.i FROM t AS v WHERE v.i + 0 = 3", spark=spark).to_arrow().to_pylist() == [{"i": 3}]  # type: ignore[union-attr]


def test_spark_reads_the_columns_next_to_a_variant(made: tuple[DuckLake, Oracle], spark: SparkSession) -> None:
    """Fields below a variant have no field ids in files of either library."""
    lake, _ = made
    lake.write("own", lake.table("t").scan(columns=["i", "v"]).to_arrow())
    for name in ("t", "own"):
        assert lake.table(name).scan(columns=["i"]).to_spark(spark).agg({"i": "sum"}).first()[0] == 28  # type: ignore[index]
        frame = lake.table(name).scan(columns=["v"], where="i = 2").to_spark(spark)
        assert frame.selectExpr("variant_get(v, '$.a', 'int')").first()[0] == 1  # type: ignore[index]


@pytest.mark.parametrize("where", RELATIONS[::4])
def test_relations_on_spark(made: tuple[DuckLake, Oracle], where: str, spark: SparkSession) -> None:
    lake, _ = made
    found = lake.sql(f"SELECT i FROM t WHERE {where}", spark=spark).to_arrow()  # type: ignore[union-attr]
    expected = lake.sql(f"SELECT i FROM t WHERE {where}").to_arrow()  # type: ignore[union-attr]
    assert sorted(found.column("i").to_pylist()) == sorted(expected.column("i").to_pylist())
