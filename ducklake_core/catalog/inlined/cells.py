"""Convert cells of inlined rows between Arrow and the form in which each kind of database stores them (specification: Data Inlining).

======================  ===================  ==========================  ============================
column                  SQLite, MySQL        PostgreSQL                  DuckDB file
======================  ===================  ==========================  ============================
small integers          integer              integer                     the type of the column
strings, JSON           text                 bytea (UTF-8)               the type of the column
other leaves            text                 the type, or text           the type of the column
lists, maps, structs    text (cast form)     text (cast form)            the type of the column
variants                blob                 bytea                       VARIANT, read as two blobs
======================  ===================  ==========================  ============================

Reading has three speeds, from fast to exact: cells that SQLite joins into one string per column (:func:`joined_cells`), cells that Arrow
converts as one array, and cells that are decoded one by one. A faster way returns None whenever its result might differ.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Column, ColumnElement, Connection, String, case, cast, column, func, literal_column, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import quoted_name

from ducklake_core.catalog.database.abilities import Abilities
from ducklake_core.catalog.inlined.ddl import native_type
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.evolution.promotion import promote
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOATS,
    INT128,
    INTEGERS,
    INTERVAL,
    JSON,
    TIMESTAMP,
    TIMESTAMPTZ,
    UINT128,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
    children_of,
    holds_variants,
    with_children,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import ArrowArray, ArrowType, to_arrow_field, to_arrow_type
from ducklake_core.format.values.arrow_cast import cast_leaf, constant_array, from_values
from ducklake_core.format.values.value_text import Interval, from_cast_text, parse_interval
from ducklake_core.format.values.variant_encoding import plain_metadata

_PLAIN_NUMBERS = frozenset({BLOB, BOOLEAN, DATE, TIMESTAMP, VARCHAR, JSON, *FLOATS, *INTEGERS} - {INT128, UINT128})

NULL_VARIANT = b"\0"
"""Encoding of the variant value null, which reads as NULL, as in files."""
_Convert = Callable[[ColumnElement[Any]], ColumnElement[Any]]
_PLAIN = StructType(fields=(Field(name="metadata", type=BLOB), Field(name="value", type=BLOB)))

# Unit and record separator of ASCII: rare in values, and found again by counting if they occur.
_SEPARATOR = "\x1f"
_NULL = "\x1e"
# Literals, because SQLite copies a bound parameter for every row, which doubles the time.
_SEPARATOR_IN_SQL: ColumnElement[str] = literal_column(f"'{_SEPARATOR}'")
_NULL_IN_SQL: ColumnElement[str] = literal_column(f"'{_NULL}'")
_DECIMALS = ("_rowid_", "oid", "rowid")

Value = TypeVar("Value")
MARK = " "
"""Marks, after the first brace, a struct that this library wrote as cast text, where a SQL literal would mean something else."""
_TYPE_SUFFIX = re.compile(r"::[A-Za-z_0-9 ]+(\([0-9, ]+\))?")


def cells_array(cells: Sequence[Any] | ArrowArray, old: Field, new: Field, abilities: Abilities) -> ArrowArray:
    """Convert the cells of a column to an array with the present type of the column.

    Args:
        cells: Cells as Python values or as an Arrow array.
        old: The column as it was when the cells were stored.
        new: The column now.
        abilities: Abilities of the database.

    Raises:
        SchemaError: A cell is not a value of the column; Arrow may raise its own error instead.
        UnsupportedFeatureError: The column cannot be read from this database.
    """
    quick = _plain_array(cells, old)
    if quick is not None:
        return quick if old.type == new.type else promote(quick, new)
    values = cells.to_pylist() if isinstance(cells, pa.Array) else cells
    return stored_array([_decoded(cell, old, abilities) for cell in values], old, new)


def _plain_array(cells: Sequence[Any] | ArrowArray, column: Field) -> ArrowArray | None:
    """Return cells that Arrow converts correctly, many times as fast; None if any cell needs individual decoding."""
    if not (column.type in _PLAIN_NUMBERS or isinstance(column.type, DecimalType)):
        return None
    try:
        return _converted(found_array(cells, integers=column.type in INTEGERS), column.type)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        # Cells of several types, or invalid values: individual decoding finds the wrong one.
        return None


def found_array(cells: Sequence[Any] | ArrowArray, *, integers: bool = False) -> ArrowArray:
    """Return cells as an array of their own type, with NULL for None; an array is returned unchanged.

    Args:
        cells: The cells.
        integers: Whether they are probably integers without NULL, which ``array`` converts in half of the time; default False.

    Raises:
        pyarrow.ArrowException, ValueError, OverflowError, TypeError: They have several types, or no Arrow type.
    """
    if isinstance(cells, pa.Array):
        return cells
    if integers:
        with suppress(TypeError, OverflowError):
            return pa.Array.from_buffers(pa.int64(), len(cells), [None, pa.py_buffer(array("q", cells))])
    return pa.array(cells)


def _converted(found: ArrowArray, wanted: DataType) -> ArrowArray | None:
    """Return cells, in the type that Arrow found, as values of a column; None if Arrow may convert them differently than this library."""
    if pa.types.is_null(found.type):
        found = found.cast(pa.string())
        return cast_leaf(found, wanted, physical=False) if wanted in (VARCHAR, JSON) else found.cast(to_arrow_type(wanted))
    match wanted:
        case PrimitiveType(name="varchar" | "json") if pa.types.is_string(found.type) or pa.types.is_binary(found.type):
            return cast_leaf(found.cast(pa.string()), wanted, physical=False)
        case PrimitiveType(name="blob"):
            return found if pa.types.is_binary(found.type) else None
        case PrimitiveType(name="boolean"):
            return found.cast(pa.bool_()) if pa.types.is_boolean(found.type) or _is_zero_or_one(found) else None
        case PrimitiveType(name="float64" | "float32") if pa.types.is_float64(found.type):
            return found.cast(to_arrow_type(wanted))
        case PrimitiveType(name="float64" | "date" | "timestamp") | DecimalType() if pa.types.is_string(found.type):
            # Arrow also accepts times with hours only, which are invalid here.
            is_short = wanted == TIMESTAMP and pc.min(pc.binary_length(found)).as_py() < len("2024-01-01 00:00:00")
            return None if is_short else found.cast(to_arrow_type(wanted))
        case _ if wanted in INTEGERS and pa.types.is_int64(found.type):
            return found.cast(to_arrow_type(wanted))
        case _:
            return None


def _is_zero_or_one(found: ArrowArray) -> bool:
    if not pa.types.is_int64(found.type):
        return False
    bounds: Any = pc.min_max(found).as_py()
    return bool(0 <= bounds["min"] <= bounds["max"] <= 1)


def _decoded(cell: Any, column: Field, abilities: Abilities) -> object:
    """Return the Python form of a cell that any of the databases stores."""
    match column.type, cell:
        case _, None:
            return None
        case PrimitiveType(name="boolean"), 0 | 1:
            return bool(cell)
        case PrimitiveType(name="blob"), bytes() | memoryview():
            return bytes(cell)
        case PrimitiveType(name="varchar" | "json"), bytes() | memoryview():
            return bytes(cell).decode()
        case PrimitiveType(name="varchar" | "json"), str():
            return cell
        case PrimitiveType(name="variant"), {"metadata": bytes(), "value": bytes() as value}:
            return None if value == NULL_VARIANT else cell
        case PrimitiveType(name="variant"), bytes() | memoryview() if not abilities.inlined_as_is:
            found = split_variant(bytes(cell))
            return None if found["value"] == NULL_VARIANT else found
        case PrimitiveType(name="variant" | "geometry"), _:
            raise UnsupportedFeatureError(f"inlined values of type {column.type} are not supported", column=column.name)
        case PrimitiveType(), int():
            if column.type != BOOLEAN:
                return cell
            raise SchemaError(f"{cell} is neither true nor false")
        case PrimitiveType(), float() if column.type in FLOATS or cell.is_integer():
            return cell
        case ((ListType() | MapType() | StructType()), str()):
            held = plain_type(column.type) if abilities.inlined_as_is else column.type
            return parse_nested(cell, held, literal_structs=not abilities.inlined_as_is)
        case ((PrimitiveType() | DecimalType()), str()):
            return parse_leaf(cell, column.type)
        case _:
            raise SchemaError(f"{cell!r} is not a value of type {column.type}")


def stored_array(values: Sequence[Any], old: Field, new: Field) -> ArrowArray:
    """Convert Python values to an array with the present type of a column; children are matched by id.

    Args:
        values: Values with the old type.
        old: The column as it was when the values were stored.
        new: The column now.
    """
    match old.type, new.type:
        case StructType(), StructType(fields=fields):
            children = _children(old)
            arrays = [_member(values, children.get(field.id), field) for field in fields]
            nulls = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=[to_arrow_field(field) for field in fields], mask=nulls)
        case ListType(element=before), ListType(element=after):
            flat = [item for value in values if value is not None for item in value]
            return _list_array(pa.ListArray, _offsets(values), stored_array(flat, before, after), type=to_arrow_type(new.type))
        case MapType(key=old_key, value=old_value), MapType(key=new_key, value=new_value):
            pairs = [pair for value in values if value is not None for pair in value]
            keys = stored_array([key for key, _ in pairs], old_key, new_key)
            items = stored_array([value for _, value in pairs], old_value, new_value)
            return _list_array(pa.MapArray, _offsets(values), keys, items, type=to_arrow_type(new.type))
        case PrimitiveType(name="variant"), _:
            return from_values([_as_in_files(value) for value in values], old.type)
        case _:
            stored = from_values(values, old.type)
            return stored if old.type == new.type else promote(stored, new)


def _as_in_files(variant: Any) -> object:
    """Return a variant as files store it: NULL for null, and a dictionary that is marked as sorted only if it is."""
    if variant is None or variant["value"] == NULL_VARIANT:
        return None
    return {"metadata": plain_metadata(variant["metadata"]), "value": variant["value"]}


def _list_array(kind: Any, *parts: ArrowArray, type: ArrowType) -> ArrowArray:  # noqa: A002
    return kind.from_arrays(*parts, type=type)


def _children(field: Field) -> dict[int, Field]:
    return {child.id: child for child in field.children}


def _member(values: Sequence[Any], old: Field | None, new: Field) -> ArrowArray:
    if old is None:
        return constant_array(new.initial_default, new, len(values))
    return stored_array([None if value is None else value.get(old.name) for value in values], old, new)


def _offsets(values: Iterable[Any]) -> ArrowArray:
    """Return the offset of each list; Arrow makes a list NULL if its offset is NULL."""
    found: list[int | None] = []
    end = 0
    for value in values:
        found.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*found, end], pa.int32())


def declared_types(connection: Connection, table_name: str) -> Mapping[str, str]:
    """Return the declared types of the columns of a SQLite table, in upper case, by their folded names."""
    rows = connection.execute(text("SELECT name, upper(type) FROM pragma_table_info(:name)"), {"name": table_name}).all()
    return {folded(name): declared for name, declared in rows}


def row_index(declared: Mapping[str, str]) -> ColumnElement[int] | None:
    """Return SQLite's row number, which is the key of the table; None if columns use all of its three names."""
    return next((literal_column(name) for name in _DECIMALS if name not in declared), None)


def integer_columns(declared: Mapping[str, str], columns: Sequence[Column[Any]]) -> tuple[bool, ...] | None:
    """Return, for each column, whether its cells are integers rather than strings; None if a column may have cells of other types.

    SQLite converts numbers in a column of text affinity to text (SQLite, Datatypes 3.1). Integer columns are checked when they are read.
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
    """Return the cells of each column in the rows that match a condition, joined by SQLite into one string per column.

    The driver creates a Python object for each cell, which takes most of the time of a read; here it creates one per column::

        group_concat(ifnull(c, NULL mark), separator)  ->  "1<sep>2<sep><null>"  ->  split by Arrow  ->  [1, 2, NULL]

    Args:
        connection: A connection to SQLite.
        columns: The columns.
        integers: Whether the cells of each column are integers.
        condition: Condition of the rows.

    Returns:
        Arrays of int64 or string in the same order of rows; none without rows. None if a cell has another type or contains a separator:
        the cells must be fetched then.
    """
    # SQLite orders integers before strings and blobs, so the maximum shows whether any cell is not an integer. For strings, the count of
    # non-NULL cells shows whether a cell looks like the NULL mark.
    known = [func.max(column) if is_integer else func.count(column) for column, is_integer in zip(columns, integers, strict=True)]
    joined_columns = [func.group_concat(func.ifnull(column, _NULL_IN_SQL), _SEPARATOR_IN_SQL) for column in columns]
    try:
        count, *found = connection.execute(
            select(func.count(), *known, *joined_columns).select_from(columns[0].table).where(condition)
        ).one()
    except DBAPIError:
        # The joined string is too long or not UTF-8. Any other error occurs again when the cells are fetched.
        return None
    if not count:
        return []
    arrays = []
    for place, is_integer in enumerate(integers):
        joined = found[len(columns) + place]
        array = _integers(joined, count, found[place]) if is_integer else _strings(joined, count, found[place])
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


def _strings(joined: str, count: int, present: int) -> ArrowArray | None:
    cells, nulls = _split(joined)
    if len(cells) != count:
        return None
    if present == count:
        return cells
    return pc.if_else(nulls, None, cells) if pc.sum(nulls).as_py() == count - present else None


def _split(joined: str) -> tuple[ArrowArray, ArrowArray]:
    """Return the parts between separators, and whether each part is the NULL mark."""
    cells = pc.split_pattern(pa.array([joined], pa.string()), _SEPARATOR).flatten()
    return cells, pc.equal(cells, _NULL)


def parse_nested(text: str, data_type: DataType, *, literal_structs: bool = True) -> object:
    """Parse the text of a nested value: a list, a list of (key, value) pairs, or a dict by field name; leaves in their Python forms.

    >>> from ducklake_core.format.types.data_types import *
    >>> parse_nested("[a, 'x,y', NULL, 'it\\\\'s']", ListType(element=Field(name="element", type=VARCHAR)))
    ['a', 'x,y', None, "it's"]
    >>> fields = (Field(name="d", type=DATE), Field(name="s", type=VARCHAR))
    >>> parse_nested("{'d': '2024-01-15'::DATE, 's': 'it''s'}", StructType(fields=fields))
    {'d': 19737, 's': "it's"}
    >>> parse_nested("{'d': CAST('2024-01-15' AS DATE), 's': 'it''s'}", StructType(fields=fields))
    {'d': 19737, 's': "it's"}
    >>> parse_nested("{k=1, 'c=d'=NULL}", MapType(key=Field(name="key", type=VARCHAR), value=Field(name="value", type=INT32)))
    [('k', 1), ('c=d', None)]

    Args:
        text: The text.
        data_type: Type of the value.
        literal_structs: Whether a struct may be written as a SQL literal; default True.

    Raises:
        SchemaError: The text is not a value of that type.
    """
    if literal_structs and isinstance(data_type, StructType) and not text.startswith("{" + MARK):
        try:
            return _Parser(text, as_literal=True).whole(data_type)
        except SchemaError:
            # Other writers may use the cast form for structs too.
            return _Parser(text, as_literal=False).whole(data_type)
    return _Parser(text, as_literal=False).whole(data_type)


def parse_leaf(text: str, data_type: DataType) -> object:
    """Return the Python form of the text of a leaf, in the spelling of any of the databases.

    >>> from ducklake_core.format.types.data_types import INTERVAL
    >>> parse_leaf("1 year 2 mons +3 days -04:05:06", INTERVAL) == parse_leaf("14 months 3 days -14706000000 microseconds", INTERVAL)
    True
    """
    if data_type == VARIANT:
        binary = from_cast_text(text, BLOB)
        return split_variant(binary) if isinstance(binary, bytes) else None
    if data_type != INTERVAL:
        return from_cast_text(text, data_type)
    # PostgreSQL writes "mons" and "+3 days"; SQL literals of DuckDB count microseconds.
    plain = re.sub(r"\bmons?\b", "months", text.replace("+", ""))
    micros = re.search(r"(-?\d+) microseconds?\s*$", plain)
    if micros is None:
        return parse_interval(plain)
    months_and_days = plain[: micros.start()].strip()
    found = parse_interval(months_and_days) if months_and_days else Interval(months=0, days=0, microseconds=0)
    return replace(found, microseconds=found.microseconds + int(micros[1]))


class _Parser:
    """A recursive-descent parser of one text, at ``position``.

    DuckDB writes nested values in two forms::

        cast form      {'a': it\\'s, 'b': [x, NULL]}    strings unquoted where possible, backslash escapes
        SQL literal    {'a': 'it''s', 'b': [x, NULL]}   structs outside of lists and maps: quotes doubled, casts on leaves
    """

    def __init__(self, text: str, *, as_literal: bool) -> None:
        self.text = text
        self.position = 0
        self.as_literal = as_literal

    def whole(self, data_type: DataType) -> object:
        found = self.value(data_type, "")
        self.skip_blanks()
        if self.position != len(self.text):
            raise self.failure("the end")
        return found

    def value(self, data_type: DataType, stops: str) -> object:
        """Parse one value, up to one of the characters that may follow it."""
        self.skip_blanks()
        match data_type:
            case ListType(element=element):
                return self._null_or("[", lambda: self.as_cast(lambda: self.items("[", "]", lambda: self.value(element.type, ",]"))))
            case MapType(key=key, value=value):
                return self._null_or("{", lambda: self.as_cast(lambda: self.items("{", "}", lambda: self.pair(key.type, value.type))))
            case StructType(fields=fields):
                types = {field.name: field.type for field in fields}
                return self._null_or("{", lambda: dict(self.items("{", "}", lambda: self.member(types))))
            case _:
                return self.leaf(data_type, stops)

    def as_cast(self, read: Callable[[], Value]) -> Value:
        """Parse in the cast form, which DuckDB uses for everything below a list or map, even inside a struct literal."""
        before, self.as_literal = self.as_literal, False
        try:
            return read()
        finally:
            self.as_literal = before

    def _null_or(self, opening: str, read: Callable[[], object]) -> object:
        if self.peek() == opening:
            return read()
        if self.text[self.position : self.position + 4].upper() == "NULL":
            self.position += 4
            return None
        raise self.failure(opening)

    def items(self, opening: str, closing: str, read: Callable[[], Value]) -> list[Value]:
        self.expect(opening)
        found: list[Value] = []
        self.skip_blanks()
        if self.peek() == closing:
            self.position += 1
            return found
        while True:
            found.append(read())
            self.skip_blanks()
            if self.peek() == closing:
                self.position += 1
                return found
            self.expect(",")

    def pair(self, key: DataType, value: DataType) -> tuple[object, object]:
        first = self.value(key, "=")
        self.skip_blanks()
        self.expect("=")
        return first, self.value(value, ",}")

    def member(self, types: dict[str, DataType]) -> tuple[str, object]:
        self.skip_blanks()
        name = self.quoted() if self.peek() == "'" else self.plain(":")
        self.skip_blanks()
        self.expect(":")
        found = types.get(name) or next((t for known, t in types.items() if folded(known) == folded(name)), None)
        if found is None:
            raise SchemaError(f"the string of a struct has a field {name!r} that its type lacks")
        return name, self.value(found, ",}")

    def leaf(self, data_type: DataType, stops: str) -> object:
        if self.peek() == "'":
            text = self.quoted()
            suffix = _TYPE_SUFFIX.match(self.text, self.position) if self.as_literal else None
            self.position += len(suffix[0]) if suffix else 0
            return parse_leaf(text, data_type)
        if self.text[self.position : self.position + 5].upper() == "CAST(":
            return self.cast(data_type)
        token = self.plain(stops)
        return None if token.upper() == "NULL" else parse_leaf(token, data_type)

    def cast(self, data_type: DataType) -> object:
        """Parse ``CAST('text' AS TYPE)``. The type is skipped: the column determines it."""
        self.position += len("CAST(")
        self.skip_blanks()
        text = self.quoted()
        depth = 1
        while depth:
            letter = self.peek()
            if not letter:
                raise self.failure(")")
            depth += {"(": 1, ")": -1}.get(letter, 0)
            self.position += 1
        return parse_leaf(text, data_type)

    def quoted(self) -> str:
        self.expect("'")
        letters: list[str] = []
        while True:
            letter = self.peek()
            following = self.text[self.position + 1 : self.position + 2]
            if not letter:
                raise self.failure("'")
            if letter == "\\" and not self.as_literal and following in ("'", "\\"):
                letters.append(following)
                self.position += 2
            elif letter == "'" and following == "'":
                letters.append("'")
                self.position += 2
            elif letter == "'":
                self.position += 1
                return "".join(letters)
            else:
                letters.append(letter)
                self.position += 1

    def plain(self, stops: str) -> str:
        start = self.position
        while self.position < len(self.text) and self.text[self.position] not in stops:
            self.position += 1
        token = self.text[start : self.position].strip(" ")
        if not token:
            raise self.failure("a value")
        return token

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def expect(self, letter: str) -> None:
        if self.peek() != letter:
            raise self.failure(letter)
        self.position += 1

    def skip_blanks(self) -> None:
        while self.peek() == " ":
            self.position += 1

    def failure(self, wanted: str) -> SchemaError:
        return SchemaError(f"cannot read {self.text!r}: {wanted} expected at character {self.position}")


def split_variant(cell: bytes) -> dict[str, bytes]:
    """Split the bytes of a variant into metadata and value (Parquet variant encoding).

    The metadata is a dictionary of field names, whose last offset determines where it ends::

        byte 0         version (4 bits), sorted flag, width of offsets - 1 (2 bits)
        width bytes    number of entries
        offsets        entries + 1, each of that width
        names          up to the last offset; the value follows

    Raises:
        SchemaError: The cell has no dictionary of version 1, or is shorter than its dictionary.
    """
    width = (cell[0] >> 6) + 1 if cell else 0
    if not cell or cell[0] & 0x0F != 1 or len(cell) < 1 + width:
        raise SchemaError("it is not a variant in Parquet's encoding")
    entries = int.from_bytes(cell[1 : 1 + width], "little")
    strings = 1 + width * (entries + 2)
    end = strings + int.from_bytes(cell[strings - width : strings], "little")
    if strings > len(cell) or end >= len(cell):
        raise SchemaError("it is a truncated variant")
    return {"metadata": cell[:end], "value": cell[end:]}


def join_variant(value: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a variant as a cell stores them and DuckDB converts them; the inverse of :func:`split_variant`.

    >>> join_variant({"metadata": b"\\x01\\0\\0", "value": b"\\x0c\\x07"}).hex()
    '0100000c07'
    """
    return plain_metadata(value["metadata"]) + value["value"]


def stored_cell(cell: ColumnElement[Any], data_type: DataType) -> ColumnElement[Any]:
    """Return the expression that a DuckDB file stores for a parameter: bytes of :func:`join_variant` become variants, also when nested.

    Args:
        cell: The bytes of a variant, or the text of a nested value that contains such bytes as text.
        data_type: Type of the value.
    """
    if not holds_variants(data_type):
        return cell
    return _converted_leaves(cast(cell, native_type(_binary_type(data_type))), data_type, {VARIANT: func.variant_bytes_to_variant})


def plain_type(data_type: DataType) -> DataType:
    """Return the type of the result of :func:`plain_cell`: each variant becomes a struct of two binaries."""
    return _with_variants_as(_PLAIN, data_type)


def _binary_type(data_type: DataType) -> DataType:
    """Return the type with each variant replaced by one binary."""
    return _with_variants_as(BLOB, data_type)


def _with_variants_as(form: DataType, data_type: DataType) -> DataType:
    def field_as(field: Field) -> Field:
        return replace(field, type=_with_variants_as(form, field.type))

    return form if data_type == VARIANT else with_children(data_type, field_as)


def _exact_text(cell: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the exact text of a TIMESTAMP WITH TIME ZONE.

    DuckDB's cast computes in floats and is off by a millisecond after the year 287396.
    """
    # epoch_us is NULL for infinity; DuckDB's own text is right for that.
    return func.coalesce(cast(func.make_timestamp(func.epoch_us(cell)), String), cast(cell, String))


def _json_text(cell: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the text of JSON as a string. In lists, DuckDB quotes strings where needed, but never JSON."""
    return cast(cell, String)


_PLAIN_LEAVES: Mapping[DataType, _Convert] = {VARIANT: func.variant_to_parquet_variant, TIMESTAMPTZ: _exact_text, JSON: _json_text}


def is_plain(data_type: DataType) -> bool:
    """Return whether DuckDB's own text of a value is exact: the type contains no variant, JSON or timestamp with time zone."""
    return not _holds(data_type, _PLAIN_LEAVES)


def plain_cell(cell: ColumnElement[Any], data_type: DataType) -> ColumnElement[Any]:
    """Convert the leaves of a cell that DuckDB does not cast to exact text: variants, timestamps and JSON.

    Args:
        cell: The value in SQL.
        data_type: Its type.
    """
    return _converted_leaves(cell, data_type, _PLAIN_LEAVES)


def _holds(data_type: DataType, leaves: Container[DataType]) -> bool:
    return data_type in leaves or any(_holds(child.type, leaves) for child in children_of(data_type))


def _converted_leaves(
    cell: ColumnElement[Any], data_type: DataType, convert: Mapping[DataType, _Convert], depth: int = 0
) -> ColumnElement[Any]:
    """Convert every leaf of some types in a cell. ``depth`` counts the lists and maps around it and makes lambda parameters distinct."""
    if not _holds(data_type, convert):
        return cell
    match data_type:
        case ListType(element=element):
            return func.list_transform(cell, _each(depth, _converted_leaves(_item(depth), element.type, convert, depth + 1)))
        case MapType(key=key, value=value):
            entry = _struct(_item(depth), (replace(key, name="key"), replace(value, name="value")), convert, depth + 1)
            return func.map_from_entries(func.list_transform(func.map_entries(cell), _each(depth, entry)))
        case StructType(fields=fields):
            # struct_pack of NULL members is not a NULL struct.
            return case((cell.is_not(None), _struct(cell, fields, convert, depth)))
        case _:
            return convert[data_type](cell)


def _struct(cell: ColumnElement[Any], fields: tuple[Field, ...], convert: Mapping[DataType, _Convert], depth: int) -> ColumnElement[Any]:
    # By position and as a literal: DuckDB accepts no bound parameter there.
    members = (func.struct_extract_at(cell, literal_column(str(place))) for place in range(1, len(fields) + 1))
    named = (
        column(quoted_name(field.name, quote=True)).op(":=")(_converted_leaves(member, field.type, convert, depth))
        for field, member in zip(fields, members, strict=True)
    )
    return func.struct_pack(*named)


def _item(depth: int) -> ColumnElement[Any]:
    return literal_column(f"item_{depth}")


def _each(depth: int, result: ColumnElement[Any]) -> ColumnElement[Any]:
    return literal_column(f"lambda item_{depth}").op(":")(result)
