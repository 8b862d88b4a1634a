"""Waiting for threads ends at a signal, and otherwise with the work."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import polars as pl
import pytest

from ducklake_core.storage.waiting import as_completed, result_of

assert pl.__version__, "importing Polars replaces the handler of SIGINT, and waits without a timeout no longer end at a signal"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as found:
        yield found


@pytest.mark.parametrize("wait", [result_of, lambda future: list(as_completed([future]))])
def test_an_interrupt_ends_the_wait(pool: ThreadPoolExecutor, wait: Callable[[Future[bool]], object]) -> None:
    released = threading.Event()
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    began = time.monotonic()
    try:
        future = pool.submit(released.wait, 10)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait(future)
    finally:
        released.set()
        timer.join()
    assert time.monotonic() - began < 5


def test_futures_come_in_the_order_in_which_they_are_done(pool: ThreadPoolExecutor) -> None:
    released = threading.Event()
    late, early = pool.submit(released.wait, 10), pool.submit(int, "no number")
    found = as_completed([late, early])
    assert next(found) is early
    with pytest.raises(ValueError, match="no number"):
        result_of(early)
    released.set()
    assert [one.result() for one in found] == [True]
    assert list(as_completed([])) == []
