"""Search for a commit id in the log, in one pass that also detects expired snapshots."""

from __future__ import annotations

import pytest

from ducklake_core.catalog.reading.snapshots import LogSearch, expired_among, search_log, snapshots_mentioning
from tests.support.oracle import LakeAddress, attached
from tests.unit.catalog.catalog_access import database_of

TEXT = '"50%_/of"'


@pytest.fixture
def log(lake_address: LakeAddress) -> LakeAddress:
    """Four snapshots: one has the message, and one a similar message."""
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)")
        for text in (TEXT, TEXT.replace("_", "x")):
            duck.run("BEGIN", "INSERT INTO t VALUES (1)", f"CALL lake.set_commit_message('Ann', 'rows', extra_info => '{text}')", "COMMIT")
    return lake_address


def test_existing_entries(log: LakeAddress) -> None:
    database = database_of(log)
    with database.read() as connection:
        assert search_log(connection, database.tables, TEXT) == LogSearch(is_mentioned=True, is_whole=True)
        assert search_log(connection, database.tables, "unknown") == LogSearch(is_mentioned=False, is_whole=True)
        assert [snapshot.id for snapshot in snapshots_mentioning(connection, database.tables, TEXT)] == [2]
        assert expired_among(connection, database.tables) is None
        assert [expired_among(connection, database.tables, number) for number in (0, 3, 4)] == [None, None, None]
    database.close()


@pytest.mark.parametrize("expired", [0, 1, 2])
def test_expired_entries(log: LakeAddress, expired: int) -> None:
    with attached(log) as duck:
        duck.run(f"CALL ducklake_expire_snapshots('lake', versions => [{expired}])")
    database = database_of(log)
    with database.read() as connection:
        assert search_log(connection, database.tables, "unknown") == LogSearch(is_mentioned=False, is_whole=False)
        assert search_log(connection, database.tables, TEXT).is_mentioned == (expired != 2)
        assert expired_among(connection, database.tables) == "1 of 4 snapshots have expired"
        assert expired_among(connection, database.tables, expired) == f"snapshot {expired} has expired"
        assert expired_among(connection, database.tables, 3) is None
    database.close()


def test_a_log_with_a_deleted_entry_proves_nothing(log: LakeAddress) -> None:
    database = database_of(log)
    changes = database.tables["snapshot_changes"]
    with database.write() as connection:
        connection.execute(changes.delete().where(changes.c.snapshot_id == 1))
    with database.read() as connection:
        assert not search_log(connection, database.tables, TEXT).is_whole
        assert expired_among(connection, database.tables) is None
    database.close()
