"""Staged changes of one table or view in an open transaction: definition, new columns, and settings of writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from ducklake_core.catalog.reading.definitions import ViewState
from ducklake_core.catalog.reading.table_rows import COMMENT
from ducklake_core.commit.actions import (
    Action,
    AddDeleteFiles,
    AddFiles,
    AlterView,
    AppendFiles,
    CreateSchema,
    CreateTable,
    CreateView,
    EndFiles,
    EndInlined,
    InlineDeletes,
    InsertInlined,
    SetOption,
)
from ducklake_core.commit.alterations import (
    Alteration,
    difference,
    find_transient_columns,
    inlining,
    normalized,
    partition_spec,
    restore_definition,
    same_keys,
)
from ducklake_core.commit.request import Lookup
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.defaults import with_initial_defaults
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.files.name_mapping import AddedFile, NameMapping, same_mapping
from ducklake_core.format.layout.sorting import sort_orders
from ducklake_core.format.options import Options
from ducklake_core.format.state import LakeInfo, SchemaState, TableState
from ducklake_core.format.types.data_types import Field, StructType, children_of
from ducklake_core.format.types.names import folded, join_name, split_path
from ducklake_core.format.types.schema import Schema, check_names, check_reserved, with_ids
from ducklake_core.format.versions import DEFAULT_VERSION, FormatVersion
from ducklake_core.staging.context import with_options
from ducklake_core.staging.staged_rows import StagedFile, StagedInlined, StagedRows

if TYPE_CHECKING:
    from ducklake_core.catalog.reading.options import StoredOptions
    from ducklake_core.engines.arrow.merge import ChangeRequest, MergeSource
    from ducklake_core.engines.frame import Frame
    from ducklake_core.format.expressions.conditions import Column, Condition
    from ducklake_core.format.expressions.predicates import Predicate, Scalar
    from ducklake_core.format.files.partitioning import PartitionSpec
    from ducklake_core.staging.arguments import MissingColumns, SchemaEvolution, WriteRequest
    from ducklake_core.storage.filesystems import Storage


TagKey: TypeAlias = tuple[str | None, str]


# Steps. A call stages its request, not the result, so that the same steps can be applied to a newer snapshot after a conflict:
#
#   step           stores                                    computed again for each base snapshot
#   AddRows        files or inlined values of new rows       nothing
#   AddDataFiles   files of other writers                    nothing
#   DeleteWhere    the condition                             positions of matching rows
#   DeleteByKeys   the frame that contains the keys          positions of rows with these keys
#   ChangeRows     clauses and source of UPDATE or MERGE     positions of matching rows, and their new values
#   RestoreRows    the table at an earlier snapshot          the difference between its rows and those of the base
#   Altered        a function from state to state            the state after it
@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWhere:
    """Delete the rows that match a condition, or all rows.

    Attributes:
        where: Condition, None for all rows.
        session: Spark session that finds the rows.
        rejects_unseen: Whether rows that another writer commits after the search raise a conflict, instead of being deleted, too.
    """

    where: str | Predicate | Condition | Column | None
    session: Any = field(default=None, repr=False)
    rejects_unseen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteByKeys:
    """Delete the rows whose key columns equal those of a row of ``frame``, which was written to ``files``."""

    on: tuple[str, ...]
    frame: Frame = field(repr=False)
    files: tuple[WrittenFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRows:
    """Update or delete rows, and insert rows of a source that match none. ``inline`` is as in :meth:`DuckLake.write`."""

    request: ChangeRequest
    inline: bool | None = None
    source: MergeSource | None = None
    session: Any = field(default=None, repr=False)

    def narrowing(self) -> Predicate | None:
        """Return a predicate that holds for every row that the change can affect, None for all rows."""
        return self.request.where if self.source is None else self.source.narrowing(self.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRows:
    """Restore the rows of an earlier snapshot. ``then`` is the table at it; ``session`` is a Spark session that does the work."""

    then: TableState
    session: Any = field(default=None, repr=False)


Selection: TypeAlias = DeleteWhere | DeleteByKeys | ChangeRows | RestoreRows


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRows:
    """Add rows that a call has written, to files or for the catalog. ``replaces`` states whether they replace other rows."""

    files: tuple[WrittenFile, ...] = ()
    inlined: InlinedRows | None = None
    replaces: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDataFiles:
    """Add files of other writers."""

    files: tuple[AddedFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """Change the definition of the table.

    Attributes:
        alteration: The change.
        after: The resulting table.
        requested: Whether the caller requested it, and not only to fit a frame.
        proves: The column that becomes NOT NULL, so that its rows have to be checked.
        session: Spark session that checks the rows.
        discards: Whether rows that were staged before are discarded.
    """

    alteration: Alteration
    after: TableState
    requested: bool = True
    proves: tuple[str, ...] | None = None
    session: Any = field(default=None, repr=False)
    discards: bool = False


Step: TypeAlias = AddRows | AddDataFiles | Selection | Altered


@dataclass(slots=True, kw_only=True)
class StagedTable:
    """The changes of a transaction to one table.

    Attributes:
        state: The table as later calls of the transaction see it; its id is negative until it is committed.
        start: The table before the first step.
        committed: The table at the base snapshot, None if the transaction creates it.
        requested: Schema and name in the call, None if the transaction creates it.
        create: Its creation, if that is part of the transaction.
        differences: Changes of its columns to fit a frame, as readable strings.
        steps: Steps that calls have staged, in order; ``state`` and ``rows`` are their result at the base snapshot.
        mappings: Name mappings of the table at the base snapshot, if files of other writers are added.
        exclusive: Full paths of such files that no other table of the lake may have.
        written: Whether any call wrote to it.
        remembered: Whether ``committed`` comes from the cache, which suffices for appends only (context.py).
        guarded: Whether every change by another writer is a conflict.
        options: Options that are set for the table, in their stored form; None for removed ones.
    """

    state: TableState
    start: TableState
    committed: TableState | None
    requested: tuple[str, str] | None = None
    create: CreateTable | None = None
    differences: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    rows: StagedRows = field(default_factory=StagedRows)
    mappings: tuple[NameMapping, ...] = ()
    exclusive: frozenset[str] = frozenset()
    written: bool = False
    remembered: bool = False
    guarded: bool = False
    options: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``schema.table``, quoted where needed."""
        return join_name(self.state.schema_name, self.state.name)

    @property
    def is_altered(self) -> bool:
        """Return whether the caller has requested changes of its definition."""
        return any(isinstance(step, Altered) and step.requested for step in self.steps)

    @property
    def lookups(self) -> frozenset[Lookup]:
        """Parts of the committed table that calls have read."""
        if self.committed is None:
            return frozenset()
        # The result depends on these parts of the table: the commit conflicts with any commit after the base that changed one of them.
        # Plain appends have none, so they never conflict with each other.
        whole: frozenset[Lookup] = frozenset(("definition", "rows")) if self.guarded else frozenset()
        return whole | frozenset(lookup for step in self.steps if (lookup := _lookup(step)) is not None)

    def with_options(self, state: TableState, options: StoredOptions) -> TableState:
        """Return a state of the table with its effective options: given ones of the lake and its schema, and its own."""
        for key, value in (*(self.create.options if self.create is not None else ()), *self.options.items()):
            options = options.changed(key, value, "table", state.id)
        return with_options(state, options)

    def alteration(
        self,
        alteration: Alteration,
        *,
        requested: bool = True,
        proves: tuple[str, ...] | None = None,
        session: Any = None,
        discards: bool = False,
    ) -> Altered:
        """Return the step that changes the definition; see :class:`Altered` for the parameters."""
        after = normalized(self.committed, alteration(self.state))
        return Altered(alteration=alteration, after=after, requested=requested, proves=proves, session=session, discards=discards)

    def _creation(self, create: CreateTable) -> CreateTable:
        """Return the creation in its final form, including later alterations."""
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
        """Return the partition keys with which a file is committed; None if the keys with which it was written are not committed."""
        written, final = file.partition_spec, self.state.partition_spec
        if same_keys(written, final):
            return final
        # Keys that one transaction sets and replaces never get an id in the catalog, so their files are committed without keys.
        return written if written is not None and written.id else None

    def actions(self) -> Iterator[Action]:
        """Yield all staged changes as actions for the commit."""
        if self.create is not None:
            yield self._creation(self.create)
        elif self.committed is not None and (altered := difference(self.committed, self.state, self._passing())) is not None:
            yield altered
        table_id, rows = self.state.id, self.rows
        yield from self._added_files([file for file in rows.files if file.added is not None])
        # Data files come before delete files, so that they get lower ids, as in DuckDB.
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
        for key, value in self.options.items():
            yield SetOption(key=key, value=value, scope="table", scope_id=table_id)

    def mapped(self) -> dict[int, tuple[int, NameMapping]]:
        """Return the name mapping of each file of another writer with its id, by file id. New mappings have an id below 0."""
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
        """Yield consecutive files with the same columns and keys as one group."""
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
        """Return full paths of files whose paths are relative to the table."""
        return [self.state.path + file.path for file in files]


def _lookup(step: Step) -> Lookup | None:
    match step:
        case Altered(requested=requested):
            return "definition" if requested else None
        case ChangeRows(request=request):
            # Rows of a source without a match are inserted, so that deleted rows matter as much as new ones.
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


def new_schema(
    name: str, parent: SchemaState | None, local_id: int, info: LakeInfo, *, or_existing: bool = False
) -> tuple[CreateSchema, SchemaState]:
    """Return a schema to create, and its state for later changes of the transaction.

    Args:
        name: Path of the schema.
        parent: Its parent schema, None for a top-level schema.
        local_id: Its temporary id.
        info: Settings of the lake.
        or_existing: Whether to use the schema if another writer creates it meanwhile. Default: False.
    """
    uuid = paths.uuid7()
    # Several schemas may contain schemas of the same name, and all directories are siblings.
    path = paths.directory_name(split_path(name)[-1], uuid) if parent is None else f"{uuid}/"
    state = SchemaState(id=local_id, uuid=uuid, name=name, path=paths.join(info.data_path, path))
    parent_id = None if parent is None else parent.id
    return CreateSchema(schema_id=local_id, name=name, uuid=uuid, path=path, parent_id=parent_id, or_existing=or_existing), state


def new_table(
    schema: SchemaState,
    name: str,
    columns: Schema,
    *,
    local_id: int,
    partition_by: Sequence[str],
    comment: str | None,
    options: Mapping[str, str],
    snapshot_id: int,
    or_existing: bool = False,
    uuid: str | None = None,
    format_version: FormatVersion = DEFAULT_VERSION,
) -> tuple[CreateTable, TableState]:
    """Return a table to create, and its state for later changes of the transaction.

    Args:
        schema: Its schema.
        name: Its name.
        columns: Its columns.
        local_id: Its temporary id.
        partition_by: Its partition keys.
        comment: Its comment, None for none.
        options: Its effective options.
        snapshot_id: Id of the base snapshot.
        or_existing: Whether to use the table if another writer creates it meanwhile. Default: False.
        uuid: Its uuid, normalized, if its directory may already contain files. Default: a new one.
        format_version: Version of the lake.

    Raises:
        SchemaError: Columns or partition keys are not valid in a table.
    """
    check_names(columns, format_version)
    numbered = with_ids(with_initial_defaults(columns))
    spec = partition_spec(partition_by, numbered, format_version)
    uuid = uuid or paths.uuid7()
    path = paths.directory_name(name, uuid)
    create = CreateTable(
        table_id=local_id,
        schema_id=schema.id,
        schema_name=schema.name,
        name=name,
        uuid=uuid,
        path=path,
        schema=numbered,
        partition_spec=spec,
        comment=comment,
        or_existing=or_existing,
    )
    state = TableState(
        id=local_id,
        uuid=uuid,
        name=name,
        schema_id=schema.id,
        schema_name=schema.name,
        path=paths.join(schema.path, path),
        schema=numbered,
        snapshot_id=snapshot_id,
        schema_version=0,
        next_column_id=1 + sum(1 for _ in numbered.walk()),
        partition_spec=spec,
        options=options,
        comment=comment,
        format_version=format_version,
    )
    return create, state


def as_before(new: TableState, then: TableState, options: Mapping[str, str]) -> TableState:
    """Return the state of a new table with the definition of an earlier one, including column ids, and its own options."""
    state = restore_definition(replace(new, options={**new.options, **options}), then=then)
    return replace(state, next_column_id=1 + max(node.id for node in then.schema.walk()))


def evolve(
    state: TableState,
    frame: Schema,
    mode: SchemaEvolution,
    missing_columns: MissingColumns,
    holds_only_nulls: Callable[[Field, bool], bool] | None = None,
) -> tuple[TableState, tuple[str, ...]]:
    """Return the table's state after it was fitted to a frame, and the differences.

    Args:
        state: The table.
        frame: Columns of the frame.
        mode: ``strict`` or ``additive``.
        missing_columns: Whether a frame may lack columns that have no default.
        holds_only_nulls: Returns whether a column that does not fit has only NULLs, so that it can be replaced. Default: none can.

    Raises:
        SchemaError: The frame does not match, and the mode does not allow the necessary changes; or it lacks columns without a default
            and must not.
    """
    if _same_columns(state.schema, frame):
        return state, ()
    from ducklake_core.format.evolution.reconciliation import reconcile

    found = reconcile(state.schema, frame, mode, state.next_column_id, holds_only_nulls, state.qualified_name)
    if found.missing and missing_columns == "error":
        raise lacking_columns(state.qualified_name, found.missing)
    if not found.added and not found.ended:
        return state, ()
    known = {column.id for column in state.schema}
    for column in found.schema:
        if column.id not in known:
            check_reserved(column.name, state.format_version)
    highest = max(node.id for node in found.schema.walk())
    comments = {column.name: state.column_comments[column.id] for column in state.schema if column.id in state.column_comments}
    after = replace(
        state,
        schema=found.schema,
        next_column_id=max(state.next_column_id, highest + 1),
        column_comments={
            **state.column_comments,
            **{column.id: comments[column.name] for column in found.schema if column.id not in known and column.name in comments},
        },
    )
    return after, tuple(str(difference) for difference in found.differences)


def evolved(
    state: TableState, *, frame: Schema, mode: SchemaEvolution, missing_columns: MissingColumns, replaced: Collection[int] = ()
) -> TableState:
    """Return the table's state after it was fitted to a frame.

    Args:
        state: The table.
        frame: Columns of the frame.
        mode: ``strict`` or ``additive``.
        missing_columns: Whether a frame may lack columns that have no default.
        replaced: Ids of columns that have only NULLs, and are replaced by columns of the frame.
    """
    return evolve(state, frame, mode, missing_columns, lambda column, _: column.id in replaced)[0]


def check_whole_structs(state: TableState, frame: Schema) -> None:
    """Raise an error for an upsert whose structs lack fields of the table: matched rows would lose the values of these fields.

    Raises:
        SchemaError: A struct of the frame lacks a field.
    """
    missing = [path for column in state.schema if (mine := frame.find(column.name)) for path in _lacking(column, mine, column.name)]
    if missing:
        raise SchemaError(
            f"The data for an upsert of {state.qualified_name} lacks {', '.join(missing)}. Rows that match would lose their values there. "
            "Add the fields to the data, or change single fields with UPDATE in lake.sql",
            table=state.qualified_name,
            columns=tuple(missing),
        )


def _lacking(own: Field, given_field: Field, path: str) -> Iterator[str]:
    given = {folded(child.name): child for child in children_of(given_field.type)}
    for child in children_of(own.type):
        mine = given.get(folded(child.name))
        if mine is not None:
            yield from _lacking(child, mine, f"{path}.{child.name}")
        elif isinstance(own.type, StructType) and isinstance(given_field.type, StructType):
            yield f"{path}.{child.name}"


def check_not_lacking(state: TableState, frame: Schema) -> None:
    """Raise an error for a frame that lacks columns of the table without a default, regardless of other differences.

    Raises:
        SchemaError: It lacks some.
    """
    missing = tuple(column.name for column in state.schema if column.default is None and frame.find(column.name) is None)
    if missing:
        raise lacking_columns(state.qualified_name, missing)


def lacking_columns(table: str, missing: Sequence[str], option: str = "missing_columns='null'") -> SchemaError:
    """Return the error for a frame that lacks columns of the table without a default.

    Args:
        table: ``schema.table``.
        missing: Paths of the columns and struct fields.
        option: The setting that allows it, as the caller writes it.
    """
    names = ", ".join(repr(path) for path in missing)
    noun, pronoun = ("column", "it") if len(missing) == 1 else ("columns", "them")
    return SchemaError(
        f"The data lacks {noun} {names} of {table}, which would be NULL in new rows. Add {pronoun} to the data, or allow it with {option}",
        table=table,
        columns=tuple(missing),
        missing_columns=tuple(missing),
    )


def is_key(state: TableState, column: Field) -> bool:
    """Return whether the table is partitioned or sorted by a column, or by a part of it."""
    nodes = {node.id for node in column.walk()}
    partitioned = state.partition_spec is not None and any(key.column_id in nodes for key in state.partition_spec.fields)
    return partitioned or any(folded(column.name) in folded(key.expression) for key in state.sort_keys)


def _same_columns(table: Schema, frame: Schema) -> bool:
    def shape(field: Field) -> object:
        return folded(field.name), str(field.type)

    return [shape(column) for column in table] == [shape(column) for column in frame]


def check_existing(table: TableState, request: WriteRequest) -> None:
    """Raise an error if an existing table has other partition keys or another comment than a write gives for a new one.

    Raises:
        UsageError: The partition keys or the comment differ.
        SchemaError: The table cannot have the given partition keys.
    """
    name = table.qualified_name
    if request.partition_by:
        wanted, present = partition_spec(request.partition_by, table.schema, table.format_version), table.partition_spec
        if wanted is None or present is None or wanted.fields != present.fields:
            keys = ", ".join(key.expression for key in present.fields) if present is not None else ""
            is_now = f"is partitioned by {keys}, not by" if keys else "exists and is not partitioned, but partition_by is"
            raise UsageError(
                f"Table {name} {is_now} {', '.join(request.partition_by)}. Remove partition_by, or change the keys with set_partitioned_by",
                table=name,
            )
    if request.comment is not None and request.comment != table.comment:
        raise UsageError(f"Table {name} has another comment than the given one. Remove comment, or change it with set_comment", table=name)


def check_replaceable(table: TableState, inline: bool | None) -> None:
    """Raise an error for an overwrite of the partitions of the data if the table has none, or if rows are to be stored in the catalog.

    Raises:
        UsageError: The table has no partition keys.
        UnsupportedFeatureError: The rows are to be inlined.
    """
    name = table.qualified_name
    if table.partition_spec is None:
        raise UsageError(f"Table {name} has no partition keys. Overwrite all rows, or some rows with where=...", table=name)
    if inline:
        raise UnsupportedFeatureError("Rows that replace their partitions cannot be stored in the catalog. Remove inline", table=name)


def new_write_state(
    table: TableState,
    info: LakeInfo,
    storage: Storage,
    *,
    defaults: tuple[tuple[int, Scalar], ...] = (),
    row_constraint: Predicate | None = None,
    write_id: str | None = None,
) -> WriteState:
    """Return the settings for writing new files of a table.

    Args:
        table: The table after the write.
        info: Settings of the lake.
        storage: Opens the store.
        defaults: Computed values for columns that rows lack, by column id. Default: none.
        row_constraint: Condition that every row must satisfy. Default: none.
        write_id: Id of the write. Default: a new one.

    Raises:
        UnsupportedFeatureError: The catalog names a directory that the lake must not write to.
    """
    name, options = join_name(table.schema_name, table.name), Options.from_mapping(table.options)
    return WriteState(
        table=name,
        directory=info.checked_location(table.path, f"table {name}", table=name),
        schema=table.schema,
        partition_spec=table.partition_spec,
        storage=storage,
        encrypted=info.encrypted,
        format_version=table.format_version,
        options=options,
        defaults=defaults,
        row_constraint=row_constraint,
        sort=sort_orders(table.sort_keys, table.schema, name) if options.sort_on_insert else (),
        write_id=write_id or paths.write_id(),
    )


@dataclass(slots=True, kw_only=True)
class StagedView:
    """The changes of a transaction to one view.

    Attributes:
        state: The view as later calls of the transaction see it; its id is negative until it is committed.
        committed: The view at the base snapshot, None if the transaction creates it.
        altered: Whether a comment or tag has changed.
        tagged: Changes of its tags, by column (None for the view itself) and key.
    """

    state: ViewState
    committed: ViewState | None
    altered: bool = False
    tagged: Mapping[TagKey, str | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``schema.view``, quoted where needed."""
        return join_name(self.state.schema_name, self.state.name)

    def rename(self, name: str) -> None:
        """Rename the view within its schema."""
        self.state = replace(self.state, name=name)

    def comment(self, text: str | None) -> None:
        """Set the comment; None deletes it."""
        self.tag(COMMENT, text)

    def tag(self, key: str, value: str | None, column: str | None = None) -> None:
        """Set a tag of the view or of a column; None deletes it."""
        where = (None if column is None else self.state.commented_column(column), key)
        self.state = tagged_view(self.state, {where: value})
        self.tagged = {**self.tagged, where: value}
        self.altered = True

    def actions(self) -> Iterator[Action]:
        """Yield all staged changes as actions for the commit."""
        state, before = self.state, self.committed
        if before is None:
            yield CreateView(
                view_id=state.id,
                schema_id=state.schema_id,
                schema_name=state.schema_name,
                name=state.name,
                uuid=state.uuid,
                dialect=state.dialect,
                sql=state.sql,
                column_aliases=state.column_aliases,
                comment=state.comment,
                tags=tuple(sorted(state.tags.items())),
                column_comments=tuple(sorted(state.column_comments.items())),
                altered=self.altered,
            )
            return
        tags = tuple((*where, value) for where, value in self.tagged.items() if _tags(before).get(where) != value)
        if state.name != before.name or tags:
            yield AlterView(
                view_id=before.id,
                schema_id=before.schema_id,
                schema_name=before.schema_name,
                name=before.name,
                new_name=state.name if state.name != before.name else None,
                tags=tags,
            )


def tagged_view(state: ViewState, tags: Mapping[TagKey, str | None]) -> ViewState:
    """Return a view with some tags changed, possibly including the comment."""
    found = {where: value for where, value in (_tags(state) | dict(tags)).items() if value is not None}
    own = {key: value for (column, key), value in found.items() if column is None}
    columns = {column: value for (column, _), value in found.items() if column is not None}
    return replace(state, comment=own.pop(COMMENT, None), tags=own, column_comments=columns)


def _tags(state: ViewState) -> dict[TagKey, str | None]:
    own: dict[TagKey, str | None] = {(None, key): value for key, value in state.tags.items()}
    return own | {(None, COMMENT): state.comment} | {(column, COMMENT): text for column, text in state.column_comments.items()}
