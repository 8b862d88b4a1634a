"""What is in a lake: snapshots, schemas, tables, views, macros, options and settings, each at any snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TypeAlias

from ducklake_core.catalog.database import Database
from ducklake_core.catalog.macros import Macro, macros
from ducklake_core.catalog.option_rows import ScopedOption, scoped_options
from ducklake_core.catalog.reader import CatalogReader
from ducklake_core.catalog.state import LakeInfo, SchemaState, Snapshot
from ducklake_core.catalog.views import find_view, view, views
from ducklake_core.errors import NotFoundError
from ducklake_core.format.names import split_name
from ducklake_core.results import LakeSettings, TableInfo
from ducklake_core.storage.filesystems import Storage
from ducklake_core.table_sizes import table_size, table_sizes
from ducklake_core.view import View

At: TypeAlias = int | datetime | None


class Listings:
    """What can be asked of a lake as a whole. Part of :class:`~ducklake_core.lake.DuckLake`."""

    _database: Database
    _info: LakeInfo
    _storage: Storage

    @contextmanager
    def reader(self) -> Iterator[CatalogReader]:
        """Questions to the catalog within one short read transaction that sees one state of it."""
        with self._database.read() as connection:
            yield CatalogReader(connection, self._info, self._database.tables)

    @property
    def storage(self) -> Storage:
        """Access to the lake's files; picklable."""
        return self._storage

    def snapshots(self) -> list[Snapshot]:
        """All snapshots that were not expired, by id ascending; ``snapshot.change_set`` says what each of them changed."""
        with self.reader() as reader:
            return reader.snapshots()

    def schemas(self, *, at: At = None) -> list[SchemaState]:
        """All schemas by name."""
        with self.reader() as reader:
            return reader.schemas(resolve_at(reader, at).id)

    def tables(self, schema: str | None = None, *, at: At = None) -> list[TableInfo]:
        """All tables, of one schema or of the lake, by schema and name, with their sizes: one query whatever their number.

        Files are opened for those tables alone of which a file also holds rows or deletes of later snapshots (see :meth:`table_info`).
        """
        with self.reader() as reader:
            sizes = table_sizes(reader, resolve_at(reader, at).id)
        wanted = [size for size in sizes if schema is None or split_name(size.info.table)[0].casefold() == schema.casefold()]
        return [size.counted(self._storage) for size in wanted]

    def table_info(self, name: str, *, at: At = None) -> TableInfo:
        """Rows, files and bytes of a table, from the catalog alone, with one exception.

        When files were merged after the snapshot, a file also holds rows of later snapshots, or a delete file deletes of later ones,
        and the catalog does not say how many: those files are opened to count.
        """
        with self.reader() as reader:
            snapshot = resolve_at(reader, at)
            size = table_size(reader, reader.table(*split_name(name), snapshot.id))
        return size.counted(self._storage)

    def views(self, *, at: At = None) -> list[View]:
        """All views by schema and name."""
        with self.reader() as reader:
            return [View(self, state) for state in views(reader, resolve_at(reader, at).id)]

    def view(self, name: str, *, at: At = None) -> View:
        """A view by ``view`` (in schema main) or ``schema.view``.

        Raises:
            NotFoundError: No such view at that snapshot.
        """
        with self.reader() as reader:
            return View(self, view(reader, *split_name(name), resolve_at(reader, at).id))

    def macros(self, *, at: At = None) -> list[Macro]:
        """All macros by schema and name, with their definitions. They are DuckDB's to call; nothing here runs them."""
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
        """What holds for the lake as a whole since it was created."""
        return LakeSettings(
            catalog_type=self._database.address.url.get_backend_name(),
            version=self._info.version,
            data_path=self._info.data_path,
            encrypted=self._info.encrypted,
            created_by=self._info.created_by,
        )

    def _refuse_view(self, name: str, at: At) -> None:
        """What is no table may be a view."""
        with self.reader() as reader:
            found = find_view(reader, *split_name(name), resolve_at(reader, at).id)
        if found is not None:
            where = f"{found.schema_name}.{found.name}"
            message = f"{where} is a view, not a table, at snapshot {found.snapshot_id}; open it with lake.view(...)"
            raise NotFoundError(message, view=where, snapshot_id=found.snapshot_id)


def resolve_at(reader: CatalogReader, at: At) -> Snapshot:
    """The snapshot that ``at`` means: the newest for None, else by id or time."""
    if at is None:
        return reader.latest_snapshot()
    return reader.snapshot(timestamp=at) if isinstance(at, datetime) else reader.snapshot(version=at)
