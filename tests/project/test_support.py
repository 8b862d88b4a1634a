"""The oracle itself works on both catalog databases."""

from __future__ import annotations

import itertools

import pytest

from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import on_all_catalogs, pairwise, slow, spread


@on_all_catalogs
def test_oracle_creates_and_reads_a_lake(lake_address: LakeAddress) -> None:  # type: ignore[type-arg]
    with attached(lake_address) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t SELECT range FROM range(100)")
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM t") == 100


@pytest.mark.parametrize("left", ["CREATE TEMP VIEW t AS SELECT 1", "CREATE TEMP TABLE t (a INT)", "SET TimeZone = 'Asia/Kathmandu'"])
def test_an_instance_that_a_test_has_changed_is_not_used_again(sqlite_address: LakeAddress, left: str) -> None:  # type: ignore[type-arg]
    with attached(sqlite_address) as duck:
        changed = duck.connection
        duck.run(left)
    with attached(sqlite_address) as duck:
        assert duck.connection is not changed


def test_spread_parameters_run_or_are_slow() -> None:
    values = spread([*"abcde", slow("f")], 3)
    kept = [value for value in values if isinstance(value, str)]
    assert kept == ["a", "c", "e"]
    assert [value.values for value in values if not isinstance(value, str)] == [("b",), ("d",), ("f",)]
    assert spread([(1, 2), (3, 4)], 1)[1].values == (3, 4)


def test_every_two_allowed_values_meet_in_a_pair() -> None:
    factors = ("abcd", "xyz", "01", "+-")

    def allowed(*values: str) -> bool:
        return values[:2] != ("a", "x")

    found = pairwise(*factors, allowed=allowed)
    wanted = {frozenset(pair) for made in itertools.product(*factors) if allowed(*made) for pair in itertools.combinations(made, 2)}
    assert {frozenset(pair) for made in found for pair in itertools.combinations(made, 2)} == wanted
    assert all(allowed(*made) for made in found)
    assert len(found) <= 14
