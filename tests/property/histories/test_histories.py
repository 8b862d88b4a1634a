"""Random histories: what the oracle and we do to one lake in turns, read alike by both after every step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.property.histories.later_version import Version, go_on
from tests.property.histories.on_spark import compare_on_spark
from tests.property.histories.play import NOT_COMPARED, Lake, live
from tests.support.oracle import READS, LakeAddress, file_lake
from tests.support.parameters import slow, spread
from tests.support.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITS = st.sampled_from((10, 0))
Places = Callable[[str, Path], LakeAddress]


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest) -> Iterator[Places]:
    """A new lake on a kind of catalog; Hypothesis wants fixtures that live longer than one example."""

    def place(kind: str, folder: Path) -> LakeAddress:
        if kind != "postgresql":
            return file_lake(kind, folder)
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.lake(folder)

    return place


def histories(shortest: int, longest: int) -> st.SearchStrategy[list[int]]:
    """Seeds, one for each step: fewer of them are a shorter history, so that Hypothesis can shrink."""
    return st.lists(st.integers(0, 2**20), min_size=shortest, max_size=longest)


def profile(examples: int, *, random: bool = False) -> settings:
    return settings(
        max_examples=examples,
        derandomize=not random,
        database=None,
        deadline=None,
        print_blob=True,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


def live_through(places: Places, kind: str, version: Version, seeds: list[int], limit: int) -> int:
    """A history with DuckDB in its own version, if it knows it; else in the one before, and then on without it: what was compared there."""
    known = version in READS
    options = f"DATA_INLINING_ROW_LIMIT {limit}" + (f", DUCKLAKE_VERSION '{version}'" if known and version != READS[0] else "")
    compared = 0
    with tempfile.TemporaryDirectory() as folder, Lake(places(kind, Path(folder)), options) as lake:
        live(lake, seeds, 1 if known else NOT_COMPARED)
        if not known:
            compared = go_on(lake, version, len(seeds))
    refused = sum(count for (_, done), count in lake.outcomes.items() if not done)
    assert refused <= 2 + len(seeds) / 3, f"a history in which little happens: {lake.refused}"
    return compared


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", spread(["1.0", "1.1"], 1))
@pytest.mark.parametrize("kind", [slow("sqlite"), "postgresql", slow("duckdb")])
def test_short_histories(places: Places, kind: str, version: Version) -> None:
    compared = []

    @profile(2)
    @given(seeds=histories(10, 20), limit=LIMITS)
    def check(seeds: list[int], limit: int) -> None:
        compared.append(live_through(places, kind, version, seeds, limit))

    check()
    assert version in READS or sum(compared) > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "duckdb"])
def test_long_histories(places: Places, kind: str, version: Version, part: int) -> None:
    """New ones in every run; a failure prints the seeds, the actions, and how to see it again."""

    @profile(2, random=True)
    @given(seeds=histories(30, 60), limit=LIMITS)
    def check(seeds: list[int], limit: int) -> None:
        live_through(places, kind, version, seeds, limit)

    check()


@pytest.mark.slow
def test_a_history_on_spark(places: Places, spark: SparkSession, tmp_path: Path) -> None:
    with Lake(places("sqlite", tmp_path), "DATA_INLINING_ROW_LIMIT 10") as lake:
        live(lake, range(100, 120), conditions=NOT_COMPARED)
        assert compare_on_spark(lake, spark, seed=1, earlier=2) >= 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_histories_on_spark(places: Places, spark: SparkSession, kind: str) -> None:
    @profile(3, random=True)
    @given(seeds=histories(15, 30), limit=LIMITS)
    def check(seeds: list[int], limit: int) -> None:
        with tempfile.TemporaryDirectory() as folder, Lake(places(kind, Path(folder)), f"DATA_INLINING_ROW_LIMIT {limit}") as lake:
            live(lake, seeds, conditions=NOT_COMPARED)
            compare_on_spark(lake, spark, seed=len(seeds))

    check()
