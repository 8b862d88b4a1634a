"""Planning leaves Python's garbage collector as it was."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from ducklake_core.format.collector import paused_collector


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_paused_within_the_block_only() -> None:
    with paused_collector():
        assert not gc.isenabled()
        with paused_collector():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_errors_end_the_pause() -> None:
    with pytest.raises(ValueError, match="no"), paused_collector():
        raise ValueError("no")
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off() -> None:
    gc.disable()
    with paused_collector():
        pass
    assert not gc.isenabled()


def test_the_last_of_several_threads_ends_the_pause() -> None:
    entered, leave = threading.Barrier(3), threading.Event()

    def work() -> None:
        with paused_collector():
            entered.wait()
            leave.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait()
    with paused_collector():
        pass
    assert not gc.isenabled()
    leave.set()
    for thread in threads:
        thread.join()
    assert gc.isenabled()
