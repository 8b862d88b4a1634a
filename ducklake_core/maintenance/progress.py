"""How far a maintenance verb is, told to whoever called it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from ducklake_core.maintenance.sizes import format_bytes
from ducklake_core.storage.listing import StoredFile

_LISTED_AT_ONCE = 1000

ProgressUnit: TypeAlias = Literal["files", "groups", "tables", "snapshots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a verb is.

    A verb has one phase or several (``list files``, ``delete files``), each of which counts from 0 on. A checkpoint tells of the verbs
    that it runs, by their names.

    Attributes:
        verb: The verb, as it is called.
        phase: What it is doing, in words.
        table: The table of what was done last, or is being done; None where it is about the lake.
        unit: What ``done`` and ``total`` count: files, groups of files (each becomes one file or a few), tables or snapshots.
        done: How many of them have ended, be it with a failure.
        total: How many there are, None while nobody knows. More when a table has to be planned again.
        rows: Rows of what has ended, where the catalog knows them, and ``bytes`` likewise.
        seconds: Time since the verb was called.
        seconds_left: Time until the phase is over, estimated by bytes or rows where they are known and else by ``done``; None while
            nothing has ended or nobody knows how much there is.
    """

    verb: str
    phase: str
    unit: ProgressUnit
    done: int
    table: str | None = None
    total: int | None = None
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        sizes = [f"{self.rows} rows"] if self.rows else []
        sizes += [format_bytes(self.bytes)] if self.bytes else []
        left = "" if self.seconds_left is None else f", {self.seconds_left:.0f} s left"
        table = "" if self.table is None else f" {self.table}"
        return f"{self.verb}{table}: {', '.join([f'{self.done}{of} {self.unit}', *sizes])} in {self.seconds:.0f} s{left} ({self.phase})"


ProgressCallback: TypeAlias = Callable[[Progress], object]
"""Called in the thread that called the verb, at the beginning of a phase and whenever something has ended. What it raises ends the verb as
Ctrl-C does: what is committed or deleted stays, and no file is left behind."""


class ProgressMeter:
    """Counts what a call of a verb has done, and tells a callback. The clock runs from the beginning on."""

    def __init__(self, callback: ProgressCallback | None = None) -> None:
        self._callback = callback
        self._started = time.monotonic()
        self._now = Progress(verb="", phase="", unit="files", done=0)
        self._phase_started = self._started
        self._whole, self._ended = 0, 0

    def begin(self, verb: str, phase: str, unit: ProgressUnit, total: int | None, *, weight: int = 0) -> None:
        """Begin a phase.

        Args:
            weight: The sum of the weights of all that is to be done, such as bytes, by which time is estimated.
        """
        self._phase_started = time.monotonic()
        self._whole, self._ended = weight, 0
        self._tell(Progress(verb=verb, phase=phase, unit=unit, done=0, total=total))

    def extend(self, count: int, *, weight: int = 0) -> None:
        """There is more to do than was said."""
        now = self._now
        self._whole += weight
        self._tell(replace(now, total=None if now.total is None else now.total + count))

    def at(self, table: str) -> None:
        """Begin with a table."""
        self._tell(replace(self._now, table=table))

    def advance(self, count: int = 1, *, rows: int = 0, size: int = 0, weight: int = 0, table: str | None = None) -> None:
        """Something has ended.

        Args:
            count: How much of it.
            rows: Its rows, and ``size`` its bytes.
            weight: Its part of the weight of all.
            table: The table that it is of, where that was not said before.
        """
        now = self._now
        self._ended += weight
        self._tell(replace(now, done=now.done + count, rows=now.rows + rows, bytes=now.bytes + size, table=table or now.table))

    def _tell(self, now: Progress) -> None:
        self._now = now
        if self._callback is None:
            return
        moment = time.monotonic()
        done, whole = (self._ended, self._whole) if self._whole else (now.done, now.total or 0)
        spent = moment - self._phase_started
        left = spent * max(0, whole - done) / done if done and whole else None
        self._callback(replace(now, seconds=moment - self._started, seconds_left=left))


def listed_with_progress(files: Iterable[StoredFile], verb: str, progress: ProgressMeter) -> Iterator[StoredFile]:
    """The files of a store as they are listed; how many there are is known at the end alone."""
    progress.begin(verb, "list files", "files", None)
    count = size = 0
    for file in files:
        count, size = count + 1, size + file.size
        if count == _LISTED_AT_ONCE:
            progress.advance(count, size=size)
            count = size = 0
        yield file
    progress.advance(count, size=size)
