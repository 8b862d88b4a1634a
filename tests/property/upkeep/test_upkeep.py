"""Histories of changes and maintenance by both, on each catalog database."""

from __future__ import annotations

import os
from random import Random
from typing import Literal

import pytest
from pyspark.sql import SparkSession

from ducklake_core.commit import registration
from ducklake_core.maintenance import flush
from tests.property.upkeep.alone import make_keeping
from tests.property.upkeep.keeping import Keeping
from tests.support.object_stores import ObjectStore, s3_store
from tests.support.oracle import LakeAddress
from tests.support.parameters import on_postgresql
from tests.support.s3 import S3Server

pytestmark = on_postgresql

_SEEDS = range(int(os.environ.get("DUCKLAKE_UPKEEP_FIRST", "0")), int(os.environ.get("DUCKLAKE_UPKEEP_LAST", "8")))


@pytest.fixture(autouse=True)
def _registered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes say that they run as soon as their first file is begun."""
    for name in ("REGISTER_AFTER", "LOOK_EVERY"):
        monkeypatch.setattr(registration, name, 0.02)
    # A thread of an earlier test may wait longer.
    monkeypatch.setattr(registration, "_running", registration._RunningWrites())


def _live(address: LakeAddress, seed: int, steps: int, store: ObjectStore | None = None, session: SparkSession | None = None) -> Keeping:
    draw = Random(seed)
    options = f"DATA_INLINING_ROW_LIMIT {draw.choice((10, 10, 0))}{draw.choice(('', '', ', ENCRYPTED'))}"
    lake = Keeping(address, options, store, session)
    lake.live([draw.randrange(2**30) for _ in range(steps)])
    return lake


def test_a_short_history(lake_address: LakeAddress) -> None:
    kept = _live(lake_address, seed=7, steps=5 if lake_address.backend == "sqlite" else 3)
    assert kept.readings > 5
    assert sum(kept.verbs.values()) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", _SEEDS)
def test_long_histories(lake_address: LakeAddress, seed: int) -> None:
    # Every step reads all snapshots that are left: twice as many steps take four times as long, and find less than other seeds do.
    _live(lake_address, seed=1000 + seed, steps=10)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_long_histories_by_us_alone(lake_address: LakeAddress, version: Literal["1.0", "1.1"], seed: int) -> None:
    draw = Random(3000 + seed)
    kept = make_keeping(lake_address, version, draw)
    kept.live([draw.randrange(2**30) for _ in range(10)])
    assert kept.readings > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", _SEEDS)
def test_long_histories_on_s3(lake_address: LakeAddress, s3: S3Server, seed: int) -> None:
    store = s3_store(s3)
    address = store.lake(lake_address, f"{lake_address.backend}_{seed}/files")
    _live(address, seed=1000 + seed, steps=6, store=store)


@pytest.mark.slow
@pytest.mark.parametrize("seed", _SEEDS)
def test_long_histories_by_executors(lake_address: LakeAddress, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(flush, "EXECUTOR_ROWS", 1)
    _live(lake_address, seed=2000 + seed, steps=8, session=spark)
