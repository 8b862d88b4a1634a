"""Parquet files whose footers are changed, as other writers make them or as damage leaves them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from thrift.Thrift import TType

from ducklake_core.storage.encryption.compact import Items, Struct, read_struct, write_struct

# Fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData and Statistics.
SCHEMA, NUM_ROWS, ROW_GROUPS, COLUMN_ORDERS = 2, 3, 4, 7
TYPE, NAME, CHILDREN, CONVERTED, LOGICAL = 1, 4, 5, 6, 10
COLUMNS, CHUNK_METADATA, CRYPTO, PATH, STATISTICS = 1, 3, 8, 3, 12
OLD_MAX, OLD_MIN, NULL_COUNT, MAX, MIN = 1, 2, 3, 5, 6
_MAGIC = b"PAR1"


def footer_of(content: bytes) -> bytes:
    """Return the footer thrift of a file."""
    length = int.from_bytes(content[-8:-4], "little")
    return content[-8 - length : -8]


def with_footer(content: bytes, footer: bytes) -> bytes:
    """Return a file with another footer."""
    data = content[: len(content) - 8 - len(footer_of(content))]
    return data + footer + len(footer).to_bytes(4, "little") + _MAGIC


def change_footer(path: Path, change: Callable[[Struct], None]) -> Path:
    """Change the footer of a file in place."""
    content = path.read_bytes()
    tree, _ = read_struct(footer_of(content))
    change(tree)
    path.write_bytes(with_footer(content, write_struct(tree)))
    return path


def change_statistics(path: Path, change: Callable[[Struct], None], column: int = 0) -> Path:
    """Change the statistics of a leaf in every row group of a file, in place."""

    def changed(tree: Struct) -> None:
        for chunk in chunks_of(tree, column):
            chunk.setdefault(STATISTICS, (TType.STRUCT, Struct()))
            statistics = chunk.struct(STATISTICS)
            assert statistics is not None
            change(statistics)

    return change_footer(path, changed)


def chunks_of(tree: Struct, column: int) -> Iterator[Struct]:
    """Yield the metadata of a leaf's chunks."""
    for group in tree.structs(ROW_GROUPS):
        metadata = group.structs(COLUMNS)[column].struct(CHUNK_METADATA)
        assert metadata is not None
        yield metadata


def set_bounds(low: bytes, high: bytes, *, old: bool = False, nulls: int | None = None) -> Callable[[Struct], None]:
    """Return a change that gives statistics other bounds, in the deprecated fields if ``old``."""

    def change(statistics: Struct) -> None:
        statistics.drop(OLD_MAX, OLD_MIN, MAX, MIN)
        names = (OLD_MIN, OLD_MAX) if old else (MIN, MAX)
        statistics.update({number: (TType.STRING, bound) for number, bound in zip(names, (low, high), strict=True)})
        if nulls is not None:
            statistics[NULL_COUNT] = (TType.I64, nulls)

    return change


def rename(path: Path, old: bytes, new: bytes) -> Path:
    """Give columns another name, whatever bytes it has."""

    def change(tree: Struct) -> None:
        for element in tree.structs(SCHEMA):
            if element[NAME][1] == old:
                element[NAME] = (TType.STRING, new)
        for group in tree.structs(ROW_GROUPS):
            for column in group.structs(COLUMNS):
                metadata = column.struct(CHUNK_METADATA)
                assert metadata is not None
                names = metadata[PATH][1]
                assert isinstance(names, Items)
                names.values = [new if name == old else name for name in names.values]

    return change_footer(path, change)


def damaged(content: bytes, other: bytes, seed: int) -> bytes:
    """Return a file with a damaged footer: bits flipped, bytes cut, or parts of another footer in it.

    Args:
        content: A file.
        other: Another file, whose footer gives the parts.
        seed: Determines the damage.
    """
    chance = random.Random(seed)
    footer = bytearray(footer_of(content))
    match seed % 4:
        case 0:
            for _ in range(chance.randint(1, 4)):
                footer[chance.randrange(len(footer))] ^= 1 << chance.randrange(8)
        case 1:
            start = chance.randrange(len(footer))
            del footer[start : start + chance.randint(1, 24)]
        case 2:
            donor = footer_of(other)
            start, length = chance.randrange(len(donor)), chance.randint(1, 64)
            place = chance.randrange(len(footer))
            footer[place : place + chance.choice((0, length))] = donor[start : start + length]
        case _:
            _change_field(footer, chance)
    return with_footer(content, bytes(footer))


def _change_field(footer: bytearray, chance: random.Random) -> None:
    """Give one field of the footer another value, or remove it: damage that is a valid Thrift struct."""
    tree, _ = read_struct(bytes(footer))
    structs = list(_structs(tree))
    for _ in range(chance.randint(1, 3)):
        struct = chance.choice([one for one in structs if one])
        number = chance.choice(sorted(struct))
        kind, value = struct[number]
        if chance.random() < 0.3:
            del struct[number]
        elif isinstance(value, bool):
            struct[number] = (kind, not value)
        elif isinstance(value, int):
            limit = {TType.BYTE: 127, TType.I16: 2**15 - 1, TType.I32: 2**31 - 1}.get(kind, 2**63 - 1)
            changed = chance.choice((0, -1, 1, value + 1, value - 1, value * 2, limit, -limit - 1))
            struct[number] = (kind, max(-limit - 1, min(limit, changed)))
        elif isinstance(value, bytes):
            struct[number] = (kind, chance.choice((b"", value[:-1], value + b"\xff", b"\xff" * len(value), value[::-1])))
        elif isinstance(value, Items) and value.values:
            value.values = chance.choice((value.values[:-1], value.values * 2, value.values[::-1]))
    footer[:] = write_struct(tree)


def _structs(value: object) -> Iterator[Struct]:
    if isinstance(value, Struct):
        yield value
        for _, inner in value.values():
            yield from _structs(inner)
    elif isinstance(value, Items):
        for inner in value.values:
            yield from _structs(inner)
