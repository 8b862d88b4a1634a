"""Detect conflicts with commits of other writers, by a table of rules.

Every change of the transaction is compared with every change of the later snapshots::

    own action        -> _Own (kind, ids, names, files)  --.
    own lookups       -> _Own                              +-- Rule (own kind, other kind, scope) --> Conflict
    changes_made      -> _Other (keyword, id or name)   --'
    of later snapshots

A rule applies when both kinds match and both changes share the object that its scope names. Rules that are marked as stricter prevent
damage that DuckDB 1.5 allows; the others are those of DuckDB. Renames have no entry in ``changes_made`` and are found by the table's row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, assert_never

from ducklake_core.catalog.writing.head import Head
from ducklake_core.commit.actions import (
    Action,
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
    FlushInlined,
    InlineDeletes,
    InsertInlined,
    MergeFiles,
    RewriteFiles,
    SetOption,
    TagSchema,
)
from ducklake_core.commit.request import CommitRequest, Lookup
from ducklake_core.format.changes import Changes, QualifiedName, parse_changes
from ducklake_core.format.files.paths import printable
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.names import folded, parent_schema

_ACTION_TEXT: dict[OwnKind, str] = {
    "create_schema": "create schema",
    "drop_schema": "drop schema",
    "tag_schema": "comment on schema",
    "create_table": "create table",
    "drop_table": "drop table",
    "alter_table": "alter table",
    "rename_table": "rename table",
    "set_not_null": "set NOT NULL on a column of table",
    "create_view": "create view",
    "alter_view": "alter view",
    "rename_view": "rename view",
    "drop_view": "drop view",
    "create_scalar_macro": "create macro",
    "create_table_macro": "create macro",
    "drop_macro": "drop macro",
    "insert": "insert into table",
    "delete": "delete from table",
    "inlined_delete": "delete inlined rows from table",
    "inlined_file_delete": "delete from table",
    "compact": "compact table",
    "flush": "flush inlined data of table",
    "rewrite": "rewrite files of table",
    "set_table_option": "set an option of table",
    "set_schema_option": "set an option of schema",
    "read_definition": "alter table",
    "search_matches": "search rows of table",
    "read_rows": "search rows of table",
}
_READS: dict[Lookup, OwnKind] = {"definition": "read_definition", "matches": "search_matches", "rows": "read_rows"}

OwnKind: TypeAlias = Literal[
    "create_schema", "drop_schema", "tag_schema", "create_table", "drop_table", "alter_table", "rename_table", "set_not_null",
    "create_view", "alter_view", "rename_view", "drop_view",
    "create_scalar_macro", "create_table_macro", "drop_macro",
    "insert", "delete", "inlined_delete", "inlined_file_delete", "compact", "flush", "rewrite",
    "set_table_option", "set_schema_option",
    "read_definition", "search_matches", "read_rows",
]  # fmt: skip
Scope: TypeAlias = Literal["table", "schema", "schema name", "entry name", "entries of schema", "data file", "view", "macro"]
"""The object that own and other change must share to conflict: an id of a table, view, macro or schema, a name, or a data file."""
RENAMED = "renamed_table"
"""Not an entry of changes_made: a rename is logged as the creation of the new name and detected by the table's row."""
_NO_SCHEMA = "the new entry would be in no schema"
_TABLE_DROPPED = "the table of the rows no longer exists"
_OTHER_COLUMNS = "the files may have columns, keys or types that are no longer valid"
_DELETED = "the other transaction decided what to delete without seeing these rows"
_UNSEEN = "this transaction did not read the new rows when it decided what to delete"
_MOVED = "positions in the old files are not valid in the new ones"
_TWICE = "a row could count as deleted twice"
_OVERLOOKED = "the new rows may match what this transaction has searched for"
_OTHER_NAME = "another table may have the name that this transaction used"
_BY_NAME: tuple[OwnKind, ...] = ("insert", "delete", "inlined_delete", "inlined_file_delete")
_UNCHECKED = "the new rows were not checked when the column was found to have no NULL"
_REDEFINED = (("dropped_table", "dropped it"), ("altered_table", "altered it"))
_NEW_ROWS = (("inserted_into_table", "inserted into it"), ("inlined_insert", "inserted into it"))
_FEWER_ROWS = (("deleted_from_table", "deleted from it"), ("inlined_delete", "deleted inlined rows from it"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One pair of changes that must not both be committed.

    Attributes:
        name: Stable name, for tests and documentation.
        own: Kind of the change to be committed.
        other: Keyword in ``changes_made`` of a later snapshot.
        scope: The object that both changes must share.
        outcome: Effect of the other transaction, for the message.
        why: Reason of the rule, for the message.
        stricter: Whether DuckDB allows the pair.
    """

    name: str
    own: OwnKind
    other: str
    scope: Scope
    outcome: str
    why: str
    stricter: bool = False


def _table_rules(own: OwnKind, *rows: tuple[str, str, str]) -> tuple[Rule, ...]:
    return tuple(Rule(name=f"{own}-{other}", own=own, other=other, scope="table", outcome=outcome, why=why) for other, outcome, why in rows)


def _stricter(own: OwnKind, other: str, outcome: str, why: str, scope: Scope = "table") -> Rule:
    return Rule(name=f"{own}-{other}", own=own, other=other, scope=scope, outcome=outcome, why=why, stricter=True)


def _file_rules(own: OwnKind, *rows: tuple[str, str, str, bool]) -> tuple[Rule, ...]:
    """Return the rules of a change that moves rows of data files; the table must still exist."""
    return (
        *_table_rules(own, ("dropped_table", "dropped it", _TABLE_DROPPED)),
        *(
            Rule(name=f"{own}-{other}", own=own, other=other, scope="data file", outcome=outcome, why=why, stricter=stricter)
            for other, outcome, why, stricter in rows
        ),
    )


def _naming_rules(own: OwnKind) -> tuple[Rule, ...]:
    """Return the rules for a change that gives a table or view a name."""
    return (
        Rule(name=f"{own}-dropped_schema", own=own, other="dropped_schema", scope="schema", outcome="dropped this schema", why=_NO_SCHEMA),
        Rule(name=f"{own}-created_table", own=own, other="created_table", scope="entry name",
             outcome="created or renamed a table to this name already", why="names are unique"),
        Rule(name=f"{own}-created_view", own=own, other="created_view", scope="entry name",
             outcome="created or renamed a view to this name already", why="tables and views share their names"),
    )  # fmt: skip


def _macro_rules(kind: Literal["scalar", "table"]) -> tuple[Rule, ...]:
    own: OwnKind = "create_scalar_macro" if kind == "scalar" else "create_table_macro"
    return (
        Rule(name=f"{own}-dropped_schema", own=own, other="dropped_schema", scope="schema", outcome="dropped this schema", why=_NO_SCHEMA),
        Rule(name=f"{own}-created_{kind}_macro", own=own, other=f"created_{kind}_macro", scope="entry name",
             outcome="created a macro of this name already", why="names are unique"),
    )  # fmt: skip


def _lookup_rules(own: OwnKind, *others: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple(_stricter(own, other, outcome, _OVERLOOKED) for other, outcome in others)


RULES: tuple[Rule, ...] = (
    # Schemas and names.
    Rule(name="create_schema-created_schema", own="create_schema", other="created_schema", scope="schema name",
         outcome="created a schema with this name already", why="names are unique"),
    _stricter("create_schema", "dropped_schema", "dropped the schema that it is to be in", "no object could be named in it", "schema"),
    _stricter("drop_schema", "created_schema", "created a schema in it", "that schema could not be named", "entries of schema"),
    Rule(name="drop_schema-dropped_schema", own="drop_schema", other="dropped_schema", scope="schema",
         outcome="dropped it already", why="it can be dropped once"),
    Rule(name="drop_schema-created_table", own="drop_schema", other="created_table", scope="entries of schema",
         outcome="created a table in this schema", why=_NO_SCHEMA),
    Rule(name="drop_schema-created_view", own="drop_schema", other="created_view", scope="entries of schema",
         outcome="created a view in this schema", why=_NO_SCHEMA),
    _stricter("drop_schema", "created_scalar_macro", "created a macro in this schema", _NO_SCHEMA, "entries of schema"),
    _stricter("drop_schema", "created_table_macro", "created a macro in this schema", _NO_SCHEMA, "entries of schema"),
    _stricter("tag_schema", "dropped_schema", "dropped it", "there is nothing left to comment on", "schema"),
    *_naming_rules("create_table"),
    # Tables.
    *_table_rules("drop_table", ("dropped_table", "dropped it already", "it can be dropped once")),
    _stricter("drop_table", RENAMED, "renamed it", "the renamed table would stay alive without columns"),
    *_table_rules(
        "alter_table",
        ("dropped_table", "dropped it", "there is nothing left to alter"),
        ("altered_table", "altered it", "both may have added columns with the same id"),
    ),
    _stricter("alter_table", RENAMED, "renamed it", "the change uses the old name"),
    *_naming_rules("rename_table"),
    _stricter("rename_table", "dropped_table", "dropped it", "the renamed table would stay alive without columns"),
    _stricter("rename_table", "altered_table", "altered it", "the new name was chosen for another table"),
    _stricter("rename_table", RENAMED, "renamed it", "the new name was chosen for the old one"),
    _stricter("set_not_null", "inserted_into_table", "inserted into it", _UNCHECKED),
    _stricter("set_not_null", "inlined_insert", "inserted into it", _UNCHECKED),
    # Views and macros.
    *_naming_rules("create_view"),
    Rule(name="alter_view-altered_view", own="alter_view", other="altered_view", scope="view",
         outcome="altered it", why="one of the comments would be lost"),
    _stricter("alter_view", "dropped_view", "dropped it", "there is nothing left to comment on", "view"),
    _stricter("alter_view", RENAMED, "renamed it", "the change uses the old name", "view"),
    *_naming_rules("rename_view"),
    _stricter("rename_view", "dropped_view", "dropped it", "the renamed view would come back", "view"),
    _stricter("rename_view", RENAMED, "renamed it", "the new name was chosen for the old one", "view"),
    Rule(name="drop_view-dropped_view", own="drop_view", other="dropped_view", scope="view",
         outcome="dropped it already", why="it can be dropped once"),
    _stricter("drop_view", RENAMED, "renamed it", "the drop uses the old name", "view"),
    *_macro_rules("scalar"),
    *_macro_rules("table"),
    Rule(name="drop_macro-dropped_scalar_macro", own="drop_macro", other="dropped_scalar_macro", scope="macro",
         outcome="dropped it already", why="it can be dropped once"),
    Rule(name="drop_macro-dropped_table_macro", own="drop_macro", other="dropped_table_macro", scope="macro",
         outcome="dropped it already", why="it can be dropped once"),
    # Rows.
    *_table_rules(
        "insert",
        ("dropped_table", "dropped it", _TABLE_DROPPED),
        ("altered_table", "altered it", _OTHER_COLUMNS),
        ("deleted_from_table", "deleted from it", _DELETED),
        ("inlined_delete", "deleted inlined rows from it", _DELETED),
    ),
    # The retry plans the write again by name: it follows the rename, or writes to another table that has the name now.
    *(_stricter(own, RENAMED, "renamed it", _OTHER_NAME) for own in _BY_NAME),
    *_table_rules(
        "delete",
        ("dropped_table", "dropped it", _TABLE_DROPPED),
        ("altered_table", "altered it", "the condition may mean other columns now"),
        ("merge_adjacent", "compacted it", _MOVED),
        ("rewrite_delete", "compacted it", _MOVED),
        ("inserted_into_table", "inserted into it", _UNSEEN),
        ("inlined_insert", "inserted into it", _UNSEEN),
    ),
    Rule(name="delete-deleted_from_table", own="delete", other="deleted_from_table", scope="data file",
         outcome="deleted from the same data file", why="a data file has at most one live delete file"),
    _stricter("delete", "inlined_delete", "deleted from the same data file", _TWICE, "data file"),
    _stricter("delete", "inline_flush", "flushed deletes of the same data file", "two live delete files of a data file double its rows",
              "data file"),
    *_table_rules(
        "inlined_delete",
        ("dropped_table", "dropped it", _TABLE_DROPPED),
        ("altered_table", "altered it", "the condition may mean other columns now"),
        ("inlined_delete", "deleted inlined rows from it", "both may have deleted the same row"),
        ("inline_flush", "flushed its inlined data", "the rows live in a file now"),
        ("inserted_into_table", "inserted into it", _UNSEEN),
        ("inlined_insert", "inserted into it", _UNSEEN),
    ),
    *_table_rules(
        "inlined_file_delete",
        ("dropped_table", "dropped it", _TABLE_DROPPED),
        ("altered_table", "altered it", "the condition may mean other columns now"),
        ("inserted_into_table", "inserted into it", _UNSEEN),
        ("inlined_insert", "inserted into it", _UNSEEN),
    ),
    # DuckDB compares tables here. Comparing data files is enough: each row belongs to one of them.
    Rule(name="inlined_file_delete-inlined_delete", own="inlined_file_delete", other="inlined_delete", scope="data file",
         outcome="deleted from the same data file", why=_TWICE),
    Rule(name="inlined_file_delete-inline_flush", own="inlined_file_delete", other="inline_flush", scope="data file",
         outcome="flushed deletes of the same data file", why=_TWICE),
    _stricter("inlined_file_delete", "deleted_from_table", "deleted from the same data file", _TWICE, "data file"),
    _stricter("inlined_file_delete", "merge_adjacent", "compacted it", _MOVED),
    _stricter("inlined_file_delete", "rewrite_delete", "compacted it", _MOVED),
    # DuckDB compares tables here too. By data file, a long compaction does not lose against every concurrent delete.
    *_file_rules(
        "compact",
        ("deleted_from_table", "deleted from the same data file", "the deleted rows would come back", False),
        ("inlined_delete", "deleted from the same data file", "the deletes would refer to missing files", True),
        ("inline_flush", "flushed deletes of the same data file", "the deletes would refer to missing files", True),
        ("merge_adjacent", "compacted the same data file", "the file may be missing", False),
        ("rewrite_delete", "compacted the same data file", "the file may be missing", False),
    ),
    # A flush conflicts with everything that moves or deletes rows; inserts are safe, it leaves newer rows in the catalog.
    *_table_rules(
        "flush",
        ("dropped_table", "dropped it", _TABLE_DROPPED),
        ("inlined_delete", "deleted inlined rows from it", "the deleted rows would come back"),
        ("inline_flush", "flushed its inlined data", "the rows live in a file already"),
    ),
    _stricter("flush", "deleted_from_table", "deleted from it", "two live delete files of a data file double its rows"),
    _stricter("flush", "merge_adjacent", "compacted it", _MOVED),
    _stricter("flush", "rewrite_delete", "compacted it", _MOVED),
    *_file_rules(
        "rewrite",
        ("deleted_from_table", "deleted from the same data file", "the deleted rows would come back", False),
        ("inlined_delete", "deleted from the same data file", "the deletes would refer to missing files", True),
        ("inline_flush", "flushed deletes of the same data file", "the deleted rows would come back", True),
        ("merge_adjacent", "compacted the same data file", "the file may be missing", False),
        ("rewrite_delete", "compacted the same data file", "the file may be missing", False),
    ),
    # Options. As in DuckDB, the last writer wins.
    _stricter("set_table_option", "dropped_table", "dropped it", "the option would belong to nothing"),
    _stricter("set_schema_option", "dropped_schema", "dropped it", "the option would belong to nothing", "schema"),
    # Reads that led to no action count too: the result must be as if the transaction had begun after the other one (serializable).
    *_lookup_rules("read_definition", *_REDEFINED),
    _stricter("read_definition", RENAMED, "renamed it", "the change uses the old name"),
    *_lookup_rules("search_matches", *_REDEFINED, *_NEW_ROWS),
    *_lookup_rules("read_rows", *_REDEFINED, *_NEW_ROWS, *_FEWER_ROWS),
)  # fmt: skip
"""Every forbidden pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A detected conflict: the name of the rule (or ``history-gap``, ``unknown-change``), the message, table and snapshot."""

    rule: str
    message: str
    table: str | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Other:
    """One entry of another transaction's changes_made; ``text`` is the entry when its kind is ``unknown``."""

    kind: str
    id: int | None = None
    schema: str | None = None
    name: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """One own change in the terms of the rules; ``label`` names its object in messages.

    ``files`` are pairs of a data file and its known live delete files, or None when only deletes newer than the base matter.
    """

    kind: OwnKind
    label: str
    table_id: int | None = None
    view_id: int | None = None
    macro_id: int | None = None
    schema_id: int | None = None
    schema_name: str | None = None
    name: str | None = None
    files: tuple[tuple[int, frozenset[int | None] | None], ...] = ()


_BY_OWN: dict[tuple[str, str], tuple[Rule, ...]] = {
    (rule.own, rule.other): tuple(r for r in RULES if (r.own, r.other) == (rule.own, rule.other)) for rule in RULES
}


def find_conflict(transaction: CommitRequest, head: Head) -> Conflict | None:
    """Return the first reason why the transaction must not be committed on top of the head, None when there is none."""
    obstacle = _find_gap(transaction, head) or _find_file_of_another(transaction, head) or _find_expired_file(head)
    if obstacle is not None:
        return obstacle
    if transaction.overwrites_all and head.later:
        return Conflict(
            rule="restore-anything",
            message=f"Transaction conflict - attempting to restore the lake - but another transaction has committed snapshot "
            f"{head.later[0].id} meanwhile. Nothing was changed. Restore it again",
            snapshot_id=head.later[0].id,
        )
    # Duplicates are removed: a transaction may append to one table a thousand times.
    own = list(dict.fromkeys(change for action in transaction.actions for change in _own_changes(action, transaction)))
    own += [_on_table(_READS[one], table_id, transaction) for table_id, kinds in transaction.lookups.items() for one in sorted(kinds)]
    for snapshot in head.later:
        for other in _entries(parse_changes(snapshot.changes)):
            if other.kind == "unknown":
                return _unknown(other, snapshot)
            for change in own:
                for rule in _BY_OWN.get((change.kind, other.kind), ()):
                    if _related(rule.scope, change, other, transaction, head):
                        return _conflict(rule, change, snapshot.id)
    for change in own:
        for rule in _BY_OWN.get((change.kind, RENAMED), ()):
            if change.table_id in head.replaced_tables or change.view_id in head.replaced_views:
                return _conflict(rule, change, head.snapshot.id)
    return None


def _find_gap(transaction: CommitRequest, head: Head) -> Conflict | None:
    expected = range(transaction.base.id + 1, head.snapshot.id + 1)
    present = {snapshot.id for snapshot in head.later}
    missing = [number for number in expected if number not in present]
    if not missing:
        return None
    return Conflict(
        rule="history-gap",
        message=f"Transaction conflict - snapshot {missing[0]}, committed after this transaction's base snapshot {transaction.base.id}, "
        "has expired, so its changes are unknown. Nothing was changed. Run the write again on the newest snapshot, "
        "and keep snapshots for longer than writes take",
        snapshot_id=missing[0],
    )


def _find_file_of_another(transaction: CommitRequest, head: Head) -> Conflict | None:
    if not head.added_paths:
        return None
    path = min(head.added_paths)
    table = next(action.table_id for action in transaction.actions if isinstance(action, AddFiles) and path in action.exclusive)
    label = transaction.names.get(table)
    return Conflict(
        rule="file-added-by-another",
        message=f"Transaction conflict - attempting to add {printable(path)} to table {label} - but another transaction has added it to "
        "the lake meanwhile, and a file can belong to a table only once. Nothing was changed. Remove the file from the list",
        table=label,
        snapshot_id=head.snapshot.id,
    )


def _find_expired_file(head: Head) -> Conflict | None:
    if not head.expired_files:
        return None
    return Conflict(
        rule="file-expired",
        message=f"Transaction conflict - data file {min(head.expired_files)}, which this transaction compacts, has "
        "expired. Nothing was changed. Run the operation again",
        snapshot_id=head.snapshot.id,
    )


def _unknown(other: _Other, snapshot: Snapshot) -> Conflict:
    return Conflict(
        rule="unknown-change",
        message=f"Transaction conflict - snapshot {snapshot.id}, committed after this transaction began, contains the change "
        f"{other.text!r}, which this library does not support. Nothing was changed. Run the write again on the newest snapshot",
        snapshot_id=snapshot.id,
    )


def _conflict(rule: Rule, own: _Own, snapshot_id: int) -> Conflict:
    return Conflict(
        rule=rule.name,
        message=f"Transaction conflict - attempting to {_ACTION_TEXT[own.kind]} {own.label} - but another transaction has {rule.outcome} "
        f"in snapshot {snapshot_id} ({rule.why}). Nothing was changed. Run the write again on the newest snapshot",
        table=own.label if own.table_id is not None else None,
        snapshot_id=snapshot_id,
    )


def _own_changes(action: Action, transaction: CommitRequest) -> Iterator[_Own]:
    match action:
        case CreateSchema() | DropSchema() | TagSchema() | CreateTable() | AlterTable() | DropTable():
            yield from _definition(action)
        case CreateView() | AlterView() | DropView() | CreateMacro() | DropMacro():
            yield from _definition(action)
        case AppendFiles(table_id=table_id) | AddFiles(table_id=table_id) | InsertInlined(table_id=table_id):
            yield _on_table("insert", table_id, transaction)
            if not isinstance(action, AddFiles) and action.reads_base_rows:
                yield _on_table("delete", table_id, transaction)
        case EndFiles(table_id=table_id, data_file_ids=ids):
            yield _on_table("delete", table_id, transaction, tuple((i, None) for i in ids))
        case AddDeleteFiles(table_id=table_id, files=files):
            known = tuple((f.data_file_id, frozenset({f.replaces} - {None})) for f in files if f.data_file_id >= 0)
            # No other writer can have deleted from a file that this transaction adds.
            if known:
                yield _on_table("delete", table_id, transaction, known)
        case InlineDeletes(table_id=table_id, files=hidden):
            yield _on_table("inlined_file_delete", table_id, transaction, tuple((f.data_file_id, None) for f in hidden))
        case EndInlined(table_id=table_id):
            yield _on_table("inlined_delete", table_id, transaction)
        case MergeFiles(table_id=table_id, merges=merges):
            # Most merged files have no delete at the base, so any live delete file is new.
            live = {deletes.data_file_id: deletes.live for merge in merges for deletes in merge.deleted}
            sources = (source_id for merge in merges for source_id, _, _ in merge.sources)
            merged = tuple((source_id, frozenset[int | None](live.get(source_id, ()))) for source_id in sources)
            yield _on_table("compact", table_id, transaction, merged)
        case FlushInlined(table_id=table_id):
            yield _on_table("flush", table_id, transaction)
        case RewriteFiles(table_id=table_id, sources=sources):
            of_files = tuple((source.data_file_id, frozenset[int | None](source.delete_file_ids)) for source in sources)
            yield _on_table("rewrite", table_id, transaction, of_files)
        case SetOption():
            yield from _option(action, transaction)
        case _:
            assert_never(action)


def _definition(action: Definition) -> Iterator[_Own]:
    match action:
        case CreateSchema(parent_id=parent_id, name=name):
            yield _Own(kind="create_schema", label=name, schema_id=parent_id, schema_name=name)
        case DropSchema(schema_id=schema_id, name=name):
            yield _Own(kind="drop_schema", label=name, schema_id=schema_id, schema_name=name)
        case TagSchema(schema_id=schema_id, name=name):
            yield _Own(kind="tag_schema", label=name, schema_id=schema_id, schema_name=name)
        case CreateTable(schema_id=schema_id, schema_name=schema_name, name=name):
            label = f"{schema_name}.{name}"
            yield _Own(kind="create_table", label=label, schema_id=schema_id, schema_name=schema_name, name=name)
        case DropTable(table_id=table_id, schema_name=schema_name, name=name):
            yield _Own(kind="drop_table", label=f"{schema_name}.{name}", table_id=table_id)
        case AlterTable():
            yield from _alterations(action)
        case CreateView(schema_id=schema_id, schema_name=schema_name, name=name):
            label = f"{schema_name}.{name}"
            yield _Own(kind="create_view", label=label, schema_id=schema_id, schema_name=schema_name, name=name)
        case AlterView():
            yield from _view_alterations(action)
        case DropView(view_id=view_id, schema_name=schema_name, name=name):
            yield _Own(kind="drop_view", label=f"{schema_name}.{name}", view_id=view_id)
        case CreateMacro(kind=kind, schema_id=schema_id, schema_name=schema_name, name=name):
            own: OwnKind = "create_scalar_macro" if kind == "scalar" else "create_table_macro"
            yield _Own(kind=own, label=f"{schema_name}.{name}", schema_id=schema_id, schema_name=schema_name, name=name)
        case DropMacro(macro_id=macro_id, schema_name=schema_name, name=name):
            yield _Own(kind="drop_macro", label=f"{schema_name}.{name}", macro_id=macro_id)
        case _:
            assert_never(action)


def _option(action: SetOption, transaction: CommitRequest) -> Iterator[_Own]:
    if action.scope_id is None:
        return
    if action.scope == "table":
        yield _on_table("set_table_option", action.scope_id, transaction)
    else:
        yield _Own(kind="set_schema_option", label=f"with id {action.scope_id}", schema_id=action.scope_id)


def _alterations(action: AlterTable) -> Iterator[_Own]:
    label = f"{action.schema_name}.{action.name}"
    if action.new_name is not None:
        yield _Own(
            kind="rename_table",
            label=f"{label} to {action.new_name}",
            table_id=action.table_id,
            schema_id=action.schema_id,
            schema_name=action.schema_name,
            name=action.new_name,
        )
    if action.changes_table:
        yield _Own(kind="alter_table", label=label, table_id=action.table_id)
    if action.not_null:
        yield _Own(kind="set_not_null", label=label, table_id=action.table_id)


def _view_alterations(action: AlterView) -> Iterator[_Own]:
    label = f"{action.schema_name}.{action.name}"
    if action.new_name is not None:
        yield _Own(
            kind="rename_view",
            label=f"{label} to {action.new_name}",
            view_id=action.view_id,
            schema_id=action.schema_id,
            schema_name=action.schema_name,
            name=action.new_name,
        )
    if action.tags:
        yield _Own(kind="alter_view", label=label, view_id=action.view_id)


def _entries(changes: Changes) -> Iterator[_Other]:
    for kind in (field.name for field in fields(Changes)):
        for value in getattr(changes, kind):
            match value:
                case int():
                    yield _Other(kind=kind, id=value)
                case QualifiedName(schema=schema, name=name):
                    yield _Other(kind=kind, schema=schema, name=name)
                case str() if kind == "unknown":
                    yield _Other(kind=kind, text=value)
                case str() if kind == "created_schema":
                    yield _Other(kind=kind, schema=parent_schema(value), name=value)
                case _:
                    yield _Other(kind=kind, name=str(value))


def _on_table(
    kind: OwnKind, table_id: int, transaction: CommitRequest, files: tuple[tuple[int, frozenset[int | None] | None], ...] = ()
) -> _Own:
    return _Own(kind=kind, label=transaction.names.get(table_id, f"with id {table_id}"), table_id=table_id, files=files)


def _related(scope: Scope, own: _Own, other: _Other, transaction: CommitRequest, head: Head) -> bool:
    match scope:
        case "table":
            return own.table_id == other.id
        case "view":
            return own.view_id == other.id
        case "macro":
            return own.macro_id == other.id
        case "schema":
            return own.schema_id == other.id
        case "schema name":
            return _same(own.schema_name, other.name)
        case "entry name":
            return _same(own.schema_name, other.schema) and _same(own.name, other.name)
        case "entries of schema":
            return _same(own.schema_name, other.schema)
        case "data file":
            return own.table_id == other.id and any(_file_changed(i, known, transaction.base.id, head) for i, known in own.files)
        case _:
            assert_never(scope)


def _same(one: str | None, two: str | None) -> bool:
    return one is not None and two is not None and folded(one) == folded(two)


def _file_changed(data_file_id: int, known: frozenset[int | None] | None, base: int, head: Head) -> bool:
    """Return whether a data file ended or got deletes since the base.

    Snapshot ids alone do not show every change::

        other commit    delete file afterwards                     detected by
        new delete      may begin before the base (cumulative)     newest snapshot in it
        flush           contains nothing newer than the base       ids of the live delete files

    Args:
        data_file_id: The data file.
        known: Ids of its live delete files at the base; None when a flush of its deletes does not matter.
        base: Id of the base snapshot.
        head: The head.
    """
    state = head.files.get(data_file_id)
    if state is None or state.deleted_at > base:
        return True
    return known is not None and state.delete_file_ids != known
