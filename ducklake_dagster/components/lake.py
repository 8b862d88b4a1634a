"""A lake in YAML: the resource, and the IO manager."""

# No `from __future__ import annotations`: Dagster reads the annotations of components.
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from ducklake_core.errors import UsageError
from ducklake_dagster.components.scaffolders import LakeScaffolder
from ducklake_dagster.components.settings import ResolvedCatalog, ResolvedName, ResolvedStorage, refuse_no_key
from ducklake_dagster.io_manager import DuckLakeIOManager
from ducklake_dagster.resources import DuckLakeResource
from ducklake_dagster.write_settings import ConcurrentAppends, MissingColumns, OutOfSlice, SchemaEvolution, WriteMode


class IOManagerSettings(dg.Model, dg.Resolvable):
    """Settings of the IO manager; those of :class:`DuckLakeIOManager`."""

    key: Annotated[str, Field(description="Resource key.")] = "io_manager"
    table_schema: Annotated[ResolvedName, Field(description="DuckLake schema of assets that do not name one.")] = None
    write_mode: WriteMode = "overwrite"
    schema_evolution: SchemaEvolution = "strict"
    missing_columns: MissingColumns = "auto"
    out_of_slice: OutOfSlice = "error"
    concurrent_appends: ConcurrentAppends = "fail"
    default_frame: Literal["auto", "spark", "arrow", "pandas", "polars"] = "auto"
    comments: bool = True
    pin_reads: bool = False
    branch: Annotated[ResolvedName, Field(description="Name of a branch; production when empty.")] = None


@dg.scaffold_with(LakeScaffolder)
class DuckLakeComponent(dg.Component, dg.Model, dg.Resolvable):
    """A DuckLake: its resource, and an IO manager that stores assets as tables.

    Other components name it by its folder below ``defs``.
    """

    catalog: ResolvedCatalog
    storage: ResolvedStorage
    resource_key: Annotated[str, Field(description="Resource key of the lake.")] = "lake"
    create_if_missing: Annotated[bool, Field(description="Create the lake on first use.")] = False
    encrypted: Annotated[bool, Field(description="Whether a lake that is created here encrypts its files.")] = False
    version: Annotated[Literal["1.0", "1.1"], Field(description="Of the format, of a lake that is created here.")] = "1.0"
    override_data_path: Annotated[bool, Field(description="Use data_path in place of the stored one.")] = False
    allowed_paths: Annotated[Sequence[str], Field(description="Prefixes of further places that the catalog may name.")] = ()
    io_manager: Annotated[IOManagerSettings | None, Field(description="The IO manager; none when left out.")] = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Tags by which tools group components."""
        return dg.ComponentTypeSpec(description="A DuckLake: resource and IO manager.", tags=["ducklake", "lakehouse"])

    def resource(self) -> DuckLakeResource:
        """The lake's resource."""
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
        """The resources; nothing is connected to."""
        refuse_no_key("resource_key", self.resource_key)
        resources: dict[str, Any] = {self.resource_key: self.resource()}
        settings = self.io_manager
        if settings is not None:
            refuse_no_key("key of the io_manager", settings.key)
            if settings.key == self.resource_key:
                raise UsageError(f"the io_manager and the lake both have the key {settings.key}: give one of them another", parameter="key")
            chosen = {name: getattr(settings, name) for name in type(settings).model_fields if name not in ("key", "table_schema")}
            resources[settings.key] = DuckLakeIOManager(lake=resources[self.resource_key], schema=settings.table_schema, **chosen)
        return dg.Definitions(resources=resources)
