"""Jobs that are cancelled or interrupted: Spark answers before their tasks have ended, and no file stays of those."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import DataFrame

from ducklake_core import DuckLake
from tests.spark.slow_stores import Hanging
from tests.support.oracle import LakeAddress, attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def when_a_file_is_begun(folder: Path, act: Callable[[], object]) -> Iterator[None]:
    def wait() -> None:
        until = time.monotonic() + 200
        while not (folder / "begun").exists() and time.monotonic() < until:
            time.sleep(0.05)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


def cancel(spark: SparkSession) -> None:
    spark.sparkContext.cancelAllJobs()


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["write", "delete", "update", "merge", "compact"])
def test_cancelled(spark: SparkSession, sqlite_address: LakeAddress, tmp_path: Path, operation: str) -> None:
    lake = made(spark, sqlite_address)
    before = files_of(sqlite_address)
    lake._storage = Hanging(folder=str(tmp_path))
    with when_a_file_is_begun(tmp_path, lambda: cancel(spark)), pytest.raises(Exception, match="cancel"):
        run(lake, spark, operation)
    check(sqlite_address, before)


def test_interrupted(spark: SparkSession, sqlite_address: LakeAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C or by Dagster: the call ends while the job runs on."""
    lake = made(spark, sqlite_address)
    before = files_of(sqlite_address)
    lake._storage = Hanging(folder=str(tmp_path))
    running: list[threading.Thread] = []
    collect = type(spark.range(1)).collect

    def interrupted(frame: DataFrame) -> Any:
        def run_on() -> None:
            with suppress(Exception):
                collect(frame)

        running.append(InheritableThread(target=run_on))
        running[-1].start()
        with when_a_file_is_begun(tmp_path, lambda: None):
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(type(spark.range(1)), "collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(lake, spark, "write")
    monkeypatch.undo()
    check(sqlite_address, before)
    running[0].join(200)
    assert not running[0].is_alive()


def made(spark: SparkSession, address: LakeAddress) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    for part in range(2):
        lake.write("t", spark.range(part * 100, part * 100 + 100, 1, 1).selectExpr("id", "id % 2 as p"))
    return lake


def run(lake: DuckLake, spark: SparkSession, operation: str) -> None:
    table = lake.table("t")
    match operation:
        case "write":
            lake.write("t", spark.range(0, 100, 1, 1).selectExpr("id", "id % 2 as p"))
        case "delete":
            table.delete("id % 3 = 1", spark=spark)
        case "update":
            table.update({"p": "p + 1"}, where="id % 3 = 1", spark=spark)
        case "merge":
            table.merge(spark.range(50, 250).selectExpr("id", "7L as p"), on=["id"]).when_matched_update().execute()
        case _:
            lake.merge_adjacent_files("t", spark=spark)


def files_of(address: LakeAddress) -> set[Path]:
    return set(Path(address.data_path).rglob("*.parquet"))


def check(address: LakeAddress, before: set[Path]) -> None:
    assert files_of(address) == before
    # No file appears later either.
    time.sleep(1)
    assert files_of(address) == before
    with attached(address) as duck:
        assert duck.rows("SELECT count(*), sum(p) FROM t") == [(200, 100)]
