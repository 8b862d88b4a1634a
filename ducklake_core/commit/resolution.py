"""From staged actions and the head to catalog rows: the pure half of a commit, run whole in every attempt.

Every id, row id and statistic comes from the head of this very attempt, so nothing of an earlier attempt survives.
(specification: Snapshots, Queries; counters and change texts as DuckDB writes them.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from ducklake_core.catalog.changes import CatalogChange
from ducklake_core.catalog.writing.head import Head
from ducklake_core.commit import definition_changes, row_changes, row_moves, view_changes
from ducklake_core.commit.actions import (
    AddDeleteFiles,
    AddFiles,
    AppendFiles,
    EndFiles,
    EndInlined,
    InlineDeletes,
    InsertInlined,
    MergeFiles,
)
from ducklake_core.commit.definition_actions import (
    AlterTable,
    AlterView,
    CreateMacro,
    CreateSchema,
    CreateTable,
    CreateView,
    Definition,
    DropMacro,
    DropSchema,
    DropTable,
    DropView,
    TagSchema,
)
from ducklake_core.commit.moved_rows import FlushInlined, RewriteFiles
from ducklake_core.commit.request import CommitRequest
from ducklake_core.commit.snapshot_builder import SnapshotBuilder
from ducklake_core.errors import UsageError
from ducklake_core.format.state import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The catalog rows that one attempt writes.

    Attributes:
        snapshot: The snapshot that it makes.
        changes: Catalog changes in the order to apply them.
        ids: Real ids of the schemas and tables that the transaction creates, by their negative local ids.
    """

    snapshot: Snapshot
    changes: tuple[CatalogChange, ...]
    ids: Mapping[int, int]


def resolve(transaction: CommitRequest, head: Head, suffix: str = "") -> Resolution:
    """The snapshot and the catalog rows that the transaction becomes on top of the head.

    Args:
        transaction: What is to be committed.
        head: The newest snapshot, as this attempt has read it.
        suffix: What the names of tables of inlined rows end in that it makes.

    Raises:
        UsageError: Compaction together with other changes, which no DuckLake snapshot can say.
    """
    kinds = {type(action) if isinstance(action, MergeFiles | FlushInlined | RewriteFiles) else None for action in transaction.actions}
    if len(kinds) > 1:
        raise UsageError("a transaction either compacts files or makes other changes, never both")
    builder = SnapshotBuilder(transaction, head, suffix)
    for action in transaction.actions:
        match action:
            case CreateSchema() | DropSchema() | TagSchema() | CreateTable() | AlterTable() | DropTable():
                _define(builder, action)
            case CreateView() | AlterView() | DropView() | CreateMacro() | DropMacro():
                _define(builder, action)
            case AppendFiles():
                row_changes.append_files(builder, action)
            case AddFiles():
                row_changes.add_files(builder, action)
            case InsertInlined():
                row_changes.insert_inlined(builder, action)
            case EndFiles():
                row_changes.end_files(builder, action)
            case AddDeleteFiles():
                row_changes.add_delete_files(builder, action)
            case InlineDeletes():
                row_changes.inline_deletes(builder, action)
            case EndInlined():
                row_changes.end_inlined(builder, action)
            case MergeFiles() | FlushInlined() | RewriteFiles():
                _move(builder, action)
            case _:
                assert_never(action)
    snapshot, changes = builder.finish()
    return Resolution(snapshot=snapshot, changes=changes, ids=builder.ids)


def _move(builder: SnapshotBuilder, action: MergeFiles | FlushInlined | RewriteFiles) -> None:
    match action:
        case MergeFiles():
            row_changes.merge_files(builder, action)
        case FlushInlined():
            row_moves.flush_inlined(builder, action)
        case RewriteFiles():
            row_moves.rewrite_files(builder, action)
        case _:
            assert_never(action)


def _define(builder: SnapshotBuilder, action: Definition) -> None:
    match action:
        case CreateSchema():
            definition_changes.create_schema(builder, action)
        case DropSchema():
            definition_changes.drop_schema(builder, action)
        case TagSchema():
            definition_changes.tag_schema(builder, action)
        case CreateTable():
            definition_changes.create_table(builder, action)
        case DropTable():
            definition_changes.drop_table(builder, action)
        case AlterTable():
            definition_changes.alter_table(builder, action)
        case CreateView():
            view_changes.create_view(builder, action)
        case AlterView():
            view_changes.alter_view(builder, action)
        case DropView():
            view_changes.drop_view(builder, action)
        case CreateMacro():
            view_changes.create_macro(builder, action)
        case DropMacro():
            view_changes.drop_macro(builder, action)
        case _:
            assert_never(action)
