"""The tables of a lake in YAML: an external asset for each, and the sensor for commits of others."""

# No `from __future__ import annotations`: Dagster reads the annotations of components.
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field, PrivateAttr

from ducklake_core.errors import UsageError
from ducklake_dagster.assets.table_specs import table_specs
from ducklake_dagster.assets.translator import DuckLakeTranslator, LakeTable, read_lake_tables
from ducklake_dagster.components.lake import DuckLakeComponent, TablesScaffolder
from ducklake_dagster.sensors.commit_sensor import build_commit_sensor

_STATE_VERSION = 1


class CommitSensorSettings(dg.Model, dg.Resolvable):
    """Settings of the sensor; those of :func:`build_commit_sensor`."""

    name: Annotated[str, Field(description="Name of the sensor.")] = "ducklake_commits"
    minimum_interval_seconds: Annotated[int, Field(description="Seconds between evaluations.")] = 30
    request_runs: Annotated[
        str | None, Field(description="Selection of assets that a run is requested of when what they read has changed.")
    ] = None
    report_history: Annotated[bool, Field(description="Whether to begin with the oldest snapshot.")] = False


@dg.scaffold_with(TablesScaffolder)
class DuckLakeTablesComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """An asset for each table and view of a DuckLake, with columns, comments and partition keys.

    The catalog is read when the state of definitions is refreshed: by ``dg dev``, and by ``dg utils refresh-defs-state`` elsewhere.
    """

    lake: Annotated[str, Field(description="Folder of the DuckLakeComponent below defs.")]
    include: Annotated[Sequence[str], Field(description="Names or patterns of schema.name.")] = ("*",)
    exclude: Annotated[Sequence[str], Field(description="Names or patterns to leave out.")] = ()
    partitions: Annotated[bool, Field(description="Whether tables whose layout follows a column of time are partitioned assets.")] = False
    timezone: Annotated[str, Field(description="Time zone of these partitions.")] = "UTC"
    translation: Annotated[TranslationFn[LakeTable] | None, TranslationFnResolver[LakeTable](lambda table: {"table": table})] = None
    commit_sensor: Annotated[CommitSensorSettings | None, Field(description="The sensor for commits of others; none when left out.")] = None
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()

    _lake: DuckLakeComponent | None = PrivateAttr(default=None)

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Tags by which tools group components."""
        return dg.ComponentTypeSpec(description="Tables and views of a DuckLake as assets.", tags=["ducklake", "lakehouse"])

    @classmethod
    def load(cls, attributes: object, context: dg.ComponentLoadContext) -> "DuckLakeTablesComponent":
        """The component, together with its lake's."""
        loaded = super().load(attributes, context)  # type: ignore[arg-type]
        loaded._lake = lake_component(context, loaded.lake)  # noqa: SLF001 - its own
        return loaded

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where the tables are kept: a file for each lake and selection."""
        chosen = ",".join(self.include) + ("-" + ",".join(self.exclude) if self.exclude else "")
        return DefsStateConfig.from_args(self.defs_state, default_key=f"DuckLakeTablesComponent[{self.lake}:{chosen}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Read the catalog and keep what it says.

        Raises:
            CatalogUnavailableError: The catalog cannot be reached.
        """
        if self._lake is None:
            raise UsageError("the component was not loaded from a defs folder, so it knows no lake")
        lake = self._lake.resource().process_config_and_initialize().connect()
        tables = read_lake_tables(lake, list(self.include), list(self.exclude))
        state_path.write_text(json.dumps({"version": _STATE_VERSION, "tables": [table.to_dict() for table in tables]}, indent=1))

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """The assets that the state knows; none before it was refreshed for the first time."""
        stored: dict[str, Any] = json.loads(state_path.read_text()) if state_path is not None else {"version": _STATE_VERSION, "tables": []}
        if stored.get("version") != _STATE_VERSION:
            raise UsageError("the state of the tables was written by another version: run `dg utils refresh-defs-state`")
        tables = [LakeTable.from_dict(fields) for fields in stored["tables"]]
        specs = table_specs(tables, _Translated(self, timezone=self.timezone, partitions=self.partitions))
        return dg.Definitions(assets=specs, sensors=self._sensors(context, specs))

    def _sensors(self, context: dg.ComponentLoadContext, specs: Sequence[dg.AssetSpec]) -> list[dg.SensorDefinition]:
        settings = self.commit_sensor
        stored = [spec for spec in specs if not spec.is_virtual]
        if settings is None or not stored:
            return []
        lake = self._lake or lake_component(context, self.lake)
        chosen = settings.model_dump(exclude={"request_runs"})
        return [build_commit_sensor(assets=stored, lake_key=lake.resource_key, request_runs=settings.request_runs, **chosen)]


class _Translated(DuckLakeTranslator):
    """Keys and attributes as the component's YAML has them, on both sides of a dependency."""

    def __init__(self, component: DuckLakeTablesComponent, *, timezone: str, partitions: bool) -> None:
        super().__init__(timezone=timezone, partitions=partitions)
        self._translate = component.translation

    def get_asset_key(self, table: LakeTable) -> dg.AssetKey:
        key = super().get_asset_key(table)
        return key if self._translate is None else self._translate(dg.AssetSpec(key), table).key

    def get_asset_spec(self, table: LakeTable, *, references: "dict[str, LakeTable]") -> dg.AssetSpec:  # type: ignore[override]
        spec = super().get_asset_spec(table, references=references)
        return spec if self._translate is None else self._translate(spec.replace_attributes(key=super().get_asset_key(table)), table)


def lake_component(context: dg.ComponentLoadContext, path: str) -> DuckLakeComponent:
    """The lake that another component names by its folder.

    Raises:
        UsageError: There is no such folder, or another component in it.
    """
    # Dagster's own error speaks of a location that nobody has written.
    if not (context.defs_module_path / path).exists():
        raise UsageError(f"there is no folder {path} below {context.defs_module_path}: name that of a DuckLakeComponent", parameter="lake")
    found = context.load_component(path)
    if not isinstance(found, DuckLakeComponent):
        raise UsageError(f"{path} is a {type(found).__name__}: name the folder of a DuckLakeComponent", parameter="lake")
    return found
