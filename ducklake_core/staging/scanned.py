"""Tables as what they are read as: every way to read one without a condition is that of its scan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.format.types.schema import Schema
from ducklake_core.scan import Scan
from ducklake_core.staging.arguments import Where

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class Scanned(Readable):
    """Base of tables that are read through scans. Part of :class:`~ducklake_core.table.Table` and of tables within a transaction."""

    @abstractmethod
    def scan(self, columns: Sequence[str] | None = None, where: Where = None, limit: int | None = None) -> Scan:
        """Return a lazy scan."""

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return self.schema.names

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of all rows in Arrow's PyCapsule protocol, planned when the first batch is requested."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return all rows as a stream with a known schema, for writers and engines that take one."""
        return self.scan().to_reader()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return all rows in Arrow batches; memory is bounded by a few batches."""
        return self.scan().to_batches()

    def to_spark(self, session: SparkSession, *, exact: bool | None = None) -> DataFrame:
        """Return all rows as a lazy Spark DataFrame; see :meth:`Scan.to_spark`."""
        return self.scan().to_spark(session, exact=exact)

    def limit(self, n: int) -> Scan:
        """Return a scan of ``n`` rows at most, whichever; files that are not needed for them are not opened."""
        return self.scan().limit(n)

    def head(self, n: int = 5) -> pa.Table:
        """Return any ``n`` rows as an Arrow table, as :meth:`limit` gives them."""
        return self.scan().head(n)

    def count(self) -> int:
        """Return the number of rows; the catalog alone answers where it can, without opening a data file."""
        return self.scan().count()
