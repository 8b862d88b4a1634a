"""What expiry leaves alone: snapshots that are younger than they say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ducklake_core.errors import UsageError
from tests.behaviour.maintenance.lakes import FILES_ONLY
from tests.behaviour.maintenance.test_expire import NOW, backdate, expire
from tests.support.oracle import LakeAddress


def test_a_clock_that_was_set_back_makes_no_snapshot_older(sqlite_address: LakeAddress, oracle: Callable[..., Any]) -> None:
    """Ids ascend with every commit, so that no snapshot is older than the one before it; times to come say nothing about others."""
    with oracle(sqlite_address, FILES_ONLY) as duck:
        duck.run("CREATE TABLE t (a INT)", *(f"INSERT INTO t VALUES ({i})" for i in range(6)))
    now = datetime.now(UTC)
    hours = [900, -1000, 800, 0.5, 700, 0.2, 0.1]
    backdate(sqlite_address, {place: now - timedelta(hours=hour) for place, hour in enumerate(hours)})
    assert expire(sqlite_address, older_than="7 days", dry_run=True).snapshot_ids == (0, 2)
    assert expire(sqlite_address, keep_last=2, dry_run=True).snapshot_ids == (0, 2)
    with pytest.raises(UsageError, match=r"snapshots \[4\] are younger"):
        expire(sqlite_address, versions=[2, 4])
    assert expire(sqlite_address, versions=[4], min_age=NOW, dry_run=True).snapshots[0].time == now - timedelta(hours=700)
