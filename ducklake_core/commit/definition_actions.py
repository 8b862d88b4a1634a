"""Staged changes of definitions: frozen values that say what the user wants, before any id is known.

Ids of objects that the transaction itself creates are negative and local to it; resolution gives them real ids in
every attempt.  Column ids are per table and final from the start, because data files carry them as field ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.sorting import SortKey
from ducklake_core.format.macro_text import MacroImplementation, MacroKind
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSchema:
    """``schema_id`` is negative; ``name`` is the schema's path; ``path`` is its directory, relative to the data path.

    ``parent_id`` is the schema that it is in, which may be negative.
    ``or_existing`` says that one which another writer has created alike meanwhile will do.
    """

    schema_id: int
    name: str
    uuid: str
    path: str
    parent_id: int | None = None
    or_existing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropSchema:
    """Drop an (empty) schema."""

    schema_id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TagSchema:
    """Change a tag of a schema; None takes it away. ``schema_id`` may be negative."""

    schema_id: int
    name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """``table_id`` is negative; ``schema_id`` may be; ``path`` is relative to the schema's directory.

    ``inlined`` says that an empty table of inlined rows is made with it, as DuckDB does while its inlining limit is
    above 0 and the types allow it. ``altered`` says that the transaction has altered it since, which DuckDB logs.
    ``or_existing`` is as for a schema. ``tags`` are its other tags by key; ``options`` are stored for it.
    Its row ids begin at ``first_row_id``, because its rows may bring their own.
    ``transient_columns`` are nodes that files of the transaction have and the table has not in the end, each with the id of its
    parent column.
    """

    table_id: int
    schema_id: int
    schema_name: str
    name: str
    uuid: str
    path: str
    schema: Schema
    partition_spec: PartitionSpec | None = None
    comment: str | None = None
    column_comments: tuple[tuple[int, str], ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    first_row_id: int = 0
    sort_keys: tuple[SortKey, ...] = ()
    altered: bool = False
    inlined: bool = False
    or_existing: bool = False
    transient_columns: tuple[tuple[Field, int | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    """End a table and everything that belongs to it."""

    table_id: int
    schema_name: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """Other partition keys for new files; None for none at all."""

    spec: PartitionSpec | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SortChange:
    """Another sort order for new files; empty for none at all."""

    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    """Everything that a transaction changes of a committed table's definition.

    Attributes:
        name: The table's name at the base.
        new_name: Its name from now on, None when it stays.
        ended: Column ids whose live row ends.
        added: Nodes to insert, each without its children and with the id of its parent column (None on top level).
        schema: The columns that result.
        partitioning: None when the keys stay; likewise ``sorting``.
        tags: Column id (None for the table itself), key and text of changed tags, comments among them; None takes one away.
        not_null: Ids of the columns that are NOT NULL from now on, of which the data at the base was checked.
        inlined: Whether a new, empty table of inlined rows with these columns is made, as in :class:`CreateTable`.
        unbounded: Ids of the columns whose bounds mean nothing for values of their new type.
        transient_columns: As in :class:`CreateTable`.
    """

    table_id: int
    schema_id: int
    schema_name: str
    name: str
    new_name: str | None = None
    ended: tuple[int, ...] = ()
    added: tuple[tuple[Field, int | None], ...] = ()
    schema: Schema
    partitioning: PartitionChange | None = None
    sorting: SortChange | None = None
    tags: tuple[tuple[int | None, str, str | None], ...] = ()
    not_null: frozenset[int] = frozenset()
    inlined: bool = False
    unbounded: tuple[int, ...] = ()
    transient_columns: tuple[tuple[Field, int | None], ...] = ()

    @property
    def changes_columns(self) -> bool:
        """Whether any row of a column changes."""
        return bool(self.ended or self.added or self.transient_columns)

    @property
    def changes_table(self) -> bool:
        """Whether anything changes but the name."""
        return self.changes_columns or self.partitioning is not None or self.sorting is not None or bool(self.tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """``view_id`` is negative; ``schema_id`` may be. ``altered`` is as for a table."""

    view_id: int
    schema_id: int
    schema_name: str
    name: str
    uuid: str
    dialect: str
    sql: str
    column_aliases: tuple[str, ...] = ()
    comment: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    column_comments: tuple[tuple[str, str], ...] = ()
    altered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterView:
    """Rename a view or change its tags.

    Attributes:
        name: Its name at the base.
        new_name: Its name from now on, None when it stays.
        tags: Column (None for the view itself), key and text of changed tags, comments among them; None takes one away.
    """

    view_id: int
    schema_id: int
    schema_name: str
    name: str
    new_name: str | None = None
    tags: tuple[tuple[str | None, str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropView:
    """End a view and its tags."""

    view_id: int
    schema_name: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMacro:
    """``macro_id`` is negative; ``schema_id`` may be."""

    macro_id: int
    schema_id: int
    schema_name: str
    name: str
    implementations: tuple[MacroImplementation, ...]

    @property
    def kind(self) -> MacroKind:
        """Whether it makes values or rows."""
        return self.implementations[0].kind


@dataclass(frozen=True, slots=True, kw_only=True)
class DropMacro:
    """End a macro."""

    macro_id: int
    schema_name: str
    name: str
    kind: MacroKind


Definition: TypeAlias = (
    CreateSchema
    | DropSchema
    | TagSchema
    | CreateTable
    | AlterTable
    | DropTable
    | CreateView
    | AlterView
    | DropView
    | CreateMacro
    | DropMacro
)
