"""What the catalog knows of the rows of several tables at every snapshot, in a fixed number of statements; no file is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ducklake_core.catalog import changed_files, changed_inlined
from ducklake_core.catalog.changed_files import Definition, Edges
from ducklake_core.catalog.changed_inlined import InlinedGroup
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.names import folded, join_name, split_name
from ducklake_core.planning.file_ranges import FileRanges
from ducklake_core.results import LakeStatistics, StoredDeletes, StoredRows, TableStatistics


def read_statistics(reader: CatalogReader, tables: Mapping[str, Sequence[str]]) -> LakeStatistics:
    """See :meth:`ducklake_core.lake.DuckLake.statistics`."""
    now = reader.latest_snapshot().id
    names = _live_names(reader, now)
    asked = {name: tuple(map(folded, split_name(name))) for name in tables}
    ids = {name: names[key] for name, key in asked.items() if key in names}
    known = changed_files.definitions(reader, set(ids.values()))
    wanted = _wanted_columns(ids, tables, known, now)
    stored = _StoredRows(reader, now, known, {number: tuple(columns.values()) for number, columns in wanted.items()})
    return LakeStatistics(
        snapshot_id=now,
        tables=tuple(_statistics(name, number, tables[name], known[number], wanted[number], stored, now) for name, number in ids.items()),
    )


def _live_names(reader: CatalogReader, now: int) -> dict[tuple[str, ...], int]:
    named = changed_files.named_tables(reader, now, now)
    return {(folded(one.schema_name), folded(one.name)): one.table_id for one in named if one.live_at(now)}


def _wanted_columns(
    ids: Mapping[str, int], tables: Mapping[str, Sequence[str]], known: Mapping[int, Definition], now: int
) -> dict[int, dict[str, Field | None]]:
    """Columns by folded name and table id; two spellings of a table are asked for together."""
    wanted: dict[int, dict[str, Field | None]] = {}
    for name, number in ids.items():
        schema = known[number].schema_at(now)
        wanted.setdefault(number, {}).update({folded(column): schema.find(column) for column in tables[name]})
    return wanted


def _statistics(  # noqa: PLR0917 - one value
    name: str,
    number: int,
    columns: Sequence[str],
    known: Definition,
    wanted: Mapping[str, Field | None],
    stored: _StoredRows,
    now: int,
) -> TableStatistics:
    places = [list(wanted).index(folded(column)) for column in columns]
    found = [wanted[folded(column)] for column in columns]
    return TableStatistics(
        name=join_name(*split_name(name)),
        table_id=number,
        schema=known.schema_at(now),
        column_names=tuple(field.name if field is not None else None for field in found),
        rows=tuple(stored.of(number, places)),
    )


class _StoredRows:
    """Reads files, what hides rows of them, and rows in the catalog, for all tables at once."""

    def __init__(
        self, reader: CatalogReader, now: int, known: Mapping[int, Definition], columns: Mapping[int, Sequence[Field | None]]
    ) -> None:
        ids = set(known)
        everything = Edges(after=-1, until=now, next_file_id=0)
        self._files = _by_table(changed_files.all_data_files(reader, ids) if ids else [], ids)
        rows = [row for files in self._files.values() for row in files]
        self._ranges = FileRanges(reader, rows, known, columns, with_floats=True)
        self._deletes: dict[int, list[StoredDeletes]] = {}
        for row in changed_files.all_delete_files(reader, ids) if ids else []:
            self._add_deletes(row.data_file_id, row.begin_snapshot, row.delete_count, row.end_snapshot, row.partial_max)
        for hidden in changed_inlined.changed_inlined_deletes(reader, everything, ids):
            self._add_deletes(hidden.data_file_id, hidden.begin_snapshot, hidden.row_count)
        registered = changed_inlined.registered_tables(reader)
        sources = {number: registered[number] for number in sorted(ids) if number in registered}
        self._groups: dict[int, list[InlinedGroup]] = {}
        for group in changed_inlined.all_inlined_rows(reader, sources, columns, known):
            self._groups.setdefault(group.table_id, []).append(group)

    def _add_deletes(self, data_file_id: int, begin: int, count: int, end: int | None = None, partial_max: int | None = None) -> None:
        complete = begin if partial_max is None else max(begin, partial_max)
        found = StoredDeletes(begin_snapshot=begin, end_snapshot=end, complete_from=complete, row_count=count)
        self._deletes.setdefault(data_file_id, []).append(found)

    def of(self, table_id: int, places: Sequence[int]) -> Iterator[StoredRows]:
        """Rows of one table, with the columns in these places among those wanted."""
        for row in self._files.get(table_id, ()):
            ranges = self._ranges.of(table_id, row.data_file_id)
            nulls = self._ranges.null_counts(table_id, row.data_file_id)
            yield StoredRows(
                begin_snapshot=row.begin_snapshot,
                end_snapshot=row.end_snapshot,
                complete_from=row.begin_snapshot if row.partial_max is None else max(row.begin_snapshot, row.partial_max),
                row_count=row.record_count,
                file_size_bytes=row.file_size_bytes,
                deletes=tuple(self._deletes.get(row.data_file_id, ())),
                ranges=tuple(ranges[place] for place in places),
                null_counts=tuple(nulls[place] for place in places),
                data_file_id=row.data_file_id,
            )
        for group in self._groups.get(table_id, ()):
            yield StoredRows(
                begin_snapshot=group.begin_snapshot,
                end_snapshot=group.end_snapshot,
                complete_from=group.begin_snapshot,
                row_count=group.row_count,
                ranges=tuple(group.ranges[place] for place in places),
                null_counts=tuple(_nulls(group, place) for place in places),
            )


def _by_table(rows: Sequence[Any], ids: set[int]) -> dict[int, list[Any]]:
    """Rows of these tables; of very many tables the statement gave more than was asked for."""
    found: dict[int, list[Any]] = {}
    for row in rows:
        if row.table_id in ids:
            found.setdefault(row.table_id, []).append(row)
    return found


def _nulls(group: InlinedGroup, place: int) -> int | None:
    """Rows of a group have one value: NULL, something, or something that the catalog cannot tell."""
    found = group.ranges[place]
    if not found.has_values:
        return group.row_count
    return None if found.low is None else 0
