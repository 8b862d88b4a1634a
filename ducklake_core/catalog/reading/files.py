"""The data files of a table at a snapshot, with everything that hides rows of them, pruned by a predicate.

At most eight statements whatever the number of files, each on one table of the catalog, each ordered by the id of the data file. They are
read side by side and merged, as in the last step of a merge sort, so that no stream is held in memory and the database joins nothing::

    totals            files_total; excluded by partition; ids      one row each, and proof that the snapshot is there; what is left
    data_file         7: a.parquet      9: b.parquet      ...      pruned in SQL, see bounds.py
    delete_file       7: [begin 3]      -                          what belongs to a file is taken when its row is there;
    partition_values  7: (0, '2024')    9: (0, '2025')             rows of files that were pruned are passed over
    statistics        7: (1, '1', '5')  9: (1, '6', '9')           only the columns that somebody asks for
    inlined_deletes   -                 9: 0, 4                    positions hidden by the catalog itself

``file_queries`` has the statements, ``file_rows`` the streams and the values; pruning by statistics has its last word here, in Python.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from sqlalchemy import Row, Table

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.reading.file_queries import MOST_IDS, FileQueries, Query
from ducklake_core.catalog.reading.file_rows import (
    StatementRunner,
    Streams,
    data_file_of,
    has_plain_rows,
    rows_of_one_row_group,
    statistics_of,
)
from ducklake_core.catalog.reading.many_tables import ManyTablesReader
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile
from ducklake_core.format.layout import transforms
from ducklake_core.format.state import TableState

# Below this many files a plain fetch is cheaper than the extra round trips of a cursor on the server.
_STREAM_FROM = 5000


FEW_FILES = 100
"""Up to so many live files are all read and pruned here: building and compiling conditions on their bounds would take longer."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The files that the database does not exclude.

    Attributes:
        total: Number of live files.
        by_partition: How many of them are excluded by partition values.
        ids: Ascending ids of those that are left.
        places: Where the database keeps their statistics, where that is known.
    """

    total: int
    by_partition: int
    ids: array[int]
    places: list[str] | None = None


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
        if isinstance(self._reader, ManyTablesReader) and self._predicate is None and not self._wanted:
            yield from ((file, {}) for file in self._reader.live_files(self._table))
            return
        queries, chosen = FileQueries(self._reader, self._table, None), None
        # A file has no cursor on a server to decide about, so that files are counted as they come.
        is_counted = self._predicate is not None or not self._abilities.is_file
        total = queries.total(FEW_FILES + 1 if self._predicate is not None and self._packs_rows else None) if is_counted else 0
        if not is_counted:
            queries.check_snapshot()
        by_partition = 0
        if self._predicate is not None and total > FEW_FILES:
            chosen = self._choose(queries, self._predicate, total)
            total, by_partition = chosen.total, chosen.by_partition
        self.counts = FileCounts(files_total=total, pruned_by_partition=by_partition)
        kept = 0
        for file, statistics in self._read(queries, chosen, total if is_counted else _STREAM_FROM):
            kept += 1
            if self._keeps(file, statistics):
                yield file, {column: found for column, found in statistics.items() if column in self._returned}
        if is_counted:
            self.counts.pruned_by_statistics += total - by_partition - kept
        else:
            self.counts.files_total = kept

    @property
    def _packs_rows(self) -> bool:
        """Whether rows have places; those of an earlier version's tables, read through queries, have none."""
        return self._abilities.packs_rows and isinstance(self._reader.catalog["file_column_stats"], Table)

    @property
    def _abilities(self) -> Abilities:
        return abilities_of(self._reader.connection.dialect)

    def _choose(self, queries: FileQueries, predicate: Predicate, total: int) -> Chosen:
        """The files that the database does not exclude, of a number of live ones that not every database has counted to its end."""
        pruned = FileQueries(self._reader, self._table, predicate)
        packed = pruned.sets(self._wanted) if self._packs_rows else None
        if packed is None:
            total = queries.total() if self._packs_rows else total
            return Chosen(total=total, by_partition=pruned.excluded_by_partition(), ids=pruned.kept())
        places = packed.places() if packed.has_places and len(packed.kept) <= MOST_IDS else None
        return Chosen(total=packed.total, by_partition=packed.by_partition, ids=packed.kept, places=places)

    def _read(self, queries: FileQueries, chosen: Chosen | None, most: int) -> Iterator[tuple[DataFile, dict[int, ColumnStatistics]]]:
        """The live files, or those of them that were chosen, with the statistics of the wanted columns.

        Args:
            queries: The statements.
            chosen: None for all files.
            most: There are no more files than that.
        """
        one_row_group, plain = rows_of_one_row_group(self._table), has_plain_rows(self._reader.catalog["data_file"])
        few = chosen is not None and len(chosen.ids) <= MOST_IDS
        with ExitStack() as stack:
            # A server reads with several processes what it answers as a whole, and alone what a cursor asks for.
            run = StatementRunner(self._reader.connection, stack, streaming=not few and most >= _STREAM_FROM)
            rows = iter(run(*(queries.files(list(chosen.ids)) if chosen is not None and few else queries.files())))
            if chosen is not None and not few:
                rows = _among(rows, chosen.ids)
            first = list(islice(rows, MOST_IDS + 1))
            belonging = self._belonging(queries, [row.data_file_id for row in first], None if chosen is None else chosen.places)
            streams = Streams({name: run(*query) for name, query in belonging})
            for row in chain(first, rows):
                file = data_file_of(row, self._table, streams, self._reader.info.encrypted, plain=plain)
                found = streams.take("statistics", file.id) if self._wanted else ()
                yield file, {one.column_id: statistics_of(one, file, one_row_group) for one in found} if found else {}

    def _belonging(self, queries: FileQueries, files: list[int], places: list[str] | None) -> Iterator[tuple[str, Query]]:
        """One statement for each kind of rows that may exist for these files, and for those that follow when they are many."""
        if not files:
            return
        table = self._table
        yield "deletes", queries.delete_files(files)
        if table.partition_specs:
            yield "partition_values", queries.partition_values(files)
        if self._wanted:
            yield "statistics", queries.statistics(files, self._wanted, places)
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


def _among(rows: Iterator[Row[Any]], chosen: array[int]) -> Iterator[Row[Any]]:
    """The rows of some files, both by ascending ids."""
    place, count = 0, len(chosen)
    for row in rows:
        while place < count and chosen[place] < row.data_file_id:
            place += 1
        if place == count:
            return
        if chosen[place] == row.data_file_id:
            yield row


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
    queries, ids = FileQueries(reader, table, None), [file.id for file in files]
    wanted = {"statistics": queries.statistics(ids, pruning.columns(predicate))}
    if table.partition_specs:
        wanted["partition_values"] = queries.partition_values(ids)
    streams = Streams({name: reader.connection.execute(*query) for name, query in wanted.items()})
    kept, one_row_group = set(), rows_of_one_row_group(table)
    for file in files:
        statistics = {row.column_id: statistics_of(row, file, one_row_group) for row in streams.take("statistics", file.id)}
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
