"""The oracle itself works on both catalog databases."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.oracle import LakeAddress


def test_oracle_creates_and_reads_a_lake(lake_address: LakeAddress, oracle: Callable) -> None:  # type: ignore[type-arg]
    with oracle(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t SELECT range FROM range(100)")
    with oracle(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM t") == 100
