"""Maintenance during commits of another writer loses no row and schedules no referenced file."""

from __future__ import annotations

import threading
from datetime import timedelta

import pyarrow as pa

from ducklake_core.lake import DuckLake
from tests.behaviour.maintenance.lakes import readings
from tests.support.oracle import LakeAddress, attached

NOW = timedelta(0)
ROUNDS = 12


def test_maintenance_next_to_a_writer(lake: DuckLake, lake_address: LakeAddress) -> None:
    """One thread appends, deletes and overwrites, while the main thread runs all maintenance operations."""
    lake.write("kept", pa.table({"n": pa.array([-1], pa.int64())}))
    lake.write("replaced", pa.table({"n": pa.array([-1], pa.int64())}))
    lake.write("thinned", pa.table({"n": pa.array([0], pa.int64())}))
    problems: list[BaseException] = []

    def write() -> None:
        own = DuckLake.connect(lake_address.url)
        try:
            for number in range(ROUNDS):
                own.write("kept", pa.table({"n": pa.array([number], pa.int64())}))
                own.write("replaced", pa.table({"n": pa.array([number], pa.int64())}), mode="overwrite")
                own.write("thinned", pa.table({"n": range(number * 40, number * 40 + 40)}))
                own.table("thinned").delete("n % 4 = 1")
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            problems.append(error)
        finally:
            own.close()

    writer = threading.Thread(target=write)
    writer.start()
    expired = 0
    number = 0
    while writer.is_alive():
        number += 1
        lake.merge_adjacent_files(partial_progress=number % 2 == 0)
        if number % 3 == 0:
            lake.flush_inlined_data()
            lake.rewrite_data_files(delete_threshold=0.0)
            assert lake.check(level="rows").errors == ()
            assert lake.delete_orphaned_files().files == ()
        expired += len(lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=2).snapshots)
        lake.cleanup_old_files(older_than=timedelta(seconds=30), min_age=NOW)
    writer.join()
    assert problems == []
    lake.merge_adjacent_files()
    expired += len(lake.expire_snapshots(older_than=NOW, min_age=NOW).snapshots)
    cleaned = lake.cleanup_old_files(older_than=NOW, min_age=NOW)
    assert (cleaned.kept, cleaned.failed) == ((), ())
    assert expired >= 2 * ROUNDS
    assert len(lake.snapshots()) == 1
    lake.close()
    with attached(lake_address) as duck:
        assert duck.rows("SELECT n FROM kept ORDER BY n") == [(number,) for number in range(-1, ROUNDS)]
        assert duck.rows("SELECT n FROM replaced") == [(ROUNDS - 1,)]
        assert duck.rows("SELECT count(*), count(DISTINCT rowid) FROM thinned") == [(30 * ROUNDS + 1, 30 * ROUNDS + 1)]
    assert len(readings(lake_address)) == 3
