"""Convert cells of inlined rows between Arrow and what each kind of database stores (specification: Data Inlining)."""

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
"""The value of a variant that is null: as in files, it is NULL."""
_Convert = Callable[[ColumnElement[Any]], ColumnElement[Any]]
_PLAIN = StructType(fields=(Field(name="metadata", type=BLOB), Field(name="value", type=BLOB)))

_SEPARATOR = "\x1f"
_NULL = "\x1e"
# Not parameters, which SQLite copies for every row: that doubles the time.
_SEPARATOR_IN_SQL: ColumnElement[str] = literal_column(f"'{_SEPARATOR}'")
_NULL_IN_SQL: ColumnElement[str] = literal_column(f"'{_NULL}'")
_PLACES = ("_rowid_", "oid", "rowid")

Value = TypeVar("Value")
MARK = " "
"""Marks, after the first brace, a struct that this library wrote as cast text, where a SQL literal would mean something else."""
_TYPE_SUFFIX = re.compile(r"::[A-Za-z_0-9 ]+(\([0-9, ]+\))?")


def cells_array(cells: Sequence[Any] | ArrowArray, old: Field, new: Field, abilities: Abilities) -> ArrowArray:
    """Cells of a column, as Python's values or as Arrow's, as an array of what the column is now.

    Raises:
        SchemaError: A cell is not a value of the column; also as Arrow says it.
        UnsupportedFeatureError: The column cannot be read from this database.
    """
    quick = _plain_array(cells, old)
    if quick is not None:
        return quick if old.type == new.type else promote(quick, new)
    values = cells.to_pylist() if isinstance(cells, pa.Array) else cells
    return stored_array([_decoded(cell, old, abilities) for cell in values], old, new)


def _plain_array(cells: Sequence[Any] | ArrowArray, column: Field) -> ArrowArray | None:
    """Cells that Arrow reads as we do, many times as fast; None when there are others among them, and each has to be looked at."""
    if not (column.type in _PLAIN_NUMBERS or isinstance(column.type, DecimalType)):
        return None
    try:
        return _converted(found_array(cells, integers=column.type in INTEGERS), column.type)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        # Cells of several types, or values that the column cannot have: what is wrong is found one by one.
        return None


def found_array(cells: Sequence[Any] | ArrowArray, *, integers: bool = False) -> ArrowArray:
    """Cells in the type that they have, NULL for None; an array as it is.

    Args:
        integers: Whether they likely are integers without NULL, of which the standard library makes an array in half of the time.

    Raises:
        pyarrow.ArrowException, ValueError, OverflowError, TypeError: They are of several types, or have no Arrow type.
    """
    if isinstance(cells, pa.Array):
        return cells
    if integers:
        with suppress(TypeError, OverflowError):
            return pa.Array.from_buffers(pa.int64(), len(cells), [None, pa.py_buffer(array("q", cells))])
    return pa.array(cells)


def _converted(found: ArrowArray, wanted: DataType) -> ArrowArray | None:
    """Cells of one type, which Arrow has found, as values of a column; None where Arrow's conversion may be another than ours."""
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
            # Arrow takes a time of hours alone.
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
    """The Python form of a cell as any of the databases stores it."""
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
    """Values of a column as it was when they were stored, as an array of what the column is now; children are matched by id."""
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
    """A variant as it reads from files: NULL for null, and a dictionary that says that it is sorted only when it is."""
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
    """Where each list begins; a NULL offset makes the list NULL."""
    found: list[int | None] = []
    end = 0
    for value in values:
        found.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*found, end], pa.int32())


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


def parse_nested(text: str, data_type: DataType, *, literal_structs: bool = True) -> object:
    """The value of a text: a list, a list of (key, value) pairs, or a dict by field name; leaves in their Python forms.

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
        literal_structs: Whether a struct may be written as a SQL literal.

    Raises:
        SchemaError: The text is not a value of that type.
    """
    if literal_structs and isinstance(data_type, StructType) and not text.startswith("{" + MARK):
        try:
            return _Parser(text, as_literal=True).whole(data_type)
        except SchemaError:
            # Other writers may use the one encoder for everything.
            return _Parser(text, as_literal=False).whole(data_type)
    return _Parser(text, as_literal=False).whole(data_type)


def parse_leaf(text: str, data_type: DataType) -> object:
    """The Python form of a leaf's text, as any of the databases writes it.

    >>> from ducklake_core.format.types.data_types import INTERVAL
    >>> parse_leaf("1 year 2 mons +3 days -04:05:06", INTERVAL) == parse_leaf("14 months 3 days -14706000000 microseconds", INTERVAL)
    True
    """
    if data_type == VARIANT:
        binary = from_cast_text(text, BLOB)
        return split_variant(binary) if isinstance(binary, bytes) else None
    if data_type != INTERVAL:
        return from_cast_text(text, data_type)
    # PostgreSQL says "mons" and "+3 days"; SQL literals of DuckDB count microseconds.
    plain = re.sub(r"\bmons?\b", "months", text.replace("+", ""))
    micros = re.search(r"(-?\d+) microseconds?\s*$", plain)
    if micros is None:
        return parse_interval(plain)
    months_and_days = plain[: micros.start()].strip()
    found = parse_interval(months_and_days) if months_and_days else Interval(months=0, days=0, microseconds=0)
    return replace(found, microseconds=found.microseconds + int(micros[1]))


class _Parser:
    """A reader of one text, at ``position``."""

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
        """One value, up to one of the characters that may follow it."""
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
        """Whatever is below a list or a map was written by the cast encoder, even inside a struct."""
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
            raise SchemaError(f"the text of a struct has a field {name!r} that its type does not have")
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
        """``CAST('text' AS TYPE)``; the type is the column's own, or a stand-in that says nothing."""
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
    """Metadata and value of a variant from the bytes of both (Parquet's encoding of variants: a dictionary, then the value).

    Raises:
        SchemaError: No dictionary of version 1, or one that is longer than the cell.
    """
    width = (cell[0] >> 6) + 1 if cell else 0
    if not cell or cell[0] & 0x0F != 1 or len(cell) < 1 + width:
        raise SchemaError("it is no variant in the encoding of Parquet")
    entries = int.from_bytes(cell[1 : 1 + width], "little")
    strings = 1 + width * (entries + 2)
    end = strings + int.from_bytes(cell[strings - width : strings], "little")
    if strings > len(cell) or end >= len(cell):
        raise SchemaError("it is a variant that is cut short")
    return {"metadata": cell[:end], "value": cell[end:]}


def join_variant(value: Mapping[str, bytes]) -> bytes:
    """The bytes of a variant as a cell holds them, or DuckDB turns them into its own form; the inverse of :func:`split_variant`.

    >>> join_variant({"metadata": b"\\x01\\0\\0", "value": b"\\x0c\\x07"}).hex()
    '0100000c07'
    """
    return plain_metadata(value["metadata"]) + value["value"]


def stored_cell(cell: ColumnElement[Any], data_type: DataType) -> ColumnElement[Any]:
    """What a DuckDB file stores of a parameter: the variants that :func:`join_variant` gave the bytes of, also inside other values.

    Args:
        cell: The bytes of a variant, or the text of a nested value with the texts of such bytes in it.
        data_type: Its type.
    """
    if not holds_variants(data_type):
        return cell
    return _converted_leaves(cast(cell, native_type(_binary_type(data_type))), data_type, {VARIANT: func.variant_bytes_to_variant})


def plain_type(data_type: DataType) -> DataType:
    """The type of what :func:`plain_cell` gives: two binaries in the place of each variant."""
    return _with_variants_as(_PLAIN, data_type)


def _binary_type(data_type: DataType) -> DataType:
    """The type with one binary in the place of each variant."""
    return _with_variants_as(BLOB, data_type)


def _with_variants_as(form: DataType, data_type: DataType) -> DataType:
    def field_as(field: Field) -> Field:
        return replace(field, type=_with_variants_as(form, field.type))

    return form if data_type == VARIANT else with_children(data_type, field_as)


def _exact_text(cell: ColumnElement[Any]) -> ColumnElement[Any]:
    """The text of a TIMESTAMP WITH TIME ZONE: DuckDB's own is a millisecond off after the year 287396, where it computes in floats."""
    # epoch_us is NULL for infinity, of which DuckDB's own text is right.
    return func.coalesce(cast(func.make_timestamp(func.epoch_us(cell)), String), cast(cell, String))


def _json_text(cell: ColumnElement[Any]) -> ColumnElement[Any]:
    """The text of JSON: DuckDB writes lists of strings with quotes where they need them, and lists of JSON without any."""
    return cast(cell, String)


_PLAIN_LEAVES: Mapping[DataType, _Convert] = {VARIANT: func.variant_to_parquet_variant, TIMESTAMPTZ: _exact_text, JSON: _json_text}


def is_plain(data_type: DataType) -> bool:
    """Return whether DuckDB's own text of a value is exact: it has no variant, JSON or timestamp with time zone in it."""
    return not _holds(data_type, _PLAIN_LEAVES)


def plain_cell(cell: ColumnElement[Any], data_type: DataType) -> ColumnElement[Any]:
    """Convert the leaves of a cell of which DuckDB has no exact text: variants to the encoding of Parquet, timestamps to text.

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
    """A cell with every leaf of some types converted; ``depth`` lists and maps are around it."""
    if not _holds(data_type, convert):
        return cell
    match data_type:
        case ListType(element=element):
            return func.list_transform(cell, _each(depth, _converted_leaves(_item(depth), element.type, convert, depth + 1)))
        case MapType(key=key, value=value):
            entry = _struct(_item(depth), (replace(key, name="key"), replace(value, name="value")), convert, depth + 1)
            return func.map_from_entries(func.list_transform(func.map_entries(cell), _each(depth, entry)))
        case StructType(fields=fields):
            return case((cell.is_not(None), _struct(cell, fields, convert, depth)))
        case _:
            return convert[data_type](cell)


def _struct(cell: ColumnElement[Any], fields: tuple[Field, ...], convert: Mapping[DataType, _Convert], depth: int) -> ColumnElement[Any]:
    # By place: DuckDB takes neither a name nor a number as a bound value there.
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
