"""Read every row of the catalog for integrity checks, with a fixed number of statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, RowMapping, Select, String, inspect, literal, select, union
from sqlalchemy.exc import DBAPIError

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.failures import is_about_missing_table
from ducklake_core.catalog.database.tables import CatalogBoolean, CatalogTables, inlined_deletes_owner, inlined_owner, may_be_in_the_making
from ducklake_core.catalog.reading.completeness import complete_rows
from ducklake_core.catalog.reading.reader import all_of
from ducklake_core.errors import CatalogUnavailableError, DuckLakeError

_ROWS_PER_FETCH = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCell:
    """A cell with an invalid value.

    Attributes:
        table: Metadata table without its prefix.
        column: Its column; None when the rows cannot be read at all.
        row: First cells of the row, for reports.
        problem: Reason.
        is_missing: Whether it is NULL although a value is required.
        table_id: Table of the row, if any.
        key: Id of the row.
        path: Path of the row, if any.
    """

    table: str
    column: str | None
    row: str
    problem: str
    is_missing: bool = False
    table_id: int | None = None
    key: int | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedRow:
    """Table, row id and lifetime of one inlined row."""

    table_id: int
    name: str
    row_id: int
    begin_snapshot: int
    end_snapshot: int | None


@dataclass(slots=True, kw_only=True)
class EveryRow:
    """The valid rows of the metadata tables, and the invalid cells of the others.

    Attributes:
        required: Columns that must not be NULL, by metadata table.
        checks_columns: Whether to check the columns of tables of inlined rows and deletes first, and to leave out tables that lack some.
            This takes a statement for each table on most databases; without it, one damaged table makes all of them unreadable.
        bad: Invalid cells found so far.
    """

    connection: Connection
    tables: CatalogTables
    required: Mapping[str, Sequence[str]]
    checks_columns: bool = False
    bad: list[BadCell] = field(default_factory=list)
    _known: dict[str, list[Row[Any]]] = field(default_factory=dict)

    @property
    def abilities(self) -> Abilities:
        """Return the abilities of the database."""
        return abilities_of(self.connection.dialect)

    def rows(self, name: str) -> list[Row[Any]]:
        """Return all valid rows of a metadata table; read once."""
        if name not in self._known:
            self._known[name] = list(self.stream(name))
        return self._known[name]

    def stream(self, name: str, order: Sequence[str] = ()) -> Iterator[Row[Any]]:
        """Yield all valid rows of a metadata table, without keeping them in memory.

        Args:
            name: The metadata table without prefix.
            order: Columns to sort by; default none.
        """
        table = self.tables[name]
        kinds = _kinds(table)
        required = set(self.required.get(name, ()))
        query = select(table).order_by(*(table.c[column] for column in order)).execution_options(yield_per=_ROWS_PER_FETCH)
        try:
            with self.connection.execute(query) as rows:
                for row in rows:
                    found = _bad_cell(name, row, kinds, required)
                    if found is None:
                        yield row
                    else:
                        self.bad.append(found)
        except DuckLakeError as error:
            # The driver fails to convert a cell, so no further row of the table can be read.
            self.bad.append(BadCell(table=name, column=None, row="", problem=error.message))

    def inlined_tables(self) -> InlinedTables:
        """Return the tables of inlined rows and deletes."""
        known = {row.table_id for row in self.rows("table")}
        found = inlined_tables(self.connection, self.tables, known)
        return self._readable(found) if self.checks_columns else found

    def _readable(self, found: InlinedTables) -> InlinedTables:
        """Return the tables that have all system columns; add the others to ``bad``."""
        owners = {name: (number, self.tables.inlined_data(name)) for number, name in found.data}
        owners |= {name: (number, self.tables.inlined_delete(number)) for number, name in found.deletes}
        columns = inspect(self.connection).get_multi_columns(schema=self.tables.schema, filter_names=list(owners))
        odd = set()
        for (_, name), there in columns.items():
            table_id, wanted = owners[name]
            missing = {column.name for column in wanted.c} - {column["name"] for column in there}
            if missing:
                odd.add(name)
                problem = f"it has no column {', '.join(sorted(missing))}"
                self.bad.append(BadCell(table=name, column=min(missing), row="", problem=problem, table_id=table_id))
        return replace(
            found,
            data=tuple(one for one in found.data if one[1] not in odd),
            deletes=tuple(one for one in found.deletes if one[1] not in odd),
        )

    def inlined_rows(self, there: InlinedTables) -> Iterator[InlinedRow]:
        """Yield every inlined row without its values; rows with invalid numbers are added to ``bad``."""

        def query(table_id: int, name: str) -> Select[Any]:
            source = self.tables.inlined_data(name)
            return select(
                literal(table_id).label("table_id"),
                literal(name).label("name"),
                *(source.c[name].label(name) for name in asdict(self.tables.inlined)),
            )

        for row in self._of(there.data, query):
            if _is_number(row.row_id) and _is_number(row.begin_snapshot) and (row.end_snapshot is None or _is_number(row.end_snapshot)):
                yield InlinedRow(**row._mapping)  # noqa: SLF001 - SQLAlchemy's documented name
            else:
                self._bad_inlined(row, "a row id or snapshot that is no number")

    def inlined_deletes(self, there: InlinedTables) -> Iterator[Row[Any]]:
        """Yield all inlined deletes as rows (table_id, name, file_id, row_id, begin_snapshot)."""

        def query(table_id: int, name: str) -> Select[Any]:
            source = self.tables.inlined_delete(table_id)
            return select(literal(table_id).label("table_id"), literal(name).label("name"), *source.c)

        for row in self._of(there.deletes, query):
            if all(map(_is_number, (row.file_id, row.row_id, row.begin_snapshot))):
                yield row
            else:
                self._bad_inlined(row, "a file, position or snapshot that is no number")

    def _of(self, sources: Sequence[tuple[int, str]], query: Callable[[int, str], Select[Any]]) -> Iterator[Row[Any]]:
        if sources:
            statement = all_of([query(*source) for source in sources]).execution_options(yield_per=_ROWS_PER_FETCH)
            with tables_that_may_go(), self.connection.execute(statement) as rows:
                yield from rows

    def _bad_inlined(self, row: Row[Any], problem: str) -> None:
        self.bad.append(BadCell(table=row.name, column="row_id", row=_shown(row), problem=problem, table_id=row.table_id))

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table with that name, including its prefix."""
        return inspect(self.connection).has_table(name, schema=self.tables.schema)


def _kinds(table: Any) -> dict[str, type]:
    """Return the Python type of each column. Other columns are checked when they are fetched."""
    numbers = {column.name: int for column in table.c if isinstance(column.type, BigInteger | CatalogBoolean)}
    return numbers | {column.name: str for column in table.c if isinstance(column.type, String)}


def _bad_cell(name: str, row: Row[Any], kinds: Mapping[str, type], required: set[str]) -> BadCell | None:
    cells = row._mapping  # noqa: SLF001 - SQLAlchemy's documented name
    for column, kind in kinds.items():
        if cells[column] is not None and not isinstance(cells[column], kind):
            return _cell_problem(
                name, row, column, f"{cells[column]!r} in {column}, where a {'number' if kind is int else 'text'} is expected"
            )
    for column in sorted(required):
        if cells[column] is None:
            return _cell_problem(name, row, column, f"no {column}", is_missing=True)
    return None


def _cell_problem(name: str, row: Row[Any], column: str, problem: str, *, is_missing: bool = False) -> BadCell:
    cells = row._mapping  # noqa: SLF001
    table_id, path = cells.get("table_id"), cells.get("path")
    return BadCell(
        table=name,
        column=column,
        row=_shown(row),
        problem=problem,
        is_missing=is_missing,
        table_id=table_id if isinstance(table_id, int) else None,
        key=row[0] if isinstance(row[0], int) else None,
        path=path if isinstance(path, str) else None,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _shown(row: Row[Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in list(row._mapping.items())[:3])  # noqa: SLF001


def statistics_of_files(connection: Connection, tables: CatalogTables, ids: Sequence[int]) -> dict[int, list[Row[Any]]]:
    """Return the valid rows of ``file_column_stats`` of some files, by data file id."""
    statistics = tables["file_column_stats"]
    kinds = _kinds(statistics)
    found: dict[int, list[Row[Any]]] = {}
    for row in connection.execute(select(statistics).where(statistics.c.data_file_id.in_(ids))):
        if _bad_cell("file_column_stats", row, kinds, {"data_file_id", "column_id"}) is None:
            found.setdefault(row.data_file_id, []).append(row)
    return found


def still_there(connection: Connection, tables: CatalogTables, name: str, ids: Sequence[int]) -> set[int]:
    """Return the ids that the catalog still has.

    Args:
        connection: An open transaction.
        tables: The metadata tables.
        name: ``data_file``, ``delete_file`` or ``snapshot``.
        ids: Ids to check.
    """
    files = tables[name]
    number = files.c[f"{name}_id"]
    found: set[int] = set()
    for start in range(0, len(ids), 500):
        found.update(connection.execute(select(number).where(number.in_(ids[start : start + 500]))).scalars())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedTables:
    """Tables of inlined rows and deletes in the database, each as (table id, name).

    Attributes:
        data: Registered and existing tables of inlined rows.
        deletes: Existing tables of inlined deletes of known tables.
        missing: Registered tables that do not exist.
        dead: Existing tables that nothing reads: unregistered ones with rows, and those of unknown tables. Not included are empty
            unregistered tables, which a flush leaves for sessions that know them, and on MySQL tables that a running commit may have
            created.
    """

    data: tuple[tuple[int, str], ...] = ()
    deletes: tuple[tuple[int, str], ...] = ()
    missing: tuple[tuple[int, str], ...] = ()
    dead: tuple[tuple[int, str], ...] = ()


def inlined_tables(connection: Connection, tables: CatalogTables, known: Iterable[int]) -> InlinedTables:
    """Return the tables of inlined rows and deletes, including missing and dead ones, in three or four statements.

    Args:
        connection: An open transaction.
        tables: The metadata tables.
        known: Ids of all tables of the catalog, including dropped ones.
    """
    counters = newest_counters(connection, tables)
    registered = tables["inlined_data_tables"]
    wanted = {(row.table_id, row.table_name) for row in connection.execute(select(registered.c.table_id, registered.c.table_name))}
    there = set(inspect(connection).get_table_names(schema=tables.schema))
    known_ids, registered_names = set(known), {name for _, name in wanted}
    of_rows = {(owner, name) for name in there if (owner := inlined_owner(name)) is not None}
    of_deletes = {(owner, name) for name in there if (owner := inlined_deletes_owner(name)) is not None}
    # An unregistered table of a known table is dead only if it has rows; one of an unknown table always is.
    ownerless = {one for one in of_rows | of_deletes if one[0] not in known_ids}
    unregistered = {one for one in of_rows if one[0] in known_ids and one[1] not in registered_names}
    making = in_the_making((name for _, name in ownerless | unregistered), counters)
    filled = names_with_rows(connection, tables, sorted(name for _, name in unregistered if name not in making))
    return InlinedTables(
        data=tuple(sorted(one for one in wanted & of_rows if one[0] in known_ids)),
        deletes=tuple(sorted(one for one in of_deletes if one[0] in known_ids)),
        missing=tuple(sorted(one for one in wanted if one[1] not in there)),
        dead=tuple(sorted(one for one in ownerless | unregistered if one[1] in filled or (one in ownerless and one[1] not in making))),
    )


def known_tables(connection: Connection, tables: CatalogTables) -> frozenset[int]:
    """Return the ids of all tables in the catalog, including those whose table row was lost but whose columns exist.

    The inlined rows of such a table may be the only copy of its data, so they must not be dropped.
    """
    both = union(*(select(tables[name].c.table_id) for name in ("table", "column"))).subquery()
    return frozenset(number for (number,) in complete_rows(connection, select(both.c.table_id), "ids of tables"))


def registered_names(connection: Connection, tables: CatalogTables) -> frozenset[str]:
    """Return the names of the registered tables of inlined rows.

    On MySQL a transaction sees rows as of its snapshot, but tables as they are. A table that :func:`inlined_tables` reports as missing may
    have been dropped by a concurrent expiry; a later transaction sees that it is no longer registered.
    """
    query = select(tables["inlined_data_tables"].c.table_name)
    return frozenset(name for (name,) in complete_rows(connection, query, "tables of inlined rows"))


def newest_counters(connection: Connection, tables: CatalogTables) -> RowMapping | None:
    """Return the schema version and the next catalog id of the newest snapshot.

    None if tables are visible only after COMMIT: only on MySQL can a running commit have visible tables.
    """
    if not abilities_of(connection.dialect).commits_at_ddl:
        return None
    snapshot = tables["snapshot"]
    counters = select(snapshot.c.schema_version, snapshot.c.next_catalog_id).order_by(snapshot.c.snapshot_id.desc()).limit(1)
    return connection.execute(counters).mappings().one_or_none()


def in_the_making(names: Iterable[str], counters: RowMapping | None) -> frozenset[str]:
    """Return the tables of inlined rows and deletes that running commits may have created when :func:`newest_counters` was read.

    Read the counters before the registered names. A commit that ends in between has registered its table and has higher counters.

    Args:
        names: Names of tables.
        counters: Result of :func:`newest_counters`.
    """
    return frozenset() if counters is None else frozenset(name for name in names if may_be_in_the_making(name, **counters))


def names_with_rows(connection: Connection, tables: CatalogTables, names: Sequence[str]) -> frozenset[str]:
    """Return the names of the tables of inlined rows that have any row."""
    if not names:
        return frozenset()
    queries = [
        select(literal(name).label("name")).where(select(literal(1)).select_from(tables.inlined_data(name)).exists()) for name in names
    ]
    with tables_that_may_go():
        return frozenset(connection.execute(all_of(queries)).scalars())


@contextmanager
def tables_that_may_go() -> Iterator[None]:
    """Convert the error about a missing table of inlined rows or deletes, which another client may drop during a read.

    Raises:
        CatalogUnavailableError: A table was dropped; a new read uses the present tables.
    """
    try:
        yield
    except DBAPIError as error:
        if not is_about_missing_table(error):
            raise
        message = "A table of inlined rows or deletes was dropped during this read. Read again"
        raise CatalogUnavailableError(message, failure="retry") from error
