"""Text of nested values in tables of inlined rows (specification: Data Inlining).

Two encoders of DuckDB meet here.  Lists and maps are written as ``CAST(... AS VARCHAR)`` gives them: strings quoted only
where needed, with ``\\'`` and ``\\\\``.  A struct column, and structs directly inside it, are written as SQL literals: strings always
quoted, ``''`` for a quote, backslashes as they are, and ``CAST('...' AS T)`` or, in DuckDB 1.4, ``'...'::T`` for most other types.  The
reference reads both with its cast parser, which loses quotes and backslashes of structs, or fails; here each is read as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ducklake_core.catalog.inlined.variants import split_variant
from ducklake_core.errors import SchemaError
from ducklake_core.format.types.data_types import BLOB, INTERVAL, VARIANT, DataType, ListType, MapType, StructType
from ducklake_core.format.types.names import folded
from ducklake_core.format.values.interval_text import Interval, parse_interval
from ducklake_core.format.values.value_text import from_cast_text

Value = TypeVar("Value")
MARK = " "
"""Marks, after the first brace, a struct that this library wrote as cast text, where a SQL literal would mean something else."""
_TYPE_SUFFIX = re.compile(r"::[A-Za-z_0-9 ]+(\([0-9, ]+\))?")


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
