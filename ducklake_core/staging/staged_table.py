"""One table within an open transaction: what is staged for it, and how its deletes are planned on a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from ducklake_core.commit.actions import Action, AddDeleteFiles, AddFiles, AppendFiles, EndFiles, EndInlined, InlineDeletes, InsertInlined
from ducklake_core.commit.alterations import Alteration
from ducklake_core.commit.definition_actions import CreateTable
from ducklake_core.commit.difference import difference, find_transient_columns, inlining, normalized, same_keys
from ducklake_core.commit.request import Lookup
from ducklake_core.format.files.added_files import AddedFile, same_mapping
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.files.name_mapping import NameMapping
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.staging.staged_rows import StagedFile, StagedInlined, StagedRows

if TYPE_CHECKING:
    from ducklake_core.engines.arrow.merge_source import MergeSource
    from ducklake_core.engines.arrow.row_request import ChangeRequest
    from ducklake_core.engines.frame import Frame
    from ducklake_core.format.expressions.columns import Column
    from ducklake_core.format.expressions.conditions import Condition
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.files.partitioning import PartitionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWhere:
    """Rows to delete: those that match, or all of them.

    Attributes:
        where: Condition, None for all rows.
        session: Spark session that finds them.
        rejects_unseen: Whether rows that another writer commits after they were searched for are a conflict, rather than deleted too.
    """

    where: str | Predicate | Condition | Column | None
    session: Any = field(default=None, repr=False)
    rejects_unseen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteByKeys:
    """Rows to delete: those whose key columns equal those of a row of ``frame``, which was written to ``files``."""

    on: tuple[str, ...]
    frame: Frame = field(repr=False)
    files: tuple[WrittenFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRows:
    """Rows to change or delete, and rows to add for those of a source that match none; ``inline`` is as in :meth:`DuckLake.write`."""

    request: ChangeRequest
    inline: bool | None = None
    source: MergeSource | None = None
    session: Any = field(default=None, repr=False)

    def narrowing(self) -> Predicate | None:
        """A predicate that holds for every row that the change can touch, None for all rows."""
        return self.request.where if self.source is None else self.source.narrowing(self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRows:
    """Make the rows those of an earlier snapshot; ``then`` is the table at it. ``session`` is a Spark session that does the work."""

    then: TableState
    session: Any = field(default=None, repr=False)


Selection: TypeAlias = DeleteWhere | DeleteByKeys | ChangeRows | RestoreRows


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRows:
    """Rows that a call has written, to files or for the catalog; ``replaces`` other rows, be there any or none."""

    files: tuple[WrittenFile, ...] = ()
    inlined: InlinedRows | None = None
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDataFiles:
    """Files of other writers."""

    files: tuple[AddedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """A change of the table's definition.

    Attributes:
        alteration: How.
        after: The table that came of it.
        asked: Whether it was asked for, and not made to fit a frame.
        proves: The column that has no NULL from then on, which the rows have to prove; ``session`` is a Spark session that looks.
        discards: Whether rows that were staged before are given up.
    """

    alteration: Alteration
    after: TableState
    asked: bool = True
    proves: tuple[str, ...] | None = None
    session: Any = field(default=None, repr=False)
    discards: bool = False


Step: TypeAlias = AddRows | AddDataFiles | Selection | Altered


@dataclass(slots=True, kw_only=True)
class StagedTable:
    """The changes of a transaction to one table.

    Attributes:
        state: The table as later calls of the transaction see it; a negative id while it is not committed.
        start: The table before the first step.
        committed: The table at the transaction's base snapshot, None when the transaction creates it.
        asked: Schema and name by which the user asked for it, None when the transaction creates it.
        create: Its creation, if that is part of the transaction.
        differences: What fitting its columns to a frame has changed, readable.
        steps: What calls have done to its definition and rows, in order; ``state`` and ``rows`` are what comes of it at the base snapshot.
        mappings: Name mappings that the table has at the base snapshot, once files of other writers are among the steps.
        exclusive: Full paths of such files that nothing else in the lake may have.
        written: Whether any call wrote to it.
        remembered: Whether ``committed`` was taken from memory, which is good for appends only (see table_cache.py).
        guarded: Whether the commit must not come after changes of others, whatever was done to the table.
    """

    state: TableState
    start: TableState
    committed: TableState | None
    asked: tuple[str, str] | None = None
    create: CreateTable | None = None
    differences: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    rows: StagedRows = field(default_factory=StagedRows)
    mappings: tuple[NameMapping, ...] = ()
    exclusive: frozenset[str] = frozenset()
    written: bool = False
    remembered: bool = False
    guarded: bool = False

    @property
    def name(self) -> str:
        """``schema.table``, quoted where needed."""
        return join_name(self.state.schema_name, self.state.name)

    @property
    def is_altered(self) -> bool:
        """Whether its definition was asked to be changed."""
        return any(isinstance(step, Altered) and step.asked for step in self.steps)

    @property
    def lookups(self) -> frozenset[Lookup]:
        """The parts of the committed table that calls have read."""
        if self.committed is None:
            return frozenset()
        whole: frozenset[Lookup] = frozenset(("definition", "rows")) if self.guarded else frozenset()
        return whole | frozenset(lookup for step in self.steps if (lookup := _lookup(step)) is not None)

    def alteration(
        self,
        alteration: Alteration,
        *,
        asked: bool = True,
        proves: tuple[str, ...] | None = None,
        session: Any = None,
        discards: bool = False,
    ) -> Altered:
        """The step that changes the definition; see :class:`Altered`."""
        after = normalized(self.committed, alteration(self.state))
        return Altered(alteration=alteration, after=after, asked=asked, proves=proves, session=session, discards=discards)

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
            tags=tuple(sorted(state.tags.items())),
            altered=self.is_altered,
            inlined=inlining(state),
            transient_columns=self._passing(),
        )

    def _passing(self) -> tuple[tuple[Field, int | None], ...]:
        written = (file.schema for file in self.rows.files)
        return find_transient_columns(
            written, (self.state.schema,) if self.committed is None else (self.state.schema, self.committed.schema)
        )

    def _keys(self, file: StagedFile) -> PartitionSpec | None:
        """The partition keys that a file is committed with: none where those that it was written with do not come to be."""
        written, final = file.partition_spec, self.state.partition_spec
        if same_keys(written, final):
            return final
        return written if written is not None and written.id else None

    def actions(self) -> Iterator[Action]:
        """Everything staged, as the commit takes it."""
        if self.create is not None:
            yield self._creation(self.create)
        elif self.committed is not None and (altered := difference(self.committed, self.state, self._passing())) is not None:
            yield altered
        table_id, rows = self.state.id, self.rows
        yield from self._added_files([file for file in rows.files if file.added is not None])
        # Data files come before delete files, so that they get the lower ids, as in DuckDB.
        for keys, schema, files in self._alike(file for file in rows.files if file.added is None):
            yield AppendFiles(
                table_id=table_id,
                schema=schema,
                files=tuple(_with_keys(file.file, keys) for file in files),
                partition_spec=keys,
                reads_base_rows=any(file.reads_base_rows for file in files),
                local_ids=tuple(file.id for file in files),
            )
        for inlined in rows.inlined:
            yield self._insert_inlined(inlined)
        deletions = rows.deletions
        if deletions.ended:
            ids = tuple(file.data_file_id for file in deletions.ended)
            yield EndFiles(table_id=table_id, data_file_ids=ids, row_count=sum(file.new_count for file in deletions.ended))
        if rows.delete_files:
            yield AddDeleteFiles(table_id=table_id, files=rows.delete_files)
        if deletions.inlined_deletes:
            yield InlineDeletes(table_id=table_id, files=deletions.inlined_deletes)
        if deletions.inlined:
            yield EndInlined(table_id=table_id, rows=deletions.inlined)

    def mapped(self) -> dict[int, tuple[int, NameMapping]]:
        """The mapping of each file of another writer, by the file's id, with its own id: below 0 for one that the table lacks."""
        known: list[NameMapping] = list(self.mappings)
        mapped: dict[int, tuple[int, NameMapping]] = {}
        for file in self.rows.files:
            if file.added is not None:
                columns = file.added.columns
                found = next((mapping for mapping in known if same_mapping(mapping.columns, columns)), None)
                if found is None:
                    found = NameMapping(id=-1 - len(known), columns=columns)
                    known.append(found)
                mapped[file.id] = found.id, found
        return mapped

    def _added_files(self, added_files: Sequence[StagedFile]) -> Iterator[AddFiles]:
        mapped = self.mapped()
        for keys, schema, files in self._alike(added_files):
            added = [(file.id, replace(file.added, file=_with_keys(file.file, keys))) for file in files if file.added is not None]
            yield AddFiles(
                table_id=self.state.id,
                schema=schema,
                files=tuple((one, mapped[file_id][0]) for file_id, one in added),
                mappings=tuple(dict(mapped[file_id] for file_id, _ in added).values()),
                exclusive=frozenset(one.file.path for _, one in added if one.full_path in self.exclusive),
                partition_spec=keys,
                local_ids=tuple(file_id for file_id, _ in added),
            )

    def _alike(self, files: Iterable[StagedFile]) -> Iterator[tuple[PartitionSpec | None, Schema, list[StagedFile]]]:
        """Files in order, those after each other together that have the same columns and keys."""
        for (keys, schema), group in groupby(files, key=lambda file: (self._keys(file), file.schema)):
            yield keys, schema, list(group)

    def _insert_inlined(self, inlined: StagedInlined) -> InsertInlined:
        newest = self.state.inlined_tables[-1] if self.state.inlined_tables else None
        return InsertInlined(
            table_id=self.state.id,
            schema=self.state.schema,
            rows=inlined.rows,
            row_ids=inlined.row_ids if inlined.is_changed else None,
            inlined_table=newest,
            reads_base_rows=inlined.reads_base_rows,
            columns_version=self.state.columns_version,
        )

    def paths(self, files: Sequence[Any]) -> list[str]:
        """Full paths of files that are relative to the table."""
        return [self.state.path + file.path for file in files]


def _lookup(step: Step) -> Lookup | None:
    match step:
        case Altered(asked=asked):
            return "definition" if asked else None
        case ChangeRows(request=request):
            # Rows of a source that match none are added: that a row is gone matters as much as that one has come.
            return "rows" if any(clause.when == "not matched" for clause in request.clauses) else "matches"
        case DeleteWhere() | DeleteByKeys():
            return "matches"
        case RestoreRows():
            return "rows"
        case AddRows() | AddDataFiles():
            return None
        case _:
            assert_never(step)


def _with_keys(file: WrittenFile, keys: PartitionSpec | None) -> WrittenFile:
    return file if keys is not None else replace(file, partition_values=())
