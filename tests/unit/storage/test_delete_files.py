"""Delete files: round trips, files of DuckDB, and errors."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.errors import CorruptFileError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import DeleteFile
from ducklake_core.storage.delete_files import read_delete_file, write_delete_file
from ducklake_core.storage.filesystems import Storage
from tests.support.oracle import attached, sqlite_lake

STORAGE = Storage()


def delete_file(path: Path | str, file_format: str = "parquet") -> DeleteFile:
    return DeleteFile(
        id=1, data_file_id=0, path=str(path), format=file_format, delete_count=0, file_size_bytes=0, footer_size=None, begin_snapshot=3
    )  # fmt: skip


def test_two_columns_come_back(tmp_path: Path) -> None:
    path = str(tmp_path / "d.parquet")
    written = write_delete_file(STORAGE, path, "/lake/a.parquet", np.array([1, 5, 9]))
    content = Path(path).read_bytes()
    assert (written.file_size_bytes, written.row_group_count) == (len(content), 1)
    assert written.footer_size == int.from_bytes(content[-8:-4], "little")
    found = read_delete_file(STORAGE, delete_file(path))
    assert found.positions.tolist() == [1, 5, 9]
    assert found.snapshots is None
    assert duckdb.sql(f"from '{path}'").fetchall() == [("/lake/a.parquet", position) for position in (1, 5, 9)]
    ids = [pq.ParquetFile(path).schema_arrow.field(i).metadata[b"PARQUET:field_id"] for i in range(2)]
    assert ids == [b"2147483646", b"2147483645"]


def test_snapshot_column_hides_later_deletes(tmp_path: Path) -> None:
    path = str(tmp_path / "d.parquet")
    write_delete_file(STORAGE, path, "a", np.array([1, 5, 9]), np.array([7, 4, 7]))
    assert read_delete_file(STORAGE, delete_file(path)).visible_at(4).tolist() == [5]
    assert read_delete_file(STORAGE, delete_file(path)).visible_at(7).tolist() == [1, 5, 9]


@pytest.mark.parametrize("positions", [[2, 1], [1, 1], [-1, 3]])
def test_unsorted_positions_are_not_written(tmp_path: Path, positions: list[int]) -> None:
    with pytest.raises(CorruptFileError, match="strictly increasing"):
        write_delete_file(STORAGE, str(tmp_path / "d.parquet"), "a", np.array(positions))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"file_path": ["a", "a"], "pos": [2, 1]}), "strictly increasing"),
        (pa.table({"file_path": ["a", "a"], "pos": [1, None]}), "NULL"),
        (pa.table({"pos": [1]}), "columns"),
        (pa.table({"file_path": ["a"], "pos": ["x"]}), "columns"),
    ],
)
def test_invalid_delete_files_raise(tmp_path: Path, table: pa.Table, message: str) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(table, path)
    with pytest.raises(CorruptFileError, match=message):
        read_delete_file(STORAGE, delete_file(path))


def test_other_third_column_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"file_path": ["a"], "pos": [4], "row": [99]}), path)
    assert read_delete_file(STORAGE, delete_file(path)).visible_at(0).tolist() == [4]


def test_unknown_formats_raise() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'orc'"):
        read_delete_file(STORAGE, delete_file("x", "orc"))


@pytest.mark.parametrize("condition", ["i % 3 = 0", "i >= 1000 and i < 90000", "i in (0, 5, 70000)", "i % 2 = 0 or i > 60000"])
def test_deletion_vectors_of_duckdb(tmp_path: Path, condition: str) -> None:
    address = sqlite_lake(tmp_path)
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CALL lake.set_option('write_deletion_vectors', 'true')", "CREATE TABLE t AS SELECT i FROM range(150000) r(i)")
        duck.run(f"DELETE FROM t WHERE {condition}")
        expected = [row[0] for row in duck.rows(f"SELECT i FROM range(150000) r(i) WHERE {condition} ORDER BY i")]
    (path,) = tmp_path.rglob("*.puffin")
    assert read_delete_file(STORAGE, delete_file(path, "puffin")).visible_at(0).tolist() == expected
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    with pytest.raises(CorruptFileError):
        read_delete_file(STORAGE, delete_file(path, "puffin"))
