"""DuckLake for Dagster: a resource, an IO manager, checks, sensors and maintenance.

In: a project's assets with their metadata, and the configuration of a lake. Out: one commit for each output, asset events, and definitions
for Dagster. ``config`` opens the lake. ``io_manager`` writes outputs and reads inputs by the plans of ``io``; ``multi_asset`` commits
several assets together, and ``pipes`` commits from an external process. ``assets`` maps assets to tables and tables to assets,
``partitions`` maps partition keys to rows, and ``statistics`` reads numbers of tables and partitions from the catalog. ``checks``,
``sensors`` and ``maintenance`` build definitions for Dagster, and ``components`` builds them from YAML. ``metadata`` and ``validation``
help to write a project's definitions and to test them.

Importing this package imports neither pyspark nor a database driver; names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

try:
    from dagster_shared.libraries import DagsterLibraryRegistry
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"ducklake_dagster needs Dagster ({error}). Run pip install 'ducklake-dagster[dagster]'", name=error.name
    ) from error

from ducklake_core import __version__ as __version__

if TYPE_CHECKING:
    from ducklake_dagster.assets.settings import ChangesFrom as ChangesFrom
    from ducklake_dagster.assets.settings import ConcurrentAppends as ConcurrentAppends
    from ducklake_dagster.assets.settings import MissingColumns as MissingColumns
    from ducklake_dagster.assets.settings import OutOfSlice as OutOfSlice
    from ducklake_dagster.assets.settings import SchemaEvolution as SchemaEvolution
    from ducklake_dagster.assets.settings import WhenMatched as WhenMatched
    from ducklake_dagster.assets.settings import WhenNotMatched as WhenNotMatched
    from ducklake_dagster.assets.settings import WhenNotMatchedBySource as WhenNotMatchedBySource
    from ducklake_dagster.assets.settings import WriteMode as WriteMode
    from ducklake_dagster.assets.translator import DuckLakeTranslator as DuckLakeTranslator
    from ducklake_dagster.assets.translator import LakeColumn as LakeColumn
    from ducklake_dagster.assets.translator import LakeTable as LakeTable
    from ducklake_dagster.assets.translator import TimeColumn as TimeColumn
    from ducklake_dagster.assets.translator import TimeUnit as TimeUnit
    from ducklake_dagster.assets.translator import load_table_specs as load_table_specs
    from ducklake_dagster.checks.base import LakeCheck as LakeCheck
    from ducklake_dagster.checks.builders import build_audit_checks as build_audit_checks
    from ducklake_dagster.checks.builders import build_lake_checks as build_lake_checks
    from ducklake_dagster.checks.builders import build_null_fraction_checks as build_null_fraction_checks
    from ducklake_dagster.checks.builders import build_row_count_change_checks as build_row_count_change_checks
    from ducklake_dagster.checks.row import BoundValue as BoundValue
    from ducklake_dagster.checks.row import ColumnBounds as ColumnBounds
    from ducklake_dagster.checks.row import ColumnContract as ColumnContract
    from ducklake_dagster.checks.row import ColumnSchemaChange as ColumnSchemaChange
    from ducklake_dagster.checks.row import CompletePartitions as CompletePartitions
    from ducklake_dagster.checks.row import Freshness as Freshness
    from ducklake_dagster.checks.row import NullFraction as NullFraction
    from ducklake_dagster.checks.row import RowCount as RowCount
    from ducklake_dagster.checks.row import RowCountAnomaly as RowCountAnomaly
    from ducklake_dagster.checks.row import RowCountChange as RowCountChange
    from ducklake_dagster.checks.scan import Reference as Reference
    from ducklake_dagster.checks.scan import RowCondition as RowCondition
    from ducklake_dagster.checks.scan import UniqueKey as UniqueKey
    from ducklake_dagster.checks.sensor import build_check_sensor as build_check_sensor
    from ducklake_dagster.checks.storage import DeleteRatio as DeleteRatio
    from ducklake_dagster.checks.storage import FileSize as FileSize
    from ducklake_dagster.checks.storage import InlinedRows as InlinedRows
    from ducklake_dagster.checks.storage import ScheduledFiles as ScheduledFiles
    from ducklake_dagster.checks.storage import SmallFiles as SmallFiles
    from ducklake_dagster.checks.storage import SnapshotBacklog as SnapshotBacklog
    from ducklake_dagster.checks.storage import SoundCatalog as SoundCatalog
    from ducklake_dagster.components.checks import CheckSensorSettings as CheckSensorSettings
    from ducklake_dagster.components.checks import ResolvedChecks as ResolvedChecks
    from ducklake_dagster.components.lake import CommitSensorSettings as CommitSensorSettings
    from ducklake_dagster.components.lake import DuckLakeComponent as DuckLakeComponent
    from ducklake_dagster.components.lake import DuckLakeTablesComponent as DuckLakeTablesComponent
    from ducklake_dagster.components.lake import IOManagerSettings as IOManagerSettings
    from ducklake_dagster.components.lake import ResolvedCatalog as ResolvedCatalog
    from ducklake_dagster.components.lake import ResolvedName as ResolvedName
    from ducklake_dagster.components.lake import ResolvedStorage as ResolvedStorage
    from ducklake_dagster.components.maintenance import DuckLakeMaintenanceComponent as DuckLakeMaintenanceComponent
    from ducklake_dagster.components.maintenance import LimitSettings as LimitSettings
    from ducklake_dagster.components.maintenance import TriggerSettings as TriggerSettings
    from ducklake_dagster.config.catalogs import AddressCatalog as AddressCatalog
    from ducklake_dagster.config.catalogs import Catalog as Catalog
    from ducklake_dagster.config.catalogs import DuckDBCatalog as DuckDBCatalog
    from ducklake_dagster.config.catalogs import MySQLCatalog as MySQLCatalog
    from ducklake_dagster.config.catalogs import PostgresCatalog as PostgresCatalog
    from ducklake_dagster.config.catalogs import SqliteCatalog as SqliteCatalog
    from ducklake_dagster.config.resources import AzureStorage as AzureStorage
    from ducklake_dagster.config.resources import DuckLakeResource as DuckLakeResource
    from ducklake_dagster.config.resources import GCSStorage as GCSStorage
    from ducklake_dagster.config.resources import LocalStorage as LocalStorage
    from ducklake_dagster.config.resources import S3Storage as S3Storage
    from ducklake_dagster.config.resources import Storage as Storage
    from ducklake_dagster.io.audits import Audit as Audit
    from ducklake_dagster.io_manager import DuckLakeIOManager as DuckLakeIOManager
    from ducklake_dagster.maintenance.jobs import MaintenanceLimits as MaintenanceLimits
    from ducklake_dagster.maintenance.jobs import Triggers as Triggers
    from ducklake_dagster.maintenance.jobs import build_compaction_sensor as build_compaction_sensor
    from ducklake_dagster.maintenance.jobs import build_maintenance_defs as build_maintenance_defs
    from ducklake_dagster.maintenance.jobs import build_maintenance_job as build_maintenance_job
    from ducklake_dagster.maintenance.jobs import build_maintenance_schedule as build_maintenance_schedule
    from ducklake_dagster.maintenance.steps import MaintenanceVerb as MaintenanceVerb
    from ducklake_dagster.metadata import ducklake_input as ducklake_input
    from ducklake_dagster.metadata import ducklake_metadata as ducklake_metadata
    from ducklake_dagster.metadata import with_table_metadata as with_table_metadata
    from ducklake_dagster.multi_asset import materialize_together as materialize_together
    from ducklake_dagster.pipes import pipes_commit as pipes_commit
    from ducklake_dagster.pipes import pipes_extras as pipes_extras
    from ducklake_dagster.pipes import report_ducklake_write as report_ducklake_write
    from ducklake_dagster.sensors import build_commit_sensor as build_commit_sensor
    from ducklake_dagster.validation import validate as validate

# Public names by module, for __getattr__. Type checkers do not follow __getattr__, so the block above repeats the names for them.
_EXPORTS = {
    "WriteMode": "assets.settings",
    "WhenNotMatchedBySource": "assets.settings",
    "WhenNotMatched": "assets.settings",
    "WhenMatched": "assets.settings",
    "SchemaEvolution": "assets.settings",
    "ConcurrentAppends": "assets.settings",
    "OutOfSlice": "assets.settings",
    "MissingColumns": "assets.settings",
    "Storage": "config.resources",
    "Audit": "io.audits",
    "ChangesFrom": "assets.settings",
    "build_audit_checks": "checks.builders",
    "AddressCatalog": "config.catalogs",
    "Catalog": "config.catalogs",
    "AzureStorage": "config.resources",
    "DuckDBCatalog": "config.catalogs",
    "DuckLakeIOManager": "io_manager",
    "DuckLakeResource": "config.resources",
    "GCSStorage": "config.resources",
    "LocalStorage": "config.resources",
    "MySQLCatalog": "config.catalogs",
    "PostgresCatalog": "config.catalogs",
    "S3Storage": "config.resources",
    "SqliteCatalog": "config.catalogs",
    "CheckSensorSettings": "components.checks",
    "ResolvedChecks": "components.checks",
    "CommitSensorSettings": "components.lake",
    "LimitSettings": "components.maintenance",
    "TriggerSettings": "components.maintenance",
    "DuckLakeComponent": "components.lake",
    "DuckLakeMaintenanceComponent": "components.maintenance",
    "DuckLakeTablesComponent": "components.lake",
    "DuckLakeTranslator": "assets.translator",
    "IOManagerSettings": "components.lake",
    "ResolvedCatalog": "components.lake",
    "ResolvedName": "components.lake",
    "ResolvedStorage": "components.lake",
    "pipes_commit": "pipes",
    "pipes_extras": "pipes",
    "report_ducklake_write": "pipes",
    "LakeColumn": "assets.translator",
    "LakeTable": "assets.translator",
    "TimeColumn": "assets.translator",
    "TimeUnit": "assets.translator",
    "build_commit_sensor": "sensors",
    "build_compaction_sensor": "maintenance.jobs",
    "build_lake_checks": "checks.builders",
    "BoundValue": "checks.row",
    "ColumnBounds": "checks.row",
    "ColumnContract": "checks.row",
    "ColumnSchemaChange": "checks.row",
    "CompletePartitions": "checks.row",
    "Freshness": "checks.row",
    "NullFraction": "checks.row",
    "RowCount": "checks.row",
    "RowCountAnomaly": "checks.row",
    "RowCountChange": "checks.row",
    "DeleteRatio": "checks.storage",
    "FileSize": "checks.storage",
    "InlinedRows": "checks.storage",
    "ScheduledFiles": "checks.storage",
    "SmallFiles": "checks.storage",
    "SnapshotBacklog": "checks.storage",
    "SoundCatalog": "checks.storage",
    "Reference": "checks.scan",
    "RowCondition": "checks.scan",
    "UniqueKey": "checks.scan",
    "LakeCheck": "checks.base",
    "build_check_sensor": "checks.sensor",
    "build_maintenance_job": "maintenance.jobs",
    "MaintenanceVerb": "maintenance.steps",
    "Triggers": "maintenance.jobs",
    "MaintenanceLimits": "maintenance.jobs",
    "build_maintenance_defs": "maintenance.jobs",
    "build_maintenance_schedule": "maintenance.jobs",
    "build_null_fraction_checks": "checks.builders",
    "build_row_count_change_checks": "checks.builders",
    "ducklake_input": "metadata",
    "materialize_together": "multi_asset",
    "ducklake_metadata": "metadata",
    "load_table_specs": "assets.translator",
    "validate": "validation",
    "with_table_metadata": "metadata",
}

__all__ = sorted(_EXPORTS)

# For a library of Dagster itself, Dagster requires the version to match its own.
DagsterLibraryRegistry.register("ducklake-dagster", __version__, is_dagster_package=False)


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
