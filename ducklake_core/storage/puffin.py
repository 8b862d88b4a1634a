"""Puffin files with a deletion vector for each snapshot that deleted rows of a data file (specification: Deletion Vectors, version 1.1).

Each vector holds every position that was deleted up to its snapshot::

    PFA1 | vector up to snapshot 3 | vector up to snapshot 7 | PFA1 | JSON | length of the JSON, flags | PFA1
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.storage.roaring import encode_deletion_vector, read_deletion_vector

_MAGIC = b"PFA1"
_TAIL_BYTES = 12
_COMPRESSED = 1
_BLOB_TYPE = "deletion-vector-v1"
_STATISTICS = ("apache-datasketches-theta-v1",)
"""Blobs that hold no deletes."""
_SNAPSHOT, _DATA_FILE, _CARDINALITY = "ducklake-snapshot-id", "referenced-data-file", "cardinality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What a Puffin file says.

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
    """What the footer says of a deletion vector."""

    offset: int
    length: int
    snapshot: int | None
    cardinality: int | None
    data_file: str | None


def is_container(content: bytes) -> bool:
    """Whether a file is a Puffin file, and no bare deletion vector."""
    return content[: len(_MAGIC)] == _MAGIC


def read_container(content: bytes, where: str) -> Container:
    """Every deleted position with the first snapshot whose vector has it.

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
    """Positions, ascending, each with the oldest snapshot whose vector has it; in the memory of two vectors: each holds those before."""
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
    """The file that :func:`read_container` reads back, and the length of its footer.

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
        raise _damaged(where, "its footer has another length than it says")
    blobs: Sequence[Mapping[str, Any]] = json.loads(content[start : start + size])["blobs"]
    for blob in blobs:
        if blob["type"] not in (_BLOB_TYPE, *_STATISTICS):
            # Deletes may be in it that nobody would miss.
            raise UnsupportedFeatureError(
                f"the Puffin file {where} holds a blob of type {blob['type']!r}, which is not supported", path=where
            )
    yield from (blob for blob in blobs if blob["type"] == _BLOB_TYPE)


def _described(blob: Mapping[str, Any]) -> _Vector:
    said = blob.get("properties") or {}
    data_file = said.get(_DATA_FILE)
    if not isinstance(data_file, str | None):
        raise TypeError(f"{data_file!r} is no path")
    return _Vector(
        offset=int(blob["offset"]),
        length=int(blob["length"]),
        snapshot=int(said[_SNAPSHOT]) if _SNAPSHOT in said else None,
        cardinality=int(said[_CARDINALITY]) if _CARDINALITY in said else None,
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
