"""Lists what is in a lake: snapshots, schemas, tables, views, macros, options and settings, each at any snapshot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.definitions import Macro, find_view, macros, view, views
from ducklake_core.catalog.reading.options import ScopedOption, scoped_options
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.commit.committer import Committer
from ducklake_core.commit.request import checked_commit_id
from ducklake_core.errors import NotFoundError
from ducklake_core.format.arguments import checked
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.state import LakeInfo, SchemaState, Snapshot, TableState
from ducklake_core.format.types.names import join_name, split_name
from ducklake_core.planning.table_info import (
    FILES,
    OPTIONS,
    PARTITIONS,
    SNAPSHOTS,
    TABLES,
    as_table,
    file_rows,
    option_row,
    partition_rows,
    snapshot_row,
    table_rows,
    table_size,
    table_sizes,
)
from ducklake_core.results import LakeChanges, LakeSettings, LakeStatistics, TableInfo
from ducklake_core.staging.arguments import At, resolve_at
from ducklake_core.staging.context import LakeContext, TableStateCache
from ducklake_core.storage.filesystems import Storage
from ducklake_core.table import Table
from ducklake_core.view import View

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.scan import Scan
    from ducklake_core.staging.arguments import Where


class Listings(ABC):
    """Questions about a lake as a whole. Part of :class:`~ducklake_core.lake.DuckLake`."""

    _database: Database
    _info: LakeInfo
    _storage: Storage
    table_cache: TableStateCache

    @contextmanager
    def reader(self) -> Iterator[CatalogReader]:
        """Questions to the catalog within one short read transaction that sees one state of it."""
        with self._database.read() as connection:
            yield CatalogReader(connection, self._info, self._database.tables)

    @property
    def _context(self) -> LakeContext:
        """The handles of this lake that internals take instead of the lake itself."""
        return LakeContext(database=self._database, info=self._info, storage=self._storage, table_cache=self.table_cache)

    @property
    def storage(self) -> Storage:
        """Access to the lake's files; picklable."""
        return self._storage

    def snapshot(self, at: At = None) -> Snapshot:
        """The newest snapshot, the one with an id, or the last one committed at or before a time (aware datetime).

        Raises:
            NotFoundError: It does not exist, or was expired.
        """
        with self.reader() as reader:
            return resolve_at(reader, at)

    def find_commit(self, commit_id: str, *, snapshot_id: int | None = None) -> Snapshot | None:
        """The snapshot that was committed with ``commit_id``, None when there surely never was one.

        Args:
            commit_id: The id.
            snapshot_id: The one snapshot that it can have become, as a :class:`CommitOutcomeUnknownError` names it: then it does not
                matter whether others were expired.

        Raises:
            CommitOutcomeUnknownError: No snapshot carries the id, but the one that did may have been expired.
        """
        return Committer(self._database).look_for(checked_commit_id(commit_id), snapshot_id)

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that were not expired, by id ascending; ``snapshot.change_set`` says what each of them changed."""
        with self.reader() as reader:
            return reader.snapshots()

    def changed_tables(
        self,
        after: int,
        until: int | None = None,
        *,
        tables: Mapping[str, Sequence[str]] | None = None,
        most_snapshots: int | None = None,
    ) -> LakeChanges:
        """Find the tables of which rows may differ between two snapshots, with what files and bounds tell of those rows.

        What is visible at both snapshots is compared, so that a flush, a merge or a rewrite changes nothing, and rows that came and
        went in between do not count. No file is opened: of a file that changed, all rows count, with the bounds of the whole file.
        Nothing that changed is left out: where snapshots were expired, so that the catalog has forgotten what was visible, a table
        says ``unknown``. The number of statements depends on neither snapshots nor tables, but for one more with every 200 tables
        that hold rows in the catalog.

        Args:
            after: Id of the earlier snapshot; it may have been expired.
            until: Id of the later one, the newest when None.
            tables: Names of tables to look at, each with the columns whose bounds are wanted; all tables and no bounds when None.
            most_snapshots: Stop at a snapshot so many commits after ``after``, instead of the newest.

        Raises:
            NotFoundError: There is no snapshot ``until``.
            UsageError: A name that cannot be read.
        """
        from ducklake_core.planning.lake_changes import plan_lake_changes

        with self.reader() as reader:
            return plan_lake_changes(reader, after, until, tables=tables, most=most_snapshots)

    def statistics(self, tables: Mapping[str, Sequence[str]]) -> LakeStatistics:
        """Get what the catalog knows of the rows of tables, at the newest snapshot and at every earlier one that is kept.

        That is rows, deletes, NULLs and bounds of each data file, and inlined rows by the values of those columns. No file is opened;
        the number of statements depends on neither tables nor snapshots, but for one more with every 200 tables with inlined rows.

        Args:
            tables: Names of tables, each with the columns whose bounds and NULLs are wanted. Names that are not there are left out.
        """
        from ducklake_core.planning.table_info import read_statistics

        with self.reader() as reader:
            return read_statistics(reader, tables)

    def at(self, at: At) -> LakeAtSnapshot:
        """The whole lake as it was at one snapshot, to be read only: its tables, views and listings all show the same moment.

        Args:
            at: Snapshot id, a time with a zone (the last snapshot at or before it), or None for what is the newest snapshot now.

        Raises:
            NotFoundError: There is no such snapshot, or it was expired.
        """
        with self.reader() as reader:
            return LakeAtSnapshot(self, resolve_at(reader, at))

    @property
    def inspect(self) -> Inspection:
        """What the catalog says, as Arrow tables: ``lake.inspect.snapshots()``, ``lake.inspect.files("t")``."""
        return Inspection(self)

    def __getitem__(self, name: str) -> Table:
        """``lake["t"]``: the table, as :meth:`table` opens it."""
        return self.table(name)

    def __contains__(self, name: str) -> bool:
        """``"t" in lake``: whether the table exists."""
        return self.has_table(name)

    def __iter__(self) -> Iterator[str]:
        """Names of all tables, ``schema.table``, at the newest snapshot; nothing else is asked of the catalog."""
        return iter(self.at(None))

    @abstractmethod
    def has_table(self, name: str, *, at: At = None) -> bool:
        """Whether ``table`` or ``schema.table`` exists."""

    @abstractmethod
    def table(self, name: str, *, at: At = None) -> Table:
        """A table by its name."""

    def schemas(self, *, at: At = None) -> list[SchemaState]:
        """All schemas by name."""
        with self.reader() as reader:
            return reader.schemas(resolve_at(reader, at).id)

    def tables(self, schema: str | None = None, *, at: At = None) -> list[TableInfo]:
        """All tables, of the lake or of one schema, which must exist, by name, with their sizes: few queries whatever their number.

        Files are opened for those tables alone of which a file also holds rows or deletes of later snapshots (see :meth:`table_info`).
        """
        with self.reader() as reader:
            sizes = table_sizes(reader, resolve_at(reader, at).id, schema)
        return [self._context.counted(size) for size in sizes]

    def table_info(self, name: str, *, at: At = None) -> TableInfo:
        """Rows, files and bytes of a table, from the catalog alone, with one exception.

        When files were merged after the snapshot, a file also holds rows of later snapshots, or a delete file deletes of later ones,
        and the catalog does not say how many: those files are opened to count.
        """
        with self.reader() as reader:
            snapshot = resolve_at(reader, at)
            size = table_size(reader, reader.table(*split_name(name), snapshot.id))
        return self._context.counted(size)

    def views(self, *, at: At = None) -> list[View]:
        """All views by schema and name."""
        with self.reader() as reader:
            return [View(self._context, state) for state in views(reader, resolve_at(reader, at).id)]

    def view(self, name: str, *, at: At = None) -> View:
        """A view by ``view`` (in schema main) or ``schema.view``.

        Raises:
            NotFoundError: No such view at that snapshot.
        """
        with self.reader() as reader:
            return View(self._context, view(reader, *split_name(name), resolve_at(reader, at).id))

    def macros(self, *, at: At = None) -> list[Macro]:
        """All macros by schema and name, with their definitions. DuckDB runs them, also in process for :meth:`DuckLake.sql`."""
        with self.reader() as reader:
            return macros(reader, resolve_at(reader, at).id)

    def options(self, table: str | None = None) -> Mapping[str, str]:
        """Options in force: for the lake, or for a table (table over schema over lake), by lower-case name."""
        with self.reader() as reader:
            if table is None:
                return reader.options()
            return reader.table(*split_name(table), reader.latest_snapshot().id).options

    def scoped_options(self) -> list[ScopedOption]:
        """Every option that somebody set, with the scope that it was set for, by name and scope.

        Options have no history: they are as they are now, whatever the snapshot. The lake's own settings are stored, and
        listed, among them.
        """
        with self.reader() as reader:
            return scoped_options(reader, reader.latest_snapshot().id)

    def settings(self) -> LakeSettings:
        """Get the settings that the lake has had since it was created."""
        return LakeSettings(
            catalog_type=self._database.address.url.get_backend_name(),
            version=self._info.version,
            data_path=self._info.data_path,
            encrypted=self._info.encrypted,
            created_by=self._info.created_by,
        )

    def _refuse_view(self, name: str, at: At) -> None:
        """Raise for a name that is no table, with advice when it is a view."""
        with self.reader() as reader:
            found = find_view(reader, *split_name(name), resolve_at(reader, at).id)
        if found is not None:
            where = f"{found.schema_name}.{found.name}"
            message = f"{where} is a view, not a table, at snapshot {found.snapshot_id}; read it by SQL, or open it with lake.view(...)"
            raise NotFoundError(message, view=where, snapshot_id=found.snapshot_id)


@checked
class LakeAtSnapshot:
    """A lake at one snapshot. Made by :meth:`DuckLake.at`; nothing of it can be written, and what is committed later never shows."""

    def __init__(self, lake: Listings, snapshot: Snapshot) -> None:
        self._lake = lake
        self._snapshot = snapshot

    def __repr__(self) -> str:
        return f"<{self._lake!r} at snapshot {self._snapshot.id} of {self._snapshot.time.isoformat()}>"

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot."""
        return self._snapshot

    @property
    def inspect(self) -> Inspection:
        """What the catalog says of the snapshot, as Arrow tables."""
        return Inspection(self._lake, at=self._snapshot.id)

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __contains__(self, name: str) -> bool:
        return self.has_table(name)

    def __iter__(self) -> Iterator[str]:
        with self._lake.reader() as reader:
            return iter([join_name(*name) for name in reader.table_names(resolve_at(reader, self._snapshot.id).id).values()])

    def table(self, name: str) -> Table:
        """A table as :meth:`DuckLake.table` opens it at the snapshot.

        Raises:
            NotFoundError: No such table at the snapshot.
        """
        return self._lake.table(name, at=self._snapshot.id)

    def has_table(self, name: str) -> bool:
        """Whether the table exists at the snapshot."""
        return self._lake.has_table(name, at=self._snapshot.id)

    def scan(self, name: str, *, columns: Sequence[str] | None = None, where: Where = None) -> Scan:
        """Rows of a table: :meth:`Table.scan`."""
        return self.table(name).scan(columns=columns, where=where)

    def tables(self, schema: str | None = None) -> list[TableInfo]:
        """All tables with their sizes: :meth:`DuckLake.tables`."""
        return self._lake.tables(schema, at=self._snapshot.id)

    def table_info(self, name: str) -> TableInfo:
        """Rows, files and bytes of a table: :meth:`DuckLake.table_info`."""
        return self._lake.table_info(name, at=self._snapshot.id)

    def schemas(self) -> list[SchemaState]:
        """All schemas by name."""
        return self._lake.schemas(at=self._snapshot.id)

    def view(self, name: str) -> View:
        """A view by its name.

        Raises:
            NotFoundError: No such view at the snapshot.
        """
        return self._lake.view(name, at=self._snapshot.id)

    def views(self) -> list[View]:
        """All views by schema and name."""
        return self._lake.views(at=self._snapshot.id)

    def macros(self) -> list[Macro]:
        """All macros by schema and name."""
        return self._lake.macros(at=self._snapshot.id)


@checked
class Inspection:
    """What the catalog says of a lake, as Arrow tables with typed columns. Made by ``lake.inspect``; no data file is opened.

    Each answer takes a number of statements that does not depend on how many snapshots, tables or files there are.
    """

    def __init__(self, lake: Listings, at: At = None) -> None:
        self._lake = lake
        self._at = at

    def __repr__(self) -> str:
        return f"<inspection of {self._lake!r}{'' if self._at is None else f' at snapshot {self._at}'}>"

    def snapshots(self) -> pa.Table:
        """Snapshots that were not expired, by id: when, by whom, why, and what changed; those up to the snapshot of a lake at one."""
        with self._lake.reader() as reader:
            until = None if self._at is None else resolve_at(reader, self._at).id
            found = reader.snapshots(until=until)
        return as_table(SNAPSHOTS, map(snapshot_row, found))

    def tables(self, *, at: At = None) -> pa.Table:
        """Tables by schema and name, with what the catalog counts: rows, files, bytes, deletes, inlined rows.

        Rows are None where a file also holds rows or deletes of later snapshots (see :meth:`DuckLake.table_info`, which counts them).
        """
        with self._lake.reader() as reader:
            snapshot_id = resolve_at(reader, self._moment(at)).id
            listings = reader.tables(snapshot_id)
            inlined = reader.inlined_counts(listings, snapshot_id)
        return as_table(TABLES, table_rows(listings, inlined))

    def files(self, table: str, *, at: At = None) -> pa.Table:
        """Live data files of a table by id: path, rows and bytes, partition values, deletes, and the snapshot they came with."""
        state, files = self._files(table, at)
        return as_table(FILES, file_rows(state, files))

    def partitions(self, table: str, *, at: At = None) -> pa.Table:
        """Partitions of a table by their values, each with its files, rows and bytes; inlined rows are in none of them.

        Files that were written under other partition keys make partitions of their own, under those keys.
        """
        state, files = self._files(table, at)
        return as_table(PARTITIONS, partition_rows(state, files))

    def options(self) -> pa.Table:
        """Options that somebody set, by name, each with the lake, schema or table it holds for. They have no history."""
        return as_table(OPTIONS, map(option_row, self._lake.scoped_options()))

    def history(self, table: str, *, at: At = None) -> pa.Table:
        """Snapshots whose changes touch a table, by id, up to the one that is asked for."""
        opened = self._lake.table(table, at=self._moment(at))
        found = (snapshot for snapshot in opened.snapshots() if snapshot.id <= opened.snapshot_id)
        return as_table(SNAPSHOTS, map(snapshot_row, found))

    def _files(self, table: str, at: At) -> tuple[TableState, list[DataFile]]:
        opened = self._lake.table(table, at=self._moment(at))
        return opened.state, opened.list_files()

    def _moment(self, at: At) -> At:
        return self._at if at is None else at
