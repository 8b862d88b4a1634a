"""A table as an open transaction sees it: what was committed before it, and what it has staged since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ducklake_core.errors import UsageError
from ducklake_core.row_staging import readable
from ducklake_core.scan.scan import Scan

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.format.schema import Schema
    from ducklake_core.lake import DuckLake, Where
    from ducklake_core.publication import Publication
    from ducklake_core.scan.plan import ScanPlan
    from ducklake_core.staged_catalog import StagedCatalog
    from ducklake_core.staged_table import StagedTable


class TransactionTable:
    """Reads of a table inside a transaction. Made by :meth:`Transaction.table`.

    Every run sees what was staged until then. Rows that are not committed have a ``rowid`` below 0. When rows were read that others have
    changed before the commit, a conflict with them is raised instead of planning the transaction again.
    """

    def __init__(self, lake: DuckLake, publication: Publication, name: str, catalog: Callable[[], StagedCatalog]) -> None:
        self._lake = lake
        self._publication = publication
        self._name = name
        self._catalog = catalog
        self._staged()

    def __repr__(self) -> str:
        return f"<TransactionTable {self._name}>"

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

    def scan(self, columns: Sequence[str] | None = None, where: Where = None) -> Scan:
        """A read of the table, inside the transaction's block; see :meth:`Table.scan`."""
        staged, base = self._staged(), self._catalog().base
        schema = staged.state.schema

        def overlay(plan: ScanPlan) -> ScanPlan:
            # Refuses when the block has ended; what was staged may be gone then.
            now = self._staged()
            if now.state.schema != schema:
                raise UsageError(f"columns of {now.name} were changed after the scan was made; make it again", table=now.name)
            return self._publication.overlay(now, plan)

        lake = self._lake
        return Scan(table=readable(staged, base), columns=columns, where=where, reader=lake.reader, storage=lake.storage, overlay=overlay)

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table, in no particular order."""
        return self.scan().to_arrow()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in Arrow batches; they have to be taken inside the transaction's block."""
        return self.scan().to_batches()

    def to_spark(self, session: SparkSession, *, exact: bool | None = None) -> DataFrame:
        """All rows as a lazy Spark DataFrame, of what is staged now; it has to be computed inside the transaction's block."""
        return self.scan().to_spark(session, exact=exact)

    def count(self) -> int:
        """Number of rows."""
        return self.scan().count()
