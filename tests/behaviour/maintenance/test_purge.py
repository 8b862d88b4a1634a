"""Rows that are deleted for good: nothing of the lake contains their values."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import MetaData, Table, inspect, select, text

from ducklake_core import DuckLake
from ducklake_core.errors import UsageError
from ducklake_core.maintenance import checkpoint
from ducklake_core.maintenance.merge import Reach
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import CATALOGS

ERASED = "zz-erased@example.org"
BEFORE = "zz-before@example.org"


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    """A lake whose table has the value in a file, and inlined, live, deleted and updated."""
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    made.set_option("parquet_compression", "uncompressed")
    made.write("t", pa.table({"id": range(100), "mail": [f"m{n:02}" for n in range(99)] + [ERASED]}))
    made.write("t", pa.table({"id": [100, 101], "mail": [ERASED, BEFORE]}), mode="append")
    made.table("t").update({"mail": "'n'"}, where="id = 101")
    made.write("other", pa.table({"id": [1]}))
    yield made
    made.close()


def traces(lake: DuckLake, value: str) -> list[str]:
    """Files with the value, and cells of all tables of the catalog."""
    found = [path.name for path in Path(lake.info.data_path).rglob("*.parquet") if value.encode() in path.read_bytes()]
    schema = lake.database.tables.schema
    with lake.database.read() as connection:
        for name in inspect(connection).get_table_names(schema=schema):
            rows = connection.execute(select(text("*")).select_from(Table(name, MetaData(schema=schema))))
            found += [name for row in rows if value in str(row) or value.encode().hex() in str(row)]
    return found


@pytest.mark.parametrize("lake_address", CATALOGS, indirect=True)
def test_nothing_contains_the_rows(lake: DuckLake, lake_address: LakeAddress) -> None:
    assert traces(lake, ERASED)
    assert traces(lake, BEFORE)
    result = lake.purge("t", f"mail = '{ERASED}'", message="erasure 17")
    assert (result.is_complete, result.rows_deleted, result.remains) == (True, 2, ())
    assert "mail" in result.bounds
    assert traces(lake, ERASED) == traces(lake, BEFORE) == []
    assert result.snapshots == (lake.snapshot().id,)
    assert lake.check(level="rows").is_sound
    with attached(lake_address) as duck:
        assert duck.rows("SELECT count(*), max(mail), max(id), min(id) FROM t") == [(100, "n", 101, 0)]
    lake.write("t", pa.table({"id": [200], "mail": ["zzz"]}), mode="append")
    with attached(lake_address) as duck:
        assert duck.rows("SELECT count(*), max(mail) FROM t") == [(101, "zzz")]
    again = lake.purge("t", f"mail = '{ERASED}'")
    assert (again.is_complete, again.rows_deleted) == (True, 0)


@pytest.mark.parametrize(
    "operation", ["flush_inlined_data", "rewrite_data_files", "_correct_bounds", "expire_snapshots", "cleanup_old_files"]
)
def test_an_interrupted_purge_is_completed(operation: str, lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        run = getattr(checkpoint, operation)

        def interrupted(*values: object, **named: object) -> object:
            run(*values, **named)
            raise KeyboardInterrupt

        patch.setattr(checkpoint, operation, interrupted)
        with pytest.raises(KeyboardInterrupt):
            lake.purge("t", f"mail = '{ERASED}'")
    assert lake.purge("t", f"mail = '{ERASED}'").is_complete
    assert traces(lake, ERASED) == []


def test_what_keeps_rows(lake: DuckLake) -> None:
    lake.holds.add("audit", 2)
    with pytest.raises(UsageError, match=r"Nothing was purged, because holds keep snapshots .*'audit' \(snapshot 2\)"):
        lake.purge("t", f"mail = '{ERASED}'")
    lake.holds.remove("audit")
    lake.set_option("auto_compact", False)
    lake.set_option("auto_compact", "false", schema="main")
    with pytest.raises(UsageError, match=r"lake.set_option\('auto_compact', True, table='main.t'\)"):
        lake.purge("t", f"mail = '{ERASED}'")
    lake.set_option("auto_compact", True, table="t")
    with pytest.raises(UsageError, match="purge needs a condition"):
        lake.purge("t", None)
    assert lake.purge("t", f"mail = '{ERASED}'", dry_run=True).rows_deleted == 2
    assert lake.table("t").scan(where=f"mail = '{ERASED}'").count() == 2
    orphan = Path(lake.info.data_path) / "main" / "t" / "ducklake-0198c1f2-0000-7000-8000-000000000000.parquet"
    orphan.write_bytes(b"x")
    result = lake.purge("t", f"mail = '{ERASED}'", min_age="1 hour")
    assert not result.is_complete
    assert any("younger than min_age" in one for one in result.remains)
    assert any("1 orphaned file, too young" in one for one in result.remains)
    os.utime(orphan, (time.time() - 5 * 86400,) * 2)
    assert lake.purge("t", f"mail = '{ERASED}'").is_complete
    assert not orphan.exists()


def test_bounds_that_files_do_not_determine_are_deleted(lake: DuckLake) -> None:
    lake.write("long", pa.table({"s": ["a" * 5000, "b"], "f": [1.0, float("nan")]}), inline=False)
    lake.purge("long", "s = 'b'")
    with lake.database.read() as connection:
        statistics = lake.database.tables["table_column_stats"]
        assert connection.execute(statistics.select().where(statistics.c.table_id == 3)).all() == []
    assert lake.table("long").scan(where="f > 0").count() == 1


def test_empty_directories_with_partition_values_are_removed(sqlite_address: LakeAddress) -> None:
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake:
        lake.create_table("t", {"id": "int64", "mail": "varchar"}, partition_by=["mail"])
        lake.write("t", pa.table({"id": [1, 2, 3], "mail": [ERASED, "n", BEFORE]}), mode="append", inline=False)
        files = Path(lake.info.data_path)
        assert [path.name for path in files.rglob("mail=*erased*")]
        lake.table("t").delete("id = 3")
        assert lake.purge("t", "id = 1").is_complete
        assert [path.name for path in files.rglob("mail=*")] == ["mail=n"]
        # A writer that has made its directory before it was removed makes it again.
        lake.write("t", pa.table({"id": [4], "mail": ["n"]}), mode="append", inline=False)
        assert lake.table("t").count() == 2


def test_files_with_deleted_rows_that_cannot_be_rewritten_remain(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.table("t").delete("id = 7")
    monkeypatch.setattr(Reach, "obstacle", lambda *_: "outside the data path and not below allowed_paths")
    result = lake.purge("t", "id = 7")
    assert not result.is_complete
    assert "2 files of main.t with deleted rows, not rewritten: outside the data path and not below allowed_paths" in result.remains
