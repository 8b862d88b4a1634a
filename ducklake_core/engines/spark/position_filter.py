"""A filter on the places of rows, for files of which the driver knows the deleted positions: constants instead of a join.

Most rows need one look into bits that tell of a position whether it is deleted in any of the files. Only where it is, the row's
file is found by a perfect hash of its name, and its own bits are asked. All of it is one array of longs::

    any       A words: bits of the positions that are deleted in any file, from the word ``first`` on
    seeds     B longs: by the lowest bits of a name's checksum, what makes its slot its own
    rows      S longs: by slot, where the file's own bits begin in the array
    bits      for each file with deletes A words, and A words without a bit for all others
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

MOST_WORDS = 1 << 18
"""Words of the array at most, 2 MB, as they travel with each stage that reads the files."""
MOST_NAMES = 4096
SHARE = 0.2
"""Of more rows than this the name would have to be looked at, which takes longer than the join that this saves."""

_MULTIPLIER = 0x5BD1E995  # odd, and below 2^31: the product with 32 bits fits into a long
_TRIES = 1 << 16
_LONGS, _NAMES = "_ducklake_longs", "_ducklake_names"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBits:
    """Deleted positions of some files as one array.

    Attributes:
        longs: As in the module's picture.
        names: The name of the file by slot, None for a free slot.
        first: The first word of positions that has a bit.
        words: Words in ``any``, and of each file.
        seeds: A power of two: how many seeds there are.
    """

    longs: np.ndarray
    names: tuple[str | None, ...]
    first: int
    words: int
    seeds: int

    def is_deleted(self, name: str, position: int) -> bool:
        """What the filter finds, for tests.

        Raises:
            KeyError: The name is none of the files', and the position is deleted in one of them.
        """
        word, bit = (position >> 6) - self.first, position & 63
        if not 0 <= word < self.words or not int(self.longs[word]) >> bit & 1:
            return False
        checksum = zlib.crc32(name.encode())
        place = _slot(checksum, int(self.longs[self.words + (checksum & (self.seeds - 1))]), len(self.names))
        if self.names[place] != name:
            raise KeyError(name)
        return bool(int(self.longs[int(self.longs[self.words + self.seeds + place]) + word]) >> bit & 1)


def deleted_bits_of(names: Sequence[str], positions: Sequence[np.ndarray], rows: int) -> DeletedBits | None:
    """Deleted positions of files in the form of the filter; None where a join is cheaper, or the array would be too large.

    Args:
        names: The files' names, distinct.
        positions: Deleted positions of each, ascending.
        rows: Rows of all files together.

    >>> found = deleted_bits_of(["a", "b"], [np.array([70, 200]), np.array([71])], 1000)
    >>> [found.is_deleted(name, place) for name in "ab" for place in (0, 70, 71, 200, 5000)]
    [False, True, False, True, False, False, False, True, False, False]
    """
    changed = [place for place, found in enumerate(positions) if len(found)]
    if not changed or len(names) > MOST_NAMES:
        return None
    first = min(int(positions[place][0]) for place in changed) >> 6
    words = (max(int(positions[place][-1]) for place in changed) >> 6) + 1 - first
    blocks = len(changed) + (len(changed) < len(names))
    slots = _slots_of(names) if words * (blocks + 1) <= MOST_WORDS else None
    if slots is None:
        return None
    flags = np.zeros((blocks, words * 64), dtype=bool)
    for block, place in enumerate(changed):
        flags[block, positions[place] - (first << 6)] = True
    anywhere = np.asarray(flags.any(axis=0))
    if len(changed) > 1 and np.count_nonzero(anywhere) * len(names) > SHARE * rows:
        return None
    seeds, where = slots
    start = words + len(seeds) + len(where)
    begins = {place: start + block * words for block, place in enumerate(changed)}
    last = start + (blocks - 1) * words
    rows_of = np.array([0 if place is None else begins.get(place, last) for place in where], dtype=np.int64)
    longs = np.concatenate([_packed(anywhere), np.array(seeds, dtype=np.int64), rows_of, _packed(flags.reshape(-1))])
    by_slot = tuple(None if place is None else names[place] for place in where)
    return DeletedBits(longs=longs, names=by_slot, first=first, words=words, seeds=len(seeds))


def _packed(flags: np.ndarray) -> np.ndarray:
    return np.packbits(flags, bitorder="little").view("<i8")


def _slot(checksum: int, seed: int, count: int) -> int:
    return (((checksum ^ seed) * _MULTIPLIER & 0xFFFFFFFF) * count) >> 32


def _slots_of(names: Sequence[str]) -> tuple[list[int], list[int | None]] | None:
    """A seed for each bucket of checksums with which its names have slots of their own, and the place of the name in each slot."""
    count = 1 << max(1, (len(names) - 1).bit_length())
    seeds, slots = [0] * count, [None] * (2 * count)  # type: tuple[list[int], list[int | None]]
    buckets: dict[int, list[tuple[int, int]]] = {}
    for place, name in enumerate(names):
        checksum = zlib.crc32(name.encode())
        buckets.setdefault(checksum & (count - 1), []).append((checksum, place))
    for bucket, members in sorted(buckets.items(), key=lambda one: -len(one[1])):
        for seed in itertools.islice(itertools.count(), _TRIES):
            places = {_slot(checksum, seed * 0x9E3779B1 & 0xFFFFFFFF, len(slots)) for checksum, _ in members}
            if len(places) == len(members) and all(slots[one] is None for one in places):
                break
        else:
            return None  # two names have one checksum
        seeds[bucket] = seed * 0x9E3779B1 & 0xFFFFFFFF
        for checksum, place in members:
            slots[_slot(checksum, seeds[bucket], len(slots))] = place
    return seeds, slots


def visible_rows(bits: DeletedBits, name: Column, position: Column, session: SparkSession) -> Column:
    """A condition on the name of a row's file and its position in it; a deleted position of an unknown file stops the query."""
    columns = {
        _LONGS: pa.array([bits.longs], pa.list_(pa.int64())),
        _NAMES: pa.array([list(bits.names)], pa.list_(pa.string())),
    }
    constants = session.createDataFrame(pa.table(columns))
    longs, names = (constants.select(column).scalar() for column in columns)

    def long_at(place: Column) -> Column:
        return sf.get(longs, place.cast("int"))

    word, bit = sf.shiftright(position, 6) - bits.first, position.bitwiseAND(63).cast("int")
    checksum = sf.crc32(name.cast("binary"))
    seed = long_at(checksum.bitwiseAND(bits.seeds - 1) + bits.words)
    spread = (checksum.bitwiseXOR(seed) * sf.lit(_MULTIPLIER).cast("bigint")).bitwiseAND(sf.lit(0xFFFFFFFF).cast("bigint"))
    slot = sf.shiftright(spread, 32 - (len(bits.names).bit_length() - 1))
    own = long_at(long_at(slot + (bits.words + bits.seeds)) + word)
    message = sf.concat(sf.lit("Spark read a file under a name that is not in the plan: "), name)
    exact = sf.when(sf.get(names, slot.cast("int")) == name, sf.getbit(own, bit) == 0).otherwise(sf.raise_error(message).cast("boolean"))
    anywhere = sf.when(word < bits.words, long_at(word))
    return sf.when(sf.getbit(anywhere, bit) == 1, exact).otherwise(sf.lit(True))
