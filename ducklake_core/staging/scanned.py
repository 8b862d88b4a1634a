"""Methods that read all rows of a table through a scan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.format import arguments
from ducklake_core.format.types.schema import Schema
from ducklake_core.scan import Scan
from ducklake_core.staging.arguments import Where

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.format.expressions.predicates import Predicate


@arguments.none_means_default
class Scanned(Readable):
    """Base class of tables that are read through scans: :class:`~ducklake_core.table.Table` and tables inside a transaction."""

    @abstractmethod
    def scan(self, columns: Sequence[str] | None = None, where: Where = None, limit: int | None = None) -> Scan:
        """Return a lazy scan of the table.

        Args:
            columns: Names of the columns to return, in order. Default: all columns of the table.
            where: Condition of the rows to return. Default: all rows.
            limit: Maximum number of rows to return. Default: no limit.
        """

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return self.schema.names

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of all rows in Arrow's PyCapsule protocol. It is planned when the first batch is requested."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return all rows as a ``RecordBatchReader``, a stream with a known schema."""
        return self.scan().to_reader()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in Arrow batches. Memory is limited to a few batches."""
        return self.scan().to_batches()

    def _lazy_columns(self) -> tuple[Schema, pa.Schema]:
        return self.scan()._lazy_columns()  # noqa: SLF001 - a method of the common base class

    def _selected(self, columns: Sequence[str], predicate: Predicate | None) -> pa.RecordBatchReader:
        return self.scan()._selected(columns, predicate)  # noqa: SLF001 - a method of the common base class

    def to_spark(self, session: SparkSession, *, exact: bool | None = None) -> DataFrame:
        """Return all rows as a lazy Spark DataFrame, classic or Connect.

        Args:
            session: Spark session.
            exact: Whether to choose Spark types that represent every value, as in :meth:`Scan.to_spark`. Default: the session's option.
        """
        return self.scan().to_spark(session, exact=exact)

    def limit(self, n: int) -> Scan:
        """Return a scan of at most ``n`` rows. No order is defined; files that are not needed are not opened."""
        return self.scan().limit(n)

    def head(self, n: int = 5) -> pa.Table:
        """Return any ``n`` rows as an Arrow table. Default: 5."""
        return self.scan().head(n)

    def count(self) -> int:
        """Return the number of rows. Reads only the catalog if it has the number; otherwise it opens the files that it needs."""
        return self.scan().count()
