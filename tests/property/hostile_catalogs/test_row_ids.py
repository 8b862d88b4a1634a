"""Files that share row ids at some snapshot: the result of comparing all pairs, at a cost linear in the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ducklake_core.maintenance.check.files import overlapping


@dataclass
class File:
    """A row of ducklake_data_file that counts the reads of its row ids."""

    data_file_id: int
    start: int
    record_count: int
    begin_snapshot: int
    end_snapshot: int | None
    reads: int = 0

    @property
    def row_id_start(self) -> int:
        self.reads += 1
        return self.start

    def meets(self, other: File) -> bool:
        """Return True where some snapshot shows a row id in both."""
        return _meet((self.start, self.start + self.record_count), (other.start, other.start + other.record_count)) and _meet(
            self._shown(), other._shown()
        )

    def _shown(self) -> tuple[float, float]:
        return self.begin_snapshot, inf if self.end_snapshot is None else self.end_snapshot


def _meet(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def _reads(files: Sequence[File]) -> float:
    """Return the average number of reads of each file in a sound table."""
    assert list(overlapping(files)) == []
    return sum(file.reads for file in files) / len(files)


_ends = st.none() | st.integers(0, 12)
_files = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.integers(0, 9), _ends), max_size=12).map(
    lambda rows: [File(number, *row) for number, row in enumerate(rows)]
)


@given(_files)
def test_as_comparing_each_with_each(files: list[File]) -> None:
    ordered = sorted(files, key=lambda file: (file.start, file.data_file_id))
    wanted = {file.data_file_id for index, file in enumerate(ordered) if any(file.meets(one) for one in ordered[:index])}
    found = list(overlapping(files))
    assert [other.data_file_id for _, other in found] == [file.data_file_id for file in ordered if file.data_file_id in wanted]
    assert all(one.meets(other) and (one.start, one.data_file_id) < (other.start, other.data_file_id) for one, other in found)


@pytest.mark.parametrize("merges", [10, 1000])
def test_a_table_that_is_merged_again_and_again(merges: int) -> None:
    """Ten files come, and are merged with all that was there before: a row id is in as many files as there were merges."""
    files: list[File] = []
    for merge in range(merges):
        first = merge * 11
        files += [File(first + n, (merge * 10 + n) * 100, 100, first + n, first + 10) for n in range(10)]
        files.append(File(first + 10, 0, (merge + 1) * 1000, first + 10, first + 21))
    # The file before goes when the next merge is committed.
    assert _reads(files) < 30


@pytest.mark.parametrize("partitions", [2, 300])
def test_partitions_that_are_merged_again_and_again(partitions: int) -> None:
    """Files whose first row ids do not follow their order."""
    files = []
    for merge in range(20):
        for partition in range(partitions):
            begin = 1 + merge * partitions + partition
            files.append(File(len(files), partition * 10_000, 10 * (merge + 1), begin, begin + partitions))
    assert _reads(files) < 30
