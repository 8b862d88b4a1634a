"""Updates and merges on executors: the same rows and row ids as in this process, judged by DuckDB."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UsageError
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_updates_and_merges(spark: SparkSession, sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 5") as duck:
        duck.run(
            "CREATE TABLE t (k INTEGER, g VARCHAR, u UUID, h HUGEINT, day DATE DEFAULT '1969-07-20')",
            "ALTER TABLE t SET PARTITIONED BY (g)",
            "INSERT INTO t SELECT i, 'g' || i % 3, uuid(), i, DATE '1969-12-30' + i::INTEGER FROM range(300) r(i)",
            "INSERT INTO t SELECT i, 'late', NULL, NULL, NULL FROM range(300, 400) r(i)",
            "DELETE FROM t WHERE k % 50 = 7",
            "CREATE TABLE memory.expected AS SELECT rowid AS id, * FROM t",
        )
        lake = DuckLake.connect(sqlite_address.url)
        table = lake.table("t")

        def same(changed: Any, statement: str) -> None:
            duck.run(statement)
            assert changed.snapshot_id == lake.snapshot().id
            expected = duck.rows("SELECT CASE WHEN id < 400 THEN id END, * EXCLUDE id FROM memory.expected")
            found = duck.rows("SELECT CASE WHEN rowid < 400 THEN rowid END, * FROM t")
            assert sorted(map(repr, found)) == sorted(map(repr, expected))

        done = table.update({"g": "CASE WHEN k < 20 THEN 'moved' ELSE g END", "h": "k * 2"}, where="k % 3 = 1 AND k < 250", spark=spark)
        same(done, "UPDATE memory.expected SET g = CASE WHEN k < 20 THEN 'moved' ELSE g END, h = k * 2 WHERE k % 3 = 1 AND k < 250")
        assert done.rows_updated > 70
        done = table.update({"g": "regexp_replace(g, 'ov', 'w')"}, where="regexp_matches(g, '^m.*d$')", spark=spark)
        same(done, "UPDATE memory.expected SET g = regexp_replace(g, 'ov', 'w') WHERE regexp_matches(g, '^m.*d$')")
        done = table.delete("k % 100 = 99", spark=spark)
        same(done, "DELETE FROM memory.expected WHERE k % 100 = 99")
        rows = [(1, "one"), (2, None), (300, "x"), (9000, "late"), (9001, "no"), (None, "null")]
        source = spark.createDataFrame(rows, "key long, name string")
        done = (
            table.merge(source, on="t.k = s.key AND t.k <> 300")
            .when_matched_delete(where="s.name IS NULL")
            .when_matched_update({"g": "regexp_replace(s.name, 'o', t.g)", "day": "DATE '2020-01-01'"})
            .when_not_matched_insert({"k": "key", "g": "name", "h": 12345678901234567890123456789012345678}, where="name <> 'no'")
            .when_not_matched_by_source_update({"h": -1}, where="k >= 390")
            .execute()
        )
        duck.run(
            "CREATE TABLE memory.s (key BIGINT, name VARCHAR)",
            "INSERT INTO memory.s VALUES (1, 'one'), (2, NULL), (300, 'x'), (9000, 'late'), (9001, 'no'), (NULL, 'null')",
            "ALTER TABLE memory.expected ALTER day SET DEFAULT '1969-07-20'",
        )
        same(
            done,
            "MERGE INTO memory.expected t USING memory.s s ON (t.k = s.key AND t.k <> 300) WHEN MATCHED AND s.name IS NULL THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET g = regexp_replace(s.name, 'o', t.g), day = DATE '2020-01-01' "
            "WHEN NOT MATCHED BY SOURCE AND k >= 390 THEN UPDATE SET h = -1 WHEN NOT MATCHED AND name <> 'no' THEN INSERT (k, g, h) "
            "VALUES (key, name, 12345678901234567890123456789012345678)",
        )
        assert (done.rows_deleted, done.rows_added) == (1, 3)
        before, files = lake.snapshot().id, {file.path for file in lake.storage.list(sqlite_address.data_path)}
        twice = source.union(source)
        with pytest.raises(UsageError, match="more than one row"):
            table.merge(twice, on="t.k = s.key").when_not_matched_insert({"k": "key"}).execute()
        with pytest.raises(SchemaError, match="k"):
            table.update({"k": "k + 2147483000"}, spark=spark)
        assert lake.snapshot().id == before
        assert {file.path for file in lake.storage.list(sqlite_address.data_path)} == files
        # Neither the source's files nor the noted positions are left.
        left = lake.delete_orphaned_files(older_than=timedelta(0), min_age=timedelta(0), dry_run=True)
        assert (left.files, left.kept, left.too_young) == ((), (), 0)
        none = table.merge(source.where("false"), on="t.k = s.key").when_matched_delete().execute()
        assert not none.committed
        assert isinstance(table.scan().to_arrow(), pa.Table)
