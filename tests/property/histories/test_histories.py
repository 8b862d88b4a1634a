"""Random histories: what DuckDB, the library and a second implementation do to one lake, read alike by all after every step."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Literal

import pytest

from ducklake_core.commit import registration
from ducklake_core.maintenance import flush
from tests.property.histories.on_spark import compare_on_spark
from tests.property.histories.play import NOT_COMPARED, Lake, Mode, end, go_on, live
from tests.support.object_stores import ObjectStore, s3_store
from tests.support.oracle import READS, LakeAddress
from tests.support.parameters import slow
from tests.support.s3 import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")  # of the second implementation
Version = Literal["1.0", "1.1"]
SEEDS = range(int(os.environ.get("DUCKLAKE_HISTORIES_FIRST", "0")), int(os.environ.get("DUCKLAKE_HISTORIES_LAST", "4")))
NEW = -1
"""Stands for another seed in every run; a failure prints the history."""


@pytest.fixture(autouse=True)
def _registered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are registered as soon as their first file is begun."""
    for name in ("REGISTER_AFTER", "CHECK_SECONDS"):
        monkeypatch.setattr(registration, name, 0.02)
    # A thread of an earlier test may wait longer.
    monkeypatch.setattr(registration, "_running", registration._RunningWrites())


def play(
    address: LakeAddress,
    mode: Mode,
    version: Version,
    seed: int,
    steps: int,
    store: ObjectStore | None = None,
    session: SparkSession | None = None,
) -> Lake:
    """A history. DuckDB goes through the one of a version that it does not know in the version before; the rest goes on without it."""
    draw = Random(time.time_ns() if seed == NEW else seed)
    seeds = [draw.randrange(2**30) for _ in range(steps)]
    migrates_at_once = mode == "duckdb" and version not in READS
    options, encrypted = f"DATA_INLINING_ROW_LIMIT {draw.choice((10, 10, 0))}", draw.random() < 0.25 and mode != "second"
    if mode == "duckdb":
        encrypted = encrypted and not migrates_at_once
        options += ", ENCRYPTED" if encrypted else ""
    migrates = mode == "second" and version == "1.0"
    with Lake(address, options, mode=mode, version=version, encrypted=encrypted, migrates=migrates, store=store, session=session) as lake:
        if migrates_at_once:
            live(lake, seeds[: steps * 2 // 3], NOT_COMPARED)
            lake.go_alone(version)
            go_on(lake, seeds[steps * 2 // 3 :])
            end(lake)
        else:
            live(lake, seeds)
    rejected = sum(count for (_, done), count in lake.outcomes.items() if not done)
    assert rejected <= 2 + len(seeds) / 3, f"a history in which little happens: {lake.rejections}"
    return lake


@pytest.mark.parametrize(
    ("lake_address", "mode", "version", "seed", "steps"),
    [
        ("postgresql", "duckdb", "1.0", 1, 12),
        ("sqlite", "second", "1.1", 3, 8),
        slow("sqlite", "duckdb", "1.1", 2, 12),
        slow("postgresql", "second", "1.0", 4, 7),
        slow("sqlite", "alone", "1.1", 5, 10),
        slow("duckdb", "duckdb", "1.0", 6, 10),
    ],
    indirect=["lake_address"],
)
def test_a_short_history(lake_address: LakeAddress, mode: Mode, version: Version, seed: int, steps: int) -> None:
    lake = play(lake_address, mode, version, seed, steps)
    assert len(lake.outcomes) > 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [*SEEDS, NEW])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("mode", ["duckdb", "second", "alone"])
def test_long_histories(lake_address: LakeAddress, mode: Mode, version: Version, seed: int) -> None:
    play(lake_address, mode, version, seed if seed == NEW else 1000 + seed, 40 if mode == "duckdb" else 25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["duckdb", "alone"])
@pytest.mark.parametrize("seed", [*SEEDS, NEW])
def test_histories_on_s3(lake_address: LakeAddress, s3: S3Server, mode: Mode, seed: int) -> None:
    store = s3_store(s3)
    address = store.lake(lake_address, f"{lake_address.backend}_{mode}_{seed}/files")
    play(address, mode, "1.0", seed if seed == NEW else 2000 + seed, 15, store=store)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [*SEEDS, NEW])
def test_histories_with_executors(lake_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Spark runs the maintenance, and reads what the lake shows."""
    monkeypatch.setattr(flush, "EXECUTOR_ROWS", 1)
    play(lake_address, "duckdb", "1.0", seed if seed == NEW else 3000 + seed, 15, session=spark)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(100, 120), range(200, 230), [NEW] * 20], ids=["first", "second", "new"])
def test_histories_read_by_spark(lake_address: LakeAddress, spark: SparkSession, seeds: Sequence[int]) -> None:
    draw = Random()
    with Lake(lake_address, "DATA_INLINING_ROW_LIMIT 10") as lake:
        live(lake, [draw.randrange(2**30) if seed == NEW else seed for seed in seeds], conditions=NOT_COMPARED)
        assert compare_on_spark(lake, spark, seed=1, earlier=2) >= 3
