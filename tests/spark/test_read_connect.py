"""Scans through Spark Connect, in a process of its own, as a session is either classic or Connect."""

from __future__ import annotations

import json

import pytest

from tests.support.connect import run_client
from tests.support.oracle import LakeAddress, attached
from tests.support.scans import open_lake

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from ducklake_core.engines.arrow.positions import DeleteTarget
from ducklake_core.engines.spark.positions import find_key_positions, find_positions
from ducklake_core.errors import UsageError
from tests.support.oracle import LakeAddress
from tests.support.scans import STORAGE, open_lake

address = LakeAddress(**json.loads(sys.argv[1]))
session = SparkSession.builder.remote(sys.argv[2]).config("spark.sql.session.timeZone", "Asia/Kolkata").getOrCreate()
lake = open_lake(address)
plan = lake.scan("t").plan().plan
directory = plan.tasks[0].file.path.rpartition("/")[0] + "/"
target = DeleteTarget(directory=directory, data_path=address.data_path, write_id="0198c1f20000000000c0ffee", assumed_snapshot=99)
keys = session.createDataFrame([(5,), (150,), (1000,)], "a int")
answers = {
    "module": type(session).__module__,
    "ways": sorted({str(task.native_obstacle) for task in plan.tasks}),
    "rows": [list(row) for row in lake.scan("t").to_spark(session).selectExpr("a", "unix_micros(tz)", "cast(ts as string)").collect()],
    "filtered": [row[0] for row in lake.scan("t", columns=["a"], where="a % 50 = 0").to_spark(session).collect()],
    "virtual": [list(row) for row in lake.scan("t", columns=["a", "rowid", "filename"], where="rowid > 90").to_spark(session).collect()],
    "small": sorted(row[0] for row in lake.scan("small").to_spark(session).collect()),
    "matching": find_positions(lake.scan("t", where="a < 60").plan().plan, target, STORAGE, session).row_count,
    "keyed": find_key_positions(lake.scan("t", columns=["a"]).plan().plan, target, STORAGE, keys, ["a"]).row_count,
}
session.conf.set("spark.sql.ansi.enabled", "false")
answers["plain"] = lake.scan("t", columns=["a"], where="a < 60").to_spark(session).count()
try:
    lake.scan("t", columns=["a"], where="a % 50 = 0").to_spark(session)
except UsageError as error:
    answers["computed"] = str(error)
print("ANSWERS " + json.dumps(answers))
"""


@pytest.mark.slow
def test_connect_reads_both_ways(sqlite_address: LakeAddress, connect: str) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 10") as duck:
        duck.run(
            "CREATE TABLE t (a INTEGER, tz TIMESTAMPTZ, ts TIMESTAMP)",
            "INSERT INTO t SELECT i, '2020-07-01 00:00:00+00', '2020-07-01 00:00:00' FROM range(100) r(i)",
            "INSERT INTO t SELECT i, '1969-12-31 23:59:59+00', NULL FROM range(100, 200) r(i)",
            "DELETE FROM t WHERE a BETWEEN 10 AND 40",
            "INSERT INTO t VALUES (1000, NULL, '1500-01-01 00:00:00')",
        )
        virtual = duck.rows("SELECT a, rowid, filename FROM t WHERE rowid > 90 ORDER BY ALL")
        duck.run("CREATE TABLE small (a INTEGER, p INTEGER)", "ALTER TABLE small SET PARTITIONED BY (p)")
        duck.run("INSERT INTO small SELECT i, i // 20 FROM range(1400) r(i)", "DELETE FROM small WHERE a % 20 < 11")
        expected = duck.rows("SELECT a, epoch_us(tz), ts::VARCHAR FROM t ORDER BY ALL")
    address = json.dumps({name: getattr(sqlite_address, name) for name in ("url", "attach", "data_path", "backend")})
    answers = run_client(SCRIPT, address, connect)
    assert "connect" in answers["module"]
    assert answers["ways"] == ["None"]
    assert sorted(tuple(row) for row in answers["virtual"]) == virtual
    assert "Spark Connect reads all files with Arrow" in str(open_lake(sqlite_address).scan("small").plan())
    assert "Connect" not in str(open_lake(sqlite_address).scan("t").plan())
    assert answers["small"] == [i for i in range(1400) if i % 20 >= 11]
    assert sorted(tuple(row) for row in answers["rows"]) == expected
    assert sorted(answers["filtered"]) == [0, 50, 100, 150, 1000]
    assert answers["matching"] == 60 - 31
    assert answers["keyed"] == 3
    assert answers["plain"] == 60 - 31
    assert "in a session of Spark Connect while spark.sql.ansi.enabled is false" in answers["computed"]
