"""A filter on the places of rows, for files of which the driver knows the deleted positions: constants instead of a join.

Most rows need one look into bits that tell of a position whether it is deleted in any of the files. Only where it is, the bits of
the row's own file are looked up by its name. Both are constants of the query, and each is named once: Spark runs a subquery for each
time that a constant is named::

    anywhere   W words: bits of the positions that are deleted in any file, from the word ``first`` on
    by name    for each file W words, without a bit where nothing is deleted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf

from ducklake_core.engines.spark.local_frames import local_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

MOST_WORDS = 1 << 19
"""Words at most, 4 MB, as they travel with each stage that reads the files."""
MOST_NAMES = 4096
SHARE = 0.2
"""Of more rows than this the name would have to be looked at, which takes longer than the join that this saves."""
_COMPARISONS = 30
"""So many names are compared for a row on average at most: a name is looked for in a list."""

_ANYWHERE, _BY_NAME = "_ducklake_anywhere", "_ducklake_by_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBits:
    """Deleted positions of some files.

    Attributes:
        names: The files' names.
        first: The first word of positions that has a bit.
        anywhere: As in the module's picture.
        own: The words of each file.
    """

    names: tuple[str, ...]
    first: int
    anywhere: np.ndarray
    own: tuple[np.ndarray, ...]

    def is_deleted(self, name: str, position: int) -> bool:
        """What the filter finds, for tests.

        Raises:
            KeyError: The name is none of the files', and the position is deleted in one of them.
        """
        word, bit = (position >> 6) - self.first, position & 63
        if not 0 <= word < len(self.anywhere) or not int(self.anywhere[word]) >> bit & 1:
            return False
        if name not in self.names:
            raise KeyError(name)
        return bool(int(self.own[self.names.index(name)][word]) >> bit & 1)


def deleted_bits_of(names: Sequence[str], positions: Sequence[np.ndarray], rows: int) -> DeletedBits | None:
    """Deleted positions of files in the form of the filter; None where a join is cheaper, or the words would be too many.

    Args:
        names: The files' names, distinct.
        positions: Deleted positions of each, ascending.
        rows: Rows of all files together.

    >>> found = deleted_bits_of(["a", "b"], [np.array([70, 200]), np.array([71])], 1000)
    >>> [found.is_deleted(name, place) for name in "ab" for place in (0, 70, 71, 200, 5000)]
    [False, True, False, True, False, False, False, True, False, False]
    """
    changed = [found for found in positions if len(found)]
    if not changed or len(names) > MOST_NAMES:
        return None
    first = min(int(found[0]) for found in changed) >> 6
    words = (max(int(found[-1]) for found in changed) >> 6) + 1 - first
    if words * (len(names) + 1) > MOST_WORDS:
        return None
    flags = np.zeros((len(names), words * 64), dtype=bool)
    for place, found in enumerate(positions):
        flags[place, found - (first << 6)] = True
    anywhere = np.asarray(flags.any(axis=0))
    looked_at = int(np.count_nonzero(anywhere)) * len(names) if len(names) > 1 else 0
    if looked_at > SHARE * rows or looked_at * len(names) / 2 > _COMPARISONS * rows:
        return None
    own = tuple(_packed(one) for one in flags)
    return DeletedBits(names=tuple(names), first=first, anywhere=_packed(anywhere), own=own)


def _packed(flags: np.ndarray) -> np.ndarray:
    return np.packbits(flags, bitorder="little").view("<i8")


def visible_rows(bits: DeletedBits, name: Column, position: Column, session: SparkSession) -> Column:
    """A condition on the name of a row's file and its position in it; a deleted position of an unknown file stops the query."""
    words = pa.list_(pa.int64())
    columns = {
        _ANYWHERE: pa.array([bits.anywhere], words),
        _BY_NAME: pa.array([list(zip(bits.names, bits.own, strict=True))], pa.map_(pa.string(), words)),
    }
    constants = local_frame(session, pa.table(columns))
    anywhere, by_name = (constants.select(column).scalar() for column in columns)
    word, bit = sf.shiftright(position, 6) - bits.first, position.bitwiseAND(63).cast("int")
    place = sf.when(word < len(bits.anywhere), word.cast("int"))
    message = sf.concat(sf.lit("Spark read a file under a name that is not in the plan: "), name)
    stranger = sf.raise_error(message).cast("boolean")
    own = sf.coalesce(sf.getbit(sf.get(sf.try_element_at(by_name, name), place), bit) == 0, stranger)
    return sf.when(sf.getbit(sf.get(anywhere, place), bit) == 1, own).otherwise(sf.lit(True))
