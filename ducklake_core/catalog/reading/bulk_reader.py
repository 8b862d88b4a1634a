"""Read many tables at once, with one statement for each kind of row.

Code that reads one table calls ``rows_of_table(kind, build, table_id)``. A :class:`CatalogReader` executes a statement for that table. A
:class:`ManyTablesReader` executes the statement for all of its tables at the first call of a kind, and answers later calls from memory::

    1,000 tables x 5 kinds    CatalogReader: 5,000 statements    ManyTablesReader: 5 statements
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, String, Table, cast, func, inspect, or_, select, text

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.catalog.database.tables import CatalogTables, inlined_delete_name
from ducklake_core.catalog.reading.file_rows import HeldRows, data_file_of
from ducklake_core.catalog.reading.reader import TERMS, CatalogReader, Found, all_of
from ducklake_core.catalog.reading.running_writes import is_option
from ducklake_core.catalog.reading.table_rows import LAKE_SETTINGS, Among, SettingRow, this_table
from ducklake_core.catalog.reading.visibility import committed_at, live_or_unknown
from ducklake_core.errors import NotFoundError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.state import LakeInfo, Snapshot, TableState, is_same_snapshot
from ducklake_core.format.types.names import folded

_MAX_LISTED = 500
"""Maximum number of tables that a statement names; for more, it reads the rows of all tables."""


class ManyTablesReader(CatalogReader):
    """A reader that reads rows of many tables with one statement, when the first of them is requested.

    Results are those of a :class:`CatalogReader`. Rows stay in memory as long as the reader, so it is for callers that read every one of
    the tables. Other tables are read by statements of their own.

    Args:
        connection: A connection of ``Database.read()``.
        info: Settings of the lake.
        tables: The metadata tables, ``Database.tables``.
        table_ids: The tables.
        keeps_values: Whether to keep table states and files too, for several operations that plan from one reader; default False.
    """

    holds_many = True

    def __init__(
        self, connection: Connection, info: LakeInfo, tables: CatalogTables, table_ids: Collection[int], *, keeps_values: bool = False
    ) -> None:
        super().__init__(connection, info, tables)
        self._ids = frozenset(table_ids)
        self._held: dict[tuple[object, ...], dict[int, list[Row[Any]]]] = {}
        self._states: dict[tuple[int, int], TableState] = {}
        self._files: dict[tuple[int, int], tuple[DataFile, ...]] = {}
        self._keeps_values = keeps_values
        self._once: dict[tuple[object, ...], Any] = {}
        self._by_name: dict[tuple[int, str, str], int] | None = None

    def table_by_id(self, table_id: int, snapshot_id: int) -> TableState:
        """Return a table by id; built once if values are kept."""
        if not self._keeps_values:
            return super().table_by_id(table_id, snapshot_id)
        key = (table_id, snapshot_id)
        if key not in self._states:
            self._states[key] = super().table_by_id(table_id, snapshot_id)
        return self._states[key]

    @classmethod
    def of_lake(cls, reader: CatalogReader, snapshot_id: int) -> ManyTablesReader:
        """Return a reader of all tables at a snapshot, which also finds tables by name without further statements.

        Args:
            reader: The reader with an open connection.
            snapshot_id: The snapshot.
        """
        names = reader.table_names(snapshot_id)
        many = cls(reader.connection, reader.info, reader.catalog, names, keeps_values=True)
        many._by_name = {(snapshot_id, folded(schema), folded(name)): number for number, (schema, name) in names.items()}
        return many

    def table(self, schema: str, name: str, snapshot_id: int, *, suggest: bool = True) -> TableState:
        """Return a table by its case-insensitive name; a reader of the whole lake executes no statement for it."""
        if self._by_name is None:
            return super().table(schema, name, snapshot_id, suggest=suggest)
        number = self._by_name.get((snapshot_id, folded(schema), folded(name)))
        if number is None:
            raise NotFoundError(f"there is no table {schema}.{name} at snapshot {snapshot_id}", table=f"{schema}.{name}")
        return self.table_by_id(number, snapshot_id)

    def once(self, kind: tuple[object, ...], read: Callable[[], Found]) -> Found:
        """Return what a function reads about the whole lake, from memory after the first call of a kind."""
        if kind not in self._once:
            self._once[kind] = read()
        found: Found = self._once[kind]
        return found

    def at(self, connection: Connection) -> ManyTablesReader:
        """Switch to another connection and return the reader; rows in memory are not read again."""
        self.connection = connection
        return self

    def reads(self, table_ids: Collection[int]) -> bool:
        """Return whether the reader has exactly these tables."""
        return self._ids == frozenset(table_ids)

    def live_files(self, table: TableState) -> Iterable[DataFile]:
        """Return the live files of a table, by id; built once if values are kept."""
        if not self._keeps_values:
            return held_files(self, table)
        key = (table.id, table.snapshot_id)
        if key not in self._files:
            self._files[key] = tuple(held_files(self, table))
        return self._files[key]

    def rows_of_table(self, kind: tuple[object, ...], build: Callable[[Among], Select[Any]], table_id: int) -> Sequence[Row[Any]]:
        """Return the rows of a table from a statement for all tables."""
        if table_id not in self._ids:
            return super().rows_of_table(kind, build, table_id)
        if kind not in self._held:
            self._held[kind] = self._by_table(build(self._among))
        return self._held[kind].get(table_id, [])

    def rows_of_inlined(self, kind: tuple[object, ...], build: Callable[[int, str], Select[Any]], table: TableState) -> Sequence[Row[Any]]:
        """Return the rows of the inlined data or deletes of a table from a statement for all tables."""
        own = self._inlined_names(kind, table)
        if table.id not in self._ids or not self._existing.issuperset(own):
            return super().rows_of_inlined(kind, build, table)
        if not own:
            return []
        if kind not in self._held:
            queries = [build(number, name) for number, name in self._every_inlined(kind) if name in self._existing]
            self._held[kind] = self._by_table(all_of(queries))
        return self._held[kind].get(table.id, [])

    def stored_inlined_counts(self, table: TableState) -> Sequence[Row[Any]]:
        """Return the number of rows (``n``) and of ended rows (``ended``) of each table of inlined rows of a table."""
        own = self._inlined_names(("data",), table)
        if table.id not in self._ids or not self._existing.issuperset(own):
            return super().stored_inlined_counts(table)
        return [self._every_count[name] for name in own]

    @cached_property
    def _every_count(self) -> dict[str, Row[Any]]:
        """Return the counts by name. The SQL is text, because compiling a thousand selects takes as long as everything else."""
        names = sorted({name for _, name in self._every_inlined(("data",)) if name in self._existing})
        quote = self.connection.dialect.identifier_preparer
        prefix = f"{quote.quote_schema(self.catalog.schema)}." if self.catalog.schema else ""
        ended = self.catalog.inlined.end_snapshot
        # The index in the list identifies the table: a name as a literal would need quoting.
        counts = [
            f"SELECT {place} AS place, count(*) AS n, count({ended}) AS ended FROM {prefix}{quote.quote(name)}"  # noqa: S608
            for place, name in enumerate(names)
        ]
        level = counts
        while len(level) > 1:
            parts = (level[start : start + TERMS] for start in range(0, len(level), TERMS))
            level = [f"SELECT * FROM ({' UNION ALL '.join(part)}) AS part" for part in parts]  # noqa: S608
        # text() would treat a colon in a name as a parameter.
        rows = self.connection.execute(text(level[0].replace(":", r"\:"))).all() if level else []
        return {names[row.place]: row for row in rows}

    def _every_inlined(self, kind: tuple[object, ...]) -> list[tuple[int, str]]:
        if kind[0] == "deletes":
            return [(number, inlined_delete_name(number)) for number in sorted(self._ids)]
        return [(number, row.key) for number, rows in self._registered.items() for row in rows if row.key]

    def setting_rows(self, schema_id: int, table_id: int) -> Sequence[SettingRow]:
        """Return options and inlined tables of a table, from three statements for all tables."""
        if table_id not in self._ids:
            return super().setting_rows(schema_id, table_id)
        scopes = ((None, None), ("schema", schema_id), ("table", table_id))
        options = [row for scope in scopes for row in self._options.get(scope, [])]
        return [*options, *self._registered.get(table_id, []), *self._versions.get(table_id, [])]

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table, from a list of all tables."""
        return name in self._existing

    @cached_property
    def _existing(self) -> frozenset[str]:
        return frozenset(inspect(self.connection).get_table_names(schema=self.catalog.schema))

    @cached_property
    def _options(self) -> dict[tuple[str | None, int | None], list[SettingRow]]:
        metadata = self.catalog["metadata"]
        query = select(metadata.c.key, metadata.c.value, metadata.c.scope, metadata.c.scope_id)
        found: dict[tuple[str | None, int | None], list[SettingRow]] = {}
        scoped = or_(metadata.c.scope.is_(None), metadata.c.scope.in_(("schema", "table")))
        for row in self.connection.execute(query.where(scoped, metadata.c.key.not_in(LAKE_SETTINGS), is_option(metadata))):
            scope = (row.scope, row.scope_id if row.scope is not None else None)
            found.setdefault(scope, []).append(SettingRow(row.key, row.value, row.scope, "option"))
        return found

    @cached_property
    def _registered(self) -> dict[int, list[SettingRow]]:
        inlined = self.catalog["inlined_data_tables"]
        version = cast(inlined.c.schema_version, String).label("version")
        query = select(inlined.c.table_id, inlined.c.table_name, version).where(self._among(inlined.c.table_id))
        found: dict[int, list[SettingRow]] = {}
        for row in self.connection.execute(query):
            found.setdefault(row.table_id, []).append(SettingRow(row.table_name, row.version, None, "inlined"))
        return found

    @cached_property
    def _versions(self) -> dict[int, list[SettingRow]]:
        versions = self.catalog["schema_versions"]
        newest = cast(func.max(versions.c.schema_version), String).label("newest")
        query = select(versions.c.table_id, newest).where(self._among(versions.c.table_id)).group_by(versions.c.table_id)
        return {row.table_id: [SettingRow(None, row.newest, None, "columns")] for row in self.connection.execute(query)}

    def _among(self, column: Any) -> Any:
        return column.in_(sorted(self._ids)) if len(self._ids) <= _MAX_LISTED else column.is_not(None)

    def _by_table(self, query: Select[Any]) -> dict[int, list[Row[Any]]]:
        found: dict[int, list[Row[Any]]] = {}
        for row in self.connection.execute(query).all():
            found.setdefault(row.table_id, []).append(row)
        return found


class SharedReading:
    """A reader of many tables that several operations share, as long as no other writer commits in between."""

    def __init__(self) -> None:
        self._reader: ManyTablesReader | None = None
        self._base: Snapshot | None = None

    def reader(self, reader: CatalogReader, base: Snapshot, table_ids: Collection[int]) -> ManyTablesReader:
        """Return a reader of the tables at a snapshot, which uses the connection of another reader.

        Args:
            reader: The reader with an open connection.
            base: The snapshot; rows in memory are dropped if it differs from that of the last call.
            table_ids: The tables.
        """
        if self._reader is None or self._base is None or not is_same_snapshot(self._base, base) or not self._reader.reads(table_ids):
            self._base = base
            self._reader = ManyTablesReader(reader.connection, reader.info, reader.catalog, table_ids, keeps_values=True)
        return self._reader.at(reader.connection)


def held_files(reader: CatalogReader, table: TableState) -> Iterator[DataFile]:
    """Yield the files that are live at ``table.snapshot_id``, by id, with their deletes."""
    catalog, at = reader.catalog, table.snapshot_id
    any_cell = abilities_of(reader.connection.dialect).has_untyped_cells

    def live(source: Table, *more: ColumnElement[Any]) -> Callable[[Among], Select[Any]]:
        return lambda among: select(source, *more).where(among(source.c.table_id), live_or_unknown(source, at, any_cell=any_cell))

    def values(among: Among) -> Select[Any]:
        value = catalog["file_partition_value"]
        return select(value).where(among(value.c.table_id)).order_by(value.c.data_file_id, value.c.partition_key_index)

    def positions(table_id: int, _name: str) -> Select[Any]:
        source = catalog.inlined_delete(table_id)
        columns = (source.c.file_id.label("data_file_id"), source.c.row_id)
        return select(this_table(table_id), *columns).where(source.c.begin_snapshot <= at).distinct()

    deletes = live(catalog["delete_file"], committed_at(catalog, catalog["delete_file"]))
    rows = {"deletes": sorted(reader.rows_of_table(("delete files", at), deletes, table.id), key=_delete_file_id)}
    if table.partition_specs:
        rows["partition_values"] = list(reader.rows_of_table(("partition values",), values, table.id))
    found = reader.rows_of_inlined(("deletes", at), positions, table)
    rows["inlined_deletes"] = sorted(found, key=lambda row: (str(row.data_file_id), str(row.row_id).zfill(19)))
    held = HeldRows(rows)
    for row in sorted(reader.rows_of_table(("data files", at), live(catalog["data_file"]), table.id), key=lambda row: row.data_file_id):
        yield data_file_of(row, table, held, reader.info.encrypted)


def _delete_file_id(row: Any) -> int:
    return int(row.delete_file_id)
