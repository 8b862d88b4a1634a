"""Python's garbage collector, paused while very many objects are made that all stay."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_paused_by = 0


def _forget_parent() -> None:
    """A forked child has none of the threads that may have held the lock, or paused the collector."""
    global _lock, _paused_by  # noqa: PLW0603
    _lock = threading.Lock()
    if _paused_by:
        _paused_by = 0
        gc.enable()


os.register_at_fork(after_in_child=_forget_parent)


@contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the collection of cycles within the block, in all threads; what has no cycles is freed as always.

    The collector looks through all young objects each time some hundred have been made, which doubles the time of making many. A process
    that has turned it off finds it turned off afterwards.
    """
    global _paused_by  # noqa: PLW0603 - the collector is one for the process
    with _lock:
        ours = _paused_by > 0 or gc.isenabled()
        if ours:
            _paused_by += 1
            gc.disable()
    try:
        yield
    finally:
        if ours:
            with _lock:
                _paused_by = max(0, _paused_by - 1)
                if not _paused_by:
                    gc.enable()
