"""Thrift structs in the compact protocol as trees that keep every field, known or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportBase, TTransportException

from ducklake_core.storage.encryption.modules import Bytes

# What the library raises on bytes that are none; it asserts where it has seen a type that cannot stand there.
_NO_STRUCT = (EOFError, TProtocolException, TTransportException, OverflowError, RecursionError, AssertionError, KeyError, MemoryError)


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
        """Give an integer field that is there another value."""
        self[field] = (self[field][0], value)

    def drop(self, *fields: int) -> None:
        """Take fields out, as far as they are there."""
        for field in fields:
            self.pop(field, None)


class _Source(TTransportBase):  # type: ignore[misc]
    """Bytes as a transport that knows how far it was read."""

    def __init__(self, data: memoryview, position: int) -> None:
        self.data = data
        self.position = position

    def read(self, size: int) -> bytes:
        start, self.position = self.position, min(self.position + size, len(self.data))
        return bytes(self.data[start : self.position])


def read_struct(data: Bytes, start: int = 0) -> tuple[Struct, int]:
    """Return the struct that begins at a place, and the place after it.

    >>> read_struct(bytes.fromhex("1c1c000000"))
    ({1: (12, {1: (12, {})})}, 5)

    Raises:
        BadStructError: There is no such struct.
    """
    source = _Source(memoryview(data), start)
    try:
        # Without a limit, a length that means nothing would be allocated.
        size = len(source.data)
        struct = _read(TCompactProtocol(source, string_length_limit=size, container_length_limit=size), TType.STRUCT)
    except _NO_STRUCT as error:
        raise BadStructError(f"no Thrift struct at byte {start}: {error}") from error
    assert isinstance(struct, Struct)
    return struct, source.position


def _read(protocol: TCompactProtocol, kind: int) -> Value:
    match kind:
        case TType.STRUCT:
            return _read_struct(protocol)
        case TType.LIST:
            element, size = protocol.readListBegin()
            values = [_read(protocol, element) for _ in range(size)]
            protocol.readListEnd()
            return Items(element, values)
        case TType.BOOL:
            return bool(protocol.readBool())
        case TType.BYTE:
            return int(protocol.readByte())
        case TType.I16 | TType.I32 | TType.I64:
            # All three are zigzag numbers; the type says only how large they may be.
            return int(protocol.readI64())
        case TType.DOUBLE:
            return float(protocol.readDouble())
        case TType.STRING:
            return bytes(protocol.readBinary())
        case _:
            raise BadStructError(f"a field of Thrift type {kind}, which Parquet does not use")


def _read_struct(protocol: TCompactProtocol) -> Struct:
    struct = Struct()
    protocol.readStructBegin()
    while True:
        _, kind, field = protocol.readFieldBegin()
        if kind == TType.STOP:
            break
        struct[field] = (kind, _read(protocol, kind))
        protocol.readFieldEnd()
    protocol.readStructEnd()
    return struct


def write_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct.

    >>> write_struct(read_struct(bytes.fromhex("1c1c000000"))[0]).hex()
    '1c1c000000'
    """
    buffer = TMemoryBuffer()
    _write(TCompactProtocol(buffer), TType.STRUCT, struct)
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
