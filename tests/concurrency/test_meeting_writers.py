"""Others commit between the beginning of a write and its end."""

from __future__ import annotations

import threading
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.commit.committer import Committer
from ducklake_core.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
)
from tests.behaviour.lake.days import files_of, keys, rows
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_all_catalogs


@on_all_catalogs
def test_overwrites_of_different_slices_both_succeed(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("t", rows(0, 30))
    errors: list[BaseException] = []

    def overwrite(number: int) -> None:
        try:
            own = DuckLake.connect(lake_address.url)
            day = date(2013, 1, 1) + timedelta(days=number)
            fresh = pa.table({"k": pa.array([1000 + number], pa.int64()), "day": [day], "s": ["fresh"]})
            own.table("t").overwrite(fresh, where=f"day = DATE '{day}'")
            own.close()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=overwrite, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with attached(lake_address) as duck:
        assert keys(duck) == [1000, 1001, 1002]


@on_all_catalogs
def test_a_write_is_planned_again_when_others_get_in_between(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("t", rows(0, 30))
    with attached(lake_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        with lake.transaction() as tx:
            tx.overwrite("t", rows(90, 93), where="k < 10 OR k >= 90", concurrent_appends="replace")
            late = "(5, DATE '2013-01-01', 'late'), (40, DATE '2013-01-01', 'late')"
            duck.run("DELETE FROM t WHERE k IN (3, 12)", f"INSERT INTO t VALUES {late}")
        assert keys(duck) == sorted([*(k for k in range(10, 30) if k != 12), 40, 90, 91, 92])
        assert tx.result.writes[0].rows_deleted == 10
        with lake.transaction() as tx:
            tx.append("t", rows(200, 202))
            duck.run("DELETE FROM t WHERE k = 11")
        assert keys(duck, where="k IN (11, 200, 201)") == [200, 201]


@on_all_catalogs
def test_changed_columns_are_a_conflict_and_own_files_go(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("t", rows(0, 30))
    before = files_of(lake_address)

    def race(duck: Any) -> None:
        with lake.transaction() as tx:
            tx.append("t", rows(30, 33))
            duck.run("ALTER TABLE t ADD COLUMN late INT")

    with attached(lake_address) as duck, pytest.raises(CommitConflictError, match=r"main\.t.*altered it in snapshot 2"):
        race(duck)
    assert files_of(lake_address) == before


@on_all_catalogs
def test_two_first_writes_share_the_table(lake: DuckLake, lake_address: LakeAddress) -> None:
    with lake.transaction() as tx:
        tx.write("s.t", rows(0, 3), partition_by=["month(day)"])
        other = DuckLake.connect(lake_address.url)
        other.write("s.t", rows(3, 6), partition_by=["month(day)"])
        other.close()
    assert tx.result.writes[0].created_table is False
    with attached(lake_address) as duck:
        assert keys(duck, "s.t") == [*range(6)]


def test_two_different_tables_of_one_name_are_a_conflict(small: DuckLake) -> None:
    def race() -> None:
        with small.transaction() as tx:
            tx.write("u", rows(0, 3))
            small.write("u", pa.table({"different": [1]}))

    with pytest.raises(CommitConflictError, match="created or renamed a table to this name"):
        race()


def test_files_stay_when_the_outcome_is_unknown(small: DuckLake, sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    small.set_option("data_inlining_row_limit", 0)
    small.write("t", rows(0, 3))
    before = files_of(sqlite_address)

    def lose(self: Committer, transaction: object) -> None:
        raise CommitOutcomeUnknownError("lost")

    monkeypatch.setattr(Committer, "commit", lose)
    with pytest.raises(CommitOutcomeUnknownError):
        small.table("t").append(rows(3, 6))
    assert len(files_of(sqlite_address)) == len(before) + 1
