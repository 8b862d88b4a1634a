"""One table within an open transaction: what is staged for it, and how its deletes are planned on a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ducklake_core.arrow.positions import Deletions
from ducklake_core.catalog.state import TableState
from ducklake_core.commit.actions import (
    Action,
    AddDeleteFiles,
    AddFiles,
    AppendFiles,
    CreateTable,
    EndFiles,
    EndInlined,
    InlineDeletes,
    InsertInlined,
)
from ducklake_core.commit.alterations import Alteration
from ducklake_core.commit.difference import difference, inlining, settled
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.added_files import AddedFile, same_mapping
from ducklake_core.format.files import WrittenFile
from ducklake_core.format.inlined_rows import InlinedRows
from ducklake_core.format.name_mapping import NameMapping
from ducklake_core.format.names import join_name

if TYPE_CHECKING:
    from ducklake_core.arrow.merge_source import MergeSource
    from ducklake_core.arrow.row_request import ChangeRequest
    from ducklake_core.format.predicates import Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRows:
    """Rows to delete: those that match, or all of them.

    ``data`` is the frame that replaces them, for its engine; ``session`` is a Spark session that finds them when there is none.
    """

    where: str | Predicate | None
    data: Any = field(default=None, repr=False)
    session: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKeys:
    """Rows to delete: those whose key columns equal those of a row of ``data``."""

    on: tuple[str, ...]
    data: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRows:
    """Rows to change or delete, and rows to add for those of a source that match none."""

    request: ChangeRequest
    source: MergeSource | None = None
    session: Any = field(default=None, repr=False)

    def narrowing(self) -> Predicate | None:
        """What is true of every row that the change can be about, None for all rows."""
        return self.request.where if self.source is None else self.source.narrowing(self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRows:
    """Make the rows those of an earlier snapshot; ``then`` is the table at it. ``session`` is a Spark session that does the work."""

    then: TableState
    session: Any = field(default=None, repr=False)


Selection: TypeAlias = SelectRows | SelectKeys | ChangeRows | RestoreRows


@dataclass(frozen=True, slots=True, kw_only=True)
class FewRows:
    """Rows of a change for the catalog; ``row_ids`` are those of changed rows, None for new ones."""

    rows: InlinedRows
    row_ids: tuple[int, ...] | None = None


@dataclass(slots=True, kw_only=True)
class StagedTable:
    """What a transaction does to one table.

    Attributes:
        state: The table as later calls of the transaction see it; a negative id while it is not committed.
        committed: The table at the transaction's base snapshot, None when the transaction creates it.
        create: Its creation, if that is part of the transaction.
        alterations: Changes of its definition that were asked for, which led to ``state``.
        differences: What fitting its columns to a frame has changed, readable.
        files: Written files.
        added: Files of other writers that are to belong to it; ``mappings`` are those that the table has at the base snapshot.
        exclusive: Full paths among them that nothing else in the lake may have.
        inlined: Rows for the catalog.
        selection: Which committed rows to delete.
        key_files: The files written by the call that selected; rows that later calls append are no keys of it.
        deletions: Those rows, found on the base snapshot.
        updated: Files of rows as they were changed, made together with ``deletions``; ``inserted`` are those of rows that a
            merge adds. ``few_updated`` and ``few_inserted`` are such rows for the catalog.
        written: Whether any call wrote to it.
        remembered: Whether ``committed`` was taken from memory, which is good for appends only (see known_tables.py).
    """

    state: TableState
    committed: TableState | None
    create: CreateTable | None = None
    alterations: tuple[Alteration, ...] = ()
    differences: tuple[str, ...] = ()
    files: list[WrittenFile] = field(default_factory=list)
    added: list[AddedFile] = field(default_factory=list)
    mappings: tuple[NameMapping, ...] = ()
    exclusive: frozenset[str] = frozenset()
    inlined: list[InlinedRows] = field(default_factory=list)
    selection: Selection | None = None
    key_files: tuple[WrittenFile, ...] | None = None
    deletions: Deletions = field(default_factory=Deletions)
    updated: tuple[WrittenFile, ...] = ()
    inserted: tuple[WrittenFile, ...] = ()
    few_updated: FewRows | None = None
    few_inserted: FewRows | None = None
    written: bool = False
    remembered: bool = False

    @property
    def name(self) -> str:
        """``schema.table``, quoted where needed."""
        return join_name(self.state.schema_name, self.state.name)

    @property
    def has_rows(self) -> bool:
        """Whether rows were added."""
        return bool(self.files or self.added or self.inlined)

    def select(self, selection: Selection) -> None:
        """Remember which rows to delete.

        Raises:
            UnsupportedFeatureError: Rows of this table were deleted or added before in this transaction: later calls
                would have to see rows that are not committed.
        """
        if self.selection is not None or self.has_rows:
            raise UnsupportedFeatureError(
                f"deleting rows of {self.name} after other writes to it in the same transaction is not supported; "
                "delete or overwrite first and once, then append",
                table=self.name,
            )
        self.selection = selection

    def alter(self, alteration: Alteration, *, forms: bool) -> None:
        """Change the definition.

        Args:
            alteration: How.
            forms: Whether it decides what files look like.

        Raises:
            UnsupportedFeatureError: It does, and rows were written in this transaction already.
        """
        if forms and self.written:
            raise UnsupportedFeatureError(
                f"changing columns or partition keys of {self.name} after rows were written to it in the same transaction is not "
                "supported; alter the table first, then write",
                table=self.name,
            )
        self.state = settled(self.committed, alteration(self.state))
        self.alterations = (*self.alterations, alteration)

    def _creation(self, create: CreateTable) -> CreateTable:
        """The creation in its final form, whatever was altered since."""
        state = self.state
        return replace(
            create,
            name=state.name,
            schema=state.schema,
            partition_spec=state.partition_spec,
            sort_keys=state.sort_keys,
            comment=state.comment,
            column_comments=tuple(sorted(state.column_comments.items())),
            altered=bool(self.alterations),
            inlined=inlining(state),
        )

    def actions(self) -> Iterator[Action]:
        """Everything staged, as the commit takes it."""
        if self.create is not None:
            yield self._creation(self.create)
        elif self.committed is not None and (altered := difference(self.committed, self.state)) is not None:
            yield altered
        table_id = self.state.id
        if self.added:
            yield self._added_files()
        # Data files come before delete files, so that they get the lower ids, as in the reference.
        files = (*self.files, *self.inserted, *self.updated)
        if files:
            depends = bool(self.inserted or self.updated)
            spec = self.state.partition_spec
            yield AppendFiles(table_id=table_id, schema=self.state.schema, files=files, partition_spec=spec, depends=depends)
        for rows in self.inlined:
            yield self._insert_inlined(FewRows(rows=rows))
        for few in (self.few_inserted, self.few_updated):
            if few is not None:
                yield self._insert_inlined(few, depends=True)
        if self.deletions.ended:
            ids = tuple(file.data_file_id for file in self.deletions.ended)
            yield EndFiles(table_id=table_id, data_file_ids=ids, row_count=sum(file.new_count for file in self.deletions.ended))
        if self.deletions.delete_files:
            yield AddDeleteFiles(table_id=table_id, files=self.deletions.delete_files)
        if self.deletions.inlined_deletes:
            yield InlineDeletes(table_id=table_id, files=self.deletions.inlined_deletes)
        if self.deletions.inlined:
            yield EndInlined(table_id=table_id, rows=self.deletions.inlined)

    def _added_files(self) -> AddFiles:
        mappings: list[NameMapping] = list(self.mappings)
        files: list[tuple[AddedFile, int]] = []
        for added in self.added:
            found = next((mapping for mapping in mappings if same_mapping(mapping.columns, added.columns)), None)
            if found is None:
                found = NameMapping(id=-1 - len(mappings), columns=added.columns)
                mappings.append(found)
            files.append((added, found.id))
        used = {number for _, number in files}
        return AddFiles(
            table_id=self.state.id,
            schema=self.state.schema,
            files=tuple(files),
            mappings=tuple(mapping for mapping in mappings if mapping.id in used),
            exclusive=frozenset(added.file.path for added in self.added if added.full_path in self.exclusive),
            partition_spec=self.state.partition_spec,
        )

    def _insert_inlined(self, few: FewRows, *, depends: bool = False) -> InsertInlined:
        newest = self.state.inlined_tables[-1] if self.state.inlined_tables else None
        return InsertInlined(
            table_id=self.state.id,
            schema=self.state.schema,
            rows=few.rows,
            row_ids=few.row_ids,
            inlined_table=newest,
            depends=depends,
            columns_version=self.state.columns_version,
        )

    def paths(self, files: Sequence[Any]) -> list[str]:
        """Full paths of files that are relative to the table."""
        return [self.state.path + file.path for file in files]
