"""Read one data file with Arrow: locate its columns, filter its rows, cast values to the table's types.

The path of a batch through this module::

    footer --row_group_runs--> row groups --decoded--> batch of file columns, at a position of the file
      _find     hide deleted positions and later snapshots, then evaluate the predicate
      _late     decode the remaining columns only where _find kept rows (two passes over a row group)
      _output   cast each column to the table's type, add constants for absent columns and the virtual columns

Positions count physical rows of the file, deleted ones included. They carry the row ids and the deletes, so that no step may lose count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ducklake_core.engines.arrow.decoding import BATCH_ROWS, Handles, OpenFile, decoded, reassemble, row_group_runs
from ducklake_core.engines.arrow.scalar_functions import cast_scalar
from ducklake_core.engines.arrow.work import in_order
from ducklake_core.errors import CatalogCorruptError, CorruptFileError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.promotion import promote
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, DataFile
from ducklake_core.format.files.name_mapping import MappedColumn, NameMapping, path_value, plain_text
from ducklake_core.format.files.paths import protocol_of
from ducklake_core.format.types.data_types import (
    BLOB,
    FLOAT32,
    JSON,
    TIME_NS,
    TIMESTAMP_NS,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import (
    FIELD_ID_KEY,
    Schema,
    from_arrow_field,
    is_list,
    to_arrow_field,
    to_arrow_schema,
    to_arrow_type,
)
from ducklake_core.format.values.arrow_cast import (
    cast_temporal,
    check_text,
    constant_array,
    is_text,
    list_offsets,
    list_values,
    map_entries,
    null_mask,
)
from ducklake_core.planning.plan import VIRTUAL_SCHEMA, FileTask, ScanProjection, needed_virtual
from ducklake_core.storage.filesystems import Storage, printable

_GROUP_ROWS = 1 << 18
_GROUP_BYTES = 32 * 1024 * 1024
"""Row groups of more rows or bytes are read in batches by one thread for each column; others as a whole, several at a time."""
_THREADED_BYTES = 1 << 20
"""Files from this size on are decoded by several threads: handing out the columns of smaller ones takes longer than decoding them."""
_HELD_BYTES = 8 * 1024 * 1024
"""Bytes of matching rows of a row group that are held before the columns of the second pass are decoded."""
_MAX_READERS = 8
_NOWHERE = np.full(BATCH_ROWS, -1, dtype=np.int64)
"""The positions of the rows of a batch when nothing needs them."""

_MAX_REMEMBERED = 8

ArrowField: TypeAlias = Any

_INFINITE = 2**63 - 1
_NARROW_DIGITS = 18
"""Decimals of up to 18 digits take 64 bits or less in DuckDB, which rounds floats to them in another way than to wider ones."""
_MICROSECONDS = {"ms": 1000, "s": 1_000_000}

Held: TypeAlias = "Mapping[int, pa.Array[Any]]"
"""Arrays of a file's columns by their indexes in it."""


def readers_of(path: str) -> int:
    """Return how many threads read files of one location at once; a remote store gets the maximum, because its requests overlap."""
    return min(pa.cpu_count(), _MAX_READERS) if protocol_of(path) == "file" else _MAX_READERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRows:
    """The rows of a file to read, by position.

    Attributes:
        positions: Positions in the file, ascending and distinct.
        wanted: Whether these are the rows to read, or those to leave out.
    """

    positions: np.ndarray
    wanted: bool

    def mask(self, start: int, count: int) -> np.ndarray | None:
        """Return for each of ``count`` rows from position ``start`` whether it is read; None when all of them are."""
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
        self._predicate = shape.filter_of(task)
        self._check_rows_are_known()
        by_place = self._predicate is not None or self._layout.passes.rest or any(map(self._is_made_of_positions, shape.virtual))
        self._needs_positions = bool(by_place) or task.snapshot_filter is not None

    @property
    def file(self) -> DataFile:
        """Return the catalog's record of the file."""
        return self._task.file

    @property
    def record_count(self) -> int:
        """Return the number of rows in the file, visible or not."""
        return self._opened.rows

    @property
    def stores_row_ids(self) -> bool:
        """Return whether the file stores a row id with each row, which replaces the ids that the catalog implies."""
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
            raise self._unknown("has rows of several snapshots, but no column with their snapshot ids")

    def _unknown(self, what: str) -> CorruptFileError:
        where = printable(self._task.file.path)
        return CorruptFileError(f"{where} of table {self._shape.table} {what}", path=where)

    def batches(self, chosen: ChosenRows, threads: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are chosen and satisfy the predicate, in their order.

        Args:
            chosen: Rows by their positions.
            threads: Whether several threads may read.
        """
        # Row groups of usual size are read by one thread each; huge ones are decoded in batches, by one thread for each column, because
        # several of them would not fit in memory at once.
        metadata = self._opened.metadata
        layout, only = self._layout, chosen.positions if chosen.wanted else None
        pruning = None if self._task.all_rows_match else self._shape.predicate
        found = row_group_runs(self._opened, self._shape.read_schema, layout.places, pruning, rows=self._task.rows, only=only)
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
        """Yield wanted rows of consecutive row groups; the first begins at the given position."""
        if self._layout.passes.rest:
            for position, group in _starts(self._opened.metadata, start, run):
                yield from self._late(opened, position, group, chosen, threads)
            return
        for position, batch in self._decode(opened, start, run, self._layout.passes.first, threads):
            found = self._find(batch, position, chosen)
            if found is not None:
                yield self._output(found)

    def _late(self, opened: OpenFile, start: int, group: int, chosen: ChosenRows, threads: bool) -> Iterator[pa.RecordBatch]:
        """Yield wanted rows of a row group; decode the columns that only the result needs when there are such rows."""
        # The second pass follows the first one at a distance of at most _HELD_BYTES of found rows. Both decode the same row group, but
        # their batches need not have the same size: rows are matched by position.
        #
        #   first pass   |--batch--|--batch--|--batch--|   rows found -> FoundAhead
        #   second pass  |----batch----|----batch----|     takes the found rows before the end of its batch
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
        """Yield batches of some columns, each with the position of its first row; one ends after ``until`` rows."""
        # Arrow makes a new list at each access.
        names = self._layout.schema.names
        columns = [names[place] for place in places] if self._layout.passes.named else None
        position = start
        for batch in decoded(opened, groups, columns, self._task.file, self._storage, threads=threads, until=until):
            yield position, batch
            position += batch.num_rows
        counted = sum(self._opened.metadata.row_group(group).num_rows for group in groups)
        if position - start != counted:
            # Positions of what follows would be wrong, and rows of the second pass missing.
            where, table = printable(self._task.file.path), self._shape.table
            message = f"{where} of table {table} has {position - start:,} rows, but its footer counts {counted:,}"
            raise CorruptFileError(message, path=where, table=table)

    def _find(self, batch: pa.RecordBatch, start: int, chosen: ChosenRows) -> FoundRows | None:
        """Return the rows of a batch that are chosen and satisfy the predicate, None when there are none."""
        # The deleted rows go first: a predicate must not fail on a value of a row that no reader sees.
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
        """Return the columns of a pass by their index in the file, those of the first pass if none is given."""
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
        arrays = [self._column(column, rows) for column in self._layout.requested]
        arrays += [self._virtual(name, rows) for name in self._layout.requested_virtual]
        # A predicate without columns is a constant, and an Arrow batch without columns has no row count.
        known = (
            pa.RecordBatch.from_arrays(arrays, schema=self._layout.requested_schema())
            if arrays
            else pa.RecordBatch.from_arrays([pa.array(rows.positions)], ["position"])
        )
        return evaluate(self._predicate, known)

    def _output(self, rows: FoundRows) -> pa.RecordBatch:
        arrays = [self._column(column, rows) for column in self._shape.schema]
        arrays += [self._virtual(name, rows) for name in self._shape.virtual]
        return pa.RecordBatch.from_arrays(arrays, schema=self._layout.output_schema)

    def _column(self, column: Field, rows: FoundRows) -> pa.Array[Any]:
        unchanged = self._layout.unchanged.get(column.id)
        if unchanged is not None:
            array = rows.held[unchanged[0]]
            if self._task.file.mapping_id is not None:
                with self._naming(column):
                    self._check_text(array)
            if array.type.equals(unchanged[1], check_metadata=True):
                return array
        _, source = self._layout.sources[column.id]
        with self._naming(column):
            match source:
                case InFile(place=place, field=held):
                    self._check_text(rows.held[place])
                    return conform(rows.held[place], held, column)
                case InPath(text=text):
                    value = None if text is None else plain_text(text, column.type)
                    return constant_array(value, column, len(rows.positions))
                case Absent():
                    return constant(column, len(rows.positions))
                case _:
                    assert_never(source)

    def _check_text(self, array: pa.Array[Any]) -> None:
        """Raise if an added file has strings that are not UTF-8: Arrow decodes them without a check, and fails much later."""
        if self._task.file.mapping_id is None:
            return
        try:
            check_text(array)
        except pa.ArrowInvalid as error:
            raise CorruptFileError(
                f"the file has strings that are not UTF-8: {error}; convert them with the program that wrote it"
            ) from error

    @contextmanager
    def _naming(self, column: Field) -> Iterator[None]:
        """Add the file, the table and the column to errors of values that do not fit."""
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
    """Yield neighbouring row groups, each with the position of its first row."""
    for group in run:
        yield start, group
        start += metadata.row_group(group).num_rows


def _is_usual(group: pq.RowGroupMetaData) -> bool:
    return bool(group.num_rows <= _GROUP_ROWS and group.total_byte_size <= _GROUP_BYTES)


def _rows_at(batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows of a batch by their ascending indexes in it."""
    if len(places) == batch.num_rows:
        return batch
    if len(places) <= batch.num_rows // 2:
        # Compared with a filter, take() needs a fifth of the time for few rows, 0.6 for half of them, and 1.25 for nearly all.
        return batch.take(pa.array(places))
    mask = np.zeros(batch.num_rows, dtype=bool)
    mask[places] = True
    return batch.filter(pa.array(mask))


def _counted_snapshots(file: DataFile, positions: np.ndarray) -> np.ndarray:
    """Return the snapshots of rows at some positions of a file whose rows the catalog counts by snapshot."""
    snapshots, ends = np.array(file.row_counts, dtype=np.int64).T
    found: np.ndarray = snapshots[np.minimum(np.searchsorted(ends, positions, side="right"), len(snapshots) - 1)]
    return found


@dataclass(frozen=True, slots=True)
class DecodingPasses:
    """The columns of a file to decode, by index: first those that decide which rows are wanted, then the others.

    Attributes:
        first: Columns of the first pass; all of them when there is no second.
        rest: Columns of the second pass.
        named: Whether columns are requested by name; otherwise all are decoded.
    """

    first: tuple[int, ...]
    rest: tuple[int, ...]
    named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The columns of a scan in files of one Arrow schema.

    Attributes:
        schema: The files' Arrow schema.
        is_filtered: Whether the scan's condition can exclude rows; False where the catalog proves that all rows satisfy it.
        filters_snapshots: Whether rows of some snapshots are hidden.
        read_schema: The columns to read.
        sources: By id, the columns to read and where they come from.
        unchanged: By id, those whose values are returned without a cast: index in the file and type.
        row_id_place: Index of the column of row ids, None if the file has none.
        snapshot_id_place: Index of the column of snapshot ids, None if the file has none.
        requested: Columns that the predicate reads.
        requested_virtual: Virtual columns that it reads.
        passes: The columns of the first and of the second pass.
        output_schema: The batches to return.
        is_common: Whether it holds for every file of this Arrow schema: columns are found by their ids alone.
    """

    schema: pa.Schema
    is_filtered: bool
    filters_snapshots: bool
    read_schema: Schema
    sources: Mapping[int, tuple[Field, Source]]
    unchanged: Mapping[int, tuple[int, Any]]
    row_id_place: int | None
    snapshot_id_place: int | None
    requested: Schema
    requested_virtual: tuple[str, ...]
    passes: DecodingPasses
    output_schema: pa.Schema
    is_common: bool

    @property
    def places(self) -> list[int | None]:
        """Return the index in the file of each column to read, None where the file lacks its values."""
        return [_place(self.sources, column) for column in self.read_schema]

    def requested_schema(self) -> pa.Schema:
        """Return the columns that the predicate reads, for its evaluation."""
        return _requested_schema(self.requested, self.requested_virtual)

    def fits(self, schema: pa.Schema, task: FileTask, is_filtered: bool) -> bool:
        """Return whether a file of the same scan with this Arrow schema has this layout."""
        return (
            self.is_common
            and task.file.mapping_id is None
            and self.filters_snapshots == (task.snapshot_filter is not None)
            and self.is_filtered == is_filtered
            # Field ids are metadata.
            and self.schema.equals(schema, check_metadata=True)
        )


@dataclass(slots=True)
class _Recent:
    """The most recent layouts of a scan. Threads replace the tuple as a whole and need no lock: a lost layout is computed again."""

    layouts: tuple[FileLayout, ...] = ()


def layout_of(schema: pa.Schema, task: FileTask, shape: ScanProjection) -> FileLayout:
    """Return the layout of a file with this Arrow schema.

    Raises:
        CatalogCorruptError: The file's name mapping did not come along.
        CorruptFileError: The file's path lacks the value of a column.
    """
    recent, is_filtered = shape.derived.get_or_make("layouts", _Recent), shape.filter_of(task) is not None
    found = next((layout for layout in recent.layouts if layout.fits(schema, task, is_filtered)), None)
    if found is None:
        found = _made(schema, task, shape)
        if found.is_common:
            recent.layouts = (found, *recent.layouts[: _MAX_REMEMBERED - 1])
    return found


def _made(schema: pa.Schema, task: FileTask, shape: ScanProjection) -> FileLayout:
    ids = [field_id(field) for field in schema]
    by_id = {number: place for place, number in enumerate(ids) if number is not None}
    sources = {
        column.id: (column, source) for column, source in zip(shape.read_schema, find_columns(schema, task.file, shape), strict=True)
    }
    predicate = shape.filter_of(task)
    requested = Schema(columns=tuple(_requested_columns(shape.read_schema, predicate)))
    requested_virtual = needed_virtual(predicate)
    system = {"rowid": by_id.get(ROW_ID_FIELD_ID), "snapshot_id": by_id.get(SNAPSHOT_ID_FIELD_ID)}
    out = {_place(sources, column) for column in shape.schema} | {system.get(name) for name in shape.virtual}
    first = {_place(sources, column) for column in requested} | {system.get(name) for name in requested_virtual}
    if task.snapshot_filter is not None:
        first.add(system["snapshot_id"])
    # Without a predicate no row is found late, so that a second pass would only decode the same row group twice.
    if predicate is None:
        first |= out
    return FileLayout(
        schema=schema,
        is_filtered=predicate is not None,
        filters_snapshots=task.snapshot_filter is not None,
        read_schema=shape.read_schema,
        sources=sources,
        unchanged={number: found for number, (column, source) in sources.items() if (found := _unchanged(column, source))},
        row_id_place=system["rowid"],
        snapshot_id_place=system["snapshot_id"],
        requested=requested,
        requested_virtual=requested_virtual,
        passes=_passes(schema.names, first, out),
        output_schema=shape.arrow_schema(),
        is_common=task.file.mapping_id is None and None not in ids,
    )


def _unchanged(column: Field, source: Source) -> tuple[int, Any] | None:
    if isinstance(source, InFile) and same_shape(source.field, column):
        return source.place, source.field.type
    return None


def _place(sources: Mapping[int, tuple[Field, Source]], column: Field) -> int | None:
    _, source = sources[column.id]
    return source.place if isinstance(source, InFile) else None


def _passes(names: list[str], first: set[int | None], out: set[int | None]) -> DecodingPasses:
    # pyarrow selects columns by name, and reads "a.b" as a field of a struct. Only reading all columns keeps the indexes right then.
    if len(set(names)) < len(names) or any("." in name for name in names):
        return DecodingPasses(tuple(range(len(names))), (), named=False)
    return DecodingPasses(_ascending(first), _ascending(out - first), named=True)


def _ascending(places: set[int | None]) -> tuple[int, ...]:
    return tuple(sorted(place for place in places if place is not None))


def _requested_columns(read_schema: Schema, predicate: Predicate | None) -> list[Field]:
    """Return columns that the predicate reads, by any of their fields."""
    needed = frozenset() if predicate is None else pruning.columns(predicate)
    return [column for column in read_schema if any(node.id in needed for node in column.walk())]


def _requested_schema(requested: Schema, virtual: tuple[str, ...]) -> pa.Schema:
    fields = [*to_arrow_schema(requested), *to_arrow_schema(VIRTUAL_SCHEMA.select(virtual))]
    return pa.schema([field.with_nullable(True) for field in fields])


@dataclass(frozen=True, slots=True)
class InFile:
    """The column at an index of the file, described by a field with the table's ids."""

    place: int
    field: ArrowField


@dataclass(frozen=True, slots=True)
class InPath:
    """A value that the file's path holds for all of its rows, None for NULL."""

    text: str | None


@dataclass(frozen=True, slots=True)
class Absent:
    """The file lacks the column: its rows are older than it, or it was added without it."""


Source: TypeAlias = InFile | InPath | Absent


def find_columns(schema: pa.Schema, file: DataFile, shape: ScanProjection) -> tuple[Source, ...]:
    """Return the source of each column of ``shape.read_schema`` in a file with this Arrow schema.

    Args:
        schema: The file's Arrow schema.
        file: The file, whose name mapping and begin snapshot decide how columns are found.
        shape: The columns to find, with name mappings and lifetimes of columns.

    Raises:
        CatalogCorruptError: The file's name mapping did not come along.
        CorruptFileError: The file's path lacks the value of a column.
    """
    fields = list(schema)
    if file.mapping_id is not None:
        found = _by_name(fields, _mapping(file, shape), file)
    elif all(field_id(field) is not None for field in fields):
        found = _by_id(fields)
    else:
        # One column without an id is enough for DuckDB to map all columns by their index in the table.
        found = _by_position(fields, shape.positions_at(file.begin_snapshot))
    return tuple(found.get(column.id, Absent()) for column in shape.read_schema)


def _mapping(file: DataFile, shape: ScanProjection) -> NameMapping:
    mapping = next((mapping for mapping in shape.mappings if mapping.id == file.mapping_id), None)
    if mapping is None:
        raise CatalogCorruptError(
            f"data file {file.id} of table {shape.table} has column mapping {file.mapping_id}, which does not exist in the catalog"
        )
    return mapping


def _by_id(fields: Sequence[ArrowField]) -> dict[int, Source]:
    found: dict[int, Source] = {}
    for place, field in enumerate(fields):
        number = field_id(field)
        if number is not None:
            # Of two columns with one id DuckDB takes the first.
            found.setdefault(number, InFile(place, field))
    return found


def _by_position(fields: Sequence[ArrowField], positions: dict[int, int]) -> dict[int, Source]:
    # DuckDB maps only top-level columns by index, so that fields of nested values are NULL there too.
    return {number: InFile(place, _known_as(fields[place], number, _bare)) for number, place in positions.items() if place < len(fields)}


def _by_name(fields: Sequence[ArrowField], mapping: NameMapping, file: DataFile) -> dict[int, Source]:
    places = _places(fields)
    found: dict[int, Source] = {}
    for column in mapping.columns:
        place = places.get(folded(column.source_name))
        if column.in_path:
            found.setdefault(column.field_id, InPath(path_value(file.path, column.source_name)))
        elif place is not None:
            found.setdefault(column.field_id, InFile(place, _mapped(fields[place], column)))
    return found


def _places(fields: Sequence[ArrowField]) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, field in enumerate(fields):
        places.setdefault(folded(field.name), place)
    return places


def _mapped(field: ArrowField, column: MappedColumn) -> ArrowField:
    def children(fields: Sequence[ArrowField]) -> list[ArrowField]:
        if len(fields) == 1 and len(column.children) == 1 and is_list(field.type):
            # Writers name the element of a list differently ("element", "item", "array"); the mapping has the name of the outer group.
            return [_mapped(fields[0], column.children[0])]
        places = _places(fields)
        below = {places[folded(child.source_name)]: child for child in column.children if folded(child.source_name) in places}
        return [_mapped(child, below[place]) if place in below else _bare(child) for place, child in enumerate(fields)]

    return _known_as(field, column.field_id, children)


def _bare(field: ArrowField | Sequence[ArrowField]) -> Any:
    """Return fields without any id."""
    if isinstance(field, pa.Field):
        return pa.field(field.name, _rebuilt(field.type, _bare), field.nullable)
    return [_bare(one) for one in field]


def _known_as(field: ArrowField, number: int, children: Callable[[Sequence[ArrowField]], list[ArrowField]]) -> ArrowField:
    return pa.field(field.name, _rebuilt(field.type, children), field.nullable, metadata={FIELD_ID_KEY: str(number)})


def _rebuilt(arrow_type: Any, children: Callable[[Sequence[ArrowField]], list[ArrowField]]) -> Any:
    """Return the nested type with other fields below it."""
    if pa.types.is_struct(arrow_type):
        return pa.struct(children([arrow_type.field(i) for i in range(arrow_type.num_fields)]))
    if pa.types.is_map(arrow_type):
        # Files may name the two differently; mappings name them "key" and "value".
        key, value = arrow_type.key_field.with_name("key"), arrow_type.item_field.with_name("value")
        key, value = children([key, value])
        return pa.map_(key.with_nullable(False), value)
    if is_list(arrow_type):
        return pa.list_(children([arrow_type.value_field])[0])
    return arrow_type


def field_id(field: pa.Field[Any]) -> int | None:
    """Return the field id of a file's node, None when it has none."""
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return int(text) if text is not None and int(text) >= 0 else None


def conform(array: pa.Array[Any], source: pa.Field[Any], target: Field) -> pa.Array[Any]:
    """Return values of a file's column as the logical Arrow type of the table's column.

    Args:
        array: The values.
        source: The file's field, with the table's ids on everything below it that is a column of the table (engines/arrow/file_reader.py).
        target: The table's column.

    Raises:
        SchemaError: A value cannot be cast to the column's type.
        UnsupportedFeatureError: The keys of a map have no id.
    """
    if same_shape(source, target) and array.type.equals(source.type, check_metadata=True):
        return array
    if pa.types.is_dictionary(array.type) or pa.types.is_run_end_encoded(array.type):
        array = pc.cast(array, array.type.value_type)
    match target.type:
        case PrimitiveType(name="variant"):
            return reassemble(array)
        case StructType() if pa.types.is_struct(array.type):
            return _struct(array, source, target)
        case MapType() if pa.types.is_map(array.type):
            return _map(array, source, target)
        case ListType() if is_list(array.type):
            return _list(array, source, target)
        case StructType() | MapType() | ListType():
            raise SchemaError(f"column {target.name!r} is {target.type}, but a file has type {array.type}", column=target.name)
        case _:
            return from_file(array, target)


def same_shape(source: pa.Field[Any], target: Field) -> bool:
    """Return whether a file's node is the table's node, unchanged: same type, and below it the same ids in the same order."""
    if any(node.type == VARIANT for node in target.walk()):
        return False
    wanted = to_arrow_field(target)
    # With metadata, Arrow's equality of types covers the field ids of children.
    return bool(source.type.equals(wanted.type, check_metadata=True)) and not pa.types.is_dictionary(source.type)


def constant(target: Field, length: int) -> pa.Array[Any]:
    """Return the column of rows that are older than it: its initial default, or NULL."""
    return constant_array(target.initial_default, target, length)


def _children(fields: list[pa.Field[Any]], arrays: list[pa.Array[Any]], targets: tuple[Field, ...], length: int) -> list[pa.Array[Any]]:
    # A node without an id below a file's column is not a column of the table: DuckDB returns NULL for it too. Of two nodes with one id the
    # first counts, which the reversed order keeps.
    by_id = {field_id(field): index for index, field in reversed(list(enumerate(fields)))}
    found = [(target, by_id.get(target.id)) for target in targets]
    return [constant(target, length) if index is None else conform(arrays[index], fields[index], target) for target, index in found]


def _struct(array: pa.Array[Any], source: pa.Field[Any], target: Field) -> pa.Array[Any]:
    fields = [source.type.field(i) for i in range(source.type.num_fields)]
    arrays = [array.field(i) for i in range(array.type.num_fields)]
    children = _children(fields, arrays, target.children, len(array))
    wanted = to_arrow_type(target.type)
    return pa.StructArray.from_arrays(children, fields=[wanted.field(i) for i in range(wanted.num_fields)], mask=null_mask(array))


def _list(array: pa.Array[Any], source: pa.Field[Any], target: Field) -> pa.Array[Any]:
    element = source.type.value_field
    values_ = list_values(array)
    (child,) = _children([element], [values_], target.children, len(values_))
    return pa.ListArray.from_arrays(list_offsets(array), child, type=to_arrow_type(target.type), mask=null_mask(array))


def _map(array: pa.Array[Any], source: pa.Field[Any], target: Field) -> pa.Array[Any]:
    key, item = source.type.key_field, source.type.item_field
    if target.children[0].id not in (field_id(key), field_id(item)):
        raise UnsupportedFeatureError(
            f"the keys of map {target.name!r} have no field id in a file, so they cannot be found. Register the file with a name mapping "
            "(add_data_files)",
            column=target.name,
        )
    entries = map_entries(array)
    pairs = list_values(entries)
    keys, items = _children([key, item], [pairs.field(0), pairs.field(1)], target.children, len(pairs))
    return pa.MapArray.from_arrays(list_offsets(entries), keys, items, type=to_arrow_type(target.type), mask=null_mask(array))


def from_file(array: pa.Array[Any], column: Field) -> pa.Array[Any]:
    """Return values of a leaf in the Arrow type of the column, rounded where the column is coarser.

    Nanoseconds are truncated to microseconds, microseconds rounded to milliseconds and seconds, and fractions and strings of fractions
    to integers, as DuckDB does each of these.

    >>> from ducklake_core.format.types.data_types import INT32, TIMESTAMP
    >>> from_file(pa.array([1001, -1999]).view(pa.timestamp("ns")), Field(name="c", type=TIMESTAMP)).cast(pa.int64()).to_pylist()
    [1, -1]
    >>> from_file(pa.array([1.5, 2.5, -1.5]), Field(name="c", type=INT32)).to_pylist()
    [2, 2, -2]

    Raises:
        SchemaError: A value that has no counterpart in the column's type.
    """
    if _loses_nanoseconds(array.type, column.type):
        array = _without_nanoseconds(array)
    # promote() is the exact and fast cast for widened types; DuckDB's rounding casts are only tried for values that it rejects.
    if _needs_cast(array, column.type):
        return _cast(array, column)
    try:
        return promote(array, column)
    except SchemaError:
        target = to_arrow_type(column.type)
        if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
            return promote(_rounded(array, target.unit), column)
        try:
            return _cast(array, column)
        except (UnsupportedFeatureError, pa.ArrowException):
            pass
        raise


def _needs_cast(array: pa.Array[Any], wanted: DataType) -> bool:
    """Return whether Arrow's cast would give other values without an error (infinities, unescaped backslashes, halves rounded to even)."""
    if wanted == BLOB and is_text(array.type):
        return bool(pc.any(pc.match_substring(array, "\\")).as_py())
    narrow = isinstance(wanted, DecimalType) and wanted.precision <= _NARROW_DIGITS
    return pa.types.is_floating(array.type) and (narrow or (wanted == FLOAT32 and pa.types.is_float64(array.type)))


def _cast(array: pa.Array[Any], column: Field) -> pa.Array[Any]:
    held = from_arrow_field(pa.field(column.name, array.type)).type
    if is_text(array.type):
        array = array.cast(pa.string())
    try:
        return cast_scalar(array, held, column.type)
    except (SchemaError, UsageError) as error:
        message = f"column {column.name!r}: values of type {held} do not fit {column.type}: {error.message}"
        raise SchemaError(message, column=column.name) from error


def _loses_nanoseconds(held: pa.DataType, wanted: DataType) -> bool:
    """Return whether DuckDB reads such values as microseconds first."""
    if not (pa.types.is_timestamp(held) or pa.types.is_time64(held)) or held.unit != "ns" or wanted in (TIMESTAMP_NS, TIME_NS):
        return False
    return wanted not in (VARCHAR, JSON) or pa.types.is_time64(held) or held.tz is not None


def _without_nanoseconds(array: pa.Array[Any]) -> pa.Array[Any]:
    held = array.type
    numbers = array.view(pa.int64())
    cut = pc.divide(numbers, pa.scalar(1000, pa.int64()))
    if pa.types.is_time64(held):
        return cut.view(pa.time64("us"))
    infinite = pc.equal(pc.abs(numbers), pa.scalar(_INFINITE, pa.int64()))
    return pc.if_else(infinite, numbers, cut).view(pa.timestamp("us", held.tz))


def _rounded(array: pa.Array[Any], unit: str) -> pa.Array[Any]:
    """Return whole milliseconds or seconds, as microseconds; halves are rounded away from zero."""
    if array.type.unit == "s" or unit not in _MICROSECONDS:
        return array
    array = cast_temporal(array, pa.timestamp("us", array.type.tz))
    step = pa.scalar(_MICROSECONDS[unit], pa.int64())
    numbers = array.view(pa.int64())
    # DuckDB stores the infinities as the largest and smallest int64: they must not be rounded, and 0 in their place cannot overflow.
    half = pc.multiply(pc.sign(numbers), pa.scalar(_MICROSECONDS[unit] // 2, pa.int64()))
    infinite = pc.equal(pc.abs(numbers), pa.scalar(_INFINITE, pa.int64()))
    whole = pc.multiply(pc.divide(pc.add(pc.if_else(infinite, pa.scalar(0, pa.int64()), numbers), half), step), step)
    return pc.if_else(infinite, numbers, whole).view(array.type)


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows that are wanted: their positions in the file, and the columns that were decoded to find them."""

    positions: npt.NDArray[np.int64]
    held: Held

    @property
    def bytes(self) -> int:
        """Return the size in memory, in bytes."""
        found: int = self.positions.nbytes + sum(values.nbytes for values in self.held.values())
        return found

    def part(self, start: int, end: int) -> FoundRows:
        """Return the rows from index ``start`` up to, not including, ``end``, without a copy."""
        return FoundRows(self.positions[start:end], {place: values.slice(start, end - start) for place, values in self.held.items()})


class FoundAhead:
    """The rows that the first pass over a row group found, for the second pass that follows it.

    Args:
        batches: For each batch of the first pass the position behind its last row, and what was found in it, None when nothing was.
    """

    def __init__(self, batches: Iterator[tuple[int, FoundRows | None]]) -> None:
        self._batches = batches
        self._reached = -1
        self._has_ended = False
        self._found_bytes = 0
        self._waiting: deque[FoundRows] = deque()

    @property
    def is_done(self) -> bool:
        """Return whether the first pass has ended, and all that it found was taken."""
        return self._has_ended and not self._waiting

    @property
    def last(self) -> int | None:
        """Return the last position of all that was found, None while the first pass may find more, or where nothing is waiting."""
        return int(self._waiting[-1].positions[-1]) if self._has_ended and self._waiting else None

    def look(self, most: int) -> bool:
        """Decode ahead until ``most`` bytes of rows are held, or the end is reached; return whether there are any rows."""
        while (not self._waiting or self._found_bytes < most) and self._advance():
            pass
        return bool(self._waiting)

    def until(self, position: int) -> FoundRows | None:
        """Return the rows before a position that were not taken yet, None when there are none."""
        while self._reached < position and self._advance():
            pass
        parts: list[FoundRows] = []
        while self._waiting and self._waiting[0].positions[0] < position:
            found = self._waiting.popleft()
            count = len(found.positions)
            cut = int(np.searchsorted(found.positions, position))
            parts.append(found if cut == count else found.part(0, cut))
            if cut < count:
                self._waiting.appendleft(found.part(cut, count))
        return _joined(parts) if parts else None

    def _advance(self) -> bool:
        for reached, found in self._batches:
            self._reached = reached
            if found is not None:
                self._found_bytes += found.bytes
                self._waiting.append(found)
            return True
        self._has_ended = True
        return False


def _joined(parts: Sequence[FoundRows]) -> FoundRows:
    """Return several parts as one; a single part is not copied."""
    if len(parts) == 1:
        return parts[0]
    held = {place: pa.chunked_array([part.held[place] for part in parts]).combine_chunks() for place in parts[0].held}
    return FoundRows(np.concatenate([part.positions for part in parts]), held)
