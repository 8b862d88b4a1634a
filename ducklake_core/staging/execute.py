"""Apply one step of a transaction to the rows of a table: those of the base snapshot with the earlier steps applied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from ducklake_core.catalog.inlined.ddl import may_inline
from ducklake_core.catalog.reading.maintenance import named_files
from ducklake_core.engines.arrow.changes import ChangedRows, write_updated
from ducklake_core.engines.arrow.frame import ArrowFrame
from ducklake_core.engines.arrow.positions import DeleteTarget
from ducklake_core.engines.arrow.writer import write_table
from ducklake_core.engines.frame import change_rows, position_finder, restore_rows
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import ROW_ID_COLUMN, WrittenFile
from ducklake_core.format.files.inlined_rows import InlinedRows
from ducklake_core.format.layout.flushing import flush_rule
from ducklake_core.format.options import Options
from ducklake_core.format.types.schema import committed_at
from ducklake_core.format.values.temporal import zone_info
from ducklake_core.staging.staged_rows import (
    StagedInlined,
    StagedRows,
    are_usable,
    check_no_nulls,
    computed_defaults,
    inlined_part,
    inserted_columns,
)
from ducklake_core.staging.staged_table import (
    AddDataFiles,
    AddRows,
    Altered,
    ChangeRows,
    DeleteByKeys,
    DeleteWhere,
    RestoreRows,
    StagedTable,
    Step,
    new_write_state,
)
from ducklake_core.storage.delete_files import DeletionVectors
from ducklake_core.storage.unfinished import sweep_after_error

if TYPE_CHECKING:
    from ducklake_core.catalog.reading.definitions import Macro
    from ducklake_core.commit.registration import WriteRegistration
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.format.expressions.conditions import Column, Condition
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.layout.sorting import SortOrder
    from ducklake_core.format.state import Snapshot, TableState
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.planning.plan import ScanPlan
    from ducklake_core.staging.context import LakeContext


class StepExecutor:
    """Applies steps to staged tables.

    Args:
        lake: The lake of the tables.
        registration: Registers the write ids in file names.
        macros: Returns the macros that sort keys may call.

    Attributes:
        targets: Target of the last delete files of each table, by table id.
    """

    def __init__(self, lake: LakeContext, registration: WriteRegistration, macros: Callable[[], Sequence[Macro]]) -> None:
        self._lake = lake
        self._registration = registration
        self._macros = macros
        # DuckDB's now() is the start of its transaction.
        self._began = datetime.now(UTC)
        self.targets: dict[int, DeleteTarget] = {}

    def apply(self, staged: StagedTable, step: Step, base: Snapshot) -> list[str]:
        """Apply a step to a table. If it fails, the files that it has started are deleted.

        Args:
            staged: The table.
            step: The step.
            base: The base snapshot.

        Returns:
            Full paths of the files that it has written. They are written again if the step is applied again.
        """
        rows = staged.rows
        match step:
            case AddRows(files=files, inlined=inlined, replaces=replaces):
                rows = rows.with_files(files, staged.state, reads_base_rows=replaces)
                staged.rows = rows if inlined is None else rows.with_inlined(inlined, staged.state.schema, reads_base_rows=replaces)
                return []
            case AddDataFiles(files=added):
                staged.rows = rows.with_added(added, staged.state)
                return []
            case Altered():
                return self._alter(staged, step, base)
            case DeleteWhere(where=where, session=session):
                find = position_finder(session, self.named)
                with self._target(staged, base) as target:
                    deletions = find(self.plan(staged, base, where=where), target, self._lake.storage)
                    staged.rows = staged.rows.without(deletions)
                return staged.paths(deletions.delete_files)
            case DeleteByKeys(on=on, frame=frame, files=files):
                with self._target(staged, base) as target:
                    plan_where, key_columns = partial(self.plan, staged, base, on), state_schema(staged, base).select(on)
                    deletions = frame.delete_by_key(plan_where, key_columns, files, target, self._lake.storage, self.named)
                    staged.rows = staged.rows.without(deletions)
                return staged.paths(deletions.delete_files)
            case ChangeRows() | RestoreRows():
                with self._target(staged, base) as target:
                    changed, staged.rows = self._change(staged, step, base, target)
                return staged.paths((*changed.deletions.delete_files, *changed.updated, *changed.inserted))
            case _:
                assert_never(step)

    def _alter(self, staged: StagedTable, step: Altered, base: Snapshot) -> list[str]:
        """Change the definition. Rows that are staged for the catalog are converted to the new columns."""
        if step.proves is not None:
            overlay = partial(self._over, staged)
            check_no_nulls(self._lake, readable(staged, base), step.proves[0], step.session, overlay)
        rows = staged.rows.without_additions() if step.discards else staged.rows
        before, staged.state = staged.state, step.after
        if before.schema != step.after.schema:
            rows = rows.in_columns(step.after.schema)
        if not rows.inlined:
            staged.rows = rows
            return []
        write = self.write_state(staged)
        fits = [may_inline(part.schema, write.format_version) and are_usable(part.rows, part.schema, write) for part in rows.inlined]
        staged.rows = replace(rows, inlined=tuple(compress(rows.inlined, fits)))
        return [path for part, stays in zip(rows.inlined, fits, strict=True) if not stays for path in self._move_to_files(staged, part)]

    def _move_to_files(self, staged: StagedTable, part: StagedInlined) -> list[str]:
        """Write staged inlined rows to files, because the catalog cannot store their columns."""
        write = self.write_state(staged)
        rows = part.in_arrow(write.schema)
        if part.is_changed:
            files = write_updated(rows.append_column(ROW_ID_COLUMN, pa.array(part.row_ids, pa.int64())), write)
        else:
            files = write_table(rows, write)
        staged.rows = staged.rows.with_files(files, staged.state, is_changed=part.is_changed, reads_base_rows=part.reads_base_rows)
        return staged.paths(files)

    @contextmanager
    def _target(self, staged: StagedTable, base: Snapshot) -> Iterator[DeleteTarget]:
        """Return the target for delete files of a table. If the block fails, the delete files that it has written are deleted."""
        info, options = self._lake.info, Options.from_mapping(staged.state.options)
        write_id = paths.write_id()
        self._registration.add(write_id)
        target = DeleteTarget(
            directory=info.checked_location(staged.state.path, f"table {staged.name}", table=staged.name),
            data_path=info.data_path,
            write_id=write_id,
            # Files that store this id are written again if the commit gets another snapshot id.
            assumed_snapshot=base.id + 1,
            encrypted=info.encrypted,
            inlined_rows=options.data_inlining_row_limit,
            vectors=DeletionVectors.by(options, info.format_version, encrypted=info.encrypted),
        )
        self.targets[staged.state.id] = target
        try:
            yield target
        except BaseException:
            sweep_after_error(self._lake.storage, target.directory, target.write_id, named=self.named)
            raise

    def _change(
        self, staged: StagedTable, step: ChangeRows | RestoreRows, base: Snapshot, target: DeleteTarget
    ) -> tuple[ChangedRows, StagedRows]:
        """Find the rows that a change affects, and write their new versions."""
        given = inserted_columns(step.request) if isinstance(step, ChangeRows) else None
        storage, write = self._lake.storage, self.write_state(staged, given=given, write_id=target.write_id)
        where = step.narrowing() if isinstance(step, ChangeRows) else None
        state = readable(staged, base)
        if isinstance(step, RestoreRows) and staged.committed is not None and not (staged.rows.files or staged.rows.inlined):
            # Rows that a restore deletes need not fit the restored columns.
            state = staged.committed
        # ``rowid`` keeps the identity of changed rows; ``file_row_number`` is the position at which their old version is hidden.
        plan = self._over(staged, self._committed_plan(state, None, where, ("rowid", "file_row_number")))
        if isinstance(step, ChangeRows):
            inlines = step.inline is not False and may_inline(write.schema, write.format_version)
            keep = write.options.data_inlining_row_limit if inlines else 0
            changed = change_rows(
                plan, step.request, target, write, storage, source=step.source, session=step.session, keep=keep, named=self.named
            )
        else:
            # Earlier rows, in the columns that the table has at the end of the transaction, by column id.
            then = replace(step.then, schema=state_schema(staged, base))
            changed = restore_rows(plan, self._committed_plan(then, None), target, write, storage, step.session, named=self.named)
        rows = staged.rows.without(changed.deletions)
        inlinable_inserts, inserted = self._few(changed.inlinable_inserts, write)
        inlinable_updates, updated = self._few(changed.inlinable_updates, write)
        changed = replace(changed, inserted=(*changed.inserted, *inserted), updated=(*changed.updated, *updated))
        rows = rows.with_files(changed.inserted, staged.state, reads_base_rows=True)
        rows = rows.with_files(changed.updated, staged.state, is_changed=True, reads_base_rows=True)
        for few, table in ((inlinable_inserts, None), (inlinable_updates, changed.inlinable_updates)):
            if few is not None:
                row_ids = None if table is None else tuple(table.column(ROW_ID_COLUMN).to_pylist())
                rows = rows.with_inlined(few, write.schema, row_ids, reads_base_rows=True)
        return changed, rows

    def _few(self, rows: pa.Table | None, write: WriteState) -> tuple[InlinedRows | None, tuple[WrittenFile, ...]]:
        """Store changed rows in the catalog if there are few, otherwise in files."""
        if rows is None:
            return None, ()
        # Changed rows have their row id in an additional column, which is not a column of the table.
        is_updated = ROW_ID_COLUMN in rows.column_names
        plain = rows.drop_columns([ROW_ID_COLUMN]) if is_updated else rows
        inlined, _ = inlined_part(ArrowFrame(data=plain, schema=write.schema), write)
        if inlined is not None:
            return inlined, ()
        return None, write_updated(rows, write) if is_updated else write_table(rows, write)

    def write_state(
        self,
        staged: StagedTable,
        *,
        given: Collection[str] | None = None,
        row_constraint: Predicate | None = None,
        write_id: str | None = None,
    ) -> WriteState:
        """Return the settings for writing files of a table, for rows that have the given columns, or all columns if None."""
        state = new_write_state(
            staged.state,
            self._lake.info,
            self._lake.storage,
            defaults=() if given is None else computed_defaults(staged.state.schema, given, self._began.astimezone(zone_info())),
            row_constraint=row_constraint,
            write_id=write_id,
        )
        state = replace(state, sort=tuple(map(self._without_macros, state.sort)))
        if write_id is None:
            self._registration.add(state.write_id)
        abilities = self._lake.database.abilities
        # DuckDB's flush reads inlined rows from the catalog. If the catalog stores values in other types than the table, this rule decides
        # which rows that flush sorts and splits correctly; all other rows are written to files.
        if abilities.inlined_as_is or not abilities.duckdb_flushes:
            return state
        by = abilities.inlined_sorting
        rule = flush_rule(staged.state.sort_keys, state.schema, sorting_types=by, text_as_bytes=abilities.inlined_text_as_bytes)
        return replace(state, flush=rule)

    def _without_macros(self, order: SortOrder) -> SortOrder:
        """Return a sort key with macros in place of their calls."""
        if order.column is not None:
            return order
        from ducklake_core.catalog.reading.definitions import without_macro_calls

        return replace(order, expression=str(without_macro_calls(order.expression, self._macros)))

    def named(self, files: Sequence[str]) -> frozenset[str]:
        """Return the files that the catalog contains. A sweep must not delete them."""
        with self._lake.reader() as reader:
            return named_files(reader, files)

    def plan(
        self,
        staged: StagedTable,
        base: Snapshot,
        columns: Sequence[str] | None = (),
        where: str | Predicate | Condition | Column | None = None,
        virtual: Sequence[str] = ("file_row_number",),
    ) -> ScanPlan:
        """Return a scan of a table that includes the changes of the transaction."""
        return self._over(staged, self._committed_plan(readable(staged, base), columns, where, virtual))

    @staticmethod
    def _over(staged: StagedTable, plan: ScanPlan) -> ScanPlan:
        return staged.rows.overlay_on(plan, staged.state.path, staged.mapped())

    def _committed_plan(
        self,
        state: TableState,
        columns: Sequence[str] | None = (),
        where: str | Predicate | Condition | Column | None = None,
        virtual: Sequence[str] = ("file_row_number",),
    ) -> ScanPlan:
        from ducklake_core.planning.planner import plan_scan

        with self._lake.reader() as reader:
            return plan_scan(reader, state, columns, where, virtual=virtual)


def readable(staged: StagedTable, base: Snapshot) -> TableState:
    """Return the table at the base snapshot with the final columns of the transaction, in which old files are read, too."""
    state, committed = staged.state, staged.committed
    schema = state_schema(staged, base)
    if committed is None:
        return replace(state, schema=schema, snapshot_id=base.id)
    return replace(committed, name=state.name, schema=schema)


def state_schema(staged: StagedTable, base: Snapshot) -> Schema:
    """Return the final columns of the transaction. New columns begin with the snapshot that it commits."""
    return committed_at(staged.state.schema, base.id + 1)
