"""A lake object caches definitions of tables, which always equal those of a new lake object."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa

from ducklake_core import DuckLake
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import NotFoundError
from tests.support.oracle import LakeAddress, attached, sqlite_lake

CHANGES = (
    "INSERT INTO t VALUES (2, 'y')",
    "ALTER TABLE t ADD COLUMN c DOUBLE",
    "ALTER TABLE t RENAME COLUMN c TO d",
    "COMMENT ON TABLE t IS 'about t'",
    "COMMENT ON COLUMN t.b IS 'about b'",
    "COMMENT ON TABLE t IS 'another'",
    "ALTER TABLE t SET PARTITIONED BY (b)",
    "ALTER TABLE t RESET PARTITIONED BY",
    "ALTER TABLE t SET SORTED BY (a DESC)",
    "CALL lake.set_option('parquet_compression', 'zstd', table_name => 't')",
    "CALL lake.set_option('data_inlining_row_limit', '100')",
    "INSERT INTO t SELECT 3, 'z', 1",
    "CALL ducklake_flush_inlined_data('lake')",
    "DELETE FROM t WHERE a = 3",
    "ALTER TABLE t RESET SORTED BY",
    "ALTER TABLE t ALTER COLUMN a SET DATA TYPE BIGINT",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE other RENAME TO t",
    "DROP TABLE t",
    "CREATE TABLE t (n INT)",
    "INSERT INTO t VALUES (1)",
)


def state_of(lake: DuckLake) -> object:
    try:
        return lake.table("t").state
    except NotFoundError as error:
        return error.message


def test_every_change_is_seen(lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT, b VARCHAR)", "CREATE TABLE other (x INT)")
        lake = DuckLake.connect(lake_address.url)
        lake.table("t").append([{"a": 1, "b": "x"}])
        for change in CHANGES:
            duck.run(change)
            # Twice: the second is from memory.
            for _ in range(2):
                found = state_of(lake)
                assert found == state_of(DuckLake.connect(lake_address.url)), change
            if not isinstance(found, str):
                assert lake.table("t").scan().count() == duck.value("SELECT count(*) FROM t"), change


def test_unchanged_tables_take_one_statement(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write("t", pa.table({"a": [1]}))
    lake.table("t")
    statements: list[str] = []
    original = Database.answers
    monkeypatch.setattr(Database, "answers", lambda self, *queries: (statements.append("query"), original(self, *queries))[1])
    monkeypatch.setattr(CatalogReader, "table", lambda *_, **__: pytest.fail("it was read as a whole"))
    table = lake.table("T")
    assert statements == ["query"]
    # An append builds on what was just seen.
    statements.clear()
    table.append(pa.table({"a": [2]}))
    assert statements == []
    monkeypatch.undo()
    assert lake.table("t").scan().count() == 2


def test_a_restored_catalog_backup_is_another_history(tmp_path: Path) -> None:
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", pa.table({"a": [1]}))
    lake.close()
    file = Path(str(sa.make_url(address.url).database))
    shutil.copy(file, tmp_path / "backup")
    lake.rename_table("t", "old")
    lake.create_table("t", pa.schema([("b", pa.string())]))
    assert tuple(lake.table("t").schema.names) == ("b",)
    lake.close()
    shutil.copy(tmp_path / "backup", file)
    other = DuckLake.connect(address.url)
    other.create_table("x", pa.schema([("c", pa.string())]))
    other.create_table("y", pa.schema([("c", pa.string())]))
    other.close()
    # As many snapshots, the same schema version, another history.
    assert tuple(lake.table("t").schema.names) == ("a",)
    assert lake.table("t").scan().to_arrow().to_pylist() == [{"a": 1}]
