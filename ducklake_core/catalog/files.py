"""The data files of a table at a snapshot, with everything that hides rows of them, pruned by a predicate.

A handful of statements whatever the number of files, each on one table and ordered by file id; they are merged here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, CursorResult, Row, Select, Table, and_, case, func, literal, or_, select

from ducklake_core.catalog.abilities import abilities_of
from ducklake_core.catalog.bounds import Bounds, OutOfBounds, any_of, condition_of, excluded
from ducklake_core.catalog.earlier_tables import PARTIAL_FILE_INFO
from ducklake_core.catalog.reader import CatalogReader, expired_since
from ducklake_core.catalog.state import TableState
from ducklake_core.catalog.visibility import live_or_unknown
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format import paths, pruning, transforms
from ducklake_core.format.encryption_key import EncryptionKey
from ducklake_core.format.files import ColumnStatistics, DataFile, DeleteFile, parse_row_counts
from ducklake_core.format.predicates import Predicate

# Below this many files a plain fetch is cheaper than the extra round trips of a cursor on the server.
_STREAM_FROM = 5000
_ROWS_PER_FETCH = 2000
_MOST_IDS = 1000
# What the reference writes unless an option says otherwise.
_ROW_GROUP_ROWS = 122_880


@dataclass(slots=True, kw_only=True)
class FileCounts:
    """How many live files there are, and how many were left out by which means. Complete once the files were iterated."""

    files_total: int = 0
    pruned_by_partition: int = 0
    pruned_by_statistics: int = 0

    @property
    def files_kept(self) -> int:
        """Files that may hold matching rows."""
        return self.files_total - self.pruned_by_partition - self.pruned_by_statistics


class DataFiles:
    """Live files in the order of their ids, each with statistics of the wanted columns; may be iterated once per read transaction.

    Attributes:
        counts: What was left out, complete after the iteration.
    """

    def __init__(self, reader: CatalogReader, table: TableState, predicate: Predicate | None, statistics_for: frozenset[int]) -> None:
        self.counts = FileCounts()
        self._reader = reader
        self._table = table
        self._predicate = predicate
        self._wanted = statistics_for | (pruning.columns(predicate) if predicate is not None else frozenset())
        self._returned = statistics_for

    def __iter__(self) -> Iterator[tuple[DataFile, dict[int, ColumnStatistics]]]:
        queries = _Queries(self._reader, self._table, self._predicate)
        total, by_partition = queries.totals()
        self.counts = FileCounts(files_total=total, pruned_by_partition=by_partition)
        kept, one_row_group = 0, _rows_of_one_row_group(self._table)
        with ExitStack() as stack:
            run = _Runner(self._reader.connection, stack, streaming=total >= _STREAM_FROM)
            rows = iter(run(queries.files()))
            first = list(islice(rows, _MOST_IDS + 1))
            streams = Streams({name: run(query) for name, query in self._belonging(queries, [row.data_file_id for row in first])})
            for row in chain(first, rows):
                kept += 1
                file = data_file_of(row, self._table, streams, self._reader.info.encrypted)
                statistics = {found.column_id: _statistics(found, file, one_row_group) for found in streams.take("statistics", file.id)}
                if self._keeps(file, statistics):
                    yield file, {column: found for column, found in statistics.items() if column in self._returned}
        self.counts.pruned_by_statistics += total - by_partition - kept

    def _belonging(self, queries: _Queries, files: list[int]) -> Iterator[tuple[str, Select[Any]]]:
        """One statement for each kind of rows that may exist for these files, and for those that follow when they are many."""
        if not files:
            return
        table = self._table
        yield "deletes", queries.delete_files(files)
        if table.partition_specs:
            yield "partition_values", queries.partition_values(files)
        if self._wanted:
            yield "statistics", queries.statistics(files, self._wanted)
        if table.has_inlined_deletes:
            yield "inlined_deletes", queries.inlined_deletes(files)

    def _keeps(self, file: DataFile, statistics: dict[int, ColumnStatistics]) -> bool:
        if self._predicate is None:
            return True
        if not _partition_may_match(file, self._table, self._predicate, file.partition_values):
            self.counts.pruned_by_partition += 1
            return False
        if not pruning.may_match(self._predicate, statistics, file.record_count):
            self.counts.pruned_by_statistics += 1
            return False
        return True


def _partition_may_match(file: DataFile, table: TableState, predicate: Predicate, found: Sequence[tuple[int, str | None]]) -> bool:
    spec = table.partition_specs.get(file.partition_id) if file.partition_id is not None else None
    if spec is None or sorted(index for index, _ in found) != list(range(len(spec.fields))):
        return True
    values = tuple(value for _, value in sorted(found, key=lambda pair: pair[0]))
    return transforms.partition_may_match(spec, values, predicate, table.schema, file.begin_snapshot)


def may_match(reader: CatalogReader, table: TableState, predicate: Predicate, files: Sequence[DataFile]) -> frozenset[int]:
    """Ids of those files (given by ascending ids, live or not) that may hold a row satisfying a predicate bound to ``table.schema``."""
    if not files:
        return frozenset()
    queries, ids = _Queries(reader, table, None), [file.id for file in files]
    wanted = {"statistics": queries.statistics(ids, pruning.columns(predicate))}
    if table.partition_specs:
        wanted["partition_values"] = queries.partition_values(ids)
    streams = Streams({name: reader.connection.execute(query) for name, query in wanted.items()})
    kept, one_row_group = set(), _rows_of_one_row_group(table)
    for file in files:
        statistics = {row.column_id: _statistics(row, file, one_row_group) for row in streams.take("statistics", file.id)}
        values = [(row.partition_key_index, row.partition_value) for row in streams.take("partition_values", file.id)]
        if _partition_may_match(file, table, predicate, values) and pruning.may_match(predicate, statistics, file.record_count):
            kept.add(file.id)
    return frozenset(kept)


def data_files(
    reader: CatalogReader, table: TableState, predicate: Predicate | None = None, statistics_for: frozenset[int] = frozenset()
) -> DataFiles:
    """The live files of a table at ``table.snapshot_id`` that may hold rows satisfying a predicate.

    Iterating raises NotFoundError when that snapshot was expired.

    Args:
        predicate: Bound to ``table.schema``; files that surely hold no matching row are left out. None for all files.
        statistics_for: Ids of leaf columns whose statistics are returned with each file; files without a row for a
            column have no entry for it.
    """
    return DataFiles(reader, table, predicate, statistics_for)


class _Queries:
    """The statements, all on the same set of files."""

    def __init__(self, reader: CatalogReader, table: TableState, predicate: Predicate | None) -> None:
        self._tables = reader.catalog
        self._reader = reader
        self._table = table
        file = self._tables["data_file"]
        abilities = abilities_of(reader.connection.dialect)
        self._any_cell = abilities.untyped_cells
        self._live = and_(file.c.table_id == table.id, live_or_unknown(file, table.snapshot_id, any_cell=self._any_cell))
        exclusion = excluded(predicate, abilities) if predicate is not None else None
        self._by_partition = condition_of(exclusion, self._where_partition)
        self._by_statistics = condition_of(exclusion, self._where_statistics)

    def _kept(self) -> ColumnElement[bool]:
        """Conditions are three-valued: only what is surely excluded goes."""
        exclusions = [part for part in (self._by_partition, self._by_statistics) if part is not None]
        return and_(self._live, *(func.coalesce(part, literal(False)).is_(False) for part in exclusions))

    def totals(self) -> tuple[int, int]:
        """Number of live files, and how many of them their partition values exclude.

        Raises:
            NotFoundError: The snapshot was expired.
        """
        file, snapshot = self._tables["data_file"], self._tables["snapshot"]
        exists = select(func.count()).select_from(snapshot).where(snapshot.c.snapshot_id == self._table.snapshot_id).scalar_subquery()
        partition = func.sum(case((self._by_partition, 1), else_=0)) if self._by_partition is not None else literal(0)
        query = select(func.count().label("total"), partition.label("partition"), exists.label("exists")).select_from(file)
        row = self._reader.connection.execute(query.where(self._live)).one()
        if not row.exists:
            # What only expired snapshots had has left the catalog: what is still live there would look like all of it.
            raise expired_since(self._table)
        return row.total, int(row.partition or 0)

    def files(self) -> Select[Any]:
        file = self._tables["data_file"]
        return select(file).where(self._kept()).order_by(file.c.data_file_id)

    def delete_files(self, files: list[int]) -> Select[Any]:
        deletes = self._tables["delete_file"]
        query = select(deletes).where(live_or_unknown(deletes, self._table.snapshot_id, any_cell=self._any_cell))
        return self._of(query.order_by(deletes.c.data_file_id, deletes.c.delete_file_id), deletes, files)

    def partition_values(self, files: list[int]) -> Select[Any]:
        value = self._tables["file_partition_value"]
        return self._of(select(value).order_by(value.c.data_file_id, value.c.partition_key_index), value, files)

    def statistics(self, files: list[int], columns: frozenset[int]) -> Select[Any]:
        stats = self._tables["file_column_stats"]
        query = select(stats).where(stats.c.column_id.in_(sorted(columns))).order_by(stats.c.data_file_id)
        return self._of(query, stats, files)

    def inlined_deletes(self, files: list[int]) -> Select[Any]:
        source = self._tables.inlined_delete(self._table.id)
        visible = select(source.c.file_id.label("data_file_id"), source.c.row_id).where(
            source.c.begin_snapshot <= self._table.snapshot_id, among(source.c.file_id, files)
        )
        return visible.distinct().order_by(source.c.file_id, source.c.row_id)

    def _of(self, query: Select[Any], source: Table, files: list[int]) -> Select[Any]:
        return query.where(source.c.table_id == self._table.id, among(source.c.data_file_id, files))

    def _where_statistics(self, bounds: Sequence[OutOfBounds]) -> ColumnElement[bool]:
        # An alias: the enclosing statement may select from the same table, which must not be mistaken for this one.
        stats, file = self._tables["file_column_stats"].alias(), self._tables["data_file"]
        found = Bounds(
            low=stats.c.min_value,
            high=stats.c.max_value,
            null_count=stats.c.null_count,
            value_count=stats.c.value_count,
            record_count=select(file.c.record_count).where(file.c.data_file_id == stats.c.data_file_id).correlate(stats).scalar_subquery(),
        )
        columns: dict[int, list[OutOfBounds]] = {}
        for one in bounds:
            columns.setdefault(one.column.column_id, []).append(one)
        outside = or_(*(and_(stats.c.column_id == column, any_of(conditions, found)) for column, conditions in columns.items()))
        return file.c.data_file_id.in_(select(stats.c.data_file_id).where(stats.c.table_id == self._table.id, outside))

    def _where_partition(self, bounds: Sequence[OutOfBounds]) -> ColumnElement[bool] | None:
        """Identity keys are bounds themselves: every row of the file has that value."""
        value, file = self._tables["file_partition_value"].alias(), self._tables["data_file"]
        found = Bounds(low=value.c.partition_value, high=value.c.partition_value)
        conditions = [
            and_(
                file.c.partition_id == spec.id,
                file.c.data_file_id.in_(
                    select(value.c.data_file_id).where(
                        value.c.table_id == self._table.id, value.c.partition_key_index == index, one.condition(found)
                    )
                ),
            )
            for one in bounds
            if len(one.column.path) == 1
            for spec in self._table.partition_specs.values()
            for index, field in enumerate(spec.fields)
            if field.column_id == one.column.column_id and field.transform == "identity"
        ]
        return or_(*conditions) if conditions else None


class _Runner:
    """Runs statements; many rows come through a cursor on the server, which is closed with the stack."""

    def __init__(self, connection: Connection, stack: ExitStack, *, streaming: bool) -> None:
        self._connection = connection
        self._stack = stack
        self._options = {"yield_per": _ROWS_PER_FETCH} if streaming else {}

    def __call__(self, query: Select[Any]) -> CursorResult[Any]:
        return self._stack.enter_context(self._connection.execute(query, execution_options=self._options))


class _Grouped:
    """Rows ordered by file id, taken file by file."""

    def __init__(self, rows: CursorResult[Any]) -> None:
        self._rows = iter(rows)
        self._next = next(self._rows, None)

    def take(self, file_id: int) -> Iterator[Row[Any]]:
        while self._next is not None and self._next.data_file_id <= file_id:
            if self._next.data_file_id == file_id:
                yield self._next
            self._next = next(self._rows, None)


class Streams:
    """What belongs to the files, by kind; a kind that cannot have rows has no stream."""

    def __init__(self, streams: dict[str, CursorResult[Any]]) -> None:
        self._streams = {name: _Grouped(rows) for name, rows in streams.items()}

    def take(self, name: str, file_id: int) -> Iterator[Row[Any]]:
        """The rows of one kind that belong to a file; files must be asked for by ascending ids."""
        stream = self._streams.get(name)
        return iter(()) if stream is None else stream.take(file_id)


def among(column: ColumnElement[int], files: list[int]) -> ColumnElement[bool]:
    """The row belongs to one of the files, or, when they are many, at least to none before the first.

    Never a join: catalogs have no indexes, and without fresh table statistics PostgreSQL takes tables for tiny and joins
    them row by row, which takes minutes where a scan takes milliseconds.
    """
    return column.in_(files) if len(files) <= _MOST_IDS else column >= files[0]


def data_file_of(row: Row[Any], table: TableState, streams: Streams, encrypted: bool) -> DataFile:
    """The value of one row of ``ducklake_data_file``, with what the streams hold for it."""
    is_relative = row.path_is_relative is not False
    inlined_deletes = tuple(found.row_id for found in streams.take("inlined_deletes", row.data_file_id))
    partition_values = tuple((v.partition_key_index, v.partition_value) for v in streams.take("partition_values", row.data_file_id))
    are_texts = all(value is None or isinstance(value, str) for _, value in partition_values)
    if not (_is_usable(row) and are_texts and all(isinstance(position, int) for position in inlined_deletes)):
        raise CatalogCorruptError(
            f"data file {row.data_file_id} of table {table.qualified_name} has no usable row in the catalog: its path, a count, a "
            "snapshot, a partition value or a deleted position is missing or no such thing",
            table=table.qualified_name,
            data_file_id=row.data_file_id,
        )
    return DataFile(
        id=row.data_file_id,
        table_id=row.table_id,
        path=paths.join(table.path, row.path, is_relative),
        relative_path=row.path,
        path_is_relative=is_relative,
        record_count=row.record_count,
        file_size_bytes=row.file_size_bytes or 0,
        footer_size=row.footer_size,
        row_id_start=row.row_id_start,
        begin_snapshot=row.begin_snapshot,
        end_snapshot=row.end_snapshot,
        partition_id=row.partition_id,
        partition_values=partition_values,
        mapping_id=row.mapping_id,
        partial_max=row.partial_max,
        encryption_key=_encryption_key(row, encrypted),
        delete_files=tuple(delete_file_of(found, table, encrypted) for found in streams.take("deletes", row.data_file_id)),
        inlined_deletes=inlined_deletes,
        row_counts=parse_row_counts(getattr(row, PARTIAL_FILE_INFO, None)),
    )


def delete_file_of(row: Row[Any], table: TableState, encrypted: bool) -> DeleteFile:
    """The value of one row of ``ducklake_delete_file``."""
    if not (row.path and all(isinstance(number, int) for number in (row.begin_snapshot, row.partial_max or 0, row.delete_count or 0))):
        raise CatalogCorruptError(
            f"delete file {row.delete_file_id} of data file {row.data_file_id} of table {table.qualified_name} has no usable row in the "
            "catalog: its path, its count or its snapshot is missing or no such thing",
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
        encryption_key=_encryption_key(row, encrypted),
    )


def _is_usable(row: Row[Any]) -> bool:
    """Cells of SQLite may hold anything, whatever the column's type is."""
    optional = (row.end_snapshot, row.file_size_bytes, row.row_id_start, row.partial_max)
    numbers = (row.record_count, row.begin_snapshot, *(number or 0 for number in optional))
    return isinstance(row.path, str) and bool(row.path) and all(isinstance(number, int) for number in numbers)


def _encryption_key(row: Row[Any], encrypted: bool) -> EncryptionKey | None:
    # As the reference does: a key in a lake that is not encrypted means nothing, an empty one is none.
    return EncryptionKey(row.encryption_key) if encrypted and row.encryption_key else None


def _rows_of_one_row_group(table: TableState) -> int:
    """Rows that a file of the reference has in one row group: a thread's own rows become one from half of its size on."""
    if "parquet_row_group_size_bytes" in table.options:
        return 0
    size = table.options.get("parquet_row_group_size", "")
    return min(int(size) if size.isdecimal() else _ROW_GROUP_ROWS, _ROW_GROUP_ROWS) // 2


def _statistics(row: Row[Any], file: DataFile, one_row_group: int) -> ColumnStatistics:
    # The reference says that there is no NaN when there is none in the file's last row group.
    contains_nan = row.contains_nan if row.contains_nan or file.record_count < one_row_group else None
    return ColumnStatistics(
        column_id=row.column_id,
        column_size_bytes=row.column_size_bytes or 0,
        value_count=_count(row.value_count),
        null_count=_count(row.null_count),
        min_value=_text(row.min_value),
        max_value=_text(row.max_value),
        contains_nan=contains_nan,
        extra_stats=row.extra_stats,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    """A count of statistics, None when it is none."""
    return value if isinstance(value, int) and value >= 0 else None
