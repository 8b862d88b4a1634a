"""The IO manager: one output is one DuckLake commit."""

# No `from __future__ import annotations`: Dagster reads the annotations of resource fields before they could be resolved.
import time
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from ducklake_dagster.metadata import commit_metadata
from ducklake_dagster.resources import DuckLakeResource
from ducklake_dagster.table_input import plan_input
from ducklake_dagster.table_output import plan_output, without_keys
from ducklake_dagster.write_settings import OutOfSlice, SchemaEvolution, WriteMode, WriteSettings


class DuckLakeIOManager(dg.ConfigurableIOManager):
    """Stores what assets return in DuckLake tables and loads it for the assets after them.

    Spark DataFrames (classic and Connect) and pyarrow Tables are taken and given; the annotation of an input says which one.
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
    out_of_slice: OutOfSlice = "error"
    default_frame: Literal["spark", "arrow"] = Field(default="spark", description="What inputs without a type annotation are loaded as.")

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write one output as one commit and attach the metadata of its snapshot.

        Raises:
            UsageError: The output is no frame, the partitions cannot be matched with a column, or a row lies outside of them.
            SchemaError: Frame and table do not fit.
            CommitConflictError: Other writers kept winning; a retry policy may run the step again.
        """
        defaults = WriteSettings(write_mode=self.write_mode, schema_evolution=self.schema_evolution, out_of_slice=self.out_of_slice)
        output = plan_output(context, obj, defaults, self.schema_)
        lake = self.lake.connect()
        predicate = output.predicate(lake) if output.table_slice.boxes is not None else None
        started = time.monotonic()
        result = output.write(lake, predicate)
        metadata = commit_metadata(lake, output, predicate, result, seconds=time.monotonic() - started)
        context.log.info(
            "%s: snapshot %s, %s rows added, %s deleted%s",
            output.address,
            result.snapshot_id,
            result.rows_added,
            result.rows_deleted,
            " (an earlier attempt of this step had committed)" if result.repeated else "",
        )
        context.add_output_metadata(without_keys(metadata, context.output_metadata))

    def load_input(self, context: dg.InputContext) -> Any:
        """Rows of the upstream partitions at hand, as the annotated type: a Spark DataFrame (lazy) or a pyarrow Table.

        The input's own metadata may narrow it: ``columns`` (list of names), ``ducklake/where`` (SQL), ``ducklake/snapshot`` (id).

        Raises:
            NotFoundError: The table, a column or the snapshot does not exist.
            UsageError: The annotated type is none of these, or the partitions cannot be matched with a column.
        """
        return plan_input(context, self.default_frame, self.schema_).load(self.lake.connect(), self._session, context.log.debug)

    def _session(self) -> Any:
        if self.spark is not None:
            return self.spark.spark_session
        from pyspark.sql import SparkSession

        # Without options this gives the running session and changes nothing about it.
        return SparkSession.builder.getOrCreate()
