"""Pruning on PostgreSQL in one reading of the statistics: the database packs what they say into a binary, and sets are compared here.

Without an index every question about statistics reads those of all tables, columns and files, so that there is only one. Of each row of
the wanted columns comes the id of its file, with bits for the exclusions that hold; where the file may stay, the place of the row follows::

    ducklake_data_file           | id: 64 bits |
    ducklake_file_column_stats   | 0 | exclusions: 15 | id: 48 |   and, where the file may stay,   | 1 | 0: 15 | page: 32 | line: 16 |

A file is out when a row of it says so; where the rows of the others are is known then. The database joins nothing, hashes nothing and may
answer with several processes. A place is that of a row in the state that the transaction sees.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
from sqlalchemy import (
    BigInteger,
    ColumnClause,
    ColumnElement,
    FromClause,
    LargeBinary,
    Row,
    Select,
    Text,
    and_,
    any_,
    case,
    cast,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
)
from sqlalchemy.types import UserDefinedType

from ducklake_core.catalog.reading.bounds import AllOf, Exclusion, OutOfBounds

WORK_MEMORY = "256MB"
"""What the server may hold of excluded files: where they do not fit it looks through all of them for each file."""

_MOST_GROUPS = 15
# Of so many columns the places come too, and so many may exclude files: a million files take 8 or 16 MB for each.
_MOST_PLACED = 4
_MOST_COLUMNS = 12
_IDS = 1 << 48
_IS_PLACE = b"\x80\x00"
_place: ColumnClause[Any] = literal_column("ctid")


class _Places(UserDefinedType[Any]):
    """An array of places of rows."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "tid[]"


def groups_of(exclusion: Exclusion) -> list[Sequence[OutOfBounds]]:
    """The conditions on bounds that stand side by side, from all parts of an exclusion, in their order."""
    own: list[Sequence[OutOfBounds]] = [exclusion.bounds] if exclusion.bounds else []
    return [*own, *(group for other in exclusion.others for part in other.parts for group in groups_of(part))]


def packed_columns(exclusion: Exclusion, wanted: frozenset[int]) -> tuple[frozenset[int], bool]:
    """The columns whose statistics are packed, and whether they are all that are wanted, so that their places are of use."""
    if len(wanted) <= _MOST_PLACED:
        return wanted, True
    excluding = dict.fromkeys(one.column.column_id for group in groups_of(exclusion) for one in group)
    return frozenset(islice(excluding, _MOST_COLUMNS)), False


def limited(exclusion: Exclusion, columns: frozenset[int]) -> Exclusion:
    """What some columns say of an exclusion, and no more than there are bits for: it excludes no file that the whole does not."""
    bounds = tuple(one for one in exclusion.bounds if one.column.column_id in columns)
    room, others = _MOST_GROUPS - 1, []
    for other in exclusion.others:
        parts = tuple(limited(part, columns) for part in other.parts)
        counts = [len(groups_of(part)) for part in parts]
        if all(counts) and sum(counts) <= room:
            others.append(AllOf(parts=parts))
            room -= sum(counts)
    return Exclusion(bounds=bounds, others=tuple(others))


def packed_files(file: FromClause, excluded: ColumnElement[bool] | None) -> Select[Any]:
    """One row for files: how many there are (``total``) and have an id (``numbered``), and the ids of those that are not excluded."""
    number = file.c.data_file_id
    left = number if excluded is None else case((excluded, null()), else_=number)
    packed = _joined(func.int8send(left)).label("files")
    columns: list[ColumnElement[Any]] = [func.count().label("total"), func.count(number).label("numbered"), packed]
    return select(*columns).select_from(file)


Places: TypeAlias = Literal["none", "of rows that exclude nothing", "all"]


def packed_rows(
    stats: FromClause, table_id: int, columns: Iterable[int], outside: Sequence[ColumnElement[bool]], places: Places
) -> Select[Any]:
    """One row for rows of statistics, which has all of them as ``statistics``.

    Args:
        stats: The metadata table.
        table_id: The table.
        columns: Ids of the columns. What leaves out most rows is asked first: the database keeps the order.
        outside: The conditions of the exclusion's groups.
        places: Which come along.
    """
    if not outside:
        return select(null().label("statistics"))
    number = stats.c.data_file_id
    bits: list[ColumnElement[Any]] = [case((one, literal(_IDS << bit, BigInteger)), else_=0) for bit, one in enumerate(outside)]
    if len(outside) == 1 and places != "all":
        bits = [literal(_IDS, BigInteger)]
    held = func.int8send(number + reduce(operator.add, bits))
    place = literal(_IS_PLACE, LargeBinary).op("||")(func.tidsend(_place))
    packed: ColumnElement[Any]
    if places == "all":
        packed = held.op("||")(place)
    else:
        packed = case((or_(*outside), held), else_=null() if places == "none" else func.int8send(number).op("||")(place))
    # Were it a condition of the query, the database would ask it of the rows of all columns, before the equalities.
    packed = case((and_(number >= 0, number < _IDS), packed))
    wanted = stats.c.column_id.in_(sorted(columns)), stats.c.table_id == table_id
    return select(_joined(packed).label("statistics")).select_from(stats).where(*wanted)


def _joined(binary: ColumnElement[Any]) -> ColumnElement[bytes]:
    return func.string_agg(binary, literal(b"", LargeBinary))


def is_at(places: Sequence[str]) -> ColumnElement[bool]:
    """The row is at one of some places."""
    return _place == any_(cast(literal("{" + ",".join(f'"{place}"' for place in places) + "}", Text), _Places()))


class PackedSets:
    """What one statement has found out about the files of a table.

    Args:
        row: ``packed_files`` and ``packed_rows``.
        exclusion: The exclusion whose groups the bits are.
        has_places: Whether the rows are all that are wanted of a file that may stay.

    Attributes:
        total: Number of live files.
        by_partition: How many of them are excluded without a look at statistics.
        kept: Ids of the files that nothing excludes, ascending.
    """

    def __init__(self, row: Row[Any], exclusion: Exclusion, *, has_places: bool) -> None:
        self.has_places = has_places
        live, self._words = _words(row.files), _words(row.statistics)
        self.total: int = row.total
        self.by_partition = self.total - len(live)
        groups = (_ids(self._words[(self._words & (_IDS << bit)) != 0]) for bit in range(len(groups_of(exclusion))))
        self.kept = array("q", np.sort(live[np.isin(live, _excluded(exclusion, groups), invert=True)]).astype(np.int64).tobytes())

    def places(self) -> list[str]:
        """Where the rows of statistics of the kept files are."""
        after = np.flatnonzero(self._words < 0)
        found = _ids(self._words[after[np.isin(_ids(self._words[after - 1]), self.kept)]])
        return [f"({place >> 16},{place & 0xFFFF})" for place in found.tolist()]


def _excluded(exclusion: Exclusion, groups: Iterator[np.ndarray]) -> np.ndarray:
    found = [next(groups)] if exclusion.bounds else []
    found += [reduce(np.intersect1d, [_excluded(part, groups) for part in other.parts]) for other in exclusion.others]
    return found[0] if len(found) == 1 else np.concatenate([np.empty(0, np.int64), *found])


def _ids(words: np.ndarray) -> np.ndarray:
    """What the lower bits of words say: ids, or places."""
    return words & (_IDS - 1)


def _words(packed: bytes | None) -> np.ndarray:
    """Numbers of eight bytes, as the database sends them: the first byte is the highest."""
    return np.frombuffer(packed or b"", ">i8").astype(np.int64)
