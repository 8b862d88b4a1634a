"""DuckLake in Python: catalog, commits, scans and maintenance, with Arrow in this process or on Spark.

Importing this package imports neither pyspark nor SQLAlchemy; names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ducklake_core.catalog.feed import Bound as Bound
    from ducklake_core.catalog.reading.definitions import Macro as Macro
    from ducklake_core.catalog.reading.definitions import ViewState as ViewState
    from ducklake_core.catalog.reading.options import Hold as Hold
    from ducklake_core.catalog.reading.options import ScopedOption as ScopedOption
    from ducklake_core.catalog.writing.expiry import DeadTable as DeadTable
    from ducklake_core.catalog.writing.expiry import FileKind as FileKind
    from ducklake_core.catalog.writing.expiry import UnneededFile as UnneededFile
    from ducklake_core.commit.request import CommitMessage as CommitMessage
    from ducklake_core.conditions import AllOf as AllOf
    from ducklake_core.conditions import AnyOf as AnyOf
    from ducklake_core.conditions import InIntervals as InIntervals
    from ducklake_core.conditions import OneOf as OneOf
    from ducklake_core.conditions import matching_rows as matching_rows
    from ducklake_core.engines.arrow.frame import ArrowData as ArrowData
    from ducklake_core.engines.arrow.frame import arrow_data as arrow_data
    from ducklake_core.engines.arrow.readable import DtypeBackend as DtypeBackend
    from ducklake_core.engines.arrow.readable import Readable as Readable
    from ducklake_core.engines.frame import columns_of as columns_of
    from ducklake_core.format.changes import Changes as Changes
    from ducklake_core.format.changes import QualifiedName as QualifiedName
    from ducklake_core.format.evolution.schema_edits import ColumnName as ColumnName
    from ducklake_core.format.expressions.conditions import Column as Column
    from ducklake_core.format.expressions.conditions import ColumnPath as ColumnPath
    from ducklake_core.format.expressions.conditions import Condition as Condition
    from ducklake_core.format.expressions.conditions import col as col
    from ducklake_core.format.expressions.conditions import lit as lit
    from ducklake_core.format.expressions.predicates import Predicate as Predicate
    from ducklake_core.format.expressions.pruning import ValueRange as ValueRange
    from ducklake_core.format.files.data_files import DataFile as DataFile
    from ducklake_core.format.files.data_files import DeleteFile as DeleteFile
    from ducklake_core.format.files.data_files import EncryptionKey as EncryptionKey
    from ducklake_core.format.files.partitioning import PartitionField as PartitionField
    from ducklake_core.format.files.partitioning import PartitionSpec as PartitionSpec
    from ducklake_core.format.files.partitioning import TransformName as TransformName
    from ducklake_core.format.layout.sorting import SortKey as SortKey
    from ducklake_core.format.macro_definitions import MacroImplementation as MacroImplementation
    from ducklake_core.format.macro_definitions import MacroKind as MacroKind
    from ducklake_core.format.macro_definitions import MacroParameter as MacroParameter
    from ducklake_core.format.options import Compression as Compression
    from ducklake_core.format.options import Options as Options
    from ducklake_core.format.state import InlinedTable as InlinedTable
    from ducklake_core.format.state import LakeInfo as LakeInfo
    from ducklake_core.format.state import SchemaState as SchemaState
    from ducklake_core.format.state import Snapshot as Snapshot
    from ducklake_core.format.state import TableState as TableState
    from ducklake_core.format.types.data_types import DataType as DataType
    from ducklake_core.format.types.data_types import Field as Field
    from ducklake_core.format.types.names import DEFAULT_SCHEMA as DEFAULT_SCHEMA
    from ducklake_core.format.types.names import TablePattern as TablePattern
    from ducklake_core.format.types.names import dotted as dotted
    from ducklake_core.format.types.names import folded as folded
    from ducklake_core.format.types.names import join_name as join_name
    from ducklake_core.format.types.names import schema_path as schema_path
    from ducklake_core.format.types.names import split_name as split_name
    from ducklake_core.format.types.names import split_path as split_path
    from ducklake_core.format.types.schema import Schema as Schema
    from ducklake_core.format.types.text import parse_age as parse_age
    from ducklake_core.format.types.type_parser import TypeLike as TypeLike
    from ducklake_core.format.types.type_parser import data_type_of as data_type_of
    from ducklake_core.format.versions import FormatVersion as FormatVersion
    from ducklake_core.format.versions import InlinedColumns as InlinedColumns
    from ducklake_core.format.versions import InlinedLimits as InlinedLimits
    from ducklake_core.lake import DuckLake as DuckLake
    from ducklake_core.lake import Inspection as Inspection
    from ducklake_core.lake import LakeAtSnapshot as LakeAtSnapshot
    from ducklake_core.lake import LakeDefinitions as LakeDefinitions
    from ducklake_core.lake import load_lake as load_lake
    from ducklake_core.maintenance.check.findings import CheckLevel as CheckLevel
    from ducklake_core.maintenance.check.findings import CheckResult as CheckResult
    from ducklake_core.maintenance.check.findings import Finding as Finding
    from ducklake_core.maintenance.check.findings import Severity as Severity
    from ducklake_core.maintenance.checkpoint import CheckpointResult as CheckpointResult
    from ducklake_core.maintenance.checkpoint import CheckpointVerb as CheckpointVerb
    from ducklake_core.maintenance.checkpoint import PurgeResult as PurgeResult
    from ducklake_core.maintenance.cleanup import CleanupResult as CleanupResult
    from ducklake_core.maintenance.cleanup import LeftFile as LeftFile
    from ducklake_core.maintenance.cleanup import OldFile as OldFile
    from ducklake_core.maintenance.clustering import ClusteringGain as ClusteringGain
    from ducklake_core.maintenance.expire import ExpiringSnapshot as ExpiringSnapshot
    from ducklake_core.maintenance.expire import ExpiryResult as ExpiryResult
    from ducklake_core.maintenance.expire import HeldSnapshot as HeldSnapshot
    from ducklake_core.maintenance.expire import Holds as Holds
    from ducklake_core.maintenance.flush import FlushResult as FlushResult
    from ducklake_core.maintenance.flush import TableFlush as TableFlush
    from ducklake_core.maintenance.health import LakeHealth as LakeHealth
    from ducklake_core.maintenance.health import TableHealth as TableHealth
    from ducklake_core.maintenance.merge import MergeResult as MergeResult
    from ducklake_core.maintenance.merge import TableMerge as TableMerge
    from ducklake_core.maintenance.migrate import MigrationResult as MigrationResult
    from ducklake_core.maintenance.moving import CopyResult as CopyResult
    from ducklake_core.maintenance.moving import MoveResult as MoveResult
    from ducklake_core.maintenance.orphans import OrphanedFile as OrphanedFile
    from ducklake_core.maintenance.orphans import OrphansResult as OrphansResult
    from ducklake_core.maintenance.request import MaintenanceResult as MaintenanceResult
    from ducklake_core.maintenance.request import MaintenanceStep as MaintenanceStep
    from ducklake_core.maintenance.request import Progress as Progress
    from ducklake_core.maintenance.request import ProgressCallback as ProgressCallback
    from ducklake_core.maintenance.request import ProgressUnit as ProgressUnit
    from ducklake_core.maintenance.request import StepOutcome as StepOutcome
    from ducklake_core.maintenance.rewrite import RewriteResult as RewriteResult
    from ducklake_core.maintenance.rewrite import RewrittenGroup as RewrittenGroup
    from ducklake_core.maintenance.rewrite import TableRewrite as TableRewrite
    from ducklake_core.merge_builder import Merge as Merge
    from ducklake_core.merge_builder import Result as Result
    from ducklake_core.merge_builder import Values as Values
    from ducklake_core.planning.explanation import ExplainedFile as ExplainedFile
    from ducklake_core.planning.explanation import Explanation as Explanation
    from ducklake_core.planning.explanation import PrunedBy as PrunedBy
    from ducklake_core.planning.plan import FeedKind as FeedKind
    from ducklake_core.results import ChangedRows as ChangedRows
    from ducklake_core.results import ChangedTable as ChangedTable
    from ducklake_core.results import ColumnSummary as ColumnSummary
    from ducklake_core.results import LakeChanges as LakeChanges
    from ducklake_core.results import LakeSettings as LakeSettings
    from ducklake_core.results import LakeStatistics as LakeStatistics
    from ducklake_core.results import RowChange as RowChange
    from ducklake_core.results import StoredDeletes as StoredDeletes
    from ducklake_core.results import StoredRows as StoredRows
    from ducklake_core.results import TableChange as TableChange
    from ducklake_core.results import TableInfo as TableInfo
    from ducklake_core.results import TableStatistics as TableStatistics
    from ducklake_core.results import TransactionResult as TransactionResult
    from ducklake_core.results import WriteResult as WriteResult
    from ducklake_core.scan import ChangeFeed as ChangeFeed
    from ducklake_core.scan import PlannedFeed as PlannedFeed
    from ducklake_core.scan import PlannedScan as PlannedScan
    from ducklake_core.scan import Scan as Scan
    from ducklake_core.sql.query import Query as Query
    from ducklake_core.staging.adding import Paths as Paths
    from ducklake_core.staging.arguments import ArrowArrayable as ArrowArrayable
    from ducklake_core.staging.arguments import ArrowStreamable as ArrowStreamable
    from ducklake_core.staging.arguments import At as At
    from ducklake_core.staging.arguments import CommitOptions as CommitOptions
    from ducklake_core.staging.arguments import ConcurrentAppends as ConcurrentAppends
    from ducklake_core.staging.arguments import FrameLike as FrameLike
    from ducklake_core.staging.arguments import MissingColumns as MissingColumns
    from ducklake_core.staging.arguments import Partitions as Partitions
    from ducklake_core.staging.arguments import RestoredColumns as RestoredColumns
    from ducklake_core.staging.arguments import SchemaEvolution as SchemaEvolution
    from ducklake_core.staging.arguments import SqlParameters as SqlParameters
    from ducklake_core.staging.arguments import Where as Where
    from ducklake_core.staging.arguments import WriteMode as WriteMode
    from ducklake_core.staging.reads import TransactionTable as TransactionTable
    from ducklake_core.storage.filesystems import Deletion as Deletion
    from ducklake_core.storage.filesystems import Storage as Storage
    from ducklake_core.storage.filesystems import StorageOptions as StorageOptions
    from ducklake_core.storage.unfinished import UnfinishedUpload as UnfinishedUpload
    from ducklake_core.storage.uploads import StoredFile as StoredFile
    from ducklake_core.table import Table as Table
    from ducklake_core.transaction import Transaction as Transaction
    from ducklake_core.view import View as View
    from ducklake_core.view import ViewDefinition as ViewDefinition

__version__ = "0.1.0"

_EXPORTS = {
    "AllOf": "ducklake_core.conditions",
    "AnyOf": "ducklake_core.conditions",
    "ArrowArrayable": "ducklake_core.staging.arguments",
    "ArrowStreamable": "ducklake_core.staging.arguments",
    "ArrowData": "ducklake_core.engines.arrow.frame",
    "At": "ducklake_core.staging.arguments",
    "Bound": "ducklake_core.catalog.feed",
    "ChangeFeed": "ducklake_core.scan",
    "ChangedRows": "ducklake_core.results",
    "ChangedTable": "ducklake_core.results",
    "Changes": "ducklake_core.format.changes",
    "CheckLevel": "ducklake_core.maintenance.check.findings",
    "CheckResult": "ducklake_core.maintenance.check.findings",
    "CheckpointResult": "ducklake_core.maintenance.checkpoint",
    "CheckpointVerb": "ducklake_core.maintenance.checkpoint",
    "PurgeResult": "ducklake_core.maintenance.checkpoint",
    "CleanupResult": "ducklake_core.maintenance.cleanup",
    "ClusteringGain": "ducklake_core.maintenance.clustering",
    "Column": "ducklake_core.format.expressions.conditions",
    "ColumnName": "ducklake_core.format.evolution.schema_edits",
    "ColumnPath": "ducklake_core.format.expressions.conditions",
    "ColumnSummary": "ducklake_core.results",
    "CommitMessage": "ducklake_core.commit.request",
    "CommitOptions": "ducklake_core.staging.arguments",
    "Compression": "ducklake_core.format.options",
    "Condition": "ducklake_core.format.expressions.conditions",
    "DEFAULT_SCHEMA": "ducklake_core.format.types.names",
    "DataFile": "ducklake_core.format.files.data_files",
    "DataType": "ducklake_core.format.types.data_types",
    "DeadTable": "ducklake_core.catalog.writing.expiry",
    "DeleteFile": "ducklake_core.format.files.data_files",
    "Deletion": "ducklake_core.storage.filesystems",
    "DtypeBackend": "ducklake_core.engines.arrow.readable",
    "DuckLake": "ducklake_core.lake",
    "EncryptionKey": "ducklake_core.format.files.data_files",
    "ExpiringSnapshot": "ducklake_core.maintenance.expire",
    "ExpiryResult": "ducklake_core.maintenance.expire",
    "ExplainedFile": "ducklake_core.planning.explanation",
    "Explanation": "ducklake_core.planning.explanation",
    "FeedKind": "ducklake_core.planning.plan",
    "Field": "ducklake_core.format.types.data_types",
    "FileKind": "ducklake_core.catalog.writing.expiry",
    "Finding": "ducklake_core.maintenance.check.findings",
    "FlushResult": "ducklake_core.maintenance.flush",
    "FrameLike": "ducklake_core.staging.arguments",
    "HeldSnapshot": "ducklake_core.maintenance.expire",
    "Hold": "ducklake_core.catalog.reading.options",
    "Holds": "ducklake_core.maintenance.expire",
    "InIntervals": "ducklake_core.conditions",
    "InlinedTable": "ducklake_core.format.state",
    "Inspection": "ducklake_core.lake",
    "LakeAtSnapshot": "ducklake_core.lake",
    "LakeDefinitions": "ducklake_core.lake",
    "LakeChanges": "ducklake_core.results",
    "LakeHealth": "ducklake_core.maintenance.health",
    "LakeInfo": "ducklake_core.format.state",
    "FormatVersion": "ducklake_core.format.versions",
    "InlinedColumns": "ducklake_core.format.versions",
    "InlinedLimits": "ducklake_core.format.versions",
    "LakeSettings": "ducklake_core.results",
    "TableStatistics": "ducklake_core.results",
    "StoredRows": "ducklake_core.results",
    "StoredDeletes": "ducklake_core.results",
    "LakeStatistics": "ducklake_core.results",
    "LeftFile": "ducklake_core.maintenance.cleanup",
    "Macro": "ducklake_core.catalog.reading.definitions",
    "MacroImplementation": "ducklake_core.format.macro_definitions",
    "MacroKind": "ducklake_core.format.macro_definitions",
    "MacroParameter": "ducklake_core.format.macro_definitions",
    "MaintenanceResult": "ducklake_core.maintenance.request",
    "MaintenanceStep": "ducklake_core.maintenance.request",
    "Merge": "ducklake_core.merge_builder",
    "MergeResult": "ducklake_core.maintenance.merge",
    "CopyResult": "ducklake_core.maintenance.moving",
    "MigrationResult": "ducklake_core.maintenance.migrate",
    "MoveResult": "ducklake_core.maintenance.moving",
    "OldFile": "ducklake_core.maintenance.cleanup",
    "OneOf": "ducklake_core.conditions",
    "Options": "ducklake_core.format.options",
    "OrphanedFile": "ducklake_core.maintenance.orphans",
    "OrphansResult": "ducklake_core.maintenance.orphans",
    "PartitionField": "ducklake_core.format.files.partitioning",
    "PartitionSpec": "ducklake_core.format.files.partitioning",
    "Partitions": "ducklake_core.staging.arguments",
    "Paths": "ducklake_core.staging.adding",
    "PlannedFeed": "ducklake_core.scan",
    "PlannedScan": "ducklake_core.scan",
    "Predicate": "ducklake_core.format.expressions.predicates",
    "Progress": "ducklake_core.maintenance.request",
    "ProgressCallback": "ducklake_core.maintenance.request",
    "ProgressUnit": "ducklake_core.maintenance.request",
    "PrunedBy": "ducklake_core.planning.explanation",
    "QualifiedName": "ducklake_core.format.changes",
    "Query": "ducklake_core.sql.query",
    "Readable": "ducklake_core.engines.arrow.readable",
    "ConcurrentAppends": "ducklake_core.staging.arguments",
    "RestoredColumns": "ducklake_core.staging.arguments",
    "Result": "ducklake_core.merge_builder",
    "RewriteResult": "ducklake_core.maintenance.rewrite",
    "RewrittenGroup": "ducklake_core.maintenance.rewrite",
    "RowChange": "ducklake_core.results",
    "Scan": "ducklake_core.scan",
    "Schema": "ducklake_core.format.types.schema",
    "MissingColumns": "ducklake_core.staging.arguments",
    "SchemaEvolution": "ducklake_core.staging.arguments",
    "SqlParameters": "ducklake_core.staging.arguments",
    "SchemaState": "ducklake_core.format.state",
    "ScopedOption": "ducklake_core.catalog.reading.options",
    "Severity": "ducklake_core.maintenance.check.findings",
    "Snapshot": "ducklake_core.format.state",
    "SortKey": "ducklake_core.format.layout.sorting",
    "StepOutcome": "ducklake_core.maintenance.request",
    "Storage": "ducklake_core.storage.filesystems",
    "StorageOptions": "ducklake_core.storage.filesystems",
    "StoredFile": "ducklake_core.storage.uploads",
    "Table": "ducklake_core.table",
    "TableChange": "ducklake_core.results",
    "TableHealth": "ducklake_core.maintenance.health",
    "TableFlush": "ducklake_core.maintenance.flush",
    "TableInfo": "ducklake_core.results",
    "TablePattern": "ducklake_core.format.types.names",
    "TableMerge": "ducklake_core.maintenance.merge",
    "TableRewrite": "ducklake_core.maintenance.rewrite",
    "TableState": "ducklake_core.format.state",
    "Transaction": "ducklake_core.transaction",
    "TransactionResult": "ducklake_core.results",
    "TransactionTable": "ducklake_core.staging.reads",
    "TransformName": "ducklake_core.format.files.partitioning",
    "TypeLike": "ducklake_core.format.types.type_parser",
    "UnfinishedUpload": "ducklake_core.storage.unfinished",
    "UnneededFile": "ducklake_core.catalog.writing.expiry",
    "ValueRange": "ducklake_core.format.expressions.pruning",
    "Values": "ducklake_core.merge_builder",
    "View": "ducklake_core.view",
    "ViewDefinition": "ducklake_core.view",
    "ViewState": "ducklake_core.catalog.reading.definitions",
    "Where": "ducklake_core.staging.arguments",
    "WriteMode": "ducklake_core.staging.arguments",
    "WriteResult": "ducklake_core.results",
    "col": "ducklake_core.format.expressions.conditions",
    "lit": "ducklake_core.format.expressions.conditions",
    "arrow_data": "ducklake_core.engines.arrow.frame",
    "columns_of": "ducklake_core.engines.frame",
    "data_type_of": "ducklake_core.format.types.type_parser",
    "dotted": "ducklake_core.format.types.names",
    "folded": "ducklake_core.format.types.names",
    "join_name": "ducklake_core.format.types.names",
    "load_lake": "ducklake_core.lake",
    "matching_rows": "ducklake_core.conditions",
    "schema_path": "ducklake_core.format.types.names",
    "split_name": "ducklake_core.format.types.names",
    "split_path": "ducklake_core.format.types.names",
    "parse_age": "ducklake_core.format.types.text",
}

__all__ = sorted([*_EXPORTS, "__version__"])


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
