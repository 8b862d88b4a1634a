"""Variants among inlined rows, in the encoding of Parquet.

DuckDB files are asked for it: the own text of a variant inside another value would lose its type. SQLite and PostgreSQL hold, from version
1.1 on, its two binaries one after the other in a cell; inside lists, maps and structs the text of that blob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, case, cast, column, func, literal_column
from sqlalchemy.sql import quoted_name

from ducklake_core.catalog.inlined.ddl import native_type
from ducklake_core.errors import SchemaError
from ducklake_core.format.types.data_types import (
    BLOB,
    VARIANT,
    DataType,
    Field,
    ListType,
    MapType,
    StructType,
    holds_variants,
    with_children,
)
from ducklake_core.format.values.variant_encoding import plain_metadata

NULL_VARIANT = b"\0"
"""The value of a variant that is null: as in files, it is NULL."""
_Convert = Callable[[ColumnElement[Any]], ColumnElement[Any]]
_PLAIN = StructType(fields=(Field(name="metadata", type=BLOB), Field(name="value", type=BLOB)))


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
    return _with_each_variant(cast(cell, native_type(_binary_type(data_type))), data_type, func.variant_bytes_to_variant)


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


def plain_cell(cell: ColumnElement[Any], data_type: DataType) -> ColumnElement[Any]:
    """A cell with every variant in it in the encoding of Parquet.

    Args:
        cell: The value in SQL.
        data_type: Its type.
    """
    return _with_each_variant(cell, data_type, func.variant_to_parquet_variant)


def _with_each_variant(cell: ColumnElement[Any], data_type: DataType, convert: _Convert, depth: int = 0) -> ColumnElement[Any]:
    """A cell with every variant in it converted; ``depth`` lists and maps are around it."""
    if not holds_variants(data_type):
        return cell
    match data_type:
        case ListType(element=element):
            return func.list_transform(cell, _each(depth, _with_each_variant(_item(depth), element.type, convert, depth + 1)))
        case MapType(key=key, value=value):
            entry = _struct(_item(depth), (replace(key, name="key"), replace(value, name="value")), convert, depth + 1)
            return func.map_from_entries(func.list_transform(func.map_entries(cell), _each(depth, entry)))
        case StructType(fields=fields):
            return case((cell.is_not(None), _struct(cell, fields, convert, depth)))
        case _:
            return convert(cell)


def _struct(cell: ColumnElement[Any], fields: tuple[Field, ...], convert: _Convert, depth: int) -> ColumnElement[Any]:
    # By place: DuckDB takes neither a name nor a number as a bound value there.
    members = (func.struct_extract_at(cell, literal_column(str(place))) for place in range(1, len(fields) + 1))
    named = (
        column(quoted_name(field.name, quote=True)).op(":=")(_with_each_variant(member, field.type, convert, depth))
        for field, member in zip(fields, members, strict=True)
    )
    return func.struct_pack(*named)


def _item(depth: int) -> ColumnElement[Any]:
    return literal_column(f"item_{depth}")


def _each(depth: int, result: ColumnElement[Any]) -> ColumnElement[Any]:
    return literal_column(f"lambda item_{depth}").op(":")(result)
