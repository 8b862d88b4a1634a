"""DuckLake for Dagster: a resource, an IO manager, checks, sensors and maintenance.

Importing this package imports neither pyspark nor a database driver; names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dagster_shared.libraries import DagsterLibraryRegistry

from ducklake_core import __version__ as __version__

if TYPE_CHECKING:
    from ducklake_dagster.audit_checks import build_audit_checks as build_audit_checks
    from ducklake_dagster.audits import Audit as Audit
    from ducklake_dagster.catalogs import AddressCatalog as AddressCatalog
    from ducklake_dagster.catalogs import Catalog as Catalog
    from ducklake_dagster.catalogs import DuckDBCatalog as DuckDBCatalog
    from ducklake_dagster.catalogs import MySQLCatalog as MySQLCatalog
    from ducklake_dagster.catalogs import PostgresCatalog as PostgresCatalog
    from ducklake_dagster.catalogs import SqliteCatalog as SqliteCatalog
    from ducklake_dagster.check_base import LakeCheck as LakeCheck
    from ducklake_dagster.check_sensor import build_check_sensor as build_check_sensor
    from ducklake_dagster.checks import build_lake_checks as build_lake_checks
    from ducklake_dagster.checks import build_null_fraction_checks as build_null_fraction_checks
    from ducklake_dagster.checks import build_row_count_change_checks as build_row_count_change_checks
    from ducklake_dagster.components.lake import DuckLakeComponent as DuckLakeComponent
    from ducklake_dagster.components.lake import IOManagerSettings as IOManagerSettings
    from ducklake_dagster.components.maintenance import DuckLakeMaintenanceComponent as DuckLakeMaintenanceComponent
    from ducklake_dagster.components.maintenance import LimitSettings as LimitSettings
    from ducklake_dagster.components.maintenance import TriggerSettings as TriggerSettings
    from ducklake_dagster.components.settings import ResolvedCatalog as ResolvedCatalog
    from ducklake_dagster.components.settings import ResolvedName as ResolvedName
    from ducklake_dagster.components.settings import ResolvedStorage as ResolvedStorage
    from ducklake_dagster.components.tables import CommitSensorSettings as CommitSensorSettings
    from ducklake_dagster.components.tables import DuckLakeTablesComponent as DuckLakeTablesComponent
    from ducklake_dagster.input_settings import ChangesFrom as ChangesFrom
    from ducklake_dagster.input_settings import ducklake_input as ducklake_input
    from ducklake_dagster.io_manager import DuckLakeIOManager as DuckLakeIOManager
    from ducklake_dagster.joint_commit import materialize_together as materialize_together
    from ducklake_dagster.lake_tables import LakeColumn as LakeColumn
    from ducklake_dagster.lake_tables import LakeTable as LakeTable
    from ducklake_dagster.lake_tables import TimeColumn as TimeColumn
    from ducklake_dagster.lake_tables import TimeUnit as TimeUnit
    from ducklake_dagster.maintenance import MaintenanceLimits as MaintenanceLimits
    from ducklake_dagster.maintenance import build_compaction_sensor as build_compaction_sensor
    from ducklake_dagster.maintenance import build_maintenance_defs as build_maintenance_defs
    from ducklake_dagster.maintenance import build_maintenance_job as build_maintenance_job
    from ducklake_dagster.maintenance import build_maintenance_schedule as build_maintenance_schedule
    from ducklake_dagster.maintenance_sensor import Triggers as Triggers
    from ducklake_dagster.maintenance_steps import MaintenanceVerb as MaintenanceVerb
    from ducklake_dagster.metadata import ducklake_metadata as ducklake_metadata
    from ducklake_dagster.pipes import pipes_commit as pipes_commit
    from ducklake_dagster.pipes import pipes_extras as pipes_extras
    from ducklake_dagster.pipes import report_ducklake_write as report_ducklake_write
    from ducklake_dagster.resources import AzureStorage as AzureStorage
    from ducklake_dagster.resources import DuckLakeResource as DuckLakeResource
    from ducklake_dagster.resources import GCSStorage as GCSStorage
    from ducklake_dagster.resources import LocalStorage as LocalStorage
    from ducklake_dagster.resources import S3Storage as S3Storage
    from ducklake_dagster.resources import Storage as Storage
    from ducklake_dagster.row_checks import BoundValue as BoundValue
    from ducklake_dagster.row_checks import ColumnBounds as ColumnBounds
    from ducklake_dagster.row_checks import NullFraction as NullFraction
    from ducklake_dagster.row_checks import RowCount as RowCount
    from ducklake_dagster.row_checks import RowCountChange as RowCountChange
    from ducklake_dagster.scan_checks import Reference as Reference
    from ducklake_dagster.scan_checks import RowCondition as RowCondition
    from ducklake_dagster.scan_checks import UniqueKey as UniqueKey
    from ducklake_dagster.sensors import build_commit_sensor as build_commit_sensor
    from ducklake_dagster.storage_checks import DeleteRatio as DeleteRatio
    from ducklake_dagster.storage_checks import FileSize as FileSize
    from ducklake_dagster.storage_checks import InlinedRows as InlinedRows
    from ducklake_dagster.storage_checks import ScheduledFiles as ScheduledFiles
    from ducklake_dagster.storage_checks import SmallFiles as SmallFiles
    from ducklake_dagster.storage_checks import SnapshotBacklog as SnapshotBacklog
    from ducklake_dagster.storage_checks import SoundCatalog as SoundCatalog
    from ducklake_dagster.table_checks import ColumnContract as ColumnContract
    from ducklake_dagster.table_checks import CompletePartitions as CompletePartitions
    from ducklake_dagster.table_checks import Freshness as Freshness
    from ducklake_dagster.table_metadata import with_table_metadata as with_table_metadata
    from ducklake_dagster.table_specs import load_table_specs as load_table_specs
    from ducklake_dagster.translator import DuckLakeTranslator as DuckLakeTranslator
    from ducklake_dagster.validation import validate as validate
    from ducklake_dagster.write_settings import ConcurrentAppends as ConcurrentAppends
    from ducklake_dagster.write_settings import MissingColumns as MissingColumns
    from ducklake_dagster.write_settings import OutOfSlice as OutOfSlice
    from ducklake_dagster.write_settings import SchemaEvolution as SchemaEvolution
    from ducklake_dagster.write_settings import WhenMatched as WhenMatched
    from ducklake_dagster.write_settings import WhenNotMatched as WhenNotMatched
    from ducklake_dagster.write_settings import WhenNotMatchedBySource as WhenNotMatchedBySource
    from ducklake_dagster.write_settings import WriteMode as WriteMode

_EXPORTS = {
    "WriteMode": "write_settings",
    "WhenNotMatchedBySource": "write_settings",
    "WhenNotMatched": "write_settings",
    "WhenMatched": "write_settings",
    "SchemaEvolution": "write_settings",
    "ConcurrentAppends": "write_settings",
    "OutOfSlice": "write_settings",
    "MissingColumns": "write_settings",
    "Storage": "resources",
    "Audit": "audits",
    "ChangesFrom": "input_settings",
    "build_audit_checks": "audit_checks",
    "AddressCatalog": "catalogs",
    "Catalog": "catalogs",
    "AzureStorage": "resources",
    "DuckDBCatalog": "catalogs",
    "DuckLakeIOManager": "io_manager",
    "DuckLakeResource": "resources",
    "GCSStorage": "resources",
    "LocalStorage": "resources",
    "MySQLCatalog": "catalogs",
    "PostgresCatalog": "catalogs",
    "S3Storage": "resources",
    "SqliteCatalog": "catalogs",
    "CommitSensorSettings": "components.tables",
    "LimitSettings": "components.maintenance",
    "TriggerSettings": "components.maintenance",
    "DuckLakeComponent": "components.lake",
    "DuckLakeMaintenanceComponent": "components.maintenance",
    "DuckLakeTablesComponent": "components.tables",
    "DuckLakeTranslator": "translator",
    "IOManagerSettings": "components.lake",
    "ResolvedCatalog": "components.settings",
    "ResolvedName": "components.settings",
    "ResolvedStorage": "components.settings",
    "pipes_commit": "pipes",
    "pipes_extras": "pipes",
    "report_ducklake_write": "pipes",
    "LakeColumn": "lake_tables",
    "LakeTable": "lake_tables",
    "TimeColumn": "lake_tables",
    "TimeUnit": "lake_tables",
    "build_commit_sensor": "sensors",
    "build_compaction_sensor": "maintenance",
    "build_lake_checks": "checks",
    "BoundValue": "row_checks",
    "ColumnBounds": "row_checks",
    "ColumnContract": "table_checks",
    "CompletePartitions": "table_checks",
    "Freshness": "table_checks",
    "NullFraction": "row_checks",
    "RowCount": "row_checks",
    "RowCountChange": "row_checks",
    "DeleteRatio": "storage_checks",
    "FileSize": "storage_checks",
    "InlinedRows": "storage_checks",
    "ScheduledFiles": "storage_checks",
    "SmallFiles": "storage_checks",
    "SnapshotBacklog": "storage_checks",
    "SoundCatalog": "storage_checks",
    "Reference": "scan_checks",
    "RowCondition": "scan_checks",
    "UniqueKey": "scan_checks",
    "LakeCheck": "check_base",
    "build_check_sensor": "check_sensor",
    "build_maintenance_job": "maintenance",
    "MaintenanceVerb": "maintenance_steps",
    "Triggers": "maintenance_sensor",
    "MaintenanceLimits": "maintenance",
    "build_maintenance_defs": "maintenance",
    "build_maintenance_schedule": "maintenance",
    "build_null_fraction_checks": "checks",
    "build_row_count_change_checks": "checks",
    "ducklake_input": "input_settings",
    "materialize_together": "joint_commit",
    "ducklake_metadata": "metadata",
    "load_table_specs": "table_specs",
    "validate": "validation",
    "with_table_metadata": "table_metadata",
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
