"""Functions of DuckLake, variables, the name of the lake, EXPLAIN and files in SQL, compared with DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb as duckdb_alone
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.errors import DuckLakeError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.sql.query import Query
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake


@pytest.fixture(scope="module")
def lake_and_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DuckLake, Oracle]]:
    """A lake that tests share: no test changes it."""
    address = sqlite_lake(tmp_path_factory.mktemp("functions"))
    lake = DuckLake.create(address.url, data_path=address.data_path)
    for start in (0, 100):
        lake.write("t", pa.table({"a": range(start, start + 50), "b": ["x", "y"] * 25}), inline=False)
    lake.sql("CREATE SCHEMA s")
    lake.sql("CREATE TABLE lake.s.u (k INTEGER, n STRUCT(t INTEGER))")
    lake.sql("INSERT INTO lake.s.u VALUES (1, {'t': 3})", author="me", message="one row")
    lake.sql("UPDATE t SET a = a + 1000 WHERE a < 3")
    lake.sql("CREATE VIEW v AS SELECT count(*) AS n FROM t")
    lake.sql("DELETE FROM t WHERE a >= 100")
    lake.sql("CREATE VIEW pairs (n, s) AS VALUES (1, 'x'), (2, 'it''s')")
    for comment in ("TABLE t IS 'it''s t'", "COLUMN t.b IS 'letters'", "VIEW v IS 'counted'"):
        lake.sql(f"COMMENT ON {comment}")
    lake.sql("CALL ducklake_set_option('lake', 'target_file_size', '1MB', table_name => 't'); CREATE SCHEMA bare")
    with attached(address) as duckdb:
        yield lake, duckdb
    lake.close()


def rows(lake: DuckLake, sql: str, **options: object) -> list[tuple[object, ...]]:
    found = lake.sql(sql, **options)  # type: ignore[arg-type]
    assert isinstance(found, Query)
    return [tuple(row.values()) for row in found.to_arrow().to_pylist()]


SAME = (
    "SELECT column_name, column_type FROM (DESCRIBE FROM lake.snapshots())",
    "SELECT column_name, column_type FROM (DESCRIBE FROM ducklake_table_info('lake'))",
    "SELECT column_name, column_type FROM (DESCRIBE FROM ducklake_list_files('lake', 't'))",
    "SELECT column_name, column_type FROM (DESCRIBE FROM lake.options())",
    "SELECT column_name, column_type FROM (DESCRIBE FROM lake.settings())",
    "SELECT column_name, column_type FROM (DESCRIBE FROM ducklake_current_snapshot('lake'))",
    "SELECT column_name, column_type FROM (DESCRIBE FROM lake.table_changes('t', 0, 3))",
    "SELECT column_name, column_type FROM (DESCRIBE FROM ducklake_table_insertions('lake', 'main', 't', 0, 3))",
    "SELECT snapshot_id, schema_version, changes::VARCHAR, author, commit_message FROM ducklake_snapshots('lake') ORDER BY 1",
    "SELECT s.snapshot_id FROM lake.snapshots() AS s WHERE s.changes['inlined_insert'] IS NOT NULL ORDER BY 1",
    "SELECT table_name, schema_id, table_id, table_uuid::VARCHAR, file_count, file_size_bytes FROM lake.table_info() ORDER BY 1",
    "SELECT data_file, data_file_size_bytes, data_file_footer_size FROM ducklake_list_files('lake', 't', snapshot_version => 2) ORDER BY 1",
    "SELECT count(*) FROM ducklake_list_files('lake', 'u', schema => 's')",
    "SELECT option_name, value, scope, scope_entry FROM ducklake_options('lake') ORDER BY ALL",
    "SELECT data_path FROM ducklake_settings('lake')",
    "SELECT id FROM lake.current_snapshot()",
    "FROM lake.table_changes('t', 6, 6) ORDER BY ALL",
    "FROM ducklake_table_changes('lake', 's', 'u', 0, 5) ORDER BY ALL",
    "SELECT a FROM ducklake_table_insertions('lake', 'main', 't', 6, 8) ORDER BY a",
    "SELECT a FROM lake.table_deletions('t', 8, 8) ORDER BY 1 LIMIT 3",
    "SELECT rowid, snapshot_id, * FROM ducklake_table_insertions('lake', 'main', 't', 6, 6) ORDER BY ALL",
    "SELECT snapshot_id, max(rowid) FROM ducklake_table_deletions('lake', 'main', 't', 0, 9) GROUP BY ALL ORDER BY ALL",
    "SELECT i.rowid, i.*, u.k FROM ducklake_table_insertions('lake', 'main', 't', 6, 6) AS i, lake.s.u AS u ORDER BY ALL",
    "SELECT count(*) FROM __ducklake_metadata_lake.main.ducklake_data_file",
    "SELECT count(*) FROM lake.table_changes('t', now() - INTERVAL 1 DAY, now()::TIMESTAMPTZ)",
    "FROM v AT (VERSION => 7)",
    "SELECT old.a FROM lake.t AS old AT (VERSION => 1) JOIN t now_ AT (VERSION => 2) ON old.a = now_.a ORDER BY ALL LIMIT 3",
    "SELECT table_name, comment FROM duckdb_tables() WHERE database_name = 'lake' AND schema_name <> 'public' ORDER BY ALL",
    "SELECT view_name, comment FROM duckdb_views() WHERE database_name = 'lake' AND view_name = 'v'",
    "SELECT column_name, comment FROM duckdb_columns() WHERE database_name = 'lake' AND table_name IN ('t', 'v') ORDER BY ALL",
    "FROM pairs ORDER BY ALL",
    "SELECT n + 1 AS more FROM lake.main.v AT (VERSION => 8)",
    "SELECT * FROM lake.s.u",
    "SELECT lake.s.u.k, u.n.t FROM lake.s.u, lake.t LIMIT 1",
    "SELECT lake.a FROM t AS lake ORDER BY 1 LIMIT 1",
    "SELECT lake.a FROM lake.t AS lake ORDER BY 1 LIMIT 1",
    "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake' ORDER BY 1",
    "SELECT rowid, * FROM t ORDER BY ALL LIMIT 3",
    "SELECT t.rowid, t.*, u.k FROM t, lake.s.u AS u ORDER BY ALL LIMIT 3",
    "SELECT *, snapshot_id FROM t WHERE rowid < 3 ORDER BY ALL",
    "SELECT * FROM (SELECT rowid, * FROM t) ORDER BY ALL LIMIT 3",
    "SUMMARIZE SELECT b FROM t",
    "FROM current_snapshot()",
    "SELECT name, type FROM pragma_table_info('s.u')",
    "SELECT rowid, snapshot_id, * FROM ducklake_table_insertions('lake', 'main', 't', 0, 8) ORDER BY ALL LIMIT 3",
    "SELECT d.rowid, d.* FROM ducklake_table_deletions('lake', 'main', 't', 8, 8) AS d JOIN t AS other USING (b) ORDER BY ALL LIMIT 3",
    "SELECT max(rowid), min(snapshot_id), count(*) FROM ducklake_table_deletions('lake', 'main', 't', 0, 8) WHERE snapshot_id > 5",
    "SELECT estimated_size, column_count FROM duckdb_tables() WHERE database_name = 'lake' AND table_name = 'u'",
    "SELECT schema_name, table_name FROM duckdb_tables WHERE database_name = 'lake' ORDER BY ALL",
    "SELECT data_file_id, record_count, path_is_relative FROM __ducklake_metadata_lake.ducklake_data_file ORDER BY 1",
)


@pytest.mark.parametrize("query", SAME)
def test_rows_are_those_of_duckdb(lake_and_duckdb: tuple[DuckLake, Oracle], query: str) -> None:
    lake, duckdb = lake_and_duckdb
    assert rows(lake, query) == duckdb.rows(query)


REJECTED = {
    "FROM ducklake_snapshots('other')": (UsageError, "the first argument of ducklake_snapshots must be 'lake'"),
    "FROM lake.table_changes('t', 1)": (UsageError, "table_changes needs the argument end_snapshot"),
    "FROM lake.list_files('t', snapshot_version => 2, snapshot_time => now())": (UsageError, "snapshot_version or snapshot_time, not both"),
    "CALL lake.cleanup_old_files(dry_run => NULL)": (UsageError, "cleanup_old_files does not take NULL for dry_run"),
    "FROM lake.snapshots(1)": (UsageError, "snapshots does not take 1 arguments"),
    "CALL ducklake_set_option('lake', 'target_file_size', '1', nope => 1)": (UsageError, "does not take nope"),
    "FROM ducklake_list_files('lake', 'nope')": (NotFoundError, "nope"),
    "CALL nope()": (UnsupportedFeatureError, "CALL nope is not supported"),
    "CREATE VIEW w AS FROM lake.snapshots()": (UnsupportedFeatureError, "a view or macro cannot call snapshots"),
    "CREATE VIEW w AS SELECT nope FROM t": (NotFoundError, "nope"),
    "CREATE VIEW w AS SELECT a FROM nope": (NotFoundError, "nope"),
    "SELECT nope FROM t": (NotFoundError, "nope"),
    "SELECT snapshot_id FROM lake.current_snapshot()": (NotFoundError, "snapshot_id"),
    "COPY t FROM '/tmp/rows.csv'": (UnsupportedFeatureError, "files=True"),
    "COPY t FROM rows": (UsageError, "COPY table FROM 'file'"),
    "SELECT sum(": (UsageError, "syntax error at end of input"),
    "EXPLAIN DELETE FROM t": (UnsupportedFeatureError, "query, without options"),
    "FROM __ducklake_metadata_lake.nope": (NotFoundError, "the catalog has no table nope"),
    "FROM __ducklake_metadata_lake.ducklake_inlined_data_99_1": (NotFoundError, "no table ducklake_inlined_data_99_1"),
    "FROM __ducklake_metadata_lake.sqlite_master": (NotFoundError, "no table sqlite_master"),
    "SELECT * FROM read_csv('/etc/hosts')": (UsageError, "disabled"),
    "COPY t TO '/tmp/rows.csv'": (UnsupportedFeatureError, "files=True"),
    "CALL ducklake_add_data_files('lake', 't', 'x.parquet')": (UnsupportedFeatureError, "files=True"),
    "CREATE TABLE e (m ENUM ('a', 'b'))": (UnsupportedFeatureError, "enum"),
    "DROP TABLE IF EXISTS v": (UsageError, "is a view"),
    "COMMENT ON VIEW t IS 'x'": (UsageError, "is a table"),
}


@pytest.mark.parametrize("statement", REJECTED)
def test_errors_appear_when_the_statement_is_created(lake_and_duckdb: tuple[DuckLake, Oracle], statement: str) -> None:
    kind, message = REJECTED[statement]
    lake, _ = lake_and_duckdb
    newest = lake.snapshot().id
    with pytest.raises(kind, match=message):
        lake.sql(statement)
    assert lake.snapshot().id == newest


def test_variables_are_constants_of_later_statements(lake_and_duckdb: tuple[DuckLake, Oracle]) -> None:
    lake, _ = lake_and_duckdb
    lake.sql("SET VARIABLE first = (SELECT min(snapshot_id) + 1 FROM lake.snapshots())")
    lake.sql("SET VARIABLE names = ['it''s', NULL]")
    assert rows(lake, "SELECT count(*) FROM t AT (VERSION => getvariable('first'))") == [(50,)]
    assert rows(lake, "SELECT getvariable('NAMES')[1], getvariable('none') IS NULL") == [("it's", True)]
    lake.sql("RESET VARIABLE first")
    assert rows(lake, "SELECT getvariable('first')") == [(None,)]
    with pytest.raises(UsageError, match="Write SET VARIABLE name = value"):
        lake.sql("SET VARIABLE first")


def test_explain_shows_which_files_are_skipped(lake_and_duckdb: tuple[DuckLake, Oracle]) -> None:
    lake, _ = lake_and_duckdb
    plan = str(
        lake.sql(
            "EXPLAIN SELECT b, count(*) FROM t JOIN range(9) AS r(k) ON t.a = r.k WHERE a BETWEEN 20 AND 30 AND b = 'x' GROUP BY b", at=2
        )
    )
    assert 'SCAN main.t (Projections: "a", "b"' in plan
    assert "read:     1 of 2 files" in plan
    assert "statistics: a is 100 to 149" in plan
    ((key, plan),) = rows(lake, "EXPLAIN ANALYZE SELECT a FROM t WHERE a < 3 AND upper(b) = 'X'", at=2)
    assert key == "analyzed_plan"
    assert plan.startswith("2 rows in ")
    assert "Total Files Read: 1" in plan


def test_the_last_committed_snapshot_is_that_of_this_lake_object(tmp_path: Path) -> None:
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    query = "FROM lake.last_committed_snapshot()"
    with attached(address) as duck:
        assert rows(lake, query) == duck.rows(query) == [(None,)]
        lake.sql("CREATE TABLE t (a INTEGER)")
        duck.run("INSERT INTO t VALUES (1)")
        assert (rows(lake, query), duck.rows(query)) == ([(1,)], [(2,)])
        lake.flush_inlined_data()
        assert (rows(lake, query), duck.rows(query)) == ([(3,)], [(2,)])
    lake.close()


def test_schemas_and_columns_with_a_name_of_the_lake(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql("CREATE TABLE t (a INTEGER, my_ducklake STRUCT(t INTEGER, main INTEGER))")
    lake.sql("INSERT INTO t VALUES (1, {'t': 5, 'main': 6})")
    assert rows(lake, "SELECT my_ducklake.t, my_ducklake.main FROM t") == [(5, 6)]
    lake.sql("UPDATE t SET a = my_ducklake.t")
    assert rows(lake, "SELECT a FROM my_ducklake.t") == [(5,)]
    lake.sql("CREATE SCHEMA my_ducklake")
    lake.sql("DROP TABLE IF EXISTS my_ducklake.t; CREATE TABLE my_ducklake.u (a INTEGER)")
    assert list(lake) == ["main.t", "my_ducklake.u"]
    with pytest.raises(UnsupportedFeatureError, match="USE is not supported"):
        lake.sql("USE my_ducklake")
    lake.sql("DROP SCHEMA my_ducklake CASCADE")
    with lake.transaction() as tx:
        tx.sql("CREATE SCHEMA my_ducklake")
        tx.sql("CREATE TABLE my_ducklake.u AS SELECT 1 AS a")
    assert list(lake) == ["main.t", "my_ducklake.u"]
    lake.close()


PIVOTS = {
    "SELECT x, y FROM (PIVOT p ON k USING sum(v))": (1, 2),
    "PIVOT (SELECT k FROM p) ON k USING count(*)": (1, 1),
    "WITH w AS (PIVOT p ON k USING sum(v)) SELECT y FROM w": (2,),
}


def test_pivots_whose_columns_depend_on_the_rows(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql("CREATE TABLE p AS SELECT * FROM (VALUES ('x', 1), ('y', 2)) AS t (k, v)")
    with lake.transaction() as tx:
        for query, expected in PIVOTS.items():
            for run in (lake.sql, tx.sql):
                found = run(query)
                assert isinstance(found, Readable)
                assert [tuple(row.values()) for row in found.to_arrow().to_pylist()] == [expected]
    with pytest.raises(UnsupportedFeatureError, match="EXPLAIN of PIVOT is not supported"):
        lake.sql("EXPLAIN PIVOT p ON k USING sum(v)")
    lake.close()


def test_a_repeated_transaction_may_name_what_it_has_renamed(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql("CREATE TABLE old (a INTEGER)")
    for _ in range(2):
        with lake.transaction(commit_id="once") as tx:
            tx.sql("SELECT count(*) FROM old")
            tx.sql("ALTER TABLE old RENAME TO new")
    assert tx.result.repeated
    lake.close()


def test_statements_set_options_of_tables(tmp_path: Path) -> None:
    """The syntax is that of later versions of DuckDB."""
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)

    def options(name: str) -> dict[str, str]:
        return {one.name: one.value for one in lake.scoped_options() if one.entry == f"main.{name}"}

    lake.sql("CREATE TABLE t (a INTEGER) PARTITIONED BY (a) SORTED BY (a) WITH (parquet_compression = 'zstd', PARQUET_VERSION = 2)")
    lake.sql("CREATE TABLE IF NOT EXISTS t (a INTEGER) WITH (parquet_compression = 'gzip')")
    assert options("t") == {"parquet_compression": "zstd", "parquet_version": "V2"}
    lake.sql("CREATE TABLE u WITH (parquet_compression = 'gzip', data_inlining_row_limit = 0) AS SELECT 1 AS a")
    lake.sql("ALTER TABLE t SET (auto_compact = false, parquet_compression = 'snappy')")
    lake.sql("ALTER TABLE t RESET ('parquet_version', parquet_compression)")
    assert options("t") == {"auto_compact": "false"}
    with attached(address) as duck:
        assert duck.rows("SELECT option_name, value FROM lake.options() WHERE scope_entry = 'main.t'") == [("auto_compact", "false")]
        assert duck.value(f"SELECT DISTINCT compression FROM parquet_metadata('{address.data_path}main/u/*.parquet')") == "GZIP"
    for statement, message in {
        "CREATE TABLE v (a INTEGER) WITH (none = 1)": "unknown option 'none'",
        "ALTER TABLE t SET (auto_compact)": "the value auto_compact of an option",
        "ALTER TABLE t SET (auto_compact = upper('x'))": "write a string, a number, true or false",
        "ALTER TABLE t RESET ()": "no option is in the brackets",
    }.items():
        with pytest.raises(DuckLakeError, match=re.escape(message)):
            lake.sql(statement)
    assert "v" not in lake
    lake.close()


def test_the_lake_has_the_name_of_duckdbs_documentation(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql(
        "USE my_ducklake; CREATE SCHEMA my_ducklake.s; CREATE TABLE my_ducklake.s.t (a INTEGER); INSERT INTO my_ducklake.s.t VALUES (1)"
    )
    assert rows(lake, "SELECT t.a, u.a AS b FROM my_ducklake.s.t AS t, lake.s.t AS u") == [(1, 1)]
    for query in ("my_ducklake.current_snapshot()", "ducklake_current_snapshot('my_ducklake')"):
        assert rows(lake, f"SELECT id FROM {query}") == [(3,)]
    assert rows(lake, "SELECT count(*) FROM __ducklake_metadata_my_ducklake.ducklake_snapshot") == [(4,)]
    with pytest.raises(NotFoundError, match=r"no schema other at this snapshot.*the lake is called lake"):
        lake.sql("FROM other.s.t")
    with lake.transaction() as tx:
        assert tx.sql("USE lake.main") is None
        with pytest.raises(UnsupportedFeatureError, match="USE is not supported"):
            tx.sql("USE s")
    lake.close()


def test_queries_in_a_transaction_are_explained_and_checked(tmp_path: Path) -> None:
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    with lake.transaction() as transaction:
        transaction.sql("CREATE TABLE t AS SELECT 1 AS a")
        explained = transaction.sql("EXPLAIN ANALYZE SELECT a FROM t WHERE a = 1")
        assert explained is not None
        ((key, plan),) = [tuple(row.values()) for row in explained.to_arrow().to_pylist()]
        assert (key, plan.split(" in ")[0]) == ("analyzed_plan", "1 row")
        with pytest.raises(NotFoundError, match="nothing"):
            transaction.sql("SELECT nothing FROM t")


def test_results_show_their_first_rows(lake_and_duckdb: tuple[DuckLake, Oracle], capsys: pytest.CaptureFixture[str]) -> None:
    lake, _ = lake_and_duckdb
    query = lake.sql("SELECT a, upper(b) AS b FROM t WHERE a BETWEEN 3 AND 4 ORDER BY a")
    assert isinstance(query, Query)
    assert repr(query).splitlines() == ["     a  b", "BIGINT  VARCHAR", "------  -------", "     3  Y", "     4  X", "2 rows"]
    query.show()
    assert capsys.readouterr().out == repr(query) + "\n"
    assert "<th>b<br><small>VARCHAR</small></th>" in query._repr_html_()
    assert "<td>4</td><td>X</td>" in query._repr_html_()
    assert repr(lake.sql("FROM t")).endswith("first 20 rows")
    assert repr(lake.sql("SELECT MAP {'a': 1} AS m, 5::UHUGEINT AS h")).splitlines()[3].split() == ["[('a',", "1)]", "5"]
    assert repr(lake.sql("SELECT error('no') FROM t")).startswith("<Query at snapshot")
    with lake.transaction() as tx:
        staged = tx.sql("SELECT id FROM lake.current_snapshot()")
        assert staged is not None
        assert "<small>UBIGINT</small>" in staged._repr_html_()  # type: ignore[attr-defined]


def test_calls_maintain_the_lake(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    for key in range(3):
        lake.write("t", pa.table({"k": [key]}), inline=key == 0)
    assert rows(lake, "CALL ducklake_flush_inlined_data('lake', table_name => 't')") == [("main", "t", 1)]
    assert rows(lake, "CALL lake.merge_adjacent_files()") == [("main", "t", 3, 1)]
    lake.sql("DELETE FROM t WHERE k = 1")
    assert rows(lake, "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)") == [("main", "t", 1, 1)]
    expired = rows(lake, "SELECT snapshot_id FROM ducklake_expire_snapshots('lake', versions => [1, 2], min_age => '0 seconds')")
    assert expired == [(1,), (2,)]
    assert len(rows(lake, "CALL ducklake_cleanup_old_files('lake', cleanup_all => true, min_age => '0 seconds')")) > 0
    assert rows(lake, "CALL ducklake_delete_orphaned_files('lake', dry_run => true, older_than => now() - INTERVAL 2 HOUR)") == []
    assert rows(lake, "CHECKPOINT lake") == []
    with lake.transaction() as tx, pytest.raises(UnsupportedFeatureError, match="ducklake_expire_snapshots commits by itself"):
        tx.sql("CALL lake.expire_snapshots(versions => [3])")
    lake.close()


def test_tables_of_inlined_rows_and_deletes_are_those_of_duckdb(tmp_path: Path) -> None:
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.sql("CALL lake.set_option('data_inlining_row_limit', 4)")
    lake.sql("CREATE TABLE t (k INTEGER, s VARCHAR, b BLOB, d DATE)")
    lake.sql("INSERT INTO t VALUES (1, 'a', 'x', '2026-01-31'), (NULL, NULL, NULL, NULL)")
    lake.sql("DELETE FROM t WHERE k = 1")
    lake.sql("CREATE TABLE u AS SELECT range AS k FROM range(20)")
    lake.sql("DELETE FROM u WHERE k IN (3, 5)")
    queries = (
        "FROM __ducklake_metadata_lake.ducklake_inlined_data_1_1 ORDER BY row_id",
        "SELECT row_id, begin_snapshot FROM __ducklake_metadata_lake.main.ducklake_inlined_delete_2 ORDER BY 1",
        "SELECT column_type FROM (DESCRIBE __ducklake_metadata_lake.ducklake_inlined_delete_2)",
        "DESCRIBE __ducklake_metadata_lake.ducklake_inlined_delete_2",
    )
    with attached(address) as duckdb:
        for query in queries:
            assert rows(lake, query) == duckdb.rows(query), query
        flushed = duckdb.rows("BEGIN; CALL ducklake_flush_inlined_data('lake')")
        duckdb.run("ROLLBACK")
    # The counts include deleted rows, and tables with nothing but deletes of files have no row.
    assert flushed == [("main", "t", 2)] == rows(lake, "CALL ducklake_flush_inlined_data('lake')")
    assert rows(lake, "SELECT row_id FROM __ducklake_metadata_lake.ducklake_inlined_data_1_1") == []
    assert rows(lake, "SELECT column_type FROM (DESCRIBE __ducklake_metadata_lake.ducklake_inlined_data_1_1)")[0] == ("BIGINT",)
    lake.close()


def test_a_transaction_adds_files(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql("CREATE TABLE t (k INTEGER)")
    lake.sql(f"COPY (SELECT 1::INTEGER AS k) TO '{tmp_path}/one.parquet'", files=True)
    call = f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/one.parquet')"
    with pytest.raises(NotFoundError, match="no_such_table"), lake.transaction() as tx:  # noqa: PT012 - the block is what rolls back
        tx.sql(call, files=True)
        tx.sql("DELETE FROM no_such_table")
    with lake.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (2)")
        tx.sql(call, files=True)
        found = tx.sql("FROM t ORDER BY k")
        assert found is not None
        assert found.to_arrow().to_pylist() == [{"k": 1}, {"k": 2}]
        with pytest.raises(UnsupportedFeatureError, match="files=True"):
            tx.sql(call)
    assert (lake.snapshot().id, rows(lake, "FROM t ORDER BY k")) == (2, [(1,), (2,)])
    lake.close()


def test_a_transaction_has_variables_and_a_message(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    with lake.transaction() as tx:
        tx.sql("CREATE TABLE t AS SELECT 7 AS k")
        tx.sql("SET VARIABLE k = (SELECT max(k) FROM t)")
        tx.sql("INSERT INTO t VALUES (getvariable('k') + 1)")
        tx.sql("CALL lake.set_commit_message('me', 'two rows', extra_info => 'by hand')")
    assert rows(lake, "SELECT sum(k)::BIGINT FROM t") == [(15,)]
    found = rows(lake, "SELECT author, commit_message, commit_extra_info LIKE '%by hand%' FROM snapshots() WHERE snapshot_id = 1")
    assert found == [("me", "two rows", True)]
    with pytest.raises(UsageError, match="belongs into a transaction"):
        lake.sql("CALL lake.set_commit_message('me', 'no')")
    lake.close()


def test_frames_are_described_by_their_names(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql("CREATE TABLE t (k INTEGER)")
    frame = pa.table({"a": [1]})
    assert rows(lake, "DESCRIBE rows_", rows_=frame) == rows(lake, "DESCRIBE FROM rows_", rows_=frame)
    assert rows(lake, "DESCRIBE t")[0][0] == "k"
    lake.close()


def test_names_of_functions_are_free(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql("CREATE TABLE options (key VARCHAR, settings INTEGER)")
    lake.sql("INSERT INTO lake.options (key, settings) VALUES ('a', 1)")
    lake.sql("INSERT INTO options(settings) VALUES (2)")
    lake.sql("CREATE MACRO table_info() AS TABLE SELECT key, settings FROM options")
    assert rows(lake, "SELECT settings FROM table_info() ORDER BY 1") == [(1,), (2,)]
    assert rows(lake, "SELECT table_name FROM lake.table_info()") == [("options",)]
    lake.close()


def test_tables_are_created_with_a_sort_order(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql("CALL set_option('data_inlining_row_limit', 0)")
    lake.sql("CREATE TABLE t (a INTEGER, b VARCHAR) SORTED BY (a DESC) PARTITIONED BY (b)")
    lake.sql("INSERT INTO t VALUES (1, 'x'), (3, 'x'), (2, 'y')")
    assert rows(lake, "FROM t WHERE b = 'x'") == [(3, "x"), (1, "x")]
    lake.sql("CREATE OR REPLACE TABLE t SORTED BY (a, b) AS FROM t")
    assert rows(lake, "FROM t") == [(1, "x"), (2, "y"), (3, "x")]
    lake.sql("CREATE TABLE IF NOT EXISTS t (a INTEGER) SORTED BY (a DESC)")
    assert len(lake.table("t").sort_keys) == 2
    lake.close()


def test_files_are_read_and_written_on_request(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql("CREATE TABLE t (k INTEGER, s VARCHAR)")
    lake.sql("INSERT INTO lake.t VALUES (1, 'a'), (2, NULL)")
    lake.sql(f"COPY (SELECT s, k FROM t) TO '{tmp_path}/rows.csv' (HEADER, DELIMITER ';')", files=True)
    lake.sql(f"COPY lake.t TO '{tmp_path}/rows.parquet'", files=True)
    assert (tmp_path / "rows.csv").read_text() == "s;k\na;1\n;2\n"
    lake.sql(f"INSERT INTO t BY NAME SELECT * FROM read_csv('{tmp_path}/rows.csv')", files=True)
    with lake.transaction() as tx:
        tx.sql(f"INSERT INTO t FROM read_parquet('{tmp_path}/rows.parquet')", files=True)
    assert rows(lake, "SELECT k, count(*) FROM t GROUP BY k ORDER BY k") == [(1, 3), (2, 3)]
    lake.sql(f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/rows.parquet')", files=True)
    assert rows(lake, "SELECT count(*) FROM t") == [(8,)]
    with pytest.raises(UsageError, match="rows"):
        lake.sql(f"SELECT * FROM read_json('{tmp_path}/rows.json')", files=True)
    lake.close()


COPIED = {
    "t.parquet": ("t", ""),
    "t.csv": ("t", "(HEADER, DELIMITER '|')"),
    "numbers.csv": ("(SELECT k, s FROM t)", "(HEADER false, NULL 'NA')"),
    "t.json": ("(SELECT s, k, d FROM t)", ""),
}
COPIES = (
    "t FROM 't.parquet'",
    "lake.main.t FROM 't.parquet' (FORMAT 'parquet')",
    "t FROM 't.csv' (HEADER, DELIMITER '|')",
    "t FROM 't.csv' WITH (HEADER true, DELIM\t'|')",
    "t FROM 't.csv' (DELIMITER'|', HEADER)",
    "t (k, s) FROM 'numbers.csv' (FORMAT csv, NULL 'NA')",
    "t FROM 't.json'",
    "t (s, k) FROM 't.json'",
)


def test_copy_from_files_does_what_duckdb_does(tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    create = "CREATE TABLE t (k INTEGER, s VARCHAR, d DATE)"
    lake.sql(create)
    lake.sql("INSERT INTO t VALUES (1, 'a', '2026-01-31'), (2, NULL, NULL), (3, 'it''s', '2026-02-01')")
    for name, (what, options) in COPIED.items():
        lake.sql(f"COPY {what} TO '{tmp_path}/{name}' {options}", files=True)
    with lake.transaction() as tx:
        tx.sql(f"COPY t TO '{tmp_path}/again.parquet'", files=True)
        tx.sql("DELETE FROM t")
        tx.sql(f"COPY t FROM '{tmp_path}/again.parquet'", files=True)
    assert rows(lake, "SELECT count(*) FROM t") == [(3,)]
    with duckdb_alone.connect() as duckdb:
        duckdb.execute("ATTACH ':memory:' AS lake")
        duckdb.execute("USE lake")
        duckdb.execute(create)
        for copy in COPIES:
            lake.sql("DELETE FROM t")
            duckdb.execute("DELETE FROM t")
            statement = "COPY " + copy.replace("FROM '", f"FROM '{tmp_path}/")
            lake.sql(statement, files=True)
            duckdb.execute(statement)
            assert rows(lake, "FROM t ORDER BY ALL") == duckdb.execute("FROM t ORDER BY ALL").fetchall(), copy
    for wrong, message in (("'t.csv' (FORMAT xlsx)", "format XLSX"), ("'t.csv' HEADER", "in brackets"), ("'none.csv'", "none.csv")):
        with pytest.raises((UsageError, UnsupportedFeatureError), match=message):
            lake.sql(f"COPY t FROM {wrong}", files=True)
    lake.close()


def test_columns_of_the_same_name_get_numbers(tmp_path: Path) -> None:
    query = 'SELECT 1 AS a, 2 AS "A", 3 AS a_1, 4 AS b, 5 AS a'
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    lake.sql(f"CREATE TABLE t AS {query}")
    with duckdb_alone.connect() as duckdb:
        named = [name for name, *_ in duckdb.execute(f"CREATE TABLE t AS {query}; DESCRIBE t").fetchall()]
    assert list(lake.table("t").schema.names) == named
    assert rows(lake, "FROM t") == [(1, 2, 3, 4, 5)]
    lake.close()


def test_maintenance_returns_a_row_for_each_group(tmp_path: Path) -> None:
    found = []
    for by in ("duckdb", "library"):
        (tmp_path / by).mkdir()
        address = sqlite_lake(tmp_path / by)
        with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
            duck.run("CREATE TABLE t (p INTEGER, v INTEGER)", "ALTER TABLE t SET PARTITIONED BY (p)")
            duck.run(*["INSERT INTO t SELECT range % 2, range FROM range(100)"] * 2)
        lake = DuckLake.connect(address.url)
        call = "SELECT * FROM ducklake_merge_adjacent_files('lake', 't')"
        with attached(address) as duck:
            found.append(duck.rows(call) if by == "duckdb" else rows(lake, call))
        lake.close()
    assert found[0] == found[1] == [("main", "t", 2, 1)] * 2


def test_failed_maintenance_raises(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        for name in ("a", "b"):
            duck.run(f"CREATE TABLE {name} (s VARCHAR)", f"INSERT INTO {name} VALUES ('1'), ('x')")
        duck.run("ALTER TABLE a SET SORTED BY (s::INTEGER)")
    lake = DuckLake.connect(sqlite_address.url)
    with pytest.raises(DuckLakeError, match=r"flush_inlined_data failed for 1 step, and the others are done\. main\.a: .*ould not c"):
        lake.sql("CALL ducklake_flush_inlined_data('lake')")
    assert [lake.table(name).info().inlined_row_count for name in ("a", "b")] == [2, 0]
    lake.close()
