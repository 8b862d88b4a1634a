"""Define the components of a lake: its resource with an IO manager, and its tables as assets."""

# No `from __future__ import annotations`: Dagster reads the annotations of components.
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext
from dagster._core.storage.defs_state.base import DefsStateStorage
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field, PrivateAttr, TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from ducklake_core.errors import CatalogUnavailableError, NotALakeError, UsageError
from ducklake_dagster.assets.settings import ConcurrentAppends, MissingColumns, OutOfSlice, SchemaEvolution, WriteMode
from ducklake_dagster.assets.translator import DuckLakeTranslator, LakeTable, read_lake_tables, table_specs
from ducklake_dagster.checks.sensor import checks_with_sensor
from ducklake_dagster.components.checks import CheckSensorSettings, ResolvedChecks
from ducklake_dagster.components.yaml_types import yaml_schema, yaml_type
from ducklake_dagster.config.catalogs import AddressCatalog, Catalog, catalog_of
from ducklake_dagster.config.resources import DuckLakeResource, Storage
from ducklake_dagster.io_manager import DuckLakeIOManager
from ducklake_dagster.sensors import build_commit_sensor

_CATALOG: TypeAdapter[Any] = TypeAdapter(Annotated[Catalog, Field(discriminator="kind")])
_STORAGE: TypeAdapter[Any] = TypeAdapter(Annotated[Storage, Field(discriminator="kind")])
# Dagster renders an unset variable without an error. These patterns find the variables in a string, and expressions that have a value
# for an unset variable, such as {{ env.SCHEMA or 'main' }}. Quoted parts are removed before, because they may contain anything.
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_VARIABLE = re.compile(r"\benv\.([A-Za-z_]\w*)")
_ONLY_VARIABLE = re.compile(r"\s*\{\{-?\s*env\.([A-Za-z_]\w*)\s*-?\}\}\s*")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WITH_A_DEFAULT = re.compile(r"(?<!\.)\b(or|and|if|is|default|d)\b")
CATALOGS: dict[str, dict[str, Any]] = {
    "sqlite": {"kind": "sqlite", "path": "lake.sqlite"},
    "duckdb": {"kind": "duckdb", "path": "lake.ducklake"},
    "postgres": {
        "kind": "postgres",
        "host": "{{ env.PGHOST }}",
        "database": "lake",
        "user": "{{ env.PGUSER }}",
        "password": "{{ env.PGPASSWORD }}",
    },
    "mysql": {
        "kind": "mysql",
        "host": "{{ env.MYSQL_HOST }}",
        "database": "lake",
        "user": "{{ env.MYSQL_USER }}",
        "password": "{{ env.MYSQL_PASSWORD }}",
    },
}
"""Attributes of a new component by kind of catalog, with passwords from the environment."""
_STORAGES = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}

_STATE_VERSION = 1


def _resolve_catalog(context: dg.ResolutionContext, value: Any) -> Any:
    found = _resolved_now_or_later(context, value)
    if isinstance(found, dg.EnvVar):
        return AddressCatalog(address=found)
    return catalog_of(found) if isinstance(found, str) else _checked(_CATALOG, Catalog, "catalog", found)


def _resolve_storage(context: dg.ResolutionContext, value: Any) -> Any:
    return _checked(_STORAGE, Storage, "storage", _resolved_now_or_later(context, value))


def _resolved_now_or_later(context: dg.ResolutionContext, value: Any) -> Any:
    """Return a value of the YAML, with unset environment variables as ``dg.EnvVar``, which is read when a run begins.

    The build of an image then does not need the password, and no run continues without it. An expression with a value for an unset
    variable, such as ``env.NAME or 'main'``, is evaluated at once.

    Args:
        context: Context of the component.
        value: Value in the YAML: a string, a list, a mapping or a number.

    Raises:
        UsageError: A variable that is only a part of a string is not set.
    """
    if isinstance(value, Mapping):
        return {key: _resolved_now_or_later(context, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_resolved_now_or_later(context, one) for one in value]
    if isinstance(value, str) and "{{" in value:
        only = _ONLY_VARIABLE.fullmatch(value)
        if only is not None and only[1] not in os.environ:
            return dg.EnvVar(only[1])
        expressions = (_QUOTED.sub("", text) for text in _EXPRESSION.findall(value))
        needed = (name for text in expressions if not _WITH_A_DEFAULT.search(text) for name in _VARIABLE.findall(text))
        unset = [name for name in needed if name not in os.environ]
        if unset:
            raise UsageError(
                f"environment variable {unset[0]} in {value!r} is not set. Set it before the definitions are loaded", variable=unset[0]
            )
    return context.resolve_value(value)


def _checked(adapter: TypeAdapter[Any], kinds: Any, what: str, value: object) -> Any:
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if isinstance(kind, dg.EnvVar):
        name = kind.env_var_name
        raise UsageError(
            f"environment variable {name} in the {what} of a DuckLakeComponent is not set. Set it before the definitions are loaded",
            variable=name,
        )
    try:
        return adapter.validate_python(_with_numbers(kinds, value))
    except ValidationError as error:
        # The inputs are not repeated: they may be secrets.
        faults = [_text(fault) for fault in error.errors(include_input=False)]
    raise UsageError(f"the {what} of a DuckLakeComponent is invalid: {'; '.join(faults)}", parameter=what)


def _with_numbers(kinds: Any, value: Any) -> Any:
    """Return the mapping with environment variables of numeric fields, such as a port, marked as numbers."""
    if not isinstance(value, Mapping):
        return value
    fields: Mapping[str, Any] = next(
        (one.model_fields for one in get_args(kinds) if one.model_fields["kind"].default == value.get("kind")), {}
    )
    numbers = {name for name, field in fields.items() if field.annotation is int}
    later = {name: one for name, one in value.items() if name in numbers and isinstance(one, dg.EnvVar)}
    return {**value, **{name: dg.EnvVar.int(one.env_var_name) for name, one in later.items()}}


def _text(fault: Mapping[str, Any]) -> str:
    rejected = fault.get("ctx", {}).get("error")
    text = rejected.message if isinstance(rejected, UsageError) else fault["msg"]
    return ": ".join(part for part in (".".join(map(str, fault["loc"])), text) if part)


def reject_no_key(what: str, key: object) -> None:
    """Reject a value that cannot be the key of a resource.

    Raises:
        UsageError: The value is not an identifier.
    """
    if not isinstance(key, str) or not key.isidentifier():
        raise UsageError(f"{what} must be a name of letters, digits and _, not {key!r}", parameter=what)


def _kept(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    # EnvVar is a string: pydantic would replace it by a plain one, the variable's name.
    return value if isinstance(value, dg.EnvVar) else check(value)


ResolvedName: TypeAlias = Annotated[
    str | None, WrapValidator(_kept), dg.Resolver(_resolved_now_or_later, model_field_type=str | None, inject_before_resolve=False)
]
"""A name, or the environment variable that contains it when a run begins."""


def _of_union(kinds: Any) -> dict[str, Any]:
    """Return the JSON schema of an attribute that is one of these classes."""
    return yaml_schema({one.model_fields["kind"].default: one.model_json_schema() for one in get_args(kinds)})


ResolvedCatalog: TypeAlias = Annotated[
    Catalog,
    dg.Resolver(
        _resolve_catalog,
        model_field_type=yaml_type("CatalogAttributes", _of_union(Catalog)),
        inject_before_resolve=False,
        description=(
            "Catalog of the lake: an address, or a mapping with kind (sqlite, duckdb, postgres or mysql) and the fields of that catalog."
        ),
        examples=[{"kind": "postgres", "host": "{{ env.PGHOST }}", "database": "lake", "password": "{{ env.PGPASSWORD }}"}],
    ),
]
ResolvedStorage: TypeAlias = Annotated[
    Storage,
    dg.Resolver(
        _resolve_storage,
        model_field_type=yaml_type("StorageAttributes", _of_union(Storage)),
        inject_before_resolve=False,
        description="Storage of the lake: a mapping with kind (local, s3, gcs or azure), data_path and the credentials of that storage.",
        examples=[{"kind": "s3", "data_path": "s3://bucket/lake/"}],
    ),
]


class LakeScaffoldParams(BaseModel):
    """Choices for a new lake component."""

    catalog: Literal["sqlite", "duckdb", "postgres", "mysql"] = Field(default="sqlite", description="Kind of the catalog database.")
    data_path: str = Field(default="lake_files/", description="Directory or URL prefix, such as s3://bucket/lake/, of the lake's files.")


class LakeScaffolder(dg.Scaffolder[LakeScaffoldParams]):
    """Write a component for a lake with its resource and IO manager."""

    @classmethod
    def get_scaffold_params(cls) -> "type[LakeScaffoldParams]":
        """Return the type of the choices."""
        return LakeScaffoldParams

    def scaffold(self, request: "dg.ScaffoldRequest[LakeScaffoldParams]") -> None:
        """Write the component's file."""
        params = request.params
        scheme = params.data_path.partition("://")[0] if "://" in params.data_path else ""
        attributes = {
            "catalog": CATALOGS[params.catalog],
            "storage": {
                "kind": _STORAGES.get(scheme, "local"),
                "data_path": params.data_path,
            },
            "create_if_missing": True,
            "io_manager": {"key": "io_manager"},
        }
        scaffold_component(request, attributes)


class LakePathParams(BaseModel):
    """Parameters that locate the component of the lake."""

    lake: str = Field(default="lake", description="Folder of the DuckLakeComponent below defs.")


class TablesScaffolder(dg.Scaffolder[LakePathParams]):
    """Write a component for all tables of a lake."""

    @classmethod
    def get_scaffold_params(cls) -> "type[LakePathParams]":
        """Return the type of the choices."""
        return LakePathParams

    def scaffold(self, request: "dg.ScaffoldRequest[LakePathParams]") -> None:
        """Write the component's file."""
        scaffold_component(request, {"lake": request.params.lake, "include": ["*"], "commit_sensor": {}})


class MaintenanceScaffolder(dg.Scaffolder[LakePathParams]):
    """Write a component for a nightly maintenance job."""

    @classmethod
    def get_scaffold_params(cls) -> "type[LakePathParams]":
        """Return the type of the choices."""
        return LakePathParams

    def scaffold(self, request: "dg.ScaffoldRequest[LakePathParams]") -> None:
        """Write the component's file."""
        attributes = {"lake": request.params.lake, "cron_schedule": "H 3 * * *", "expire_older_than": "7 days", "keep_last": 20}
        scaffold_component(request, attributes)


class IOManagerSettings(dg.Model, dg.Resolvable):
    """Settings of the IO manager, as in :class:`DuckLakeIOManager`."""

    key: Annotated[str, Field(description="Resource key of the IO manager.")] = "io_manager"
    table_schema: Annotated[ResolvedName, Field(description="DuckLake schema of assets whose metadata does not set one.")] = None
    write_mode: Annotated[WriteMode, Field(description="Way to write an output.")] = "overwrite"
    schema_evolution: Annotated[SchemaEvolution, Field(description="Treatment of frames with other columns than the table.")] = "strict"
    missing_columns: Annotated[MissingColumns, Field(description="Treatment of columns that the frame lacks.")] = "auto"
    out_of_slice: Annotated[OutOfSlice, Field(description="Treatment of rows outside of the run's partitions.")] = "error"
    concurrent_appends: Annotated[
        ConcurrentAppends, Field(description="Treatment of rows that another writer commits during an overwrite.")
    ] = "fail"
    default_frame: Annotated[
        Literal["auto", "spark", "arrow", "pandas", "polars"], Field(description="Type of inputs without a type annotation.")
    ] = "auto"
    comments: Annotated[bool, Field(description="Store descriptions of assets and columns as comments.")] = True
    pin_reads: Annotated[bool, Field(description="Read all inputs of a run at one snapshot.")] = False
    branch: Annotated[ResolvedName, Field(description="Name of a branch to write to. Default: no branch.")] = None


@dg.scaffold_with(LakeScaffolder)
class DuckLakeComponent(dg.Component, dg.Model, dg.Resolvable):
    """A DuckLake: its resource, and an IO manager that stores assets as tables.

    Other components refer to it by its folder below ``defs``.
    """

    catalog: ResolvedCatalog
    storage: ResolvedStorage
    resource_key: Annotated[str, Field(description="Resource key of the lake.")] = "lake"
    create_if_missing: Annotated[bool, Field(description="Create the lake on first use if it does not exist.")] = False
    encrypted: Annotated[bool, Field(description="Encrypt the files of a lake that this component creates.")] = False
    version: Annotated[Literal["1.0", "1.1"], Field(description="DuckLake format version of a lake that this component creates.")] = "1.0"
    override_data_path: Annotated[bool, Field(description="Use data_path instead of the stored data path.")] = False
    allowed_paths: Annotated[Sequence[str], Field(description="Paths outside of the data path from which files may be read.")] = ()
    io_manager: Annotated[IOManagerSettings | None, Field(description="Settings of the IO manager. Default: no IO manager.")] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description and the tags that tools use to group components."""
        return dg.ComponentTypeSpec(description="A DuckLake: resource and IO manager.", tags=["ducklake", "lakehouse"])

    def resource(self) -> DuckLakeResource:
        """Return the lake's resource."""
        return DuckLakeResource(
            catalog=self.catalog,
            storage=self.storage,
            create_if_missing=self.create_if_missing,
            encrypted=self.encrypted,
            version=self.version,
            override_data_path=self.override_data_path,
            allowed_paths=list(self.allowed_paths),
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002 - a component's signature
        """Build the resources, without a connection to the lake."""
        reject_no_key("resource_key", self.resource_key)
        resources: dict[str, Any] = {self.resource_key: self.resource()}
        settings = self.io_manager
        if settings is not None:
            reject_no_key("key of the io_manager", settings.key)
            if settings.key == self.resource_key:
                raise UsageError(
                    f"the io_manager and the lake both have the resource key {settings.key}. Use two different keys", parameter="key"
                )
            chosen = {name: getattr(settings, name) for name in type(settings).model_fields if name not in ("key", "table_schema")}
            resources[settings.key] = DuckLakeIOManager(lake=resources[self.resource_key], schema=settings.table_schema, **chosen)
        return dg.Definitions(resources=resources)


class CommitSensorSettings(dg.Model, dg.Resolvable):
    """Settings of the sensor, as in :func:`build_commit_sensor`."""

    name: Annotated[str, Field(description="Name of the sensor.")] = "ducklake_commits"
    minimum_interval_seconds: Annotated[int, Field(description="Seconds between evaluations.")] = 30
    request_runs: Annotated[
        str | None, Field(description="Selection of assets. A run of them is requested when their upstream tables have changed.")
    ] = None
    report_history: Annotated[bool, Field(description="Report all snapshots from the oldest on. Default: only new ones.")] = False


@dg.scaffold_with(TablesScaffolder)
class DuckLakeTablesComponent(dg.StateBackedComponent, dg.Model, dg.Resolvable):
    """An asset for each table and view of a DuckLake, with columns, comments and partition keys.

    The catalog is read when the state of definitions is refreshed: by ``dg dev``, and by ``dg utils refresh-defs-state`` elsewhere.
    """

    lake: Annotated[str, Field(description="Folder of the DuckLakeComponent below defs.")]
    include: Annotated[Sequence[str], Field(description="Tables as schema.name, with * and ? as wildcards. Default: all tables.")] = ("*",)
    exclude: Annotated[Sequence[str], Field(description="Tables to leave out, with * and ? as wildcards.")] = ()
    partitions: Annotated[bool, Field(description="Make partitioned assets of tables that are partitioned by a time column.")] = False
    timezone: Annotated[str, Field(description="Time zone of the partitions.")] = "UTC"
    translation: Annotated[TranslationFn[LakeTable] | None, TranslationFnResolver[LakeTable](lambda table: {"table": table})] = None
    commit_sensor: Annotated[
        CommitSensorSettings | None, Field(description="Sensor that reports commits of other clients. Default: no sensor.")
    ] = None
    checks: ResolvedChecks = ()
    check_sensor: Annotated[CheckSensorSettings, Field(description="Sensor that evaluates the checks.")] = CheckSensorSettings()
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()

    _lake: DuckLakeComponent | None = PrivateAttr(default=None)

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Return the description and the tags that tools use to group components."""
        return dg.ComponentTypeSpec(description="Tables and views of a DuckLake as assets.", tags=["ducklake", "lakehouse"])

    @classmethod
    def load(cls, attributes: object, context: dg.ComponentLoadContext) -> "DuckLakeTablesComponent":
        """Return the component, together with the component of its lake."""
        # Only load() has a context in which other components can be found; the state is written later, without one.
        loaded = super().load(attributes, context)  # type: ignore[arg-type]
        loaded._lake = lake_component(context, loaded.lake)  # noqa: SLF001 - its own
        return loaded

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Return the configuration of the state file: one file for each lake and selection."""
        chosen = ",".join(self.include) + ("-" + ",".join(self.exclude) if self.exclude else "")
        return DefsStateConfig.from_args(self.defs_state, default_key=f"DuckLakeTablesComponent[{self.lake}:{chosen}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Read the tables from the catalog and store them in the state file.

        Raises:
            CatalogUnavailableError: The catalog cannot be reached.
        """
        if self._lake is None:
            raise UsageError(
                "the component has no lake because it was not loaded from a defs folder. Load it with dg, or from the project's defs folder"
            )
        lake = self._lake.resource().connect_to_existing()
        tables = read_lake_tables(lake, list(self.include), list(self.exclude))
        state_path.write_text(json.dumps({"version": _STATE_VERSION, "tables": [table.to_dict() for table in tables]}, indent=1))

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets. ``dg dev`` and ``dg check`` read the catalog before; if it cannot be reached, the stored state is used."""
        try:
            return super().build_defs(context)
        except (CatalogUnavailableError, NotALakeError, UsageError) as error:
            if isinstance(error, UsageError) and "variable" not in error.details:
                raise
            with DefinitionsLoadContext.get().state_path(
                self.defs_state_config, DefsStateStorage.get(), context.project_root
            ) as state_path:
                defs = self.build_defs_from_state(context, state_path)
                found = "the tables of the last refresh are used" if state_path is not None else "there are no assets for its tables yet"
            dg.get_dagster_logger().warning("the tables of lake %r were not read, so %s: %s", self.lake, found, error.message)
            return defs

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Build the assets in the state. Before the first refresh there are none."""
        stored: dict[str, Any] = json.loads(state_path.read_text()) if state_path is not None else {"version": _STATE_VERSION, "tables": []}
        if stored.get("version") != _STATE_VERSION:
            raise UsageError(
                "the state file of the tables was written by another version of ducklake_dagster. Run `dg utils refresh-defs-state`"
            )
        tables = [LakeTable.from_dict(fields) for fields in stored["tables"]]
        specs = table_specs(tables, _Translated(self, timezone=self.timezone, partitions=self.partitions))
        with_rows = [spec for spec in specs if not spec.is_virtual]
        settings = self.commit_sensor
        if not with_rows or (settings is None and not self.checks):
            return dg.Definitions(assets=specs)
        lake_key = (self._lake or lake_component(context, self.lake)).resource_key
        sensors = []
        if settings is not None:
            chosen = settings.model_dump(exclude={"request_runs"})
            sensors.append(build_commit_sensor(assets=with_rows, lake_key=lake_key, request_runs=settings.request_runs, **chosen))
        checks = checks_with_sensor(with_rows, self.checks, lake_key=lake_key, **self.check_sensor.model_dump())
        return dg.Definitions.merge(dg.Definitions(assets=specs, sensors=sensors), checks)


class _Translated(DuckLakeTranslator):
    """Apply the component's YAML to keys and attributes of assets and of their dependencies."""

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
    """Return the component of the lake in a folder.

    Args:
        context: Context of the other component.
        path: Folder below ``defs``.

    Raises:
        UsageError: The folder does not exist, or contains another component.
    """
    # Dagster's own error has a location that is not in the YAML.
    if not (context.defs_module_path / path).exists():
        raise UsageError(
            f"folder {path} does not exist below {context.defs_module_path}. Set lake to the folder of a DuckLakeComponent",
            parameter="lake",
        )
    found = context.load_component(path)
    if not isinstance(found, DuckLakeComponent):
        raise UsageError(
            f"folder {path} contains a {type(found).__name__}. Set lake to the folder of a DuckLakeComponent", parameter="lake"
        )
    return found
