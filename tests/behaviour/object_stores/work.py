"""Every change and all maintenance of one table, whatever store its files are in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ducklake_core import DuckLake

_NOW = timedelta(0)
Rows = dict[int, str]


def table_of(rows: Rows) -> pa.Table:
    keys = list(rows)
    return pa.table(
        {"k": pa.array(keys, pa.int64()), "p": pa.array([k % 2 for k in keys], pa.int32()), "v": pa.array(list(rows.values()), pa.string())}
    )


def numbered(first: int, last: int) -> Rows:
    return {k: f"v{k}" for k in range(first, last)}


def found(lake: DuckLake, session: SparkSession | None = None) -> Rows:
    scan = lake.table("t").scan(columns=["k", "v"])
    pairs = scan.to_arrow().to_pylist() if session is None else [row.asDict() for row in scan.to_spark(session).collect()]
    assert len({row["k"] for row in pairs}) == len(pairs)
    return {row["k"]: row["v"] for row in pairs}


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
    merge = table.refresh().merge(frame({7: "merged", 8: "deleted", 30: "merged"}), on=["k"])
    merge.when_matched_delete(where="s.v = 'deleted'").when_matched_update("all").when_not_matched_insert("all").execute()
    lake.write("t", frame({9: "over"}), mode="overwrite", where="k = 9")
    unchanged = {k: v for k, v in numbered(0, 20).items() if k not in (3, 4, 8)}
    return unchanged | {5: "v5!", 6: "upserted", 21: "upserted", 7: "merged", 30: "merged", 9: "over"}


def maintain(lake: DuckLake, expected: Rows, session: SparkSession | None) -> None:
    """Run every maintenance operation; only the files of the newest snapshot stay, and an orphan is deleted."""
    assert lake.check(level="rows").by_code == {}
    lake.set_option("data_inlining_row_limit", 10)
    lake.table("t").append(table_of({100: "inlined", 101: "inlined"}))
    lake.table("t").delete("k >= 100")
    lake.set_option("data_inlining_row_limit", 0)
    assert lake.flush_inlined_data(spark=session).rows_flushed == 2
    assert lake.rewrite_data_files(delete_threshold=0.0, spark=session).files_rewritten >= 2
    assert found(lake, session) == expected
    assert lake.merge_adjacent_files(spark=session).failures == ()
    assert found(lake, session) == expected
    lake.expire_snapshots(versions=[snapshot.id for snapshot in lake.snapshots()][:-1], min_age=_NOW)
    cleaned = lake.cleanup_old_files(older_than=_NOW, min_age=_NOW)
    assert cleaned.files
    assert (cleaned.failed, cleaned.kept, cleaned.missing) == ((), (), ())
    stray = lake.info.data_path + "main/t/ducklake-0198c1f2-0000-7000-8000-000000000000.parquet"
    with lake.storage.open_output(stray) as sink:
        pq.write_table(table_of({}), sink)
    assert lake.check(level="footers").by_code == {"orphaned-file": 1}
    swept = lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW)
    assert [file.path for file in swept.files] == [stray]
    files = lake.table("t").list_files()
    names = {path.rpartition("/")[2] for file in files for path in (file.path, *(one.path for one in file.delete_files))}
    assert objects(lake) == names
    assert found(lake, session) == expected
    assert lake.check(level="rows").by_code == {}
    assert lake.checkpoint(spark=session).failed_steps == ()
