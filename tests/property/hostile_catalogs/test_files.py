"""Data files that contradict the catalog: right rows, or an error that names the file; no row is deleted by a count."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CorruptFileError, NotFoundError
from tests.property.hostile_catalogs.lake import ROWS, DamagedLake


def test_a_missing_file(damaged_sqlite: DamagedLake) -> None:
    file = damaged_sqlite.path("r1")
    file.unlink()
    with pytest.raises(NotFoundError, match=file.name):
        damaged_sqlite.rows()
    assert [row["a"] for row in damaged_sqlite.rows("a < 2")] == [0, 1]


@pytest.mark.parametrize("size", [0, 5, 300])
def test_a_file_that_was_cut(damaged_sqlite: DamagedLake, size: int) -> None:
    file = damaged_sqlite.path("r1")
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CorruptFileError, match=f"{file.name} of table main.r"):
        damaged_sqlite.rows()


def test_a_file_with_a_broken_page(damaged_sqlite: DamagedLake) -> None:
    file = damaged_sqlite.path("r1")
    content = bytearray(file.read_bytes())
    content[4:60] = b"\xff" * 56
    file.write_bytes(content)
    with pytest.raises(CorruptFileError, match=file.name):
        damaged_sqlite.rows()


@pytest.mark.parametrize("count", [5, 8])
def test_no_row_is_deleted_on_a_wrong_count(damaged_sqlite: DamagedLake, count: int) -> None:
    """Deleting as many rows as the catalog counts must not end a file that holds more."""
    damaged_sqlite.edit(f"UPDATE ducklake_data_file SET record_count = {count} WHERE data_file_id = {damaged_sqlite.names['r1']}")
    lake = DuckLake.connect(damaged_sqlite.address.url)
    try:
        with pytest.raises(CorruptFileError, match=f"has 10 rows, but the catalog has record_count {count}"):
            lake.table("r").delete("b BETWEEN 'v10' AND 'v17'")
    finally:
        lake.close()
    assert damaged_sqlite.rows() == ROWS
