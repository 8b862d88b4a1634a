"""Lakes whose files are in an S3 bucket: every verb on both engines, next to DuckDB on the same lake."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError
from tests.support.oracle import LakeAddress
from tests.support.s3 import BUCKET, S3Server, attached_on_s3, s3_lake

_NOW = timedelta(0)
Rows = dict[int, str]


def table_of(rows: Rows) -> pa.Table:
    keys = list(rows)
    return pa.table(
        {"k": pa.array(keys, pa.int64()), "p": pa.array([k % 2 for k in keys], pa.int32()), "v": pa.array(list(rows.values()), pa.string())}
    )


def numbered(first: int, last: int) -> Rows:
    return {k: f"v{k}" for k in range(first, last)}


def new_lake(address: LakeAddress, s3: S3Server, *, encrypted: bool = False) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path, storage_options=s3.options(), encrypted=encrypted)
    lake.set_option("data_inlining_row_limit", 0)
    return lake


def found(lake: DuckLake, session: SparkSession | None = None) -> Rows:
    scan = lake.table("t").scan(columns=["k", "v"])
    pairs = scan.to_arrow().to_pylist() if session is None else [row.asDict() for row in scan.to_spark(session).collect()]
    assert len({row["k"] for row in pairs}) == len(pairs)
    return {row["k"]: row["v"] for row in pairs}


def in_duckdb(address: LakeAddress, s3: S3Server) -> Rows:
    with attached_on_s3(address, s3) as duck:
        return {int(str(k)): str(v) for k, v in duck.rows("SELECT k, v FROM t")}


def objects(lake: DuckLake) -> set[str]:
    return {file.path.rpartition("/")[2] for file in lake.storage.list(lake.info.data_path)}


def change(lake: DuckLake, frame: Callable[[Rows], Any], session: SparkSession | None) -> Rows:
    """Every change of rows; gives what the table holds then."""
    lake.create_table("t", table_of({}).schema, partition_by=["p"])
    table = lake.table("t")
    for first in (0, 10):
        table.append(frame(numbered(first, first + 10)))
    table.refresh().delete(where="k IN (3, 4)", spark=session)
    table.refresh().update({"v": "v || '!'"}, where="k = 5", spark=session)
    lake.write("t", frame({6: "upserted", 21: "upserted"}), mode="upsert", on=["k"])
    merge = table.refresh().merge(frame({7: "merged", 8: "gone", 30: "merged"}), on=["k"])
    merge.when_matched_delete(where="s.v = 'gone'").when_matched_update("all").when_not_matched_insert("all").execute()
    lake.write("t", frame({9: "over"}), mode="overwrite", where="k = 9")
    unchanged = {k: v for k, v in numbered(0, 20).items() if k not in (3, 4, 8)}
    return unchanged | {5: "v5!", 6: "upserted", 21: "upserted", 7: "merged", 30: "merged", 9: "over"}


def maintain(lake: DuckLake, expected: Rows, session: SparkSession | None) -> None:
    """Every verb of maintenance; nothing but the files of the newest snapshot stays, and an object nobody named goes."""
    lake.merge_adjacent_files(spark=session)
    assert found(lake, session) == expected
    lake.expire_snapshots(versions=[snapshot.id for snapshot in lake.snapshots()][:-1], min_age=_NOW)
    cleaned = lake.cleanup_old_files(older_than=_NOW, min_age=_NOW)
    assert cleaned.files
    assert (cleaned.failed, cleaned.kept, cleaned.missing) == ((), (), ())
    stray = lake.info.data_path + "main/t/ducklake-0198c1f2-0000-7000-8000-000000000000.parquet"
    with lake.storage.open_output(stray) as sink:
        pq.write_table(table_of({}), sink)
    swept = lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW)
    assert [file.path for file in swept.files] == [stray]
    files = lake.table("t").list_files()
    names = {path.rpartition("/")[2] for file in files for path in (file.path, *(one.path for one in file.delete_files))}
    assert objects(lake) == names
    assert found(lake, session) == expected


def test_in_process(sqlite_address: LakeAddress, s3: S3Server) -> None:
    address = s3_lake(sqlite_address, "in_process")
    lake = new_lake(address, s3)
    expected = change(lake, table_of, None)
    assert found(lake) == in_duckdb(address, s3) == expected
    maintain(lake, expected, None)
    assert in_duckdb(address, s3) == expected
    with attached_on_s3(address, s3, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("INSERT INTO t VALUES (40, 0, 'theirs')", "DELETE FROM t WHERE k = 0")
    expected = {**{k: v for k, v in expected.items() if k != 0}, 40: "theirs"}
    assert found(lake) == expected
    lake.table("t").delete(where="k = 1")
    assert in_duckdb(address, s3) == {k: v for k, v in expected.items() if k != 1}
    lake.close()


@pytest.mark.slow
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_on_spark(sqlite_address: LakeAddress, s3: S3Server, spark: SparkSession, encrypted: bool, scheme: str) -> None:
    address = s3_lake(sqlite_address, f"on_spark_{encrypted}_{scheme}", scheme)
    lake = new_lake(address, s3, encrypted=encrypted)
    expected = change(lake, lambda rows: spark.createDataFrame(table_of(rows)), spark)
    assert found(lake) == found(lake, spark) == in_duckdb(address, s3) == expected
    maintain(lake, expected, spark)
    assert in_duckdb(address, s3) == expected
    lake.close()


def test_adding_what_spark_wrote(sqlite_address: LakeAddress, s3: S3Server, spark: SparkSession) -> None:
    """A whole output directory of Spark's own, with ``_SUCCESS`` and checksums, partitioned by a column."""
    address = s3_lake(sqlite_address, "adding")
    expected = numbered(0, 20)
    # Spark has no file system for S3 here: it writes where the server keeps its objects.
    folder = f"s3://{BUCKET}/of_spark/"
    spark.createDataFrame(table_of(expected)).write.partitionBy("p").parquet(str(s3.on_disk(folder)))
    lake = new_lake(address, s3)
    lake.create_table("t", table_of({}).schema)
    done = lake.add_data_files("t", folder)
    assert done.rows_added == 20
    assert found(lake) == in_duckdb(address, s3) == expected
    for again in (folder, folder.replace("s3://", "s3a://"), f"{folder}p=0/*.parquet"):
        with pytest.raises(AlreadyExistsError, match="already"):
            lake.add_data_files("t", again)
    lake.table("t").delete(where="k < 5")
    assert found(lake) == in_duckdb(address, s3) == {k: v for k, v in expected.items() if k >= 5}
    lake.close()
