"""The verbs of a transaction that take files which executors have written: what ``format("ducklake")`` commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ducklake_core.errors import CommitConflictError, UsageError
from ducklake_core.format.layout.chosen_partitions import written_partitions
from ducklake_core.format.types.names import split_name
from ducklake_core.staging.staged_table import AddRows, DeleteWhere, StagedTable
from ducklake_core.staging.verbs.base import OpenTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.format.files.data_files import WrittenFile


class WrittenFilesVerbs(OpenTransaction):
    """Files of Spark's tasks staged by a :class:`Transaction`."""

    def stage_created(self, files: Sequence[WrittenFile], state: WriteState, uuid: str) -> None:
        """Make a table of files that executors wrote for it; the transaction deletes them when it fails.

        Args:
            files: The files, verified.
            state: What their writers were told.
            uuid: The table's uuid, by which its directory was named.

        Raises:
            CommitConflictError: There is such a table meanwhile.
        """
        # Run again it may find the table that it has made itself, and write to that: both are one piece of work.
        self._is_done("overwrite", state.table)
        if self._is_done("append", state.table):
            return
        with self._whole_or_nothing():
            schema_name, name = split_name(state.table)
            if self._catalog.find_table(state.table) is not None:
                raise CommitConflictError(
                    f"table {state.table} was made by somebody else while rows for it were written; run the write again", table=state.table
                )
            owner = self._catalog.schema(schema_name)
            staged = self._catalog.create_table(owner, name, state.schema, (), None, uuid=uuid)
            self._coordinator.own(staged.paths(files), state.write_id)
            staged.written = True
            self._stage(staged, AddRows(files=tuple(files)))

    def stage_written(
        self,
        files: Sequence[WrittenFile],
        state: WriteState,
        table_id: int,
        uuid: str,
        *,
        replaces: Literal["all", "partitions"] | None = None,
        has_own_id: bool = False,
    ) -> None:
        """Make files that executors wrote part of the commit; the transaction deletes them when it fails.

        Args:
            files: The files, verified.
            state: What their writers were told.
            table_id: Id of the table that they were told of, and its uuid.
            uuid: See ``table_id``.
            replaces: What they replace: all rows, those of the partitions that they are in, or nothing.
            has_own_id: Whether the commit id is that of this table alone, whatever it is called.

        Raises:
            CommitConflictError: The table is no longer what the files were written for.
        """
        if self.repeated if has_own_id else self._is_done("append" if replaces is None else "overwrite", state.table):
            return
        with self._whole_or_nothing():
            staged = self._catalog.table(state.table)
            self._coordinator.own(staged.paths(files), state.write_id)
            found = staged.state
            if (found.id, found.uuid, found.schema, found.partition_spec) != (table_id, uuid, state.schema, state.partition_spec):
                raise CommitConflictError(
                    f"columns or partition keys of {state.table} were changed while its rows were written; run the write again",
                    table=state.table,
                )
            staged.written = True
            if replaces == "all":
                self._stage(staged, DeleteWhere(where=None, rejects_unseen=True))
            elif replaces == "partitions":
                self._replace_partitions(staged, files, None)
            self._stage(staged, AddRows(files=tuple(files), replaces=replaces is not None))

    def _replace_partitions(
        self,
        staged: StagedTable,
        files: Sequence[WrittenFile],
        session: SparkSession | None,
        *,
        rejects_unseen: bool = True,
        read_at: int | None = None,
    ) -> None:
        """Delete what the partitions that rows were written to have, if there are any."""
        spec = staged.state.partition_spec
        assert spec is not None
        found = written_partitions((file.partition_values for file in files), spec, staged.state.schema)
        if found is not None:
            self._stage_overwrite(staged, DeleteWhere(where=found, session=session, rejects_unseen=rejects_unseen), read_at)

    def _stage_overwrite(self, staged: StagedTable, step: DeleteWhere, read_at: int | None) -> None:
        """Stage the deletes of an overwrite, after rows that came since ``read_at`` were looked for."""
        if read_at is not None and not 0 <= read_at <= self._catalog.base.id:
            raise UsageError(
                f"read_at is {read_at}, but the newest snapshot is {self._catalog.base.id}: pass the id of the snapshot that was read",
                parameter="read_at",
            )
        if step.rejects_unseen and read_at is not None:
            self._coordinator.check_read_at(staged, step, read_at, self._catalog.base)
        self._stage(staged, step)
