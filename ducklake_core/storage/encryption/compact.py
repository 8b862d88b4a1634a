"""Thrift structs in the compact protocol as trees that keep every field, known or not."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

Bytes: TypeAlias = bytes | bytearray | memoryview
_MAX_DEPTH = 64
"""The structs of a footer are nested about eight deep; damaged bytes may look like thousands."""
_TRUE, _FALSE = 1, 2
_KINDS = {
    1: TType.BOOL, 2: TType.BOOL, 3: TType.BYTE, 4: TType.I16, 5: TType.I32, 6: TType.I64, 7: TType.DOUBLE, 8: TType.STRING, 9: TType.LIST,
    12: TType.STRUCT,
}  # fmt: skip
"""Types of fields by their codes in the compact protocol."""


class BadStructError(ValueError):
    """Bytes are not a struct of the kinds of fields that Parquet uses."""


@dataclass(slots=True)
class Items:
    """A list: the Thrift type of its elements, and the elements."""

    element: int
    values: list[Value]


Scalar: TypeAlias = bool | int | float | bytes
Value: TypeAlias = "Scalar | Items | Struct"


class Struct(dict[int, "tuple[int, Value]"]):
    """Thrift type and value by field id; what is changed in it is written with the rest."""

    def number(self, field: int) -> int | None:
        """Return an integer field, None when it is absent or something else."""
        value = self.get(field, (0, None))[1]
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def struct(self, field: int) -> Struct | None:
        """Return a struct field, None when it is absent or something else."""
        value = self.get(field, (0, None))[1]
        return value if isinstance(value, Struct) else None

    def structs(self, field: int) -> list[Struct]:
        """Return the structs of a list field, empty when it is absent."""
        value = self.get(field, (0, None))[1]
        return [item for item in value.values if isinstance(item, Struct)] if isinstance(value, Items) else []

    def change(self, field: int, value: int) -> None:
        """Change the value of an existing integer field."""
        self[field] = (self[field][0], value)

    def drop(self, *fields: int) -> None:
        """Remove fields that exist."""
        for field in fields:
            self.pop(field, None)


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a struct that are read; the others are skipped.

    Attributes:
        fields: Shapes of the fields that are structs or lists of structs, by field id; None reads a field completely.
        convert: For structs in a list: called with the fields read so far of the struct around the list, and with each element, which is
            not kept.
    """

    fields: Mapping[int, Shape | None]
    convert: Callable[[Struct, Struct], None] | None = None


def read_struct(data: Bytes, start: int = 0, shape: Shape | None = None) -> tuple[Struct, int]:
    """Return the struct that begins at a place, and the place after it.

    >>> read_struct(bytes.fromhex("1c1c000000"))
    ({1: (12, {1: (12, {})})}, 5)
    >>> read_struct(bytes.fromhex("15021c1c000000"), shape=Shape({1: None}))
    ({1: (8, 1)}, 7)

    Args:
        data: The bytes.
        start: Where it begins.
        shape: Fields to read; None for all.

    Raises:
        BadStructError: There is no such struct.
    """
    # Footers have up to a million fields, and the readers of the thrift package take a tenth of a millisecond for each.
    try:
        return _read_struct(data, start, _MAX_DEPTH, shape)
    except (IndexError, struct.error) as error:
        raise BadStructError(f"no Thrift struct at byte {start}: it is cut") from error


def _read_struct(data: Bytes, at: int, depth: int, shape: Shape | None) -> tuple[Struct, int]:
    if depth == 0:
        raise BadStructError("structs are nested too deeply")
    found = Struct()
    wanted = None if shape is None else shape.fields
    field = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return found, at
        if head >> 4:
            field += head >> 4
        else:
            field, at = _read_number(data, at)
        code = head & 15
        value: Value
        if wanted is not None and field not in wanted:
            if code not in (_TRUE, _FALSE):
                at = _skip(data, at, code, depth)
            continue
        if 4 <= code <= 6 and (byte := data[at]) < 0x80:
            # Most fields are small numbers.
            value, at = (byte >> 1) ^ -(byte & 1), at + 1
        elif code == 8 and (byte := data[at]) < 0x80 and at + byte < len(data):
            value, at = bytes(data[at + 1 : at + 1 + byte]), at + 1 + byte
        elif code in (_TRUE, _FALSE):
            value = code == _TRUE
        elif wanted is None:
            value, at = _read_value(data, at, code, depth, None)
        elif code == 9:
            value, at = _read_list(data, at, depth - 1, wanted[field], found)
        else:
            value, at = _read_value(data, at, code, depth, wanted[field])
        found[field] = (_KINDS[code], value)


def _skip(data: Bytes, at: int, code: int, depth: int) -> int:
    """Return the place after a value that is not read."""
    match code:
        case 4 | 5 | 6:
            while data[at] >= 0x80:
                at += 1
            return at + 1
        case 8:
            size, at = _read_varint(data, at)
            if size > len(data) - at:
                raise BadStructError(f"a string of {size} bytes at byte {at} goes beyond the end")
            return at + size
        case 12:
            return _skip_struct(data, at, depth - 1)
        case 9:
            element, size, at = _list_head(data, at, depth - 1)
            for _ in range(size):
                at = at + 1 if element <= _FALSE else _skip(data, at, element, depth - 1)
            return at
        case 3:
            return at + 1
        case 7:
            return at + 8
        case _:
            raise BadStructError(f"a field of Thrift type {code}, which Parquet does not use")


def _skip_struct(data: Bytes, at: int, depth: int) -> int:
    if depth <= 0:
        raise BadStructError("structs are nested too deeply")
    while head := data[at]:
        at += 1
        if head < 16:
            at = _skip(data, at, 4, depth)
        code = head & 15
        if 4 <= code <= 6 and data[at] < 0x80:
            at += 1
        elif code not in (_TRUE, _FALSE):
            at = _skip(data, at, code, depth)
    return at + 1


def _read_value(data: Bytes, at: int, code: int, depth: int, shape: Shape | None) -> tuple[Value, int]:
    match code:
        case 4 | 5 | 6:
            # All three are zigzag numbers; the type determines only how large they may be.
            return _read_number(data, at)
        case 8:
            size, at = _read_varint(data, at)
            if size > len(data) - at:
                raise BadStructError(f"a string of {size} bytes at byte {at} goes beyond the end")
            return bytes(data[at : at + size]), at + size
        case 12:
            return _read_struct(data, at, depth - 1, shape)
        case 9:
            return _read_list(data, at, depth - 1, shape, Struct())
        case 3:
            return (data[at] ^ 0x80) - 0x80, at + 1
        case 7:
            return struct.unpack_from("<d", data, at)[0], at + 8
        case 1 | 2:
            # Only in lists: a field has its boolean in its type.
            return data[at] == _TRUE, at + 1
        case _:
            raise BadStructError(f"a field of Thrift type {code}, which Parquet does not use")


def _read_list(data: Bytes, at: int, depth: int, shape: Shape | None, around: Struct) -> tuple[Items, int]:
    code, size, at = _list_head(data, at, depth)
    convert = None if shape is None else shape.convert
    values: list[Value] = []
    for _ in range(size):
        if 4 <= code <= 6 and (byte := data[at]) < 0x80:
            values.append((byte >> 1) ^ -(byte & 1))
            at += 1
            continue
        value, at = _read_value(data, at, code, depth, shape)
        if convert is None:
            values.append(value)
        elif isinstance(value, Struct):
            convert(around, value)
    return Items(_KINDS.get(code, TType.STRUCT), values), at


def _list_head(data: Bytes, at: int, depth: int) -> tuple[int, int, int]:
    """Return the code and the number of a list's elements, and the place of the first."""
    if depth <= 0:
        raise BadStructError("lists are nested too deeply")
    head = data[at]
    at += 1
    code, size = head & 15, head >> 4
    if size == 15:
        size, at = _read_varint(data, at)
    # Every element takes at least a byte, so that a length that means nothing is found before memory is taken for it. Writers such as
    # fastparquet state no type for the elements of an empty list.
    if size > len(data) - at or (size and code not in _KINDS):
        raise BadStructError(f"a list of {size} elements at byte {at} is none")
    return code, size, at


def _read_number(data: Bytes, at: int) -> tuple[int, int]:
    value, at = _read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _read_varint(data: Bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise BadStructError(f"a number at byte {at} has too many digits")
    if value >= 1 << 64:
        raise BadStructError(f"a number at byte {at} is too large")
    return value, at + 1


def write_struct(tree: Struct) -> bytes:
    """Return the bytes of a struct.

    >>> write_struct(read_struct(bytes.fromhex("1c1c000000"))[0]).hex()
    '1c1c000000'
    """
    buffer = TMemoryBuffer()
    _write(TCompactProtocol(buffer), TType.STRUCT, tree)
    return bytes(buffer.getvalue())


def _write(protocol: TCompactProtocol, kind: int, value: Value) -> None:
    match value:
        case Struct():
            protocol.writeStructBegin("")
            for field, (field_kind, inner) in sorted(value.items()):
                protocol.writeFieldBegin("", field_kind, field)
                _write(protocol, field_kind, inner)
                protocol.writeFieldEnd()
            protocol.writeFieldStop()
            protocol.writeStructEnd()
        case Items(element=element, values=values):
            protocol.writeListBegin(element, len(values))
            for item in values:
                _write(protocol, element, item)
            protocol.writeListEnd()
        case bool():
            protocol.writeBool(value)
        case float():
            protocol.writeDouble(value)
        case bytes():
            protocol.writeBinary(value)
        case int():
            _write_number(protocol, kind, value)


def _write_number(protocol: TCompactProtocol, kind: int, value: int) -> None:
    match kind:
        case TType.BYTE:
            protocol.writeByte(value)
        case TType.I16:
            protocol.writeI16(value)
        case TType.I32:
            protocol.writeI32(value)
        case _:
            protocol.writeI64(value)
