"""From staged actions and the head to catalog rows: the pure half of a commit, run whole in every attempt.

Every id, row id and statistic comes from the head of this very attempt, so nothing of an earlier attempt survives.
(specification: Snapshots, Queries; counters and change texts as the reference writes them.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from ducklake_core.catalog.changes import CatalogChange
from ducklake_core.catalog.head import Head
from ducklake_core.catalog.state import Snapshot
from ducklake_core.commit import definition_changes, row_changes, view_changes
from ducklake_core.commit.actions import (
    AddDeleteFiles,
    AddFiles,
    AlterTable,
    AlterView,
    AppendFiles,
    CreateMacro,
    CreateSchema,
    CreateTable,
    CreateView,
    Definition,
    DropMacro,
    DropSchema,
    DropTable,
    DropView,
    EndFiles,
    EndInlined,
    InlineDeletes,
    InsertInlined,
    MergeFiles,
)
from ducklake_core.commit.draft import Draft
from ducklake_core.commit.transaction import StagedTransaction
from ducklake_core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What one attempt writes.

    Attributes:
        snapshot: The snapshot that it makes.
        changes: Catalog changes in the order to apply them.
        ids: Real ids of the schemas and tables that the transaction creates, by their negative local ids.
    """

    snapshot: Snapshot
    changes: tuple[CatalogChange, ...]
    ids: Mapping[int, int]


def resolve(transaction: StagedTransaction, head: Head) -> Resolution:
    """The snapshot and the catalog rows that the transaction becomes on top of the head.

    Raises:
        UsageError: Compaction together with other changes, which no DuckLake snapshot can say.
    """
    merges = [isinstance(action, MergeFiles) for action in transaction.actions]
    if any(merges) and not all(merges):
        raise UsageError("a transaction either compacts files or makes other changes, never both")
    draft = Draft(transaction, head)
    for action in transaction.actions:
        match action:
            case CreateSchema() | DropSchema() | CreateTable() | AlterTable() | DropTable():
                _define(draft, action)
            case CreateView() | AlterView() | DropView() | CreateMacro() | DropMacro():
                _define(draft, action)
            case AppendFiles():
                row_changes.append_files(draft, action)
            case AddFiles():
                row_changes.add_files(draft, action)
            case InsertInlined():
                row_changes.insert_inlined(draft, action)
            case EndFiles():
                row_changes.end_files(draft, action)
            case AddDeleteFiles():
                row_changes.add_delete_files(draft, action)
            case InlineDeletes():
                row_changes.inline_deletes(draft, action)
            case EndInlined():
                row_changes.end_inlined(draft, action)
            case MergeFiles():
                row_changes.merge_files(draft, action)
            case _:
                assert_never(action)
    snapshot, changes = draft.finish()
    return Resolution(snapshot=snapshot, changes=changes, ids=draft.ids)


def _define(draft: Draft, action: Definition) -> None:
    match action:
        case CreateSchema():
            definition_changes.create_schema(draft, action)
        case DropSchema():
            definition_changes.drop_schema(draft, action)
        case CreateTable():
            definition_changes.create_table(draft, action)
        case DropTable():
            definition_changes.drop_table(draft, action)
        case AlterTable():
            definition_changes.alter_table(draft, action)
        case CreateView():
            view_changes.create_view(draft, action)
        case AlterView():
            view_changes.alter_view(draft, action)
        case DropView():
            view_changes.drop_view(draft, action)
        case CreateMacro():
            view_changes.create_macro(draft, action)
        case DropMacro():
            view_changes.drop_macro(draft, action)
        case _:
            assert_never(action)
