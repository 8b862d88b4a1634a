"""A filter on the places of rows, for files of which the driver knows the deleted positions: constants instead of a join.

Most rows need one look into bits that tell of a position whether it is deleted in any of the files. Only where it is, the name of the
row's file is looked at, unless the rows are of one file alone: it is compared with that of the only file with deletes, or leads to the
bits of its own file. Bits are constants of the query, and each is named once: Spark runs a subquery for each time that one is named::

    anywhere   W words: bits of the positions that are deleted in any file, from the word ``first`` on
    by name    for each file W words, without a bit where nothing is deleted, in buckets by the checksum of its name
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from ducklake_core.engines.spark.local_frames import local_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_WORDS = 1 << 20
"""Words at most, 8 MB, as they travel with each stage that reads the files."""
MOST_NAMES = 4096
SHARE = 0.2
"""Of more rows than this the name would have to be looked at, which takes longer than the join that this saves."""
_MOST_ROWS = 1 << 37
"""The numbers of the words of so many rows are integers of 32 bits."""

_MOST_COMPARED = 8
"""Among so many files the only one with deletes is told by its name: a third of the words, and a subquery less."""

_ANYWHERE, _BY_NAME = "_ducklake_anywhere", "_ducklake_by_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedBits:
    """Deleted positions of some files.

    Attributes:
        names: The files' names.
        first: The first word of positions that has a bit.
        anywhere: As in the module's picture.
        only: The name of the only file with deletes, among few files; they have no words of their own.
        own: The words of each file.
    """

    names: tuple[str, ...]
    first: int
    anywhere: np.ndarray
    only: str | None
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
        if self.only is not None:
            return name == self.only
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
    if not changed or len(names) > MOST_NAMES or rows > _MOST_ROWS:
        return None
    first = min(int(found[0]) for found in changed) >> 6
    words = (max(int(found[-1]) for found in changed) >> 6) + 1 - first
    is_compared = len(changed) == 1 and len(names) <= _MOST_COMPARED
    if words * (1 if is_compared else len(names) + 1) > MOST_WORDS:
        return None
    if is_compared:
        only = next(name for name, found in zip(names, positions, strict=True) if len(found))
        return DeletedBits(names=tuple(names), first=first, anywhere=_words(changed[0] - (first << 6), words), only=only, own=())
    own = tuple(_words(found - (first << 6), words) for found in positions)
    anywhere = np.asarray(np.bitwise_or.reduce(own))
    if int(np.unpackbits(anywhere.view(np.uint8)).sum()) * len(names) > SHARE * rows:
        return None
    return DeletedBits(names=tuple(names), first=first, anywhere=anywhere, only=None, own=own)


def _words(places: np.ndarray, count: int) -> np.ndarray:
    flags = np.zeros(count * 64, dtype=bool)
    flags[places] = True
    return np.packbits(flags, bitorder="little").view("<i8")


def visible_rows(rows: DataFrame, bits: DeletedBits, session: SparkSession, position: str, name: str | None = None) -> DataFrame:
    """Rows that are not deleted; one without a position stops the query, and a deleted one of an unknown file.

    Whatever the filter names Spark evaluates for each row, before the conditions of whoever filters the frame.

    Args:
        rows: Rows with their places.
        bits: The deleted positions.
        session: The session of the rows.
        position: Column of the position of a row in its file.
        name: Column of the name of the row's file; None where ``bits`` are of one file.
    """
    words = ArrayType(LongType(), False)
    columns = {_ANYWHERE: pa.array([bits.anywhere], pa.list_(pa.int64()))}
    fields = [StructField(_ANYWHERE, words, False)]
    if bits.own:
        columns[_BY_NAME] = pa.array([_buckets(bits)], pa.list_(pa.map_(pa.string(), pa.list_(pa.int64()))))
        fields.append(StructField(_BY_NAME, ArrayType(MapType(StringType(), words, False), False), False))
    frame = local_frame(session, pa.table(columns), StructType(fields))
    # As columns of the rows they would count as part of each row where Spark keeps them apart, which a correlated subquery in a user's
    # filter makes it do: small tables would then be too large to broadcast.
    anywhere, *by_name = (frame.select(column).scalar() for column in columns)
    hidden = sf.lit(False)
    if name is not None:
        if bits.only is not None:
            others = [one for one in bits.names if one != bits.only]
            is_visible = sf.when(sf.col(name) == bits.only, sf.lit(False)).when(sf.col(name).isin(others), sf.lit(True))
        else:
            # Spark looks for a key of a map in all of it.
            bucket = sf.expr(f"CAST(pmod(crc32({name}), {len(bits.names)}) AS INT)")
            is_visible = _bit(sf.try_element_at(sf.get(by_name[0], bucket), sf.col(name)), position, bits.first) == 0
        hidden = sf.coalesce(is_visible, _stop(f"concat('Spark read a file under a name that is not in the plan: ', {name})"))
    lost = _stop("'Spark read a row without telling its position in its file, by which deleted rows are left out'")
    # A comparison as the whole of the condition Spark would take for one that leaves few rows, and make filters for joins of it.
    is_deleted = _bit(anywhere, position, bits.first) == 1
    return rows.filter(sf.when(is_deleted, hidden).when(sf.expr(f"{position} IS NULL"), lost).otherwise(sf.lit(True)))


def _buckets(bits: DeletedBits) -> list[list[tuple[str, np.ndarray]]]:
    """As many buckets as names, each with the words of its names."""
    buckets: list[list[tuple[str, np.ndarray]]] = [[] for _ in bits.names]
    for name, words in zip(bits.names, bits.own, strict=True):
        buckets[crc32(name.encode()) % len(buckets)].append((name, words))
    return buckets


def _bit(words: Column, position: str, first: int) -> Column:
    """The bit of a position; NULL outside of the words."""
    word = sf.get(words, sf.expr(f"CAST(shiftright({position}, 6) AS INT) - {first}"))
    return sf.call_function("shiftright", word, sf.expr(f"CAST({position} & 63 AS INT)")).bitwiseAND(1)


def _stop(message: str) -> Column:
    return sf.expr(f"CAST(raise_error({message}) AS BOOLEAN)")
