"""Batch and streaming readers of ``format("ducklake")``: planned on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ducklake_core.engines.spark.scan_schema import arrow_form, spark_schema
from ducklake_core.engines.spark.tasks import INLINED_ROWS, bin_pack, split_tasks
from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.plan import covered
from ducklake_core.spark_source.options import SourceOptions
from ducklake_core.spark_source.reading import FeedPart, PartReader, ScanPart

if TYPE_CHECKING:
    from ducklake_core.lake import DuckLake
    from ducklake_core.planning.plan import ChangePlan, InlinedChanges, ScanPlan


Offset: TypeAlias = dict[str, int]


def all_columns(schema: Schema, *, exact: bool) -> StructType:
    """Return every column, in types that hold every value or in Spark's nearest."""
    return spark_schema(schema, exact={column.id for column in schema} if exact else frozenset())


def check_columns(wanted: StructType, schema: Schema, table: str) -> None:
    """Check that columns can be read with the types of a schema.

    Args:
        wanted: What Spark expects, in the order of ``schema``.
        schema: The columns that are read.
        table: For the message.

    Raises:
        SchemaError: A column has neither of the types that it can be read as.
    """
    ways = [all_columns(schema, exact=exact) for exact in (True, False)]
    for place, field in enumerate(wanted):
        types = [way[place].dataType for way in ways]
        if field.dataType not in types or not field.nullable:
            known = " or ".join(dict.fromkeys(one.simpleString() for one in types))
            requested = field.dataType.simpleString() + ("" if field.nullable else " not null")
            raise SchemaError(
                f"column {field.name!r} of {table} cannot be read as {requested}, only as {known}. If the table was changed after the "
                "stream was started, start the stream with a new checkpoint location",
                table=table,
                column=field.name,
            )


def table_columns(options: SourceOptions) -> tuple[StructType, int]:
    """Return the columns of the table, and the snapshot that was read."""
    lake = options.connect()
    try:
        table = lake.table(options.table, at=options.at)
        return all_columns(table.schema, exact=options.exact), table.snapshot_id
    finally:
        lake.close()


class ScanReader(DataSourceReader):
    """Reads one snapshot of a table. On its way to executors it becomes a :class:`PartReader`.

    Args:
        options: What to read.
        schema: Columns to read, of the table or virtual.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def __reduce__(self) -> tuple[Any, ...]:
        return PartReader, ()

    def partitions(self) -> list[InputPartition]:
        """Return the work of each task.

        Raises:
            NotFoundError: A column, table or snapshot does not exist.
            SchemaError: A column cannot be read with its type in the schema.
            UnsupportedFeatureError: A predicate that needs a SQL engine.
        """
        lake = self._options.connect()
        try:
            return self._planned(lake)
        finally:
            lake.close()

    def _planned(self, lake: DuckLake) -> list[InputPartition]:
        from ducklake_core.engines.spark.scan_schema import arrow_form
        from ducklake_core.engines.spark.tasks import TaskGroup, bin_pack, inlined_groups, split_tasks
        from ducklake_core.format.expressions.predicates import needs_sql

        table = lake.table(self._options.table, at=self._options.at)
        plan = table.scan(columns=self._schema.names, where=self._options.where).plan().plan
        if plan.predicate is not None and needs_sql(plan.predicate):
            raise UnsupportedFeatureError(
                f"option where of {table.name} cannot be evaluated by Arrow in the data source. Filter the DataFrame, or use "
                "lake.table(...).scan(where=...).to_spark(session)",
                table=table.name,
            )
        names = _read_names(plan, self._schema)
        check_columns(self._schema, _chosen(plan, names), table.name)
        groups = [*(TaskGroup(tasks=tasks) for tasks in bin_pack(split_tasks(plan.tasks))), *inlined_groups(plan.inlined)]
        wanted = arrow_form(self._schema)
        return [ScanPart(group=one, shape=plan.shape, names=names, wanted=wanted, storage=lake.storage) for one in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition as executors do."""
        return PartReader().read(partition)


def _read_names(plan: ScanPlan, schema: StructType) -> tuple[str, ...]:
    found = {folded(name): name for name in (*plan.schema.names, *plan.virtual)}
    return tuple(found[folded(name)] for name in schema.names)


def _chosen(plan: ScanPlan, names: tuple[str, ...]) -> Schema:
    from ducklake_core.planning.plan import VIRTUAL_SCHEMA

    by_name = {column.name: column for column in (*VIRTUAL_SCHEMA, *plan.schema)}
    return Schema(columns=tuple(by_name[name] for name in names))


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark before 4.2 takes everything in one micro-batch for ``availableNow``."""


def feed_columns(options: SourceOptions) -> StructType:
    """Return the columns of a stream: those of the table, and in a feed that has deletes what was done to which row."""
    from ducklake_core.planning.planner import feed_schema

    lake = options.connect()
    try:
        table = lake.table(options.table).state
        return all_columns(table.schema if options.feed == "insertions" else feed_schema(table, options.feed), exact=options.exact)
    finally:
        lake.close()


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a table's change feed. An offset is the last snapshot that was reported, and the table's id.

    On its way to executors it becomes a :class:`PartReader`.

    Args:
        options: Which table and feed.
        schema: Columns to read, of the feed.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._connected: DuckLake | None = None
        self._last: int | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PartReader, ()

    @property
    def _lake(self) -> DuckLake:
        if self._connected is None:
            self._connected = self._options.connect()
        return self._connected

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset at which a new stream begins.

        Raises:
            NotFoundError: There is no such table.
        """
        from ducklake_core.catalog.feed import created_snapshot

        table = self._lake.table(self._options.table).state
        match self._options.starting:
            case "earliest":
                with self._lake.reader() as reader:
                    return _offset(table.id, created_snapshot(reader, table.id) - 1)
            case "latest":
                return _offset(table.id, table.snapshot_id)
            case first:
                return _offset(table.id, first - 1)

    def latestOffset(self, start: Offset | None = None, limit: object = None) -> Offset:  # noqa: N802 - Spark's name
        """Return the newest snapshot, or as many further as a micro-batch may have.

        Other tables' snapshots move it too, so that expiring them does not stop a stream whose table is at rest.
        """
        most = self._options.most_snapshots
        if start is None:
            # Before 4.2 Spark does not say where the stream is.
            if most is not None:
                raise UnsupportedFeatureError("option maxSnapshotsPerTrigger needs Spark 4.2 or later")
            start = self.initialOffset()
        with self._lake.reader() as reader:
            latest = reader.latest_snapshot().id if self._last is None else self._last
            # By its name, as the class exists from Spark 4.2 on.
            if most is not None and type(limit).__name__ != "ReadAllAvailable":
                found = reader.snapshots(after=start["snapshot"], until=min(latest, start["snapshot"] + most))
                latest = found[-1].id if found else latest
        return _offset(start["table"], max(latest, start["snapshot"]))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return a limit of Spark's own kinds where one was given; it only has to be another than none, as it counts no snapshots."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        most = self._options.most_snapshots
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read no further than to the snapshot that is the newest now."""
        self._last = self._lake.snapshot().id

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the work of each task of a micro-batch.

        Raises:
            NotFoundError: A snapshot between the offsets was expired, or the table dropped; the message names it.
            SchemaError: Columns are no longer those that the stream began with.
        """
        from ducklake_core.planning.planner import plan_changes

        if end["snapshot"] <= start["snapshot"]:
            return []
        first, last = start["snapshot"] + 1, end["snapshot"]
        try:
            with self._lake.reader() as reader:
                table = reader.table_by_id(end["table"], last)
                plan = plan_changes(reader, table, self._options.feed, first, columns=self._schema.names)
        except NotFoundError as error:
            raise NotFoundError(
                f"the stream of {self._options.table} cannot continue from snapshot {first} to {last}: {error.message}. "
                "The stream cannot return these changes any more. Start it with a new checkpoint location, and with startingVersion set to "
                "a snapshot that still exists",
                table=self._options.table,
                snapshot_id=first,
            ) from error
        check_columns(self._schema, plan.schema, table.qualified_name)
        wanted, storage = arrow_form(self._schema), self._lake.storage
        return [FeedPart(plan=part, wanted=wanted, storage=storage) for part in _parts(plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition as executors do."""
        return PartReader().read(partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: the reader keeps no state for offsets."""

    def stop(self) -> None:
        """Close the catalog's connections."""
        if self._connected is not None:
            self._connected.close()


def _offset(table_id: int, snapshot_id: int) -> Offset:
    return {"table": table_id, "snapshot": snapshot_id}


def _parts(plan: ChangePlan) -> Iterator[ChangePlan]:
    """Split a plan into plans for tasks. Rows that may be halves of updates stay together, as an update is known by both halves."""
    paired = tuple(task for task in plan.tasks if task.may_update)
    halves = tuple(part for one in plan.inlined for part in [_only(one, plan, paired=True)] if part.rows.num_rows)
    if paired or halves:
        yield replace(plan, tasks=paired, inlined=halves)
    settled = [task for task in plan.tasks if not task.may_update]
    for packed_tasks in bin_pack(split_tasks(settled)):
        yield replace(plan, tasks=packed_tasks, inlined=(), updates=())
    for one in plan.inlined:
        rest = _only(one, plan, paired=False)
        for start in range(0, rest.rows.num_rows, INLINED_ROWS):
            yield replace(plan, tasks=(), inlined=(replace(rest, rows=rest.rows.slice(start, INLINED_ROWS)),), updates=())


def _only(inlined: InlinedChanges, plan: ChangePlan, *, paired: bool) -> InlinedChanges:
    mask = covered(plan.updates, inlined.rows.column("snapshot_id").to_numpy())
    return replace(inlined, rows=inlined.rows.filter(pa.array(mask if paired else ~np.asarray(mask))))
