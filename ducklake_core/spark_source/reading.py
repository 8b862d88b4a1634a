"""The executors' part of a read: each partition carries all that its task needs, and nothing of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ducklake_core.engines.arrow.feed import read_changes
from ducklake_core.engines.spark.tasks import TaskGroup, read_group
from ducklake_core.engines.spark.types import to_spark_form
from ducklake_core.planning.plan import ChangePlan, ScanProjection
from ducklake_core.storage.filesystems import Storage


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanPart(InputPartition):
    """Some files of a scan, or some inlined rows, and how to read them.

    Attributes:
        names: Columns to return in order, virtual columns included.
        wanted: The Arrow form in which Spark takes them.
    """

    group: TaskGroup
    shape: ScanProjection
    names: tuple[str, ...]
    wanted: pa.Schema
    storage: Storage

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, on an executor."""
        for batch in read_group(self.group, self.shape, self.storage):
            yield to_spark_form(batch.select(self.names), self.wanted)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FeedPart(InputPartition):
    """Some files of a change feed, or some inlined rows: a feed of its own."""

    plan: ChangePlan
    wanted: pa.Schema
    storage: Storage

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, on an executor."""
        for batch in read_changes(self.plan, self.storage):
            yield to_spark_form(batch, self.wanted)


class PartReader:
    """The part of a reader that travels to executors."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition."""
        # Spark makes a partition of its own where there is none.
        if isinstance(partition, ScanPart | FeedPart):
            yield from partition.rows()
