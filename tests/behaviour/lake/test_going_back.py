"""Undropped tables and restored lakes equal their earlier state, for ducklake_core and for DuckDB."""

from __future__ import annotations

import datetime as dt
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, Progress
from ducklake_core.errors import AlreadyExistsError, CommitConflictError, NotFoundError, UsageError
from ducklake_core.transaction import Transaction
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ZERO = timedelta(0)

BEGIN = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.t (a INTEGER NOT NULL, b VARCHAR DEFAULT 'd', n STRUCT(x INTEGER))",
    "ALTER TABLE s.t SET PARTITIONED BY (bucket(4, a))",
    "ALTER TABLE s.t SET SORTED BY (b DESC)",
    "COMMENT ON TABLE s.t IS 'a table'",
    "COMMENT ON COLUMN s.t.b IS 'a column'",
    "CALL lake.set_option('target_file_size', '3MB', table_name => 't', schema => 's')",
    "INSERT INTO s.t SELECT i, 'b' || i, {'x': i} FROM range(100) r(i)",
    "DELETE FROM s.t WHERE a % 7 = 0",
    "UPDATE s.t SET b = NULL WHERE a BETWEEN 10 AND 15",
    "INSERT INTO s.t VALUES (1000, 'inlined', NULL)",
    "CREATE TABLE u (k BIGINT)",
    "INSERT INTO u SELECT range FROM range(10)",
    "CREATE VIEW w AS SELECT a, b FROM s.t",
    "COMMENT ON VIEW w IS 'a view'",
    "CREATE MACRO twice(x) AS x * 2",
    "CREATE TABLE same (k INTEGER)",
    "INSERT INTO same VALUES (1), (2)",
)
EVERYTHING = (
    "SELECT rowid, a, b, n FROM s.t {} ORDER BY ALL",
    "SELECT rowid, k FROM u {} ORDER BY ALL",
    "SELECT rowid, k FROM same {} ORDER BY ALL",
)


def columns(duck: Oracle) -> list[tuple[object, ...]]:
    return duck.rows(
        "SELECT schema_name, table_name, column_name, data_type, is_nullable, column_default, comment FROM duckdb_columns() "
        "WHERE database_name = 'lake' ORDER BY ALL"
    )


def definitions(duck: Oracle) -> list[list[tuple[object, ...]]]:
    queries = (
        "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake' ORDER BY 1",
        "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = 'lake' ORDER BY ALL",
        "SELECT schema_name, view_name, comment, sql FROM duckdb_views() WHERE database_name = 'lake' AND NOT internal ORDER BY ALL",
        "SELECT function_name, macro_definition FROM duckdb_functions() WHERE database_name = 'lake' ORDER BY ALL",
    )
    return [columns(duck), *(duck.rows(query) for query in queries)]


def shape(lake: DuckLake, name: str) -> object:
    """A table's definition without its ids."""
    table = lake.table(name)
    spec = table.partition_spec
    keys = None if spec is None else [(key.column, key.text) for key in spec.fields]
    nodes = [(node.id, node.name, node.type if node.is_leaf else "", node.nullable, node.default) for node in table.schema.walk()]
    return nodes, keys, table.sort_keys, table.comment, table.column_comments, table.tags(), table.options


def rows(lake: DuckLake, name: str) -> list[object]:
    table = lake.table(name)
    return sorted(map(repr, table.scan(columns=["rowid", *table.schema.names]).to_arrow().to_pylist()))


def test_a_dropped_table_comes_back(lake: DuckLake, lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run(*BEGIN)
        then = duck.rows(EVERYTHING[0].format(""))
        before = columns(duck)
    lake.set_tag("s.t", "owner", "me")
    wanted, mine, earlier = shape(lake, "s.t"), rows(lake, "s.t"), lake.table("s.t").state
    kept = lake.snapshot().id
    lake.drop_table("s.t")
    lake.create_table("other", {"a": "int"})
    table = lake.undrop_table("s.t", message="back")
    assert lake.snapshot().message == "back"
    assert (shape(lake, "s.t"), rows(lake, "s.t")) == (wanted, mine)
    assert table.state.id != earlier.id
    with attached(lake_address) as duck:
        assert duck.rows(EVERYTHING[0].format("")) == then
        assert [row for row in columns(duck) if row[1] == "t"] == [row for row in before if row[1] == "t"]
        # Row ids go on where they were.
        duck.run("INSERT INTO s.t VALUES (5000, 'late', NULL)", "UPDATE s.t SET b = 'new' WHERE a = 99", "DELETE FROM s.t WHERE a < 5")
        added = duck.rows("SELECT rowid FROM s.t WHERE a = 5000")
        assert added[0][0] > max(row[0] for row in then)  # type: ignore[type-var]
        assert len(duck.rows("SELECT DISTINCT rowid FROM s.t")) == duck.value("SELECT count(*) FROM s.t") == 83
        assert duck.rows("SELECT count(*) FROM w WHERE b = 'new'") == [(1,)]
        feed = duck.rows(
            f"SELECT change_type, count(*) FROM ducklake_table_changes('lake', 's', 't', {kept}, {table.snapshot_id}) GROUP BY 1"
        )
        assert feed == [("insert", len(then))]
    # Nothing of it depends on the files of the dropped table.
    deleted = lake.expire_snapshots(older_than=_ZERO, min_age=_ZERO)
    assert [one.id for one in deleted.tables] == [earlier.id]
    lake.cleanup_old_files(older_than=_ZERO, min_age=_ZERO)
    lake.delete_orphaned_files(older_than=_ZERO, min_age=_ZERO)
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM s.t WHERE a BETWEEN 5 AND 999 AND b IS DISTINCT FROM 'new'") == 80
    assert lake.table("s.t").scan().count() == 83


def test_undrop_restores_the_table_dropped_last(small: DuckLake, sqlite_address: LakeAddress) -> None:
    def filled(*values: int) -> pa.Table:
        return pa.table({"a": pa.array(values, pa.int64())})

    small.write("t", filled(1))
    first = small.snapshot().id
    small.drop_table("T")
    small.write("t", filled(2))
    small.rename_table("t", "moved")
    small.write("t", filled(3, 3))
    with pytest.raises(AlreadyExistsError, match="already exists"):
        small.undrop_table("t")
    assert small.undrop_table("t", new_name="first").scan().to_arrow()["a"].to_pylist() == [1]
    small.drop_table("t")
    # The one that was dropped last; the one that has another name now was not dropped.
    assert small.undrop_table('main."T"').scan().to_arrow()["a"].to_pylist() == [3, 3]
    assert small.undrop_table("t", at=first, new_name="again").scan().to_arrow()["a"].to_pylist() == [1]
    with pytest.raises(NotFoundError, match="Table moved cannot be re-created"):
        small.undrop_table("moved")
    with pytest.raises(AlreadyExistsError, match="was not dropped"):
        small.undrop_table("first", new_name="more", at=small.snapshot().id)
    small.drop_table("first")
    with small.transaction() as tx:
        tx.undrop_table("first")
        tx.append("first", filled(10))
        tx.delete("first", "a = 1")
        assert tx.table("first").scan().to_arrow()["a"].to_pylist() == [10]
    with attached(sqlite_address) as duck:
        assert duck.rows("FROM first") == [(10,)]
    small.create_schema("s")
    small.write("s.t", filled(4))
    small.drop_schema("s", cascade=True)
    with pytest.raises(NotFoundError, match="Create schema"):
        small.undrop_table("s.t")
    small.create_schema("s")
    assert small.undrop_table("s.t").scan().to_arrow()["a"].to_pylist() == [4]
    small.drop_table("s.t")
    small.create_table("later", {"a": "int"})
    small.expire_snapshots(older_than=_ZERO, min_age=_ZERO)
    with pytest.raises(NotFoundError, match="every snapshot that shows it"):
        small.undrop_table("s.t")


def test_an_empty_table_comes_back_and_counts(small: DuckLake, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (a INTEGER)", "INSERT INTO t SELECT range FROM range(50)", "DELETE FROM t", "DROP TABLE t")
    small.undrop_table("t")
    with attached(sqlite_address) as duck:
        duck.run("INSERT INTO t SELECT range FROM range(50)")
        assert duck.rows("SELECT count(*), min(a), max(a) FROM t WHERE a < 10") == [(10, 0, 9)]
    assert small.table("t").column_summaries()["a"].min_value == 0


CHANGES: dict[str, tuple[str, ...]] = {
    "rows": ("DELETE FROM s.t WHERE a < 50", "UPDATE u SET k = k + 1", "INSERT INTO u VALUES (77)",
             "CALL ducklake_flush_inlined_data('lake')"),
    "columns": (
        "ALTER TABLE s.t DROP COLUMN n", "ALTER TABLE s.t ADD COLUMN c INTEGER DEFAULT 5", "ALTER TABLE s.t RENAME b TO b2",
        "ALTER TABLE u ALTER k SET NOT NULL", "INSERT INTO s.t VALUES (2000, 'late', 9)",
    ),
    "keys": (
        "ALTER TABLE s.t RESET PARTITIONED BY", "ALTER TABLE s.t RESET SORTED BY",
        "COMMENT ON TABLE s.t IS NULL",
        "COMMENT ON COLUMN s.t.b IS 'other'", "ALTER TABLE u SET PARTITIONED BY (k)", "INSERT INTO u VALUES (5)",
        "COMMENT ON VIEW w IS 'x'",
    ),
    "names": (
        "ALTER TABLE u RENAME TO x", "ALTER TABLE same RENAME TO u", "ALTER TABLE x RENAME TO same", "ALTER VIEW w RENAME TO v",
        "CREATE TABLE w (a INTEGER)",
    ),
    "drops": ("DROP VIEW w", "DROP TABLE s.t", "DROP SCHEMA s", "DROP MACRO twice", "CREATE MACRO twice(x) AS x * 3", "DROP TABLE u"),
    "new things": (
        "CREATE SCHEMA s2", "CREATE TABLE s2.t (a INTEGER)", "CREATE VIEW s2.v AS SELECT 1 AS a", "CREATE MACRO s2.m(x) AS x",
        "CREATE TABLE s.more (a INTEGER)", "INSERT INTO s.more VALUES (1)", "CREATE VIEW more AS SELECT 1 AS a", "CREATE MACRO n(x) AS x",
    ),
    "other things of the same name": (
        "DROP VIEW w", "DROP TABLE s.t", "DROP SCHEMA s", "CREATE SCHEMA s", "CREATE VIEW s.t AS SELECT 1 AS a", "DROP TABLE u",
        "CREATE TABLE u (z VARCHAR)", "INSERT INTO u VALUES ('z')", "CREATE TABLE w (a INTEGER)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", spread(CHANGES, 2))
def test_a_lake_becomes_what_it_was(what: str, sqlite_address: LakeAddress) -> None:
    check_restored(DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path), sqlite_address, CHANGES[what])


@pytest.mark.slow
def test_after_everything(lake: DuckLake, lake_address: LakeAddress) -> None:
    changes = [statement for what in ("rows", "columns", "names", "new things") for statement in CHANGES[what]]
    check_restored(lake, lake_address, [*changes, "DROP TABLE s.t"])


def check_restored(lake: DuckLake, address: LakeAddress, changes: list[str] | tuple[str, ...]) -> None:
    with attached(address) as duck:
        duck.run(*BEGIN)
        then = lake.snapshot().id
        wanted, seen = definitions(duck), [duck.rows(query.format("")) for query in EVERYTHING]
        shapes = {name: shape(lake, name) for name in ("s.t", "u", "same")}
        duck.run(*changes)
        now = definitions(duck)
        newest = lake.snapshot().id
        tables = {f"{row[0]}.{row[1]}" for row in now[2]}
        late = {name: duck.rows(f"SELECT * FROM {name} ORDER BY ALL") for name in tables}
    unchanged = lake.table("same").state.id if lake.has_table("same") else None
    made = lake.restore(then, message="back")
    assert made is not None
    assert made.id == lake.snapshot().id == newest + 1
    with attached(address) as duck:
        assert definitions(duck) == wanted
        assert [duck.rows(query.format("")) for query in EVERYTHING] == seen
        assert duck.value("SELECT twice(4)") == 8
        assert duck.rows("SELECT count(*) FROM w") == [(len(seen[0]),)]
    for name, before in shapes.items():
        mine = lake.table(name)
        # Options have no history, and stay with the table that they were set for.
        assert shape(lake, name) == before
        assert mine.scan().count() == len(seen[list(shapes).index(name)])
    assert lake.restore(lake.snapshot().id) is None
    with attached(address) as duck:
        duck.run(
            "INSERT INTO s.t (a) VALUES (-1)",
            "INSERT INTO u VALUES (-1)",
            "UPDATE s.t SET b = 'z' WHERE a = -1",
            "DELETE FROM u WHERE k = 3",
        )
        assert duck.rows("SELECT a, b FROM s.t WHERE a = -1") == [(-1, "z")]
        assert len(duck.rows("SELECT DISTINCT rowid FROM s.t")) == duck.value("SELECT count(*) FROM s.t")
    # There and back again.
    lake.restore(newest)
    with attached(address) as duck:
        assert definitions(duck) == now
        assert {name: duck.rows(f"SELECT * FROM {name} ORDER BY ALL") for name in tables} == late
    assert unchanged is None or lake.has_table("same")
    lake.expire_snapshots(older_than=_ZERO, min_age=_ZERO)
    lake.cleanup_old_files(older_than=_ZERO, min_age=_ZERO)
    with attached(address) as duck:
        assert {name: duck.rows(f"SELECT * FROM {name} ORDER BY ALL") for name in tables} == late
    lake.close()


def test_restore_leaves_unchanged_tables_alone(small: DuckLake, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run(*BEGIN)
        then = small.snapshot().id
        duck.run("INSERT INTO u VALUES (77)")
    before = [file.path for file in small.table("s.t").list_files()]
    made = small.restore(then)
    assert made is not None
    changes = made.change_set
    assert not changes.altered_table
    assert not changes.inserted_into_table
    assert [file.path for file in small.table("s.t").list_files()] == before


def test_tags_and_a_time(small: DuckLake) -> None:
    small.create_schema("s")
    small.create_table("s.t", {"a": "int"})
    small.create_view("w", "SELECT a FROM s.t")
    with small.transaction() as tx:
        tx.set_schema_comment("s", "c")
        tx.set_schema_tag("s", "k", "v")
        tx.set_tag("s.t", "k", "v")
        tx.set_tag("w", "k", "v")
    then = small.snapshot()
    small.set_schema_comment("s", "other")
    small.set_schema_tag("s", "k2", "v2")
    small.set_tag("s.t", "k", None)
    small.set_tag("w", "k", "v2")
    small.set_tag("w", "k3", "v3")
    assert small.restore(then.time + dt.timedelta(microseconds=1)) is not None
    schema = next(one for one in small.schemas() if one.name == "s")
    assert (schema.comment, dict(schema.tags)) == ("c", {"k": "v"})
    assert (small.table("s.t").tags(), small.view("w").tags()) == ({"k": "v"}, {"k": "v"})
    small.drop_view("w")
    small.drop_schema("s", cascade=True)
    small.restore(then.id)
    schema = next(one for one in small.schemas() if one.name == "s")
    assert (schema.comment, dict(schema.tags)) == ("c", {"k": "v"})
    assert (small.table("s.t").tags(), small.view("w").tags()) == ({"k": "v"}, {"k": "v"})
    small.close()


def test_other_writers_are_undone_or_in_the_way(small: DuckLake) -> None:
    one = pa.table({"a": pa.array([1], pa.int64())})
    small.write("t", one)
    then = small.snapshot().id
    small.write("t", one)
    late = small.transaction().__enter__()
    late.restore_lake(at=then)
    # An append of another table alone goes together with a restore of any table, but not with one of the lake.
    small.write("fresh", one)
    with pytest.raises(CommitConflictError, match="attempting to restore the lake"):
        late.__exit__(None, None, None)
    real = Transaction.restore_lake
    meanwhile = iter(range(2))

    def restore(tx: Transaction, **how: object) -> None:
        real(tx, **how)  # type: ignore[arg-type]
        if next(meanwhile, None) is not None:
            small.write("more", one)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "restore_lake", restore)
        assert small.restore(then) is not None
    assert [info.table for info in small.tables()] == ["main.t"]
    assert small.table("t").scan().count() == 1
    with small.transaction() as tx:
        tx.create_table("x", {"a": "int"})
        with pytest.raises(UsageError, match="must be the first call"):
            tx.restore_lake(at=then)
    with pytest.raises(NotFoundError, match="no snapshot 99"):
        small.restore(99)
    small.close()


@pytest.mark.slow
def test_on_spark(small: DuckLake, sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address) as duck:
        duck.run(*BEGIN)
        then = small.snapshot().id
        seen = [duck.rows(query.format("")) for query in EVERYTHING]
        duck.run("DELETE FROM u WHERE k < 5", "DROP TABLE s.t")
    small.undrop_table("s.t", spark=spark)
    with attached(sqlite_address) as duck:
        assert duck.rows(EVERYTHING[0].format("")) == seen[0]
        duck.run("DROP TABLE s.t")
    small.restore(then, spark=spark)
    with attached(sqlite_address) as duck:
        assert [duck.rows(query.format("")) for query in EVERYTHING] == seen
    small.close()


def test_long_calls_report_their_progress(sqlite_address: LakeAddress) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    found: list[Progress] = []
    with lake.progress(found.append):
        lake.write("t", pa.table({"id": range(200_000)}))
        assert [now.done for now in found] == [0, 65_536, 131_072, 196_608, 200_000]
        lake.table("t").update({"id": "id + 1"}, where="id < 1000")
        assert found[-1].done == 201_000
        lake.table("t").delete("true")
        lake.table("t").restore(at=1)
        assert found[-1].done == 401_000
        lake.drop_table("t")
        lake.undrop_table("t")
        assert (found[-1].done, found[-1].unit) == (601_000, "rows")
    lake.table("t").append(pa.table({"id": range(100_000)}))
    assert found[-1].done == 601_000

    def stop(now: Progress) -> None:
        if now.done:
            raise KeyboardInterrupt

    with lake.progress(stop), pytest.raises(KeyboardInterrupt):
        lake.table("t").append(pa.table({"id": range(100_000)}))
    assert lake.table("t").count() == 300_000
    assert lake.check(level="footers").is_sound
    with pytest.raises(UsageError, match="progress must be a function"):
        lake.progress(5)  # type: ignore[arg-type]
