"""The oracle itself works on both catalog databases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.oracle import LakeAddress
from tests.support.parameters import on_all_catalogs


@on_all_catalogs
def test_oracle_creates_and_reads_a_lake(lake_address: LakeAddress, oracle: Callable) -> None:  # type: ignore[type-arg]
    with oracle(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t SELECT range FROM range(100)")
    with oracle(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM t") == 100


@pytest.mark.parametrize("left", ["CREATE TEMP VIEW t AS SELECT 1", "CREATE TEMP TABLE t (a INT)", "SET TimeZone = 'Asia/Kathmandu'"])
def test_an_instance_that_a_test_has_changed_is_not_used_again(sqlite_address: LakeAddress, oracle: Callable, left: str) -> None:  # type: ignore[type-arg]
    with oracle(sqlite_address) as duck:
        changed = duck.connection
        duck.run(left)
    with oracle(sqlite_address) as duck:
        assert duck.connection is not changed
