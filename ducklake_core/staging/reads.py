"""Read a table inside an open transaction, including its staged changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ducklake_core.errors import UsageError
from ducklake_core.format import arguments
from ducklake_core.format.types.text import visible
from ducklake_core.scan import Scan
from ducklake_core.staging.execute import readable
from ducklake_core.staging.scanned import Scanned

if TYPE_CHECKING:
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.planning.plan import ScanPlan
    from ducklake_core.staging.arguments import Where
    from ducklake_core.staging.context import LakeContext
    from ducklake_core.staging.namespace import StagedCatalog
    from ducklake_core.staging.publish import CommitCoordinator
    from ducklake_core.staging.staged_table import StagedTable


@arguments.none_means_default
class TransactionTable(Scanned):
    """A table inside a transaction, for reads; returned by :meth:`Transaction.table`.

    Every read includes the changes so far, and must end inside the transaction's block. Uncommitted rows have a ``rowid`` below 0. If
    another writer changes rows that were read, the commit raises a conflict instead of repeating the transaction.
    """

    def __init__(self, lake: LakeContext, coordinator: CommitCoordinator, name: str, catalog: Callable[[], StagedCatalog]) -> None:
        self._lake = lake
        self._coordinator = coordinator
        self._name = name
        self._catalog = catalog
        self._staged()

    def __repr__(self) -> str:
        return f"<TransactionTable {visible(self._name)}>"

    def _staged(self) -> StagedTable:
        return self._catalog().table(self._name)

    @property
    def name(self) -> str:
        """``schema.table``, quoted where needed."""
        return self._staged().name

    @property
    def schema(self) -> Schema:
        """The columns, including changes of the transaction. ``schema.to_arrow()`` returns the Arrow schema."""
        return self._staged().state.schema

    def scan(self, columns: Sequence[str] | None = None, where: Where = None, limit: int | None = None) -> Scan:
        """Return a lazy scan of the table, to be run inside the transaction's block; see :meth:`Table.scan`.

        Args:
            columns: Names of the columns to return, in order. Default: all columns of the table.
            where: Condition of the rows to return. Default: all rows.
            limit: Maximum number of rows to return. Default: no limit.
        """
        staged, base = self._staged(), self._catalog().base
        schema = staged.state.schema

        def overlay(plan: ScanPlan) -> ScanPlan:
            # Raises an error if the block has ended, because staged files may have been deleted.
            now = self._staged()
            if now.state.schema != schema:
                raise UsageError(f"Columns of {now.name} were changed after the scan was created. Create the scan again", table=now.name)
            return self._coordinator.overlay(now, plan)

        return Scan(
            table=readable(staged, base),
            columns=arguments.optional(arguments.names, "columns", columns),
            where=arguments.optional(arguments.condition, "where", where),
            row_limit=arguments.optional(arguments.row_count, "limit", limit),
            reader=self._lake.reader,
            storage=self._lake.storage,
            overlay=overlay,
        )
