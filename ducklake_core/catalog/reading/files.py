"""Read the live data files of a table at a snapshot, with their deletes, pruned by a predicate.

Pruning has two stages, and the number of live files decides whether the first is worth its statements::

    no predicate, or up to 100 files    read all files with statistics -------------------------> exact check in Python
    more files                          the database excludes files by partition values and
                                        bounds that it compares safely --> read the rest -------> exact check in Python

    PostgreSQL   one statement returns the ids of live files and of excluded ones as packed binaries (PackedSets)
    others       the conditions are part of the statement that reads the ids

Up to 1,000 remaining files are read by their ids. More are read as a stream of all live files, merged with the ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    FromClause,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    case,
    except_,
    func,
    literal,
    or_,
    select,
    true,
)

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.reading.bulk_reader import ManyTablesReader
from ducklake_core.catalog.reading.file_rows import (
    StatementRunner,
    Streams,
    data_file_of,
    has_plain_rows,
    rows_of_one_row_group,
    statistics_of,
)
from ducklake_core.catalog.reading.pruning import (
    WORK_MEMORY,
    Bounds,
    Exclusion,
    OutOfBounds,
    PackedSets,
    Positions,
    any_of,
    condition_of,
    excluded,
    groups_of,
    is_at,
    limited,
    packed_columns,
    packed_files,
    packed_rows,
)
from ducklake_core.catalog.reading.reader import CatalogReader, check_same_snapshot, expired_since
from ducklake_core.catalog.reading.visibility import committed_at, live_or_unknown
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile
from ducklake_core.format.layout import transforms
from ducklake_core.format.state import TableState

MAX_IDS = 1000
"""Maximum number of files that a statement names; for more, it reads all rows from the first file on."""
Query: TypeAlias = tuple[Select[Any], Mapping[str, object]]
"""A statement and its parameters."""

# Below this many files a plain fetch is cheaper than the extra round trips of a cursor on the server.
_STREAM_FROM = 5000
FEW_FILES = 100
"""Maximum number of live files that are all read and pruned in Python. Compiling conditions on bounds would take longer."""


@dataclass(slots=True, kw_only=True)
class FileCounts:
    """Number of live files, and of files excluded by each stage. Complete after the iteration."""

    files_total: int = 0
    pruned_by_partition: int = 0
    pruned_by_statistics: int = 0

    @property
    def files_kept(self) -> int:
        """Return the number of files that may contain matching rows."""
        return self.files_total - self.pruned_by_partition - self.pruned_by_statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The files that the database does not exclude.

    Attributes:
        total: Number of live files.
        by_partition: Number of files excluded by partition values.
        ids: Ids of the remaining files, ascending.
        positions: Physical positions (ctid) of their statistics rows, if known; else None.
    """

    total: int
    by_partition: int
    ids: array[int]
    positions: list[str] | None = None


class DataFiles:
    """Live files by id, each with statistics of the requested columns. Iterate once per read transaction.

    Attributes:
        counts: Number of excluded files, complete after the iteration.
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
        # The count decides about a server-side cursor, which catalog files do not have: they are counted during the iteration.
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
        """Return whether rows have physical positions. Subqueries for tables of earlier versions have none."""
        return self._abilities.packs_rows and isinstance(self._reader.catalog["file_column_stats"], Table)

    @property
    def _abilities(self) -> Abilities:
        return abilities_of(self._reader.connection.dialect)

    def _choose(self, queries: FileQueries, predicate: Predicate, total: int) -> Chosen:
        """Return the files that the database does not exclude. ``total`` may be a limited count on databases with packed rows."""
        pruned = FileQueries(self._reader, self._table, predicate)
        packed = pruned.sets(self._wanted) if self._packs_rows else None
        if packed is None:
            total = queries.total() if self._packs_rows else total
            return Chosen(total=total, by_partition=pruned.excluded_by_partition(), ids=pruned.kept())
        positions = packed.positions() if packed.has_positions and len(packed.kept) <= MAX_IDS else None
        return Chosen(total=packed.total, by_partition=packed.by_partition, ids=packed.kept, positions=positions)

    def _read(self, queries: FileQueries, chosen: Chosen | None, most: int) -> Iterator[tuple[DataFile, dict[int, ColumnStatistics]]]:
        """Yield the live files, or the chosen ones, with the statistics of the requested columns.

        Args:
            queries: The statements.
            chosen: Files to read; None for all.
            most: Upper limit of the number of files.
        """
        one_row_group, plain = rows_of_one_row_group(self._table), has_plain_rows(self._reader.catalog["data_file"])
        few = chosen is not None and len(chosen.ids) <= MAX_IDS
        with ExitStack() as stack:
            # Without a cursor PostgreSQL may use parallel workers; with one it never does.
            run = StatementRunner(self._reader.connection, stack, streaming=not few and most >= _STREAM_FROM)
            rows = iter(run(*(queries.files(list(chosen.ids)) if chosen is not None and few else queries.files())))
            if chosen is not None and not few:
                rows = _among(rows, chosen.ids)
            first = list(islice(rows, MAX_IDS + 1))
            belonging = self._belonging(queries, [row.data_file_id for row in first], None if chosen is None else chosen.positions)
            streams = Streams({name: run(*query) for name, query in belonging})
            for row in chain(first, rows):
                file = data_file_of(row, self._table, streams, self._reader.info.encrypted, plain=plain)
                found = streams.take("statistics", file.id) if self._wanted else ()
                yield file, {one.column_id: statistics_of(one, file, one_row_group) for one in found} if found else {}

    def _belonging(self, queries: FileQueries, files: list[int], positions: list[str] | None) -> Iterator[tuple[str, Query]]:
        """Yield one statement for each kind of rows that may exist for these files; for many files also for the files that follow."""
        if not files:
            return
        table = self._table
        yield "deletes", queries.delete_files(files)
        if table.partition_specs:
            yield "partition_values", queries.partition_values(files)
        if self._wanted:
            yield "statistics", queries.statistics(files, self._wanted, positions)
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
    """Yield the rows whose ids are in ``chosen``; both are sorted by id."""
    position, count = 0, len(chosen)
    for row in rows:
        while position < count and chosen[position] < row.data_file_id:
            position += 1
        if position == count:
            return
        if chosen[position] == row.data_file_id:
            yield row


def _partition_may_match(file: DataFile, table: TableState, predicate: Predicate, found: Sequence[tuple[int, str | None]]) -> bool:
    # A damaged or unknown spec, or an incomplete set of values, excludes nothing.
    spec = table.partition_specs.get(file.partition_id) if file.partition_id is not None else None
    if spec is None or sorted(index for index, _ in found) != list(range(len(spec.fields))):
        return True
    values = tuple(value for _, value in sorted(found, key=lambda pair: pair[0]))
    return transforms.partition_may_match(spec, values, predicate, table.schema, file.begin_snapshot)


def may_match(reader: CatalogReader, table: TableState, predicate: Predicate, files: Sequence[DataFile]) -> frozenset[int]:
    """Return the ids of files that may contain a matching row.

    Args:
        reader: Reader of the catalog.
        table: State of the table.
        predicate: The predicate, bound to ``table.schema``.
        files: Files to check, by ascending ids, live or not.
    """
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
    """Return the live files of a table at ``table.snapshot_id`` that may contain matching rows.

    Iterating raises NotFoundError if that snapshot was expired.

    Args:
        reader: Reader of the catalog.
        table: State of the table.
        predicate: Predicate bound to ``table.schema``, which excludes files without matching rows. None, the default, for all files.
        statistics_for: Ids of leaf columns whose statistics to return with each file; default none. Columns without a row have no entry.
    """
    return DataFiles(reader, table, predicate, statistics_for)


def has_many_files(reader: CatalogReader, table: TableState) -> bool:
    """Return whether a table has more than :data:`FEW_FILES` live files.

    Raises:
        NotFoundError: The snapshot was expired.
    """
    return FileQueries(reader, table, None).total(FEW_FILES + 1) > FEW_FILES


class FileQueries:
    """The statements that read one set of files. Those without a predicate are built once per process and bound by parameters."""

    def __init__(self, reader: CatalogReader, table: TableState, predicate: Predicate | None) -> None:
        self._tables = reader.catalog
        self._reader = reader
        self._table = table
        abilities = abilities_of(reader.connection.dialect)
        self._any_cell = abilities.has_untyped_cells
        self._is_plain = predicate is None
        self._at = {"owner": table.id, "at": table.snapshot_id}
        self.exclusion = excluded(predicate, abilities) if predicate is not None else None
        self._by_partition = condition_of(self.exclusion, self._where_partition)

    @property
    def _live(self) -> ColumnElement[bool]:
        """Return the condition that a data file is live."""
        file = self._tables["data_file"]
        return and_(file.c.table_id == bindparam("owner"), self._is_live(file))

    def _is_live(self, source: Table) -> ColumnElement[bool]:
        return live_or_unknown(source, bindparam("at", type_=BigInteger), any_cell=self._any_cell)

    def _statement(self, name: str, build: Callable[[], Select[Any]]) -> Select[Any]:
        """Return a statement, from the cache if no predicate is part of it."""
        return self._tables.statement(f"{name}, {self._any_cell}", build) if self._is_plain else build()

    def _kept(self) -> ColumnElement[bool]:
        """Return the condition that nothing excludes a file. A NULL exclusion means unknown and keeps the file."""
        by_statistics = condition_of(self.exclusion, self._where_statistics)
        exclusions = [part for part in (self._by_partition, by_statistics) if part is not None]
        return and_(self._live, *(func.coalesce(part, literal(False)).is_(False) for part in exclusions))

    def total(self, most: int | None = None) -> int:
        """Return the number of live files, including excluded ones.

        Args:
            most: Count only up to this number; None, the default, counts all.

        Raises:
            NotFoundError: The snapshot was expired.
        """

        def build() -> Select[Any]:
            file, snapshot = self._tables["data_file"], self._tables["snapshot"]
            at = snapshot.c.snapshot_id == bindparam("at")
            exists = select(func.count()).select_from(snapshot).where(at).scalar_subquery()
            time = select(func.max(snapshot.c.snapshot_time)).where(at).scalar_subquery()
            count = select(func.count().label("total"), exists.label("exists"), time.label("time"))
            if most is None:
                return count.select_from(file).where(self._live)
            return count.select_from(select(file.c.data_file_id).where(self._live).limit(bindparam("most", type_=BigInteger)).subquery())

        name, limit = ("live files", {}) if most is None else ("first live files", {"most": most})
        row = self._reader.connection.execute(self._statement(name, build), {**self._at, **limit}).one()
        self._check_snapshot(row.exists, row.time)
        return int(row.total)

    def check_snapshot(self) -> None:
        """Check that the snapshot of the table still exists, as :meth:`total` does, without counting.

        Raises:
            NotFoundError: The snapshot was expired.
        """
        snapshot = self._tables["snapshot"]

        def build() -> Select[Any]:
            return select(snapshot.c.snapshot_time).where(snapshot.c.snapshot_id == bindparam("at"))

        found = self._reader.connection.execute(self._tables.statement("time of", build), {"at": self._at["at"]}).first()
        self._check_snapshot(found is not None, None if found is None else found.snapshot_time)

    def _check_snapshot(self, exists: bool, time: datetime | None) -> None:
        if not exists:
            # Expiry removed files that only this snapshot had; the remaining rows would look like the whole table.
            raise expired_since(self._table)
        check_same_snapshot(self._table, time)

    def excluded_by_partition(self) -> int:
        """Return the number of live files that partition values exclude."""
        if self._by_partition is None:
            return 0
        query = select(func.sum(case((self._by_partition, 1), else_=0))).select_from(self._tables["data_file"]).where(self._live)
        return int(self._reader.connection.execute(query, self._at).scalar() or 0)

    def kept(self) -> array[int]:
        """Return the ids of the live data files that nothing excludes, ascending.

        Raises:
            CatalogCorruptError: The id of a file is not a number; SQLite does not enforce types.
        """
        number = self._tables["data_file"].c.data_file_id
        # SQLite merges two sorted lists of ids in a quarter less time than it searches one for the ids of the other.
        not_kept = self._excluded_ids() if self._any_cell else None
        query: Select[Any] | CompoundSelect[Any] = (
            select(number).where(self._kept()) if not_kept is None else except_(select(number).where(self._live), not_kept)
        )
        rows = self._reader.connection.execute(query.order_by("data_file_id"), self._at)
        try:
            return array("q", rows.scalars())
        except TypeError as error:
            name = self._table.qualified_name
            raise CatalogCorruptError(f"a data file of table {name} has an id that is no number", table=name) from error

    def files(self, chosen: Sequence[int] | None = None) -> Query:
        """Return the query for live data files, or for some of them by id."""
        file = self._tables["data_file"]

        def build() -> Select[Any]:
            live = self._live if chosen is None else and_(self._live, file.c.data_file_id.in_(bindparam("files", expanding=True)))
            return select(file).where(live).order_by(file.c.data_file_id)

        if chosen is None:
            return self._statement("files", build), self._at
        return self._statement("chosen files", build), {**self._at, "files": chosen}

    def delete_files(self, files: list[int]) -> Query:
        """Return the query for the live delete files of some data files."""
        deletes = self._tables["delete_file"]
        few = len(files) <= MAX_IDS

        def build() -> Select[Any]:
            chosen = deletes.c.data_file_id.in_(bindparam("files", expanding=True)) if few else deletes.c.data_file_id >= bindparam("files")
            query = select(deletes, committed_at(self._tables, deletes)).where(
                deletes.c.table_id == bindparam("owner"), self._is_live(deletes), chosen
            )
            return query.order_by(deletes.c.data_file_id, deletes.c.delete_file_id)

        name = f"delete files of {'few' if few else 'many'}, {self._any_cell}"
        return self._tables.statement(name, build), {**self._at, "files": files if few else files[0]}

    def partition_values(self, files: list[int]) -> Query:
        """Return the query for the partition values of some data files, one row for each key."""
        value = self._tables["file_partition_value"]
        return self._of(select(value).order_by(value.c.data_file_id, value.c.partition_key_index), value, files)

    def statistics(self, files: list[int], columns: frozenset[int], positions: Sequence[str] | None = None) -> Query:
        """Return the query for the statistics of some columns in some data files.

        Args:
            files: Ids of the data files, ascending.
            columns: Ids of the columns.
            positions: Physical positions of the rows, if known, so that no index or scan is needed; None, the default, otherwise.
        """
        stats = self._tables["file_column_stats"]
        query = select(stats).where(stats.c.column_id.in_(sorted(columns))).order_by(stats.c.data_file_id)
        return self._of(query if positions is None else query.where(is_at(positions)), stats, files)

    def sets(self, wanted: frozenset[int]) -> PackedSets | None:
        """Return the live files and the files that statistics exclude, in one statement; None if nothing can be excluded.

        Raises:
            CatalogCorruptError: A file has no id.
        """
        if not isinstance(self.exclusion, Exclusion):
            return None
        columns, has_positions = packed_columns(self.exclusion, wanted)
        exclusion = limited(self.exclusion, columns)
        groups = groups_of(exclusion)
        stats, file = self._tables["file_column_stats"].alias(), self._tables["data_file"]
        # A view with the name of the table has no physical positions.
        has_positions = has_positions and bool(groups) and self._reader.has_table(self._tables["file_column_stats"].name)
        if self._by_partition is not None:
            self._reader.connection.execute(select(func.set_config("work_mem", WORK_MEMORY, True)))
        outside = [self._outside(stats, bounds) for bounds in groups]
        positions: Positions = "none" if not has_positions else "all" if exclusion.others else "of rows that exclude nothing"
        rows = packed_rows(stats, self._table.id, columns, outside, positions)
        files = packed_files(file, self._by_partition).where(self._live).subquery("files")
        both = select(files.join(rows.subquery("statistics"), true()))
        row = self._reader.connection.execute(both, self._at).one()
        if row.total != row.numbered:
            name = self._table.qualified_name
            raise CatalogCorruptError(f"a data file of table {name} has no id", table=name)
        return PackedSets(row, exclusion, has_positions=has_positions)

    def inlined_deletes(self, files: list[int]) -> Query:
        """Return the query for the inlined deletes of some data files."""
        source = self._tables.inlined_delete(self._table.id)
        visible = select(source.c.file_id.label("data_file_id"), source.c.row_id).where(
            source.c.begin_snapshot <= self._table.snapshot_id, is_in(source.c.file_id, files)
        )
        return visible.distinct().order_by(source.c.file_id, source.c.row_id), {}

    def _of(self, query: Select[Any], source: Table, files: list[int]) -> Query:
        return query.where(source.c.table_id == self._table.id, is_in(source.c.data_file_id, files)), {}

    def _where_statistics(self, bounds: Sequence[OutOfBounds]) -> ColumnElement[bool]:
        return self._tables["data_file"].c.data_file_id.in_(self._excluded_by(bounds))

    def _excluded_by(self, bounds: Sequence[OutOfBounds]) -> Select[Any]:
        """Return the query for the ids of files for which the statistics prove any of some conditions."""
        # An alias, because SQLAlchemy would correlate this subquery if the enclosing statement selects from the same table.
        stats = self._tables["file_column_stats"].alias()
        return select(stats.c.data_file_id).where(stats.c.table_id == self._table.id, self._outside(stats, bounds))

    def _excluded_ids(self) -> Select[Any] | None:
        """Return the query for all excluded files; None if that takes more than one pass over the statistics."""
        exclusion = self.exclusion
        if not isinstance(exclusion, Exclusion) or exclusion.others or self._by_partition is not None:
            return None
        return self._excluded_by(exclusion.bounds)

    def _outside(self, stats: FromClause, bounds: Sequence[OutOfBounds]) -> ColumnElement[bool]:
        """Return the condition that a statistics row proves any of these conditions for its file."""
        file = self._tables["data_file"]
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
        return or_(*(and_(stats.c.column_id == column, any_of(conditions, found)) for column, conditions in columns.items()))

    def _where_partition(self, bounds: Sequence[OutOfBounds]) -> ColumnElement[bool] | None:
        """Return the condition that partition values exclude a file. For identity keys, the value is both bounds: every row has it."""
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


def is_in(column: ColumnElement[int], files: list[int]) -> ColumnElement[bool]:
    """Return the condition that a row belongs to one of the files; for many files, to none before the first, so callers must filter.

    Never a join: catalogs may have no indexes, and without fresh table statistics PostgreSQL estimates a tiny table and uses a nested loop,
    which takes minutes where a scan takes milliseconds.

    Args:
        column: Column with file ids.
        files: File ids, ascending.
    """
    return column.in_(files) if len(files) <= MAX_IDS else column >= files[0]
