"""What one step of a transaction does to a table's rows: found on the base snapshot and all that earlier steps have made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from ducklake_core.arrow.changed_rows import ChangedRows, write_updated
from ducklake_core.arrow.positions import DeleteTarget, Deletions
from ducklake_core.arrow.write import write_table
from ducklake_core.catalog.inlined_ddl import may_inline
from ducklake_core.engines import change_rows, delete_by_key, delete_matching, restore_rows
from ducklake_core.format import paths
from ducklake_core.format.files import ROW_ID_COLUMN, WrittenFile
from ducklake_core.format.flushing import flush_rule
from ducklake_core.format.inlined_rows import InlinedRows
from ducklake_core.format.options import Options
from ducklake_core.format.schema import committed_at
from ducklake_core.inlining import are_usable, inlined_part
from ducklake_core.not_null import check_no_nulls
from ducklake_core.staged_rows import StagedInlined, StagedRows
from ducklake_core.staged_table import (
    AddForeign,
    AddRows,
    Altered,
    ChangeRows,
    RestoreRows,
    Selection,
    SelectKeys,
    SelectRows,
    StagedTable,
    Step,
)
from ducklake_core.storage.sweeping import sweep
from ducklake_core.write_target import new_write_state

if TYPE_CHECKING:
    from ducklake_core.arrow.write_state import WriteState
    from ducklake_core.catalog.state import Snapshot, TableState
    from ducklake_core.format.predicates import Predicate
    from ducklake_core.format.schema import Schema
    from ducklake_core.lake import DuckLake
    from ducklake_core.scan.plan import ScanPlan


class RowStaging:
    """Carries out steps on staged tables.

    Args:
        lake: Whose tables.

    Attributes:
        targets: Where delete files of each table were written last, by table id.
    """

    def __init__(self, lake: DuckLake) -> None:
        self._lake = lake
        self.targets: dict[int, DeleteTarget] = {}

    def carry_out(self, staged: StagedTable, step: Step, base: Snapshot) -> list[str]:
        """Carry out a step on a table; files that fail to come about are swept.

        Returns:
            Full paths of the files that it has written, which are written again when it is carried out again.
        """
        rows = staged.rows
        match step:
            case AddRows(files=files, inlined=inlined, replaces=replaces):
                rows = rows.with_files(files, staged.state, depends=replaces)
                staged.rows = rows if inlined is None else rows.with_inlined(inlined, staged.state.schema, depends=replaces)
                return []
            case AddForeign(files=added):
                staged.rows = rows.with_added(added, staged.state)
                return []
            case Altered():
                return self._alter(staged, step, base)
            case SelectRows() | SelectKeys() | ChangeRows() | RestoreRows():
                return self._select(staged, step, base)
            case _:
                assert_never(step)

    def _alter(self, staged: StagedTable, step: Altered, base: Snapshot) -> list[str]:
        """Change the definition; rows for the catalog that were staged before get the columns of now."""
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
        fits = [may_inline(part.schema) and are_usable(part.rows, part.schema, write) for part in rows.inlined]
        staged.rows = replace(rows, inlined=tuple(compress(rows.inlined, fits)))
        return [path for part, stays in zip(rows.inlined, fits, strict=True) if not stays for path in self._move_to_files(staged, part)]

    def _move_to_files(self, staged: StagedTable, part: StagedInlined) -> list[str]:
        """Write staged rows to files after all, where the catalog cannot hold their columns."""
        write = self.write_state(staged)
        rows = part.in_arrow(write.schema)
        if part.is_changed:
            files = write_updated(rows.append_column(ROW_ID_COLUMN, pa.array(part.row_ids, pa.int64())), write)
        else:
            files = write_table(rows, write)
        staged.rows = staged.rows.with_files(files, staged.state, is_changed=part.is_changed, depends=part.depends)
        return staged.paths(files)

    def _select(self, staged: StagedTable, step: Selection, base: Snapshot) -> list[str]:
        target = self._target(staged, base)
        self.targets[staged.state.id] = target
        try:
            if isinstance(step, SelectRows | SelectKeys):
                changed = ChangedRows(deletions=self._deletions(staged, step, base, target))
                staged.rows = staged.rows.without(changed.deletions)
            else:
                changed, staged.rows = self._change(staged, step, base, target)
        except BaseException:
            sweep(self._lake.storage, target.directory, target.write_id)
            raise
        return staged.paths((*changed.deletions.delete_files, *changed.updated, *changed.inserted))

    def _target(self, staged: StagedTable, base: Snapshot) -> DeleteTarget:
        info = self._lake.info
        return DeleteTarget(
            directory=info.checked_location(staged.state.path, f"table {staged.name}", table=staged.name),
            data_path=info.data_path,
            write_id=paths.write_id(),
            assumed_snapshot=base.id + 1,
            encrypted=info.encrypted,
            inlined_rows=Options.from_mapping(staged.state.options).data_inlining_row_limit,
        )

    def _deletions(self, staged: StagedTable, step: SelectRows | SelectKeys, base: Snapshot, target: DeleteTarget) -> Deletions:
        storage = self._lake.storage
        match step:
            case SelectRows(where=where, data=data, session=session):
                return delete_matching(self.plan(staged, base, where=where), target, storage, data, session)
            case SelectKeys(on=on, data=data, files=files):
                return delete_by_key(self.plan(staged, base, on), on, data, files, target, storage)

    def _change(
        self, staged: StagedTable, step: ChangeRows | RestoreRows, base: Snapshot, target: DeleteTarget
    ) -> tuple[ChangedRows, StagedRows]:
        """Find the rows that a change is about, and write what becomes of them."""
        storage, write = self._lake.storage, self.write_state(staged, write_id=target.write_id)
        where = step.narrowing() if isinstance(step, ChangeRows) else None
        state = readable(staged, base)
        if isinstance(step, RestoreRows) and staged.committed is not None and not (staged.rows.files or staged.rows.inlined):
            # Rows that a restore deletes need not fit the columns that it leaves behind.
            state = staged.committed
        plan = self._over(staged, self._committed_plan(state, None, where, ("rowid", "file_row_number")))
        if isinstance(step, ChangeRows):
            keep = write.options.data_inlining_row_limit if may_inline(write.schema) else 0
            changed = change_rows(plan, step, target, write, storage, keep=keep)
        else:
            # Earlier rows in the columns that the table has when the transaction ends, by their ids.
            then = replace(step.then, schema=state_schema(staged, base))
            changed = restore_rows(plan, self._committed_plan(then, None), target, write, storage, step.session)
        rows = staged.rows.without(changed.deletions)
        few_inserted, inserted = self._few(changed.few_inserted, write)
        few_updated, updated = self._few(changed.few_updated, write)
        changed = replace(changed, inserted=(*changed.inserted, *inserted), updated=(*changed.updated, *updated))
        rows = rows.with_files(changed.inserted, staged.state, depends=True)
        rows = rows.with_files(changed.updated, staged.state, is_changed=True, depends=True)
        for few, table in ((few_inserted, None), (few_updated, changed.few_updated)):
            if few is not None:
                row_ids = None if table is None else tuple(table.column(ROW_ID_COLUMN).to_pylist())
                rows = rows.with_inlined(few, write.schema, row_ids, depends=True)
        return changed, rows

    def _few(self, rows: pa.Table | None, write: WriteState) -> tuple[InlinedRows | None, tuple[WrittenFile, ...]]:
        """Few rows for the catalog, or else the files that they were written to after all."""
        if rows is None:
            return None, ()
        is_updated = ROW_ID_COLUMN in rows.column_names
        plain = rows.drop_columns([ROW_ID_COLUMN]) if is_updated else rows
        inlined, _ = inlined_part(plain, write)
        if inlined is not None:
            return inlined, ()
        return None, write_updated(rows, write) if is_updated else write_table(rows, write)

    def write_state(self, staged: StagedTable, *, promise: Predicate | None = None, write_id: str | None = None) -> WriteState:
        """How files of a table are written."""
        state = new_write_state(staged.state, self._lake.info, self._lake.storage, promise=promise, write_id=write_id)
        abilities = self._lake.database.abilities
        if abilities.inlined_as_is:
            return state
        by = abilities.inlined_sorting
        rule = flush_rule(staged.state.sort_keys, state.schema, sorting_types=by, text_as_bytes=abilities.inlined_text_as_bytes)
        return replace(state, flush=rule)

    def plan(
        self,
        staged: StagedTable,
        base: Snapshot,
        columns: Sequence[str] | None = (),
        where: str | Predicate | None = None,
        virtual: Sequence[str] = ("file_row_number",),
    ) -> ScanPlan:
        """A scan of a table as the transaction has made it."""
        return self._over(staged, self._committed_plan(readable(staged, base), columns, where, virtual))

    @staticmethod
    def _over(staged: StagedTable, plan: ScanPlan) -> ScanPlan:
        return staged.rows.over(plan, staged.state.path, staged.mapped())

    def _committed_plan(
        self,
        state: TableState,
        columns: Sequence[str] | None = (),
        where: str | Predicate | None = None,
        virtual: Sequence[str] = ("file_row_number",),
    ) -> ScanPlan:
        from ducklake_core.scan.planner import plan_scan

        with self._lake.reader() as reader:
            return plan_scan(reader, state, columns, where, virtual=virtual)


def readable(staged: StagedTable, base: Snapshot) -> TableState:
    """The table at the base snapshot with the columns that the transaction leaves behind, which old files are read in as well."""
    state, committed = staged.state, staged.committed
    schema = state_schema(staged, base)
    if committed is None:
        return replace(state, schema=schema, snapshot_id=base.id)
    return replace(committed, name=state.name, schema=schema)


def state_schema(staged: StagedTable, base: Snapshot) -> Schema:
    """The columns that the transaction leaves behind, new ones as of the snapshot that it makes."""
    return committed_at(staged.state.schema, base.id + 1)
