"""Catalogs of version 1.1 whose new columns, and Puffin files whose bytes, hold anything: right rows, or an error of ours."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import func, select, text

from ducklake_core import DuckLake
from ducklake_core.errors import CorruptFileError, DuckLakeError, UnsupportedFeatureError
from ducklake_core.storage.deletion_vectors import encode_container, encode_deletion_vector, read_container, read_deletion_vector
from tests.support.ducklakepy_lake import new_lake
from tests.support.oracle import LakeAddress
from tests.support.parameters import spread

POSITIONS = np.array([0, 1, 5, 70_000, 70_001, 1 << 33], np.int64)
SNAPSHOTS = np.array([3, 7, 3, 7, 3, 9], np.int64)


_EDITS = {
    "UPDATE ducklake_data_file SET row_group_count = -1": None,
    "UPDATE ducklake_data_file SET row_group_count = 0": None,
    "UPDATE ducklake_delete_file SET row_group_count = 99": None,
    "UPDATE ducklake_file_column_stats SET min_is_exact = NULL, max_is_exact = NULL": None,
    "UPDATE ducklake_file_column_stats SET min_is_exact = false, max_is_exact = false": None,
    "UPDATE ducklake_table_column_stats SET min_is_exact = false": None,
    "UPDATE ducklake_schema SET parent_schema_id = schema_id": "no table main.t",
    "UPDATE ducklake_schema SET parent_schema_id = 77": "no table main.t",
    "DROP TABLE ducklake_view_column_tag": None,
    "INSERT INTO ducklake_view_column_tag VALUES (99, NULL, NULL, NULL, NULL, NULL)": None,
    "ALTER TABLE {inlined} RENAME COLUMN _ducklake_end_snapshot TO end_snapshot": "_ducklake_end_snapshot",
}


@pytest.mark.parametrize("edit", spread(_EDITS, 4))
def test_edited_catalogs(lake_address: LakeAddress, edit: str) -> None:
    _check_edited(lake_address, edit, _EDITS[edit])


def test_cells_of_any_type(sqlite_address: LakeAddress) -> None:
    _check_edited(sqlite_address, "UPDATE ducklake_data_file SET row_group_count = 'many'", None)
    with DuckLake.connect(sqlite_address.url) as lake:
        with lake.database.write() as connection:
            connection.execute(text("UPDATE ducklake_file_column_stats SET min_is_exact = 'maybe'"))
        with pytest.raises(DuckLakeError, match="true or false"):
            lake.table("t").scan(where="a >= 0 and f > 0").to_arrow()


def _check_edited(address: LakeAddress, edit: str, error: str | None) -> None:
    """Right rows, also after a write, or an error that says what is wrong."""
    lake = new_lake(address)
    lake.write("t", pa.table({"a": [1, 2], "f": [1.5, 2.5]}))
    lake.write("t", pa.table({"a": list(range(100, 200)), "f": [float("nan")] * 100}))
    lake.table("t").delete("a % 7 = 1")
    with lake.database.write() as connection:
        registered = lake.database.tables["inlined_data_tables"].c.table_name
        name = connection.execute(select(func.min(registered))).scalar_one()
        connection.execute(text(edit.format(inlined=name)))
    again = DuckLake.connect(address.url)
    if error is not None:
        with pytest.raises(DuckLakeError, match=error):
            again.table("t").scan(where="a >= 0 and f > 0").to_arrow()
        return
    wanted = [a for a in (1, 2, *range(100, 200)) if a % 7 != 1]
    assert sorted(again.table("t").scan(where="a >= 0 and f > 0").to_arrow()["a"].to_pylist()) == wanted
    again.write("t", pa.table({"a": [3], "f": [0.5]}))
    assert again.table("t").scan().count() == len(wanted) + 1


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
def test_footers_that_say_nothing_usable(payload: bytes) -> None:
    with pytest.raises(CorruptFileError):
        read_container(_with_footer(payload), "x")


def _container(address: LakeAddress) -> Path:
    """The one Puffin file of a lake."""
    (path,) = [path for path in Path(address.data_path).rglob("*.puffin") if path.read_bytes()[:4] == b"PFA1"]
    return path


def _with_footer(payload: bytes, vectors: bytes = b"PFA1") -> bytes:
    """A Puffin file of everything before the footer, and what the footer says."""
    return vectors + b"PFA1" + payload + struct.pack("<iI", len(payload), 0) + b"PFA1"


def _change_footer(content: bytes, change: Callable[[list[dict[str, Any]]], object]) -> bytes:
    """A Puffin file whose footer describes its vectors in another way."""
    start = content.rindex(b"PFA1", 0, len(content) - 4)
    footer = json.loads(content[start + 4 : -12])
    change(footer["blobs"])
    return _with_footer(json.dumps(footer).encode(), content[:start])


def test_a_vector_of_another_data_file_is_refused(sqlite_address: LakeAddress) -> None:
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
    """Snapshots before, between and after the deletes show the rows that they should, or an error of ours."""
    lake = new_lake(sqlite_address)
    lake.set_option("data_inlining_row_limit", 0)
    lake.set_option("write_deletion_vectors", True)
    lake.write("t", pa.table({"a": list(range(100))}))
    lake.table("t").delete("a < 30")
    lake.table("t").delete("a > 90")
    wanted = dict(zip([snapshot.id for snapshot in lake.snapshots()][-3:], (100, 70, 61), strict=True))
    path = _container(sqlite_address)
    content, refused = path.read_bytes(), 0
    tables = {at: lake.table("t", at=at) for at in wanted}
    for number in (0, 1):
        for key, value in _CELLS:
            path.write_bytes(_change_footer(content, lambda blobs, n=number, k=key, v=value: _set(blobs[n], k, v)))
            for at, count in wanted.items():
                try:
                    found = tables[at].scan().to_arrow().num_rows
                except DuckLakeError:
                    refused += 1
                else:
                    assert found == count, (number, key, value, at)
    assert refused > len(_CELLS)
    path.write_bytes(content)
    assert {at: table.scan().to_arrow().num_rows for at, table in tables.items()} == wanted
