"""Planning a batch read on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.spark_source.columns import all_columns, check_columns
from ducklake_core.spark_source.options import SourceOptions
from ducklake_core.spark_source.reading import PartReader, ScanPart

if TYPE_CHECKING:
    from ducklake_core.lake import DuckLake
    from ducklake_core.planning.plan import ScanPlan


def table_columns(options: SourceOptions) -> tuple[StructType, int]:
    """The columns of the table, and the snapshot that was asked."""
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
        """The work of each task.

        Raises:
            NotFoundError: A column, table or snapshot does not exist.
            SchemaError: A column cannot be read as the schema says.
            UnsupportedFeatureError: A predicate that needs a SQL engine.
        """
        lake = self._options.connect()
        try:
            return self._planned(lake)
        finally:
            lake.close()

    def _planned(self, lake: DuckLake) -> list[InputPartition]:
        from ducklake_core.engines.spark.scan_schema import arrow_form
        from ducklake_core.engines.spark.task_groups import TaskGroup, bin_pack, inlined_groups, split_tasks
        from ducklake_core.format.expressions.predicates import needs_sql

        table = lake.table(self._options.table, at=self._options.at)
        plan = table.scan(columns=self._schema.names, where=self._options.where).plan().plan
        if plan.predicate is not None and needs_sql(plan.predicate):
            raise UnsupportedFeatureError(
                f"option where of {table.name} needs a SQL engine, which a data source does not have: filter the DataFrame, or use "
                "lake.table(...).scan(where=...).to_spark(session)",
                table=table.name,
            )
        names = _read_names(plan, self._schema)
        check_columns(self._schema, _chosen(plan, names), table.name)
        groups = [*(TaskGroup(tasks=tasks) for tasks in bin_pack(split_tasks(plan.tasks))), *inlined_groups(plan.inlined)]
        wanted = arrow_form(self._schema)
        return [ScanPart(group=one, shape=plan.shape, names=names, wanted=wanted, storage=lake.storage) for one in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As executors do."""
        return PartReader().read(partition)


def _read_names(plan: ScanPlan, schema: StructType) -> tuple[str, ...]:
    found = {folded(name): name for name in (*plan.schema.names, *plan.virtual)}
    return tuple(found[folded(name)] for name in schema.names)


def _chosen(plan: ScanPlan, names: tuple[str, ...]) -> Schema:
    from ducklake_core.planning.virtual import VIRTUAL_SCHEMA

    by_name = {column.name: column for column in (*VIRTUAL_SCHEMA, *plan.schema)}
    return Schema(columns=tuple(by_name[name] for name in names))
