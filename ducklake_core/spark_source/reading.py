"""What executors do for a read: each partition carries all that its task needs, and nothing of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ducklake_core.arrow.feed import read_changes
from ducklake_core.scan.change_plan import ChangePlan
from ducklake_core.scan.plan import ReadShape
from ducklake_core.spark.arrow_form import to_spark_form
from ducklake_core.spark.bundles import Bundle, read_bundle
from ducklake_core.storage.filesystems import Storage


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanPart(InputPartition):
    """Some files of a scan, or some inlined rows, and how to read them.

    Attributes:
        names: Columns to return in order, virtual columns included.
        wanted: The Arrow form in which Spark takes them.
    """

    bundle: Bundle
    shape: ReadShape
    names: tuple[str, ...]
    wanted: pa.Schema
    storage: Storage

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows, on an executor."""
        for batch in read_bundle(self.bundle, self.shape, self.storage):
            yield to_spark_form(batch.select(self.names), self.wanted)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FeedPart(InputPartition):
    """Some files of a change feed, or some inlined rows: a feed of its own."""

    plan: ChangePlan
    wanted: pa.Schema
    storage: Storage

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows, on an executor."""
        for batch in read_changes(self.plan, self.storage):
            yield to_spark_form(batch, self.wanted)


class PartReader:
    """What becomes of a reader on its way to executors."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        # Spark makes a partition of its own where there is none.
        if isinstance(partition, ScanPart | FeedPart):
            yield from partition.rows()
