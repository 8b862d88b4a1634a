"""Which files of a table have so many deleted rows that they are written anew, as values that explain themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ducklake_core.catalog.reading.compaction import clustered_snapshots, delete_histories, inlined_deletes_of, schema_versions
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.mappings import name_mappings
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import UsageError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.files.delete_history import DeleteHistory, deleted_count
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.options import Options
from ducklake_core.format.state import Snapshot, TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.maintenance.budget import OUT_OF_TIME, BudgetMeter, also_left
from ducklake_core.maintenance.clustering import ClusteringGain, Statistics, clustered_columns, expected_gain
from ducklake_core.maintenance.merge_plan import Reach
from ducklake_core.maintenance.neighbours import Neighbours, row_order
from ducklake_core.maintenance.sizes import format_bytes
from ducklake_core.planning.plan import ScanProjection
from ducklake_core.planning.planner import column_lifetimes

CLUSTERED_FILES = 16
"""Files of the target size, about, that are clustered together; more rows of a partition make further groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteLimits:
    """Bounds of a rewrite.

    Attributes:
        delete_threshold: Part of a file's rows that must be deleted; the table's option ``rewrite_delete_threshold`` when None.
        max_compacted_files: Most groups to write, per table; None for no limit.
        cluster_by: Columns to cluster files by; none for the table's sort order.
    """

    delete_threshold: float | None = None
    max_compacted_files: int | None = None
    cluster_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_compacted_files is not None and self.max_compacted_files < 1:
            raise UsageError(f"max_compacted_files must be at least 1, not {self.max_compacted_files}", parameter="max_compacted_files")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteGroup:
    """Files whose live rows go to new files together.

    Attributes:
        files: Sources, by the snapshot that added them and by row id.
        spec: Partition keys of the new files, None for none.
        gain: What the group is clustered for, None when it is rewritten for its deleted rows.
    """

    files: tuple[DataFile, ...]
    spec: PartitionSpec | None
    gain: ClusteringGain | None = None

    @property
    def neighbours(self) -> int:
        """How many of them have no deleted rows, and join because they are small and next to others."""
        return 0 if self.gain is not None else sum(not deleted_count(file) for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of the sources."""
        return sum(file.file_size_bytes for file in self.files)

    @property
    def deleted_rows(self) -> int:
        """Rows that are deleted, as the catalog counts them."""
        return sum(deleted_count(file) for file in self.files)

    @property
    def live_rows(self) -> int:
        """Rows to write."""
        return sum(max(0, file.record_count - deleted_count(file)) for file in self.files)

    def __str__(self) -> str:
        rows = sum(file.record_count for file in self.files)
        return f"{len(self.files)} files, {self.deleted_rows} of {rows} rows deleted, {format_bytes(self.bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRewritePlan:
    """The plan of rewriting files of one table.

    Attributes:
        table: The table at the snapshot of the plan.
        base: That snapshot.
        threshold: Part of a file's rows that must be deleted.
        groups: Files to write anew; empty when there is nothing to do.
        shape: How the sources are read; None when there is nothing to do.
        histories: Deletes of those sources that have them in several places, by the id of the data file.
        skipped: Why the whole table is left alone, None when it is not.
        left: How many files with deletes, or to cluster, are left alone, by reason.
    """

    table: TableState
    base: Snapshot
    threshold: float
    groups: tuple[RewriteGroup, ...] = ()
    shape: ScanProjection | None = None
    histories: Mapping[int, DeleteHistory] = field(default_factory=dict)
    skipped: str | None = None
    left: tuple[tuple[str, int], ...] = ()

    def without_time_for(self, late: Collection[int]) -> TableRewritePlan:
        """The plan without the groups, by number, that were not begun when time was up."""
        if not late:
            return self
        beyond = {OUT_OF_TIME: sum(len(self.groups[number].files) for number in late)}
        begun = tuple(group for number, group in enumerate(self.groups) if number not in late)
        return replace(self, groups=begun, left=also_left(self.left, beyond))


def within_budget(plan: TableRewritePlan, meter: BudgetMeter) -> TableRewritePlan:
    """The plan with as many files of each group as a budget has room for.

    A budget is for files with deleted rows, no small files join them then; a group to be clustered is taken as a whole or not at all.
    """
    if meter.budget.max_files is None and meter.budget.max_input_bytes is None:
        return plan
    kept: list[RewriteGroup] = []
    beyond: dict[str, int] = {}
    for group in plan.groups:
        wanted = group.files if group.gain is not None else tuple(file for file in group.files if deleted_count(file))
        files = meter.first(wanted)
        if group.gain is not None and len(files) < len(wanted):
            files = ()
        meter.spend(files)
        if len(files) < len(wanted):
            reason = meter.beyond(wanted, len(wanted)) if group.gain is not None else meter.beyond(wanted[len(files) :])
            beyond[reason] = beyond.get(reason, 0) + len(wanted) - len(files)
        if files:
            kept.append(replace(group, files=tuple(files)))
    return replace(plan, groups=tuple(kept), left=also_left(plan.left, beyond))


def plan_rewrite(reader: CatalogReader, table: TableState, base: Snapshot, limits: RewriteLimits) -> TableRewritePlan:
    """Plan the rewrite of one table from the catalog alone; no file is opened.

    Raises:
        NotFoundError: A column to cluster by does not exist.
        UnsupportedFeatureError: One of them has a type that files have no bounds for.
    """
    options = Options.from_mapping(table.options)
    limit = options.rewrite_delete_threshold if limits.delete_threshold is None else limits.delete_threshold
    if not options.auto_compact:
        return TableRewritePlan(table=table, base=base, threshold=limit, skipped="its option auto_compact is false")
    found = _find(reader, table, limit, clustered_columns(table, limits.cluster_by))
    if found.columns:
        groups = _clustered_groups(reader, table, found, options.target_file_size)
    else:
        groups = _groups(reader, table, found, options.target_file_size)
    over = groups[limits.max_compacted_files :] if limits.max_compacted_files is not None else []
    if over:
        found.leave("beyond max_compacted_files", sum(len(group.files) for group in over))
        del groups[len(groups) - len(over) :]
    left = tuple(sorted(found.left.items()))
    if not groups:
        return TableRewritePlan(table=table, base=base, threshold=limit, left=left)
    chosen = [file for group in groups for file in group.files]
    several = [file.id for file in chosen if file.inlined_deletes or len(file.delete_files) > 1]
    histories = delete_histories(reader, table, several, inlined_deletes_of(reader, table)) if several else []
    return TableRewritePlan(
        table=table,
        base=base,
        threshold=limit,
        groups=tuple(groups),
        shape=_shape(reader, table, chosen),
        histories={history.file.id: history for history in histories},
        left=left,
    )


@dataclass(slots=True, kw_only=True)
class _Found:
    """The live files of a table.

    Attributes:
        columns: Columns to cluster by.
        every: All of them, with their statistics of these columns.
        chosen: Those with so many deleted rows that they are rewritten.
        joinable: Ids of those without deleted rows that may join others.
        out_of_reach: Ids of those that must not be read.
        left: How many are left alone, by reason.
    """

    columns: tuple[Field, ...]
    every: list[tuple[DataFile, Statistics]] = field(default_factory=list)
    chosen: list[DataFile] = field(default_factory=list)
    joinable: set[int] = field(default_factory=set)
    out_of_reach: set[int] = field(default_factory=set)
    left: dict[str, int] = field(default_factory=dict)

    def leave(self, reason: str, count: int = 1) -> None:
        self.left[reason] = self.left.get(reason, 0) + count


def _find(reader: CatalogReader, table: TableState, limit: float, columns: tuple[Field, ...]) -> _Found:
    found, reach = _Found(columns=columns), Reach(reader.info, table)
    for file, statistics in data_files(reader, table, statistics_for=frozenset(column.id for column in columns)):
        found.every.append((file, statistics))
        deleted = deleted_count(file)
        unreadable = reach.obstacle(file)
        if unreadable is not None:
            found.out_of_reach.add(file.id)
            if deleted or columns:
                found.leave(unreadable)
        elif not deleted:
            # Files of others stay as they are, as when files are merged.
            found.joinable |= {file.id} if file.mapping_id is None else set()
        elif deleted >= limit * file.record_count:
            found.chosen.append(file)
        elif not columns:
            found.leave(f"less than {limit:.0%} of their rows are deleted")
    return found


def _live_bytes(file: DataFile) -> float:
    return file.file_size_bytes * max(0.0, 1 - deleted_count(file) / max(1, file.record_count))


def _groups(reader: CatalogReader, table: TableState, found: _Found, target: int) -> list[RewriteGroup]:
    """Files of one partition, as many as their live rows seem to fill a file, and small files next to them."""
    if not found.chosen:
        return []
    neighbours = Neighbours([file for file, _ in found.every], found.joinable, schema_versions(reader, table.id))
    groups = []
    for run in _bins(found.chosen, target):
        joined = neighbours.join(run, target - sum(_live_bytes(file) for file in run))
        files = tuple(sorted([*run, *joined], key=row_order))
        groups.append(RewriteGroup(files=files, spec=_spec(table, run[0])))
    return groups


def _clustered_groups(reader: CatalogReader, table: TableState, found: _Found, target: int) -> list[RewriteGroup]:
    """All files of one partition, where ranges of the columns touch too many of them; else those with deleted rows."""
    statistics = {file.id: one for file, one in found.every}
    files = sorted((file for file, _ in found.every if file.id not in found.out_of_reach), key=row_order)
    marked = clustered_snapshots(reader, {file.begin_snapshot for file in files}, [column.id for column in found.columns]) if files else ()
    deleted = {file.id for file in found.chosen}
    groups = []
    for run in _bins(files, target * CLUSTERED_FILES):
        gain = expected_gain(found.columns, [statistics[file.id] for file in run], -(-int(sum(map(_live_bytes, run))) // target) or 1)
        # A merge with later rows leaves a file with the snapshot of the oldest.
        is_clustered = all(file.begin_snapshot in marked and file.partial_max is None for file in run)
        if gain.is_worth_it and not is_clustered:
            groups.append(RewriteGroup(files=tuple(run), spec=_spec(table, run[0]), gain=gain))
            continue
        rewritten = [file for file in run if file.id in deleted]
        groups += [RewriteGroup(files=tuple(part), spec=_spec(table, part[0])) for part in _bins(rewritten, target)]
        if len(run) > len(rewritten):
            found.leave("clustered already" if is_clustered else "clustering would spare ranges too few files", len(run) - len(rewritten))
    return groups


def _bins(files: Sequence[DataFile], size: int) -> Iterator[list[DataFile]]:
    """Files of one partition, cut where their live rows reach a size."""
    partitions: dict[object, list[DataFile]] = {}
    for file in files:
        partitions.setdefault((file.partition_id, tuple(sorted(file.partition_values))), []).append(file)
    for of_partition in partitions.values():
        run: list[DataFile] = []
        live = 0.0
        for file in of_partition:
            run.append(file)
            live += _live_bytes(file)
            if live >= size:
                yield run
                run, live = [], 0.0
        if run:
            yield run


def _shape(reader: CatalogReader, table: TableState, files: Sequence[DataFile]) -> ScanProjection:
    mappings = {file.mapping_id for file in files if file.mapping_id is not None}
    return ScanProjection(
        table=table.qualified_name,
        snapshot_id=table.snapshot_id,
        schema=table.schema,
        read_schema=table.schema,
        column_lifetimes=column_lifetimes(reader.column_history(table.id)),
        mappings=name_mappings(reader, sorted(mappings), table.qualified_name),
    )


def _spec(table: TableState, file: DataFile) -> PartitionSpec | None:
    """The keys of the file, or the table's present ones when a column of them is gone."""
    spec = table.partition_specs.get(file.partition_id) if file.partition_id is not None else None
    columns = {column.id for column in table.schema}
    return table.partition_spec if spec is not None and any(key.column_id not in columns for key in spec.fields) else spec
