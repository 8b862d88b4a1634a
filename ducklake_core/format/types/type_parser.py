"""Parse types as users write them: DuckLake's names, DuckDB's SQL, Arrow types, or :data:`DataType` values."""

from __future__ import annotations

import re
from typing import TypeAlias

import pyarrow as pa

from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.types.data_types import (
    MAX_DEPTH,
    DataType,
    Field,
    ListType,
    MapType,
    StructType,
    children_of,
    is_too_deep,
    with_children,
)
from ducklake_core.format.types.schema import from_arrow_field, parse_leaf_type

TypeLike: TypeAlias = "str | DataType | pa.DataType"

# DuckLake's own names come first: int8 is one byte here, though DuckDB's SQL means eight by it.
_SQL_NAMES = {
    "bool": "boolean", "logical": "boolean", "tinyint": "int8", "smallint": "int16", "short": "int16", "integer": "int32", "int": "int32",
    "bigint": "int64", "long": "int64", "hugeint": "int128", "utinyint": "uint8", "usmallint": "uint16", "uinteger": "uint32",
    "ubigint": "uint64", "uhugeint": "uint128", "float": "float32", "real": "float32", "float4": "float32", "double": "float64",
    "float8": "float64", "string": "varchar", "text": "varchar", "char": "varchar", "bytea": "blob", "binary": "blob",
    "varbinary": "blob", "datetime": "timestamp", "timestamp with time zone": "timestamptz", "time with time zone": "timetz",
}  # fmt: skip
_CONSTRAINT = re.compile(r"\b(?:not\s+null|default|primary\s+key)\b", re.IGNORECASE)
_TOKEN = re.compile(r'\s*(?:(?P<quoted>"(?:[^"]|"")+")|(?P<word>\w+)|(?P<mark>[()<>,:\[\]]))')
_CLOSING = {"(": ")", "<": ">"}


def data_type_of(given: TypeLike) -> DataType:
    """Return the type for a string, an Arrow type or a :data:`DataType`. Nested fields have no ids.

    >>> str(data_type_of("int8")), str(data_type_of("DECIMAL(10, 2)")), str(data_type_of(pa.list_(pa.int8())))
    ('int8', 'decimal(10,2)', 'list<int8>')
    >>> str(data_type_of('STRUCT(x INTEGER, "y z" VARCHAR[])')), str(data_type_of("map<varchar, struct<a: int64>>"))
    ('struct<x: int32, y z: list<varchar>>', 'map<varchar, struct<a: int64>>')

    Raises:
        UnsupportedFeatureError: DuckLake does not have the type.
        SchemaError: The string is not a type.
        UsageError: The value is neither a string nor a type.
    """
    if isinstance(given, pa.DataType):
        return without_ids(from_arrow_field(pa.field("type", given)).type)
    if not isinstance(given, str | DataType):
        raise UsageError(
            f"a column type must be a string such as 'int64' or a type of Arrow or DuckLake, not {getattr(given, '__name__', repr(given))}"
        )
    too_deep = UnsupportedFeatureError(f"a column type is nested more than {MAX_DEPTH} levels deep")
    try:
        found = _Text(given).whole() if isinstance(given, str) else given
    except RecursionError:
        raise too_deep from None
    if is_too_deep(found, lambda one: [child.type for child in children_of(one)]):
        raise too_deep
    return found if isinstance(given, str) else without_ids(found)


def without_ids(data_type: DataType) -> DataType:
    """Return the same type with fields that belong to no table yet."""
    return with_children(data_type, _bare)


def _bare(field: Field) -> Field:
    return Field(name=field.name, type=without_ids(field.type))


class _Text:
    """A text that is read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def whole(self) -> DataType:
        found = self._type()
        if self._text[self._position :].strip():
            raise self._wrong()
        return found

    def _wrong(self) -> SchemaError:
        constraint = ". Set NOT NULL and defaults after the table is created, or write CREATE TABLE in lake.sql"
        return SchemaError(
            f"cannot read the type {self._text!r}: write a type of DuckLake (int32, decimal(10,2), struct<x: int32>) or of DuckDB's SQL "
            f"(STRUCT(x INTEGER), VARCHAR[]){constraint if _CONSTRAINT.search(self._text) else ''}",
            type=self._text,
        )

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._position)

    def _take(self, *marks: str) -> str | None:
        """Return the next mark, if it is one of these."""
        token = self._peek()
        if token is None or token["mark"] not in marks:
            return None
        self._position = token.end()
        return token["mark"]

    def _expect(self, mark: str) -> None:
        if self._take(mark) is None:
            raise self._wrong()

    def _word(self) -> str:
        token = self._peek()
        if token is None or not token["word"]:
            raise self._wrong()
        self._position = token.end()
        return token["word"]

    def _name(self) -> str:
        token = self._peek()
        if token is None or token["mark"]:
            raise self._wrong()
        self._position = token.end()
        return token["quoted"][1:-1].replace('""', '"') if token["quoted"] else token["word"]

    def _type(self) -> DataType:
        found = self._plain()
        while self._take("[") is not None:
            if self._take("]") is None:
                raise UnsupportedFeatureError(
                    f"type {self._text!r} is not supported: DuckLake has no arrays of fixed size", type=self._text
                )
            found = ListType(element=Field(name="element", type=found))
        return found

    def _plain(self) -> DataType:
        words = [self._word().lower()]
        while (token := self._peek()) is not None and (token["word"] or "").lower() in ("with", "time", "zone"):
            words.append(self._word().lower())
        word = " ".join(words)
        match word:
            case "list" | "struct" | "map":
                opening = self._take("(", "<")
                if opening is None:
                    raise self._wrong()
                found = self._container(word)
                self._expect(_CLOSING[opening])
                return found
            case "decimal" | "numeric":
                return parse_leaf_type("decimal({},{})".format(*self._numbers()))
            case "varchar" if self._take("(") is not None:
                # DuckDB takes a length and forgets it.
                self._word()
                self._expect(")")
                return parse_leaf_type("varchar")
            case _:
                return parse_leaf_type(_SQL_NAMES.get(word, word), _SQL_NAMES)

    def _container(self, word: str) -> DataType:
        if word == "list":
            return ListType(element=Field(name="element", type=self._type()))
        if word == "map":
            key = self._type()
            self._expect(",")
            return MapType(key=Field(name="key", type=key), value=Field(name="value", type=self._type()))
        fields = [self._field()]
        while self._take(",") is not None:
            fields.append(self._field())
        return StructType(fields=tuple(fields))

    def _field(self) -> Field:
        name = self._name()
        self._take(":")
        return Field(name=name, type=self._type())

    def _numbers(self) -> tuple[str, str]:
        if self._take("(") is None:
            return "18", "3"
        precision = self._word()
        scale = self._word() if self._take(",") is not None else "0"
        self._expect(")")
        return precision, scale
