"""A table of a lake, at its newest state or at one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ducklake_core.catalog.state import Snapshot, TableState
    from ducklake_core.format.partitioning import PartitionSpec
    from ducklake_core.format.schema import Schema
    from ducklake_core.lake import At, DuckLake, SchemaEvolution, Where
    from ducklake_core.results import ColumnSummary, TableInfo, WriteResult
    from ducklake_core.scan.scan import Scan


class Table:
    """A table. Made by :meth:`DuckLake.table`; reads happen at the snapshot it was opened at, writes at the newest one."""

    def __init__(self, lake: DuckLake, state: TableState, *, at: At = None) -> None:
        self._lake = lake
        self._state = state
        self._at = at

    def __repr__(self) -> str:
        return f"<Table {self.name} at snapshot {self.snapshot_id}>"

    @property
    def name(self) -> str:
        """``schema.table``."""
        return self._state.qualified_name

    @property
    def state(self) -> TableState:
        """Everything the catalog says about the table at :attr:`snapshot_id`, except its files."""
        return self._state

    @property
    def snapshot_id(self) -> int:
        """The snapshot that reads of this object see."""
        return self._state.snapshot_id

    @property
    def schema(self) -> Schema:
        """The columns with their ids; ``schema.to_arrow()`` gives the Arrow schema."""
        return self._state.schema

    @property
    def partition_spec(self) -> PartitionSpec | None:
        """Keys that new files are partitioned by."""
        return self._state.partition_spec

    def refresh(self) -> Table:
        """The same table (by id, so renames do not matter) at the newest snapshot."""
        raise NotImplementedError

    def info(self) -> TableInfo:
        """Rows, files and bytes, from the catalog alone."""
        raise NotImplementedError

    def column_summaries(self) -> dict[str, ColumnSummary]:
        """Counts and bounds of every leaf column (dotted paths), from file statistics alone."""
        raise NotImplementedError

    def snapshots(self) -> list[Snapshot]:
        """Snapshots whose changes touch this table, by id ascending."""
        raise NotImplementedError

    def scan(self, columns: Sequence[str] | None = None, where: Where = None) -> Scan:
        """A lazy scan at this object's snapshot: ``.to_arrow()``, ``.to_batches()``, ``.to_spark(session)``, ``.plan()``.

        Args:
            columns: Columns to return, in order, all when None; may name ``rowid``, ``snapshot_id``, ``filename`` and
                ``file_row_number``.
            where: SQL text (DuckDB dialect) or a predicate.
        """
        raise NotImplementedError

    def append(self, data: Any, *, schema_evolution: SchemaEvolution = "strict", **commit: Any) -> WriteResult:
        """Add rows. ``commit`` takes author, message, extra_info and commit_id, as in :meth:`DuckLake.write`."""
        raise NotImplementedError

    def overwrite(self, data: Any, *, where: Where = None, schema_evolution: SchemaEvolution = "strict", **commit: Any) -> WriteResult:
        """Replace the rows that match ``where`` (all without it) by ``data``, whose rows must all match it, in one commit."""
        raise NotImplementedError

    def upsert(self, data: Any, *, on: Sequence[str], schema_evolution: SchemaEvolution = "strict", **commit: Any) -> WriteResult:
        """Replace the rows whose ``on`` columns equal those of a row of ``data``, and add the others, in one commit."""
        raise NotImplementedError

    def delete(self, where: Where, **commit: Any) -> WriteResult:
        """Delete the rows for which ``where`` is true. ``where=None`` deletes all rows."""
        raise NotImplementedError
