"""Ctrl-C and other signals during queries reach the caller as what the signal handler raised."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

import polars as pl
import pyarrow as pa
import pytest

from ducklake_core import DuckLake


class Terminated(BaseException):
    """Raised by a handler of SIGTERM."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


assert pl.__version__, "importing Polars replaces the handler of SIGINT, and waits without a timeout no longer end at a signal"

LONG = "SELECT count(*) AS n FROM t a, t b, t c, range(100000) WHERE a.n + b.n + c.n = -1"


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    found = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    found.write("t", pa.table({"n": range(2000)}), inline=False)
    return found


def _run(lake: DuckLake, sql: str) -> None:
    found = lake.sql(sql)
    if sql == LONG:
        found.to_arrow()


STATEMENTS = (LONG, f"CREATE TABLE u AS {LONG}", f"INSERT INTO t {LONG}", f"DELETE FROM t WHERE n IN ({LONG})")
INTERRUPT, TERMINATE = (signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)


@pytest.mark.parametrize(("sql", "sent"), [*((sql, INTERRUPT) for sql in STATEMENTS), (LONG, TERMINATE)], ids=lambda value: str(value)[:6])
def test_signals_during_statements_pass_unchanged(lake: DuckLake, sql: str, sent: tuple[signal.Signals, type[BaseException]]) -> None:
    number, kind = sent
    before = lake.snapshot().id
    former = signal.signal(signal.SIGTERM, _terminate)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), number))
    try:
        timer.start()
        began = time.monotonic()
        with pytest.raises(kind):
            _run(lake, sql)
        assert time.monotonic() - began < 10
    finally:
        timer.join()
        signal.signal(signal.SIGTERM, former)
    assert lake.snapshot().id == before
    assert lake.check(level="rows").is_sound
    lake.close()
