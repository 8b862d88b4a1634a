"""Histories of changes and maintenance by both, on each catalog database."""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.property.upkeep.keeping import Keeping
from tests.support.object_stores import ObjectStore, s3_store
from tests.support.oracle import LakeAddress
from tests.support.s3 import S3Server

_SEEDS = range(int(os.environ.get("DUCKLAKE_UPKEEP_FIRST", "0")), int(os.environ.get("DUCKLAKE_UPKEEP_LAST", "8")))


def _live(address: LakeAddress, seed: int, steps: int, store: ObjectStore | None = None) -> Keeping:
    draw = Random(seed)
    lake = Keeping(address, draw.choice((10, 10, 0)), store)
    lake.live([draw.randrange(2**30) for _ in range(steps)])
    return lake


@pytest.mark.slow_on("duckdb")
@pytest.mark.some(1)
def test_a_short_history(every_lake_address: LakeAddress) -> None:
    kept = _live(every_lake_address, seed=7, steps=5 if every_lake_address.backend == "sqlite" else 3)
    assert kept.readings > 5
    assert sum(kept.verbs.values()) >= 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", _SEEDS)
def test_long_histories(every_lake_address: LakeAddress, seed: int) -> None:
    # Every step reads all snapshots that are left: four times as many steps take fifteen times as long. Opening a DuckDB file takes
    # longer than reading what is in it.
    kept = _live(every_lake_address, seed=1000 + seed, steps={"sqlite": 20, "duckdb": 8}.get(every_lake_address.backend, 14))
    assert kept.readings > 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", _SEEDS)
def test_long_histories_on_s3(every_lake_address: LakeAddress, s3: S3Server, seed: int) -> None:
    store = s3_store(s3)
    address = store.lake(every_lake_address, f"{every_lake_address.backend}_{seed}/files")
    kept = _live(address, seed=1000 + seed, steps=8, store=store)
    assert kept.readings > 10
