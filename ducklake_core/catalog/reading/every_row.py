"""Every row of the catalog, for who checks a lake: one statement a metadata table, and two for what tables hold in the catalog itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, Select, String, inspect, literal, select

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.column_types import CatalogBoolean
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.inlined_tables import InlinedTables, inlined_tables, tables_that_may_go
from ducklake_core.catalog.reading.unions import all_of
from ducklake_core.errors import DuckLakeError

_ROWS_PER_FETCH = 2000
STATISTICS = ("file_column_stats", "file_variant_stats")
"""Tables with a row for each file and column: too many to hold them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCell:
    """A cell that no reader can do with.

    Attributes:
        table: Metadata table without its prefix.
        column: Its column, None when the rows cannot be read at all.
        row: The row's first cells, for people.
        says: Why.
        is_missing: Whether it is NULL where a value must be.
        table_id: The table it is about, where the row has one; ``key`` is the row's own id, and ``path`` its path.
    """

    table: str
    column: str | None
    row: str
    says: str
    is_missing: bool = False
    table_id: int | None = None
    key: int | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedRow:
    """Where one inlined row is, and when it is visible."""

    table_id: int
    name: str
    row_id: int
    begin_snapshot: int
    end_snapshot: int | None


@dataclass(slots=True, kw_only=True)
class EveryRow:
    """Rows of the metadata tables whose cells can be used, and what is wrong with the others.

    Attributes:
        looks_at_columns: Whether to look at the columns of tables of inlined rows and deletes first, and to leave out those that lack some:
            a statement for each of them on most databases, without which such a table makes all of them unreadable.
    """

    connection: Connection
    tables: CatalogTables
    required: Mapping[str, Sequence[str]]
    looks_at_columns: bool = False
    bad: list[BadCell] = field(default_factory=list)
    _known: dict[str, list[Row[Any]]] = field(default_factory=dict)

    @property
    def abilities(self) -> Abilities:
        """Those of the database."""
        return abilities_of(self.connection.dialect)

    def rows(self, name: str) -> list[Row[Any]]:
        """All usable rows of a metadata table."""
        if name not in self._known:
            self._known[name] = list(self.stream(name))
        return self._known[name]

    def stream(self, name: str, order: Sequence[str] = ()) -> Iterator[Row[Any]]:
        """Likewise, not held in memory."""
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
            # A cell that cannot even be fetched: of no row of the table can be said what it is.
            self.bad.append(BadCell(table=name, column=None, row="", says=error.message))

    def inlined_tables(self) -> InlinedTables:
        """The tables of inlined rows and deletes."""
        known = {row.table_id for row in self.rows("table")}
        found = inlined_tables(self.connection, self.tables, known)
        return self._readable(found) if self.looks_at_columns else found

    def _readable(self, found: InlinedTables) -> InlinedTables:
        """Those that have the columns that all have; the others go to ``bad``."""
        owners = {name: (number, self.tables.inlined_data(name)) for number, name in found.data}
        owners |= {name: (number, self.tables.inlined_delete(number)) for number, name in found.deletes}
        columns = inspect(self.connection).get_multi_columns(schema=self.tables.schema, filter_names=list(owners))
        odd = set()
        for (_, name), there in columns.items():
            table_id, wanted = owners[name]
            missing = {column.name for column in wanted.c} - {column["name"] for column in there}
            if missing:
                odd.add(name)
                says = f"it has no column {', '.join(sorted(missing))}"
                self.bad.append(BadCell(table=name, column=min(missing), row="", says=says, table_id=table_id))
        return replace(
            found,
            data=tuple(one for one in found.data if one[1] not in odd),
            deletes=tuple(one for one in found.deletes if one[1] not in odd),
        )

    def inlined_rows(self, there: InlinedTables) -> Iterator[InlinedRow]:
        """Every inlined row without its values; those without usable numbers go to ``bad``."""

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
        """Rows (table_id, name, file_id, row_id, begin_snapshot) of all deletes that the catalog holds."""

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

    def _bad_inlined(self, row: Row[Any], says: str) -> None:
        self.bad.append(BadCell(table=row.name, column="row_id", row=_shown(row), says=says, table_id=row.table_id))

    def has_table(self, name: str) -> bool:
        """Whether the database has a table of that name, prefix included."""
        return inspect(self.connection).has_table(name, schema=self.tables.schema)


def _kinds(table: Any) -> dict[str, type]:
    """What the cells of each column are in Python; others are checked when they are fetched."""
    numbers = {column.name: int for column in table.c if isinstance(column.type, BigInteger | CatalogBoolean)}
    return numbers | {column.name: str for column in table.c if isinstance(column.type, String)}


def _bad_cell(name: str, row: Row[Any], kinds: Mapping[str, type], required: set[str]) -> BadCell | None:
    cells = row._mapping  # noqa: SLF001 - SQLAlchemy's documented name
    for column, kind in kinds.items():
        if cells[column] is not None and not isinstance(cells[column], kind):
            return _told(name, row, column, f"{cells[column]!r} in {column}, where a {'number' if kind is int else 'text'} is expected")
    for column in sorted(required):
        if cells[column] is None:
            return _told(name, row, column, f"no {column}", is_missing=True)
    return None


def _told(name: str, row: Row[Any], column: str, says: str, *, is_missing: bool = False) -> BadCell:
    cells = row._mapping  # noqa: SLF001
    table_id, path = cells.get("table_id"), cells.get("path")
    return BadCell(
        table=name,
        column=column,
        row=_shown(row),
        says=says,
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
    """Usable rows of ``file_column_stats`` by data file, for some files."""
    statistics = tables["file_column_stats"]
    kinds = _kinds(statistics)
    found: dict[int, list[Row[Any]]] = {}
    for row in connection.execute(select(statistics).where(statistics.c.data_file_id.in_(ids))):
        if _bad_cell("file_column_stats", row, kinds, {"data_file_id", "column_id"}) is None:
            found.setdefault(row.data_file_id, []).append(row)
    return found


def still_there(connection: Connection, tables: CatalogTables, name: str, ids: Sequence[int]) -> set[int]:
    """Those of some ids of data files, of delete files or of snapshots that the catalog still has."""
    files = tables[name]
    number = files.c[f"{name}_id"]
    found: set[int] = set()
    for start in range(0, len(ids), 500):
        found.update(connection.execute(select(number).where(number.in_(ids[start : start + 500]))).scalars())
    return found
