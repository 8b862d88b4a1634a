"""Compaction and the order of rows: merges keep the sort order of a table, and files are clustered by several columns on request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.engines.arrow import sorting
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance import merge
from ducklake_core.storage.spill import SpillLimits
from tests.behaviour.maintenance.lakes import FILES_ONLY, change_feeds, files_on_disk, readings
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import slow

SCATTERED = "SELECT (range * 7919) % 1000 AS a, CASE WHEN range % 9 > 0 THEN (range * 104729) % 1000 END AS b, 'n' || range AS s"


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows fit into memory, so that they are sorted on the local disk."""
    monkeypatch.setattr(sorting, "SORTED_ROWS", SpillLimits(memory_bytes=4_000, block_bytes=500))


def write_sorted(address: LakeAddress, options: str) -> None:
    with attached(address, f"{FILES_ONLY}{options}") as duck:
        duck.run(
            "CREATE TABLE t (k INTEGER, f DOUBLE, s VARCHAR, p INTEGER)",
            "INSERT INTO t SELECT 50 - range, NULL, 'unsorted', range % 2 FROM range(50)",
            "ALTER TABLE t SET SORTED BY (f DESC NULLS FIRST, k)",
            *(
                "INSERT INTO t SELECT (range * 7) % 60, CASE range % 5 WHEN 0 THEN NULL WHEN 1 THEN 'nan'::DOUBLE ELSE range % 11 END, "
                f"'n' || range, range % 2 FROM range({n}, {n + 80})"
                for n in (0, 40, 500)
            ),
            "UPDATE t SET s = 'u' WHERE k = 7 AND s = 'unsorted'",
            "INSERT INTO t SELECT range, range / 3, 'x', 0 FROM range(30)",
            "INSERT INTO t SELECT range, range / 4, 'y', 1 FROM range(30)",
        )


def strings(read: dict[Any, list[Any]], keys: Any) -> dict[Any, list[str]]:
    """Rows as strings, as NaN is not equal to itself."""
    return {key: list(map(str, read[key])) for key in keys}


@pytest.mark.parametrize("options", ["", slow(", ENCRYPTED")])
def test_a_merge_keeps_the_sort_order(sqlite_address: LakeAddress, options: str, small_runs: None) -> None:
    write_sorted(sqlite_address, options)
    before, reported = readings(sqlite_address), change_feeds(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    done = lake.merge_adjacent_files("t")
    assert (done.failures, done.files_created) == ((), 1)
    # The file that the update took a row of is merged, too.
    assert done.files_merged == 7
    after = readings(sqlite_address)
    assert strings(after, before) == strings(before, before)
    assert change_feeds(sqlite_address) == reported
    assert lake.check(level="rows").findings == ()
    lake.close()
    with attached(sqlite_address) as duck:
        in_file = duck.rows("SELECT f, k FROM t WHERE s <> 'unsorted' ORDER BY file_row_number")
        assert list(map(str, in_file)) == list(
            map(str, duck.rows("SELECT f, k FROM t WHERE s <> 'unsorted' ORDER BY f DESC NULLS FIRST, k"))
        )
        assert len(in_file) == 301


ORDER = ("lower(s) DESC NULLS FIRST", "remainder(k)", "k DESC")
BY_DUCKDB = "lower(s) DESC NULLS FIRST, k % 10, k DESC"
ROWS = "SELECT range AS k, CASE WHEN range % 7 > 0 THEN chr(65 + (range % 5 + range % 2 * 32)::INT) END AS s"


def sorted_by_expressions(address: LakeAddress) -> DuckLake:
    """Files of a former column name, of the present one, with a column more, and with deleted rows, and inlined rows."""
    with attached(address, FILES_ONLY) as duck:
        duck.run("CREATE MACRO remainder(x) AS x % 10", "CREATE TABLE t (k BIGINT, letter VARCHAR)")
        duck.run(*(f"INSERT INTO t {ROWS} FROM range({n}, {n + 20})" for n in (0, 20)))
        duck.run("ALTER TABLE t RENAME letter TO s", f"ALTER TABLE t SET SORTED BY ({', '.join(ORDER)})")
        duck.run(*(f"INSERT INTO t {ROWS} FROM range({n}, {n + 20})" for n in (100, 120)))
        duck.run("DELETE FROM t WHERE k IN (3, 104, 107)", "CALL lake.set_option('data_inlining_row_limit', 30)")
        duck.run(f"INSERT INTO t {ROWS} FROM range(200, 215)", f"INSERT INTO t {ROWS} FROM range(300, 315)")
    return DuckLake.connect(address.url)


def assert_sorted(address: LakeAddress, by: str = BY_DUCKDB) -> int:
    """Check that each file has its rows in the order of DuckDB's ORDER BY; return the number of files."""
    with attached(address) as duck:
        files = [str(row[0]) for row in duck.rows("SELECT data_file FROM ducklake_list_files('lake', 't')")]
        for file in files:
            rows = f"(SELECT k, s, filename, file_row_number AS n FROM t WHERE filename = '{file}')"
            assert duck.rows(f"SELECT k FROM {rows} ORDER BY n") == duck.rows(f"SELECT k FROM {rows} ORDER BY {by}")
    return len(files)


def flushed_merged_and_rewritten(lake: DuckLake, **settings: Any) -> None:
    assert lake.flush_inlined_data(**settings).failures == ()
    merged = lake.merge_adjacent_files("t", **settings)
    assert (merged.failures, merged.files_created, [table.left for table in merged.tables]) == ((), 2, [()])
    assert lake.rewrite_data_files("t", delete_threshold=0.01, **settings).failures == ()


def test_maintenance_follows_expressions(sqlite_address: LakeAddress, small_runs: None) -> None:
    lake = sorted_by_expressions(sqlite_address)
    before, reported = readings(sqlite_address), change_feeds(sqlite_address)
    flushed_merged_and_rewritten(lake)
    after = readings(sqlite_address)
    assert {key: sorted(map(str, after[key])) for key in before} == {key: sorted(map(str, before[key])) for key in before}
    assert change_feeds(sqlite_address) == reported
    assert lake.check(level="rows").findings == ()
    lake.close()
    assert assert_sorted(sqlite_address) <= 2


def test_duckdb_merges_in_the_same_order(tmp_path: Path) -> None:
    merged = []
    for by in ("duckdb", "library"):
        (tmp_path / by).mkdir()
        address = sqlite_lake(tmp_path / by)
        with attached(address, FILES_ONLY) as duck:
            duck.run("CREATE TABLE t (k BIGINT, s VARCHAR)", *(f"INSERT INTO t {ROWS} FROM range({n}, {n + 20})" for n in (0, 20)))
            duck.run("CREATE MACRO remainder(x) AS x % 10", f"ALTER TABLE t SET SORTED BY ({', '.join(ORDER)})")
            if by == "duckdb":
                duck.run("CALL ducklake_merge_adjacent_files('lake')")
        if by == "library":
            assert DuckLake.connect(address.url).merge_adjacent_files("t").files_created == 1
        with attached(address) as duck:
            merged.append(duck.rows("SELECT file_row_number, k, s FROM t ORDER BY 1"))
    assert merged[0] == merged[1]


def test_an_expression_of_a_column_that_files_lack(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (k INTEGER)", *(f"INSERT INTO t VALUES ({n + 5}), ({n})" for n in (1, 2)))
        duck.run("ALTER TABLE t ADD COLUMN s INTEGER DEFAULT 3")
        duck.run("ALTER TABLE t SET SORTED BY (abs(s), k % 5, k + s)")
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.merge_adjacent_files("t").files_created == 1
    lake.close()
    assert assert_sorted(sqlite_address, "k % 5, n") == 1


def test_an_expression_of_a_promoted_column(sqlite_address: LakeAddress) -> None:
    """The key exceeds the former type. DuckDB 1.5 fails with an internal error."""
    with attached(sqlite_address) as duck:
        for name in ("t", "inlined"):
            duck.run(f"CREATE TABLE {name} (k INTEGER)", "CALL lake.set_option('data_inlining_row_limit', 0, table_name => 't')")
            duck.run(f"INSERT INTO {name} VALUES (1500000000), (10)", f"INSERT INTO {name} VALUES (20)")
            duck.run(f"ALTER TABLE {name} ALTER k TYPE BIGINT", f"ALTER TABLE {name} SET SORTED BY (k * 2)")
    lake = DuckLake.connect(sqlite_address.url)
    assert lake.merge_adjacent_files("t").files_created == lake.flush_inlined_data("inlined").tables[0].files_created == 1
    lake.close()
    with attached(sqlite_address) as duck:
        for name in ("t", "inlined"):
            assert duck.rows(f"SELECT k FROM {name} ORDER BY file_row_number") == [(10,), (20,), (1500000000,)]


@pytest.mark.usefixtures("without_duckdb")
def test_expressions_without_duckdb(sqlite_address: LakeAddress) -> None:
    lake = sorted_by_expressions(sqlite_address)
    (table,) = lake.merge_adjacent_files("t").tables
    reason = "this process cannot sort by its key lower(s); install the package duckdb, or pass cluster_by"
    assert (table.files_merged, table.skipped) == (0, reason)
    assert lake.rewrite_data_files("t", delete_threshold=0.01).failures == lake.flush_inlined_data().failures == ()
    assert lake.merge_adjacent_files("t", cluster_by=["k"]).files_merged > 0
    assert lake.check(level="rows").findings == ()
    lake.close()


def test_an_executor_without_duckdb(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = sorted_by_expressions(sqlite_address)
    before = readings(sqlite_address)
    plan = merge.plan_table

    def planned(*arguments: Any) -> Any:
        found = plan(*arguments)
        monkeypatch.setitem(sys.modules, "duckdb", None)
        return found

    monkeypatch.setattr(merge, "plan_table", planned)
    (table,) = lake.merge_adjacent_files("t").tables
    monkeypatch.undo()
    assert table.files_merged == 0
    assert "which needs the package duckdb, on Spark on its executors; install it, or change" in table.failures[0]
    lake.close()
    assert readings(sqlite_address) == before


def test_a_key_that_arrow_cannot_sort(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (k INTEGER)", "ALTER TABLE t SET SORTED BY (k, [k])", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"
        )
    lake = DuckLake.connect(sqlite_address.url)
    (table,) = lake.merge_adjacent_files("t").tables
    assert table.skipped == "this process cannot sort by its key main.list_value(k); merge with DuckDB, or pass cluster_by"
    lake.close()


def test_a_key_without_a_value_fails_the_flush(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (s VARCHAR)", "INSERT INTO t VALUES ('1'), ('x')", "ALTER TABLE t SET SORTED BY (s::INTEGER)")
    lake = DuckLake.connect(sqlite_address.url)
    (failure,) = lake.flush_inlined_data("t").failures
    assert "which DuckDB cannot evaluate (column 's': Could not" in failure
    assert "change the table's sort order" in failure
    lake.table("t").set_sorted_by(["s"])
    assert lake.flush_inlined_data("t").failures == ()
    lake.close()


def scattered(address: LakeAddress, *, options: str = "", files: int = 16) -> DuckLake:
    """Files that each hold all values of two columns."""
    with attached(address, f"{FILES_ONLY}{options}") as duck:
        duck.run(
            "CREATE TABLE t (a BIGINT, b BIGINT, s VARCHAR)",
            *(f"INSERT INTO t {SCATTERED} FROM range({n * 400}, {n * 400 + 400})" for n in range(files)),
            "DELETE FROM t WHERE a = 3",
            "UPDATE t SET s = 'u' WHERE a = 500",
        )
    lake = DuckLake.connect(address.url)
    lake.set_option("target_file_size", 9_000, table="t")
    return lake


def files_touched(address: LakeAddress, condition: str) -> int:
    with attached(address) as duck:
        names = {row[0] for row in duck.rows("SELECT data_file FROM ducklake_list_files('lake', 't')")}
        touched = duck.rows(f"SELECT DISTINCT filename FROM t WHERE {condition}")
    assert names
    return len(touched)


@pytest.mark.parametrize("options", ["", slow(", ENCRYPTED")])
def test_clustering_by_two_columns(sqlite_address: LakeAddress, options: str, small_runs: None) -> None:
    lake = scattered(sqlite_address, options=options)
    before, reported, newest = readings(sqlite_address), change_feeds(sqlite_address), lake.snapshot().id
    touched = [files_touched(sqlite_address, f"{column} BETWEEN 100 AND 150") for column in ("a", "b")]
    plan = lake.rewrite_data_files("t", cluster_by=["a", "b"], dry_run=True)
    (planned,) = plan.tables[0].groups
    assert planned.gain is not None
    assert (planned.gain.columns, planned.gain.files) == (("a", "b"), planned.files)
    assert planned.gain.touched > 15
    assert planned.gain.touched_after < 6
    assert "reads" in plan.steps[0].reason
    (done,) = lake.rewrite_data_files("t", cluster_by=["a", "b"]).tables
    (group,) = done.groups
    assert group.gain is not None
    assert group.gain.files_after == done.files_created > 5
    assert group.gain.touched_after < 8
    after = readings(sqlite_address)
    assert {key: after[key] for key in before} == before
    assert after[lake.snapshot().id, '"main"."t"'] == before[newest, '"main"."t"']
    assert change_feeds(sqlite_address) == reported
    assert lake.check(level="rows").findings == ()
    now = [files_touched(sqlite_address, f"{column} BETWEEN 100 AND 150") for column in ("a", "b")]
    assert all(few * 2 <= many for few, many in zip(now, touched, strict=True)), (now, touched)
    # A later run leaves it alone, whatever its own statistics are.
    (again,) = lake.rewrite_data_files("t", cluster_by=["a", "b"], dry_run=True).tables
    assert (again.groups, again.left) == ((), (("already clustered", done.files_created),))
    lake.close()


def test_clustering_by_one_column_is_a_sort(sqlite_address: LakeAddress) -> None:
    lake = scattered(sqlite_address)
    (done,) = lake.rewrite_data_files("t", cluster_by="a").tables
    (group,) = done.groups
    assert group.gain is not None
    assert (group.gain.touched_after, done.failure) == (1.0, None)
    lake.close()


def test_an_interrupted_clustering_is_carried_on(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were clustered and committed are not clustered again."""
    from ducklake_core.maintenance import rewrite

    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    for start in range(8):
        rows = pa.table({"p": [n % 2 for n in range(600)], "a": [(n * 7919 + start) % 997 for n in range(600)]})
        lake.write("t", rows, partition_by=["p"], inline=False)
    lake.set_option("target_file_size", 3_000, table="t")
    real, calls = rewrite.rewrite_files, []

    def interrupted(task: Any, **how: Any) -> Any:
        calls.append(task)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(task, **how)

    monkeypatch.setattr(rewrite, "rewrite_files", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lake.rewrite_data_files("t", cluster_by=["a"], partial_progress=True)
    monkeypatch.undo()
    on_disk = files_on_disk(sqlite_address)
    (plan,) = lake.rewrite_data_files("t", cluster_by=["a"], dry_run=True).tables
    assert len(plan.groups) == 1
    (done,) = lake.rewrite_data_files("t", cluster_by=["a"]).tables
    assert len(done.groups) == 1
    assert len(files_on_disk(sqlite_address) - on_disk) == done.files_created
    assert lake.rewrite_data_files("t", cluster_by=["a"], dry_run=True).files_rewritten == 0
    lake.close()


def test_unsupported_clusterings_raise(small: DuckLake) -> None:
    rows = {"a": [1], "l": [[1]], "d": pa.array([b"x"], pa.binary())}
    small.write("t", pa.table({**rows, **{f"c{n}": [n] for n in range(8)}}), inline=False)
    small.create_table("h", {"h": "hugeint", "u": "uhugeint"})
    for column in ("h", "u"):
        with pytest.raises(UnsupportedFeatureError, match=rf"Column '{column}' .* cannot be used in cluster_by"):
            small.rewrite_data_files("h", cluster_by=[column])
    with pytest.raises(UsageError, match="table"):
        small.rewrite_data_files(cluster_by=["a"])
    with pytest.raises(UsageError, match="twice"):
        small.rewrite_data_files("t", cluster_by=["a", "A"])
    with pytest.raises(UsageError, match="at most 8"):
        small.rewrite_data_files("t", cluster_by=["a", *(f"c{n}" for n in range(8))])
    with pytest.raises(NotFoundError, match="nothing"):
        small.rewrite_data_files("t", cluster_by=["nothing"])
    with pytest.raises(UnsupportedFeatureError, match=r"Column 'l' .* cannot be used in cluster_by"):
        small.rewrite_data_files("t", cluster_by=["l"])


def test_the_local_disk_is_freed_and_named_when_it_is_full(
    sqlite_address: LakeAddress, small_runs: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_sorted(sqlite_address, "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    on_disk = files_on_disk(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    (failure,) = lake.merge_adjacent_files("t").failures
    assert "TMPDIR" in failure
    assert files_on_disk(sqlite_address) == on_disk
    lake.close()


def test_a_column_of_few_values(sqlite_address: LakeAddress) -> None:
    """Files have ranges as narrow as possible, and are not rewritten by every run."""
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE t (flag BOOLEAN, name VARCHAR, x DOUBLE)",
            *(
                f"INSERT INTO t SELECT range % 2 = 0, 'name ' || (range * 7919) % 500, "
                f"CASE WHEN range % 3 = 0 THEN 'nan'::DOUBLE ELSE range / 7 END FROM range({n * 50}, {n * 50 + 600})"
                for n in range(8)
            ),
        )
    before = readings(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    lake.set_option("target_file_size", 6_000, table="t")
    (done,) = lake.rewrite_data_files("t", cluster_by=["flag", "name", "x"]).tables
    assert done.failure is None
    assert done.files_created > 3
    after = readings(sqlite_address)
    assert strings(after, before) == strings(before, before)
    assert files_touched(sqlite_address, "flag AND name < 'name 2'") < done.files_created
    assert lake.rewrite_data_files("t", cluster_by=["flag", "name", "x"]).files_rewritten == 0
    lake.close()


@pytest.mark.parametrize("columns", [["a"], ["a", "b"]])
def test_files_without_a_live_row_are_clustered_into_none(small: DuckLake, columns: list[str]) -> None:
    """Deletes that DuckDB keeps in the catalog may hide all rows of a file that is still there."""
    rows = pa.table({"a": list(range(20)), "b": list(range(20))})
    for _ in range(4):
        small.write("t", rows, mode="append", inline=False)
    before = small.snapshot().id
    small.table("t").delete("a = 0")
    table = small.table("t").state
    with small.database.write() as connection:
        deletes = small.database.tables.inlined_delete(table.id)
        files = connection.execute(deletes.select()).all()
        hidden = [{"file_id": row.file_id, "row_id": n, "begin_snapshot": row.begin_snapshot} for row in files for n in range(1, 20)]
        connection.execute(deletes.insert(), hidden)
    (done,) = small.rewrite_data_files("t", cluster_by=columns).tables
    assert (done.failure, done.files_rewritten, done.files_created) == (None, 4, 0)
    assert small.table("t").scan().to_arrow().num_rows == 0
    assert small.table("t", at=before).scan().to_arrow().num_rows == 80


def test_a_merge_clusters_within_its_file(sqlite_address: LakeAddress, small_runs: None) -> None:
    with attached(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INTEGER, b INTEGER, s VARCHAR)", *[f"INSERT INTO t {SCATTERED} FROM range(5000)"] * 4)
        duck.run("ALTER TABLE t RENAME COLUMN a TO c", "CALL lake.set_option('parquet_row_group_size', '2048')")
    before, reported = readings(sqlite_address), change_feeds(sqlite_address)
    lake = DuckLake.connect(sqlite_address.url)
    for wrong, error in (({"cluster_by": ["c"]}, UsageError), ({"table": "t", "cluster_by": ["nope"]}, NotFoundError)):
        with pytest.raises(error):
            lake.merge_adjacent_files(**wrong, dry_run=True)
    (plan,) = lake.merge_adjacent_files("t", cluster_by=["c", "b"], dry_run=True).tables
    assert plan.groups[0].endswith("; a range of c or b reads 4.0 of 4 files, and 3.2 of 10 row groups after clustering")
    done = lake.merge_adjacent_files("t", cluster_by=["c", "b"])
    assert (done.failures, done.files_created) == ((), 1)
    assert done.tables[0].groups == plan.groups
    (file,) = lake.table("t").list_files()
    footer = pq.read_metadata(file.path)
    spans = [group.column(place).statistics for group in map(footer.row_group, range(footer.num_row_groups)) for place in (0, 1)]
    assert sum(span.max - span.min for span in spans) / len(spans) < 600
    assert lake.check(level="rows").findings == ()
    lake.close()
    assert readings(sqlite_address) | before == readings(sqlite_address)
    assert change_feeds(sqlite_address) == reported
