"""The statements that read the live files of a table, and what belongs to them, in the order of the files' ids."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import BigInteger, ColumnElement, FromClause, Select, Table, and_, bindparam, case, func, literal, or_, select, true

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.catalog.reading.bounds import Bounds, Exclusion, OutOfBounds, any_of, condition_of, excluded
from ducklake_core.catalog.reading.packed_sets import (
    WORK_MEMORY,
    PackedSets,
    Places,
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
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.state import TableState

MOST_IDS = 1000
"""Above this many files a statement names none of them, and reads all rows from the first file on."""


Query: TypeAlias = tuple[Select[Any], Mapping[str, object]]
"""A statement and its parameters."""


class FileQueries:
    """The statements, all on the same set of files."""

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
        """The data file is live; made when a statement is, which is once for most."""
        file = self._tables["data_file"]
        return and_(file.c.table_id == bindparam("owner"), self._is_live(file))

    def _is_live(self, source: Table) -> ColumnElement[bool]:
        return live_or_unknown(source, bindparam("at", type_=BigInteger), any_cell=self._any_cell)

    def _statement(self, name: str, build: Callable[[], Select[Any]]) -> Select[Any]:
        """A statement of files that no predicate chooses, built once."""
        return self._tables.statement(f"{name}, {self._any_cell}", build) if self._is_plain else build()

    def _kept(self) -> ColumnElement[bool]:
        """Conditions are three-valued: only what is surely excluded goes."""
        by_statistics = condition_of(self.exclusion, self._where_statistics)
        exclusions = [part for part in (self._by_partition, by_statistics) if part is not None]
        return and_(self._live, *(func.coalesce(part, literal(False)).is_(False) for part in exclusions))

    def total(self, most: int | None = None) -> int:
        """Number of live files, excluded ones too; counted up to ``most``, which spares the database the others.

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
        """As :meth:`total`, without counting.

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
            # What only expired snapshots had has left the catalog: what is still live there would look like all of it.
            raise expired_since(self._table)
        check_same_snapshot(self._table, time)

    def excluded_by_partition(self) -> int:
        """How many live files their partition values exclude."""
        if self._by_partition is None:
            return 0
        query = select(func.sum(case((self._by_partition, 1), else_=0))).select_from(self._tables["data_file"]).where(self._live)
        return int(self._reader.connection.execute(query, self._at).scalar() or 0)

    def kept(self) -> array[int]:
        """Ids of the live data files that nothing excludes, ascending.

        Raises:
            CatalogCorruptError: A file has no number for an id, as cells of SQLite may hold anything.
        """
        number = self._tables["data_file"].c.data_file_id
        rows = self._reader.connection.execute(select(number).where(self._kept()).order_by(number), self._at)
        try:
            return array("q", rows.scalars())
        except TypeError as error:
            name = self._table.qualified_name
            raise CatalogCorruptError(f"a data file of table {name} has an id that is no number", table=name) from error

    def files(self, chosen: Sequence[int] | None = None) -> Query:
        """The rows of live data files, or of some of them by their ids."""
        file = self._tables["data_file"]

        def build() -> Select[Any]:
            live = self._live if chosen is None else and_(self._live, file.c.data_file_id.in_(bindparam("files", expanding=True)))
            return select(file).where(live).order_by(file.c.data_file_id)

        if chosen is None:
            return self._statement("files", build), self._at
        return self._statement("chosen files", build), {**self._at, "files": chosen}

    def delete_files(self, files: list[int]) -> Query:
        """The live delete files of some data files."""
        deletes = self._tables["delete_file"]
        few = len(files) <= MOST_IDS

        def build() -> Select[Any]:
            chosen = deletes.c.data_file_id.in_(bindparam("files", expanding=True)) if few else deletes.c.data_file_id >= bindparam("files")
            query = select(deletes, committed_at(self._tables, deletes)).where(
                deletes.c.table_id == bindparam("owner"), self._is_live(deletes), chosen
            )
            return query.order_by(deletes.c.data_file_id, deletes.c.delete_file_id)

        name = f"delete files of {'few' if few else 'many'}, {self._any_cell}"
        return self._tables.statement(name, build), {**self._at, "files": files if few else files[0]}

    def partition_values(self, files: list[int]) -> Query:
        """The partition values of some data files, one row for each key."""
        value = self._tables["file_partition_value"]
        return self._of(select(value).order_by(value.c.data_file_id, value.c.partition_key_index), value, files)

    def statistics(self, files: list[int], columns: frozenset[int], places: Sequence[str] | None = None) -> Query:
        """The statistics of some columns in some data files, which are looked for at some places alone where those are known."""
        stats = self._tables["file_column_stats"]
        query = select(stats).where(stats.c.column_id.in_(sorted(columns))).order_by(stats.c.data_file_id)
        return self._of(query if places is None else query.where(is_at(places)), stats, files)

    def sets(self, wanted: frozenset[int]) -> PackedSets | None:
        """The live files, and what the statistics of columns say about files, in one statement; None where these exclude nothing.

        Raises:
            CatalogCorruptError: A file has no id.
        """
        if not isinstance(self.exclusion, Exclusion):
            return None
        columns, has_places = packed_columns(self.exclusion, wanted)
        exclusion = limited(self.exclusion, columns)
        groups = groups_of(exclusion)
        stats, file = self._tables["file_column_stats"].alias(), self._tables["data_file"]
        # A view in the table's stead has no places.
        has_places = has_places and bool(groups) and self._reader.has_table(self._tables["file_column_stats"].name)
        if self._by_partition is not None:
            self._reader.connection.execute(select(func.set_config("work_mem", WORK_MEMORY, True)))
        outside = [self._outside(stats, bounds) for bounds in groups]
        places: Places = "none" if not has_places else "all" if exclusion.others else "of rows that exclude nothing"
        rows = packed_rows(stats, self._table.id, columns, outside, places)
        files = packed_files(file, self._by_partition).where(self._live).subquery("files")
        both = select(files.join(rows.subquery("statistics"), true()))
        row = self._reader.connection.execute(both, self._at).one()
        if row.total != row.numbered:
            name = self._table.qualified_name
            raise CatalogCorruptError(f"a data file of table {name} has no id", table=name)
        return PackedSets(row, exclusion, has_places=has_places)

    def inlined_deletes(self, files: list[int]) -> Query:
        """The positions of some data files that the catalog itself hides."""
        source = self._tables.inlined_delete(self._table.id)
        visible = select(source.c.file_id.label("data_file_id"), source.c.row_id).where(
            source.c.begin_snapshot <= self._table.snapshot_id, is_in(source.c.file_id, files)
        )
        return visible.distinct().order_by(source.c.file_id, source.c.row_id), {}

    def _of(self, query: Select[Any], source: Table, files: list[int]) -> Query:
        return query.where(source.c.table_id == self._table.id, is_in(source.c.data_file_id, files)), {}

    def _where_statistics(self, bounds: Sequence[OutOfBounds]) -> ColumnElement[bool]:
        # An alias: the enclosing statement may select from the same table, which must not be mistaken for this one.
        stats, file = self._tables["file_column_stats"].alias(), self._tables["data_file"]
        outside = self._outside(stats, bounds)
        return file.c.data_file_id.in_(select(stats.c.data_file_id).where(stats.c.table_id == self._table.id, outside))

    def _outside(self, stats: FromClause, bounds: Sequence[OutOfBounds]) -> ColumnElement[bool]:
        """A row of statistics says that any of these conditions holds for its file."""
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


def is_in(column: ColumnElement[int], files: list[int]) -> ColumnElement[bool]:
    """The row belongs to one of the files, or, when they are many, at least to none before the first.

    Never a join: catalogs have no indexes, and without fresh table statistics PostgreSQL takes tables for tiny and joins
    them row by row, which takes minutes where a scan takes milliseconds.
    """
    return column.in_(files) if len(files) <= MOST_IDS else column >= files[0]
