"""Rows that the catalog itself holds and that differ between two snapshots, of all tables at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    Table,
    and_,
    cast,
    func,
    inspect,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    union_all,
)

from ducklake_core.catalog.changed_files import Definition, Edges
from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.database.tables import INLINED_SYSTEM_COLUMNS, inlined_delete_name
from ducklake_core.catalog.inlined.nested_text import parse_leaf
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.expressions.value_range import ValueRange
from ducklake_core.format.state import InlinedTable
from ducklake_core.format.types.data_types import BLOB, GEOMETRY, JSON, VARCHAR, VARIANT, DataType, Field

# SQLite allows 500 terms in a compound SELECT.
_TABLES_PER_STATEMENT = 200
_WITHOUT_TEXT = (VARIANT, GEOMETRY, BLOB)


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedGroup:
    """Inlined rows of one table that came and went together and are alike in the columns asked for."""

    table_id: int
    begin_snapshot: int
    end_snapshot: int | None
    row_count: int
    ranges: tuple[ValueRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedDeletes:
    """Rows of one data file that one snapshot deleted through the catalog."""

    table_id: int
    data_file_id: int
    begin_snapshot: int
    row_count: int


def registered_tables(reader: CatalogReader) -> dict[int, list[InlinedTable]]:
    """Tables of inlined rows by the table they belong to."""
    source = reader.catalog["inlined_data_tables"]
    query = select(source.c.table_id, source.c.table_name, source.c.schema_version).order_by(source.c.table_id, source.c.schema_version)
    found: dict[int, list[InlinedTable]] = {}
    for row in reader.connection.execute(query):
        found.setdefault(row.table_id, []).append(InlinedTable(name=row.table_name, schema_version=row.schema_version))
    return found


def changed_inlined_rows(
    reader: CatalogReader,
    edges: Edges,
    sources: Mapping[int, Sequence[InlinedTable]],
    columns: Mapping[int, Sequence[Field | None]],
    known: Mapping[int, Definition],
    moved: Collection[int],
) -> list[InlinedGroup]:
    """Inlined rows visible at one of the snapshots only; of ``moved`` tables, those visible at either.

    Args:
        sources: Tables of inlined rows to look into, by table id; one more statement for every 200 of them.
        columns: Columns whose values are wanted, by table id; None for a column that does not exist.
        known: Definitions of the same tables.
    """
    return _groups(reader, sources, columns, known, lambda table_id: _differs(edges, everything=table_id in moved))


def _groups(
    reader: CatalogReader,
    sources: Mapping[int, Sequence[InlinedTable]],
    columns: Mapping[int, Sequence[Field | None]],
    known: Mapping[int, Definition],
    condition_of: Callable[[int], Any],
) -> list[InlinedGroup]:
    cells = _Cells(reader, sources, columns, known)
    width = max((len(wanted) for wanted in columns.values()), default=0)
    queries = [cells.query(table_id, source, width, condition_of(table_id)) for table_id, tables in sources.items() for source in tables]
    found: list[InlinedGroup] = []
    for start in range(0, len(queries), _TABLES_PER_STATEMENT):
        rows = reader.connection.execute(union_all(*queries[start : start + _TABLES_PER_STATEMENT]))
        found += [cells.group(row) for row in rows]
    return found


def all_inlined_rows(
    reader: CatalogReader,
    sources: Mapping[int, Sequence[InlinedTable]],
    columns: Mapping[int, Sequence[Field | None]],
    known: Mapping[int, Definition],
) -> list[InlinedGroup]:
    """Every row that the catalog holds for any snapshot; arguments as :func:`changed_inlined_rows`."""
    return _groups(reader, sources, columns, known, lambda _table_id: lambda _source: true())


def _differs(edges: Edges, *, everything: bool) -> Any:
    """The condition on a table of inlined rows, by its columns begin and end."""

    def condition(source: Table) -> ColumnElement[bool]:
        begin, end = source.c.begin_snapshot, source.c.end_snapshot
        before = and_(begin <= edges.after, or_(end.is_(None), end > edges.after))
        now = and_(begin <= edges.until, or_(end.is_(None), end > edges.until))
        if everything:
            return or_(before, now)
        gone = and_(begin <= edges.after, end.between(edges.after + 1, edges.until))
        return or_(gone, and_(now, begin > edges.after))

    return condition


class _Cells:
    """Reads columns of tables of inlined rows as text, each in the type that the table has for it."""

    def __init__(
        self,
        reader: CatalogReader,
        sources: Mapping[int, Sequence[InlinedTable]],
        columns: Mapping[int, Sequence[Field | None]],
        known: Mapping[int, Definition],
    ) -> None:
        self._reader = reader
        self._abilities = abilities_of(reader.connection.dialect)
        self._columns = columns
        self._known = known
        self._folded = self._folded_names(sources) if self._abilities.folds_names else {}
        self._stored: dict[str, tuple[int, tuple[Field | None, ...]]] = {}

    def _folded_names(self, sources: Mapping[int, Sequence[InlinedTable]]) -> dict[str, list[str]]:
        """Column names as the database has them: DuckDB leaves plain names unquoted, so only their order can be trusted."""
        names = [source.name for tables in sources.values() for source in tables]
        if not any(field is not None and field.name != field.name.lower() for fields in self._columns.values() for field in fields):
            return {}
        found = inspect(self._reader.connection).get_multi_columns(schema=self._reader.catalog.schema, filter_names=names)
        return {name: [column["name"] for column in columns][INLINED_SYSTEM_COLUMNS:] for (_, name), columns in found.items()}

    def query(self, table_id: int, source: InlinedTable, width: int, condition: Any) -> Select[Any]:
        stored = self._stored_fields(table_id, source)
        self._stored[source.name] = (table_id, tuple(field for field, _ in stored))
        table = self._reader.catalog.inlined_data(source.name, [name for _, name in stored if name is not None])
        own = iter(list(table.c)[INLINED_SYSTEM_COLUMNS:])
        texts = [_as_text(next(own), field, self._abilities) if field is not None else cast(null(), String) for field, _ in stored]
        texts += [cast(null(), String)] * (width - len(texts))
        grouped = (table.c.begin_snapshot, table.c.end_snapshot, *(text for text in texts))
        labelled = [text.label(f"value_{place}") for place, text in enumerate(texts)]
        return (
            select(
                literal(source.name).label("source"),
                table.c.begin_snapshot.label("begin_snapshot"),
                table.c.end_snapshot.label("end_snapshot"),
                func.count().label("row_count"),
                *labelled,
            )
            .where(condition(table))
            .group_by(*grouped)
        )

    def _stored_fields(self, table_id: int, source: InlinedTable) -> list[tuple[Field | None, str | None]]:
        """The wanted columns as this table has them, and their names in it; None for one that it lacks or that cannot be told."""
        try:
            schema = self._known[table_id].versions.schema_at(source.schema_version)
        except DuckLakeError:
            return [(None, None) for _ in self._columns.get(table_id, ())]
        by_id = {column.id: (place, column) for place, column in enumerate(schema)}
        names = self._folded.get(source.name)
        found: list[tuple[Field | None, str | None]] = []
        for wanted in self._columns.get(table_id, ()):
            place, column = by_id.get(wanted.id, (0, None)) if wanted is not None else (0, None)
            if column is None or not column.is_leaf or column.type in _WITHOUT_TEXT or (names is not None and len(names) != len(by_id)):
                found.append((None, None))
            else:
                found.append((column, names[place] if names is not None else column.name))
        return found

    def group(self, row: Any) -> InlinedGroup:
        table_id, stored = self._stored[row.source]
        values = tuple(row)[4:]
        wanted = self._columns.get(table_id, ())
        return InlinedGroup(
            table_id=table_id,
            begin_snapshot=row.begin_snapshot,
            end_snapshot=row.end_snapshot,
            row_count=row.row_count,
            ranges=tuple(
                ValueRange() if old is None or new is None else self._range(text, old, new)
                for text, old, new in zip(values, stored, wanted, strict=False)
            ),
        )

    def _range(self, text: str | None, old: Field, new: Field) -> ValueRange:
        if text is None:
            return ValueRange(has_values=False)
        try:
            plain = bytes.fromhex(text).decode() if _is_hexadecimal(old.type, self._abilities) else text
            value = parse_leaf(plain, new.type)
        except (DuckLakeError, ValueError):
            return ValueRange()
        return ValueRange(low=value, high=value)


def _is_hexadecimal(data_type: DataType, abilities: Abilities) -> bool:
    return abilities.inlined_text_as_bytes and data_type in (VARCHAR, JSON)


def _as_text(stored: Any, column: Field, abilities: Abilities) -> Any:
    if _is_hexadecimal(column.type, abilities):
        return func.encode(stored, literal_column("'hex'"))
    return cast(stored, String)


def changed_inlined_deletes(reader: CatalogReader, edges: Edges, table_ids: Collection[int]) -> list[InlinedDeletes]:
    """Rows of data files that snapshots of the range deleted through the catalog: a statement for what there is, and one for all tables."""
    if not table_ids:
        return []
    existing = set(inspect(reader.connection).get_table_names(schema=reader.catalog.schema))
    present = [table_id for table_id in sorted(table_ids) if inlined_delete_name(table_id) in existing]
    found: list[InlinedDeletes] = []
    for start in range(0, len(present), _TABLES_PER_STATEMENT):
        queries = [_deletes_query(reader, edges, table_id) for table_id in present[start : start + _TABLES_PER_STATEMENT]]
        found += [
            InlinedDeletes(table_id=row.table_id, data_file_id=row.file_id, begin_snapshot=row.begin_snapshot, row_count=row.row_count)
            for row in reader.connection.execute(union_all(*queries))
        ]
    return found


def _deletes_query(reader: CatalogReader, edges: Edges, table_id: int) -> Select[Any]:
    source = reader.catalog.inlined_delete(table_id)
    return (
        select(literal(table_id).label("table_id"), source.c.file_id, source.c.begin_snapshot, func.count().label("row_count"))
        .where(source.c.begin_snapshot.between(edges.after + 1, edges.until))
        .group_by(source.c.file_id, source.c.begin_snapshot)
    )
