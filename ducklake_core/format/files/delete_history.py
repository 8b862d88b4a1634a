"""Everything that ever deleted rows of a data file, as a value that travels to executors."""

from __future__ import annotations

from dataclasses import dataclass

from ducklake_core.format.files.data_files import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteHistory:
    """Everything that ever deleted rows of a data file.

    Attributes:
        file: The data file, live or not, with every delete file it has, ended ones too.
        inlined: (position, snapshot) of the deletes that the catalog holds.
    """

    file: DataFile
    inlined: tuple[tuple[int, int], ...] = ()


def deleted_count(file: DataFile) -> int:
    """Deleted rows of a file, as the catalog counts them."""
    return sum(one.delete_count for one in file.delete_files) + len(file.inlined_deletes)
