"""Definitions that DuckDB cannot write to are rejected; with all other definitions DuckDB reads and writes the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines import duckdb_instance
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format import options
from ducklake_core.format.types.data_types import INT32, Field, StructType
from ducklake_core.format.types.schema import Schema
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import slow

REJECTED = (
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET PARTITIONED BY (bucket(2147483648, a))"), UsageError, "between 1 and 2,147,483,647"),
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET PARTITIONED BY (a, a)"), UsageError, "given twice"),
    (
        ("CREATE TABLE t (a INTEGER, s STRUCT(b INTEGER))", "ALTER TABLE t SET SORTED BY (s.b)"),
        UnsupportedFeatureError,
        "before a field of a struct",
    ),
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET SORTED BY (t.a)"), UnsupportedFeatureError, "Sort by a column"),
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET SORTED BY (unnest([a]))"), UsageError, "columns of its row"),
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET SORTED BY (?)"), UsageError, "parameter number 1 without a value"),
    (("CREATE TABLE t (a INTEGER[])", "ALTER TABLE t SET SORTED BY (list_transform(a, lambda x: x + 1))"), UsageError, "lambda"),
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET SORTED BY (no_function(a))"), UsageError, "does not exist"),
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET SORTED BY (upper(a))"), UsageError, "No function matches"),
    (("CREATE TABLE t (a INTEGER, _ducklake_internal_row_id INTEGER)",), SchemaError, "DuckLake uses this name"),
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t RENAME COLUMN a TO _ducklake_internal_row_id"), SchemaError, "DuckLake uses this name"),
    (("CREATE TABLE t (a INTEGER, c INTEGER[] DEFAULT [1])",), UnsupportedFeatureError, "cannot have a default"),
    (("CREATE TABLE t (a INTEGER, c STRUCT(x INTEGER) DEFAULT {'x': 1})",), UnsupportedFeatureError, "cannot have a default"),
    (("CREATE TABLE t (a INTEGER, c MAP(INTEGER, INTEGER) DEFAULT MAP {1: 1})",), UnsupportedFeatureError, "cannot have a default"),
    (("CREATE TABLE t (c INTEGER[])", "ALTER TABLE t ALTER c SET DEFAULT [1]"), UnsupportedFeatureError, "cannot have a default"),
    (("CREATE TABLE t (a INTEGER)", "ALTER TABLE t ADD COLUMN c INTEGER[] DEFAULT [1]"), UnsupportedFeatureError, "cannot have a default"),
    (("CREATE TABLE t (a INTEGER, c JSON DEFAULT '01')",), UsageError, "not a value of type json"),
    (("CREATE TABLE t (a INTEGER, c INTEGER DEFAULT 'x'::INTEGER)",), UsageError, "not a value of type int32"),
    (("CREATE TABLE t (a INTEGER, c INTEGER DEFAULT sum(1))",), UsageError, "aggregates"),
    (("CREATE TABLE t (a INTEGER, c INTEGER DEFAULT unnest([1, 2]))",), UsageError, "must be an expression without columns"),
    (("CREATE TABLE t (a INTEGER, c INTEGER DEFAULT no_function())",), UsageError, "column 'c'.*does not exist"),
    (("CREATE TABLE t (a INTEGER, c INTEGER DEFAULT uuid())",), UsageError, "Unimplemented type for cast"),
)

ACCEPTED = (
    ("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET PARTITIONED BY (bucket(2147483647, a))"),
    ("CREATE TABLE t (a INTEGER, ts TIMESTAMP, year INTEGER)", 'ALTER TABLE t SET PARTITIONED BY (year(ts), "year")'),
    ('CREATE TABLE t (a INTEGER, "year(a)" INTEGER)', 'ALTER TABLE t SET PARTITIONED BY ("year(a)")'),
    ("CREATE TABLE t (a INTEGER)", "ALTER TABLE t SET SORTED BY (a, a DESC)"),
    ("CREATE TABLE t (a INTEGER, row_id INTEGER, begin_snapshot INTEGER, end_snapshot INTEGER)",),
    ("CREATE TABLE t (a INTEGER, filename VARCHAR, snapshot_id INTEGER)",),
    ("CREATE TABLE t (a INTEGER, c INTEGER[] DEFAULT NULL)",),
    ("CREATE TABLE t (a INTEGER)", f"ALTER TABLE t ADD COLUMN {'x' * 70} INTEGER"),
    ("CREATE TABLE t (a INTEGER, c TIMESTAMP DEFAULT now(), u UUID DEFAULT uuid())",),
    ("CREATE TABLE t (a INTEGER, c INTEGER DEFAULT (1 + 1), i INTERVAL DEFAULT INTERVAL 1 DAY)",),
)

SORTABLE = "a INTEGER, s VARCHAR, d DATE, l INTEGER[], u UUID, v STRUCT(x INTEGER)"

TYPED_LITERALS = (
    ("DATE", "DATE '2020-01-01'"),
    ("INTEGER", "'5'::INTEGER"),
    ("BIGINT", "CAST(-5 AS INTEGER)"),
    ("TIMESTAMP", "TIMESTAMP '2020-01-01 00:00:00'"),
    ("DECIMAL(9,2)", "'1.5'::DECIMAL(9,2)"),
    ("VARCHAR", "VARCHAR 'x'"),
    ("TIMESTAMPTZ", "TIMESTAMPTZ '2020-01-01 00:00:00+02'"),
    ("TIME", "TIME '01:02:03'"),
    ("UUID", "'00000000-0000-0000-0000-000000000001'::UUID"),
    ("BOOLEAN", "'true'::BOOLEAN"),
    ("DOUBLE", "'nan'::DOUBLE"),
    ("FLOAT", "1.1::FLOAT"),
    ("INTERVAL", "'1 day'::INTERVAL"),
    ("SMALLINT", "'  5 '::INTEGER"),
    ("INTEGER", "'5.5'::INTEGER"),
    ("INTEGER", "5.5::INTEGER"),
    ("JSON", "'[1]'::JSON"),
    ("BLOB", r"'\xAA'::BLOB"),
)


@pytest.fixture
def address(tmp_path: Path) -> LakeAddress:
    return sqlite_lake(tmp_path)


def made(address: LakeAddress) -> DuckLake:
    return DuckLake.create(address.url, data_path=address.data_path)


def test_definitions_that_break_writes_of_duckdb_are_rejected(address: LakeAddress) -> None:
    lake = made(address)
    for (*first, last), error, message in REJECTED:
        for statement in first:
            lake.sql(statement)
        before = lake.snapshot().id
        with pytest.raises(error, match=message):
            lake.sql(last)
        assert lake.snapshot().id == before, last
        lake.sql("DROP TABLE IF EXISTS t")


@pytest.mark.parametrize("statements", ACCEPTED, ids=[case[-1] for case in ACCEPTED])
def test_duckdb_writes_to_tables_of_accepted_definitions(address: LakeAddress, statements: tuple[str, ...]) -> None:
    lake = made(address)
    for statement in statements:
        lake.sql(statement)
    with attached(address) as duck:
        duck.run("INSERT INTO t (a) VALUES (1), (2)", "INSERT INTO t (a) SELECT range FROM range(10, 40)")
        duck.run("UPDATE t SET a = a + 100 WHERE a = 1", "DELETE FROM t WHERE a = 2")
        duck.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
        assert duck.value("SELECT sum(a) FROM t") == 101 + sum(range(10, 40))
    assert lake.sql("SELECT sum(a) AS s FROM t").to_arrow().to_pylist() == [{"s": 101 + sum(range(10, 40))}]


def test_typed_literals_are_constant_defaults(address: LakeAddress) -> None:
    lake, columns = made(address), list(enumerate(TYPED_LITERALS))
    lake.sql(f"CREATE TABLE t (a INTEGER, {', '.join(f'c{n} {kind} DEFAULT {literal}' for n, (kind, literal) in columns)})")
    lake.sql("INSERT INTO t (a) VALUES (1)")
    with lake.transaction() as tx:
        for n, (kind, literal) in columns:
            tx.sql(f"ALTER TABLE t ADD COLUMN d{n} {kind} DEFAULT {literal}")
            tx.sql(f"ALTER TABLE t ADD COLUMN e{n} {kind}")
            tx.sql(f"ALTER TABLE t ALTER e{n} SET DEFAULT {literal}")
    lake.sql("INSERT INTO t (a) VALUES (2)")
    with attached(address) as duck:
        duck.run("INSERT INTO t (a) VALUES (3)")
        for n, (kind, literal) in columns:
            wanted = f"CAST({literal} AS {kind})"
            found = duck.rows(f"SELECT c{n} = {wanted}, d{n} = {wanted}, e{n} = {wanted} FROM t ORDER BY a")
            assert found == [(True, True, None), (True, True, True), (True, True, True)], (kind, literal)
    assert not any(column.default_is_expression for column in lake.table("t").schema)


def test_methods_have_the_checks_of_sql(address: LakeAddress) -> None:
    lake = made(address)
    lake.create_table("t", {"a": "int32", "year": "int32", "ts": "timestamp"}, partition_by=["year(ts)", '"year"'])
    lake.sql("CREATE TABLE s (s STRUCT(b INTEGER))")
    before = lake.snapshot().id
    for frame in (pa.table({"a\0b": [1]}), pa.table({"s": [{"x\0y": 1}]})):
        with pytest.raises(SchemaError, match="contains NUL"):
            lake.create_table("n", frame.schema)
        with pytest.raises(SchemaError, match="contains NUL"):
            lake.write("n", frame)
    with pytest.raises(SchemaError, match="DuckLake uses this name"):
        lake.write("n", pa.table({"_ducklake_internal_snapshot_id": [1]}))
    with pytest.raises(SchemaError, match="DuckLake uses this name"):
        lake.table("t").add_column("_DUCKLAKE_internal_row_id", "int32")
    nested = Field(name="l", type=StructType(fields=(Field(name="x", type=INT32),)), default="{'x': 1}", default_is_expression=True)
    with pytest.raises(UnsupportedFeatureError, match="cannot have a default"):
        lake.create_table("n", Schema(columns=(nested,)))
    with pytest.raises(UsageError, match="number of buckets"):
        lake.create_table("n", {"a": "int32"}, partition_by=["bucket(2147483648, a)"])
    with pytest.raises(UsageError, match="between 1 and 2,147,483,647"):
        lake.table("t").set_partitioned_by(["bucket(2147483648, a)"])
    with pytest.raises(UnsupportedFeatureError, match="before a field of a struct"):
        lake.table("s").set_sorted_by(["s.b"])
    assert lake.snapshot().id == before


def test_target_file_sizes_of_a_few_bytes_raise(address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made(address)
    monkeypatch.setattr(options, "MIN_TARGET_FILE_SIZE", 1000)
    with pytest.raises(UsageError, match="target_file_size is 5: it must be at least 1,000 bytes"):
        lake.set_option("target_file_size", 5)
    lake.set_option("target_file_size", "1KB")


CONDITIONS = (
    "v::VARCHAR = 'x'",
    "v::VARCHAR IN ('x', '5')",
    "v::VARCHAR LIKE 'x%'",
    "v::VARCHAR IS NULL",
    "v::VARCHAR <> 'x'",
    "v::VARCHAR BETWEEN 'a' AND 'z'",
    "v::VARCHAR IS DISTINCT FROM 'x'",
    "v::VARCHAR = i::VARCHAR",
    "lower(v::VARCHAR) = 'x'",
    "v::VARCHAR = '{''k'': x}'",
    "v.k::VARCHAR = 'x'",
    "TRY_CAST(v AS INTEGER) = 5",
    "TRY_CAST(v AS DATE) = DATE '2020-01-01'",
    "v::JSON = '5'",
)
MERGE = "MERGE INTO t USING (SELECT 1 AS one) AS s ON {} WHEN MATCHED THEN UPDATE SET i = i + 100"


@pytest.mark.parametrize("limit", [slow(0), 100], ids=["files", "inlined"])
def test_conditions_on_cast_variants_are_those_of_duckdb(address: LakeAddress, limit: int) -> None:
    with attached(address, f"DATA_INLINING_ROW_LIMIT {limit}") as duck:
        duck.run(
            "CREATE TABLE t (i INTEGER, v VARIANT)",
            """INSERT INTO t VALUES (1, 'x'), (2, 5::INTEGER), (3, NULL), (4, {'k': 'x'}), (5, '5'), (6, [1, 2]), (7, DATE '2020-01-01'),
            (8, 1.50::DECIMAL(5, 2)), (9, true), (10, 1.5::DOUBLE), (11, '2020-01-01')""",
        )
        wanted = {where: [i for (i,) in duck.rows(f"SELECT i FROM t WHERE {where} ORDER BY i")] for where in CONDITIONS}
    lake = DuckLake.open(address.url)
    loaded = lake.snapshot().id
    for place, (where, expected) in enumerate(wanted.items()):
        assert sorted(lake.sql(f"SELECT i FROM t WHERE {where}").to_arrow()["i"].to_pylist()) == expected, where
        assert sorted(lake.table("t").scan(columns=["i"], where=where).to_arrow()["i"].to_pylist()) == expected, where
        totals = lake.sql(f"SELECT count(*) AS n, min(i) AS low, max(i) AS high FROM t WHERE {where}").to_arrow().to_pylist()
        assert totals == [{"n": len(expected), "low": expected[0], "high": expected[-1]}], where
        lake.create_view("w", f"SELECT i FROM t WHERE {where}", or_replace=True)
        assert sorted(lake.sql("SELECT i FROM w").to_arrow()["i"].to_pylist()) == expected, where
        change = (f"DELETE FROM t WHERE {where}", f"UPDATE t SET i = i + 100 WHERE {where}", MERGE.format(where))[place % 3]
        lake.sql(change)
        left = sorted(lake.sql("SELECT i FROM t WHERE i < 100").to_arrow()["i"].to_pylist())
        assert left == [i for i in range(1, 12) if i not in expected], change
        lake.restore(loaded)


def test_casts_of_variants_share_one_instance(address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = made(address)
    lake.sql("CREATE TABLE t (i INTEGER, v VARIANT)")
    for value in range(3):
        lake.sql(f"INSERT INTO t VALUES ({value}, {value})")
    created: list[str | None] = []
    original = duckdb_instance.new_instance
    monkeypatch.setattr(duckdb_instance, "new_instance", lambda zone=None: created.append(zone) or original(zone))
    for value in range(3):
        assert lake.table("t").scan(columns=["i"], where=f"v::VARCHAR = '{value}'").to_arrow()["i"].to_pylist() == [value]
    assert len(created) <= 1


def test_variants_that_cannot_be_cast_raise(address: LakeAddress) -> None:
    lake = made(address)
    lake.sql("CREATE TABLE t (i INTEGER, v VARIANT)")
    lake.sql("INSERT INTO t VALUES (1, 'x'), (2, 5)")
    with pytest.raises(UsageError, match="'x' cannot be read as a value of type int32"):
        lake.sql("SELECT i FROM t WHERE v::INTEGER = 5").to_arrow()


QUERY = """SELECT 1::HUGEINT AS h, 2::UHUGEINT AS u, [3::HUGEINT] AS l, {'a': 4::UHUGEINT} AS s, MAP {5::HUGEINT: 6} AS m, sum(1) AS n,
    '01:02:03+00'::TIMETZ AS t, '[1]'::JSON AS j, '00000000-0000-0000-0000-000000000001'::UUID AS i, 1.5::DECIMAL(38, 0) AS d, NULL AS x,
    7::VARIANT AS v, 'x' AS c"""


def test_tables_of_queries_have_the_types_of_duckdb(address: LakeAddress) -> None:
    lake = made(address)
    lake.sql(f"CREATE TABLE own_rows AS {QUERY}")
    lake.sql("CREATE OR REPLACE TABLE own_rows AS FROM own_rows")
    lake.close()
    with attached(address) as duck:
        duck.run(f"CREATE TABLE by_duckdb AS {QUERY}")
        described = "SELECT column_name, column_type FROM (DESCRIBE {}) ORDER BY ALL"
        assert duck.rows(described.format("own_rows")) == duck.rows(described.format("by_duckdb"))
        columns = "h, u, l, s, m, n, t, j, i, d, x, v, c"
        assert duck.rows(f"SELECT {columns} FROM own_rows") == duck.rows(f"SELECT {columns} FROM by_duckdb")


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("SELECT 5::HUGEINT AS h, rowid AS r FROM t WHERE rowid = 0", ["HUGEINT", "BIGINT"]),
        ("SELECT '01:02:03.000000001'::TIME_NS AS n, ['01:02:03'::TIME_NS] AS l", ["TIME_NS", "TIME_NS[]"]),
        ("SELECT uuid() AS u, '[1]'::JSON AS j FROM t WHERE false", ["UUID", "JSON"]),
        ("FROM t", ["INTEGER"]),
    ],
)
def test_create_table_as_keeps_types(address: LakeAddress, query: str, types: list[str]) -> None:
    lake = made(address)
    lake.sql("CREATE TABLE t (a INTEGER)")
    lake.sql("INSERT INTO t VALUES (1), (2)")
    lake.sql(f"CREATE TABLE made AS {query}")
    lake.close()
    with attached(address) as duck:
        assert [kind for (kind,) in duck.rows("SELECT column_type FROM (DESCRIBE made)")] == types


def test_create_table_as_rejects_columns_that_no_lake_has(address: LakeAddress) -> None:
    lake = made(address)
    with pytest.raises(SchemaError, match="column 'e' of the query"):
        lake.sql("CREATE TABLE made AS SELECT 'a'::ENUM('a') AS e")


def test_a_default_of_a_type_that_lakes_lack_is_computed(address: LakeAddress) -> None:
    lake = made(address)
    lake.sql("CREATE TABLE t (i INTEGER, c VARCHAR DEFAULT '101'::BIT)")
    lake.sql("INSERT INTO t (i) VALUES (1)")
    lake.close()
    with attached(address) as duck:
        duck.run("INSERT INTO t (i) VALUES (2)")
        assert duck.rows("SELECT c FROM t ORDER BY i") == [("101",), ("101",)]


@pytest.mark.parametrize(
    "key", ["product(a)", "histogram(a)", "-s", "no_function(a)", "a::DATE", "year(a::TIMESTAMP)", "d::INTEGER", "l::INTEGER", "u::INTEGER"]
)
def test_sort_keys_that_duckdb_cannot_compute_are_rejected(address: LakeAddress, key: str) -> None:
    lake = made(address)
    lake.sql(f"CREATE TABLE t ({SORTABLE})")
    with pytest.raises(UsageError, match=r"DuckDB rejects .* of table main\.t"):
        lake.sql(f"ALTER TABLE t SET SORTED BY ({key})")


def test_sort_keys_that_duckdb_computes_for_some_values_are_accepted(address: LakeAddress) -> None:
    keys = ("s::INTEGER", "s::DATE", "1 / 0", "error(s)", "TRY_CAST(a AS DATE)", "l::VARCHAR", "d::TIMESTAMP", "v::VARCHAR")
    lake = made(address)
    lake.sql(f"CREATE TABLE t ({SORTABLE})")
    for key in keys:
        lake.sql(f"ALTER TABLE t SET SORTED BY ({key})")
    lake.close()
    with attached(address) as duck:
        duck.run(f"CREATE TABLE u ({SORTABLE})", *(f"ALTER TABLE u SET SORTED BY ({key})" for key in keys))


def test_definitions_are_checked_next_to_a_new_macro(address: LakeAddress) -> None:
    lake = made(address)
    lake.sql("CREATE TABLE t (a INTEGER, s VARCHAR)")
    lake.sql("CREATE MACRO minus(x) AS x - 1")
    for statement in (
        "ALTER TABLE t SET SORTED BY (-s)",
        "ALTER TABLE t ALTER a SET DEFAULT (uuid())",
        "ALTER TABLE t SET SORTED BY (minus(s))",
    ):
        with lake.transaction() as tx:
            tx.sql("CREATE OR REPLACE MACRO plus(x) AS x + 1")
            with pytest.raises(UsageError, match="DuckDB rejects"):
                tx.sql(statement)
    lake.sql("DROP MACRO plus")
    with lake.transaction() as tx:
        tx.sql("CREATE MACRO plus(x) AS x + 1")
        tx.sql("DROP MACRO minus")
        with pytest.raises(UsageError, match="minus does not exist"):
            tx.sql("ALTER TABLE t SET SORTED BY (minus(a))")
        tx.sql("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        tx.delete("t", "plus(a) = 2")
        tx.sql("UPDATE t SET a = plus(a) WHERE plus(a) = 3")
    assert lake.table("t").to_arrow().to_pylist() == [{"a": 3, "s": "y"}]


@pytest.mark.parametrize("default", ["1.5", "'1.5'", "1e0", "'1e0'", "2.5"])
@pytest.mark.parametrize("creator", ["this library", "DuckDB"])
def test_defaults_are_rounded_as_by_duckdb(address: LakeAddress, creator: str, default: str) -> None:
    definition = f"CREATE TABLE t (a INTEGER, b UTINYINT DEFAULT {default}, c DECIMAL(5, 0) DEFAULT {default})"
    lake = made(address)
    if creator == "this library":
        lake.sql(definition)
        lake.close()
    with attached(address) as duck:
        if creator == "DuckDB":
            duck.run(definition)
        duck.run("INSERT INTO t (a) VALUES (1)")
    lake.sql("INSERT INTO t (a) VALUES (1)")
    one, two = lake.sql("SELECT b, c FROM t").to_arrow().to_pylist()
    assert one == two


def test_defaults_of_booleans_that_become_integers_are_read_by_duckdb(address: LakeAddress) -> None:
    lake = made(address)
    lake.sql("CREATE TABLE t (a INTEGER)")
    lake.sql("INSERT INTO t VALUES (1)")
    lake.sql("ALTER TABLE t ADD COLUMN c BOOLEAN DEFAULT 't'")
    lake.sql("ALTER TABLE t ADD COLUMN d BOOLEAN DEFAULT true")
    lake.sql("ALTER TABLE t ALTER d SET DEFAULT (random() > 2)")
    lake.sql("ALTER TABLE t ALTER c SET DATA TYPE UINTEGER")
    lake.sql("ALTER TABLE t ALTER d SET DATA TYPE INTEGER")
    lake.sql("INSERT INTO t (a) VALUES (2)")
    lake.close()
    with attached(address) as duck:
        duck.run("INSERT INTO t (a) VALUES (3)")
        assert duck.rows("SELECT c FROM t") == [(1,)] * 3
