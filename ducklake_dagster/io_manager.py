"""The IO manager: one output is one DuckLake commit."""

# No `from __future__ import annotations`: Dagster reads the annotations of resource fields before they could be resolved.
import sys
import time
from collections.abc import Mapping
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from ducklake_dagster.failures import final_failures
from ducklake_dagster.metadata import commit_metadata, partition_metadata
from ducklake_dagster.partition_numbers import PartitionNumbers, partition_numbers
from ducklake_dagster.provenance import output_subject
from ducklake_dagster.resources import DuckLakeResource
from ducklake_dagster.table_input import plan_input
from ducklake_dagster.table_output import TableOutput, plan_output, without_keys
from ducklake_dagster.write_settings import MissingColumns, OutOfSlice, SchemaEvolution, WriteMode, WriteSettings

# Dagster lists the run's partitions anew for each of them that gets metadata of its own; of several dimensions that takes longer.
_MOST_PARTITIONS = 1000
_MOST_POINTS = 400


class DuckLakeIOManager(dg.ConfigurableIOManager):
    """Stores what assets return in DuckLake tables and loads it for the assets after them.

    Spark (classic and Connect), pandas and polars frames, pyarrow Tables and RecordBatchReaders are taken and given; the annotation of
    an input says which one. Whatever else gives Arrow batches is taken too. No JVM is started unless an input is a Spark frame.
    A partitioned asset needs ``partition_expr`` in its metadata, and one run may have any set of partitions.  Every setting
    below may also be in an asset's metadata, which wins, or in run-time output metadata, which wins over both.

    Example:
        ::

            lake = DuckLakeResource(catalog=SqliteCatalog(path="lake.sqlite"), storage=LocalStorage(data_path="lake_files/"))
            dg.Definitions(assets=[...], resources={"io_manager": DuckLakeIOManager(lake=lake), "lake": lake})
    """

    lake: dg.ResourceDependency[DuckLakeResource]
    # Anything with ``spark_session``; without it the running session is used.
    spark: dg.ResourceDependency[Any] = None  # type: ignore[assignment]
    schema_: str | None = Field(default=None, alias="schema", description="DuckLake schema of assets that do not name one.")
    write_mode: WriteMode = "overwrite"
    schema_evolution: SchemaEvolution = "strict"
    missing_columns: MissingColumns = "null"
    out_of_slice: OutOfSlice = "error"
    comments: bool = Field(
        default=True, description="Whether an asset's description and its column descriptions become comments of the table."
    )
    default_frame: Literal["auto", "spark", "arrow", "pandas", "polars"] = Field(
        default="auto",
        description="What inputs without a type annotation are loaded as; auto is spark in a project that uses Spark, otherwise arrow.",
    )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write one output as one commit and attach the metadata of its snapshot.

        Raises:
            dg.Failure: What no retry can mend: the output is no frame, frame and table do not fit, the partitions cannot be matched with a
                column, or a row lies outside of them.
            CommitConflictError: Other writers kept winning; a retry policy may run the step again.
        """
        with final_failures(output_subject(context)):
            self._write(context, obj)

    def _write(self, context: dg.OutputContext, obj: Any) -> None:
        output = plan_output(context, obj, default_settings(self), self.schema_, comments=self.comments)
        started = time.monotonic()
        with final_failures(str(output.address)):
            lake = self.lake.connect()
            table = output.table(lake)
            missing = output.missing_columns(table)
            predicate = output.predicate(table)
            written = output.write(lake, table, predicate)
        result, notes = written.result, dict(written.notes)
        if missing:
            notes["ducklake/missing_columns"] = ", ".join(missing)
            context.log.warning("%s: the frame lacks columns of the table, which are NULL now: %s", output.address, ", ".join(missing))
        metadata = {**commit_metadata(lake, output, predicate, result, seconds=time.monotonic() - started), **notes}
        context.log.info(
            "%s: snapshot %s, %s rows added, %s deleted%s",
            output.address,
            result.snapshot_id,
            result.rows_added,
            result.rows_deleted,
            " (an earlier attempt of this step had committed)" if result.repeated else "",
        )
        context.add_output_metadata(without_keys(metadata, context.output_metadata))
        if output.asset is not None and 1 < len(output.partition_keys) <= _most_partitions(output.asset.partitions_def):
            _add_partition_metadata(context, output, partition_numbers(lake, output.asset, output.partition_keys, result))

    def load_input(self, context: dg.InputContext) -> Any:
        """Rows of the upstream partitions at hand, as the annotated type: a Spark DataFrame (lazy), a RecordBatchReader (a stream), or a
        pyarrow, pandas or polars frame in memory.

        The input's own metadata may narrow it: ``columns`` (list of names), ``ducklake/where`` (SQL), ``ducklake/snapshot`` (id).

        Raises:
            dg.Failure: The table, a column or the snapshot does not exist, the annotated type is none of these, or the partitions cannot be
                matched with a column.
        """
        with final_failures(context.name if context.has_input_name else context.asset_key.to_user_string()):
            planned = plan_input(context, self._default_frame(), self.schema_)
            with final_failures(str(planned.address)):
                return planned.load(self.lake.connect(), self._session, context.log.debug)

    def _default_frame(self) -> str:
        if self.default_frame != "auto":
            return self.default_frame
        # Whoever has not imported Spark has nothing to do with it.
        return "spark" if self.spark is not None or "pyspark.sql" in sys.modules else "arrow"

    def _session(self) -> Any:
        if self.spark is not None:
            return self.spark.spark_session
        from pyspark.sql import SparkSession

        # Without options this gives the running session and changes nothing about it.
        return SparkSession.builder.getOrCreate()


def _most_partitions(definition: dg.PartitionsDefinition[str] | None) -> int:
    return _MOST_POINTS if isinstance(definition, dg.MultiPartitionsDefinition) else _MOST_PARTITIONS


def _add_partition_metadata(context: dg.OutputContext, output: TableOutput, numbers: Mapping[str, PartitionNumbers]) -> None:
    try:
        step = context.step_context
        for key, found in numbers.items():
            metadata = without_keys(partition_metadata(output, found), context.output_metadata)
            step.add_asset_metadata(metadata, asset_key=context.asset_key, partition_key=key)
    except dg.DagsterInvariantViolationError:
        # A context made by hand has no step, and a selection with gaps no range: then there are the commit's numbers alone.
        return


def default_settings(manager: DuckLakeIOManager) -> WriteSettings:
    """The settings of a manager's assets that do not say otherwise."""
    return WriteSettings(
        write_mode=manager.write_mode,
        schema_evolution=manager.schema_evolution,
        missing_columns=manager.missing_columns,
        out_of_slice=manager.out_of_slice,
    )
