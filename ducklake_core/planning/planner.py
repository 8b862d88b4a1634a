"""From a question to the exact files and inlined rows that answer it; one short catalog transaction, no file is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.catalog.inlined.rows import inlined_rows
from ducklake_core.catalog.reading import files as catalog_files
from ducklake_core.catalog.reading.macros_in_conditions import without_macro_calls
from ducklake_core.catalog.reading.mappings import name_mappings
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.columns import Column
from ducklake_core.format.expressions.conditions import Condition
from ducklake_core.format.expressions.predicate_parser import parse_predicate
from ducklake_core.format.expressions.predicates import Predicate, as_filter
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile, DeleteFile
from ducklake_core.format.files.paths import file_name
from ducklake_core.format.layout.partition_pruning import partition_must_match
from ducklake_core.format.state import LakeInfo, TableState
from ducklake_core.format.types.data_types import FLOATS
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_names import ColumnRow
from ducklake_core.planning.inlined_columns import inlined_column
from ducklake_core.planning.native import (
    MOST_DELETED_BYTES,
    REMOTE,
    ReadFeatures,
    column_versions,
    deleted_bytes,
    misnamed,
    native_obstacle,
    trusts_bounds,
)
from ducklake_core.planning.plan import ColumnLifetime, FileTask, PruningReport, ScanPlan
from ducklake_core.planning.virtual import FILE_INDEX, VIRTUAL_COLUMNS, needed_virtual, virtual_statistics, with_virtual


def plan_scan(
    reader: CatalogReader,
    table: TableState,
    columns: Sequence[str] | None = None,
    where: str | Predicate | Condition | Column | None = None,
    *,
    virtual: Sequence[str] = (),
) -> ScanPlan:
    """Plan a read of a table at the snapshot of its state.

    Args:
        reader: An open read transaction.
        table: The table at the snapshot to read.
        columns: Names to return, in order, without regard to case; all columns when None. A virtual column's name
            counts as such unless the table has a column of that name.
        where: Rows to keep: SQL text or a predicate; it may name virtual columns too.
        virtual: Further virtual columns to return, which may be called like a column.

    Raises:
        NotFoundError: An unknown column.
        UsageError: No column at all, or one of them twice.
        CatalogCorruptError: A file names a column mapping that does not exist, or has no key in an encrypted lake.
        UnsupportedFeatureError: A file that the lake has no business to name.
    """
    schema, named_virtual = scan_columns(table.schema, columns)
    wanted_virtual = (*named_virtual, *(name for name in virtual if name not in named_virtual))
    _check_projection((*schema.names, *named_virtual), virtual)
    condition = without_macro_calls(reader, where, table.snapshot_id)
    predicate = None if condition is None else as_filter(parse_predicate(condition, with_virtual(table.schema)))
    read_schema = _read_schema(table.schema, schema, predicate)
    is_numbered = FILE_INDEX.name in (*wanted_virtual, *needed_virtual(predicate))
    tasks, lives, report = _tasks(reader, table, read_schema, predicate, is_numbered=is_numbered)
    return ScanPlan(
        table=table.qualified_name,
        snapshot_id=table.snapshot_id,
        schema=schema,
        read_schema=read_schema,
        virtual=wanted_virtual,
        predicate=predicate,
        tasks=tasks,
        inlined=_numbered(inlined_rows(reader, table, read_schema, with_table=True), read_schema, len(tasks)),
        pruning=report,
        column_lifetimes=lives,
        mappings=name_mappings(reader, (t.file.mapping_id for t in tasks if t.file.mapping_id is not None), table.qualified_name),
    )


def scan_columns(table: Schema, columns: Sequence[str] | None) -> tuple[Schema, tuple[str, ...]]:
    """The table's columns among those to return, and the virtual ones.

    Raises:
        NotFoundError: An unknown column.
        UsageError: A text instead of a list.
    """
    if columns is None:
        return table, ()
    if isinstance(columns, str):
        raise UsageError(f"columns must be a list of names, not the text {columns!r}")
    virtual = tuple(name.lower() for name in columns if table.find(name) is None and name.lower() in VIRTUAL_COLUMNS)
    return table.select(name for name in columns if name.lower() not in virtual or table.find(name) is not None), virtual


def _check_projection(named: Sequence[str], virtual: Sequence[str]) -> None:
    names = [folded(name) for name in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"the scan names {', '.join(twice)} more than once")
    if not named and not virtual:
        raise UsageError("the scan names no column")
    unknown = sorted(set(virtual) - set(VIRTUAL_COLUMNS))
    if unknown:
        raise UsageError(f"there is no virtual column {', '.join(unknown)}; there are: {', '.join(VIRTUAL_COLUMNS)}")


def _read_schema(table: Schema, schema: Schema, predicate: Predicate | None) -> Schema:
    needed = pruning.columns(predicate) if predicate is not None else frozenset()
    returned = {column.id for column in schema}
    extra = (c for c in table if c.id not in returned and any(node.id in needed for node in c.walk()))
    return Schema(columns=(*schema.columns, *extra))


def _tasks(
    reader: CatalogReader, table: TableState, read_schema: Schema, predicate: Predicate | None, *, is_numbered: bool
) -> tuple[tuple[FileTask, ...], tuple[ColumnLifetime, ...], PruningReport]:
    needed = pruning.columns(predicate) if predicate is not None else frozenset()
    features = ReadFeatures(schema=read_schema, may_hold_nan=_may_hold_nan(reader, table, read_schema))
    selection = catalog_files.data_files(reader, table, predicate, needed | features.may_hold_nan)
    about_virtual = predicate is not None and bool(needed_virtual(predicate))
    lives: tuple[ColumnLifetime, ...] = ()
    tasks: list[FileTask] = []
    listed = 0
    # One by one, as the database hands them out: with very many files, what is known of each apart from its task is as much again.
    for file, statistics in selection:
        if not listed:
            history = reader.column_history(table.id)
            versions, lives = column_versions(history), column_lifetimes(history)
            features = replace(features, history=versions, misnamed=misnamed(read_schema, versions))
            check_locations(reader.info, table, [file])
        listed += 1
        check_location_of(file, reader.info, table)
        if reader.info.encrypted:
            _check_keys(file, table)
        known = statistics | virtual_statistics(file) if about_virtual else statistics
        if about_virtual and predicate is not None and not pruning.may_match(predicate, known, file.record_count):
            continue
        tasks.append(_task(file, known, table, features, predicate, len(tasks) if is_numbered else 0))
    report = PruningReport(
        files_total=selection.counts.files_total,
        files_kept=len(tasks),
        pruned_by_partition=selection.counts.pruned_by_partition,
        pruned_by_statistics=selection.counts.pruned_by_statistics + listed - len(tasks),
    )
    _refuse_two_delete_files(tasks)
    return tuple(tasks), lives, report


def _may_hold_nan(reader: CatalogReader, table: TableState, read_schema: Schema) -> frozenset[int]:
    """Leaves for which the whole table does not rule NaN out."""
    floats = frozenset(leaf.id for leaf in read_schema.leaves() if leaf.type in FLOATS)
    if not floats:
        return floats
    statistics = reader.column_statistics(table.id)
    return frozenset(leaf for leaf in floats if leaf not in statistics or statistics[leaf].contains_nan is not False)


def _numbered(inlined: pa.Table | None, read_schema: Schema, files: int) -> pa.Table | None:
    """Inlined rows with their ``file_index``: DuckDB counts every physical table as one more file."""
    if inlined is None:
        return None
    tables = inlined_column(inlined, read_schema, "inlined_table")
    places = pc.index_in(tables, value_set=tables.unique()).cast(pa.uint64())
    return inlined.append_column(FILE_INDEX.name, pc.add(places, pa.scalar(files, pa.uint64())))


def check_locations(info: LakeInfo, table: TableState, files: Sequence[DataFile]) -> None:
    """Raise for data and delete files in places that the lake must not name.

    Raises:
        UnsupportedFeatureError: One leaves the data path through ``..``, or is in another kind of store, and is not allowed.
    """
    if files:
        check_directory(info, table)
    for file in files:
        check_location_of(file, info, table)


def check_directory(info: LakeInfo, table: TableState) -> None:
    """The same for the directory of a table."""
    info.checked_location(table.path, f"table {table.qualified_name}", table=table.qualified_name)


def check_location_of(file: DataFile, info: LakeInfo, table: TableState) -> None:
    """The same for a data file and its delete files, where the directory of the table was looked at."""
    _check_location(info, table, file.path, f"data file {file.id}")
    for delete_file in file.delete_files:
        _check_location(info, table, delete_file.path, f"delete file {delete_file.id}")


def _check_location(info: LakeInfo, table: TableState, path: str, what: str) -> None:
    # Most files only add a name to the path of the table, which was looked at once.
    if not path.startswith(table.path) or ".." in path[len(table.path) :]:
        info.checked_location(path, f"{what} of table {table.qualified_name}", table=table.qualified_name)


def column_lifetimes(history: Sequence[tuple[ColumnRow, int | None]]) -> tuple[ColumnLifetime, ...]:
    """Top-level columns that the table ever had, in the order of the last version of each."""
    versions: dict[int, list[tuple[ColumnRow, int | None]]] = {}
    for row, end in history:
        if row.parent_column is None:
            versions.setdefault(row.column_id, []).append((row, end))
    ordered = sorted(
        versions.values(), key=lambda rows: (rows[-1][0].column_order is None, rows[-1][0].column_order or 0, rows[-1][0].column_id)
    )
    return tuple(
        ColumnLifetime(column_id=rows[0][0].column_id, begin_snapshot=rows[0][0].begin_snapshot, end_snapshot=rows[-1][1])
        for rows in ordered
    )


def _task(
    file: DataFile,
    statistics: dict[int, ColumnStatistics],
    table: TableState,
    features: ReadFeatures,
    predicate: Predicate | None,
    index: int,
) -> FileTask:
    hides = file.partial_max is not None and file.partial_max > table.snapshot_id
    snapshot_filter = table.snapshot_id if hides else None
    obstacle = native_obstacle(file, features, snapshot_filter)
    matches = False
    if predicate is not None:
        exact = {column: found.with_exact_bounds() for column, found in statistics.items()}
        matches = pruning.must_match(predicate, exact, file.record_count) or _covered_by_partition(file, table, predicate)
    return FileTask(
        file=file,
        snapshot_filter=snapshot_filter,
        native_obstacle=obstacle,
        trusts_bounds=trusts_bounds(file, statistics, features),
        all_rows_match=matches,
        index=index,
    )


def _covered_by_partition(file: DataFile, table: TableState, predicate: Predicate) -> bool:
    """Whether the file's partition values prove that every row satisfies the predicate."""
    spec = table.partition_specs.get(file.partition_id) if file.partition_id is not None else None
    if spec is None or not pruning.columns(predicate) <= {key.column_id for key in spec.fields}:
        return False
    values = dict(file.partition_values)
    if set(values) != set(range(len(spec.fields))):
        return False
    ordered = [values[place] for place in range(len(spec.fields))]
    return partition_must_match(spec, ordered, predicate, table.schema, file.begin_snapshot)


def _check_keys(file: DataFile, table: TableState) -> None:
    """An encrypted lake has no plain files: one without a key was put there by someone who does not know, or its key is lost."""
    kinds: tuple[tuple[str, Sequence[DataFile | DeleteFile]], ...] = (("data", (file,)), ("delete", file.delete_files))
    for kind, one in ((kind, one) for kind, ones in kinds for one in ones):
        if one.encryption_key is None:
            raise CatalogCorruptError(
                f"the lake is encrypted, but {kind} file {one.id} of table {table.qualified_name} has no encryption key in the "
                "catalog: restore the key, or drop the file's rows with DuckDB",
                table=table.qualified_name,
                data_file_id=file.id,
                snapshot_id=table.snapshot_id,
            )


def _refuse_two_delete_files(tasks: list[FileTask]) -> None:
    """Give to Arrow the files that Spark's reader cannot take together: files of one name, and those with very many deletes."""
    # Numbers for names: two names of one number are taken for one name, which is as right.
    seen: set[int] = set()
    twice: set[int] = set()
    numbers = [_name_number(task) for task in tasks]
    for number in numbers:
        (twice if number in seen else seen).add(number)
    if not twice and not any(task.file.delete_files or task.file.inlined_deletes for task in tasks):
        return
    held = 0
    for place, (task, number) in enumerate(zip(tasks, numbers, strict=True)):
        obstacle = task.native_obstacle
        if obstacle in (None, REMOTE) and number in twice:
            obstacle = "the table has another file of the same name"
        if obstacle in (None, REMOTE):
            size = deleted_bytes(task.file)
            obstacle = "the table has very many deleted rows" if size and held + size > MOST_DELETED_BYTES else obstacle
            held += size if obstacle in (None, REMOTE) else 0
        if obstacle != task.native_obstacle:
            tasks[place] = _refused(task, obstacle)


def _refused(task: FileTask, obstacle: str | None) -> FileTask:
    """The task for Arrow; quicker than ``replace``, as many tasks may be refused."""
    return FileTask(
        file=task.file,
        snapshot_filter=task.snapshot_filter,
        native_obstacle=obstacle,
        trusts_bounds=task.trusts_bounds,
        all_rows_match=task.all_rows_match,
        index=task.index,
    )


def _name_number(task: FileTask) -> int:
    return hash(file_name(task.file.path))
