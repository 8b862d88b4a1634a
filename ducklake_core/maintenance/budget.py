"""How much one call of a verb may do: what does not fit is left to the next one, with the bound as its reason."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from ducklake_core.errors import UsageError
from ducklake_core.format.files.data_files import DataFile

OUT_OF_TIME = "beyond max_seconds"
OUT_OF_FILES = "beyond max_files"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bounds of one call over all of its tables; None for no bound.

    Attributes:
        max_input_bytes: Most bytes of data files to read.
        max_files: Most data files to read, or files to delete.
        max_rows: Inlined rows and deletes after which no further table is begun.
        max_seconds: Seconds after which nothing further is begun.
    """

    max_input_bytes: int | None = None
    max_files: int | None = None
    max_rows: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_input_bytes", "max_files", "max_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}", parameter=name)


class BudgetMeter:
    """What is left of a budget while a verb plans and runs. The clock runs from the beginning on."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self._bytes = _or_all(self.budget.max_input_bytes)
        self._files = _or_all(self.budget.max_files)
        self._rows = _or_all(self.budget.max_rows)
        self._deadline = time.monotonic() + _or_all(self.budget.max_seconds)

    @property
    def is_out_of_time(self) -> bool:
        """Whether nothing further may be begun."""
        return time.monotonic() >= self._deadline

    def of_time(self) -> BudgetMeter:
        """A meter with the same end, and no other bound."""
        other = BudgetMeter()
        other._deadline = self._deadline
        return other

    def begin_rows(self, count: int) -> bool:
        """Whether work on so many rows may begin, which are counted then."""
        if self._rows <= 0:
            return False
        self._rows -= count
        return True

    def spend(self, files: Sequence[DataFile]) -> None:
        """Count files that are read."""
        self._files -= len(files)
        self._bytes -= _size(files)

    def refund(self, files: Sequence[DataFile]) -> None:
        """Count files no more, of a plan that another one replaces."""
        self._files += len(files)
        self._bytes += _size(files)

    def first(self, files: Sequence[DataFile]) -> Sequence[DataFile]:
        """As many files from the beginning on as fit."""
        size = 0
        for place, file in enumerate(files):
            size += file.file_size_bytes
            if place >= self._files or size > self._bytes:
                return files[:place]
        return files

    def most(self, files: Sequence[DataFile]) -> Sequence[DataFile]:
        """The longest run of neighbours that fits, and of equally long ones the smallest in bytes.

        So that a small budget, call after call, takes the files that are still small before the one that it made of others.
        """
        best: tuple[int, float] = (0, 0)
        chosen: Sequence[DataFile] = ()
        start, size = 0, 0
        for end, file in enumerate(files, 1):
            size += file.file_size_bytes
            while end - start > self._files or size > self._bytes:
                size -= files[start].file_size_bytes
                start += 1
            if (end - start, -size) > best:
                best, chosen = (end - start, -size), files[start:end]
        return chosen

    def first_deletions(self, files: Sequence[T]) -> Sequence[T]:
        """As many files to delete, from the beginning on, as one call may; their bytes are not read."""
        return files if self.budget.max_files is None else files[: self.budget.max_files]

    def beyond(self, files: Sequence[DataFile], least: int = 1) -> str:
        """The reason why files are left that did not fit, when those that did are counted.

        Args:
            files: Neighbours, in order.
            least: How many of them it takes at once.
        """
        most_files, most_bytes = _or_all(self.budget.max_files), _or_all(self.budget.max_input_bytes)
        if least > most_files:
            return f"a run with max_files={self.budget.max_files} never takes the {least} files that it needs"
        smallest = min(_size(files[start : start + least]) for start in range(max(1, len(files) - least + 1)))
        if smallest > most_bytes:
            return f"too large for any run with max_input_bytes={self.budget.max_input_bytes}"
        return OUT_OF_FILES if self._files < least else "beyond max_input_bytes"


def also_left(left: Iterable[tuple[str, int]], beyond: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """How many files are left by reason, with some more.

    >>> also_left([("beyond max_files", 1)], {"beyond max_files": 2, "beyond max_input_bytes": 1})
    (('beyond max_files', 3), ('beyond max_input_bytes', 1))
    """
    counts = Counter(dict(left))
    counts.update(beyond)
    return tuple(sorted(counts.items()))


def left_text(left: Iterable[tuple[str, int]]) -> str:
    """How many files are left by reason, to follow other counts.

    >>> left_text([("beyond max_files", 3)]), left_text([])
    (', 3 beyond max_files', '')
    """
    return "".join(f", {count} {reason}" for reason, count in left)


def _or_all(bound: float | None) -> float:
    return inf if bound is None else bound


def _size(files: Sequence[DataFile]) -> int:
    return sum(file.file_size_bytes for file in files)
