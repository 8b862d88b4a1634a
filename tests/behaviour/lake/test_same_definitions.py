"""The same definitions by DuckDB and by ducklake_core make the same catalog rows, and both read both lakes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.transaction import Transaction
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import spread

Step: TypeAlias = tuple[tuple[str, ...], Callable[[Transaction], object]]

HOSTILE = 'we"ird, na.me ü'
QUOTED = '"we""ird, na.me ü"'


def _columns() -> list[Step]:
    """Each is one snapshot; several statements are one transaction."""
    deep = "struct(x integer, tags varchar[])"
    return [
        (
            ("CREATE TABLE t (a INTEGER, b VARCHAR DEFAULT 'it''s', d DECIMAL(10,2) DEFAULT 1.5, w DATE DEFAULT '1969-12-31')",),
            lambda tx: (
                tx.create_table("t", {"a": "int32"}),
                tx.add_column("t", "b", "varchar", default="it's"),
                tx.add_column("t", "d", "decimal(10,2)", default=1.5),
                tx.add_column("t", "w", pa.date32(), default="1969-12-31"),
            ),
        ),
        (
            ("INSERT INTO t (a, b) SELECT range, 'x' FROM range(12)",),
            lambda tx: tx.append("t", pa.table({"a": pa.array(range(12), pa.int32()), "b": ["x"] * 12})),
        ),
        (("ALTER TABLE t ALTER w SET DEFAULT now()",), lambda tx: tx.set_default("t", "w", expression="now()")),
        (("ALTER TABLE t ADD COLUMN n TINYINT DEFAULT -3",), lambda tx: tx.add_column("t", "n", "TINYINT", default=-3)),
        (("ALTER TABLE t ADD COLUMN IF NOT EXISTS n BIGINT",), lambda tx: tx.add_column("t", "N", "int64", if_not_exists=True)),
        (
            (f"ALTER TABLE t ADD COLUMN {QUOTED} TIMESTAMP DEFAULT '2020-01-01'",),
            lambda tx: tx.add_column("t", (HOSTILE,), "timestamp", default="2020-01-01"),
        ),
        ((f'ALTER TABLE t RENAME COLUMN {QUOTED} TO "select"',), lambda tx: tx.rename_column("t", (HOSTILE,), "select")),
        ((f"ALTER TABLE t ADD COLUMN s {deep}",), lambda tx: tx.add_column("t", "s", deep)),
        (("ALTER TABLE t ADD COLUMN s.z INTEGER DEFAULT 7",), lambda tx: tx.add_column("t", "s.z", "int32", default=7)),
        (("ALTER TABLE t RENAME COLUMN s.x TO xx",), lambda tx: tx.rename_column("t", "s.x", "xx")),
        (("ALTER TABLE t DROP COLUMN s.tags",), lambda tx: tx.drop_column("t", "s.tags")),
        (
            ("ALTER TABLE t ALTER s TYPE STRUCT(xx BIGINT, z INTEGER, q STRUCT(u INTEGER))",),
            lambda tx: tx.set_column_type("t", "s", "STRUCT(xx BIGINT, z INTEGER, q STRUCT(u INTEGER))"),
        ),
        (("ALTER TABLE t ADD COLUMN s.q.v BLOB",), lambda tx: tx.add_column("t", ("s", "q", "v"), pa.binary())),
        (("ALTER TABLE t ADD COLUMN l STRUCT(p INTEGER)[]",), lambda tx: tx.add_column("t", "l", "list<struct<p: int32>>")),
        (("ALTER TABLE t ADD COLUMN l.element.q INTEGER",), lambda tx: tx.add_column("t", "l.element.q", "int32")),
        (
            ("ALTER TABLE t ADD COLUMN m MAP(VARCHAR, STRUCT(k INTEGER))",),
            lambda tx: tx.add_column("t", "m", "map(varchar, struct(k int32))"),
        ),
        (("ALTER TABLE t ADD COLUMN m.value.k2 INTEGER DEFAULT 3",), lambda tx: tx.add_column("t", "m.value.k2", "int32", default=3)),
        (("ALTER TABLE t ALTER a TYPE BIGINT",), lambda tx: tx.set_column_type("t", "A", "int64")),
        (("ALTER TABLE t ALTER a SET DEFAULT 6",), lambda tx: tx.set_default("t", "a", 6)),
        (("ALTER TABLE t ALTER a DROP DEFAULT",), lambda tx: tx.drop_default("t", "a")),
        (("ALTER TABLE t ALTER b SET NOT NULL",), lambda tx: tx.set_not_null("t", "b")),
        (("ALTER TABLE t RENAME b TO bb",), lambda tx: tx.rename_column("t", "B", "bb")),
        (("ALTER TABLE t ALTER bb DROP NOT NULL",), lambda tx: tx.drop_not_null("t", "bb")),
        (("ALTER TABLE t DROP COLUMN n",), lambda tx: tx.drop_column("t", "n")),
        (("ALTER TABLE t DROP COLUMN IF EXISTS n",), lambda tx: tx.drop_column("t", "n", if_exists=True)),
        (("ALTER TABLE t ADD COLUMN n VARCHAR",), lambda tx: tx.add_column("t", "n", "varchar")),
        (
            (
                "ALTER TABLE t ADD COLUMN k INTEGER",
                "ALTER TABLE t RENAME k TO kk",
                "ALTER TABLE t ALTER d TYPE DECIMAL(38,2)",
                "ALTER TABLE t ADD COLUMN dropped INTEGER",
                "ALTER TABLE t DROP COLUMN dropped",
                "COMMENT ON TABLE t IS 'a, \"b\"'",
                "COMMENT ON COLUMN t.kk IS 'it''s new'",
            ),
            lambda tx: (
                tx.add_column("t", "k", "int32"),
                tx.rename_column("t", "k", "kk"),
                tx.set_column_type("t", "d", "decimal(38,2)"),
                tx.add_column("t", "dropped", "int32"),
                tx.drop_column("t", "dropped"),
                tx.set_comment("t", 'a, "b"'),
                tx.set_comment("t", "it's new", column="kk"),
            ),
        ),
    ]


def _tables() -> list[Step]:
    return [
        (("CREATE TABLE t (a INTEGER, b VARCHAR, c DATE)",), lambda tx: tx.create_table("t", {"a": "int32", "b": "varchar", "c": "date"})),
        (("COMMENT ON TABLE t IS 'one'",), lambda tx: tx.set_comment("t", "one")),
        (("COMMENT ON TABLE t IS 'two'",), lambda tx: tx.set_comment("t", "two")),
        (("COMMENT ON TABLE t IS NULL",), lambda tx: tx.set_comment("t", None)),
        (("COMMENT ON COLUMN t.a IS 'x'",), lambda tx: tx.set_comment("t", "x", column="a")),
        (("COMMENT ON COLUMN t.a IS NULL",), lambda tx: tx.set_comment("t", None, column="a")),
        (
            ("ALTER TABLE t SET PARTITIONED BY (a, bucket(4, b), month(c))",),
            lambda tx: tx.set_partitioned_by("t", ["a", "bucket(4, b)", "month(c)"]),
        ),
        (
            ("ALTER TABLE t SET PARTITIONED BY (a, bucket(4, b), month(c))",),
            lambda tx: tx.set_partitioned_by("t", ["A", "bucket(4, b)", "month(c)"]),
        ),
        (("ALTER TABLE t RENAME a TO aa",), lambda tx: tx.rename_column("t", "a", "aa")),
        (("ALTER TABLE t RESET PARTITIONED BY",), lambda tx: tx.reset_partitioned_by("t")),
        (("ALTER TABLE t RESET PARTITIONED BY",), lambda tx: tx.reset_partitioned_by("t")),
        (
            ("ALTER TABLE t SET SORTED BY (b DESC NULLS FIRST, aa*2+(1), lower(b))",),
            lambda tx: tx.set_sorted_by("t", ["b DESC NULLS FIRST", "aa*2+(1)", "lower(b)"]),
        ),
        (('ALTER TABLE t RENAME b TO "b x"',), lambda tx: tx.rename_column("t", "b", "b x")),
        (("ALTER TABLE t RESET SORTED BY",), lambda tx: tx.reset_sorted_by("t")),
        (("ALTER TABLE t RENAME TO T2",), lambda tx: tx.rename_table("t", "T2")),
        (("ALTER TABLE T2 RENAME TO t2",), lambda tx: tx.rename_table("t2", "t2")),
        ((f"ALTER TABLE t2 RENAME TO {QUOTED}",), lambda tx: tx.rename_table("t2", HOSTILE)),
        (
            (f"ALTER TABLE {QUOTED} SET PARTITIONED BY (aa)", f"ALTER TABLE {QUOTED} ALTER aa SET DEFAULT 3"),
            lambda tx: (tx.set_partitioned_by(QUOTED, ["aa"]), tx.set_default(QUOTED, "aa", 3)),
        ),
        (
            (
                "CREATE TABLE c2 (a INTEGER)",
                "ALTER TABLE c2 SET PARTITIONED BY (a)",
                "COMMENT ON TABLE c2 IS 'x'",
                "COMMENT ON COLUMN c2.a IS 'y'",
                "ALTER TABLE c2 SET SORTED BY (a DESC)",
            ),
            lambda tx: (
                tx.create_table("c2", pa.schema([("a", pa.int32())])),
                tx.set_partitioned_by("c2", ["a"]),
                tx.set_comment("c2", "x"),
                tx.set_comment("c2", "y", column="a"),
                tx.set_sorted_by("c2", ["a DESC"]),
            ),
        ),
        (("CREATE TABLE c3 (a INTEGER)", "DROP TABLE c3"), lambda tx: (tx.create_table("c3", {"a": "int32"}), tx.drop_table("c3"))),
        (("CREATE OR REPLACE TABLE c2 (z INTEGER)",), lambda tx: tx.create_table("c2", {"z": "int32"}, or_replace=True)),
        (("DROP TABLE c2", "CREATE TABLE c2 (y INTEGER)"), lambda tx: (tx.drop_table("c2"), tx.create_table("c2", {"y": "int32"}))),
        (("CREATE TABLE IF NOT EXISTS c2 (z INTEGER)",), lambda tx: tx.create_table("c2", {"z": "int32"}, if_not_exists=True)),
        (("DROP TABLE IF EXISTS nothing",), lambda tx: tx.drop_table("nothing", if_exists=True)),
    ]


def _views() -> list[Step]:
    return [
        (("CREATE TABLE t (a INTEGER)",), lambda tx: tx.create_table("t", {"a": "int32"})),
        (("CREATE SCHEMA s",), lambda tx: tx.create_schema("s")),
        (("CREATE SCHEMA IF NOT EXISTS S",), lambda tx: tx.create_schema("S", if_not_exists=True)),
        (("CREATE VIEW v AS SELECT 1 AS a",), lambda tx: tx.create_view("v", "SELECT 1 AS a")),
        (('CREATE VIEW s.v2(x, "y""z") AS SELECT 1, 2',), lambda tx: tx.create_view("s.v2", "SELECT 1, 2", columns=["x", 'y"z'])),
        (("CREATE VIEW IF NOT EXISTS v AS SELECT 2 AS a",), lambda tx: tx.create_view("v", "SELECT 2 AS a", if_not_exists=True)),
        (("ALTER VIEW v RENAME TO vv",), lambda tx: tx.rename_view("v", "vv")),
        (("COMMENT ON VIEW vv IS 'one'",), lambda tx: tx.set_comment("vv", "one")),
        (("COMMENT ON VIEW vv IS 'two'",), lambda tx: tx.set_comment("vv", "two")),
        (("CREATE OR REPLACE VIEW vv AS SELECT 3 AS a",), lambda tx: tx.create_view("vv", "SELECT 3 AS a", or_replace=True)),
        (("COMMENT ON VIEW vv IS 'three'",), lambda tx: tx.set_comment("vv", "three")),
        (("DROP VIEW vv",), lambda tx: tx.drop_view("vv")),
        (("DROP VIEW IF EXISTS vv",), lambda tx: tx.drop_view("vv", if_exists=True)),
        (("CREATE TABLE s.u (a INTEGER)",), lambda tx: tx.create_table("s.u", {"a": "int32"})),
        (("COMMENT ON TABLE s.u IS 'x'",), lambda tx: tx.set_comment("s.u", "x")),
        (("COMMENT ON VIEW s.v2 IS 'y'",), lambda tx: tx.set_comment("s.v2", "y")),
        (("DROP SCHEMA s CASCADE",), lambda tx: tx.drop_schema("s", cascade=True)),
        (("CREATE SCHEMA n", "CREATE TABLE n.a (i INTEGER)"), lambda tx: (tx.create_schema("n"), tx.create_table("n.a", {"i": "int32"}))),
        (("DROP SCHEMA IF EXISTS nothing",), lambda tx: tx.drop_schema("nothing", if_exists=True)),
    ]


def _macros() -> list[Step]:
    typed = "x INTEGER, y VARCHAR := 'q', z DECIMAL(10,2) := 1.5"
    constants = "a := 1, b := true, c := DATE '1969-12-31', d := -3, e := 'it''s', f := 12345678901234, g := 1e10, h := ''"
    return [
        (("CREATE SCHEMA s",), lambda tx: tx.create_schema("s")),
        (("CREATE MACRO one() AS 1",), lambda tx: tx.create_macro("one", {"": "1"})),
        (("CREATE MACRO s.twice(x) AS (x * 2)",), lambda tx: tx.create_macro("s.twice", {"x": "(x * 2)"})),
        ((f"CREATE MACRO typed({typed}) AS x",), lambda tx: tx.create_macro("typed", {typed: "x"})),
        ((f"CREATE MACRO constants({constants}) AS a",), lambda tx: tx.create_macro("constants", {constants: "a"})),
        (
            ("CREATE MACRO over(a) AS a, (a, b) AS (a + b), (a INTEGER) AS 7",),
            lambda tx: tx.create_macro("over", {"a": "a", "a, b": "(a + b)", "a INTEGER": "7"}),
        ),
        (
            ("CREATE MACRO rows_of(n) AS TABLE (SELECT n AS a), (n, m) AS TABLE (SELECT m AS a)",),
            lambda tx: tx.create_macro("rows_of", {"n": "SELECT n AS a", "n, m": "SELECT m AS a;"}, kind="table"),
        ),
        (("CREATE OR REPLACE MACRO one(x) AS x",), lambda tx: tx.create_macro("one", {"x": "x"}, or_replace=True)),
        (("CREATE MACRO one() AS TABLE SELECT 1",), lambda tx: tx.create_macro("one", {"": "SELECT 1"}, kind="table")),
        (("CREATE MACRO IF NOT EXISTS one(x) AS 3",), lambda tx: tx.create_macro("one", {"x": "3"}, if_not_exists=True)),
        (
            (f'CREATE MACRO {QUOTED}("a b") AS "a b"', "CREATE TABLE t (a INTEGER)"),
            lambda tx: (tx.create_macro(QUOTED, {'"a b"': '"a b"'}), tx.create_table("t", {"a": "int32"})),
        ),
        (
            ("CREATE MACRO dropped() AS 1", "DROP MACRO dropped"),
            lambda tx: (tx.create_macro("dropped", {"": "1"}), tx.drop_macro("dropped")),
        ),
        (("DROP MACRO TABLE one",), lambda tx: tx.drop_macro("one", kind="table")),
        (("DROP MACRO IF EXISTS nothing",), lambda tx: tx.drop_macro("nothing", if_exists=True)),
        (
            ("DROP MACRO one", "CREATE MACRO one(y) AS y"),
            lambda tx: (tx.drop_macro("one"), tx.create_macro("one", {"y": "y"})),
        ),
        (("DROP SCHEMA s CASCADE",), lambda tx: tx.drop_schema("s", cascade=True)),
    ]


NESTED_ALTERS = "DuckDB's nested ALTERs leave a NOT NULL without effect, and lose the default of the field"
DIVERGENCES: dict[str, dict[str, str]] = {
    "columns": {
        "column.nulls_allowed": NESTED_ALTERS,
        "column.default_value_type": NESTED_ALTERS,
        "snapshot_changes.changes_made": "one statement of DuckDB creates a table with defaults, which ducklake_core creates and alters",
    },
}


@pytest.mark.parametrize(("name", "steps"), spread([("columns", _columns), ("tables", _tables), ("views", _views), ("macros", _macros)], 1))
def test_same_rows_for_the_same_definitions(two_lakes: tuple[LakeAddress, LakeAddress], name: str, steps: Callable[[], list[Step]]) -> None:
    by_duckdb, own = two_lakes
    compare(by_duckdb, own, steps(), lambda tx, _, step: step(tx), DIVERGENCES.get(name, {}))


@pytest.mark.parametrize(("name", "steps"), [("columns", _columns), ("tables", _tables), ("views", _views), ("macros", _macros)])
def test_same_rows_for_the_same_statements(tmp_path: Path, name: str, steps: Callable[[], list[Step]]) -> None:
    by_duckdb, own = (sqlite_lake(new_folder(tmp_path / side)) for side in ("duckdb", "own"))
    divergences = {column: reason for column, reason in DIVERGENCES.get(name, {}).items() if reason == NESTED_ALTERS}
    compare(by_duckdb, own, steps(), lambda tx, statements, _: [tx.sql(statement) for statement in statements], divergences)


def new_folder(path: Path) -> Path:
    path.mkdir()
    return path


def compare(
    by_duckdb: LakeAddress,
    own: LakeAddress,
    steps: list[Step],
    run: Callable[[Transaction, tuple[str, ...], Callable[[Transaction], object]], object],
    divergences: dict[str, str],
) -> None:
    lake = DuckLake.create(own.url, data_path=own.data_path)
    with attached(by_duckdb) as duck:
        for statements, step in steps:
            duck.run("BEGIN", *statements, "COMMIT")
            with lake.transaction() as tx:
                run(tx, statements, step)
    lake.close()
    expected = dump_catalog(by_duckdb)
    found = dump_catalog(own, expected)
    assert set(found) == set(expected)
    for table in expected:
        left_out = {column.partition(".")[2] for column in divergences if column.partition(".")[0] == table}
        assert _without(found[table], left_out) == _without(expected[table], left_out), table
        for column in left_out:
            assert [row[column] for row in found[table]] != [row[column] for row in expected[table]], column
    with attached(own) as duck:
        assert duck.rows("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake'")[0][0] == len(
            DuckLake.connect(own.url).tables()
        )


def _without(rows: list[dict[str, Any]], columns: set[str]) -> list[dict[str, Any]]:
    return sorted(({key: value for key, value in row.items() if key not in columns} for row in rows), key=str)
