"""Rows of a table in the form of a change feed, for the first time that an asset reads the changes of an input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core import Readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core import Scan

_CHANGE_TYPE = 2
"""Index of the column ``change_type`` in a change feed, after ``snapshot_id`` and ``rowid``."""


class AllRowsAsInserts(Readable):
    """Every row of a table as an insert, with the columns of a change feed.

    Args:
        scan: Reads ``snapshot_id`` (of the row's last change), ``rowid``, then the table's columns.
    """

    __slots__ = ("_scan",)

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        rows = self._scan.to_reader()
        schema = rows.schema.insert(_CHANGE_TYPE, pa.field("change_type", pa.string()))

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                columns = batch.columns
                columns.insert(_CHANGE_TYPE, pa.repeat(pa.scalar("insert"), batch.num_rows))
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def to_spark(self, session: SparkSession) -> DataFrame:
        """Return the rows as a lazy frame."""
        from pyspark.sql import functions as F  # noqa: N812

        frame = self._scan.to_spark(session)
        names = [F.col("`" + name.replace("`", "``") + "`") for name in frame.columns]
        return frame.select(*names[:_CHANGE_TYPE], F.lit("insert").alias("change_type"), *names[_CHANGE_TYPE:])
