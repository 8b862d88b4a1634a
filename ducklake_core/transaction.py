"""Several changes as one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ducklake_core.commit.committer import Committer
from ducklake_core.engines.arrow.frame import no_columns
from ducklake_core.engines.frame import Frame, frame_of
from ducklake_core.engines.spark.session import in_session_zone
from ducklake_core.errors import CommitConflictError, DuckLakeError, NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.arguments import checked
from ducklake_core.format.expressions.conditions import Column, bind
from ducklake_core.format.layout.chosen_partitions import partition_predicate
from ducklake_core.format.options import Options
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.names import dotted, join_name, split_name
from ducklake_core.format.types.text import visible
from ducklake_core.results import TransactionResult, WriteResult, single_result, with_not_created
from ducklake_core.sql.statements import StatementVerbs
from ducklake_core.staging.arguments import (
    ConcurrentAppends,
    FrameLike,
    MissingColumns,
    Partitions,
    SchemaEvolution,
    Where,
    WriteMode,
    check_keys,
    check_mode,
    missing_columns_of,
)
from ducklake_core.staging.context import LakeContext
from ducklake_core.staging.namespace import StagedCatalog
from ducklake_core.staging.publish import CommitCoordinator
from ducklake_core.staging.reads import TransactionTable
from ducklake_core.staging.staged_rows import inlined_part
from ducklake_core.staging.staged_table import (
    AddRows,
    DeleteByKeys,
    DeleteWhere,
    StagedTable,
    Target,
    check_replaceable,
    check_whole_structs,
    evolve,
    evolved,
    is_key,
)
from ducklake_core.staging.verbs.files import AdditionVerb
from ducklake_core.staging.verbs.versions import VersionVerbs
from ducklake_core.staging.verbs.written import WrittenFilesVerbs

if TYPE_CHECKING:
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.types.data_types import Field
    from ducklake_core.staging.context import Base


@checked
class Transaction(StatementVerbs, AdditionVerb, VersionVerbs, WrittenFilesVerbs):
    """Changes staged against one snapshot. Made by :meth:`DuckLake.transaction`.

    Rows are written to files at once, by each call, or kept for the catalog when they are few; nothing is visible before
    the block ends.  Every call sees the rows that were committed when the block began and what earlier calls have made of them, and so
    do reads by :meth:`table`.  When another writer gets in between, changes to rows are carried out again on the newest snapshot, in the
    same order and with the same new rows, and committed then, unless rows were read in the block of a table that others have changed;
    that, and changes to columns, raise :class:`CommitConflictError`.
    """

    def __init__(
        self,
        lake: LakeContext,
        *,
        author: str | None = None,
        message: str | None = None,
        extra_info: str | Mapping[str, object] | None = None,
        commit_id: str | None = None,
        base: Base | None = None,
        tries: int = 0,
    ) -> None:
        self._lake = lake
        self._coordinator = CommitCoordinator(
            lake, author=author, message=message, extra_info=extra_info, commit_id=commit_id, recent=base, tries=tries
        )
        self._base = base
        self._staged: StagedCatalog | None = None
        self._repeated: Snapshot | None = None
        self._not_created: list[str] = []
        self._result: TransactionResult | None = None

    def __enter__(self) -> Self:
        self._lake.database.check_writable()
        if self._base is None:
            self._base = self._lake.table_cache.read(self._lake.database, self._lake.info)
        self._staged = StagedCatalog(self._lake, self._base.snapshot, self._base.options, self._base.history)
        # After the base is known: the commit itself looks at later snapshots, so that no earlier run is overlooked.
        if self._coordinator.given:
            self._repeated = Committer(self._lake.database).find_commit(self._coordinator.commit_id)
        if Options.from_mapping(self._staged.options.in_force()).require_commit_message and not self._coordinator.message:
            raise UsageError("this lake requires a commit message, by its option require_commit_message", parameter="message")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._finish(error)
        finally:
            self._coordinator.end()

    def _finish(self, error: BaseException | None) -> None:
        """Commit, unless an error has ended the block."""
        if error is not None:
            self._coordinator.discard()
        elif self._repeated is not None:
            self._coordinator.check_repeated(self._repeated)
            self._result = TransactionResult(snapshot=self._repeated, repeated=True)
        else:
            staged = self._catalog
            published = self._coordinator.publish(staged.base, tuple(staged.definitions), staged.tables, staged.views)
            self._result = with_not_created(published, self._not_created, staged.base)
            if self._result.snapshot is not None and not self._result.repeated and self._base is not None:
                self._base.history.note(self._result.snapshot, staged.options)
        self._base = self._staged = None

    def __repr__(self) -> str:
        if self._result is not None:
            return f"<Transaction that became {self._result}>"
        if self._staged is None or self._base is None:
            return "<Transaction that is not open>"
        names = [visible(staged.name) for staged in self._staged.tables]
        told = f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}" or "no table so far"
        return f"<Transaction on snapshot {self._base.snapshot.id}, open: {told}>"

    @property
    def result(self) -> TransactionResult:
        """The outcome of the transaction; available once the block has ended without an error.

        Raises:
            UsageError: Before that.
        """
        if self._result is None:
            raise UsageError("the transaction has no result: its block has not ended, or it failed")
        return self._result

    @property
    def repeated(self) -> Snapshot | None:
        """The snapshot that an earlier run committed with the same commit id; while it is there, calls do nothing."""
        return self._repeated

    @property
    def is_on_recent_base(self) -> bool:
        """Whether it was planned on a snapshot that was seen before the call."""
        return self._coordinator.is_recent

    @property
    def tries(self) -> int:
        """The number of commit attempts so far."""
        return self._coordinator.tries

    def table(self, name: str) -> TransactionTable:
        """Reads of a table as the transaction has made it so far.

        Raises:
            NotFoundError: There is no such table, or the transaction has dropped it.
        """
        if self._repeated is not None:
            raise UsageError("an earlier run has committed this transaction, so it stages nothing to read: see Transaction.repeated")
        return TransactionTable(self._lake, self._coordinator, name, lambda: self._catalog)

    def guard(self, name: str) -> None:
        """Let nobody get in between: the commit fails when others have changed rows or columns of a table since the block began.

        Rows that were read in the block, to decide whether to commit, are then still those that the commit builds on. Without it a
        plain append goes on top of what others have added.

        Raises:
            CommitConflictError: When the block ends, if somebody was faster.
            NotFoundError: There is no such table.
        """
        if self._is_done("guard", name):
            return
        staged = self._catalog.table(name)
        staged.guarded = True
        self._coordinator.note_read(staged)

    def append(
        self,
        name: str,
        data: FrameLike,
        *,
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        inline: bool | None = None,
    ) -> None:
        """Add rows to a table; see :meth:`DuckLake.write` for the arguments."""
        self.write(name, data, create=False, schema_evolution=schema_evolution, missing_columns=missing_columns, inline=inline)

    def overwrite(
        self,
        name: str,
        data: FrameLike,
        *,
        where: Where = None,
        partitions: Partitions | None = None,
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        concurrent_appends: ConcurrentAppends = "fail",
        read_at: int | None = None,
    ) -> None:
        """Replace the rows that match ``where``, or those of ``partitions``, by rows that all belong there; see :meth:`Table.overwrite`."""
        self.write(
            name,
            data,
            mode="overwrite",
            where=where,
            partitions=partitions,
            create=False,
            schema_evolution=schema_evolution,
            missing_columns=missing_columns,
            concurrent_appends=concurrent_appends,
            read_at=read_at,
        )

    def upsert(
        self,
        name: str,
        data: FrameLike,
        *,
        on: Sequence[str],
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
    ) -> None:
        """Replace rows with equal keys, and add the others; see :meth:`Table.upsert`."""
        self.write(name, data, mode="upsert", on=on, create=False, schema_evolution=schema_evolution, missing_columns=missing_columns)

    def write(  # noqa: PLR0913 - the arguments of DuckLake.write
        self,
        name: str,
        data: FrameLike,
        *,
        mode: WriteMode = "append",
        where: Where = None,
        partitions: Partitions | None = None,
        on: Sequence[str] = (),
        create: bool = True,
        partition_by: Sequence[str] = (),
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        comment: str | None = None,
        inline: bool | None = None,
        concurrent_appends: ConcurrentAppends | None = None,
        read_at: int | None = None,
    ) -> None:
        """Write a frame, creating the table or widening it where allowed; see :meth:`DuckLake.write`."""
        self.write_frame(
            name,
            frame_of(data),
            mode=mode,
            where=where,
            partitions=partitions,
            on=on,
            create=create,
            partition_by=partition_by,
            schema_evolution=schema_evolution,
            missing_columns=missing_columns,
            comment=comment,
            inline=inline,
            concurrent_appends=concurrent_appends,
            read_at=read_at,
        )

    def write_frame(  # noqa: PLR0913 - the arguments of DuckLake.write
        self,
        name: str,
        frame: Frame,
        *,
        mode: WriteMode = "append",
        where: Where = None,
        partitions: Partitions | None = None,
        on: Sequence[str] = (),
        create: bool = True,
        partition_by: Sequence[str] = (),
        schema_evolution: SchemaEvolution = "strict",
        missing_columns: MissingColumns | None = None,
        comment: str | None = None,
        inline: bool | None = None,
        concurrent_appends: ConcurrentAppends | None = None,
        read_at: int | None = None,
    ) -> None:
        """Write what a verb was given as rows: see :meth:`write`."""
        if self._is_done(mode, name, where, partitions, tuple(on) or None):
            return
        check_mode(mode, where, on, partitions, concurrent_appends, read_at)
        rejects_unseen = concurrent_appends != "replace"
        if inline and mode == "upsert" and frame.session is not None:
            raise UnsupportedFeatureError("upserts from a Spark DataFrame cannot be inlined: leave inline away", table=name)
        lacking = missing_columns_of(missing_columns, schema_evolution)
        target = Target(name=name, create=create, partition_by=tuple(partition_by), comment=comment)
        with self._whole_or_nothing(), in_session_zone(frame.session):
            staged, frame, is_empty = self._target(target, frame, schema_evolution, lacking, only_append=mode == "append")
            if staged is None:
                return
            if mode == "upsert":
                check_keys(on, staged.state)
                check_whole_structs(staged.state, frame.schema)
                frame = frame.replayable()
            predicate = None if where is None else bind(where, staged.state.schema)
            in_data = partitions == "in_data"
            if in_data:
                check_replaceable(staged.state, inline)
                inline = False
            elif partitions is not None and not isinstance(partitions, str):
                predicate = partition_predicate(partitions, staged.state.partition_spec, staged.state.schema, staged.name)
            elif mode == "overwrite" and predicate is None and staged.create is None:
                frame.check_overwrites_all(staged.state)
            staged.written = True
            if is_empty:
                if mode == "overwrite" and not in_data:
                    deletes = DeleteWhere(where=predicate, session=frame.session, rejects_unseen=rejects_unseen)
                    self._stage_overwrite(staged, deletes, read_at)
                return
            if mode == "upsert" and any(frame.schema.find(column.name) is None for column in staged.state.schema):
                self._update_by_keys(staged, frame, on, inline=inline)
                return
            # The rows are written first: a key, or what satisfies the condition, is checked before anything is looked for.
            written = replace(self._write_rows(staged, frame, predicate, inline), replaces=mode != "append")
            if mode == "upsert":
                self._stage(staged, DeleteByKeys(on=tuple(on), frame=frame, files=written.files))
            elif in_data:
                self._replace_partitions(staged, written.files, frame.session, rejects_unseen=rejects_unseen, read_at=read_at)
            elif mode == "overwrite":
                self._stage_overwrite(staged, DeleteWhere(where=predicate, session=frame.session, rejects_unseen=rejects_unseen), read_at)
            self._stage(staged, written)

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Undo everything that a failing call has staged, so that its error can be caught and the transaction continued."""
        with self._catalog.whole_or_nothing(), self._coordinator.one_call():
            yield

    def _write_rows(self, staged: StagedTable, frame: Frame, row_constraint: Predicate | None, inline: bool | None) -> AddRows:
        state = self._coordinator.write_state(staged, given=frame.schema.names, row_constraint=row_constraint)
        rows, frame = inlined_part(frame, state, inline)
        if rows is not None:
            return AddRows(inlined=rows)
        return AddRows(files=self._coordinator.write_rows(staged, frame, state))

    def _target(
        self, target: Target, frame: Frame, mode: SchemaEvolution, missing: MissingColumns, *, only_append: bool
    ) -> tuple[StagedTable | None, Frame, bool]:
        """Find the table of a write, or create it, and fit its columns to the frame.

        A frame without rows changes no columns, whatever its own are, and creates a table only when all of its columns have types.

        Returns:
            The table, None when it does not exist and is not created; the frame; and whether it is known to have no rows.
        """
        name = target.name
        staged = self._catalog.find_table(name, only_append=only_append)
        if staged is None:
            if not target.create:
                return self._catalog.table(name), frame, False
            if not frame.is_typed:
                is_empty, frame = frame.checked_empty()
                if is_empty:
                    self._not_created.append(name)
                    return None, frame, True
            if not frame.schema.columns:
                raise no_columns(frame.kind)
            schema_name, table_name = split_name(name)
            owner = self._catalog.find_schema(schema_name) or self._catalog.create_schema(schema_name, or_existing=True, with_parents=True)
            created = self._catalog.create_table(owner, table_name, frame.schema, target.partition_by, target.comment, or_existing=True)
            return created, frame, False
        is_empty = frame.is_surely_empty
        if not is_empty:
            is_empty, frame = self._fit(staged, frame, mode, missing)
        target.check_existing(staged.state)
        return staged, frame, is_empty

    def _fit(self, staged: StagedTable, frame: Frame, mode: SchemaEvolution, missing: MissingColumns) -> tuple[bool, Frame]:
        """Fit the columns of a table to a frame; whether the frame was found to have no rows, and the frame with all of its rows."""
        columns = frame.schema_for(staged.state.schema)
        problem: DuckLakeError | None = None
        wanted, differences = staged.state, tuple[str, ...]()
        replaced: set[int] = set()

        def holds_only_nulls(column: Field, is_refused: bool) -> bool:
            if not (is_refused or mode == "additive" or frame.is_seen):
                return False
            if is_key(staged.state, column) or column.default is not None or not self._is_all_null(staged.name, column):
                return False
            replaced.add(column.id)
            return True

        try:
            if not columns.columns:
                raise no_columns(frame.kind)
            wanted, differences = evolve(staged.state, columns, mode, missing, holds_only_nulls)
        except (SchemaError, UsageError) as error:
            problem = error
        if problem is not None or wanted is not staged.state:
            is_empty, frame = frame.checked_empty()
            if is_empty:
                return True, frame
        if problem is not None:
            raise problem
        if wanted is not staged.state:
            # Rows that other writers add meanwhile may have values in a column that is replaced.
            staged.guarded = staged.guarded or bool(replaced)
            change = partial(evolved, frame=columns, mode=mode, missing_columns=missing, replaced=replaced)
            self._stage(staged, staged.alteration(change, asked=False))
            staged.differences += differences
        return False, frame

    def _is_all_null(self, name: str, column: Field) -> bool:
        """Return whether a table has rows, none of them with a value in a column; files whose statistics prove it are not opened."""
        scan = self.table(name).scan([dotted((column.name,))], where=Column((column.name,)).is_not_null())
        return not any(batch.num_rows for batch in scan.to_batches()) and self.table(name).scan().count() > 0

    @property
    def _catalog(self) -> StagedCatalog:
        if self._staged is None:
            raise UsageError("the transaction is not open: use it in a with block")
        return self._staged


def write(
    lake: LakeContext,
    name: str,
    data: FrameLike,
    *,
    author: str | None = None,
    message: str | None = None,
    extra_info: str | Mapping[str, object] | None = None,
    commit_id: str | None = None,
    mode: WriteMode = "append",
    **how: Any,
) -> WriteResult:
    """Write a frame as one snapshot; the arguments are those of :meth:`DuckLake.write`."""

    def write_in(tx: Transaction) -> TransactionResult:
        with tx:
            tx.write_frame(name, frame, mode=mode, **how)
        return tx.result

    frame = frame_of(data)
    new = partial(Transaction, lake, author=author, message=message, extra_info=extra_info, commit_id=commit_id)
    again = mode == "append" and commit_id is None and frame.is_small
    first = new(base=lake.table_cache.recent(*split_name(name)) if again else None)
    try:
        result = write_in(first)
    except (CommitConflictError, SchemaError, UsageError):
        if not first.is_on_recent_base:
            raise
        # What is in the way, or missing, may have come before this call: only the newest snapshot decides.
        result = write_in(new(tries=first.tries))
    if result.repeated:
        return single_result(result, *_written_then(lake, name, result.snapshot))
    return single_result(result, name, 0)


def _written_then(lake: LakeContext, name: str, snapshot: Snapshot | None) -> tuple[str, int]:
    """Name and id of the table that an earlier commit wrote; it may have been dropped or renamed since."""
    assert snapshot is not None
    with lake.reader() as reader:
        try:
            state = reader.table(*split_name(name), snapshot.id)
        except NotFoundError:
            # It was renamed while it was written to, so that the snapshot knows it by its other name.
            changes = snapshot.change_set
            written = {*changes.inserted_into_table, *changes.inlined_insert, *changes.deleted_from_table, *changes.inlined_delete}
            if len(written) != 1:
                return join_name(*split_name(name)), 0
            state = reader.table_by_id(written.pop(), snapshot.id)
    return join_name(state.schema_name, state.name), state.id
