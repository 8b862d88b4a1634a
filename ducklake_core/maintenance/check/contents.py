"""Check that all rows can be read, and that they match statistics, partitions and row ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.integrity_scan import statistics_of_files, still_there
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.engines.arrow.file_reader import ChosenRows
from ducklake_core.engines.arrow.read import read_chosen
from ducklake_core.engines.arrow.write_state import check_json
from ducklake_core.errors import CorruptFileError, DuckLakeError, SchemaError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.files.paths import printable
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import BLOB, FLOATS, TIMESTAMPTZ, Field
from ducklake_core.format.types.text import counted
from ducklake_core.format.values.arrow_cast import check_values
from ducklake_core.format.values.leaf_values import order_key, python_values, to_text
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, TableFacts
from ducklake_core.maintenance.check.files import TRANSIENT_ROW_IDS, live_files
from ducklake_core.maintenance.check.findings import CODES
from ducklake_core.maintenance.check.footers import FooterChecks, beyond, enclosed, report_other_file, report_statistics
from ducklake_core.maintenance.check.repair import ForgetTableBounds
from ducklake_core.maintenance.check.statistics import WITHOUT_BOUNDS, bounds_of
from ducklake_core.maintenance.groups import is_about_lake
from ducklake_core.maintenance.request import ProgressMeter
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection
from ducklake_core.planning.planner import plan_scan
from ducklake_core.storage.delete_files import deleted_positions, read_deletes_of
from ducklake_core.storage.file_statistics import leaf_arrays
from ducklake_core.storage.filesystems import Storage

_FILES_PER_ROUND = 500
_NOTHING = np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class _Leaf:
    """Statistics of one column over the rows that were read."""

    values: int = 0
    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False

    def add(self, leaf: Field, array: pa.Array) -> None:
        self.nulls += array.null_count
        self.values += len(array) - array.null_count
        if leaf.type in WITHOUT_BOUNDS or array.null_count == len(array):
            return
        stored = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
        if leaf.type in FLOATS:
            is_nan = pc.is_nan(stored)
            self.has_nan |= bool(pc.any(is_nan).as_py())
            stored = stored.filter(pc.invert(is_nan))
        try:
            # Python's dates and times have a smaller range than those of the lake.
            width = {32: pa.int32(), 64: pa.int64()}.get(stored.type.bit_width) if pa.types.is_temporal(stored.type) else None
            found = pc.min_max(stored if width is None else stored.view(width))
            ends = pa.array([found["min"].as_py(), found["max"].as_py()], width or stored.type)
            ends = ends if width is None else ends.view(stored.type)
            values = [value for value in python_values(ends, leaf.type) if value is not None]
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
            values = [value for value in python_values(stored, leaf.type) if value is not None]
        for value in values:
            self.low = value if self.low is None else min(self.low, value, key=order_key)
            self.high = value if self.high is None else max(self.high, value, key=order_key)

    def stored_bounds(self, leaf: Field) -> tuple[str | None, str | None]:
        return (None, None) if self.low is None else (to_text(self.low, leaf.type), to_text(self.high, leaf.type))


@dataclass(slots=True)
class _File:
    """The rows of one file."""

    leaves: dict[int, tuple[Field, _Leaf]] = field(default_factory=dict)
    row_ids: list[np.ndarray] = field(default_factory=list)
    highest_snapshot: int = -1
    partitions: list[set[str | None]] = field(default_factory=list)
    visible_nulls: dict[str, int] = field(default_factory=dict)
    out_of_range: dict[str, str] = field(default_factory=dict)


class RowChecks:
    """Reads every row of every live table. Memory is limited to a few batches, and about 20 bytes for each row of a table.

    Args:
        facts: Rows of the catalog; collects the findings.
        database: The catalog's database.
        storage: Opens the store.
        footers: Results of the footer checks.
        progress: Progress callback.
    """

    def __init__(self, facts: Facts, database: Database, storage: Storage, footers: FooterChecks, progress: ProgressMeter) -> None:
        self._facts = facts
        self._database = database
        self._storage = storage
        self._footers = footers
        self._progress = progress
        self.bytes_read = 0
        self._bounds: dict[int, dict[int, CatalogRow]] = {}
        for row in facts.every.rows("table_column_stats"):
            self._bounds.setdefault(row.table_id, {})[row.column_id] = row
        self._statistics: dict[int, list[CatalogRow]] = {}

    def run(self) -> None:
        """Check the tables one by one; one that cannot be read does not stop the others."""
        tables = sorted((table for table in self._facts.tables.values() if table.is_live), key=lambda table: table.name)
        # Total of the live files; a plan may find fewer of them readable.
        files = [row for table in tables for row in live_files(self._facts, table)]
        self._progress.begin("check", "read rows", "files", len(files), work=sum(row.file_size_bytes for row in files))
        for table in tables:
            self._progress.at(table.name)
            self._table(table)

    def _table(self, table: TableFacts) -> None:
        try:
            with self._database.read() as connection:
                reader = CatalogReader(connection, self._facts.info, self._database.tables)
                state = reader.table_by_id(table.id, self._facts.newest)
                plan = plan_scan(reader, state, virtual=("rowid", "snapshot_id"))
        except DuckLakeError as error:
            if is_about_lake(error):
                raise
            if self._was_deleted("snapshot", self._facts.newest):
                # Another client has expired this snapshot meanwhile, so it can no longer be read.
                return
            if not any(CODES[code].severity == "error" for code, _ in self._facts.codes_of(table)):
                self._facts.report("rows-unreadable", error.message, table=table)
            return
        row_ids = []
        for place, task in enumerate(plan.tasks):
            if place % _FILES_PER_ROUND == 0:
                ids = [one.file.id for one in plan.tasks[place : place + _FILES_PER_ROUND]]
                with self._database.read() as connection:
                    self._statistics = statistics_of_files(connection, self._database.tables, ids)
            # Its fault has been reported.
            if ("data_file", task.file.id) not in self._footers.unusable and task.file.id in table.files:
                row_ids += self._file(table, state, task, plan.shape)
            size = task.file.file_size_bytes
            self._progress.advance(rows=task.file.record_count, size=size, work=size)
        if plan.inlined is not None:
            row_ids.append(plan.inlined.column(len(plan.read_schema)).to_numpy())
            self._inlined(table, plan)
        self._row_ids(table, row_ids)

    def _file(self, table: TableFacts, state: TableState, task: FileTask, shape: ScanProjection) -> list[np.ndarray]:
        row = table.files[task.file.id]
        where: dict[str, Any] = {"path": printable(task.file.path), "data_file_id": task.file.id, "table": table}
        deleted = self._deleted(task.file, where)
        found = _File()
        # Deleted rows are read too, as the statistics of a file count them; the mask shows which rows are visible.
        whole = replace(task, file=replace(task.file, delete_files=(), inlined_deletes=()), snapshot_filter=None, all_rows_match=False)
        spec = state.partition_specs.get(task.file.partition_id) if task.file.partition_id is not None else None
        keys = _keys(spec, state, table, row)
        found.partitions = [set() for _ in keys]
        try:
            position = 0
            for batch in read_chosen(whole, shape, ChosenRows(positions=_NOTHING, wanted=False), self._storage):
                mask = ChosenRows(positions=deleted, wanted=False).mask(position, batch.num_rows)
                self._batch(found, batch, shape, state, keys, mask)
                position += batch.num_rows
        except DuckLakeError as error:
            if not self._was_deleted("data_file", task.file.id):
                self._facts.report("rows-unreadable", error.message, **where)
            return []
        self.bytes_read += task.file.file_size_bytes
        self._compare(table, row, found)
        last = task.file.partial_max
        if last is not None and last >= task.file.begin_snapshot and found.highest_snapshot > last:
            what = f"the file contains rows of snapshot {found.highest_snapshot}, but the catalog's last one is {last}"
            self._facts.report("snapshot-ids-wrong", what, **where)
        values = dict(task.file.partition_values)
        for (place, key), seen in zip(keys, found.partitions, strict=True):
            if place in values and seen - {values[place]}:
                others = ", ".join(sorted(map(repr, seen - {values[place]})))
                if not any(one.code == "partition-values-wrong" for one in self._facts.about_file(task.file.id)):
                    what = f"the file is in partition {key.text} {values[place]!r}, but contains rows of {others}"
                    self._facts.report("partition-values-wrong", what, **where)
        for name, number in found.visible_nulls.items():
            self._facts.report("null-not-allowed", f"column {name!r} contains {counted(number, 'NULL')}", **where)
        for what in found.out_of_range.values():
            self._facts.report("value-out-of-range", what, **where)
        return found.row_ids

    def _deleted(self, file: DataFile, where: dict[str, Any]) -> np.ndarray:
        known = tuple(one for one in file.delete_files if ("delete_file", one.id) not in self._footers.unusable)
        try:
            for one in known:
                positions = read_deletes_of(self._storage, one, file).positions
                twice = len(np.intersect1d(positions, np.asarray(file.inlined_deletes, dtype=np.int64)))
                if twice:
                    what = f"{counted(twice, 'inlined delete')} that delete file {one.id} contains, too"
                    self._facts.report("inlined-delete-twice", what, **where)
                if one.format == "puffin" and len(positions) != one.delete_count:
                    what = (
                        f"delete file {one.id} contains {counted(len(positions), 'position')}, but the catalog counts {one.delete_count:,}"
                    )
                    self._facts.report("delete-count", what, **where)
            return deleted_positions(self._storage, replace(file, delete_files=known), self._facts.newest)
        except CorruptFileError as error:
            self._facts.report("delete-file-invalid", error.message, **where)
        except DuckLakeError as error:
            if any(self._was_deleted("delete_file", one.id) for one in known):
                return _NOTHING
            if not any(one.code in ("delete-format-unknown", "path-forbidden") for one in self._facts.about_file(file.id)):
                self._facts.report("rows-unreadable", error.message, **where)
        return _NOTHING

    def _was_deleted(self, name: str, number: int) -> bool:
        """Return whether the catalog no longer contains a file or snapshot, because another client has merged or expired it since."""
        with self._database.read() as connection:
            return not still_there(connection, self._database.tables, name, [number])

    def _batch(
        self,
        found: _File,
        batch: pa.RecordBatch,
        shape: ScanProjection,
        state: TableState,
        keys: Sequence[tuple[int, Any]],
        mask: np.ndarray | None,
    ) -> None:
        for column, array in zip(shape.schema, batch.columns, strict=False):
            for leaf, values in leaf_arrays(array, column):
                found.leaves.setdefault(leaf.id, (leaf, _Leaf()))[1].add(leaf, values)
        visible = batch if mask is None else batch.filter(pa.array(mask))
        for column, array in zip(shape.schema, visible.columns, strict=False):
            wrong = _out_of_range(array, column)
            if wrong is not None:
                found.out_of_range.setdefault(column.name, wrong)
            if not column.nullable and array.null_count:
                found.visible_nulls[column.name] = found.visible_nulls.get(column.name, 0) + array.null_count
        row_ids = shape.virtual_column(visible, "rowid").drop_null()
        found.row_ids.append(row_ids.to_numpy(zero_copy_only=False).astype(np.int64))
        snapshots = pc.max(shape.virtual_column(batch, "snapshot_id")).as_py()
        found.highest_snapshot = max(found.highest_snapshot, -1 if snapshots is None else snapshots)
        if keys:
            rows = pa.RecordBatch.from_arrays(batch.columns[: len(shape.schema)], names=shape.schema.names)
            arrays = partition_arrays(PartitionSpec(fields=tuple(key for _, key in keys)), state.schema, rows)
            for seen, array in zip(found.partitions, arrays, strict=True):
                seen.update(array.unique().to_pylist())

    def _compare(self, table: TableFacts, row: CatalogRow, found: _File) -> None:
        """Compare the statistics of a file with its rows; a column whose type has changed since is skipped."""
        statistics = self._statistics.pop(row.data_file_id, [])
        if report_other_file(self._facts, table, row, self._beyond(table, row, found, statistics)):
            return
        of_table = self._bounds.get(table.id, {})
        for leaf, seen in found.leaves.values():
            if leaf.id in of_table and leaf.type not in WITHOUT_BOUNDS and leaf.type != BLOB:
                self._table_bounds(table, leaf, of_table[leaf.id], seen)
        for one in statistics:
            held = found.leaves.get(one.column_id)
            before = table.leaf(one.column_id, row.begin_snapshot)
            if held is None or before is None or before.type != held[0].type or before.type in WITHOUT_BOUNDS:
                continue
            leaf, seen = held
            try:
                narrow = enclosed(one, seen.stored_bounds(leaf), leaf)
            except (DuckLakeError, ValueError, ArithmeticError):
                continue
            if seen.has_nan and one.contains_nan is False:
                narrow = "no NaN, but the file contains some"
            if narrow:
                report_statistics(self._facts, "statistics-narrow", f"column {leaf.name!r}: {narrow}", table, row, leaf.id)
            elif (
                one.column_id in table.top_ids
                and None not in (one.value_count, one.null_count)
                and (one.value_count, one.null_count)
                != (
                    seen.values,
                    seen.nulls,
                )
            ):
                text = (
                    f"column {leaf.name!r}: {one.value_count:,} values and {one.null_count:,} NULLs are counted, but the file "
                    f"contains {seen.values:,} and {seen.nulls:,}"
                )
                report_statistics(self._facts, "statistics-counts", text, table, row, leaf.id)

    def _beyond(self, table: TableFacts, row: CatalogRow, found: _File, statistics: Sequence[CatalogRow]) -> Iterator[tuple[Field, str]]:
        """Yield the bounds of each leaf column that none of its values reaches. Footers do not have bounds of all columns."""
        for one in statistics:
            held = found.leaves.get(one.column_id)
            before = table.leaf(one.column_id, row.begin_snapshot)
            if held is not None and before is not None and before.type == held[0].type and before.type not in WITHOUT_BOUNDS:
                with suppress(DuckLakeError, ValueError, ArithmeticError):
                    yield held[0], beyond(one, held[1].stored_bounds(held[0]), held[0])

    def _inlined(self, table: TableFacts, plan: ScanPlan) -> None:
        """Compare inlined rows with the statistics of the table."""
        assert plan.inlined is not None
        known = self._bounds.get(table.id, {})
        for column, chunked in zip(plan.read_schema, plan.inlined.columns, strict=False):
            array = chunked.combine_chunks()
            wrong = _out_of_range(array, column)
            if wrong is not None:
                self._facts.report("value-out-of-range", f"{wrong}, in an inlined row", table=table)
            if not column.nullable and array.null_count:
                self._facts.report(
                    "null-not-allowed", f"column {column.name!r} contains {counted(array.null_count, 'NULL')} in inlined rows", table=table
                )
            for leaf, values in leaf_arrays(array, column):
                row = known.get(leaf.id)
                if row is None or leaf.type in WITHOUT_BOUNDS or leaf.type == BLOB:
                    continue
                seen = _Leaf()
                seen.add(leaf, values)
                self._table_bounds(table, leaf, row, seen)

    def _table_bounds(self, table: TableFacts, leaf: Field, row: CatalogRow, seen: _Leaf) -> None:
        row = self._facts.widened(table.id, leaf.id) or row
        try:
            mine = bounds_of(row.min_value, row.max_value, leaf.type)
            its = bounds_of(*seen.stored_bounds(leaf), leaf.type)
        except (DuckLakeError, ValueError, ArithmeticError):
            return
        is_narrow = mine is not None and its is not None and (its[0] < mine[0] or its[1] > mine[1])
        if leaf.type in FLOATS:
            is_narrow = seen.has_nan if row.contains_nan is False and seen.has_nan else is_narrow and row.contains_nan is False
        if not is_narrow and not (row.contains_null is False and seen.nulls):
            return
        forget = ForgetTableBounds(table.id, leaf.id)
        if any(column_id == leaf.id and code.startswith("table-bounds") for code, column_id in self._facts.codes_of(table)):
            self._facts.repair(forget)
        else:
            stored = " to ".join(map(repr, seen.stored_bounds(leaf)))
            what = f"column {leaf.name!r}: {row.min_value!r} to {row.max_value!r}, but the values are {stored}"
            self._facts.report("table-bounds-narrow", what, table=table, column_id=leaf.id, repair=forget)

    def _row_ids(self, table: TableFacts, parts: Sequence[np.ndarray]) -> None:
        if not parts:
            return
        every = np.concatenate(parts)
        known = {code for code, _ in self._facts.codes_of(table)}
        every.sort()
        twice = int(np.count_nonzero(every[1:] == every[:-1]))
        if twice and not known & {"row-ids-overlap", "file-named-twice", "inlined-row-twice"}:
            self._facts.report("row-id-twice", f"{counted(twice, 'row')} with the id of another row", table=table)
        following = self._facts.next_row_id(table)
        if following is not None and "row-id-beyond-next" not in known:
            beyond = int(np.count_nonzero((every >= following) & (every < TRANSIENT_ROW_IDS)))
            if beyond:
                self._facts.report(
                    "row-id-beyond-next",
                    f"{counted(beyond, 'row')} with ids from {following} on, which the table assigns next",
                    table=table,
                )


def _keys(spec: PartitionSpec | None, state: TableState, table: TableFacts, row: CatalogRow) -> list[tuple[int, Any]]:
    """Return the partition keys of a file that its rows can be compared with, with their positions."""
    if spec is None:
        return []
    now = state.schema.by_id()
    keys = []
    for place, key in enumerate(spec.fields):
        column, before = now.get(key.column_id), table.leaf(key.column_id, row.begin_snapshot)
        if column is None or before is None or before.type != column.type or column.type in FLOATS:
            continue
        # DuckDB takes parts of the calendar in the zone of its session.
        if key.transform in ("identity", "bucket") or column.type != TIMESTAMPTZ:
            keys.append((place, replace(key, column=column.name)))
    return keys


def _out_of_range(array: Any, column: Field) -> str | None:
    """Return the first value of a column that cannot be stored, as a message; None when there is none."""
    try:
        check_values(array, column.name)
        check_json(array, column)
    except SchemaError as error:
        return error.message
    return None
