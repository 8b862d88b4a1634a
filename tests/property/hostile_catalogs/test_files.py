"""Data files that are not what the catalog says: right rows, or an error with the file's name; nothing is deleted on a wrong count."""

from __future__ import annotations

import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CorruptFileError, NotFoundError
from tests.property.hostile_catalogs.spoiled import ROWS, SpoiledLake


def test_a_file_that_is_gone(spoiled_sqlite: SpoiledLake) -> None:
    file = spoiled_sqlite.file(1)
    file.unlink()
    with pytest.raises(NotFoundError, match=file.name):
        spoiled_sqlite.rows()
    assert [row["a"] for row in spoiled_sqlite.rows("a < 2")] == [0, 1]


@pytest.mark.parametrize("size", [0, 5, 300])
def test_a_file_that_was_cut(spoiled_sqlite: SpoiledLake, size: int) -> None:
    file = spoiled_sqlite.file(1)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CorruptFileError, match=f"{file.name} of table main.t"):
        spoiled_sqlite.rows()


def test_a_file_with_a_broken_page(spoiled_sqlite: SpoiledLake) -> None:
    file = spoiled_sqlite.file(1)
    content = bytearray(file.read_bytes())
    content[4:60] = b"\xff" * 56
    file.write_bytes(content)
    with pytest.raises(CorruptFileError, match=file.name):
        spoiled_sqlite.rows()


@pytest.mark.parametrize("count", [5, 8])
def test_no_row_is_deleted_on_a_wrong_count(spoiled_sqlite: SpoiledLake, count: int) -> None:
    """Deleting as many rows as the catalog counts must not end a file that holds more."""
    spoiled_sqlite.edit(f"UPDATE ducklake_data_file SET record_count = {count} WHERE data_file_id = 1")
    lake = DuckLake.connect(spoiled_sqlite.address.url)
    try:
        with pytest.raises(CorruptFileError, match=f"holds 10 rows, but the catalog counts {count}"):
            lake.table("t").delete("b BETWEEN 'v10' AND 'v17'")
    finally:
        lake.close()
    assert spoiled_sqlite.rows() == ROWS
