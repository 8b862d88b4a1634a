"""The table of conflict rules: which changes of others an own change must not be committed on top of.

Rules marked ``stricter`` go beyond DuckDB, which loses or duplicates rows there, or leaves objects that nobody can read or drop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

OwnKind: TypeAlias = Literal[
    "create_schema", "drop_schema", "tag_schema", "create_table", "drop_table", "alter_table", "rename_table", "set_not_null",
    "create_view", "alter_view", "rename_view", "drop_view",
    "create_scalar_macro", "create_table_macro", "drop_macro",
    "insert", "delete", "inlined_delete", "inlined_file_delete", "compact", "flush", "rewrite",
    "look_at_definition", "look_for_matches", "look_at_rows",
]  # fmt: skip
Scope: TypeAlias = Literal["table", "schema", "schema name", "entry name", "entries of schema", "data file", "view", "macro"]
"""The object that own and other change must share to conflict: an id of a table, view, macro or schema, a name, or a data file."""

RENAMED = "renamed_table"
"""Not an entry of changes_made: a rename is logged as the creation of the new name, and told by the table's row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One pair of changes that do not go together.

    Attributes:
        name: Stable name, for tests and documentation.
        own: Kind of the change to be committed.
        other: Keyword in ``changes_made`` of a later snapshot.
        scope: What both must be about.
        outcome: What the other transaction has done, for the message.
        why: Why the pair is forbidden.
        stricter: Whether DuckDB allows it.
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
    """The rules of a change that moves rows of some data files, of a table that must still be there."""
    return (
        *_table_rules(own, ("dropped_table", "dropped it", _GONE)),
        *(
            Rule(name=f"{own}-{other}", own=own, other=other, scope="data file", outcome=outcome, why=why, stricter=stricter)
            for other, outcome, why, stricter in rows
        ),
    )


def _naming_rules(own: OwnKind) -> tuple[Rule, ...]:
    """The rules that keep a table or view from getting a name."""
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


_NO_SCHEMA = "the new entry would live in no schema"
_GONE = "the table the rows belong to no longer exists"
_OTHER_COLUMNS = "the files may follow columns, keys or types that no longer hold"
_DELETED = "the other transaction decided what to delete without seeing these rows"
_UNSEEN = "the new rows were not looked at when this transaction decided what to delete"
_MOVED = "positions in the old files mean nothing in the new ones"
_TWICE = "a row could count as deleted twice"
_OVERLOOKED = "what this transaction has looked for, it might find there now"
_OTHER_NAME = "another table may have the name by which this one was asked for"
_BY_NAME: tuple[OwnKind, ...] = ("insert", "delete", "inlined_delete", "inlined_file_delete")
_UNCHECKED = "the new rows were not looked at when the column was found to be without NULL"

_REDEFINED = (("dropped_table", "dropped it"), ("altered_table", "altered it"))
_NEW_ROWS = (("inserted_into_table", "inserted into it"), ("inlined_insert", "inserted into it"))
_FEWER_ROWS = (("deleted_from_table", "deleted from it"), ("inlined_delete", "deleted inlined rows from it"))


def _lookup_rules(own: OwnKind, *others: tuple[str, str]) -> tuple[Rule, ...]:
    return tuple(_stricter(own, other, outcome, _OVERLOOKED) for other, outcome in others)


RULES: tuple[Rule, ...] = (
    # Schemas and names.
    Rule(name="create_schema-created_schema", own="create_schema", other="created_schema", scope="schema name",
         outcome="created a schema with this name already", why="names are unique"),
    _stricter("create_schema", "dropped_schema", "dropped the schema that it is to be in", "nobody could name it", "schema"),
    _stricter("drop_schema", "created_schema", "created a schema in it", "nobody could name that schema", "entries of schema"),
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
    _stricter("alter_table", RENAMED, "renamed it", "the change was asked for by the old name"),
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
    _stricter("alter_view", RENAMED, "renamed it", "the change was asked for by the old name", "view"),
    *_naming_rules("rename_view"),
    _stricter("rename_view", "dropped_view", "dropped it", "the renamed view would come back", "view"),
    _stricter("rename_view", RENAMED, "renamed it", "the new name was chosen for the old one", "view"),
    Rule(name="drop_view-dropped_view", own="drop_view", other="dropped_view", scope="view",
         outcome="dropped it already", why="it can be dropped once"),
    _stricter("drop_view", RENAMED, "renamed it", "the drop was asked for by the old name", "view"),
    *_macro_rules("scalar"),
    *_macro_rules("table"),
    Rule(name="drop_macro-dropped_scalar_macro", own="drop_macro", other="dropped_scalar_macro", scope="macro",
         outcome="dropped it already", why="it can be dropped once"),
    Rule(name="drop_macro-dropped_table_macro", own="drop_macro", other="dropped_table_macro", scope="macro",
         outcome="dropped it already", why="it can be dropped once"),
    # Rows.
    *_table_rules(
        "insert",
        ("dropped_table", "dropped it", _GONE),
        ("altered_table", "altered it", _OTHER_COLUMNS),
        ("deleted_from_table", "deleted from it", _DELETED),
        ("inlined_delete", "deleted inlined rows from it", _DELETED),
    ),
    # Planned again they follow the table, unless another one has its name now.
    *(_stricter(own, RENAMED, "renamed it", _OTHER_NAME) for own in _BY_NAME),
    *_table_rules(
        "delete",
        ("dropped_table", "dropped it", _GONE),
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
        ("dropped_table", "dropped it", _GONE),
        ("altered_table", "altered it", "the condition may mean other columns now"),
        ("inlined_delete", "deleted inlined rows from it", "both may have deleted the same row"),
        ("inline_flush", "flushed its inlined data", "the rows live in a file now"),
        ("inserted_into_table", "inserted into it", _UNSEEN),
        ("inlined_insert", "inserted into it", _UNSEEN),
    ),
    *_table_rules(
        "inlined_file_delete",
        ("dropped_table", "dropped it", _GONE),
        ("altered_table", "altered it", "the condition may mean other columns now"),
        ("inserted_into_table", "inserted into it", _UNSEEN),
        ("inlined_insert", "inserted into it", _UNSEEN),
    ),
    # DuckDB looks at tables here, not at files.
    Rule(name="inlined_file_delete-inlined_delete", own="inlined_file_delete", other="inlined_delete", scope="data file",
         outcome="deleted from the same data file", why=_TWICE),
    Rule(name="inlined_file_delete-inline_flush", own="inlined_file_delete", other="inline_flush", scope="data file",
         outcome="flushed deletes of the same data file", why=_TWICE),
    _stricter("inlined_file_delete", "deleted_from_table", "deleted from the same data file", _TWICE, "data file"),
    _stricter("inlined_file_delete", "merge_adjacent", "compacted it", _MOVED),
    _stricter("inlined_file_delete", "rewrite_delete", "compacted it", _MOVED),
    # Compaction goes by data file, where DuckDB looks at tables: only what others did to the same files is in the way.
    *_file_rules(
        "compact",
        ("deleted_from_table", "deleted from the same data file", "the deleted rows would come back", False),
        ("inlined_delete", "deleted from the same data file", "the deletes would point at files that are gone", True),
        ("inline_flush", "flushed deletes of the same data file", "the deletes would point at files that are gone", True),
        ("merge_adjacent", "compacted the same data file", "the file may be gone", False),
        ("rewrite_delete", "compacted the same data file", "the file may be gone", False),
    ),
    # A flush is planned again on top of whatever moves or deletes rows; rows that come in stay where they are.
    *_table_rules(
        "flush",
        ("dropped_table", "dropped it", _GONE),
        ("inlined_delete", "deleted inlined rows from it", "the deleted rows would come back"),
        ("inline_flush", "flushed its inlined data", "the rows live in a file already"),
    ),
    _stricter("flush", "deleted_from_table", "deleted from it", "two live delete files of a data file double its rows"),
    _stricter("flush", "merge_adjacent", "compacted it", _MOVED),
    _stricter("flush", "rewrite_delete", "compacted it", _MOVED),
    *_file_rules(
        "rewrite",
        ("deleted_from_table", "deleted from the same data file", "the deleted rows would come back", False),
        ("inlined_delete", "deleted from the same data file", "the deletes would point at files that are gone", True),
        ("inline_flush", "flushed deletes of the same data file", "the deleted rows would come back", True),
        ("merge_adjacent", "compacted the same data file", "the file may be gone", False),
        ("rewrite_delete", "compacted the same data file", "the file may be gone", False),
    ),
    # What was looked at, whether or not anything was found: the transaction is as if it had begun after the other one.
    *_lookup_rules("look_at_definition", *_REDEFINED),
    _stricter("look_at_definition", RENAMED, "renamed it", "the change was asked for by the old name"),
    *_lookup_rules("look_for_matches", *_REDEFINED, *_NEW_ROWS),
    *_lookup_rules("look_at_rows", *_REDEFINED, *_NEW_ROWS, *_FEWER_ROWS),
)  # fmt: skip
"""Every forbidden pair."""
