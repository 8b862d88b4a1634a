"""Sizes and column summaries of tables, from the catalog alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ducklake_core.catalog.reading.files import data_files
from ducklake_core.catalog.reading.reader import CatalogReader, check_same_snapshot, expired_since
from ducklake_core.errors import CatalogCorruptError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.files.data_files import ColumnStatistics
from ducklake_core.format.state import InlinedCounts, TableListing, TableState
from ducklake_core.format.types.data_types import DataType, Field
from ducklake_core.format.types.names import folded, join_name, schemas_meant
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.value_text import from_text, order_key
from ducklake_core.results import ColumnSummary, TableInfo
from ducklake_core.storage.filesystems import Storage

if TYPE_CHECKING:
    from ducklake_core.planning.plan import ScanPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a table, as far as the catalog can tell.

    Attributes:
        info: What the catalog says.
        plan: Set when a live file also holds rows, or deletes, of later snapshots: only the files themselves can tell which.
    """

    info: TableInfo
    plan: ScanPlan | None = None

    def counted(self, storage: Storage, count_rows: Callable[[ScanPlan, Storage], int]) -> TableInfo:
        """Complete the size with the given function, which counts in the files what the catalog does not know."""
        if self.plan is None:
            return self.info
        from ducklake_core.storage.delete_files import deleted_positions

        deleted = sum(len(deleted_positions(storage, task.file, self.info.snapshot_id)) for task in self.plan.tasks)
        return replace(self.info, row_count=count_rows(self.plan, storage), deleted_row_count=deleted)


_NOTHING_INLINED = InlinedCounts()


def table_sizes(reader: CatalogReader, snapshot_id: int, schema: str | None = None) -> list[Size]:
    """The size of every table at a snapshot, or of those directly in a schema, by schema and name.

    Raises:
        NotFoundError: There is no such schema at the snapshot.
    """
    listings = reader.tables(snapshot_id) if schema is None else _in_schema(reader, snapshot_id, schema)
    inlined = reader.inlined_counts(listings, snapshot_id)
    return [
        Size(
            info=_info(listing, inlined.get(listing.id, _NOTHING_INLINED), snapshot_id),
            plan=None if listing.is_exact else _count_plan(reader, reader.table_by_id(listing.id, snapshot_id)),
        )
        for listing in listings
    ]


def _in_schema(reader: CatalogReader, snapshot_id: int, schema: str) -> list[TableListing]:
    found = folded(reader.schema(*schemas_meant(schema), snapshot_id=snapshot_id).name)
    names = reader.table_names(snapshot_id)
    wanted = {one for one, (owner, _) in names.items() if folded(owner) == found}
    if 2 * len(wanted) < len(names):
        return reader.tables(snapshot_id, wanted)
    return [one for one in reader.tables(snapshot_id) if one.id in wanted]


def table_size(reader: CatalogReader, state: TableState) -> Size:
    """The size of one table at the snapshot of its state.

    Raises:
        NotFoundError: The snapshot was expired.
    """
    at = reader.snapshots(after=state.snapshot_id - 1, until=state.snapshot_id)
    if not at:
        raise expired_since(state)
    check_same_snapshot(state, at[0].time)
    listing, *others = reader.tables(state.snapshot_id, {state.id})
    if others:
        raise CatalogCorruptError(f"table {state.qualified_name} has two live comments", table=state.qualified_name)
    inlined = reader.inlined_counts([listing], state.snapshot_id).get(state.id, _NOTHING_INLINED)
    keys = state.partition_spec.fields if state.partition_spec is not None else ()
    info = replace(_info(listing, inlined, state.snapshot_id), partition_by=tuple(key.expression for key in keys))
    return Size(info=info, plan=None if listing.is_exact else _count_plan(reader, state))


def row_counts(reader: CatalogReader, snapshot_id: int, table_ids: Collection[int]) -> dict[int, int]:
    """About how many rows some tables have, as engines plan with: deletes that the catalog itself holds are not counted."""
    listings = reader.tables(snapshot_id, table_ids)
    inlined = reader.inlined_row_counts(table_ids, snapshot_id)
    return {one.id: max(one.record_count - one.delete_count, 0) + inlined.get(one.id, 0) for one in listings}


def _count_plan(reader: CatalogReader, state: TableState) -> ScanPlan:
    from ducklake_core.planning.planner import plan_scan

    return plan_scan(reader, state, (), virtual=("file_row_number",))


def column_summaries(reader: CatalogReader, state: TableState) -> dict[str, ColumnSummary]:
    """Counts and bounds of every leaf column by dotted path, summed over the live files in one pass."""
    leaves = list(_leaves(state.schema))
    sums = {leaf.id: _Sum(leaf.type) for _, leaf in leaves}
    for _, statistics in data_files(reader, state, None, frozenset(sums)):
        for column_id, total in sums.items():
            total.add(statistics.get(column_id))
    return {path: sums[leaf.id].summary(path, leaf.id) for path, leaf in leaves}


class _Sum:
    """One column's statistics over files seen so far."""

    def __init__(self, data_type: DataType) -> None:
        self._type = data_type
        self._values: int | None = 0
        self._nulls: int | None = 0
        self._least: Any = None
        self._greatest: Any = None
        self._bounded = True

    def add(self, found: ColumnStatistics | None) -> None:
        self._values = None if found is None or found.value_count is None or self._values is None else self._values + found.value_count
        self._nulls = None if found is None or found.null_count is None or self._nulls is None else self._nulls + found.null_count
        if found is not None and found.value_count == 0:
            return
        if found is None or found.min_value is None or found.max_value is None or not self._bounded:
            self._bounded = False
            return
        try:
            low, high = from_text(found.min_value, self._type), from_text(found.max_value, self._type)
        except (SchemaError, UnsupportedFeatureError):
            self._bounded = False
            return
        self._least = low if self._least is None else min(self._least, low, key=order_key)
        self._greatest = high if self._greatest is None else max(self._greatest, high, key=order_key)

    def summary(self, path: str, column_id: int) -> ColumnSummary:
        return ColumnSummary(
            column=path,
            column_id=column_id,
            value_count=self._values,
            null_count=self._nulls,
            min_value=self._least if self._bounded else None,
            max_value=self._greatest if self._bounded else None,
        )


def _leaves(schema: Schema) -> Iterator[tuple[str, Field]]:
    def below(prefix: str, fields: Iterable[Field]) -> Iterator[tuple[str, Field]]:
        for field in fields:
            path = f"{prefix}{field.name}"
            if field.is_leaf:
                yield path, field
            yield from below(f"{path}.", field.children)

    return below("", schema.columns)


def _info(listing: TableListing, inlined: InlinedCounts, snapshot_id: int) -> TableInfo:
    deleted = listing.delete_count + inlined.deleted_count
    return TableInfo(
        table=join_name(listing.schema_name, listing.name),
        table_id=listing.id,
        table_uuid=listing.uuid,
        snapshot_id=snapshot_id,
        row_count=listing.record_count - deleted + inlined.row_count,
        file_count=listing.file_count,
        file_size_bytes=listing.file_size_bytes,
        delete_file_count=listing.delete_file_count,
        delete_file_size_bytes=listing.delete_file_size_bytes,
        deleted_row_count=deleted,
        inlined_row_count=inlined.row_count,
        comment=listing.comment,
    )
