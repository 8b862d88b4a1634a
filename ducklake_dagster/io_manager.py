"""The IO manager: one output is one DuckLake commit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field

from ducklake_core import DuckLake, WriteResult
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.handlers import FrameHandler, handler_for_frame, handler_for_type
from ducklake_dagster.metadata import commit_metadata
from ducklake_dagster.naming import TableAddress, table_address
from ducklake_dagster.provenance import AUTHOR, output_subject, provenance
from ducklake_dagster.resources import DuckLakeResource
from ducklake_dagster.slice_predicate import SlicePredicate, slice_predicate
from ducklake_dagster.table_slice import TableSlice, partition_boxes
from ducklake_dagster.write_settings import OutOfSlice, SchemaEvolution, WriteMode, WriteSettings, plain_metadata, resolve_settings


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
    default_frame: str = Field(default="spark", description="What inputs without a type annotation are loaded as: spark or arrow.")

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write one output as one commit and attach the metadata of its snapshot.

        Raises:
            UsageError: The output is no frame, the partitions cannot be matched with a column, or a row lies outside of them.
            SchemaError: Frame and table do not fit.
            CommitConflictError: Other writers kept winning; a retry policy may run the step again.
        """
        subject = output_subject(context)
        handler = handler_for_frame(obj, subject)
        run_time = plain_metadata(context.output_metadata)
        definition = plain_metadata(context.definition_metadata or {})
        settings = resolve_settings(self._defaults(), definition, run_time, subject=subject)
        address = self._address(context, {**definition, **run_time})
        keys = sorted(context.asset_partition_keys) if context.has_asset_partitions else []
        table_slice = TableSlice(
            schema=address.schema,
            table=address.table,
            boxes=partition_boxes(context.asset_partitions_def, keys, definition.get("partition_expr"), subject=subject)
            if context.has_asset_partitions
            else None,
        )
        lake = self.lake.connect()
        predicate = self._predicate(lake, address, table_slice, handler, obj)
        started = time.monotonic()
        result = self._write(lake, address, handler, obj, predicate, settings, context, keys)
        self._report(context, lake, address, result, predicate, settings, time.monotonic() - started, run_time, len(keys))

    def load_input(self, context: dg.InputContext) -> Any:
        """Rows of the upstream partitions at hand, as the annotated type: a Spark DataFrame (lazy) or a pyarrow Table.

        The input's own metadata may narrow it: ``columns`` (list of names), ``ducklake/where`` (SQL), ``ducklake/snapshot`` (id).

        Raises:
            NotFoundError: The table, a column or the snapshot does not exist.
            UsageError: The annotated type is none of these, or the partitions cannot be matched with a column.
        """
        upstream = context.upstream_output
        upstream_metadata = plain_metadata((upstream.definition_metadata if upstream else None) or {})
        wanted = plain_metadata(context.definition_metadata or {})
        subject = context.asset_key.to_user_string() if context.has_asset_key else context.name
        handler = handler_for_type(context.dagster_type.typing_type, self.default_frame, subject)
        address = self._address(context, upstream_metadata)
        boxes = None
        if context.has_asset_partitions:
            expression = upstream_metadata.get("partition_expr")
            boxes = partition_boxes(context.asset_partitions_def, context.asset_partition_keys, expression, subject=subject)
        lake = self.lake.connect()
        try:
            table = lake.table(address.sql, at=wanted.get("ducklake/snapshot"))
        except NotFoundError:
            # The first partition of an asset that reads its own past has nothing to read, and no table yet.
            if boxes != ():
                raise
            return handler.empty(self._session)
        table_slice = TableSlice(schema=address.schema, table=address.table, columns=_column_list(wanted, subject), boxes=boxes)
        found = slice_predicate(table_slice, _column_types(table.schema))
        where = " AND ".join(f"({part})" for part in (found.to_sql() if found else None, wanted.get("ducklake/where")) if part) or None
        chosen = ", ".join(table_slice.columns) if table_slice.columns else "all columns"
        context.log.debug(f"loading {table.name} at snapshot {table.snapshot_id}: {chosen} where {where or 'TRUE'}")
        return handler.load(table, table_slice.columns, where, self._session)

    def _defaults(self) -> WriteSettings:
        return WriteSettings(write_mode=self.write_mode, schema_evolution=self.schema_evolution, out_of_slice=self.out_of_slice)

    def _address(self, context: dg.OutputContext | dg.InputContext, metadata: Mapping[str, Any]) -> TableAddress:
        if context.has_asset_key:
            path = list(context.asset_key.path)
        elif isinstance(context, dg.InputContext):
            path = [context.upstream_output.name if context.upstream_output else context.name]
        else:
            path = [context.name]
        return table_address(path, metadata, self.schema_)

    def _session(self) -> Any:
        if self.spark is not None:
            return self.spark.spark_session
        from pyspark.sql import SparkSession

        # Without options this gives the running session and changes nothing about it.
        return SparkSession.builder.getOrCreate()

    def _predicate(
        self, lake: DuckLake, address: TableAddress, table_slice: TableSlice, handler: FrameHandler, frame: Any
    ) -> SlicePredicate | None:
        if table_slice.boxes is None:
            return None
        if not table_slice.boxes:
            raise UsageError(
                f"the run has no partitions of {address}, so there is nothing that its output could replace", table=str(address)
            )
        in_frame = _column_types(handler.schema(frame))
        in_table = _column_types(lake.table(address.sql).schema) if lake.has_table(address.sql) else None

        def column_type(name: str) -> tuple[str, str] | None:
            mine = in_frame(name)
            if mine is None:
                raise UsageError(
                    f"the frame for {address} has no column {name!r}, which partition_expr names; its columns are: "
                    f"{', '.join(handler.schema(frame).names)}",
                    table=str(address),
                    column=name,
                )
            stored = in_table(name) if in_table else None
            return (mine[0], stored[1]) if stored else mine

        return slice_predicate(table_slice, column_type)

    def _write(
        self,
        lake: DuckLake,
        address: TableAddress,
        handler: FrameHandler,
        frame: Any,
        predicate: SlicePredicate | None,
        settings: WriteSettings,
        context: dg.OutputContext,
        keys: list[str],
    ) -> WriteResult:
        replaces = settings.write_mode == "overwrite"
        if predicate and settings.out_of_slice == "filter":
            frame = handler.keep_inside(frame, predicate)
        elif predicate and not replaces:
            frame = handler.refuse_outside(frame, predicate, output_subject(context))
        commit = provenance(context, keys)
        return lake.write(
            address.sql,
            frame,
            mode=settings.write_mode,
            where=predicate.to_sql() if predicate and replaces else None,
            on=settings.upsert_keys if settings.write_mode == "upsert" else (),
            partition_by=settings.partition_by,
            schema_evolution=settings.schema_evolution,
            author=AUTHOR,
            message=commit.message,
            extra_info=commit.extra_info,
            commit_id=commit.commit_id,
        )

    def _report(
        self,
        context: dg.OutputContext,
        lake: DuckLake,
        address: TableAddress,
        result: WriteResult,
        predicate: SlicePredicate | None,
        settings: WriteSettings,
        seconds: float,
        run_time: Mapping[str, Any],
        key_count: int,
    ) -> None:
        table = lake.table(address.sql, at=result.snapshot_id)
        info = lake.table_info(address.sql, at=result.snapshot_id)
        metadata = commit_metadata(result, table, info, write_mode=settings.write_mode, seconds=seconds)
        if key_count == 1 and settings.write_mode == "overwrite" and not result.repeated:
            metadata["dagster/partition_row_count"] = result.rows_added
        condition = f" WHERE {predicate.to_sql()}" if predicate else ""
        metadata["Query"] = f"SELECT * FROM {address.sql} AT (VERSION => {result.snapshot_id}){condition}"
        context.log.info(
            f"{address}: snapshot {result.snapshot_id}, {result.rows_added} rows added, {result.rows_deleted} deleted"
            + (" (committed by an earlier attempt)" if result.repeated else "")
        )
        # Dagster lets an IO manager's value win over the user's for the same key; the user's must.
        context.add_output_metadata({key: value for key, value in metadata.items() if key not in run_time})


def _column_types(schema: Any) -> Any:
    def find(name: str) -> tuple[str, str] | None:
        column = schema.find(name)
        return (column.name, str(column.type)) if column else None

    return find


def _column_list(metadata: Mapping[str, Any], subject: str) -> tuple[str, ...] | None:
    columns = metadata.get("columns")
    if columns is None:
        return None
    if isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
        raise UsageError(f"input {subject}: metadata 'columns' must be a list of names, not {columns!r}", input=subject)
    return tuple(columns)
