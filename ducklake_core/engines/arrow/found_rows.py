"""Rows of a file that are wanted, held until the columns that only the result needs are decoded for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Held: TypeAlias = "Mapping[int, pa.Array[Any]]"
"""Arrays of a file's columns by their places in it."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows that are wanted: their positions in the file, and the columns that were decoded to find them."""

    positions: npt.NDArray[np.int64]
    held: Held

    @property
    def bytes(self) -> int:
        """Bytes in memory."""
        found: int = self.positions.nbytes + sum(values.nbytes for values in self.held.values())
        return found

    def part(self, start: int, end: int) -> FoundRows:
        """Some of the rows, by their numbers among them; not a copy."""
        return FoundRows(self.positions[start:end], {place: values.slice(start, end - start) for place, values in self.held.items()})


class FoundAhead:
    """What a first pass over a file finds, taken by a second one that is behind it.

    Args:
        batches: For each batch of the first pass the position behind its last row, and what was found in it, None when nothing was.
    """

    def __init__(self, batches: Iterator[tuple[int, FoundRows | None]]) -> None:
        self._batches = batches
        self._reached = -1
        self._has_ended = False
        self._found_bytes = 0
        self._waiting: deque[FoundRows] = deque()

    @property
    def is_done(self) -> bool:
        """Whether the first pass has ended, and all that it found was taken."""
        return self._has_ended and not self._waiting

    @property
    def last(self) -> int | None:
        """The last position of all that was found, None while the first pass may find more, or where nothing is waiting."""
        return int(self._waiting[-1].positions[-1]) if self._has_ended and self._waiting else None

    def look(self, most: int) -> bool:
        """Look for rows until so many bytes of them are held, or all is looked at; False when there are none."""
        while (not self._waiting or self._found_bytes < most) and self._advance():
            pass
        return bool(self._waiting)

    def until(self, position: int) -> FoundRows | None:
        """The rows before a position that were not taken yet, None when there are none."""
        while self._reached < position and self._advance():
            pass
        parts: list[FoundRows] = []
        while self._waiting and self._waiting[0].positions[0] < position:
            found = self._waiting.popleft()
            count = len(found.positions)
            cut = int(np.searchsorted(found.positions, position))
            parts.append(found if cut == count else found.part(0, cut))
            if cut < count:
                self._waiting.appendleft(found.part(cut, count))
        return _joined(parts) if parts else None

    def _advance(self) -> bool:
        for reached, found in self._batches:
            self._reached = reached
            if found is not None:
                self._found_bytes += found.bytes
                self._waiting.append(found)
            return True
        self._has_ended = True
        return False


def _joined(parts: Sequence[FoundRows]) -> FoundRows:
    """Several as one; not a copy where there is one."""
    if len(parts) == 1:
        return parts[0]
    held = {place: pa.chunked_array([part.held[place] for part in parts]).combine_chunks() for place in parts[0].held}
    return FoundRows(np.concatenate([part.positions for part in parts]), held)
