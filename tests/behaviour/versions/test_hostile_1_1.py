"""Puffin files whose bytes hold anything: right rows, or an error of the library."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CorruptFileError, DuckLakeError, UnsupportedFeatureError
from ducklake_core.storage.deletion_vectors import encode_container, encode_deletion_vector, read_container, read_deletion_vector
from tests.support.ducklakepy_lake import new_lake
from tests.support.oracle import LakeAddress

POSITIONS = np.array([0, 1, 5, 70_000, 70_001, 1 << 33], np.int64)
SNAPSHOTS = np.array([3, 7, 3, 7, 3, 9], np.int64)


def test_vectors_and_containers_are_read_back() -> None:
    rng = np.random.default_rng(7)
    for positions in (np.empty(0, np.int64), POSITIONS, np.arange(200_000), np.unique(rng.integers(0, 1 << 35, 5000))):
        assert read_deletion_vector(encode_deletion_vector(positions), "x").tolist() == positions.tolist()
    content, footer = encode_container(POSITIONS, SNAPSHOTS, "a.parquet")
    found = read_container(content, "x")
    assert found.snapshots is not None
    assert (found.positions.tolist(), found.snapshots.tolist(), found.data_files) == (
        POSITIONS.tolist(),
        SNAPSHOTS.tolist(),
        ("a.parquet",),
    )
    assert content[-footer:][:4] == b"PFA1"


def test_damaged_puffin_files_are_errors() -> None:
    content, _ = encode_container(POSITIONS, SNAPSHOTS, "a.parquet")
    for length in range(0, len(content), 3):
        with pytest.raises(CorruptFileError):
            read_container(content[:length], "x")
    rng = np.random.default_rng(3)
    for _ in range(300):
        spoiled = bytearray(content)
        spoiled[rng.integers(0, len(content))] ^= 1 << int(rng.integers(0, 8))
        try:
            found = read_container(bytes(spoiled), "x")
        except (CorruptFileError, UnsupportedFeatureError):
            continue
        # What is not in a checksum are names and numbers of the footer.
        assert set(found.positions.tolist()) <= set(POSITIONS.tolist())


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"blobs": 3}',
        b'{"blobs": [{}]}',
        b'{"blobs": []}',
        b'{"blobs": [{"type": "deletion-vector-v1", "offset": "x"}]}',
    ],
)
def test_unusable_footers_raise(payload: bytes) -> None:
    with pytest.raises(CorruptFileError):
        read_container(_with_footer(payload), "x")


def _container(address: LakeAddress) -> Path:
    """The one Puffin file of a lake."""
    (path,) = [path for path in Path(address.data_path).rglob("*.puffin") if path.read_bytes()[:4] == b"PFA1"]
    return path


def _with_footer(payload: bytes, vectors: bytes = b"PFA1") -> bytes:
    """Return a Puffin file of the content before the footer and a footer."""
    return vectors + b"PFA1" + payload + struct.pack("<iI", len(payload), 0) + b"PFA1"


def _change_footer(content: bytes, change: Callable[[list[dict[str, Any]]], object]) -> bytes:
    """A Puffin file whose footer describes its vectors in another way."""
    start = content.rindex(b"PFA1", 0, len(content) - 4)
    footer = json.loads(content[start + 4 : -12])
    change(footer["blobs"])
    return _with_footer(json.dumps(footer).encode(), content[:start])


def test_a_vector_of_another_data_file_raises(sqlite_address: LakeAddress) -> None:
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    lake.write("t", pa.table({"a": list(range(100))}))
    lake.table("t").delete("a = 3")
    lake.table("t").delete("a = 4")
    path = _container(sqlite_address)
    other = {"referenced-data-file": "another.parquet"}
    path.write_bytes(_change_footer(path.read_bytes(), lambda blobs: [blob["properties"].update(other) for blob in blobs]))
    with pytest.raises(CorruptFileError, match="another"):
        DuckLake.connect(sqlite_address.url).table("t").scan().to_arrow()


_MISSING = object()
_NUMBERS = (_MISSING, None, -1, 0, 1, "x", 1 << 40, 2.5, True, [], {})
_CELLS = (
    *((key, value) for key in ("offset", "length", "type", "properties") for value in (*_NUMBERS, "deletion-vector-v2")),
    *((f"properties.{key}", value) for key in ("ducklake-snapshot-id", "cardinality", "referenced-data-file") for value in _NUMBERS),
)


def _set(blob: dict[str, Any], key: str, value: object) -> None:
    *around, last = key.split(".")
    target = blob[around[0]] if around else blob
    target.pop(last) if value is _MISSING else target.update({last: value})


def test_every_cell_of_a_footer(sqlite_address: LakeAddress) -> None:
    """Snapshots before, between and after the deletes show their rows, or raise an error of the library."""
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    lake.write("t", pa.table({"a": list(range(100))}))
    lake.table("t").delete("a < 30")
    lake.table("t").delete("a > 90")
    wanted = dict(zip([snapshot.id for snapshot in lake.snapshots()][-3:], (100, 70, 61), strict=True))
    path = _container(sqlite_address)
    content, rejected = path.read_bytes(), 0
    tables = {at: lake.table("t", at=at) for at in wanted}
    for number in (0, 1):
        for key, value in _CELLS:
            path.write_bytes(_change_footer(content, lambda blobs, n=number, k=key, v=value: _set(blobs[n], k, v)))
            for at, count in wanted.items():
                try:
                    found = tables[at].scan().to_arrow().num_rows
                except DuckLakeError:
                    rejected += 1
                else:
                    assert found == count, (number, key, value, at)
    assert rejected > len(_CELLS)
    path.write_bytes(content)
    assert {at: table.scan().to_arrow().num_rows for at, table in tables.items()} == wanted
