"""DuckLake for Dagster: a resource, an IO manager, checks, sensors and maintenance.

Importing this package imports neither pyspark nor a database driver; names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dagster_shared.libraries import DagsterLibraryRegistry

if TYPE_CHECKING:
    from ducklake_dagster.catalogs import DuckDBCatalog as DuckDBCatalog
    from ducklake_dagster.catalogs import PostgresCatalog as PostgresCatalog
    from ducklake_dagster.catalogs import SqliteCatalog as SqliteCatalog
    from ducklake_dagster.checks import build_null_fraction_checks as build_null_fraction_checks
    from ducklake_dagster.checks import build_row_count_change_checks as build_row_count_change_checks
    from ducklake_dagster.io_manager import DuckLakeIOManager as DuckLakeIOManager
    from ducklake_dagster.maintenance import build_compaction_sensor as build_compaction_sensor
    from ducklake_dagster.maintenance import build_maintenance_job as build_maintenance_job
    from ducklake_dagster.maintenance import build_maintenance_schedule as build_maintenance_schedule
    from ducklake_dagster.metadata import ducklake_metadata as ducklake_metadata
    from ducklake_dagster.resources import AzureStorage as AzureStorage
    from ducklake_dagster.resources import DuckLakeResource as DuckLakeResource
    from ducklake_dagster.resources import GCSStorage as GCSStorage
    from ducklake_dagster.resources import LocalStorage as LocalStorage
    from ducklake_dagster.resources import S3Storage as S3Storage
    from ducklake_dagster.sensors import build_commit_sensor as build_commit_sensor

__version__ = "0.1.0"

_EXPORTS = {
    "AzureStorage": "resources",
    "DuckDBCatalog": "catalogs",
    "DuckLakeIOManager": "io_manager",
    "DuckLakeResource": "resources",
    "GCSStorage": "resources",
    "LocalStorage": "resources",
    "PostgresCatalog": "catalogs",
    "S3Storage": "resources",
    "SqliteCatalog": "catalogs",
    "build_commit_sensor": "sensors",
    "build_compaction_sensor": "maintenance",
    "build_maintenance_job": "maintenance",
    "build_maintenance_schedule": "maintenance",
    "build_null_fraction_checks": "checks",
    "build_row_count_change_checks": "checks",
    "ducklake_metadata": "metadata",
}

__all__ = sorted(_EXPORTS)

DagsterLibraryRegistry.register("ducklake-dagster", __version__, is_dagster_package=False)


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
