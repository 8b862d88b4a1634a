"""The verbs of a transaction that change rows in place: delete, update, merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ducklake_core.commit import alterations
from ducklake_core.engines.arrow.frame import no_columns
from ducklake_core.engines.frame import Frame, check_source_keys, frame_of
from ducklake_core.engines.spark.session import in_session_zone
from ducklake_core.errors import DuckLakeError, SchemaError, UsageError
from ducklake_core.format.evolution.reconciliation import may_not_fit
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.merge_builder import Merge, MergeClause
from ducklake_core.planning.plan import with_virtual
from ducklake_core.staging.arguments import FrameLike, MissingColumns, missing_columns_of, resolve_at
from ducklake_core.staging.publish import columns_of
from ducklake_core.staging.staged_table import ChangeRows, DeleteWhere, RestoreRows, Selection, StagedTable, check_not_lacking
from ducklake_core.staging.verbs.base import OpenTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.engines.arrow.merge import ChangeRequest
    from ducklake_core.staging.arguments import At, RestoredColumns, Where


class RowVerbs(OpenTransaction):
    """Changes of rows staged by a :class:`Transaction`."""

    def delete(self, name: str, where: Where, *, spark: SparkSession | None = None) -> None:
        """Delete the rows for which ``where`` is true; all rows when it is None. It may name virtual columns, such as ``rowid``."""
        if self._is_done("delete", name, where):
            return
        with self._whole_or_nothing(), in_session_zone(spark):
            staged = self._catalog.table(name)
            condition = self._without_macros(where)
            predicate = None if condition is None else bind(condition, with_virtual(staged.state.schema))
            self._select(staged, DeleteWhere(where=predicate, session=spark))

    def update(self, name: str, values: Mapping[str, object], *, where: Where = None, spark: SparkSession | None = None) -> None:
        """Change columns of the rows for which ``where`` is true; see :meth:`Table.update`."""
        from ducklake_core.engines.arrow.merge import update_request

        if self._is_done("update", name, dict(values), where):
            return
        with self._whole_or_nothing(), in_session_zone(spark):
            staged = self._catalog.table(name)
            plain = {column: self._without_macros(value) for column, value in values.items()}
            request = update_request(staged.name, staged.state.schema, plain, self._without_macros(where))
            self._select(staged, ChangeRows(request=request, session=spark))

    def merge(self, name: str, source: FrameLike, *, on: str | Sequence[str], missing_columns: MissingColumns | None = None) -> Merge[None]:
        """Change, delete and add rows by what a source says; see :meth:`Table.merge`. ``execute()`` stages it."""
        return Merge(name, lambda clauses: self.merge_clauses(name, source, on, clauses, missing_columns=missing_columns))

    def merge_clauses(
        self,
        name: str,
        source: FrameLike,
        on: str | Sequence[str],
        clauses: Sequence[MergeClause],
        *,
        missing_columns: MissingColumns | None = None,
    ) -> None:
        """Stage a merge whose branches are known."""
        if self._is_done("merge", name, on, tuple(clauses)):
            return
        missing = missing_columns_of(missing_columns, "strict")
        frame = frame_of(source)
        with self._whole_or_nothing(), in_session_zone(frame.session):
            staged = self._catalog.table(name)
            frame = frame_in_types_of(staged.state.schema, frame, clauses)
            try:
                # What is asked for is checked before the source is computed.
                request = self._merge_request(staged, frame, on, clauses, missing)
            except DuckLakeError:
                # Without rows nothing is compared or inserted, so that neither types nor columns matter.
                is_empty, frame = frame.checked_empty()
                if not is_empty:
                    raise
                self._merge_nothing(staged, frame, on, clauses)
                return
            self._merge(staged, request, frame)

    @staticmethod
    def _merge_request(
        staged: StagedTable, frame: Frame, on: str | Sequence[str], clauses: Sequence[MergeClause], missing: MissingColumns
    ) -> ChangeRequest:
        from ducklake_core.engines.arrow.merge import merge_request

        if not frame.schema.columns:
            raise no_columns(frame.kind)
        request = merge_request(staged.name, staged.state.schema, frame.schema, on, clauses)
        if missing == "error" and any(when == "not matched" and values == "all" for when, _, values, _ in clauses):
            check_not_lacking(staged.state, frame.schema)
        return request

    def _merge(
        self, staged: StagedTable, request: ChangeRequest, frame: Frame, columns: Schema | None = None, *, inline: bool | None = None
    ) -> None:
        """Stage a merge of a frame's rows, with its own columns or with those that are given; each has a key of its own then."""
        state = self._coordinator.write_state(staged)
        kept = frame.merge_source(state, self._coordinator.named, columns)
        self._coordinator.own((kept.directory + file.path for file in kept.files), state.write_id)
        if columns is not None:
            check_source_keys(kept, [request.target.columns[ours].name for ours, _ in request.keys], request.target)
        self._select(staged, ChangeRows(request=request, source=kept, inline=inline))

    def _merge_nothing(self, staged: StagedTable, frame: Frame, on: str | Sequence[str], clauses: Sequence[MergeClause]) -> None:
        """Stage a merge whose source has no rows: it has the table's columns, and its own that the table does not have."""
        from ducklake_core.engines.arrow.merge import merge_request

        own = tuple(column for column in frame.schema if staged.state.schema.find(column.name) is None)
        columns = Schema(columns=(*staged.state.schema.columns, *own))
        # Values that rows of the source would give have no row to be evaluated for.
        left = [clause for clause in clauses if clause[0] == "not matched by source"]
        staged.written = True
        if left or not clauses:
            request = merge_request(staged.name, staged.state.schema, columns, on, left)
            source = frame.empty_source(columns, self._coordinator.write_state(staged))
            self._select(staged, ChangeRows(request=request, source=source))

    def _update_by_keys(self, staged: StagedTable, frame: Frame, on: Sequence[str], *, inline: bool | None) -> None:
        """Stage an upsert of a frame that lacks columns: matched rows keep their values there, and new rows get the default or NULL.

        Raises:
            SchemaError: NULL or repeated keys in the frame.
        """
        from ducklake_core.engines.arrow.merge import merge_request

        table = staged.state.schema
        columns = Schema(columns=tuple(column for column in table if frame.schema.find(column.name) is not None))
        for name in on:
            if columns.find(name) is None:
                raise SchemaError(f"the data has no column {name!r}, which is part of the key", column=name)
        has_values = len(columns) > len({folded(name) for name in on})
        clauses: list[MergeClause] = [("matched", "update", "all", None)] if has_values else []
        request = merge_request(staged.name, table, columns, list(on), [*clauses, ("not matched", "insert", "all", None)])
        self._merge(staged, request, frame, columns, inline=inline)

    def restore(self, name: str, *, at: At, columns: RestoredColumns | None = None, spark: SparkSession | None = None) -> None:
        """Make the rows of a table those of an earlier snapshot; see :meth:`Table.restore`."""
        if self._is_done("restore", name, at, columns):
            return
        if columns not in (None, "now", "then"):
            raise UsageError(f"columns are those of 'now' or of 'then', not {columns!r}", parameter="columns")
        with self._whole_or_nothing():
            staged = self._catalog.table(name)
            if staged.committed is None:
                raise UsageError(f"table {staged.name} is made in this transaction: there is nothing to restore", table=staged.name)
            with self._lake.reader() as reader:
                then = reader.table_by_id(staged.committed.id, resolve_at(reader, at).id)
            if columns == "then":
                # Rows that the transaction has staged are gone anyhow, and need not fit the columns that come back.
                self._stage(staged, staged.alteration(partial(alterations.restore_columns, schema=then.schema), discards=True))
            elif columns is None and columns_of(then) != columns_of(staged.state):
                raise UsageError(
                    f"the columns of {staged.name} were changed after snapshot {then.snapshot_id}: restore them as well (columns: "
                    "then), or write its rows into the columns that the table has (columns: now)",
                    parameter="columns",
                    table=staged.name,
                    snapshot_id=then.snapshot_id,
                )
            self._select(staged, RestoreRows(then=then, session=spark))

    def _select(self, staged: StagedTable, selection: Selection) -> None:
        staged.written = True
        self._stage(staged, selection)


def frame_in_types_of(table: Schema, frame: Frame, clauses: Sequence[MergeClause]) -> Frame:
    """Return the source of a merge with the types in which its columns are compared and stored.

    - A column that is stored as it is, in the column of the same name, has the table's type: values that do not fit are an error, as in
      other writes.
    - A column that only expressions use keeps its own type: a result does not depend on whether all values happen to fit the table's.
    - A column that is only compared has the table's type if all of its values have it.
    """
    from ducklake_core.engines.arrow.merge import computed_names, stored_names

    own = frame.typed_like(table)
    stored, computed = stored_names(own.schema, clauses), computed_names(clauses)

    def chosen(mine: Field, fitted: Field) -> Field:
        name, known = folded(mine.name), table.find(mine.name)
        if name in stored:
            return replace(mine, type=known.type) if known is not None and may_not_fit(mine.type, known.type) else fitted
        return mine if name in computed else fitted

    columns = tuple(map(chosen, own.schema, frame.schema_for(table)))
    return replace(own, schema=Schema(columns=columns))
