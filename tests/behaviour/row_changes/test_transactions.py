"""Several changes of one table in one transaction: what DuckDB writes for the same BEGIN ... COMMIT, and what is read in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError, DuckLakeError, NotFoundError, UsageError
from ducklake_core.transaction import Transaction
from tests.behaviour.row_changes.conftest import Twins
from tests.support.oracle import LakeAddress, attached, file_lake
from tests.support.parameters import slow, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Step = tuple[Callable[[Transaction], Any], str]

# Intended differences from DuckDB: the order of ids, and values that are never read.
FILES = ("data_file", "delete_file", "file_column_stats", "file_partition_value", "files_scheduled_for_deletion")
APART = {
    **dict.fromkeys(FILES, ("data_file_id", "delete_file_id")),
    "snapshot_changes": ("changes_made",),
    # DuckDB's bounds include rows that were deleted in the same transaction.
    "table_column_stats": ("min_value", "max_value", "contains_null"),
}


def rows(*keys: int, value: str = "x") -> pa.Table:
    return pa.table({"a": pa.array(keys, pa.int32()), "g": pa.array([value] * len(keys), pa.string())})


def append(*keys: int, value: str = "x") -> Step:
    listed = ", ".join(f"({key}, '{value}')" for key in keys)
    return (lambda tx: tx.append("t", rows(*keys, value=value))), f"INSERT INTO t VALUES {listed}"


def delete(where: str) -> Step:
    return (lambda tx: tx.delete("t", where)), f"DELETE FROM t WHERE {where}"


def update(value: str, where: str) -> Step:
    return (lambda tx: tx.update("t", {"g": value}, where=where)), f"UPDATE t SET g = {value} WHERE {where}"


def merge(*keys: int) -> Step:
    def run(tx: Transaction) -> None:
        tx.merge("t", rows(*keys, value="m"), on=["a"]).when_matched_update().when_not_matched_insert().execute()

    listed = ", ".join(f"({key}, 'm')" for key in keys)
    matched = f"MERGE INTO t USING (VALUES {listed}) s(a, g) ON t.a = s.a WHEN MATCHED THEN UPDATE SET g = s.g"
    return run, f"{matched} WHEN NOT MATCHED THEN INSERT"


MANY = tuple(range(1000, 1030))
SEQUENCES: dict[str, tuple[Step, ...]] = {
    "deletes of committed rows": (delete("a < 3"), delete("a < 6"), delete("a BETWEEN 50 AND 75"), delete("a BETWEEN 70 AND 99")),
    "updates of updated rows": (update("'u'", "a < 4"), update("g || '2'", "a BETWEEN 2 AND 5"), delete("a = 3")),
    "many updates": (update("g || 'u'", "a < 50"), update("g || '2'", "a BETWEEN 30 AND 79"), delete("a BETWEEN 40 AND 60")),
    "rows that came and go": (append(*MANY), delete("a BETWEEN 1000 AND 1002"), delete("a < 2 OR a BETWEEN 1000 AND 1004")),
    "few rows that came and go": (append(1, 2000, 2001, 2002), delete("a = 2000 OR a = 1"), append(2003), update("'n'", "a = 2002")),
    "all that came": (append(*MANY), append(2000), delete("a >= 1000")),
    "rows of the catalog": (
        update("'u'", "a IN (1, 100)"),
        update("g || '2'", "a BETWEEN 99 AND 101"),
        delete("a = 100"),
        delete("a = 101 OR a = 1"),
    ),
    "a merge with what came": (append(2000, 2001), update("'u'", "a IN (1, 2)"), merge(2, 3, 2001, 2002)),
    "a delete before rows that match it": (delete("a < 20"), append(1, 2), append(*range(3, 18)), delete("a IN (1, 17)")),
}


@pytest.mark.parametrize("limit", [slow(0), 10])
@pytest.mark.parametrize("sequence", spread(SEQUENCES, 3))
def test_sequences_equal_those_of_duckdb(twins: Twins, sequence: str, limit: int) -> None:
    steps = SEQUENCES[sequence]
    twins.both(
        f"CALL lake.set_option('data_inlining_row_limit', {limit})",
        "CREATE TABLE t (a INTEGER, g VARCHAR)",
        "INSERT INTO t SELECT i, 'g' FROM range(100) r(i)",
        "INSERT INTO t VALUES (100, 'in'), (101, 'in'), (102, 'in')",
    )
    lake = twins.lake
    twins.by_duckdb.run("BEGIN")
    with lake.transaction() as tx:
        seen = tx.table("t")
        for own, by_duckdb in steps:
            own(tx)
            twins.by_duckdb.run(by_duckdb)
            expected = sorted(twins.by_duckdb.rows("SELECT a, g FROM t"))
            assert sorted((row["a"], row["g"]) for row in seen.to_arrow().to_pylist()) == expected
            assert seen.count() == len(expected)
            assert seen.scan(where="a BETWEEN 1 AND 2000 AND g <> 'g'").count() == sum(1 <= a <= 2000 and g != "g" for a, g in expected)
    twins.by_duckdb.run("COMMIT")
    if sequence == "all that came":
        # DuckDB makes an empty snapshot where rows for the catalog were among them.
        assert (tx.result.snapshot, lake.snapshot().id) == (None, 3)
        return
    new = [a for a, _ in expected if a >= 1000]
    if not new:
        twins.same("t")
    if sequence.startswith("deletes of"):
        twins.same_changes("t")
    # Rows that came in the transaction have row ids of their own; DuckDB writes one that is none into files.
    found = twins.own.rows("SELECT a, g FROM t")
    assert sorted(found) == expected == sorted((row["a"], row["g"]) for row in lake.table("t").scan().to_arrow().to_pylist())
    assert twins.own.value("SELECT count(DISTINCT rowid) FROM t") == len(expected) == lake.table_info("t").row_count
    assert twins.own.rows("SELECT rowid, a FROM t WHERE a < 100 AND rowid <> a ORDER BY a") == twins.by_duckdb.rows(
        "SELECT rowid, a FROM t WHERE a < 100 AND rowid <> a ORDER BY a"
    )
    if not sequence.startswith("a merge"):
        # DuckDB writes a file for each branch, and the rows that came in another.
        twins.same_catalog(apart_from=APART)
    assert not lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files
    twins.both("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.0)")
    assert sorted(twins.own.rows("SELECT a, g FROM t")) == expected


def test_a_table_that_the_transaction_makes(twins: Twins) -> None:
    lake = twins.lake
    twins.own.run("CALL lake.set_option('data_inlining_row_limit', 10)")
    with lake.transaction() as tx:
        with pytest.raises(NotFoundError):
            tx.table("t")
        tx.create_table("t", rows().schema)
        tx.add_column("t", "n", "int32", default=7)
        tx.rename_column("t", "g", "h")
        seen = tx.table("t")
        assert list(seen.schema.names) == ["a", "h", "n"]
        assert seen.count() == 0
        tx.append("t", pa.table({"a": pa.array(range(40), pa.int32()), "h": ["x"] * 40}))
        tx.append("t", pa.table({"a": pa.array([90, 91], pa.int32()), "h": ["few", None]}))
        tx.delete("t", "a BETWEEN 10 AND 19 OR a = 90")
        tx.update("t", {"n": "a"}, where="a IN (1, 91)")
        tx.overwrite("t", pa.table({"a": pa.array([5, 6], pa.int32()), "h": ["o", "o"]}), where="a BETWEEN 5 AND 8")
        tx.upsert("t", pa.table({"a": pa.array([5, 30, 200], pa.int32()), "h": ["U", "U", "U"]}), on=["a"])
        in_between = sorted(map(repr, seen.to_arrow().to_pylist()))
        assert seen.scan(columns=["h"], where="n = 91").to_arrow().to_pylist() == [{"h": None}]
    (written,) = tx.result.writes
    assert (written.rows_added, written.rows_deleted, written.rows_updated) == (40 - 10 + 1 - 4 + 2 + 1, 0, 0)
    names = ["a", "h", "n"]
    assert sorted(repr(dict(zip(names, row, strict=True))) for row in twins.own.rows("SELECT * FROM t")) == in_between
    assert sorted(map(repr, lake.table("t").scan().to_arrow().to_pylist())) == in_between
    assert written.rows_added == len(in_between)
    with pytest.raises(UsageError, match="not open"):
        seen.to_arrow()


def test_concurrent_changes(twins: Twins) -> None:
    """The whole sequence is carried out again on what they have left."""
    twins.both("CREATE TABLE t (a INTEGER, g VARCHAR)", "INSERT INTO t SELECT i, 'g' FROM range(50) r(i)")
    lake = twins.lake
    with lake.transaction() as tx:
        tx.delete("t", "a < 10")
        tx.append("t", rows(*range(100, 120)))
        tx.update("t", {"g": "g || '!'"}, where="a BETWEEN 5 AND 20 OR a BETWEEN 100 AND 104")
        tx.delete("t", "a IN (20, 101, 300)")
        twins.own.run("INSERT INTO t VALUES (7, 'new'), (15, 'new'), (300, 'new')", "DELETE FROM t WHERE a IN (16, 20)")
    expected = dict.fromkeys(range(21, 50), "g") | {a: "g!" for a in range(10, 20) if a != 16} | dict.fromkeys(range(105, 120), "x")
    expected |= dict.fromkeys((100, 102, 103, 104), "x!")
    found = sorted(twins.own.rows("SELECT a, g FROM t"))
    assert found == sorted([*expected.items(), (15, "new!")])
    assert sorted((row["a"], row["g"]) for row in lake.table("t").scan().to_arrow().to_pylist()) == found
    assert not lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files


def test_rows_that_were_read_are_not_planned_again(twins: Twins) -> None:
    """An unchanged table would have been read the same after the other commit."""
    twins.both("CREATE TABLE t (a INTEGER, g VARCHAR)", "INSERT INTO t SELECT i, 'g' FROM range(50) r(i)")
    for name in ("other", "third"):
        twins.both(f"CREATE TABLE {name} (a INTEGER)", f"INSERT INTO {name} VALUES (1)", f"INSERT INTO {name} VALUES (2)")
    lake, duck = twins.lake, twins.own
    before = set(lake.storage.list(duck.address.data_path))

    def updating(read: str, *meanwhile: str) -> None:
        """Read a table, then change ``t`` by its rows, while another client commits in between."""
        with lake.transaction() as tx:
            tx.create_table("own", rows().schema)
            tx.append("own", rows(1, 2))
            tx.update("t", {"g": f"'{tx.table(read).count()}'"}, where="a < 5")
            duck.run("INSERT INTO t VALUES (-1, 'new')", *meanwhile)
            tx.drop_table("own")

    # The conflict with the insert is planned again, and what it has added is changed as well.
    updating("other")
    assert duck.rows("SELECT g, count(*) FROM t GROUP BY g ORDER BY g") == [("2", 6), ("g", 45)]
    updating("own", "INSERT INTO third VALUES (3)", "ALTER TABLE third ADD COLUMN b INTEGER")
    updating("other", "CALL ducklake_merge_adjacent_files('lake', 'other')")
    assert duck.rows("SELECT g, count(*) FROM t GROUP BY g ORDER BY g") == [("2", 8), ("g", 45)]
    for read, changed in (
        ("t", ()),
        ("other", ("INSERT INTO other VALUES (3)",)),
        ("other", ("DELETE FROM other WHERE a = 3",)),
        ("other", ("ALTER TABLE other ADD COLUMN b INTEGER",)),
        ("other", ("ALTER TABLE other RENAME TO another",)),
        ("own", ("CREATE TABLE own (a INTEGER, g VARCHAR)",)),
        ("third", ("DROP TABLE third",)),
    ):
        with pytest.raises(CommitConflictError, match=rf"read rows of main\.{read}, which another writer has changed"):
            updating(read, *changed)
        assert duck.value("SELECT count(*) FROM t WHERE g = 'new'") == 1
        duck.run("DELETE FROM t WHERE g = 'new'", "DROP TABLE IF EXISTS own")
    # What is no conflict is none after reading either.
    with lake.transaction() as tx:
        tx.append("t", rows(tx.table("t").count()))
        duck.run("INSERT INTO t VALUES (8, 'new')")
    assert duck.value("SELECT count(*) FROM t") == 55
    assert not lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files
    assert before < set(lake.storage.list(duck.address.data_path))


def test_a_call_that_fails_leaves_the_earlier_ones(twins: Twins) -> None:
    twins.both("CREATE TABLE t (a INTEGER, g VARCHAR)", "INSERT INTO t SELECT i, 'g' FROM range(50) r(i)")
    lake = twins.lake
    with lake.transaction() as tx:
        tx.delete("t", "a < 10")
        tx.append("t", rows(100, 101))
        for bad in (
            lambda: tx.update("t", {"a": "a * 100000000"}),
            lambda: tx.overwrite("t", rows(1, 2), where="a = 1"),
            lambda: tx.upsert("t", rows(3, 3), on=["a"]),
            lambda: tx.append("t", pa.table({"zz": [1]})),
        ):
            with pytest.raises(DuckLakeError):
                bad()
        with pytest.raises(DuckLakeError):
            tx.drop_column("t", "n")
        assert tx.table("t").count() == 42
        tx.delete("t", "a = 100")
    assert twins.own.value("SELECT count(*) FROM t") == 41
    assert not lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files


def test_restoring_and_foreign_files(twins: Twins) -> None:
    twins.both("CREATE TABLE t (a INTEGER, g VARCHAR)", "INSERT INTO t SELECT i, 'g' FROM range(50) r(i)")
    twins.own.run("DELETE FROM t WHERE a < 5")
    lake = twins.lake
    foreign = f"{twins.own.address.data_path}foreign.parquet"
    twins.own.run(f"COPY (SELECT i::INTEGER AS a, 'f' AS g FROM range(500, 520) r(i)) TO '{foreign}'")
    with lake.transaction() as tx:
        tx.append("t", rows(100))
        tx.add_data_files("t", foreign)
        tx.delete("t", "a IN (100, 501)")
        tx.update("t", {"g": "'u'"}, where="a IN (10, 502)")
        assert tx.table("t").count() == 45 + 19
    assert twins.own.rows("SELECT count(*), count(*) FILTER (g = 'u'), count(DISTINCT rowid) FROM t") == [(64, 2, 64)]
    with lake.transaction() as tx:
        tx.append("t", rows(200))
        tx.restore("t", at=2)
        tx.delete("t", "a = 0")
        assert tx.table("t").count() == 49
    assert twins.own.rows("SELECT count(*), min(rowid), max(rowid), count(*) FILTER (g = 'g') FROM t") == [(49, 1, 49, 49)]


def test_on_a_duckdb_file(tmp_path: Path) -> None:
    """Updates, merges and restores too."""
    address = file_lake("duckdb", tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", rows(*range(60)))
    lake.table("t").update({"g": "concat(g, a)"}, where="a < 20")
    lake.table("t").append(rows(60, 61))
    with lake.transaction() as tx:
        tx.append("t", rows(*range(100, 130)))
        tx.append("t", rows(200, 201))
        tx.delete("t", "a IN (1, 30, 60, 101, 200)")
        tx.update("t", {"g": "'u'"}, where="a IN (2, 31, 61, 102, 201)")
        merge = tx.merge("t", rows(2, 32, 103, 300, value="m"), on="t.a = s.a").when_matched_update()
        merge.when_not_matched_insert().when_not_matched_by_source_delete(where="t.a BETWEEN 40 AND 45").execute()
        tx.delete("t", "g = 'u' AND a > 100")
        seen = sorted((row["a"], row["g"]) for row in tx.table("t").to_arrow().to_pylist())
    with attached(address) as duck:
        assert sorted(duck.rows("SELECT a, g FROM t")) == seen
        assert duck.rows("SELECT count(*), count(DISTINCT rowid) FROM t") == [(len(seen), len(seen))]
        assert duck.rows("SELECT rowid, a FROM t WHERE a < 60 AND rowid <> a") == []
        duck.run("CALL ducklake_flush_inlined_data('lake')", "DELETE FROM t WHERE a = 3")
    assert sorted((row["a"], row["g"]) for row in lake.table("t").scan().to_arrow().to_pylist()) == [row for row in seen if row[0] != 3]
    lake.table("t").restore(1)
    with attached(address) as duck:
        assert sorted(duck.rows("SELECT a, g FROM t")) == [(a, "x") for a in range(60)]


@pytest.mark.slow
def test_on_spark(small: DuckLake, sqlite_address: LakeAddress, spark: SparkSession) -> None:
    small.write("t", rows(*range(100)))
    with small.transaction() as tx:
        tx.append("t", spark.range(200, 260).selectExpr("cast(id as int) as a", "'s' as g"))
        tx.append("t", rows(300, 301))
        tx.delete("t", "a IN (3, 200, 300)", spark=spark)
        tx.update("t", {"g": "reverse(g || '1')"}, where="a IN (4, 201, 301)", spark=spark)
        tx.delete("t", "a IN (5, 202) OR a BETWEEN 20 AND 40", spark=spark)
        source = spark.createDataFrame([(4, "m"), (201, "m"), (900, "m")], "a int, g string")
        tx.merge("t", source, on=["a"]).when_matched_update("all").when_not_matched_insert("all").execute()
        seen = sorted(tuple(row) for row in tx.table("t").to_spark(spark).collect())
        assert seen == sorted((row["a"], row["g"]) for row in tx.table("t").to_arrow().to_pylist())
    with attached(sqlite_address) as duck:
        assert sorted(duck.rows("SELECT a, g FROM t")) == seen
        assert duck.rows("SELECT count(*), count(DISTINCT rowid) FROM t") == [(len(seen), len(seen))]
        assert duck.rows("SELECT a, g FROM t WHERE g NOT IN ('x', 's') ORDER BY a") == [(4, "m"), (201, "m"), (301, "1x"), (900, "m")]
    assert len(seen) == 100 - 2 - 21 + 60 - 2 + 1 + 1
    assert not small.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0)).files
