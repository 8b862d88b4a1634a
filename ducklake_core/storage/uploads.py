"""Files on their way to an object store: there as a whole once they are closed, or not at all.

Packages of stores finish an upload when its file is closed, or merely collected as garbage: half a file would appear under its final
name, and parts of an upload that nobody finished would stay, unseen and paid for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

_MAX_WAIT = 10.0  # seconds
_MAX_THREADS = 64

_unfinished: list[threading.Thread] = []


def wait_briefly(*work: Callable[[], object]) -> None:
    """Run clean-up in daemon threads and wait for it at most 10 seconds: a store that does not answer must not block the caller.

    Clean-up that takes longer continues in the background, and until it has ended, later calls do not wait at all, and do nothing once 64
    threads are running. Files that remain are orphans, which ``delete_orphaned_files`` deletes.

    Args:
        work: Functions whose errors do not matter to the caller, who has an error to report already.
    """
    _unfinished[:] = [thread for thread in _unfinished if thread.is_alive()]
    if len(_unfinished) + len(work) > _MAX_THREADS:
        return
    wait = 0.0 if _unfinished else _MAX_WAIT
    threads = [threading.Thread(target=_suppressing, args=(one,), name="clean-up", daemon=True) for one in work]
    for thread in threads:
        thread.start()
    end = time.monotonic() + wait
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    _unfinished.extend(thread for thread in threads if thread.is_alive())


def _suppressing(work: Callable[[], object]) -> None:
    with suppress(Exception):
        work()


class Upload(pa.PythonFile):  # type: ignore[misc]
    """A new object. What fails while it is written or closed gives it up, as :meth:`discard` does."""

    _whole: _Whole

    @classmethod
    def of(cls, file: Any) -> Upload:
        """The upload that ends in a file of fsspec's, opened for writing."""
        whole = _Whole(file)
        made = cls(whole, mode="w")
        made._whole = whole
        return made

    def discard(self) -> None:
        """Give the upload up: no object appears, and no parts stay. What is written from then on goes nowhere.

        Does nothing once the file is closed.
        """
        self._whole.discard()


def discard(sink: pa.NativeFile) -> None:
    """Make sure that no object comes of a file when it is closed."""
    if isinstance(sink, Upload):
        sink.discard()


class _Whole:
    """The file object that pyarrow writes to."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._given_up = False
        self.closed = False

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return int(self._file.tell())

    def flush(self) -> None:
        """Parts are sent when they are large enough."""

    def write(self, data: Any) -> int:
        if self._given_up:
            return len(data)
        try:
            return int(self._file.write(data))
        except BaseException:
            self.discard()
            raise

    def close(self) -> None:
        if not (self.closed or self._given_up):
            try:
                self._file.close()
            except BaseException:
                self.discard()
                raise
        self.closed = True

    def discard(self) -> None:
        if self.closed or self._given_up:
            return
        self._given_up = True
        # What cannot be given up is left to the store's own rules for old uploads.
        wait_briefly(self._abort)
        # Or its package would finish it as soon as it is collected.
        with suppress(AttributeError):
            self._file.closed = True

    def _abort(self) -> None:
        self._file.discard()

    def __del__(self) -> None:
        self.discard()
