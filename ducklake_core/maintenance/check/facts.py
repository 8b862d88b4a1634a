"""Rows of the catalog for a check, by table, with the column history and the findings so far."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any, TypeAlias

from ducklake_core.catalog.inlined.rows import TableVersions
from ducklake_core.catalog.reading.integrity_scan import EveryRow, InlinedRow, InlinedTables
from ducklake_core.catalog.reading.table_rows import column_row
from ducklake_core.errors import CatalogCorruptError, UnsupportedFeatureError
from ducklake_core.format.files.paths import join
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import dotted, folded, join_name
from ducklake_core.format.types.schema import ColumnRow, Schema
from ducklake_core.maintenance.check.findings import Finding
from ducklake_core.maintenance.check.repair import ForgetFileStatistics, ForgetTableBounds, ReopenSchema, Repair, WidenTableBounds

CatalogRow: TypeAlias = Any
"""A row of a metadata table, whose cells are its attributes."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "metadata": ("key", "value"),
    "snapshot": ("snapshot_id", "snapshot_time", "schema_version", "next_catalog_id", "next_file_id"),
    "schema": ("schema_id", "begin_snapshot", "schema_name"),
    "table": ("table_id", "begin_snapshot", "schema_id", "table_name"),
    "view": ("view_id", "begin_snapshot", "schema_id", "view_name", "sql"),
    "column": ("column_id", "begin_snapshot", "table_id", "column_name", "column_type", "nulls_allowed"),
    "data_file": ("data_file_id", "table_id", "begin_snapshot", "path", "record_count", "file_size_bytes"),
    "delete_file": ("delete_file_id", "table_id", "begin_snapshot", "data_file_id", "path", "delete_count", "file_size_bytes"),
    "table_stats": ("table_id", "record_count", "next_row_id", "file_size_bytes"),
    "table_column_stats": ("table_id", "column_id"),
    "file_column_stats": ("data_file_id", "column_id"),
    "partition_info": ("partition_id", "table_id", "begin_snapshot"),
    "partition_column": ("partition_id", "table_id", "partition_key_index", "column_id", "transform"),
    "file_partition_value": ("data_file_id", "partition_key_index"),
    "files_scheduled_for_deletion": ("path", "schedule_start"),
    "inlined_data_tables": ("table_id", "table_name", "schema_version"),
    "schema_versions": ("begin_snapshot", "schema_version"),
}
"""Cells that a row needs to be usable, or that DuckDB needs."""


def is_live(row: CatalogRow, snapshot_id: int) -> bool:
    """Return whether a row is visible at a snapshot."""
    return bool(row.begin_snapshot <= snapshot_id and (row.end_snapshot is None or row.end_snapshot > snapshot_id))


@dataclass(slots=True)
class TableFacts:
    """One table of the catalog, dropped or not.

    Attributes:
        name: ``schema.table``, by its last name.
        path: Full directory with a trailing slash.
        is_live: Whether it exists at the newest snapshot.
        history: Every version of every column, with its end.
        lives: Periods of existence: first snapshot, and the first one without it.
        files: Its rows of ``ducklake_data_file`` by id.
        inlined: Number of inlined rows, of all versions.
        inlined_live: Number of visible inlined rows.
        column_ids: Ids of all columns that it ever had.
        top_ids: Ids of its top-level columns.
    """

    id: int
    name: str
    path: str
    is_live: bool
    history: list[tuple[ColumnRow, int | None]] = field(default_factory=list)
    lives: list[tuple[int, int | None]] = field(default_factory=list)
    files: dict[int, CatalogRow] = field(default_factory=dict)
    inlined: int = 0
    inlined_live: int = 0
    column_ids: set[int] = field(default_factory=set)
    top_ids: set[int] = field(default_factory=set)
    _changes: list[int] = field(default_factory=list)
    _schemas: dict[int, dict[int, Field]] = field(default_factory=dict)

    def schema_at(self, snapshot_id: int) -> Schema:
        """Return the columns at a snapshot.

        Raises:
            CatalogCorruptError: The rows do not form a schema.
            UnsupportedFeatureError: A type is unknown.
        """
        return TableVersions(self.id, (), self.history).schema_of(snapshot_id)

    def columns_at(self, snapshot_id: int) -> list[ColumnRow]:
        """Return the rows of its columns that a snapshot shows."""
        return [row for row, end in self.history if row.begin_snapshot <= snapshot_id and (end is None or end > snapshot_id)]

    @property
    def changes(self) -> list[int]:
        """Snapshots at which its columns change, including 0."""
        if not self._changes:
            ends = {end for _, end in self.history if end is not None}
            self._changes = sorted({0, *(row.begin_snapshot for row, _ in self.history), *ends})
        return self._changes

    def leaves_at(self, snapshot_id: int) -> dict[int, Field]:
        """Return leaf columns by id at a snapshot; none if the columns do not form a schema."""
        era = self.changes[bisect_right(self.changes, snapshot_id) - 1]
        if era not in self._schemas:
            try:
                found = {leaf.id: leaf for leaf in self.schema_at(era).leaves()}
            except (CatalogCorruptError, UnsupportedFeatureError):
                found = {}
            self._schemas[era] = found
        return self._schemas[era]

    def leaf(self, column_id: int, snapshot_id: int) -> Field | None:
        """Return a leaf column at a snapshot, otherwise its last version."""
        found = self.leaves_at(snapshot_id).get(column_id)
        if found is not None:
            return found
        begun = [row.begin_snapshot for row, _ in self.history if row.column_id == column_id]
        return self.leaves_at(max(begun)).get(column_id) if begun else None

    def last_leaf(self, column_id: int) -> Field | None:
        """Return the last version of a leaf column."""
        begun = [row.begin_snapshot for row, _ in self.history if row.column_id == column_id]
        return self.leaves_at(max(begun)).get(column_id) if begun else None

    def remember(self, row: ColumnRow, end: int | None) -> None:
        """Add one version of a column."""
        self.history.append((row, end))
        self.column_ids.add(row.column_id)
        if row.parent_column is None:
            self.top_ids.add(row.column_id)


class Facts:
    """Everything that a check of the catalog reads, within one read transaction, and its findings.

    Args:
        every: The rows.
        info: The lake's settings.
        now: The database's clock, read within the transaction.
    """

    def __init__(self, every: EveryRow, info: LakeInfo, now: Callable[[], datetime]) -> None:
        self.every = every
        self.info = info
        self.now = now
        self.findings: list[Finding] = []
        self._about: dict[tuple[str, object], list[Finding]] = defaultdict(list)
        self._codes: dict[int, set[tuple[str, int | None]]] = defaultdict(set)
        self._repairs: dict[Repair, None] = {}
        self._reopened: dict[int, ReopenSchema] = {}
        # The order matters from here on: later facts are derived from earlier ones.
        self.snapshot_ids = sorted(row.snapshot_id for row in every.rows("snapshot"))
        self.newest = self.snapshot_ids[-1] if self.snapshot_ids else -1
        self.schema_paths = self._schema_paths()
        self.inlined: InlinedTables = every.inlined_tables()
        self.inlined_rows: list[InlinedRow] = list(every.inlined_rows(self.inlined))
        self.inlined_deletes: list[CatalogRow] = list(every.inlined_deletes(self.inlined))
        self.tables = self._tables()
        self.files: dict[int, CatalogRow] = {row.data_file_id: row for row in every.rows("data_file")}
        self.lost_tables = self._lost_tables()
        self._fill()
        self._next_row_ids: dict[int, int] = {}
        for row in every.rows("table_stats"):
            self._next_row_ids[row.table_id] = max(row.next_row_id, self._next_row_ids.get(row.table_id, 0))

    def next_row_id(self, table: TableFacts) -> int | None:
        """Return the row id that a table assigns next, None if unknown."""
        return self._next_row_ids.get(table.id)

    def knows_file(self, data_file_id: int) -> bool:
        """Return whether the catalog has a row for a data file, even an unusable one."""
        return data_file_id in self.files or any(cell.table == "data_file" and cell.key == data_file_id for cell in self.every.bad)

    def first_between(self, begin: int, end: int) -> int | None:
        """Return the first snapshot in a range (end excluded) that has not expired, None if there is none."""
        place = bisect_left(self.snapshot_ids, begin)
        return self.snapshot_ids[place] if place < len(self.snapshot_ids) and self.snapshot_ids[place] < end else None

    def report(self, code: str, what: str, *, table: TableFacts | None = None, repair: Repair | None = None, **where: Any) -> None:
        """Add a finding, and the repairs for it."""
        if table is not None:
            where = {"table": table.name, "table_id": table.id, **where}
        found = Finding(code=code, what=what, is_repairable=repair is not None, **where)
        self.findings.append(found)
        for key, value in (("path", found.path), ("data_file_id", found.data_file_id)):
            if value is not None:
                self._about[key, value].append(found)
        if found.table_id is not None:
            self._codes[found.table_id].add((code, found.column_id))
        if repair is not None:
            self.repair(repair)

    def about_path(self, path: str) -> Sequence[Finding]:
        """Return the findings about a file, by its path as in messages."""
        return self._about.get(("path", path), ())

    def about_file(self, data_file_id: int) -> Sequence[Finding]:
        """Return the findings about a data file."""
        return self._about.get(("data_file_id", data_file_id), ())

    def codes_of(self, table: TableFacts) -> AbstractSet[tuple[str, int | None]]:
        """Return the codes of findings about a table, each with the id of the column if it concerns one."""
        return self._codes.get(table.id, frozenset())

    def repair(self, repair: Repair) -> None:
        """Add a repair for a finding."""
        self._repairs[repair] = None

    def report_schema_missing(self, what: str, schema_id: int) -> None:
        """Report a live object in a missing schema. A repair restores the schema if the catalog still has its row."""
        self.report("schema-missing", what, repair=self._reopening(schema_id))

    def _reopening(self, schema_id: int, below: frozenset[int] = frozenset()) -> ReopenSchema | None:
        """Return the repair that undoes the drop of a schema, once its parents exist; None if it has no usable row."""
        if schema_id in self._reopened:
            return self._reopened[schema_id]
        rows = [row for row in self.every.rows("schema") if row.schema_id == schema_id]
        dropped = max((row for row in rows if row.end_snapshot is not None), key=lambda row: row.end_snapshot, default=None)
        if dropped is None or any(is_live(row, self.newest) for row in rows):
            return None
        parent = getattr(dropped, "parent_schema_id", None)
        there = {row.schema_id: row for row in self.every.rows("schema") if is_live(row, self.newest)}
        above = None
        if parent is not None and parent not in there:
            # A schema may be inside itself in a catalog that was edited.
            above = None if parent in below | {schema_id} else self._reopening(parent, below | {schema_id})
            if above is None:
                return None
            self.repair(above)
        name = self._free_name(dropped, parent)
        around = () if parent is None else (above.path if above is not None else self.schema_paths[parent],)
        found = ReopenSchema(schema_id, parent, dropped.end_snapshot, name, ".".join((*around, dotted((name,)))))
        self._reopened[schema_id] = found
        return found

    def _free_name(self, dropped: CatalogRow, parent: int | None) -> str:
        """Return the name of a dropped schema, with a number if another schema has used it since."""
        others = [row for row in self.every.rows("schema") if row.schema_id != dropped.schema_id]
        others = [row for row in others if getattr(row, "parent_schema_id", None) == parent]
        again = {folded(one.name) for one in self._reopened.values() if one.parent == parent}
        since = again | {folded(row.schema_name) for row in others if row.end_snapshot is None or row.end_snapshot > dropped.end_snapshot}
        ever = again | {folded(row.schema_name) for row in others}
        name: str = dropped.schema_name
        if folded(name) not in since:
            return name
        return next(f"{name}_{number}" for number in count(2) if folded(f"{name}_{number}") not in ever)

    def widened(self, table_id: int, column_id: int) -> WidenTableBounds | None:
        """Return the table bounds that a repair would set for a column, by the findings so far."""
        of_column = (one for one in self._repairs if isinstance(one, WidenTableBounds))
        return next((one for one in of_column if (one.table_id, one.column_id) == (table_id, column_id)), None)

    @property
    def repairs(self) -> list[Repair]:
        """Return the repairs of all findings, each once. Table bounds are removed, not widened, if bounds of a file are wrong."""
        wrong = {(one.table_id, one.column_id) for one in self._repairs if isinstance(one, ForgetTableBounds)}
        for one in self._repairs:
            if isinstance(one, ForgetFileStatistics) and one.data_file_id in self.files:
                wrong.add((self.files[one.data_file_id].table_id, one.column_id))
        found: dict[Repair, None] = {}
        for repair in self._repairs:
            if isinstance(repair, WidenTableBounds) and (repair.table_id, repair.column_id) in wrong:
                repair = ForgetTableBounds(repair.table_id, repair.column_id)  # noqa: PLW2901 - the same repair, in the safe way
            found[repair] = None
        return list(found)

    def table_of(self, row: CatalogRow) -> TableFacts | None:
        """Return the table that a row is about."""
        return self.tables.get(row.table_id)

    def path_of(self, row: CatalogRow) -> str:
        """Return the full path of a data or delete file."""
        table = self.tables.get(row.table_id)
        return join(self.info.data_path if table is None else table.path, row.path, row.path_is_relative is not False)

    def _schema_paths(self) -> dict[int, str]:
        """Return paths of all schemas by id. A schema in a missing schema, or in itself, has only its own name."""
        rows = {row.schema_id: row for row in self.every.rows("schema")}

        def path(number: int, below: frozenset[int]) -> str:
            row = rows[number]
            own, around = dotted((row.schema_name,)), getattr(row, "parent_schema_id", None)
            return own if around is None or around not in rows or around in below else f"{path(around, below | {around})}.{own}"

        return {number: path(number, frozenset({number})) for number in rows}

    def _tables(self) -> dict[int, TableFacts]:
        schemas: dict[int, CatalogRow] = {}
        for row in sorted(self.every.rows("schema"), key=lambda row: row.begin_snapshot):
            schemas[row.schema_id] = row
        found: dict[int, TableFacts] = {}
        for row in sorted(self.every.rows("table"), key=lambda row: row.begin_snapshot):
            schema = schemas.get(row.schema_id)
            base = self.info.data_path if schema is None else join(self.info.data_path, schema.path, schema.path_is_relative is not False)
            before = found.get(row.table_id)
            found[row.table_id] = TableFacts(
                id=row.table_id,
                name=join_name(self.schema_paths.get(row.schema_id, str(row.schema_id)), row.table_name),
                path=join(base, row.path, row.path_is_relative is not False),
                is_live=is_live(row, self.newest) or (before is not None and before.is_live),
                lives=[*(() if before is None else before.lives), (row.begin_snapshot, row.end_snapshot)],
            )
        return found

    def _lost_tables(self) -> set[int]:
        """Return ids of tables that have columns but no usable row. An expiry deletes both, so the row was lost in another way."""
        return {row.table_id for row in self.every.rows("column")} - self.tables.keys()

    def _fill(self) -> None:
        def order(row: CatalogRow) -> tuple[int, int, bool, int]:
            return row.begin_snapshot, row.column_id, row.end_snapshot is None, row.end_snapshot or 0

        for row in sorted(self.every.rows("column"), key=order):
            if row.table_id in self.tables:
                self.tables[row.table_id].remember(column_row(row), row.end_snapshot)
        for row in self.files.values():
            if row.table_id in self.tables:
                self.tables[row.table_id].files[row.data_file_id] = row
        for one in self.inlined_rows:
            self.tables[one.table_id].inlined += 1
            self.tables[one.table_id].inlined_live += is_live(one, self.newest)
