"""Reading one data file with Arrow: its visible rows that satisfy a predicate, in the columns of a scan.

Where a predicate leaves rows out, the columns that it reads are decoded first, row group by row group, and the others only of row groups
that have such rows. Row groups of a usual size are read by several threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.engines.arrow.columns import Absent, InFile, InPath
from ducklake_core.engines.arrow.conform import conform, constant
from ducklake_core.engines.arrow.decoding import BATCH_ROWS, Handles, OpenFile, decoded
from ducklake_core.engines.arrow.file_layout import layout_of
from ducklake_core.engines.arrow.found_rows import FoundAhead, FoundRows, Held
from ducklake_core.engines.arrow.in_order import in_order
from ducklake_core.engines.arrow.row_groups import row_group_runs
from ducklake_core.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.files.locations import protocol_of
from ducklake_core.format.files.name_mapping import plain_text
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.planning.plan import FileTask, ScanProjection
from ducklake_core.storage.filesystems import Storage, printable

_GROUP_ROWS = 1 << 18
_GROUP_BYTES = 32 * 1024 * 1024
"""Row groups of more rows or bytes are read in batches by one thread for each column; others as a whole, several at a time."""

_THREADED_BYTES = 1 << 20
"""Files from this size on are decoded by several threads: handing out the columns of smaller ones takes longer than decoding them."""


_HELD_BYTES = 8 * 1024 * 1024
"""So many bytes of rows that were found in a row group are held before the columns of the second pass are decoded."""

_MOST_READERS = 8
_NOWHERE = np.full(BATCH_ROWS, -1, dtype=np.int64)
"""The positions of the rows of a batch, where nobody asks for them."""


def readers_of(path: str) -> int:
    """How many threads read files of a place at once: of a store so many that its answers overlap."""
    return min(pa.cpu_count(), _MOST_READERS) if protocol_of(path) == "file" else _MOST_READERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRows:
    """Which rows of a file are read.

    Attributes:
        positions: Positions in the file, ascending and distinct.
        wanted: Whether these are the rows to read, or those to leave out.
    """

    positions: np.ndarray
    wanted: bool

    def mask(self, start: int, count: int) -> np.ndarray | None:
        """Whether each of ``count`` rows from position ``start`` on is read; None when all of them are."""
        if not self.wanted and not len(self.positions):
            return None
        first, last = np.searchsorted(self.positions, [start, start + count])
        if last - first == (count if self.wanted else 0):
            return None
        mask = np.full(count, not self.wanted)
        mask[self.positions[first:last] - start] = self.wanted
        return mask


class FileReader:
    """An open file, with the source of every wanted column.

    Args:
        opened: The file.
        task: Which file it is, and what hides rows of it.
        shape: What to return.
        storage: How to open it once more.

    Raises:
        CorruptFileError: The file lacks row ids or snapshots that it must have.
    """

    def __init__(self, opened: OpenFile, task: FileTask, shape: ScanProjection, storage: Storage) -> None:
        self._opened = opened
        self._task = task
        self._shape = shape
        self._storage = storage
        self._layout = layout_of(opened.schema, task, shape)
        self._predicate = None if task.all_rows_match else shape.predicate
        self._check_rows_are_known()
        by_place = self._predicate is not None or self._layout.passes.rest or any(map(self._is_made_of_positions, shape.virtual))
        self._needs_positions = bool(by_place) or task.snapshot_filter is not None

    @property
    def file(self) -> DataFile:
        """What the catalog says of the file."""
        return self._task.file

    @property
    def record_count(self) -> int:
        """Rows by the file's own footer, visible or not."""
        return int(self._opened.metadata.num_rows)

    @property
    def stores_row_ids(self) -> bool:
        """Whether each row has its row id in the file, so that the catalog says nothing of them."""
        return self._layout.row_id_place is not None

    def _is_made_of_positions(self, virtual: str) -> bool:
        match virtual:
            case "rowid":
                return self._layout.row_id_place is None
            case "snapshot_id":
                return self._layout.snapshot_id_place is None and bool(self._task.file.row_counts)
            case name:
                return name == "file_row_number"

    def _check_rows_are_known(self) -> None:
        task, layout = self._task, self._layout
        if "rowid" in self._shape.read_virtual and layout.row_id_place is None and task.file.row_id_start is None:
            raise self._unknown("has no row ids, neither in the file nor in the catalog")
        if task.snapshot_filter is not None and layout.snapshot_id_place is None and not task.file.row_counts:
            raise self._unknown("holds rows of several snapshots, but not the snapshot id of each")

    def _unknown(self, what: str) -> CorruptFileError:
        where = printable(self._task.file.path)
        return CorruptFileError(f"{where} of table {self._shape.table} {what}", path=where)

    def batches(self, chosen: ChosenRows, threads: bool) -> Iterator[pa.RecordBatch]:
        """The rows that are chosen and satisfy the predicate, in their order.

        Args:
            chosen: Rows by their positions.
            threads: Whether several threads may read.
        """
        metadata = self._opened.metadata
        layout, only = self._layout, chosen.positions if chosen.wanted else None
        found = row_group_runs(
            metadata, layout.schema, self._shape.read_schema, layout.places, self._predicate, rows=self._task.rows, only=only
        )
        runs = list(found)
        groups = [(start, group) for start, run in runs for start, group in _starts(metadata, start, run)]
        if threads and len(groups) > 1 and all(_is_usual(metadata.row_group(group)) for _, group in groups):
            with Handles(self._opened, self._task.file, self._storage) as handles:
                pieces = (partial(self._whole_group, handles, start, group, chosen) for start, group in groups)
                yield from in_order(pieces, readers_of(self._task.file.path))
            return
        threads = threads and self._task.file.file_size_bytes >= _THREADED_BYTES
        for start, run in runs:
            yield from self._rows(self._opened, start, run, chosen, threads)

    def _whole_group(self, handles: Handles, start: int, group: int, chosen: ChosenRows) -> list[pa.RecordBatch]:
        with handles.one() as opened:
            return list(self._rows(opened, start, [group], chosen, threads=False))

    def _rows(self, opened: OpenFile, start: int, run: list[int], chosen: ChosenRows, threads: bool) -> Iterator[pa.RecordBatch]:
        """Wanted rows of neighbouring row groups, of which the first begins at a position."""
        if self._layout.passes.rest:
            for position, group in _starts(self._opened.metadata, start, run):
                yield from self._late(opened, position, group, chosen, threads)
            return
        for position, batch in self._decode(opened, start, run, self._layout.passes.first, threads):
            found = self._find(batch, position, chosen)
            if found is not None:
                yield self._output(found)

    def _late(self, opened: OpenFile, start: int, group: int, chosen: ChosenRows, threads: bool) -> Iterator[pa.RecordBatch]:
        """Wanted rows of a row group: the columns that only the result needs are decoded when there are such rows."""
        first = self._decode(opened, start, [group], self._layout.passes.first, threads)
        ahead = FoundAhead((position + batch.num_rows, self._find(batch, position, chosen)) for position, batch in first)
        if not ahead.look(_HELD_BYTES):
            return
        until = None if ahead.last is None else ahead.last + 1 - start
        for position, batch in self._decode(opened, start, [group], self._layout.passes.rest, threads, until):
            found = ahead.until(position + batch.num_rows)
            if found is None:
                continue
            rest = _rows_at(batch, found.positions - position)
            yield self._output(FoundRows(found.positions, {**found.held, **self._by_place(rest, self._layout.passes.rest)}))
            if ahead.is_done:
                # What is left of the row group has no wanted rows, and is not decoded.
                return

    def _decode(
        self, opened: OpenFile, start: int, groups: list[int], places: tuple[int, ...], threads: bool, until: int | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of some columns, each with the position of its first row; one ends after ``until`` rows."""
        columns = [self._layout.schema.names[place] for place in places] if self._layout.passes.named else None
        position = start
        for batch in decoded(opened, groups, columns, self._task.file, self._storage, threads=threads, until=until):
            yield position, batch
            position += batch.num_rows
        counted = sum(self._opened.metadata.row_group(group).num_rows for group in groups)
        if position - start != counted:
            # Positions of what follows would be wrong, and rows of the second pass missing.
            where, table = printable(self._task.file.path), self._shape.table
            message = f"{where} of table {table} has {position - start} rows where its footer counts {counted}"
            raise CorruptFileError(message, path=where, table=table)

    def _find(self, batch: pa.RecordBatch, start: int, chosen: ChosenRows) -> FoundRows | None:
        """The rows of a batch that are chosen and satisfy the predicate, None when there are none."""
        if not self._needs_positions:
            mask = chosen.mask(start, batch.num_rows)
            batch = batch if mask is None else batch.filter(pa.array(mask))
            return FoundRows(_NOWHERE[: batch.num_rows], self._by_place(batch)) if batch.num_rows else None
        positions: npt.NDArray[np.int64] = np.arange(start, start + batch.num_rows, dtype=np.int64)
        mask = self._visible(batch, positions, chosen.mask(start, batch.num_rows))
        if mask is not None:
            batch, positions = batch.filter(pa.array(mask)), positions[mask]
        if len(positions) and self._predicate is not None:
            outcome = self._outcome(FoundRows(positions, self._by_place(batch)))
            if outcome.true_count < len(positions):
                places = np.flatnonzero(outcome.fill_null(False).to_numpy(zero_copy_only=False))
                batch, positions = _rows_at(batch, places), positions[places]
        return FoundRows(positions, self._by_place(batch)) if len(positions) else None

    def _by_place(self, batch: pa.RecordBatch, places: tuple[int, ...] | None = None) -> Held:
        """Return the columns of a pass by their place, those of the first pass if none is given."""
        return dict(zip(self._layout.passes.first if places is None else places, batch.columns, strict=True))

    def _visible(self, batch: pa.RecordBatch, positions: npt.NDArray[np.int64], mask: np.ndarray | None) -> np.ndarray | None:
        if self._task.snapshot_filter is not None:
            if self._layout.snapshot_id_place is not None:
                snapshots = self._by_place(batch)[self._layout.snapshot_id_place].to_numpy(zero_copy_only=False)
            else:
                snapshots = _counted_snapshots(self._task.file, positions)
            visible = snapshots <= self._task.snapshot_filter
            mask = visible if mask is None else mask & visible
        return mask

    def _outcome(self, rows: FoundRows) -> pa.BooleanArray:
        from ducklake_core.engines.arrow.evaluate import evaluate

        assert self._predicate is not None
        arrays = [self._column(column, rows) for column in self._layout.asked]
        arrays += [self._virtual(name, rows) for name in self._layout.asked_virtual]
        # Arrow knows no number of rows without a column; a predicate without one is a constant.
        known = (
            pa.RecordBatch.from_arrays(arrays, schema=self._layout.asked_schema())
            if arrays
            else pa.RecordBatch.from_arrays([pa.array(rows.positions)], ["position"])
        )
        return evaluate(self._predicate, known, filtering=True)

    def _output(self, rows: FoundRows) -> pa.RecordBatch:
        arrays = [self._column(column, rows) for column in self._shape.schema]
        arrays += [self._virtual(name, rows) for name in self._shape.virtual]
        return pa.RecordBatch.from_arrays(arrays, schema=self._layout.output_schema)

    def _column(self, column: Field, rows: FoundRows) -> pa.Array[Any]:
        unchanged = self._layout.unchanged.get(column.id)
        if unchanged is not None:
            array = rows.held[unchanged[0]]
            if array.type.equals(unchanged[1], check_metadata=True):
                return array
        _, source = self._layout.sources[column.id]
        with self._naming(column):
            match source:
                case InFile(place=place, field=held):
                    return conform(rows.held[place], held, column)
                case InPath(text=text):
                    value = None if text is None else plain_text(text, column.type)
                    return constant_array(value, column, len(rows.positions))
                case Absent():
                    return constant(column, len(rows.positions))
                case _:
                    assert_never(source)

    @contextmanager
    def _naming(self, column: Field) -> Iterator[None]:
        """Whatever does not fit the column is told with the file and the table."""
        where, table = printable(self._task.file.path), self._shape.table
        details = {"path": where, "table": table, "column": column.name}
        try:
            yield
        except (SchemaError, UnsupportedFeatureError) as error:
            raise type(error)(f"{where} of table {table}: {error.message}", **details) from error
        except CorruptFileError as error:
            raise CorruptFileError(f"{where} of table {table}: column {column.name!r}: {error.message}", **details) from error
        except pa.ArrowException as error:
            raise SchemaError(f"{where} of table {table}: column {column.name!r}: {error}", **details) from error

    def _virtual(self, name: str, rows: FoundRows) -> pa.Array[Any]:
        file, positions = self._task.file, rows.positions
        match name:
            case "rowid" if self._layout.row_id_place is not None:
                return rows.held[self._layout.row_id_place].cast(pa.int64())
            case "rowid":
                return pa.array(positions + (file.row_id_start or 0))
            case "snapshot_id" if self._layout.snapshot_id_place is not None:
                return rows.held[self._layout.snapshot_id_place].cast(pa.int64())
            case "snapshot_id" if file.row_counts:
                return pa.array(_counted_snapshots(file, positions))
            case "snapshot_id":
                return pa.array(np.full(len(positions), file.begin_snapshot, np.int64))
            case "filename":
                return pa.repeat(pa.scalar(file.path, pa.string()), len(positions))
            case "file_index":
                return pa.repeat(pa.scalar(self._task.index, pa.uint64()), len(positions))
            case _:
                return pa.array(positions)


def _starts(metadata: pq.FileMetaData, start: int, run: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring row groups, each with the position of its first row."""
    for group in run:
        yield start, group
        start += metadata.row_group(group).num_rows


def _is_usual(group: pq.RowGroupMetaData) -> bool:
    return bool(group.num_rows <= _GROUP_ROWS and group.total_byte_size <= _GROUP_BYTES)


def _rows_at(batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Rows of a batch by their places in it, which ascend."""
    if len(places) == batch.num_rows:
        return batch
    if len(places) <= batch.num_rows // 2:
        # Of few rows a fifth of the time that leaving out the others takes, of half of them 0.6; of nearly all 1.25.
        return batch.take(pa.array(places))
    mask = np.zeros(batch.num_rows, dtype=bool)
    mask[places] = True
    return batch.filter(pa.array(mask))


def _counted_snapshots(file: DataFile, positions: np.ndarray) -> np.ndarray:
    """The snapshots of rows at some positions of a file whose rows the catalog counts by snapshot."""
    snapshots, ends = np.array(file.row_counts, dtype=np.int64).T
    found: np.ndarray = snapshots[np.minimum(np.searchsorted(ends, positions, side="right"), len(snapshots) - 1)]
    return found
