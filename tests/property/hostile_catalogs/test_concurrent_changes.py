"""Checks during expiry, drops and cleanup by other clients: files and tables deleted meanwhile are no findings."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from sqlalchemy import Connection, inspect

from ducklake_core import DuckLake
from ducklake_core.catalog.reading import integrity_scan
from ducklake_core.maintenance.check.footers import FooterChecks
from tests.faults.upkeep import NOW
from tests.support.oracle import LakeAddress, attached


@pytest.mark.parametrize("lake_address", ["postgresql", "mysql"], indirect=True)
@pytest.mark.parametrize("look", [lambda lake: lake.check().by_code, lambda lake: lake.health().faults], ids=["check", "health"])
def test_tables_of_inlined_rows_that_an_expiry_drops(
    lake_address: LakeAddress, monkeypatch: pytest.MonkeyPatch, look: Callable[[DuckLake], object]
) -> None:
    """MySQL shows at once that the tables are dropped, and in a transaction that they are still registered."""
    with DuckLake.create(lake_address.url, data_path=lake_address.data_path) as lake:
        lake.write("t", pa.table({"a": [1, 2]}), inline=True)
        done = []

        def late(connection: Connection) -> object:
            if not done:
                done.append(True)
                with DuckLake.connect(lake_address.url) as other:
                    other.table("t").add_column("b", "bigint")
                    other.flush_inlined_data()
                    other.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=1)
            return inspect(connection)

        monkeypatch.setattr(integrity_scan, "inspect", late)
        assert look(lake) == {}
        assert done
        assert look(lake) == {}


def test_files_cleaned_up_before_rows_are_read(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropped and cleaned up files and tables do not need a backup."""
    with DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path) as lake, DuckLake.connect(sqlite_address.url) as other:
        for name in ("dropped", "replaced", "renamed"):
            lake.write(name, pa.table({"a": range(50)}), inline=False)
        run = FooterChecks.run

        def late(self: FooterChecks) -> None:
            run(self)
            other.drop_table("dropped")
            other.table("replaced").overwrite(pa.table({"a": [1]}))
            other.rename_table("renamed", "other")
            other.write("made", pa.table({"a": [1]}))
            with attached(sqlite_address) as duck:
                duck.run(
                    "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)",
                    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
                )

        monkeypatch.setattr(FooterChecks, "run", late)
        assert lake.check(level="rows").by_code == {}
        monkeypatch.undo()
        assert lake.check(level="rows").by_code == {}
