"""Changes of rows and streams through Spark Connect, in a process of its own, as a session is either classic or Connect."""

from __future__ import annotations

from pathlib import Path

import pytest

from ducklake_core import DuckLake
from tests.behaviour.object_stores.work import found
from tests.support.connect import run_client
from tests.support.oracle import LakeAddress, attached

CHANGES = """
import json, sys
from pyspark.sql import SparkSession
from ducklake_core import DuckLake
from tests.behaviour.object_stores.work import change, found, maintain, table_of
session = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
lake = DuckLake.connect(sys.argv[1])
expected = change(lake, lambda rows: session.createDataFrame(table_of(rows)), session)
same = found(lake, session) == found(lake) == expected
maintain(lake, expected, session)
print("ANSWERS " + json.dumps({"module": type(session).__module__, "same": same, "rows": expected}))
"""

STREAMS = """
import json, sys
from pyspark.sql import SparkSession
from ducklake_core import DuckLake
from ducklake_core.spark_source import register
url, checkpoint = sys.argv[1], sys.argv[3]
session = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
register(session)
session.range(5).write.format("ducklake").mode("overwrite").option("catalogUrl", url).save("source")

def run(feed):
    stream = session.readStream.format("ducklake").option("catalogUrl", url).option("feed", feed).load("source")
    to = stream.writeStream.format("ducklake").option("catalogUrl", url).option("checkpointLocation", f"{checkpoint}/{feed}")
    query = to.trigger(availableNow=True).start(feed)
    query.awaitTermination()

run("insertions")
session.range(5, 8).write.format("ducklake").mode("append").option("catalogUrl", url).save("source")
run("insertions")
run("insertions")
DuckLake.connect(url).table("source").delete(where="id = 2")
run("changes")
tables = {name: session.read.format("ducklake").option("catalogUrl", url).load(name) for name in ("insertions", "changes")}
columns = {"insertions": ["id"], "changes": ["id", "change_type"]}
answers = {name: sorted(map(list, frame.select(*columns[name]).collect())) for name, frame in tables.items()}
print("ANSWERS " + json.dumps(answers))
"""


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_changes_of_rows(sqlite_address: LakeAddress, connect: str, encrypted: bool) -> None:
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path, encrypted=encrypted)
    lake.set_option("data_inlining_row_limit", 0)
    answers = run_client(CHANGES, sqlite_address.url, connect)
    assert answers["module"].startswith("pyspark.sql.connect")
    assert answers["same"]
    expected = {int(key): value for key, value in answers["rows"].items()}
    assert found(lake) == expected
    with attached(sqlite_address) as duck:
        assert dict(duck.rows("SELECT k, v FROM t")) == expected
    lake.close()


@pytest.mark.slow
def test_streams(small: DuckLake, sqlite_address: LakeAddress, connect: str, tmp_path: Path) -> None:
    for name, columns in (
        ("insertions", {"id": "int64"}),
        ("changes", {"snapshot_id": "int64", "rowid": "int64", "change_type": "varchar", "id": "int64"}),
    ):
        small.create_table(name, columns)
    answers = run_client(STREAMS, sqlite_address.url, connect, str(tmp_path))
    assert answers["insertions"] == [[n] for n in range(8)]
    assert answers["changes"] == sorted([*([n, "insert"] for n in range(8)), [2, "delete"]])
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT id FROM insertions ORDER BY id") == [(n,) for n in range(8)]
