"""Convert catalog rows of data files, delete files and name mappings to values (specification: ducklake_data_file).

A plan may have a million files, so rows are streamed. One cursor reads the files, and one cursor per kind reads the rows that belong to
them; all are ordered by file id and advance together (a merge join)::

    data_file          1        2        3        4
    delete_file        1             3 3
    column statistics  1 1 1    2 2 2    3 3 3    4 4 4
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, CursorResult, Row, Select, Table, and_, select

from ducklake_core.catalog.database.versions import PARTIAL_FILE_INFO
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError, UnsupportedFeatureError
from ducklake_core.format.files import paths
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile, DeleteFile, EncryptionKey, parse_row_counts
from ducklake_core.format.files.name_mapping import NameMapping, NameMappingRow, build_mapping
from ducklake_core.format.state import TableState

_ROWS_PER_FETCH = 2000
_MAX_SHARED = 10_000
# DuckDB's default number of rows in a row group.
_ROW_GROUP_ROWS = 122_880
_CELLS = attrgetter(
    "data_file_id", "path", "record_count", "file_size_bytes", "row_id_start", "begin_snapshot", "end_snapshot", "partial_max"
)

BY_NAME = "map_by_name"
"""The only kind of mapping in the format."""


class StatementRunner:
    """Execute statements; with ``streaming`` through a server-side cursor, which is closed with the stack."""

    def __init__(self, connection: Connection, stack: ExitStack, *, streaming: bool) -> None:
        self._connection = connection
        self._stack = stack
        self._options = {"yield_per": _ROWS_PER_FETCH} if streaming else {}

    def __call__(self, query: Select[Any], parameters: Mapping[str, object]) -> CursorResult[Any]:
        """Return the rows of a statement, which are valid until the stack is closed."""
        return self._stack.enter_context(self._connection.execute(query, parameters, execution_options=self._options))


class _Grouped:
    """Rows ordered by file id, taken file by file."""

    def __init__(self, rows: CursorResult[Any]) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, None)

    def take(self, file_id: int) -> Sequence[Row[Any]]:
        following = self._next
        if following is None or following.data_file_id > file_id:
            return ()
        found: list[Row[Any]] = []
        while following is not None and following.data_file_id <= file_id:
            if following.data_file_id == file_id:
                found.append(following)
            following = next(self._rows, None)
        self._next = following
        return found


class SharedNumbers(dict[int | None, int | None]):
    """One object for equal numbers, such as row counts and snapshots, to save memory in plans with a million files."""

    def __missing__(self, number: int | None) -> int | None:
        if len(self) < _MAX_SHARED:
            self[number] = number
        return number


class Streams:
    """Rows that belong to files, one stream for each kind; kinds without rows have no stream."""

    def __init__(self, streams: dict[str, CursorResult[Any]]) -> None:
        self._streams = {name: _Grouped(rows) for name, rows in streams.items()}
        self.counts = SharedNumbers()

    def take(self, name: str, file_id: int) -> Sequence[Row[Any]]:
        """Return the rows of one kind that belong to a file. Calls must have ascending file ids."""
        stream = self._streams.get(name)
        return () if stream is None else stream.take(file_id)


class HeldRows:
    """Rows in memory with the interface of :class:`Streams`, in any order of files."""

    def __init__(self, rows: Mapping[str, Iterable[Row[Any]]]) -> None:
        self.counts = SharedNumbers()
        self._rows: dict[tuple[str, int], list[Row[Any]]] = {}
        for name, of_kind in rows.items():
            for row in of_kind:
                self._rows.setdefault((name, row.data_file_id), []).append(row)

    def take(self, name: str, file_id: int) -> Sequence[Row[Any]]:
        """Return the rows of one kind that belong to a file."""
        return self._rows.get((name, file_id), ())


def data_file_of(row: Row[Any], table: TableState, streams: Streams | HeldRows, encrypted: bool, *, plain: bool = False) -> DataFile:
    """Return the value of one row of ``ducklake_data_file`` with the rows that belong to it.

    Args:
        row: The row.
        table: The table.
        streams: Rows that belong to the file.
        encrypted: Whether the lake is encrypted.
        plain: Whether the row has none of the columns that only some versions have, which saves a lookup; default False.
    """
    file_id, path, counted, size, ids_from, begin, end, partial_max = _CELLS(row)
    deletes, inlined = streams.take("deletes", file_id), streams.take("inlined_deletes", file_id)
    values = streams.take("partition_values", file_id)
    inlined_deletes = tuple([found.row_id for found in inlined]) if inlined else ()
    partition_values = tuple([(found.partition_key_index, found.partition_value) for found in values]) if values else ()
    # SQLite does not enforce the types of columns.
    usable = isinstance(path, str) and path and isinstance(counted, int) and isinstance(begin, int)
    usable = usable and isinstance(size or 0, int) and isinstance(ids_from or 0, int)
    usable = usable and isinstance(end or 0, int) and isinstance(partial_max or 0, int)
    usable = usable and (not values or all(value is None or isinstance(value, str) for _, value in partition_values))
    if not usable or (inlined and not all(isinstance(position, int) for position in inlined_deletes)):
        raise CatalogCorruptError(
            f"data file {file_id} of table {table.qualified_name} has no usable row in the catalog: its path, a count, a "
            "snapshot, a partition value or a deleted position is missing or invalid",
            table=table.qualified_name,
            data_file_id=file_id,
        )
    is_relative = row.path_is_relative is not False
    cells: Any = {} if plain else row._mapping  # noqa: SLF001 - its documented name
    return DataFile(
        id=file_id,
        table_id=table.id,
        directory=paths.as_directory(table.path) if is_relative else "",
        relative_path=path,
        record_count=streams.counts[counted] or 0,
        file_size_bytes=size or 0,
        footer_size=streams.counts[row.footer_size],
        row_id_start=ids_from,
        begin_snapshot=streams.counts[begin] or 0,
        end_snapshot=end,
        partition_id=row.partition_id,
        partition_values=partition_values,
        mapping_id=row.mapping_id,
        partial_max=partial_max,
        encryption_key=_encryption_key(row, encrypted) if encrypted else None,
        delete_files=tuple([delete_file_of(found, table, encrypted) for found in deletes]) if deletes else (),
        inlined_deletes=inlined_deletes,
        row_counts=parse_row_counts(cells[PARTIAL_FILE_INFO]) if PARTIAL_FILE_INFO in cells else (),
        row_group_count=(_count(cells["row_group_count"]) or None) if "row_group_count" in cells else None,
    )


def has_plain_rows(data_file: Table) -> bool:
    """Return whether the metadata table has none of the columns that only some versions have."""
    return PARTIAL_FILE_INFO not in data_file.c and "row_group_count" not in data_file.c


def delete_file_of(row: Row[Any], table: TableState, encrypted: bool) -> DeleteFile:
    """Return the value of one row of ``ducklake_delete_file``."""
    if not (row.path and all(isinstance(number, int) for number in (row.begin_snapshot, row.partial_max or 0, row.delete_count or 0))):
        raise CatalogCorruptError(
            f"delete file {row.delete_file_id} of data file {row.data_file_id} of table {table.qualified_name} has no usable row in the "
            "catalog: its path, its count or its snapshot is missing or invalid",
            table=table.qualified_name,
            data_file_id=row.data_file_id,
            delete_file_id=row.delete_file_id,
        )
    return DeleteFile(
        id=row.delete_file_id,
        data_file_id=row.data_file_id,
        path=paths.join(table.path, row.path, row.path_is_relative is not False),
        format=(row.format or "parquet").lower(),
        delete_count=row.delete_count or 0,
        file_size_bytes=row.file_size_bytes or 0,
        footer_size=row.footer_size,
        begin_snapshot=row.begin_snapshot,
        partial_max=row.partial_max,
        committed_at=_optional(row, "committed_at") if row.partial_max is not None else None,
        encryption_key=_encryption_key(row, encrypted),
    )


def _encryption_key(row: Row[Any], encrypted: bool) -> EncryptionKey | None:
    # As in DuckDB: keys are ignored in a lake that is not encrypted, and an empty key means none.
    return EncryptionKey(row.encryption_key) if encrypted and row.encryption_key else None


def rows_of_one_row_group(table: TableState) -> int:
    """Return the number of rows below which a file of DuckDB has only one row group.

    A thread of DuckDB flushes its rows as a row group from half of the row group size on.
    """
    if "parquet_row_group_size_bytes" in table.options:
        return 0
    size = table.options.get("parquet_row_group_size", "")
    return min(int(size) if size.isdecimal() else _ROW_GROUP_ROWS, _ROW_GROUP_ROWS) // 2


def statistics_of(row: Row[Any], file: DataFile, one_row_group: int) -> ColumnStatistics:
    """Return the value of one row of ``ducklake_file_column_stats``.

    Args:
        row: The row.
        file: The data file that it belongs to.
        one_row_group: Number of rows below which a file has one row group, if the catalog has no count; see
            :func:`rows_of_one_row_group`.
    """
    # DuckDB writes the flag of the last row group only, so "no NaN" is reliable only for files with one row group.
    is_one = file.record_count < one_row_group if file.row_group_count is None else file.row_group_count == 1
    contains_nan = row.contains_nan if row.contains_nan or is_one else None
    return ColumnStatistics(
        column_id=row.column_id,
        column_size_bytes=row.column_size_bytes or 0,
        value_count=_count(row.value_count),
        null_count=_count(row.null_count),
        min_value=_text(row.min_value),
        max_value=_text(row.max_value),
        contains_nan=contains_nan,
        extra_stats=row.extra_stats,
        min_is_exact=_optional(row, "min_is_exact"),
        max_is_exact=_optional(row, "max_is_exact"),
    )


def _optional(row: Row[Any], name: str) -> Any:
    """Return the value of a column that some versions lack. A failed attribute lookup on a row is slow, so the mapping is checked."""
    cells = row._mapping  # noqa: SLF001 - its documented name
    return cells[name] if name in cells else None  # noqa: SIM401 - get() reads it, and catches the error


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    """Return a count of statistics, None when it is invalid."""
    return value if isinstance(value, int) and value >= 0 else None


def name_mappings(reader: CatalogReader, ids: Iterable[int], table: str) -> tuple[NameMapping, ...]:
    """Return the mappings with these ids, in one statement.

    Args:
        reader: An open read transaction.
        ids: ``mapping_id`` of data files.
        table: ``schema.table`` for messages.

    Raises:
        CatalogCorruptError: A mapping is missing.
        UnsupportedFeatureError: A mapping does not map by name.
    """
    wanted = set(ids)
    if not wanted:
        return ()
    mapping, name = reader.catalog["column_mapping"], reader.catalog["name_mapping"]
    query = (
        select(mapping.c.mapping_id, mapping.c.type, name.c.column_id, name.c.source_name, name.c.target_field_id)
        .add_columns(name.c.parent_column, name.c.is_partition)
        .select_from(mapping.outerjoin(name, and_(name.c.mapping_id == mapping.c.mapping_id)))
        # A range instead of a list: the ids of files are close together, and the statement stays short.
        .where(mapping.c.mapping_id.between(min(wanted), max(wanted)))
    )
    found: dict[int, list[NameMappingRow]] = {}
    for row in reader.connection.execute(query):
        if row.mapping_id not in wanted:
            continue
        if row.type != BY_NAME:
            message = f"table {table} has files whose columns are mapped by {row.type!r}; only {BY_NAME!r} is supported"
            raise UnsupportedFeatureError(message, table=table, mapping_id=row.mapping_id)
        rows = found.setdefault(row.mapping_id, [])
        if row.column_id is not None:
            rows.append(
                NameMappingRow(
                    number=row.column_id,
                    source_name=row.source_name,
                    field_id=row.target_field_id,
                    parent=row.parent_column,
                    in_path=bool(row.is_partition),
                )
            )
    missing = sorted(wanted - found.keys())
    if missing:
        raise CatalogCorruptError(f"files of table {table} name the column mappings {missing}, which do not exist", table=table)
    return tuple(build_mapping(number, rows) for number, rows in sorted(found.items()))
