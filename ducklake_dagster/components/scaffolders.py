"""What `dg scaffold defs` writes."""

from __future__ import annotations

from typing import Any, Literal

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from pydantic import BaseModel, Field

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
"""Catalogs by kind, with a password by the environment."""

_STORAGES = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}


class LakeScaffoldParams(BaseModel):
    """Choices for a new lake component."""

    catalog: Literal["sqlite", "duckdb", "postgres", "mysql"] = Field(default="sqlite", description="Kind of the catalog database.")
    data_path: str = Field(default="lake_files/", description="Directory or s3:// prefix of the lake's files.")


class LakeScaffolder(dg.Scaffolder[LakeScaffoldParams]):
    """Writes a lake with its resource and IO manager."""

    @classmethod
    def get_scaffold_params(cls) -> type[LakeScaffoldParams]:
        """The choices."""
        return LakeScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[LakeScaffoldParams]) -> None:
        """Write the file."""
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
    """Where the lake's own component is."""

    lake: str = Field(default="lake", description="Folder of the DuckLakeComponent below defs.")


class TablesScaffolder(dg.Scaffolder[LakePathParams]):
    """Writes a component for all tables of a lake."""

    @classmethod
    def get_scaffold_params(cls) -> type[LakePathParams]:
        """The choices."""
        return LakePathParams

    def scaffold(self, request: dg.ScaffoldRequest[LakePathParams]) -> None:
        """Write the file."""
        scaffold_component(request, {"lake": request.params.lake, "include": ["*"], "commit_sensor": {}})


class MaintenanceScaffolder(dg.Scaffolder[LakePathParams]):
    """Writes a nightly maintenance job."""

    @classmethod
    def get_scaffold_params(cls) -> type[LakePathParams]:
        """The choices."""
        return LakePathParams

    def scaffold(self, request: dg.ScaffoldRequest[LakePathParams]) -> None:
        """Write the file."""
        attributes = {"lake": request.params.lake, "cron_schedule": "H 3 * * *", "expire_older_than": "7 days", "keep_last": 20}
        scaffold_component(request, attributes)
