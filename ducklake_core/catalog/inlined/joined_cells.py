"""Cells of SQLite tables of inlined rows, joined to one text for each column and split by Arrow: no Python object is made of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Column, ColumnElement, Connection, func, literal_column, select, text
from sqlalchemy.exc import DBAPIError

from ducklake_core.format.types.arrow_types import ArrowArray
from ducklake_core.format.types.names import folded

_SEPARATOR = "\x1f"
_NULL = "\x1e"
# Not parameters, which SQLite copies for every row: that doubles the time.
_SEPARATOR_IN_SQL: ColumnElement[str] = literal_column(f"'{_SEPARATOR}'")
_NULL_IN_SQL: ColumnElement[str] = literal_column(f"'{_NULL}'")
_PLACES = ("_rowid_", "oid", "rowid")


def declared_types(connection: Connection, table_name: str) -> Mapping[str, str]:
    """The types that the columns of a table are declared with, in capitals, by their names without the case of ASCII letters."""
    rows = connection.execute(text("SELECT name, upper(type) FROM pragma_table_info(:name)"), {"name": table_name}).all()
    return {folded(name): declared for name, declared in rows}


def row_place(declared: Mapping[str, str]) -> ColumnElement[int] | None:
    """SQLite's own number of a row, by which parts of a table are found at once; None where columns have taken all of its names."""
    return next((literal_column(name) for name in _PLACES if name not in declared), None)


def integer_columns(declared: Mapping[str, str], columns: Sequence[Column[Any]]) -> tuple[bool, ...] | None:
    """Whether the cells of each column are integers rather than texts; None when a column may have cells of other types.

    A column that is declared for texts keeps no number (SQLite, Datatypes 3.1), and what is joined of integers is read as integers alone.
    """
    known = [kind for column in columns if (kind := _is_integer(declared.get(folded(str(column.name)), ""))) is not None]
    return tuple(known) if len(known) == len(columns) else None


def _is_integer(declared: str) -> bool | None:
    if "INT" in declared:
        return True
    return False if any(kind in declared for kind in ("CHAR", "CLOB", "TEXT")) else None


def joined_cells(
    connection: Connection, columns: Sequence[Column[Any]], integers: Sequence[bool], condition: ColumnElement[bool]
) -> list[ArrowArray] | None:
    """The cells of each column in the rows that meet a condition, all in one order: int64 or string, NULL for NULL.

    Args:
        integers: Whether the cells of each column are integers.

    Returns:
        No arrays when there are no rows, and None when a cell is something else, or there is no telling where one ends: then each has to be
        fetched.
    """
    # The greatest of integers is a text or a blob where one is among them; of texts it is told how many there are.
    known = [func.max(column) if is_integer else func.count(column) for column, is_integer in zip(columns, integers, strict=True)]
    texts = [func.group_concat(func.ifnull(column, _NULL_IN_SQL), _SEPARATOR_IN_SQL) for column in columns]
    try:
        count, *found = connection.execute(select(func.count(), *known, *texts).select_from(columns[0].table).where(condition)).one()
    except DBAPIError:
        # Texts of more than SQLite joins, or of no UTF-8; what else goes wrong does so again where cells are fetched.
        return None
    if not count:
        return []
    arrays = []
    for place, is_integer in enumerate(integers):
        joined = found[len(columns) + place]
        array = _integers(joined, count, found[place]) if is_integer else _texts(joined, count, found[place])
        if array is None:
            return None
        arrays.append(array)
    return arrays


def _integers(joined: str, count: int, greatest: object) -> ArrowArray | None:
    if isinstance(greatest, str | bytes):
        return None
    cells, nulls = _split(joined)
    try:
        return pc.if_else(nulls, None, cells).cast(pa.int64()) if len(cells) == count else None
    except pa.ArrowInvalid:
        return None


def _texts(joined: str, count: int, present: int) -> ArrowArray | None:
    cells, nulls = _split(joined)
    if len(cells) != count:
        return None
    if present == count:
        return cells
    return pc.if_else(nulls, None, cells) if pc.sum(nulls).as_py() == count - present else None


def _split(joined: str) -> tuple[ArrowArray, ArrowArray]:
    """What is between separators, and whether each is what stands for NULL."""
    cells = pc.split_pattern(pa.array([joined], pa.string()), _SEPARATOR).flatten()
    return cells, pc.equal(cells, _NULL)
