"""Copy a catalog to an empty database of any kind, and change the directory of its files.

The source is read in one consistent state, table by table in batches. The target is filled in one transaction, so that it contains either
the whole lake or none::

    source rows -> digest -> INSERT into the target -> SELECT from the target -> the same digest, or nothing is committed

Metadata rows have the same form in every database. Inlined rows are decoded and encoded again, because each kind of database stores them
in its own way (``catalog.inlined.cells``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, Table, and_, func, insert, or_, select, update

from ducklake_core.catalog.database.bootstrap import fill_new_catalog
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.statements import PlainStatements
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS, CatalogTables
from ducklake_core.catalog.inlined.ddl import has_inlined_table, physical_table
from ducklake_core.catalog.inlined.rows import TableVersions, stored_batches
from ducklake_core.catalog.inlined.write import encoded_rows, insert_cells, is_readable
from ducklake_core.catalog.reading.completeness import complete_rows
from ducklake_core.catalog.reading.integrity_scan import inlined_tables, known_tables, tables_that_may_go
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError, CatalogError, UnsupportedFeatureError
from ducklake_core.format.files.inlined_rows import column_values
from ducklake_core.format.files.paths import moved_path
from ducklake_core.format.state import InlinedTable, LakeInfo, TableState
from ducklake_core.format.types.data_types import VARIANT
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import counted

_BATCH_ROWS = 2_000
_PLACES = ("schema", "table", "data_file", "delete_file", "files_scheduled_for_deletion")
"""Metadata tables with paths."""
Row = Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedCatalog:
    """Numbers of copied rows.

    Attributes:
        snapshots: Number of snapshots.
        rows: Number of metadata rows, including those of snapshots.
        inlined_rows: Number of inlined rows and deletes.
    """

    snapshots: int
    rows: int
    inlined_rows: int


@dataclass(slots=True)
class Digest:
    """Count and checksum of rows, in any order."""

    count: int = 0
    total: int = 0

    def add(self, row: Row) -> None:
        """Add a row."""
        found = hashlib.blake2b(repr(tuple(row)).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self.count += 1
        self.total = (self.total + int.from_bytes(found, "little")) % (1 << 128)

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Digest:
        """Return the digest of rows."""
        found = cls()
        for row in rows:
            found.add(row)
        return found

    def through(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield rows, and add each."""
        for row in rows:
            self.add(row)
            yield row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inlined:
    """A table of inlined rows: its table, and its columns."""

    table: TableState
    source: InlinedTable
    columns: Schema


@dataclass(slots=True, kw_only=True)
class _Copier:
    """Copies from an open reader of the source.

    Attributes:
        info: Settings of the source.
        data_path: Data path that the target stores.
        moves: Whether absolute paths below the old data path are changed, and the schedule for deletion is left out.
        advance: Called with the number of rows of each batch.
    """

    reader: CatalogReader
    info: LakeInfo
    data_path: str
    moves: bool
    advance: Callable[[str, int], None]
    done: dict[str, int] = field(default_factory=dict)
    inlined: list[_Inlined] = field(default_factory=list)
    deletes: list[int] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)

    def prepare(self, target: Database) -> list[Table]:
        """Find the tables of inlined rows, and return those to create in the target.

        Raises:
            UnsupportedFeatureError: The target cannot store inlined rows of a table.
        """
        connection, tables = self.reader.connection, self.reader.catalog
        there = inlined_tables(connection, tables, known_tables(connection, tables))
        if there.missing:
            names = ", ".join(name for _, name in there.missing)
            raise CatalogCorruptError(f"The catalog lacks tables of inlined rows: {names}. Run lake.check()", inlined_tables=names)
        registered = tables["inlined_data_tables"]
        query = select(registered.c.table_id, registered.c.table_name, registered.c.schema_version)
        created = []
        for row in connection.execute(query).all():
            source = InlinedTable(name=row.table_name, schema_version=row.schema_version)
            columns = TableVersions.read(self.reader, row.table_id).schema_at(row.schema_version)
            found = _Inlined(table=self._state(row.table_id), source=source, columns=columns)
            count = self._count(tables.inlined_data(source.name))
            if has_inlined_table(columns, target.version):
                self.inlined.append(found)
                created.append(physical_table(target.tables, target.abilities, source.name, columns))
            elif count:
                raise self._cannot_store(found, target, "its columns")
            else:
                self.left_out.add(source.name)
        self.deletes = [number for number, _ in there.deletes]
        for number in self.deletes:
            self._count(tables.inlined_delete(number))
        return [*created, *map(target.tables.inlined_delete, self.deletes)]

    def _count(self, table: Table) -> int:
        """Return the number of rows. On PostgreSQL this also locks the table, so that no other client drops it before it is copied."""
        with tables_that_may_go():
            return int(self.reader.connection.execute(select(func.count()).select_from(table)).scalar_one())

    def _cannot_store(self, found: _Inlined, target: Database, what: str) -> UnsupportedFeatureError:
        name = found.table.qualified_name
        return UnsupportedFeatureError(
            f"The inlined rows of {name} cannot be copied to {target.address}, because it cannot store {what}. Move them to files with "
            f"lake.flush_inlined_data({name!r}), expire the snapshots that show the table if it was dropped, and copy again",
            table=name,
        )

    def _state(self, table_id: int) -> TableState:
        """Return a table at the last snapshot that shows it."""
        table, snapshot = self.reader.catalog["table"], self.reader.catalog["snapshot"]
        number = snapshot.c.snapshot_id
        shows = and_(number >= table.c.begin_snapshot, or_(table.c.end_snapshot.is_(None), number < table.c.end_snapshot))
        query = select(func.max(number)).select_from(table.join(snapshot, shows)).where(table.c.table_id == table_id)
        last = self.reader.connection.execute(query).scalar()
        if last is None:
            raise CatalogCorruptError(f"No snapshot shows table {table_id}, which has inlined rows. Run lake.check()", table_id=table_id)
        return self.reader.table_by_id(table_id, last)

    def fill(self, connection: Connection, target: Database) -> None:
        """Copy all rows into the tables of the target, read them again, and compare.

        Raises:
            CatalogError: The target returned other rows.
        """
        self.done = {}
        # The lake exists once its settings do, so they are the last.
        for name in sorted(target.tables, key=lambda name: name == "metadata"):
            self._copy_rows(connection, name, target.tables[name], self._rows(name))
        for table_id in self.deletes:
            source = self.reader.catalog.inlined_delete(table_id)
            rows = _stored(self.reader.connection, source)
            self._copy_rows(connection, source.name, target.tables.inlined_delete(table_id), rows)
        for found in self.inlined:
            self._copy_inlined(connection, target, found)

    def _copy_rows(self, connection: Connection, name: str, table: Table, rows: Iterator[Row]) -> None:
        names = table.c.keys()
        digest, statement = Digest(), insert(table)
        for batch in _batches(digest.through(rows)):
            connection.execute(statement, [dict(zip(names, row, strict=True)) for row in batch])
            self.advance(name, len(batch))
        self._compare(name, digest, _stored(connection, table))

    def _rows(self, name: str) -> Iterator[Row]:
        """Yield the rows that the target gets of a metadata table."""
        table = self.reader.catalog[name]
        if name == "files_scheduled_for_deletion" and self.moves:
            return
        names = table.c.keys()
        for row in _stored(self.reader.connection, table):
            cells = dict(zip(names, row, strict=True))
            if name == "metadata" and cells["key"] == "data_path" and cells["scope"] is None:
                cells["value"] = self.data_path
            if name == "inlined_data_tables" and cells["table_name"] in self.left_out:
                continue
            if name in _PLACES and self.moves and cells["path_is_relative"] is False:
                cells["path"] = moved_path(str(cells["path"]), self.info.data_path, self.data_path)
            for bound in ("min_value", "max_value"):
                # PostgreSQL cannot store NUL, and this library's writers omit such bounds everywhere.
                if "\0" in str(cells.get(bound)):
                    cells[bound] = None
            yield tuple(cells.values())

    def _copy_inlined(self, connection: Connection, target: Database, found: _Inlined) -> None:
        digest, statements = Digest(), PlainStatements(connection)
        names = [column.name for column in found.columns]
        doubtful = [
            (place, column.type)
            for place, column in enumerate(found.columns, INLINED_SYSTEM_COLUMNS)
            if column.type == VARIANT or not column.is_leaf
        ]
        for rows in _inlined_batches(self.reader, found):
            if not all(is_readable(row[place], kind) for row in rows for place, kind in doubtful):
                raise self._cannot_store(found, target, "a nested value in a form that DuckDB reads")
            parameters = encoded_rows(list(found.columns), digest.through(rows), target.abilities)
            insert_cells(statements, target, found.source.name, list(found.columns), parameters, names)
            self.advance(found.table.qualified_name, len(rows))
        reader = CatalogReader(connection, replace(self.info, inlined_limits=target.abilities.inlined_limits), target.tables)
        self._compare(found.source.name, digest, (row for rows in _inlined_batches(reader, found) for row in rows))

    def _compare(self, name: str, wanted: Digest, rows: Iterator[Row]) -> None:
        digest = Digest.of(rows)
        if digest != wanted:
            raise CatalogError(
                f"The lake was not copied: table {name} has {counted(wanted.count, 'row')} in the source, and "
                f"{f'{digest.count:,}' if digest.count != wanted.count else 'other values'} in the copy. Nothing was committed. Run "
                "lake.check() on the source",
                table=name,
            )
        self.done[name] = digest.count


def _stored(connection: Connection, table: Table) -> Iterator[Row]:
    with tables_that_may_go():
        yield from complete_rows(connection, select(table), f"rows of {table.name}")


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _inlined_batches(reader: CatalogReader, found: _Inlined) -> Iterator[list[Row]]:
    """Yield batches of rows: row id, begin and end snapshot, then the values of the columns as Python values."""
    for batch in stored_batches(reader, found.table, found.source, found.columns, row_count=0):
        system = [batch[name].to_pylist() for name in ("rowid", "snapshot_id", "end_snapshot")]
        values = [column_values(batch.column(place), column) for place, column in enumerate(found.columns)]
        yield list(zip(*system, *values, strict=True))


def copy_catalog(
    source: Database,
    info: LakeInfo,
    target: Database,
    data_path: str,
    *,
    moves: bool,
    indexes: bool,
    before: Callable[[Connection], None],
    advance: Callable[[str, int], None],
) -> CopiedCatalog:
    """Copy a catalog with all snapshots to an empty database, or not at all.

    Args:
        source: The catalog to copy.
        info: Its settings.
        target: The database of the copy.
        data_path: Data path that the copy stores.
        moves: Whether the files are copied to the data path, so that absolute paths below the old one change too.
        indexes: Whether to create indexes where they are useful.
        before: Called in the transaction on the source, before the target is touched.
        advance: Called with the name of a table and a number of copied rows.

    Raises:
        AlreadyExistsError: The target holds a lake already.
        CatalogError: The target returned other rows than those that were inserted. Nothing was committed.
        UnsupportedFeatureError: The target cannot store inlined rows of a table.
    """
    source.check_writable(dry_run=True)
    target.follow(source.version)
    with source.unblocked() as unblocked, unblocked.read() as connection:
        copier = _Copier(
            reader=CatalogReader(connection, info, source.tables), info=info, data_path=data_path, moves=moves, advance=advance
        )
        created = copier.prepare(target)
        before(connection)
        fill_new_catalog(target, copier.fill, indexes=indexes, inlined=created)
    metadata = {name: copier.done[name] for name in target.tables}
    rows = sum(metadata.values())
    return CopiedCatalog(snapshots=metadata["snapshot"], rows=rows, inlined_rows=sum(copier.done.values()) - rows)


def store_data_path(connection: Connection, tables: CatalogTables, old: str, new: str) -> int:
    """Store another data path, and change absolute paths below the old one. Return the number of changed paths.

    Args:
        connection: A write transaction.
        tables: The metadata tables.
        old: The data path that is stored now.
        new: The new one.
    """
    metadata = tables["metadata"]
    connection.execute(update(metadata).where(metadata.c.key == "data_path", metadata.c.scope.is_(None)).values(value=new))
    changed = 0
    for name in _PLACES:
        table = tables[name]
        moved: dict[str, str] = {}
        for row in complete_rows(connection, select(table.c.path).where(table.c.path_is_relative.is_(False)).distinct(), f"rows of {name}"):
            if (path := moved_path(row.path, old, new)) != row.path:
                moved[row.path] = path
        for path, other in moved.items():
            connection.execute(update(table).where(table.c.path == path, table.c.path_is_relative.is_(False)).values(path=other))
        changed += len(moved)
    return changed


def stored_data_path(connection: Connection, tables: CatalogTables) -> str:
    """Return the data path that the catalog stores now."""
    metadata = tables["metadata"]
    query = select(metadata.c.value).where(metadata.c.key == "data_path")
    if "scope" in metadata.c:
        query = query.where(metadata.c.scope.is_(None))
    found = connection.execute(query).scalar()
    if found is None:
        raise CatalogCorruptError("The catalog has no data_path in ducklake_metadata. Restore the row from a backup")
    return str(found)
