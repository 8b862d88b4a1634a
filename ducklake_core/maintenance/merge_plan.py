"""Which small files of a table can become one (specification: Merge Files), as values that explain themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ducklake_core.catalog.reading.compaction import SchemaVersions, files_with_deletes, schema_at, schema_versions
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, Snapshot, TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.maintenance.budget import OUT_OF_TIME, BudgetMeter, also_left
from ducklake_core.maintenance.clustering import ClusteringGain, Statistics, clustered_columns, gain_of_merge
from ducklake_core.maintenance.neighbours import file_kind, row_order
from ducklake_core.maintenance.order import can_follow_order
from ducklake_core.maintenance.sizes import format_bytes
from ducklake_core.planning.planner import check_directory, check_location_of
from ducklake_core.storage.parquet_writer import ROW_GROUP_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Bounds of a merge.

    Attributes:
        max_compacted_files: Most files to make, per table; None for no limit.
        min_file_size: Bytes; smaller files are left alone.
        max_file_size: Bytes; files of this size and larger are left alone, as are those of ``target_file_size`` and larger.
        cluster_by: Names of columns that rows of the new files are arranged by.
    """

    max_compacted_files: int | None = None
    min_file_size: int | None = None
    max_file_size: int | None = None
    cluster_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_compacted_files is not None and self.max_compacted_files < 1:
            raise UsageError(f"max_compacted_files must be at least 1, not {self.max_compacted_files}", parameter="max_compacted_files")
        for name in ("min_file_size", "max_file_size"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"{name} must not be negative, not {value}")
        if self.min_file_size is not None and self.max_file_size is not None and self.min_file_size >= self.max_file_size:
            raise UsageError(f"min_file_size ({self.min_file_size}) must be less than max_file_size ({self.max_file_size})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeGroup:
    """Files that become one.

    Attributes:
        files: Sources, in the order of their rows in the output.
        schema: The columns that all of them were written with.
        partition_id: Partition spec of the sources, None for none.
        partition_values: Text of each key's value in key order, the same for all sources.
        consecutive: Whether the catalog's row ids run on from file to file, so that they need not be stored with each row
            (unless a source stores them).
        cluster_by: Columns, by their names in the schema, that the rows are arranged by.
        gain: What that is for, None where nothing is known of it.
    """

    files: tuple[DataFile, ...]
    schema: Schema
    partition_id: int | None
    partition_values: tuple[str | None, ...]
    consecutive: bool
    cluster_by: tuple[str, ...] = ()
    gain: ClusteringGain | None = None

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(file.file_size_bytes for file in self.files)

    @property
    def record_count(self) -> int:
        """Rows to read and write."""
        return sum(file.record_count for file in self.files)

    @property
    def begin_snapshot(self) -> int:
        """The snapshot from which the output is visible."""
        return min(file.begin_snapshot for file in self.files)

    @property
    def partial_max(self) -> int:
        """The newest snapshot among the rows."""
        return max(file.begin_snapshot if file.partial_max is None else file.partial_max for file in self.files)

    def __str__(self) -> str:
        where = f" of partition {self.partition_values}" if self.partition_values else ""
        gain = f"; {self.gain}" if self.gain is not None else ""
        return f"{len(self.files)} files{where}, {self.record_count} rows, {format_bytes(self.bytes)}{gain}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMergePlan:
    """The plan of merging the files of one table.

    Attributes:
        table: The table at the snapshot of the plan.
        base: That snapshot.
        groups: Files to merge; empty when there is nothing to do.
        skipped: Why the whole table is left alone, None when it is not.
        left: How many live files are left alone, by reason.
    """

    table: TableState
    base: Snapshot
    groups: tuple[MergeGroup, ...] = ()
    skipped: str | None = None
    left: tuple[tuple[str, int], ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes to read."""
        return sum(group.bytes for group in self.groups)

    def without_time_for(self, late: Collection[int]) -> TableMergePlan:
        """The plan without the groups, by number, that were not begun when time was up."""
        if not late:
            return self
        beyond = {OUT_OF_TIME: sum(len(self.groups[number].files) for number in late)}
        begun = tuple(group for number, group in enumerate(self.groups) if number not in late)
        return replace(self, groups=begun, left=also_left(self.left, beyond))


def within_budget(plan: TableMergePlan, meter: BudgetMeter) -> TableMergePlan:
    """The plan with as many files of each group as a budget has room for."""
    kept: list[MergeGroup] = []
    beyond: dict[str, int] = {}
    for group in plan.groups:
        files = meter.most(group.files)
        files = files if len(files) > 1 else ()
        meter.spend(files)
        if len(files) < len(group.files):
            reason = meter.beyond(group.files, 2)
            beyond[reason] = beyond.get(reason, 0) + len(group.files) - len(files)
        if files:
            gain = group.gain if len(files) == len(group.files) else None
            kept.append(replace(group, files=tuple(files), consecutive=_consecutive(files), gain=gain))
    return replace(plan, groups=tuple(kept), left=also_left(plan.left, beyond)) if beyond else plan


def plan_table(reader: CatalogReader, table: TableState, base: Snapshot, limits: MergeLimits) -> TableMergePlan:
    """Plan the merge of one table from the catalog alone; no file is opened.

    Files that have, or ever had, a delete are left alone, as in DuckDB, because a merge forgets the history of
    its sources.

    Raises:
        NotFoundError: A column to cluster by does not exist.
        UnsupportedFeatureError: One of them has a type that files have no bounds for.
    """
    options = Options.from_mapping(table.options)
    columns = clustered_columns(table, limits.cluster_by)
    skipped = _obstacle(table, options, clusters=bool(columns))
    if skipped is not None:
        return TableMergePlan(table=table, base=base, skipped=skipped)
    deleted = files_with_deletes(reader, table.id)
    left: dict[str, int] = {}
    candidates: list[DataFile] = []
    bounds: dict[int, Statistics] = {}
    reach = Reach(reader.info, table)
    for file, statistics in data_files(reader, table, statistics_for=frozenset(column.id for column in columns)):
        bounds[file.id] = statistics
        reason = _left_alone(file, file.id in deleted, options.target_file_size, limits) or reach.obstacle(file)
        if reason is None:
            candidates.append(file)
        else:
            left[reason] = left.get(reason, 0) + 1
    planner = _Grouping(reader, table, schema_versions(reader, table.id))
    runs = [run for group in planner.grouped(candidates) for run in _runs(group, options.target_file_size)]
    merges = [run for run in runs if len(run) > 1]
    alone = len(runs) - len(merges)
    if alone:
        left["no other file to merge with"] = alone
    over = merges[limits.max_compacted_files :] if limits.max_compacted_files is not None else []
    if over:
        left["beyond max_compacted_files"] = sum(len(run) for run in over)
    groups = tuple(_clustered(planner.group(run), columns, bounds, options) for run in merges[: len(merges) - len(over)])
    return TableMergePlan(table=table, base=base, groups=groups, left=tuple(sorted(left.items())))


def _clustered(group: MergeGroup, columns: Sequence[Field], bounds: Mapping[int, Statistics], options: Options) -> MergeGroup:
    """The group with its rows arranged by columns, as far as the files have them."""
    then = {column.id: column.name for column in group.schema}
    chosen = [column for column in columns if column.id in then]
    if not chosen:
        return group
    row_groups = -(-group.record_count // (options.parquet_row_group_size or ROW_GROUP_ROWS)) or 1
    gain = gain_of_merge(chosen, [bounds[file.id] for file in group.files], row_groups)
    return replace(group, cluster_by=tuple(then[column.id] for column in chosen), gain=gain)


def _obstacle(table: TableState, options: Options, *, clusters: bool) -> str | None:
    if not options.auto_compact:
        return "its option auto_compact is false"
    if table.sort_keys and not clusters and not can_follow_order(table):
        return f"it is sorted by {', '.join(key.expression for key in table.sort_keys)}, which only DuckDB's SQL can evaluate"
    return None


def _left_alone(file: DataFile, ever_deleted: bool, target: int, limits: MergeLimits) -> str | None:
    if file.file_size_bytes >= target:
        return "of the target size already"
    if limits.max_file_size is not None and file.file_size_bytes >= limits.max_file_size:
        return "not smaller than max_file_size"
    if limits.min_file_size is not None and file.file_size_bytes < limits.min_file_size:
        return "smaller than min_file_size"
    if ever_deleted or file.delete_files or file.inlined_deletes:
        return "rows were deleted from it"
    if file.mapping_id is not None:
        return "its columns are found by name"
    return None


class Reach:
    """Which files of a table the lake may name; the table's own directory, to which files are written too, is looked at once.

    Args:
        info: The lake's settings.
        table: The table.
    """

    def __init__(self, info: LakeInfo, table: TableState) -> None:
        self._info = info
        self._table = table
        self._directory = self._reason(lambda: check_directory(info, table))

    def obstacle(self, file: DataFile) -> str | None:
        """The reason why a file must not be read, or another written in its place, None when it may."""
        return self._directory or self._reason(lambda: check_location_of(file, self._info, self._table))

    @staticmethod
    def _reason(check: Callable[[], None]) -> str | None:
        try:
            check()
        except UnsupportedFeatureError:
            return "outside of the data path, in a place that allowed_paths does not name"
        return None


class _Grouping:
    """Brings together what may share a file, and reads the columns of each schema version once."""

    def __init__(self, reader: CatalogReader, table: TableState, versions: SchemaVersions) -> None:
        self._reader = reader
        self._table = table
        self._versions = versions
        self._schemas: dict[int | None, Schema] = {}

    def grouped(self, files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
        groups: dict[object, list[DataFile]] = {}
        for file in sorted(files, key=row_order):
            groups.setdefault(file_kind(file, self._versions), []).append(file)
        yield from groups.values()

    def group(self, files: Sequence[DataFile]) -> MergeGroup:
        values = tuple(value for _, value in sorted(files[0].partition_values))
        return MergeGroup(
            files=tuple(files),
            schema=self._schema(files[-1]),
            partition_id=files[0].partition_id,
            partition_values=values,
            consecutive=_consecutive(files),
        )

    def _schema(self, file: DataFile) -> Schema:
        # Later columns are not back-filled: readers of earlier snapshots must find what they expect.
        version = self._versions.at(file.begin_snapshot)
        if version == self._versions.at(self._table.snapshot_id):
            return self._table.schema
        if version not in self._schemas:
            self._schemas[version] = schema_at(self._reader, self._table, file.begin_snapshot)
        return self._schemas[version]


def _runs(files: Sequence[DataFile], target: int) -> Iterator[list[DataFile]]:
    """Files in order, cut whenever the target size is reached."""
    run: list[DataFile] = []
    size = 0
    for file in files:
        run.append(file)
        size += file.file_size_bytes
        if size >= target:
            yield run
            run, size = [], 0
    if run:
        yield run


def _consecutive(files: Sequence[DataFile]) -> bool:
    following: int | None = files[0].row_id_start
    for file in files:
        if following is None or file.row_id_start != following:
            return False
        following = file.row_id_start + file.record_count
    return True
