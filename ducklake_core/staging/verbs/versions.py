"""The verbs of a transaction that go back: dropped tables come back, and a whole lake becomes what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.definitions import former_tables
from ducklake_core.catalog.reading.options import stored_options
from ducklake_core.errors import AlreadyExistsError, NotFoundError, UsageError
from ducklake_core.format.types.names import join_name, split_name
from ducklake_core.staging.arguments import resolve_at
from ducklake_core.staging.lake_restore import LakeRestore
from ducklake_core.staging.staged_table import RestoreRows
from ducklake_core.staging.verbs.base import OpenTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_core.catalog.reading.reader import CatalogReader
    from ducklake_core.format.state import SchemaState, TableState
    from ducklake_core.staging.arguments import At


class VersionVerbs(OpenTransaction):
    """Ways back to earlier snapshots staged by a :class:`Transaction`."""

    def undrop_table(self, name: str, *, at: At = None, new_name: str | None = None, spark: SparkSession | None = None) -> None:
        """Make a table that was dropped anew, with the definition, rows and row ids that it had.

        Args:
            name: ``table`` or ``schema.table``, as it was called when it was dropped (or at the snapshot ``at``).
            at: Snapshot to take it from, by id or time; the last one that shows it when None.
            new_name: Its name in the same schema from now on, without a schema; the old one when None.
            spark: A session, whose executors do the work. Without it the work is done in this process.

        Raises:
            NotFoundError: No table of that name was dropped, every snapshot that shows it was expired, or its schema is gone.
            AlreadyExistsError: A table or view has the name.
        """
        if self._is_done("undrop", name, at, new_name):
            return
        with self._whole_or_nothing(), self._lake.reader() as reader:
            then = self._dropped(reader, name, at)
            owner = self._catalog.find_schema(then.schema_name)
            if owner is None:
                raise NotFoundError(f"the schema of {then.qualified_name} is gone; create it first", schema=then.schema_name)
            self._recreate(reader, owner, then, new_name or then.name, spark)

    def restore_lake(self, *, at: At, spark: SparkSession | None = None) -> None:
        """Make the whole lake what it was at an earlier snapshot; see :meth:`DuckLake.restore`. Nothing else may be staged before it."""
        if self._is_done("restore lake", "main", at, is_schema=True):
            return
        catalog = self._catalog
        if catalog.definitions or catalog.views or any(staged.steps or staged.create for staged in catalog.tables):
            raise UsageError("restore a lake before anything else is done in the transaction: it goes back behind all of it")
        self._coordinator.takes_all = True
        with self._whole_or_nothing():
            with self._lake.reader() as reader:
                restore = LakeRestore.plan(reader, resolve_at(reader, at), catalog.base)
            restore.stage_definitions(catalog, self._stage)
            for then in restore.changed_rows:
                staged = catalog.table(join_name(then.schema_name, then.name))
                staged.written = True
                self._stage(staged, RestoreRows(then=then, session=spark))
            for then in restore.dropped_tables:
                with self._lake.reader() as reader:
                    self._recreate(reader, catalog.schema(then.schema_name), then, then.name, spark)

    def _dropped(self, reader: CatalogReader, name: str, at: At) -> TableState:
        """The table that was dropped, as it was."""
        schema, table = split_name(name)
        base = self._catalog.base.id
        if at is not None:
            then = reader.table(schema, table, resolve_at(reader, at).id)
            if any(listed.id == then.id for listed in reader.tables(base, [then.id])) and not self._catalog.is_dropped(then.id):
                raise AlreadyExistsError(
                    f"table {name} was not dropped: restore(at=...) makes its rows those of an earlier snapshot", table=name
                )
            return then
        former = former_tables(reader, schema, table, base)
        if not former:
            raise NotFoundError(f"no table {name} was dropped, or all snapshots that show it were expired", table=name)
        if former[0].last is None:
            raise NotFoundError(
                f"snapshots {former[0].begin} to {former[0].end - 1}, which show table {name}, were all expired: it cannot come back",
                table=name,
            )
        return reader.table_by_id(former[0].id, former[0].last)

    def _recreate(self, reader: CatalogReader, owner: SchemaState, then: TableState, name: str, session: SparkSession | None) -> None:
        self._catalog.check_free(owner.name, name)
        stored = stored_options(reader.connection, reader.catalog).rows
        options = {key: value for key, value, scope, number in stored if (scope, number) == ("table", then.id)}
        staged = self._catalog.recreate_table(owner, name, then, options, reader.next_row_id(then.id))
        staged.written = True
        self._stage(staged, RestoreRows(then=then, session=session))
