"""Deletion vectors in Puffin files: 64-bit Roaring bitmaps per snapshot (specification: Deletion Vectors, version 1.1)."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError

_MAGIC = b"PFA1"
_TAIL_BYTES = 12
_COMPRESSED = 1
_BLOB_TYPE = "deletion-vector-v1"
_STATISTICS = ("apache-datasketches-theta-v1",)
"""Blobs that hold no deletes."""

_BITMAP_MAGIC = b"\xd1\xd3\x39\x64"
_COOKIE_WITH_RUNS = 12347
_COOKIE_WITHOUT_RUNS = 12346
# From this many containers on, a bitmap with runs carries container offsets as well (Roaring format specification).
_OFFSETS_FROM = 4
_ARRAY_LIMIT = 4096


# The two layouts. A bare vector is the whole file; a container (version 1.1) holds one vector per snapshot that deleted rows:
#
#   vector      length (big endian) | D1 D3 39 64 | bitmap | CRC-32 (big endian) of magic and bitmap
#   container   PFA1 | vector | vector ... | PFA1 | JSON footer | its length | flags | PFA1
#
#   bitmap      count (8 bytes) | key (high 32 bits) | 32-bit Roaring bitmap | key | bitmap ...      all little endian
#
# Vectors are cumulative: that of a snapshot holds the positions of all earlier ones too, so a reader of an old snapshot needs one vector.
_SNAPSHOT, _DATA_FILE, _CARDINALITY = "ducklake-snapshot-id", "referenced-data-file", "cardinality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The contents of a Puffin file.

    Attributes:
        positions: Deleted positions, ascending.
        snapshots: The snapshot that deleted each; None when no vector names one.
        data_files: Paths of the data files that the vectors name.
    """

    positions: np.ndarray
    snapshots: np.ndarray | None
    data_files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vector:
    """The entry of a deletion vector in the footer."""

    offset: int
    length: int
    snapshot: int | None
    cardinality: int | None
    data_file: str | None


def is_container(content: bytes) -> bool:
    """Return whether a file is a Puffin file, and no bare deletion vector."""
    return content[: len(_MAGIC)] == _MAGIC


def read_container(content: bytes, where: str) -> Container:
    """Return every deleted position with the first snapshot whose vector has it.

    Args:
        content: The whole file.
        where: The file, for messages.

    Raises:
        CorruptFileError: The file is damaged, or its parts contradict each other.
        UnsupportedFeatureError: Its footer is compressed, or it holds something else.
    """
    try:
        vectors = [_described(blob) for blob in _blobs(content, where)]
        if not vectors:
            raise _damaged(where, "it holds no deletion vector")
        named = sum(vector.snapshot is not None for vector in vectors)
        if named and named < len(vectors):
            raise _damaged(where, "some of its deletion vectors name a snapshot and some do not")
        positions, stamps = _first_deletes(vectors, content, where)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _damaged(where, f"its footer cannot be read ({error})") from error
    files = tuple(dict.fromkeys(vector.data_file for vector in vectors if vector.data_file is not None))
    return Container(positions=positions, snapshots=stamps if named else None, data_files=files)


def _first_deletes(vectors: Sequence[_Vector], content: bytes, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return positions, ascending, each with the oldest snapshot whose vector has it. At most two vectors are in memory."""
    positions, stamps = np.empty(0, np.int64), np.empty(0, np.int64)
    for vector in sorted(vectors, key=lambda vector: vector.snapshot or 0):
        held = _positions(vector, content, where)
        # The first of equal positions is that of the older snapshot.
        positions, first = np.unique(np.concatenate([positions, held]), return_index=True)
        stamps = np.concatenate([stamps, np.full(len(held), vector.snapshot or 0, np.int64)])[first]
        if len(positions) > len(held) and vector.snapshot is not None:
            raise _damaged(where, f"the deletion vector of snapshot {vector.snapshot} lacks deletes of an earlier one")
    return positions, stamps


def encode_container(positions: np.ndarray, snapshots: np.ndarray, data_file: str) -> tuple[bytes, int]:
    """Return the file that :func:`read_container` reads back, and the length of its footer.

    Args:
        positions: Ascending, distinct, none below 0.
        snapshots: The snapshot that deleted each.
        data_file: Full path of the data file, which each vector names.
    """
    content, blobs = bytearray(_MAGIC), []
    for snapshot in np.unique(snapshots).tolist():
        held = positions[snapshots <= snapshot]
        vector = encode_deletion_vector(held)
        blobs.append(
            {
                "type": _BLOB_TYPE,
                "fields": [],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(vector),
                "properties": {_DATA_FILE: data_file, _CARDINALITY: str(len(held)), _SNAPSHOT: str(snapshot)},
            }
        )
        content += vector
    payload = json.dumps({"blobs": blobs, "properties": {"created-by": "ducklake-core"}}, separators=(",", ":")).encode()
    footer = _MAGIC + payload + struct.pack("<iI", len(payload), 0) + _MAGIC
    return bytes(content) + footer, len(footer)


def _blobs(content: bytes, where: str) -> Iterator[Mapping[str, Any]]:
    if len(content) < 2 * len(_MAGIC) + _TAIL_BYTES or content[-len(_MAGIC) :] != _MAGIC:
        raise _damaged(where, "it is cut short")
    size, flags = struct.unpack_from("<iI", content, len(content) - _TAIL_BYTES)
    if flags & _COMPRESSED:
        raise UnsupportedFeatureError(f"the footer of the Puffin file {where} is compressed, which is not supported", path=where)
    start = len(content) - _TAIL_BYTES - size
    if size < 0 or start < 2 * len(_MAGIC) or content[start - len(_MAGIC) : start] != _MAGIC:
        raise _damaged(where, "its footer has another length than it declares")
    blobs: Sequence[Mapping[str, Any]] = json.loads(content[start : start + size])["blobs"]
    for blob in blobs:
        if blob["type"] not in (_BLOB_TYPE, *_STATISTICS):
            # It may hold deletes, which would be ignored silently.
            raise UnsupportedFeatureError(
                f"the Puffin file {where} holds a blob of type {blob['type']!r}, which is not supported", path=where
            )
    yield from (blob for blob in blobs if blob["type"] == _BLOB_TYPE)


def _described(blob: Mapping[str, Any]) -> _Vector:
    properties = blob.get("properties") or {}
    data_file = properties.get(_DATA_FILE)
    if not isinstance(data_file, str | None):
        raise TypeError(f"{data_file!r} is no path")
    return _Vector(
        offset=int(blob["offset"]),
        length=int(blob["length"]),
        snapshot=int(properties[_SNAPSHOT]) if _SNAPSHOT in properties else None,
        cardinality=int(properties[_CARDINALITY]) if _CARDINALITY in properties else None,
        data_file=data_file,
    )


def _positions(vector: _Vector, content: bytes, where: str) -> np.ndarray:
    if vector.offset < len(_MAGIC) or vector.length < 0 or vector.offset + vector.length > len(content):
        raise _damaged(where, "a deletion vector lies outside of it")
    positions = read_deletion_vector(content[vector.offset : vector.offset + vector.length], where)
    if vector.cardinality not in (None, len(positions)):
        raise _damaged(where, f"a deletion vector holds {len(positions)} positions, not {vector.cardinality}")
    return positions


def _damaged(where: str, reason: str) -> CorruptFileError:
    return CorruptFileError(f"the Puffin file {where} is damaged: {reason}", path=where)


def read_deletion_vector(blob: bytes, where: str) -> np.ndarray:
    """Return positions in a deletion vector, ascending.

    Args:
        blob: The whole file: length (big endian), magic, bitmap, checksum (big endian).
        where: The file, for messages.

    Raises:
        CorruptFileError: Length, magic, checksum or bitmap are not right.
    """
    if len(blob) < 12 or blob[4:8] != _BITMAP_MAGIC:
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
    """Return the blob that :func:`read_deletion_vector` reads back.

    Args:
        positions: Ascending, distinct, none below 0.
    """
    keys, starts = np.unique(positions >> 32, return_index=True)
    ends = [*starts[1:].tolist(), len(positions)][: len(keys)]
    parts = [_BITMAP_MAGIC, struct.pack("<Q", len(keys))]
    for key, start, end in zip(keys.tolist(), starts.tolist(), ends, strict=True):
        parts += [struct.pack("<I", key), _encode_bitmap32(positions[start:end] & 0xFFFFFFFF)]
    body = b"".join(parts)
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _encode_bitmap32(values: np.ndarray) -> bytes:
    """Encode arrays of few values and bitmaps of many; no runs, as every reader knows the other two."""
    keys, starts, counts = np.unique(values >> 16, return_index=True, return_counts=True)
    containers = [
        _encode_container((values[s : s + n] & 0xFFFF).astype("<u2")) for s, n in zip(starts.tolist(), counts.tolist(), strict=True)
    ]
    # The format stores each cardinality minus one, so that 65,536 fits into 16 bits.
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
    # Offsets are skipped: containers follow each other without gaps, and are read in order.
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
