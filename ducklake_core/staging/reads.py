"""A table as an open transaction sees it: what was committed before it, and what it has staged since."""

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


class TransactionTable(Scanned):
    """Reads of a table inside a transaction. Made by :meth:`Transaction.table`.

    Every run sees what was staged until then, and has to end inside the transaction's block. Rows that are not committed have a
    ``rowid`` below 0. When rows were read that others have changed before the commit, a conflict with them is raised instead of planning
    the transaction again.
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
        """Its columns as the transaction leaves them behind; ``schema.to_arrow()`` for Arrow's."""
        return self._staged().state.schema

    def scan(self, columns: Sequence[str] | None = None, where: Where = None, limit: int | None = None) -> Scan:
        """Return a read of the table, inside the transaction's block; see :meth:`Table.scan`."""
        staged, base = self._staged(), self._catalog().base
        schema = staged.state.schema

        def overlay(plan: ScanPlan) -> ScanPlan:
            # Raises when the block has ended; what was staged may be deleted by then.
            now = self._staged()
            if now.state.schema != schema:
                raise UsageError(f"columns of {now.name} were changed after the scan was made; make it again", table=now.name)
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
