"""Plan scans and change feeds: the exact files and inlined rows that answer them, from one short catalog transaction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.catalog import feed
from ducklake_core.catalog.feed import Bound, FeedRange
from ducklake_core.catalog.inlined.rows import inlined_rows
from ducklake_core.catalog.reading import files as catalog_files
from ducklake_core.catalog.reading.definitions import macros, without_macro_calls
from ducklake_core.catalog.reading.file_rows import name_mappings
from ducklake_core.catalog.reading.files import may_match
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.conditions import Column, Condition, bind
from ducklake_core.format.expressions.predicates import And, Predicate, as_filter, conjunction
from ducklake_core.format.expressions.ranges import all_of
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile, DeleteFile
from ducklake_core.format.files.paths import file_name
from ducklake_core.format.layout.transforms import partition_must_match
from ducklake_core.format.state import LakeInfo, TableState
from ducklake_core.format.types.data_types import FLOATS
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import ColumnRow, Schema
from ducklake_core.planning.native import (
    MAX_DELETED_BYTES,
    REMOTE,
    ReadFeatures,
    column_versions,
    deleted_bytes,
    misnamed,
    native_obstacle,
    trusts_bounds,
)
from ducklake_core.planning.plan import (
    CHANGE_TYPE,
    FEED_COLUMN_IDS,
    FEED_ROW_ID,
    FEED_SNAPSHOT_ID,
    FILE_INDEX,
    VIRTUAL_COLUMNS,
    ChangePlan,
    ChangeTask,
    ColumnLifetime,
    DeletedRows,
    FeedKind,
    FeedShape,
    FileTask,
    InlinedChanges,
    InsertedRows,
    PruningReport,
    ScanPlan,
    ScanProjection,
    Span,
    common,
    inlined_column,
    meet,
    needed_virtual,
    virtual_statistics,
    with_virtual,
)


def plan_scan(
    reader: CatalogReader,
    table: TableState,
    columns: Sequence[str] | None = None,
    where: str | Predicate | Condition | Column | None = None,
    *,
    virtual: Sequence[str] = (),
    pushed: Predicate | None = None,
) -> ScanPlan:
    """Plan a read of a table at the snapshot of its state.

    Args:
        reader: An open read transaction.
        table: The table at the snapshot to read.
        columns: Names to return, in order, without regard to case; all columns when None. A virtual column's name
            counts as such unless the table has a column of that name.
        where: Rows to keep: SQL text or a predicate; it may name virtual columns too. All rows when None.
        virtual: Further virtual columns to return; the table may have columns of the same names.
        pushed: Further condition, bound to the table's columns; none by default.

    Raises:
        NotFoundError: A column does not exist.
        UsageError: There is no column, or one of them is repeated.
        CatalogCorruptError: A file names a column mapping that does not exist, or has no key in an encrypted lake.
        UnsupportedFeatureError: A file in a location that the lake must not name.
    """
    schema, named_virtual = scan_columns(table.schema, columns)
    wanted_virtual = (*named_virtual, *(name for name in virtual if name not in named_virtual))
    _check_projection((*schema.names, *named_virtual), virtual)
    condition = without_macro_calls(where, lambda: macros(reader, table.snapshot_id))
    parts = [] if condition is None else [bind(condition, with_virtual(table.schema))]
    parts += [] if pushed is None else [pushed]
    predicate = as_filter(all_of(parts)) if parts else None
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
    """Return the table's columns among those to return, and the names of the virtual ones.

    Raises:
        NotFoundError: A column does not exist.
        UsageError: ``columns`` is a string instead of a list.
    """
    if columns is None:
        return table, ()
    if isinstance(columns, str):
        raise UsageError(f"columns must be a list of names, not a string. Pass [{columns!r}]")
    for name in columns:
        if table.find(name) is None and name.lower() not in VIRTUAL_COLUMNS and (advice := _misplaced(name)):
            raise NotFoundError(f"there is no column {name!r}. {advice}", column=name)
    virtual = tuple(name.lower() for name in columns if table.find(name) is None and name.lower() in VIRTUAL_COLUMNS)
    return table.select(name for name in columns if name.lower() not in virtual or table.find(name) is not None), virtual


_OPERATOR = re.compile(r"[<>=]|\s(?:is|in|not|like|ilike|between)\s", re.IGNORECASE)


def _misplaced(text: str) -> str:
    """Return what to write in place of a name that is no column; empty for an ordinary name.

    >>> _misplaced("a > 1"), _misplaced("*"), _misplaced("a")
    ('Pass a condition as where=...', 'Leave columns out to read all of them', '')
    """
    if text.strip() == "*":
        return "Leave columns out to read all of them"
    return "Pass a condition as where=..." if _OPERATOR.search(text) else ""


def _check_projection(named: Sequence[str], virtual: Sequence[str]) -> None:
    names = [folded(name) for name in named]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UsageError(f"The scan requests {', '.join(twice)} more than once. Request each column once")
    if not named and not virtual:
        raise UsageError("The scan requests no column. Request at least one")
    unknown = sorted(set(virtual) - set(VIRTUAL_COLUMNS))
    if unknown:
        raise UsageError(f"Virtual column {', '.join(unknown)} does not exist. Choose from {', '.join(VIRTUAL_COLUMNS)}")


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
    # One pass over the database's rows: with a million files, a list of their statistics would take as much memory as the tasks.
    #
    #   catalog rows --pruned by partition values and bounds--> (file, statistics) --pruned by virtual columns--> FileTask
    #
    # ``listed`` counts the files after the first step, so that the report includes those that only the virtual columns exclude.
    for file, statistics in selection:
        if not listed:
            # Only a table with a matching file pays for its column history, which costs another statement.
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
    _reject_two_delete_files(tasks)
    return tuple(tasks), lives, report


def _may_hold_nan(reader: CatalogReader, table: TableState, read_schema: Schema) -> frozenset[int]:
    """Return the leaf columns whose table statistics do not rule NaN out."""
    floats = frozenset(leaf.id for leaf in read_schema.leaves() if leaf.type in FLOATS)
    if not floats:
        return floats
    statistics = reader.column_statistics(table.id, table.snapshot_id)
    return frozenset(leaf for leaf in floats if leaf not in statistics or statistics[leaf].contains_nan is not False)


def _numbered(inlined: pa.Table | None, read_schema: Schema, files: int) -> pa.Table | None:
    """Return inlined rows with their ``file_index``: DuckDB counts every physical table as one more file."""
    if inlined is None:
        return None
    tables = inlined_column(inlined, read_schema, "inlined_table")
    places = pc.index_in(tables, value_set=tables.unique()).cast(pa.uint64())
    return inlined.append_column(FILE_INDEX.name, pc.add(places, pa.scalar(files, pa.uint64())))


def check_locations(info: LakeInfo, table: TableState, files: Sequence[DataFile]) -> None:
    """Raise for data and delete files in locations that the lake must not name.

    Args:
        info: The lake, with its data path and the locations that it may name.
        table: The table.
        files: The files to check, with their delete files.

    Raises:
        UnsupportedFeatureError: One leaves the data path through ``..``, or is in another kind of store, and is not allowed.
    """
    if files:
        check_directory(info, table)
    for file in files:
        check_location_of(file, info, table)


def check_directory(info: LakeInfo, table: TableState) -> None:
    """Raise for a table directory in a location that the lake must not name."""
    info.checked_location(table.path, f"table {table.qualified_name}", table=table.qualified_name)


def check_location_of(file: DataFile, info: LakeInfo, table: TableState) -> None:
    """Raise for a data file or its delete files in such a location, after :func:`check_directory`."""
    _check_location(info, table, file.path, f"data file {file.id}")
    for delete_file in file.delete_files:
        _check_location(info, table, delete_file.path, f"delete file {delete_file.id}")


def _check_location(info: LakeInfo, table: TableState, path: str, what: str) -> None:
    # Most files only add a name to the path of the table, which check_directory() has checked.
    if not path.startswith(table.path) or ".." in path[len(table.path) :]:
        info.checked_location(path, f"{what} of table {table.qualified_name}", table=table.qualified_name)


def column_lifetimes(history: Sequence[tuple[ColumnRow, int | None]]) -> tuple[ColumnLifetime, ...]:
    """Return top-level columns that the table ever had, in the order of the last version of each."""
    versions: dict[int, list[tuple[ColumnRow, int | None]]] = {}
    for row, end in history:
        if row.parent_column is None:
            versions.setdefault(row.column_id, []).append((row, end))
    # A file without field ids has its columns in this order, so that columns dropped since then must keep their index (plan.positions_at).
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
    # A merged or flushed file holds rows of the snapshots begin_snapshot to partial_max. A read in between filters its rows by the
    # snapshot id that is stored with each.
    hides = file.partial_max is not None and file.partial_max > table.snapshot_id
    snapshot_filter = table.snapshot_id if hides else None
    obstacle = native_obstacle(file, features, snapshot_filter)
    matches = False
    if predicate is not None:
        # Bounds may be wider than the values (truncated strings). That is safe for skipping a file, but a proof needs exact bounds.
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
    """Return whether the file's partition values prove that every row satisfies the predicate."""
    spec = table.partition_specs.get(file.partition_id) if file.partition_id is not None else None
    if spec is None or not pruning.columns(predicate) <= {key.column_id for key in spec.fields}:
        return False
    values = dict(file.partition_values)
    if set(values) != set(range(len(spec.fields))):
        return False
    ordered = [values[place] for place in range(len(spec.fields))]
    return partition_must_match(spec, ordered, predicate, table.schema, file.begin_snapshot)


def _check_keys(file: DataFile, table: TableState) -> None:
    """Raise for files without a key in an encrypted lake: another client added a plain file, or the key was lost."""
    kinds: tuple[tuple[str, Sequence[DataFile | DeleteFile]], ...] = (("data", (file,)), ("delete", file.delete_files))
    for kind, one in ((kind, one) for kind, ones in kinds for one in ones):
        if one.encryption_key is None:
            raise CatalogCorruptError(
                f"The lake is encrypted, but {kind} file {one.id} of table {table.qualified_name} has no encryption key in the "
                "catalog. Restore the key from a backup of the catalog, or delete the file's rows with DuckDB",
                table=table.qualified_name,
                data_file_id=file.id,
                snapshot_id=table.snapshot_id,
            )


def _reject_two_delete_files(tasks: list[FileTask]) -> None:
    """Assign to Arrow the files that Spark's reader cannot read together: files of one name, and those with very many deletes."""
    # Spark's reader finds the deletes of a row by the name of its file, so that names must be unique within a plan. Hashes of names take
    # less memory than the names; a collision only sends two files to Arrow, which reads the same rows.
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
            obstacle = "the table has very many deleted rows" if size and held + size > MAX_DELETED_BYTES else obstacle
            held += size if obstacle in (None, REMOTE) else 0
        if obstacle != task.native_obstacle:
            tasks[place] = _rejected(task, obstacle)


def _rejected(task: FileTask, obstacle: str | None) -> FileTask:
    """Return the task for Arrow; this is faster than ``replace``, and many tasks may need it."""
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


def plan_changes(
    reader: CatalogReader,
    table: TableState,
    kind: FeedKind,
    start: Bound,
    *,
    columns: Sequence[str] | None = None,
    where: str | Predicate | Condition | Column | None = None,
) -> ChangePlan:
    """Plan the feed of a table from ``start`` up to the snapshot of its state, both included.

    Args:
        reader: An open read transaction.
        table: The table at the last snapshot of the range; rows come in its columns.
        kind: The feed: ``"insertions"``, ``"deletions"``, or ``"changes"`` for both with updates.
        start: Id of a snapshot, or a time with a zone.
        columns: Names to return, in order, without regard to case; all columns of the feed when None.
        where: Rows of the feed to keep: SQL text or a predicate. All rows when None.

    Raises:
        NotFoundError: An unknown column or snapshot, or a snapshot of the range that was expired.
        UsageError: There is no column, or one of them is repeated.
        CatalogCorruptError: A file names a column mapping that does not exist.
        UnsupportedFeatureError: A column of the table has the name of a column of the feed.
    """
    # The steps of a feed:
    #
    #   condition  -> pushed (table columns; prunes files and filters their rows) + rest (feed columns; filters the finished feed)
    #   range      -> files added, files that lost rows, inlined rows of both kinds
    #   spans      -> snapshots that both add and delete rows: only there can two halves make an update
    whole = feed_schema(table, kind)
    wanted = feed_columns(table, kind, columns)
    condition = without_macro_calls(where, lambda: macros(reader, table.snapshot_id))
    predicate = None if condition is None else bind(condition, whole)
    pushed, rest = _divided(predicate, kind)
    read = _read_shape(table, whole, wanted, pushed, rest)
    covered = feed.feed_range(reader, table, start, deletions=kind != "insertions")
    sources = _sources(reader, table, kind, covered, read)
    found: tuple[ChangeTask, ...] = (*sources.inserted, *sources.deleted)
    tasks = _kept(reader, table, found, pushed)
    mapping_ids = (task.file.mapping_id for task in tasks if task.file.mapping_id is not None)
    read = replace(
        read,
        column_lifetimes=column_lifetimes(reader.column_history(table.id)),
        mappings=name_mappings(reader, mapping_ids, table.qualified_name),
    )
    system = tuple(column for column in whole if column.id in FEED_COLUMN_IDS)
    shape = FeedShape(
        read=read,
        schema=Schema(columns=(*system, *read.schema)),
        start=covered.start,
        end=covered.end,
        rewrites=tuple(sorted(covered.rewrites)),
    )
    return ChangePlan(
        kind=kind,
        shape=shape,
        schema=wanted,
        predicate=rest,
        tasks=tasks,
        inlined=sources.inlined,
        updates=sources.updates,
        pruned=len(found) - len(tasks),
    )


def _kept(reader: CatalogReader, table: TableState, tasks: tuple[ChangeTask, ...], pushed: Predicate | None) -> tuple[ChangeTask, ...]:
    """Return the tasks of files that the lake may name and that may have rows to return."""
    files = [task.file for task in tasks]
    check_locations(reader.info, table, files)
    if pushed is None:
        return tasks
    # A feed of "changes" pushes nothing: an update needs both halves, and the condition may hold for only one of them.
    matching = may_match(reader, table, pushed, files)
    return tuple(task for task in tasks if task.file.id in matching)


def feed_schema(table: TableState, kind: FeedKind) -> Schema:
    """Return all columns of a feed.

    Raises:
        UnsupportedFeatureError: A column of the table has the name of a column of the feed.
    """
    system = (FEED_SNAPSHOT_ID, FEED_ROW_ID, CHANGE_TYPE) if kind == "changes" else (FEED_SNAPSHOT_ID, FEED_ROW_ID)
    clash = [column.name for column in system if table.schema.find(column.name) is not None]
    if clash:
        raise UnsupportedFeatureError(
            f"The change feed of {table.qualified_name} adds columns with names that the table already has: "
            f"{', '.join(clash)}. Rename them in the table",
            table=table.qualified_name,
            column=clash[0],
        )
    return Schema(columns=(*system, *table.schema))


def feed_columns(table: TableState, kind: FeedKind, columns: Sequence[str] | None) -> Schema:
    """Return the columns of a feed that are to be returned; raises as :func:`plan_changes` does."""
    whole = feed_schema(table, kind)
    return whole if columns is None else _selected(whole, columns)


def _selected(schema: Schema, columns: Sequence[str]) -> Schema:
    if isinstance(columns, str):
        raise UsageError(f"columns must be a list of names, not a string. Pass [{columns!r}]")
    selected = schema.select(columns)
    twice = sorted(name for name, count in Counter(selected.names).items() if count > 1)
    if twice or not selected.columns:
        raise UsageError(
            f"The feed requests {', '.join(twice)} more than once. Request each column once"
            if twice
            else "The feed requests no column. Request at least one"
        )
    return selected


def _divided(predicate: Predicate | None, kind: FeedKind) -> tuple[Predicate | None, Predicate | None]:
    """Split a condition into the part that holds for rows of a file and the part that only the finished feed can answer.

    An update is recognized by its two halves, which must both be read, whether or not they satisfy the predicate.
    """
    if predicate is None or kind == "changes":
        return None, predicate
    parts = predicate.operands if isinstance(predicate, And) else (predicate,)
    early = [part for part in parts if not pruning.columns(part) & FEED_COLUMN_IDS]
    late = [part for part in parts if pruning.columns(part) & FEED_COLUMN_IDS]
    return (conjunction(early) if early else None, conjunction(late) if late else None)


def _read_shape(table: TableState, whole: Schema, wanted: Schema, pushed: Predicate | None, rest: Predicate | None) -> ScanProjection:
    """Return the projection of the tasks: columns that are returned or filtered later, and further ones that early filters read."""
    given = {column.id for column in wanted} | _columns_of(whole, rest)
    read = given | _columns_of(whole, pushed)
    return ScanProjection(
        table=table.qualified_name,
        snapshot_id=table.snapshot_id,
        schema=Schema(columns=tuple(column for column in table.schema if column.id in given)),
        read_schema=Schema(columns=tuple(column for column in table.schema if column.id in read)),
        predicate=pushed,
    )


def _columns_of(schema: Schema, predicate: Predicate | None) -> set[int]:
    needed = pruning.columns(predicate) if predicate is not None else frozenset()
    return {column.id for column in schema if any(node.id in needed for node in column.walk())}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    inserted: tuple[InsertedRows, ...] = ()
    deleted: tuple[DeletedRows, ...] = ()
    inlined: tuple[InlinedChanges, ...] = ()
    updates: tuple[Span, ...] = ()


def _sources(reader: CatalogReader, table: TableState, kind: FeedKind, covered: FeedRange, read: ScanProjection) -> _Sources:
    if covered.start > covered.end:
        return _Sources()
    added, removed, inlined = [], [], []
    if kind != "deletions":
        added = feed.inserted_files(reader, table, covered)
        rows = feed.inserted_inlined(reader, table, read.read_schema, covered)
        inlined += [InlinedChanges(rows=rows, deleted=False)] if rows is not None else []
    if kind != "insertions":
        removed = feed.deleted_files(reader, table, covered)
        rows = feed.deleted_inlined(reader, table, read.read_schema, covered)
        inlined += [InlinedChanges(rows=rows, deleted=True)] if rows is not None else []
    # An update needs a row that the same snapshot deletes and adds. Everything outside of the common spans is read without pairing:
    #
    #   added    [1..3]        [6..9]        (data files, inlined rows)
    #   deleted     [3]  [5]      [8..8]     (delete files, inlined deletes)
    #   updates     [3]           [8..8]
    in_catalog = [_inlined_spans(inlined, deleted=deleted) for deleted in (False, True)]
    updates = common(
        [*(_added_span(file, covered) for file in added), *in_catalog[0]],
        [*(span for one in removed for span in one.spans), *in_catalog[1]],
    )
    return _Sources(
        inserted=tuple(InsertedRows(file=file, may_update=meet(updates, [_added_span(file, covered)])) for file in added),
        deleted=tuple(
            DeletedRows(file=one.file, inlined=one.inlined, ended=one.ended, may_update=meet(updates, one.spans)) for one in removed
        ),
        inlined=tuple(inlined),
        updates=updates,
    )


def _added_span(file: DataFile, covered: FeedRange) -> Span:
    last = file.partial_max if file.partial_max is not None else file.begin_snapshot
    return max(file.begin_snapshot, covered.start), min(last, covered.end)


def _inlined_spans(inlined: Sequence[InlinedChanges], *, deleted: bool) -> list[Span]:
    found = {number for one in inlined if one.deleted is deleted for number in one.rows.column("snapshot_id").unique().to_pylist()}
    return [(number, number) for number in sorted(found)]
