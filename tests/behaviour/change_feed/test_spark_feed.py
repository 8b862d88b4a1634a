"""Change feeds on Spark give the rows and types that they give in this process, classic and Connect."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from tests.behaviour.change_feed.histories import History, last_snapshot
from tests.support.connect import run_client
from tests.support.oracle import LakeAddress, attached

_STEPS = (
    "CREATE TABLE t (a INTEGER, s VARCHAR)",
    "INSERT INTO t SELECT i, 'v' || i FROM range(100) r(i)",
    "INSERT INTO t VALUES (1000, 'inlined')",
    "UPDATE t SET s = 'u' WHERE a < 40",
    "DELETE FROM t WHERE a BETWEEN 50 AND 53",
    "UPDATE t SET s = 'w' WHERE a IN (7, 1000)",
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)",
    "DELETE FROM t WHERE a > 90",
)

SCRIPT = """
import json, sys
import pytest
from pyspark.sql import SparkSession
from ducklake_core import DuckLake

session = SparkSession.builder.remote(sys.argv[2]).config("spark.sql.session.timeZone", "Asia/Kolkata").getOrCreate()
table = DuckLake.connect(sys.argv[1]).table("t")
rows = [list(row) for row in table.changes(1).to_spark(session).collect()]
print("ANSWERS " + json.dumps([type(session).__module__, rows]))
"""


@pytest.mark.slow
def test_spark_gives_the_same_feed(lake_address: LakeAddress, spark: SparkSession) -> None:
    with attached(lake_address) as duck:
        History(duck, 3).run(24)
        last = last_snapshot(duck)
    table = DuckLake.connect(lake_address.url).table("t")
    for feed in (table.changes(1), table.changes(last // 2), table.deletions(3, last), table.insertions(3, last, columns=["s", "rowid"])):
        frame = feed.to_spark(spark)
        own = feed.to_arrow()
        assert frame.columns == own.column_names
        assert sorted(map(str, frame.toArrow().to_pylist())) == sorted(map(str, own.to_pylist()))


@pytest.mark.slow
def test_conditions_hold_for_the_finished_feed(sqlite_address: LakeAddress, spark: SparkSession) -> None:
    with attached(sqlite_address) as duck:
        duck.run(*_STEPS)
    table = DuckLake.connect(sqlite_address.url).table("t")
    for where in ("s = 'u'", "change_type = 'update_preimage' AND rowid < 9", "snapshot_id = 6 OR s LIKE 'v9%'"):
        feed = table.changes(1, where=where, columns=["change_type", "a"])
        own = feed.to_arrow()
        assert own.num_rows, where
        assert sorted(map(tuple, feed.to_spark(spark).collect())) == sorted(tuple(row.values()) for row in own.to_pylist()), where
    # The old value does not satisfy the condition, and still makes the new one an update.
    assert set(table.changes(1, where="s = 'u'").to_arrow().column("change_type").to_pylist()) == {"update_postimage", "update_preimage"}
    # Only a SQL engine can evaluate this.
    found = table.insertions(1, where="length(s) = 7 AND rowid >= 0", columns=["a"]).to_spark(spark).collect()
    assert [row[0] for row in found] == [1000]


@pytest.mark.slow
def test_connect_gives_the_same_feed(sqlite_address: LakeAddress, connect: str) -> None:
    with attached(sqlite_address) as duck:
        duck.run(*_STEPS)
    module, rows = run_client(SCRIPT, sqlite_address.url, connect)
    assert "connect" in module
    own = DuckLake.connect(sqlite_address.url).table("t").changes(1).to_arrow()
    assert sorted(map(str, rows)) == sorted(str(list(row.values())) for row in own.to_pylist())
