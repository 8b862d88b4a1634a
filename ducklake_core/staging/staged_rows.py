"""Rows that a transaction has added and deleted, and their combination with a scan of the base snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ducklake_core.catalog.inlined.cells import stored_array
from ducklake_core.catalog.inlined.ddl import may_inline
from ducklake_core.catalog.inlined.rows import ROW_ID, SNAPSHOT_ID, TABLE_NAME
from ducklake_core.catalog.inlined.write import is_readable
from ducklake_core.commit.actions import StagedDeleteFile
from ducklake_core.engines.arrow.positions import Deletions
from ducklake_core.errors import SchemaError, UnsupportedFeatureError
from ducklake_core.format.evolution.defaults import OWN_STRINGS, canonical_default, default_scalar, rejection, statement_tree
from ducklake_core.format.evolution.promotion import bounds_hold
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.parser import is_null
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile, DeleteFile, WrittenFile
from ducklake_core.format.files.inlined_rows import MAX_BYTES, InlinedRows, chosen_rows, inlined_rows, inlined_rows_of
from ducklake_core.format.files.name_mapping import AddedFile, NameMapping
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    FLOATS,
    INT128,
    INTEGERS,
    TIMESTAMPTZ,
    UINT64,
    UINT128,
    VARIANT,
    DataType,
    Field,
)
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import ArrowArray, Schema, to_arrow_schema
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.planning.plan import FILE_INDEX, FileTask, InlinedColumn, ScanPlan, inlined_column

if TYPE_CHECKING:
    from ducklake_core.engines.arrow.merge import ChangeRequest
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.engines.frame import Frame
    from ducklake_core.format.expressions.predicates import Scalar
    from ducklake_core.staging.context import LakeContext


_IDENTITY: tuple[InlinedColumn, ...] = ("inlined_table", "rowid")
NOT_COMMITTED = "(not committed)"
"""Name of the physical table for inlined rows that are not in the catalog yet."""


_NUMBERS = frozenset({BOOLEAN, *FLOATS, *INTEGERS} - {UINT64, INT128, UINT128})
_MAX_CELL_BYTES = 24
"""Maximum bytes of a value that PostgreSQL keeps in a page: longer values are moved out, and 18 bytes remain."""
_ROW_BYTES = 64
"""Bytes of a row's header, row id and snapshot ids."""


# The overlay. A scan inside a transaction combines the base snapshot with the staged rows; ids below 0 mark what is not committed:
#
#   base snapshot                                   added by the transaction
#   data file 7    minus newly hidden positions     data file -1    row ids -1000 to -1, minus its own hidden positions
#   data file 8    ended: no task for it            data file -2    row ids -1500 to -1001
#   inlined rows   minus (table, row id) pairs      inlined rows    of the physical table "(not committed)"
#
# Each step searches this overlay, so that a DELETE finds the rows of an earlier INSERT. Positions in file -1 are added to
# ``StagedFile.hidden``, rows of "(not committed)" are removed from ``StagedRows.inlined``, and all others are added to
# ``StagedRows.deletions``. The commit replaces ids below 0 by ids of the catalog.
@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A data file that a transaction adds.

    Attributes:
        id: Id below 0, unique within the table.
        file: The written file.
        schema: Columns with which it was written.
        partition_spec: Partition keys with which it was written.
        first_row_id: Temporary row id of its first row, below 0, unless it stores row ids.
        added: Set for a file of another writer.
        is_changed: Whether its rows are new versions of committed rows.
        reads_base_rows: Whether its contents depend on the rows of the table.
        hidden: Deletes of its rows.
    """

    id: int
    file: WrittenFile
    schema: Schema
    partition_spec: PartitionSpec | None
    first_row_id: int
    added: AddedFile | None = None
    is_changed: bool = False
    reads_base_rows: bool = False
    hidden: StagedDeleteFile | None = None

    @property
    def visible_count(self) -> int:
        """Number of rows that are not deleted."""
        return self.file.record_count - (self.hidden.delete_count if self.hidden else 0)

    def in_columns(self, schema: Schema) -> StagedFile:
        """Return the same file for a table that has these columns now, without bounds and buckets that are not valid for them."""
        now = {leaf.id: leaf.type for leaf in schema.leaves()}
        changed = {leaf.id: leaf.type for leaf in self.schema.leaves() if leaf.type != now.get(leaf.id, leaf.type)}
        lost = {number for number, written in changed.items() if not bounds_hold(written, now[number])}
        spec, file = self.partition_spec, self.file
        if spec is not None and any(key.buckets is not None and key.column_id in changed for key in spec.fields):
            # The bucket of a value depends on its type, and the catalog records no type that was replaced in the same transaction.
            spec, file = None, replace(file, partition_values=())
        if not lost and spec is self.partition_spec:
            return self
        file = replace(file, statistics=tuple(_unbounded(file.statistics, lost)))
        added = self.added and replace(self.added, file=file, absent=tuple(_unbounded(self.added.absent, lost)))
        return replace(self, file=file, added=added, partition_spec=spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedInlined:
    """Rows that a transaction adds to the catalog, with the columns of a schema. New rows have row ids below 0."""

    rows: InlinedRows
    schema: Schema
    row_ids: tuple[int, ...]
    reads_base_rows: bool = False

    @property
    def is_changed(self) -> bool:
        """Return whether its rows are new versions of committed rows."""
        # A part holds either new rows (ids below 0) or new versions of committed rows, never both.
        return bool(self.row_ids) and self.row_ids[0] >= 0

    def in_columns(self, schema: Schema) -> StagedInlined:
        """Convert the rows to the current columns of the table."""
        before = {column.id: (column, values) for column, values in zip(self.schema, self.rows.columns, strict=True)}
        changed = Schema(columns=tuple(column for column in schema if not _same_form(before.get(column.id), column)))
        if not changed.columns and len(schema) == len(self.schema):
            return replace(self, schema=schema)
        new = inlined_rows_of(self.in_arrow(changed), changed)
        values = {column.id: values for column, values in zip(changed, new.columns, strict=True)}
        statistics = {column.column_id: column for column in (*self.rows.statistics, *new.statistics)}
        rows = InlinedRows(
            columns=tuple(values[column.id] if column.id in values else before[column.id][1] for column in schema),
            record_count=self.rows.record_count,
            statistics=tuple(statistics[leaf.id] for leaf in schema.leaves()),
        )
        return replace(self, rows=rows, schema=schema)

    def in_arrow(self, schema: Schema) -> pa.Table:
        """Return the rows with the columns of a schema, converted to the current columns of the table."""
        return pa.Table.from_arrays(list(self.arrays(schema)), schema=to_arrow_schema(schema))

    def arrays(self, schema: Schema) -> Iterator[ArrowArray]:
        """Yield the columns of :meth:`in_arrow`."""
        before = {column.id: (column, values) for column, values in zip(self.schema, self.rows.columns, strict=True)}
        for column in schema:
            old, values = before.get(column.id, (None, ()))
            if old is None:
                yield constant_array(column.initial_default, column, self.rows.record_count)
            else:
                yield stored_array(list(values), old, column)

    def without(self, deleted: frozenset[int]) -> StagedInlined:
        """Return these rows without those with some ids."""
        if deleted.isdisjoint(self.row_ids):
            return self
        kept = [place for place, row_id in enumerate(self.row_ids) if row_id not in deleted]
        return replace(self, rows=chosen_rows(self.rows, kept, self.schema), row_ids=tuple(self.row_ids[place] for place in kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """Rows that a transaction adds to a table, and rows of the base snapshot that it deletes.

    Objects are immutable: each change returns a new one.

    Attributes:
        files: Data files with live rows, in the order in which they were added.
        inlined: Rows for the catalog, in the same order.
        deletions: Deletes of committed rows.
        file_count: Number of all files that were added, including deleted ones.
        row_count: Number of all rows that were added to files and to the catalog, including deleted ones.
    """

    files: tuple[StagedFile, ...] = ()
    inlined: tuple[StagedInlined, ...] = ()
    deletions: Deletions = field(default_factory=Deletions)
    file_count: int = 0
    row_count: int = 0

    def with_files(
        self, files: Iterable[WrittenFile], table: TableState, *, is_changed: bool = False, reads_base_rows: bool = False
    ) -> StagedRows:
        """Add data files that were written for the current columns of the table."""
        new = [
            StagedFile(
                id=0,
                file=file,
                schema=table.schema,
                partition_spec=table.partition_spec,
                first_row_id=0,
                is_changed=is_changed,
                reads_base_rows=reads_base_rows,
            )
            for file in files
        ]
        return self._with_new(new)

    def with_added(self, files: Iterable[AddedFile], table: TableState) -> StagedRows:
        """Add files of other writers that were checked against the current columns of the table."""
        new = [
            StagedFile(id=0, file=one.file, schema=table.schema, partition_spec=table.partition_spec, first_row_id=0, added=one)
            for one in files
        ]
        return self._with_new(new)

    def in_columns(self, schema: Schema) -> StagedRows:
        """Convert the rows to the current columns of the table."""
        files = tuple(one.in_columns(schema) for one in self.files)
        # Hundreds of calls may have added a few rows each, and hundreds may then alter the table.
        return replace(self, files=files, inlined=tuple(one.in_columns(schema) for one in _together(self.inlined)))

    def without_additions(self) -> StagedRows:
        """Discard added rows, and keep deletes of committed rows."""
        return replace(self, files=(), inlined=())

    def _with_new(self, files: Sequence[StagedFile]) -> StagedRows:
        numbered: list[StagedFile] = []
        rows = self.row_count
        for number, file in enumerate(files, self.file_count + 1):
            rows += file.file.record_count
            # Ids count down, so that staged rows have unique ids that no committed row has.
            numbered.append(replace(file, id=-number, first_row_id=-rows))
        return replace(self, files=(*self.files, *numbered), file_count=self.file_count + len(numbered), row_count=rows)

    def with_inlined(
        self, rows: InlinedRows, schema: Schema, row_ids: tuple[int, ...] | None = None, *, reads_base_rows: bool = False
    ) -> StagedRows:
        """Add rows for the catalog.

        Args:
            rows: The rows.
            schema: Their columns.
            row_ids: Row ids of changed rows; None for new rows.
            reads_base_rows: Whether the rows depend on the rows of the table. Default: False.
        """
        count = self.row_count + rows.record_count
        ids = tuple(range(-count, -self.row_count)) if row_ids is None else row_ids
        staged = StagedInlined(rows=rows, schema=schema, row_ids=ids, reads_base_rows=reads_base_rows)
        return replace(self, inlined=(*self.inlined, staged), row_count=count)

    def without(self, found: Deletions) -> StagedRows:
        """Delete rows that a scan with this overlay has found."""
        # A delete file replaces an earlier one of the same data file and contains its positions, too.
        hidden = {file.data_file_id: file for file in found.delete_files}
        ended = {file.data_file_id for file in found.ended}
        files = tuple(replace(one, hidden=hidden.get(one.id, one.hidden)) for one in self.files if one.id not in ended)
        deleted = frozenset(row_id for name, row_ids in found.inlined if name == NOT_COMMITTED for row_id in row_ids)
        inlined = tuple(part for part in (one.without(deleted) for one in self.inlined) if part.row_ids)
        committed = Deletions(
            delete_files=tuple(file for file in found.delete_files if file.data_file_id >= 0),
            inlined_deletes=found.inlined_deletes,
            ended=tuple(file for file in found.ended if file.data_file_id >= 0),
            inlined=tuple((name, row_ids) for name, row_ids in found.inlined if name != NOT_COMMITTED),
        )
        return replace(self, files=files, inlined=inlined, deletions=self.deletions.then(committed))

    @property
    def delete_files(self) -> tuple[StagedDeleteFile, ...]:
        """Live delete files: those of committed data files, then those of staged ones."""
        return (*self.deletions.delete_files, *(one.hidden for one in self.files if one.hidden is not None))

    def overlay_on(self, plan: ScanPlan, directory: str, mappings: dict[int, tuple[int, NameMapping]]) -> ScanPlan:
        """Combine this with a scan of the table at the base snapshot. Return the scan of the table as the transaction sees it.

        Args:
            plan: The scan.
            directory: Full directory of the table, with a trailing slash.
            mappings: Name mapping of each file of another writer, by file id.
        """
        ended = {file.data_file_id for file in self.deletions.ended}
        hidden = {file.data_file_id: file for file in self.deletions.delete_files}
        few = {file.data_file_id: file.positions for file in self.deletions.inlined_deletes}
        left = [task for task in plan.tasks if task.file.id not in ended]
        committed = [_thinned(task, hidden.get(task.file.id), few.get(task.file.id, ()), directory) for task in left]
        # Continue the numbers that the plan has given to files and tables of inlined rows.
        numbered = len(plan.tasks)
        if plan.inlined is not None:
            numbers_in_use = inlined_column(plan.inlined, plan.read_schema, "file_index").unique().to_pylist()
            numbered = max([numbered, *(number + 1 for number in numbers_in_use)])
        # The plan has the mappings of committed files that it reads only.
        planned = {mapping.id for mapping in plan.mappings}
        own = list(self._own(plan, directory, {file_id: number for file_id, (number, _) in mappings.items()}, numbered))
        return replace(
            plan,
            tasks=(*committed, *own),
            inlined=self._inlined_over(plan, numbered + len(self.files)),
            mappings=(*plan.mappings, *{number: mapping for number, mapping in mappings.values() if number not in planned}.values()),
        )

    def _live(self, inlined: pa.Table, read_schema: Schema) -> pa.Table:
        """Return the committed inlined rows that are not deleted."""
        if not self.deletions.inlined:
            return inlined
        deleted = {(name, row_id) for name, row_ids in self.deletions.inlined for row_id in row_ids}
        tables, row_ids = (inlined_column(inlined, read_schema, name).to_pylist() for name in _IDENTITY)
        return inlined.filter(pa.array([row not in deleted for row in zip(tables, row_ids, strict=True)], pa.bool_()))

    def _own(self, plan: ScanPlan, directory: str, mapping_ids: dict[int, int], start: int) -> Iterator[FileTask]:
        for number, one in enumerate(self.files):
            statistics = {column.column_id: column for column in one.file.statistics}
            if plan.predicate is None or pruning.may_match(plan.predicate, statistics, one.file.record_count):
                file = _data_file(one, directory, plan.snapshot_id, mapping_ids.get(one.id))
                yield FileTask(file=file, native_obstacle="it is not committed yet", index=start + number)

    def _inlined_over(self, plan: ScanPlan, number: int) -> pa.Table | None:
        tables = [] if plan.inlined is None else [self._live(plan.inlined, plan.read_schema)]
        tables += [_arrow(one, plan, number) for one in self.inlined]
        return pa.concat_tables(tables) if tables else None


def _thinned(task: FileTask, hidden: StagedDeleteFile | None, few: Sequence[int], directory: str) -> FileTask:
    """Return the task for a committed file without the newly deleted rows."""
    if hidden is None and not few:
        return task
    delete_files = task.file.delete_files if hidden is None else (_delete_file(hidden, directory),)
    inlined_deletes = tuple(sorted((*task.file.inlined_deletes, *few)))
    return replace(task, file=replace(task.file, delete_files=delete_files, inlined_deletes=inlined_deletes))


def _together(parts: Sequence[StagedInlined]) -> Iterator[StagedInlined]:
    """Yield rows of the same kind as one part. All parts have the same columns."""
    kinds: dict[tuple[bool, bool], list[StagedInlined]] = {}
    for part in parts:
        kinds.setdefault((part.is_changed, part.reads_base_rows), []).append(part)
    for alike in kinds.values():
        first, *others = alike
        if not others:
            yield first
            continue
        columns = tuple(tuple(chain.from_iterable(values)) for values in zip(*(part.rows.columns for part in alike), strict=True))
        rows = inlined_rows(columns, sum(part.rows.record_count for part in alike), first.schema)
        yield replace(first, rows=rows, row_ids=tuple(chain.from_iterable(part.row_ids for part in alike)))


def _same_form(before: tuple[Field, object] | None, now: Field) -> bool:
    return before is not None and before[0].type == now.type


def _unbounded(statistics: Iterable[ColumnStatistics], lost: Collection[int]) -> Iterator[ColumnStatistics]:
    for column in statistics:
        bounds_go = column.column_id in lost
        yield replace(column, min_value=None, max_value=None, exact_min=None, exact_max=None) if bounds_go else column


def _arrow(staged: StagedInlined, plan: ScanPlan, number: int) -> pa.Table:
    count = staged.rows.record_count
    table = pa.Table.from_arrays(
        [
            *staged.arrays(plan.read_schema),
            pa.array(staged.row_ids, pa.int64()),
            pa.repeat(pa.scalar(plan.snapshot_id + 1, pa.int64()), count),
        ],
        schema=pa.schema([*to_arrow_schema(plan.read_schema), pa.field(ROW_ID, pa.int64()), pa.field(SNAPSHOT_ID, pa.int64())]),
    )
    table = table.append_column(TABLE_NAME, pa.repeat(NOT_COMMITTED, count))
    return table.append_column(FILE_INDEX.name, pa.repeat(pa.scalar(number, pa.uint64()), count))


def _data_file(staged: StagedFile, directory: str, snapshot_id: int, mapping_id: int | None) -> DataFile:
    file, added = staged.file, staged.added
    return DataFile(
        id=staged.id,
        table_id=-1,
        directory=directory if added is None or added.path_is_relative else "",
        relative_path=file.path,
        record_count=file.record_count,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        row_id_start=None if file.row_ids_embedded else staged.first_row_id,
        # The id of the snapshot that the transaction commits, unless another writer commits first.
        begin_snapshot=snapshot_id + 1,
        mapping_id=mapping_id,
        encryption_key=file.encryption_key,
        delete_files=() if staged.hidden is None else (_delete_file(staged.hidden, directory),),
    )


def _delete_file(staged: StagedDeleteFile, directory: str) -> DeleteFile:
    return DeleteFile(
        id=-1,
        data_file_id=staged.data_file_id,
        path=directory + staged.path,
        format=staged.format,
        delete_count=staged.delete_count,
        file_size_bytes=staged.file_size_bytes,
        footer_size=staged.footer_size,
        begin_snapshot=staged.min_snapshot or 0,
        encryption_key=staged.encryption_key,
    )


def inlined_part(frame: Frame, state: WriteState, inline: bool | None = None) -> tuple[InlinedRows | None, Frame]:
    """Return the rows of a frame as values for the catalog, or the frame to write to files.

    A frame is stored in the catalog if it has at most ``data_inlining_row_limit`` rows (a table option), the catalog can store all
    column types, and DuckDB can read and flush every value. A Spark DataFrame is stored there only on request, because counting its
    rows may compute it twice.

    Args:
        frame: The frame. Only as many rows of a stream or DataFrame are read as needed to know that it is too long.
        state: Settings of the write.
        inline: False for never, True for Spark DataFrames, too. Default: None, for Arrow data only.

    Returns:
        The values, or None; and a frame that still has all rows.

    Raises:
        SchemaError: The rows do not match the table.
        UsageError: A row does not satisfy the condition of the write.
    """
    limit = state.options.data_inlining_row_limit
    requested = inline if inline is not None else frame.inlines_by_default
    if not limit or not requested or not may_inline(state.schema, state.format_version):
        return None, frame
        # Reads only one row more than the limit. ``frame`` still returns all rows, including these.
    few, frame = frame.few_rows(limit, MAX_BYTES)
    if few is None or not few.num_rows:
        return None, frame
    from ducklake_core.engines.arrow.write_state import check_row_constraint, fitted, with_computed_defaults

    logical = fitted(with_computed_defaults(few, state), state, physical=False)
    if state.row_constraint is not None:
        check_row_constraint(logical, state, state.row_constraint)
    rows = inlined_rows_of(logical, state.schema)
    return (rows if are_usable(rows, state.schema, state) else None), frame


def are_usable(rows: InlinedRows, schema: Schema, state: WriteState) -> bool:
    """Return whether DuckDB can read and flush all values of rows that have the columns of a schema, if the catalog stores them."""
    if state.flush is not None and not state.flush.allows(rows, schema, state.partition_spec):
        return False
    # A row must fit into one statement.
    most = state.format_version.inlined_limits.most_row_bytes
    if most is not None and any(sum(map(_max_bytes, row)) > most for row in rows.rows()):
        return False
    # PostgreSQL moves long values out of a row that exceeds a page, but a pointer to each remains, so that a row of many columns may still
    # not fit. The exact size is computed only for tables that are wide enough.
    page = state.format_version.inlined_limits.max_page_bytes
    if page is not None and len(schema) * _MAX_CELL_BYTES + _ROW_BYTES > page:
        kinds = [column.type for column in schema]
        remaining = page - _ROW_BYTES - len(schema) // 8
        if any(sum(map(_page_bytes, row, kinds)) > remaining for row in rows.rows()):
            return False
    columns = zip(rows.columns, schema, strict=True)
    # Variants and nested values are stored as strings, which DuckDB must be able to parse again.
    doubtful = [(values, column.type) for values, column in columns if column.type == VARIANT or not column.is_leaf]
    return all(is_readable(value, kind) for values, kind in doubtful for value in values)


def _max_bytes(value: object) -> int:
    """Return the maximum number of bytes of a value in a statement.

    >>> _max_bytes("ä"), _max_bytes(b"\\0"), _max_bytes([1, None]), _max_bytes(2.5)
    (4, 1, 36, 8)
    """
    match value:
        case str():
            return 4 * len(value)
        case bytes():
            return len(value)
        case list() | dict():
            return 4 * len(str(value))
        case _:
            return 8


def _page_bytes(value: object, data_type: DataType) -> int:
    """Return the maximum bytes of a value in a page of PostgreSQL, aligned to the start of the next value.

    >>> from ducklake_core.format.types.data_types import INT64, VARCHAR
    >>> [_page_bytes(value, VARCHAR) for value in (None, "", "ten letters", "long" * 1000)], _page_bytes(7, INT64)
    ([0, 8, 16, 24], 8)
    """
    match value:
        case None:
            return 0
        case bool() | int() | float() if data_type in _NUMBERS:
            return 8
        case str() | bytes():
            length = len(value if isinstance(value, bytes) else value.encode())
            return min((length + 8) // 8 * 8, _MAX_CELL_BYTES)
        case _:
            return _MAX_CELL_BYTES


def computed_defaults(schema: Schema, given: Collection[str], moment: datetime) -> tuple[tuple[int, Scalar], ...]:
    """Return values for columns that some rows lack, by column id.

    These are defaults that depend on the statement (expressions, and timestamps without a time zone), and constants that are not in the
    form of their type, such as ``1.5`` for an integer.

    Args:
        schema: Columns of the table.
        given: Names of the columns that every row has.
        moment: Time of the statement, in the zone for timestamps without one.

    Raises:
        UnsupportedFeatureError: Neither this library nor DuckDB, if it is installed, can compute a default.
        UsageError: DuckDB cannot compute a default.
        SchemaError: The value does not fit the column.
    """
    names = {folded(name) for name in given}
    missing = (column for column in schema if column.default is not None and folded(column.name) not in names)
    return tuple((column.id, _computed(column, moment)) for column in missing if not _is_plain(column))


def inserted_columns(request: ChangeRequest) -> list[str]:
    """Return names of the columns that every inserting branch of a change sets."""
    inserts = [{place for place, _ in clause.values} for clause in request.clauses if clause.action == "insert"]
    given = set.intersection(*inserts) if inserts else range(len(request.target.columns))
    return [request.target.columns[place].name for place in given]


def _is_plain(column: Field) -> bool:
    """Return whether the stored default is the value's own string."""
    if column.default_is_expression or column.type == TIMESTAMPTZ:
        return False
    return column.type in OWN_STRINGS or canonical_default(column) == column.default


def _computed(column: Field, moment: datetime) -> Scalar:
    from ducklake_core.engines.arrow.evaluate import check_scalar

    if not column.default_is_expression:
        # DuckDB stores the string as it was written, and reads it in the zone of the session that inserts.
        return text_literal(column.default or "", column.type)
    try:
        scalar = default_scalar(column, moment)
        check_scalar(scalar, pa.RecordBatch.from_arrays([pa.nulls(0)], names=["rows"]), column)
    except UnsupportedFeatureError as problem:
        from ducklake_core.engines.duckdb.syntax import constant

        try:
            return constant(statement_tree(column, moment), column.type)
        except UnsupportedFeatureError as rejected:
            raise rejection(column, f"{_reason(problem)}, and {rejected.message}") from problem
    return scalar


def _reason(problem: UnsupportedFeatureError) -> str:
    return str(problem.details.get("reason", problem.message))


def check_no_nulls(
    lake: LakeContext, table: TableState, column: str, session: Any = None, overlay: Callable[[ScanPlan], ScanPlan] | None = None
) -> None:
    """Reject a column that has NULL in a live row.

    Files without NULLs, by their statistics, are not opened. Of the others only this column is read, batch by batch, up to the first NULL.

    Args:
        lake: The lake of the table.
        table: The table at the snapshot to read, with the columns of the transaction.
        column: Name of a top-level column.
        session: Spark session whose executors read the rows. Default: this process reads them.
        overlay: Adds the rows of the transaction. Default: none.

    Raises:
        SchemaError: The column has NULLs.
    """
    from ducklake_core.scan import Scan

    name = table.schema.column(column).name
    where = is_null(table.schema, (name,))
    scan = Scan(table=table, columns=[name], where=where, reader=lake.reader, storage=lake.storage, overlay=overlay)
    found = any(batch.num_rows for batch in scan.to_batches()) if session is None else not scan.to_spark(session).isEmpty()
    if found:
        raise SchemaError(
            f"Column {name!r} of {table.qualified_name} has NULL in it at snapshot {table.snapshot_id}, so it cannot become NOT NULL. "
            f"Set a value in these rows, or delete them, first: WHERE {name} IS NULL",
            table=table.qualified_name,
            column=name,
            snapshot_id=table.snapshot_id,
        )
