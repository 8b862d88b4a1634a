"""Deletion vectors: the ``deletion-vector-v1`` blob with its 64-bit Roaring bitmap.

Where all deletes are of one snapshot a file of format ``puffin`` is the bare blob, without a Puffin footer.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from ducklake_core.errors import CorruptFileError

_MAGIC = b"\xd1\xd3\x39\x64"
_COOKIE_WITH_RUNS = 12347
_COOKIE_WITHOUT_RUNS = 12346
# From this many containers on, a bitmap with runs carries container offsets as well (Roaring format specification).
_OFFSETS_FROM = 4
_ARRAY_LIMIT = 4096


def read_deletion_vector(blob: bytes, where: str) -> np.ndarray:
    """Positions in a deletion vector, ascending.

    Args:
        blob: The whole file: length (big endian), magic, bitmap, checksum (big endian).
        where: The file, for messages.

    Raises:
        CorruptFileError: Length, magic, checksum or bitmap are not right.
    """
    if len(blob) < 12 or blob[4:8] != _MAGIC:
        raise CorruptFileError(f"{where} is not a deletion vector", path=where)
    (length,) = struct.unpack_from(">I", blob, 0)
    body = blob[4 : 4 + length]
    if len(body) != length or len(blob) < 8 + length:
        raise CorruptFileError(f"the deletion vector {where} is cut short", path=where)
    if zlib.crc32(body) != struct.unpack_from(">I", blob, 4 + length)[0]:
        raise CorruptFileError(f"the checksum of the deletion vector {where} is wrong", path=where)
    try:
        return _read_bitmap64(body[4:])
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptFileError(f"the bitmap of the deletion vector {where} cannot be read", path=where) from error


def encode_deletion_vector(positions: np.ndarray) -> bytes:
    """The blob that :func:`read_deletion_vector` reads back.

    Args:
        positions: Ascending, distinct, none below 0.
    """
    keys, starts = np.unique(positions >> 32, return_index=True)
    ends = [*starts[1:].tolist(), len(positions)][: len(keys)]
    parts = [_MAGIC, struct.pack("<Q", len(keys))]
    for key, start, end in zip(keys.tolist(), starts.tolist(), ends, strict=True):
        parts += [struct.pack("<I", key), _encode_bitmap32(positions[start:end] & 0xFFFFFFFF)]
    body = b"".join(parts)
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _encode_bitmap32(values: np.ndarray) -> bytes:
    """Arrays of few values and bitmaps of many, no runs: what every reader knows."""
    keys, starts, counts = np.unique(values >> 16, return_index=True, return_counts=True)
    containers = [
        _encode_container((values[s : s + n] & 0xFFFF).astype("<u2")) for s, n in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    header = np.column_stack([keys, counts - 1]).astype("<u2").tobytes()
    first = 8 + len(header) + 4 * len(keys)
    offsets = np.cumsum([first, *(len(container) for container in containers)])[:-1].astype("<u4").tobytes()
    return struct.pack("<II", _COOKIE_WITHOUT_RUNS, len(keys)) + header + offsets + b"".join(containers)


def _encode_container(values: np.ndarray) -> bytes:
    if len(values) <= _ARRAY_LIMIT:
        return values.tobytes()
    bits = np.zeros(1 << 16, np.uint8)
    bits[values] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _read_bitmap64(data: bytes) -> np.ndarray:
    (count,) = struct.unpack_from("<Q", data, 0)
    offset = 8
    parts: list[np.ndarray] = []
    for _ in range(count):
        (key,) = struct.unpack_from("<I", data, offset)
        values, offset = _read_bitmap32(data, offset + 4)
        parts.append(values + (np.int64(key) << np.int64(32)))
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _read_bitmap32(data: bytes, offset: int) -> tuple[np.ndarray, int]:
    (cookie,) = struct.unpack_from("<I", data, offset)
    runs: np.ndarray
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        containers = (cookie >> 16) + 1
        offset += 4
        size = (containers + 7) // 8
        runs = np.unpackbits(np.frombuffer(data, np.uint8, size, offset), bitorder="little")[:containers]
        offset += size
        has_offsets = containers >= _OFFSETS_FROM
    elif cookie == _COOKIE_WITHOUT_RUNS:
        (containers,) = struct.unpack_from("<I", data, offset + 4)
        offset += 8
        runs = np.zeros(containers, np.uint8)
        has_offsets = True
    else:
        raise ValueError(f"unknown cookie {cookie}")
    header = np.frombuffer(data, "<u2", 2 * containers, offset).astype(np.int64)
    offset += 4 * containers + (4 * containers if has_offsets else 0)
    parts: list[np.ndarray] = []
    for index in range(containers):
        key, cardinality = int(header[2 * index]), int(header[2 * index + 1]) + 1
        values, offset = _read_container(data, offset, cardinality, bool(runs[index]))
        parts.append(values + (key << 16))
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64), offset


def _read_container(data: bytes, offset: int, cardinality: int, is_run: bool) -> tuple[np.ndarray, int]:
    if is_run:
        (count,) = struct.unpack_from("<H", data, offset)
        pairs = np.frombuffer(data, "<u2", 2 * count, offset + 2).astype(np.int64).reshape(count, 2)
        values = [np.arange(start, start + length + 1, dtype=np.int64) for start, length in pairs.tolist()]
        return np.concatenate(values) if values else np.empty(0, dtype=np.int64), offset + 2 + 4 * count
    if cardinality <= _ARRAY_LIMIT:
        return np.frombuffer(data, "<u2", cardinality, offset).astype(np.int64), offset + 2 * cardinality
    bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, offset), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), offset + 8192
