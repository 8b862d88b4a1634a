"""Store outputs in a lake, one commit each, and load inputs from it."""

# No `from __future__ import annotations`: Dagster reads the annotations of resource fields before they could be resolved.
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg
from pydantic import Field, PrivateAttr

from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_dagster.assets.provenance import output_subject
from ducklake_dagster.assets.settings import ConcurrentAppends, MissingColumns, OutOfSlice, SchemaEvolution, WriteMode, WriteSettings
from ducklake_dagster.config.errors import shown_failures
from ducklake_dagster.config.resources import DuckLakeResource, overridden_lakes
from ducklake_dagster.config.values import reject_no_text, reject_unknown_fields, rejected_values
from ducklake_dagster.io.audits import Branch, branch_holds, reject_failed
from ducklake_dagster.io.commit import REPLACED_MEANWHILE, WrittenOutput
from ducklake_dagster.io.inputs import TableInput, plan_input
from ducklake_dagster.io.outputs import TableOutput, plan_output, without_keys
from ducklake_dagster.io.read_points import BRANCH, lake_identity
from ducklake_dagster.partitions.predicates import SlicePredicate
from ducklake_dagster.statistics.commit_metadata import PartitionNumbers, commit_metadata, partition_metadata, partition_numbers

if TYPE_CHECKING:
    from ducklake_core import DuckLake, WriteResult

# Dagster lists all partitions of the run for each partition that gets metadata, so the time is quadratic; several dimensions take longer.
_MAX_PARTITIONS = 1000
_MAX_POINTS = 400


class DuckLakeIOManager(dg.ConfigurableIOManager):
    """Store the frames that assets return in DuckLake tables, and load them for downstream assets.

    Outputs may be Spark (classic and Connect), pandas and polars frames, pyarrow Tables and RecordBatchReaders, and other objects with
    Arrow batches. The type annotation of an input selects the type in which it is loaded. A JVM is started only for Spark frames.
    A partitioned asset needs ``partition_expr`` in its metadata; one run may have any set of partitions. Metadata of an asset overrides
    the settings below, and output metadata that is added at run time overrides both.

    Example:

        lake = DuckLakeResource(catalog=SqliteCatalog(path="lake.sqlite"), storage=LocalStorage(data_path="lake_files/"))
        dg.Definitions(assets=[...], resources={"io_manager": DuckLakeIOManager(lake=lake), "lake": lake})

    Attributes:
        lake: Resource of the lake.
        spark: Resource with a ``spark_session``. Default: the session that is active in the process.
        branch_lake: Resource of the lake of the branch. Default: the branch has schemas ``schema__branch`` in ``lake``.
    """

    lake: dg.ResourceDependency[DuckLakeResource]
    spark: dg.ResourceDependency[Any] = None  # type: ignore[assignment]
    schema_: str | None = Field(
        default=None,
        alias="schema",
        description=(
            "DuckLake schema of assets whose metadata does not set one. {key_prefix} is replaced by the asset key without its last part."
        ),
    )
    write_mode: WriteMode = Field(
        default="overwrite",
        description="Way to write an output: overwrite replaces the rows of the run's partitions (all rows without partitions), append "
        "adds rows, upsert updates rows with equal upsert_keys and inserts the others, merge follows the merge settings of the asset, "
        "error fails the step if the table exists (or has rows in the run's partitions), ignore then skips the write.",
    )
    schema_evolution: SchemaEvolution = Field(
        default="strict",
        description="Treatment of frames with other columns than the table: strict rejects them, additive adds new columns and widens "
        "types, replace replaces the columns of an unpartitioned table.",
    )
    missing_columns: MissingColumns = Field(
        default="auto",
        description="Treatment of columns without a default that the frame lacks: error fails the step, null writes NULL to the new rows, "
        "auto means error with schema_evolution strict and null with additive.",
    )
    out_of_slice: OutOfSlice = Field(
        default="error",
        description="Treatment of rows outside of the run's partitions: error fails the step, filter leaves them out.",
    )
    concurrent_appends: ConcurrentAppends = Field(
        default="fail",
        description="Treatment of rows that another writer commits to the run's partitions during an overwrite: fail raises a conflict, "
        "replace deletes these rows, too.",
    )
    comments: bool = Field(default=True, description="Store the description of an asset and of its columns as comments of the table.")
    default_frame: Literal["auto", "spark", "arrow", "pandas", "polars"] = Field(
        default="auto",
        description="Type of inputs without a type annotation. auto means spark in a project that imports pyspark, and arrow otherwise.",
    )
    pin_reads: bool = Field(
        default=False,
        description="Read all inputs of a run at the snapshot that was the newest when the first input was loaded. Tables that the run "
        "itself has written are read as the run left them.",
    )
    branch: str | None = Field(
        default=None,
        description="Name of a branch. Outputs go to the branch; inputs are read from the branch if it has the table, otherwise from "
        "production. Default: no branch.",
    )
    branch_lake: dg.ResourceDependency[DuckLakeResource] = None  # type: ignore[assignment]

    if not TYPE_CHECKING:
        # Type checkers use the fields. Dagster ignores fields that do not exist.
        def __init__(self, **data: Any) -> None:
            reject_unknown_fields(type(self), data)
            _reject_no_resources(data)
            _reject_variables(data)
            with rejected_values(type(self)):
                super().__init__(**data)

    _overridden: dict[str, str] = PrivateAttr(default_factory=dict)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Check whether the run's configuration moves a lake that this manager keeps; the first output or input reports it."""
        self._overridden = overridden_lakes(context)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write one output as one commit and attach the metadata of its snapshot.

        Raises:
            dg.Failure: The output was not written: frame and table do not fit, a row lies outside of the partitions, or the catalog or the
                store cannot be reached. A retry policy runs the step again unless the error is permanent.
        """
        with shown_failures(output_subject(context), "asset"):
            self.reject_overridden()
            self._write(context, obj)

    def reject_overridden(self) -> None:
        """Reject a run whose configuration moves the lake of assets and checks, but not that of this manager.

        Raises:
            UsageError: The configuration moves the lake.
        """
        for name, key in self._overridden.items():
            raise UsageError(
                f"Nothing was written: the configuration of this run changes resource {key!r}, but not the lake that the IO manager has as "
                f"{name}=. Outputs would go to {getattr(self, name).shown_catalog()}, while assets and checks use the lake of the run's "
                f"configuration. Define {key!r} as DuckLakeResource.configure_at_launch() and pass that object to the IO manager, too, or "
                f"remove {key!r} from the run's configuration",
                resource=key,
            )

    def _write(self, context: dg.OutputContext, obj: Any) -> None:
        # plan_output      frame and metadata -> table, settings, slice; rejects what can be rejected without the lake
        # output.table     the table as it is now, None when this commit creates it
        # settled          a frame without rows takes the table's columns
        # predicate        partition keys -> a typed condition on the table's columns
        # output.write     stage, audit and commit; or find the commit of an earlier attempt of this step
        # metadata_of_...  read at the snapshot of this commit, because newer ones may exist by then
        branch = branch_settings(self)
        output = plan_output(context, obj, default_settings(self), self.schema_, comments=self.comments, branch=branch)
        started = time.monotonic()
        with shown_failures(str(output.address)):
            lake = writing_lake(self).connect()
            table = output.table(lake)
            output = output.settled(table).absent(lake, table)
            missing = output.missing_columns(table)
            predicate = output.predicate(table)
            publish = partial(reject_failed, context, table=str(output.address), subject=output.subject)
            written = output.write(lake, table, predicate, publish)
        metadata = metadata_of_commit(context, lake, output, predicate, written, missing, seconds=time.monotonic() - started)
        context.log.info(
            "%s: snapshot %s, %s rows added, %s deleted%s",
            output.address,
            written.result.snapshot_id,
            written.result.rows_added,
            written.result.rows_deleted,
            " (an earlier attempt of this step had committed)" if written.result.repeated else "",
        )
        context.add_output_metadata(metadata)
        add_metadata_of_partitions(context, lake, output, written.result)

    def load_input(self, context: dg.InputContext) -> Any:
        """Return rows of the upstream partitions as the annotated type.

        That is a Spark DataFrame (lazy), a RecordBatchReader (a stream), or a pyarrow, pandas or polars frame in memory. The input's own
        metadata, which :func:`ducklake_input` returns, may select columns and rows, or select an earlier snapshot.

        Raises:
            dg.Failure: The table, a column or the snapshot does not exist, the annotated type is not supported, or the partitions cannot be
                matched with a column.
        """
        with shown_failures(context.name if context.has_input_name else context.asset_key.to_user_string(), "asset"):
            self.reject_overridden()
            planned = plan_input(context, self._default_frame(), self.schema_)
            with shown_failures(str(planned.address)):
                lake, planned = self._source(context, planned)
                return planned.load(lake, self._session, pin=self.pin_reads, reader_branch=self.branch or None)

    def _source(self, context: dg.InputContext, planned: TableInput) -> "tuple[DuckLake, TableInput]":
        """Return the lake and table that an input is read from: the branch's, or production's."""
        branch = branch_settings(self)
        if branch is None or planned.settings.production:
            _reject_no_lake(self.lake)
            return self.lake.connect(), planned
        address = branch.address(planned.address)
        keys = sorted(context.asset_partition_keys) if context.has_asset_partitions else None
        lake = writing_lake(self).connect()
        if not branch_holds(lake, address, keys, planned.subject):
            context.log.info("%s is read from production: branch %s does not have it", planned.address, branch.name)
            return self.lake.connect(), planned
        return lake, planned.in_branch(branch.name, address)

    def _default_frame(self) -> str:
        if self.default_frame != "auto":
            return self.default_frame
        # A process that has not imported pyspark has no Spark frames, and should not pay for the import.
        return "spark" if self.spark is not None or "pyspark.sql" in sys.modules else "arrow"

    def _session(self) -> Any:
        if self.spark is not None:
            return self.spark.spark_session
        from pyspark.sql import SparkSession

        # Without options this gives the running session and changes nothing about it.
        return SparkSession.builder.getOrCreate()


def _reject_variables(data: Mapping[str, Any]) -> None:
    """Reject variables of the environment as values that must be known when definitions load.

    Raises:
        UsageError: A setting other than a name is a ``dg.EnvVar``.
    """
    for name, value in data.items():
        if isinstance(value, dg.EnvVar) and name not in ("schema", "schema_", "branch"):
            raise UsageError(
                f"{name} of DuckLakeIOManager cannot be dg.EnvVar({value.env_var_name!r}), because its value is checked when the "
                f"definitions load. Use os.environ[{value.env_var_name!r}], or set {name} in the metadata of the asset",
                parameter=name,
            )


def _most_partitions(definition: dg.PartitionsDefinition[str] | None) -> int:
    return _MAX_POINTS if isinstance(definition, dg.MultiPartitionsDefinition) else _MAX_PARTITIONS


def metadata_of_commit(
    context: dg.OutputContext,
    lake: "DuckLake",
    output: TableOutput,
    predicate: SlicePredicate | None,
    written: WrittenOutput,
    missing: Sequence[str],
    *,
    seconds: float,
) -> dict[str, Any]:
    """Return the metadata of an output's event, without the keys that the user set.

    Warns of columns that the frame lacks, and of rows of other assets that the overwrite replaced because they were committed meanwhile.

    Args:
        context: The output.
        lake: The lake that was written to.
        output: The plan of the output.
        predicate: The slice, None for the whole table.
        written: The commit.
        missing: Columns of the table that the frame lacks.
        seconds: From planning to the end of the commit.
    """
    notes = dict(written.notes)
    if output.branch is not None:
        notes[BRANCH] = output.branch
    if missing:
        notes["ducklake/missing_columns"] = ", ".join(missing)
        context.log.warning(
            "%s: the data lacks columns of the table, which are NULL or have their default in new rows: %s",
            output.address,
            ", ".join(missing),
        )
    if REPLACED_MEANWHILE in notes:
        context.log.warning(
            "%s: the overwrite also replaced rows that were committed while it ran: %s", output.address, notes[REPLACED_MEANWHILE]
        )
    metadata = {**commit_metadata(lake, output, predicate, written.result, seconds=seconds), **notes}
    return without_keys(metadata, context.output_metadata)


def add_metadata_of_partitions(context: dg.OutputContext, lake: "DuckLake", output: TableOutput, result: "WriteResult") -> None:
    """Add the numbers of each partition to its own event, when the run has several partitions."""
    if output.asset is not None and 1 < len(output.partition_keys) <= _most_partitions(output.asset.partitions_def):
        _add_partition_metadata(context, output, partition_numbers(lake, output.asset, output.partition_keys, result))


def _add_partition_metadata(context: dg.OutputContext, output: TableOutput, numbers: Mapping[str, PartitionNumbers]) -> None:
    try:
        step = context.step_context
        for key, found in numbers.items():
            metadata = without_keys(partition_metadata(output, found), context.output_metadata)
            step.add_asset_metadata(metadata, asset_key=context.asset_key, partition_key=key)
    except dg.DagsterInvariantViolationError:
        # A context that a test builds has no step, and a selection with gaps has no range: the event then has only the commit's numbers.
        return


def branch_settings(manager: DuckLakeIOManager) -> Branch | None:
    """Return the branch that a manager's outputs go to, None for production."""
    if not manager.branch:
        return None
    reject_no_text("branch", manager.branch)
    return Branch(name=manager.branch, own_lake=manager.branch_lake is not None)


def lake_of_outputs(manager: DuckLakeIOManager) -> DuckLakeResource:
    """Return the lake that a manager's outputs go to, without a connection to it.

    Raises:
        UsageError: The manager has no lake.
    """
    _reject_no_lake(manager.lake)
    return manager.branch_lake if manager.branch and manager.branch_lake is not None else manager.lake


def writing_lake(manager: DuckLakeIOManager) -> DuckLakeResource:
    """Return the lake that a manager's outputs go to, after a check that a branch's own lake is not production's.

    The check may connect to both lakes.

    Raises:
        UsageError: The manager has no lake, or the branch's lake is that of production.
    """
    lake = lake_of_outputs(manager)
    if lake is not manager.lake and _same_lake(lake, manager.lake):
        raise UsageError(
            f"branch_lake of branch {manager.branch} is the lake of production, or a copy of its catalog with the same files. Outputs of "
            "the branch would overwrite production. Use another lake, or remove branch_lake to write to schemas of the branch",
            parameter="branch_lake",
        )
    return lake


def _same_lake(one: DuckLakeResource, production: DuckLakeResource) -> bool:
    # Cheapest evidence first: equal addresses are one lake, and a pair that was compared before is known to differ. Only then are both
    # catalogs read: one database can have several addresses, and a copied catalog has its own address but names the same files.
    places = [(lake.located_catalog().url(), lake.catalog.metadata_schema) for lake in (one, production)]
    if places[0] == places[1]:
        return True
    if one.is_known_to_differ_from(production):
        return False
    try:
        branch, other = lake_identity(one.connect()), lake_identity(production.connect_to_existing())
    except DuckLakeError:
        # The write or read that follows reports the error; a lake that cannot be reached cannot be overwritten either.
        return False
    if branch == other:
        return True
    one.keep_as_different_from(production)
    return False


def _reject_no_lake(lake: object) -> None:
    if lake is None:
        raise UsageError("DuckLakeIOManager has no lake. Set lake=DuckLakeResource(catalog=..., storage=...)", parameter="lake")


def _reject_no_resources(data: Mapping[str, Any]) -> None:
    """Reject values that cannot be a resource. Dagster accepts them until they are used.

    Raises:
        UsageError: A field has such a value.
    """
    # Mappings are not in the list: Dagster passes configuration as mappings.
    plain = (str, bytes, int, float, list, tuple)
    for name in ("lake", "branch_lake"):
        given = data.get(name)
        # When Dagster sets a manager up again, it passes the resource itself or a partial one, never a plain value.
        if isinstance(given, (*plain, dg.Config)) and not _may_be_a_lake(given):
            raise UsageError(f"{name} must be a DuckLakeResource, not {type(given).__name__}", parameter=name)
    if isinstance(data.get("spark"), plain):
        kind = type(data["spark"]).__name__
        raise UsageError(f"spark must be a resource with a spark_session, such as PySparkResource, not {kind}", parameter="spark")


def _may_be_a_lake(given: object) -> bool:
    # A factory is not a ConfigurableResource, and the type of the resource that it creates is unknown until a run begins.
    makes_others = hasattr(given, "create_resource") and not isinstance(given, (dg.ConfigurableResource, dg.ConfigurableIOManager))
    return isinstance(given, DuckLakeResource) or makes_others


def default_settings(manager: DuckLakeIOManager) -> WriteSettings:
    """Return the settings of assets whose metadata does not override them."""
    return WriteSettings(
        write_mode=manager.write_mode,
        schema_evolution=manager.schema_evolution,
        missing_columns=manager.missing_columns,
        out_of_slice=manager.out_of_slice,
        concurrent_appends=manager.concurrent_appends,
    )
