"""Several changes as one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.format.schema import Schema
    from ducklake_core.lake import SchemaEvolution, Where
    from ducklake_core.results import TransactionResult


class Transaction:
    """Changes staged against one snapshot. Made by :meth:`DuckLake.transaction`.

    Rows are written to files at once, by each call; nothing is visible before the block ends.
    """

    @property
    def result(self) -> TransactionResult:
        """What the transaction became; only after the block has ended without an error."""
        raise NotImplementedError

    def create_schema(self, name: str) -> None:
        """Create a schema."""
        raise NotImplementedError

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop a schema."""
        raise NotImplementedError

    def create_table(
        self, name: str, schema: Schema | pa.Schema | Any, *, partition_by: Sequence[str] = (), comment: str | None = None
    ) -> None:
        """Create a table, which later calls of this transaction may write to."""
        raise NotImplementedError

    def drop_table(self, name: str) -> None:
        """Drop a table."""
        raise NotImplementedError

    def append(self, name: str, data: Any, *, schema_evolution: SchemaEvolution = "strict") -> None:
        """Add rows to a table."""
        raise NotImplementedError

    def overwrite(self, name: str, data: Any, *, where: Where = None, schema_evolution: SchemaEvolution = "strict") -> None:
        """Replace the rows that match ``where`` (all without it)."""
        raise NotImplementedError

    def upsert(self, name: str, data: Any, *, on: Sequence[str], schema_evolution: SchemaEvolution = "strict") -> None:
        """Replace rows with equal keys, and add the others."""
        raise NotImplementedError

    def delete(self, name: str, where: Where) -> None:
        """Delete the rows for which ``where`` is true."""
        raise NotImplementedError
