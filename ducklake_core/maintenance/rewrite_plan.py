"""Which files of a table have so many deleted rows that they are written anew, as values that explain themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ducklake_core.catalog.reading.compaction import DeleteHistory, delete_histories, inlined_deletes_of
from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.mappings import name_mappings
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import UsageError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.options import Options
from ducklake_core.format.state import Snapshot, TableState
from ducklake_core.maintenance.budget import OUT_OF_TIME, BudgetMeter, also_left
from ducklake_core.maintenance.merge_plan import out_of_reach
from ducklake_core.maintenance.sizes import format_bytes
from ducklake_core.planning.plan import ScanProjection
from ducklake_core.planning.planner import column_lifetimes


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteLimits:
    """Bounds of a rewrite.

    Attributes:
        delete_threshold: Part of a file's rows that must be deleted; the table's option ``rewrite_delete_threshold`` when None.
        max_compacted_files: Most groups to write, per table; None for no limit.
    """

    delete_threshold: float | None = None
    max_compacted_files: int | None = None

    def __post_init__(self) -> None:
        if self.max_compacted_files is not None and self.max_compacted_files < 1:
            raise UsageError(f"max_compacted_files must be at least 1, not {self.max_compacted_files}", parameter="max_compacted_files")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteGroup:
    """Files whose live rows go to new files together.

    Attributes:
        files: Sources, by id.
        spec: Partition keys of the new files, None for none.
    """

    files: tuple[DataFile, ...]
    spec: PartitionSpec | None

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
        left: How many files with deletes are left alone, by reason.
    """

    table: TableState
    base: Snapshot
    threshold: float
    groups: tuple[RewriteGroup, ...] = ()
    shape: ScanProjection | None = None
    histories: Mapping[int, DeleteHistory] = field(default_factory=dict)
    skipped: str | None = None
    left: tuple[tuple[str, int], ...] = ()

    def without_time_for(self, begun: int) -> TableRewritePlan:
        """The plan without the groups that were not begun when time was up."""
        late = self.groups[begun:]
        if not late:
            return self
        beyond = {OUT_OF_TIME: sum(len(group.files) for group in late)}
        return replace(self, groups=self.groups[:begun], left=also_left(self.left, beyond))


def within_budget(plan: TableRewritePlan, meter: BudgetMeter) -> TableRewritePlan:
    """The plan with as many files of each group as a budget has room for."""
    kept: list[RewriteGroup] = []
    beyond: dict[str, int] = {}
    for group in plan.groups:
        files = meter.first(group.files)
        meter.spend(files)
        if len(files) < len(group.files):
            reason = meter.beyond(group.files[len(files) :])
            beyond[reason] = beyond.get(reason, 0) + len(group.files) - len(files)
        if files:
            kept.append(replace(group, files=tuple(files)))
    return replace(plan, groups=tuple(kept), left=also_left(plan.left, beyond)) if beyond else plan


def deleted_count(file: DataFile) -> int:
    """Deleted rows of a file, as the catalog counts them."""
    return sum(one.delete_count for one in file.delete_files) + len(file.inlined_deletes)


def plan_rewrite(reader: CatalogReader, table: TableState, base: Snapshot, limits: RewriteLimits) -> TableRewritePlan:
    """Plan the rewrite of one table from the catalog alone; no file is opened."""
    options = Options.from_mapping(table.options)
    limit = options.rewrite_delete_threshold if limits.delete_threshold is None else limits.delete_threshold
    if not options.auto_compact:
        return TableRewritePlan(table=table, base=base, threshold=limit, skipped="its option auto_compact is false")
    chosen: list[DataFile] = []
    left: dict[str, int] = {}
    for file, _ in data_files(reader, table):
        deleted = deleted_count(file)
        if not deleted:
            continue
        reason = f"less than {limit:.0%} of their rows are deleted" if deleted < limit * file.record_count else None
        reason = reason or out_of_reach(reader.info, table, file)
        if reason is None:
            chosen.append(file)
        else:
            left[reason] = left.get(reason, 0) + 1
    if not chosen:
        return TableRewritePlan(table=table, base=base, threshold=limit, left=tuple(sorted(left.items())))
    groups = list(_groups(table, chosen, options.target_file_size))
    over = groups[limits.max_compacted_files :] if limits.max_compacted_files is not None else []
    if over:
        left["beyond max_compacted_files"] = sum(len(group.files) for group in over)
        del groups[len(groups) - len(over) :]
    files = [file for group in groups for file in group.files]
    several = [file.id for file in files if file.inlined_deletes or len(file.delete_files) > 1]
    histories = delete_histories(reader, table, several, inlined_deletes_of(reader, table)) if several else []
    return TableRewritePlan(
        table=table,
        base=base,
        threshold=limit,
        groups=tuple(groups),
        shape=_shape(reader, table, files),
        histories={history.file.id: history for history in histories},
        left=tuple(sorted(left.items())),
    )


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


def _groups(table: TableState, files: Sequence[DataFile], target: int) -> Iterator[RewriteGroup]:
    """Files of one partition, as many as their live rows seem to fill a file."""
    partitions: dict[object, list[DataFile]] = {}
    for file in files:
        partitions.setdefault((file.partition_id, tuple(sorted(file.partition_values))), []).append(file)
    for of_partition in partitions.values():
        spec = _spec(table, of_partition[0])
        run: list[DataFile] = []
        size = 0.0
        for file in of_partition:
            run.append(file)
            size += file.file_size_bytes * max(0.0, 1 - deleted_count(file) / max(1, file.record_count))
            if size >= target:
                yield RewriteGroup(files=tuple(run), spec=spec)
                run, size = [], 0.0
        if run:
            yield RewriteGroup(files=tuple(run), spec=spec)


def _spec(table: TableState, file: DataFile) -> PartitionSpec | None:
    """The keys of the file, or the table's present ones when a column of them is gone."""
    spec = table.partition_specs.get(file.partition_id) if file.partition_id is not None else None
    columns = {column.id for column in table.schema}
    return table.partition_spec if spec is not None and any(key.column_id not in columns for key in spec.fields) else spec
