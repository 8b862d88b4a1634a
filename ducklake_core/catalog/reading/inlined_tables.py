"""Tables of inlined rows and deletes as the database has them, beside what the catalog says of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, inspect, literal, select, union
from sqlalchemy.exc import DBAPIError

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.catalog.database.failures import is_about_missing_table
from ducklake_core.catalog.database.tables import CatalogTables, inlined_deletes_owner, inlined_owner, may_be_in_the_making
from ducklake_core.catalog.reading.complete import complete_rows
from ducklake_core.catalog.reading.unions import all_of
from ducklake_core.errors import CatalogUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class InlinedTables:
    """Tables of inlined rows and deletes as the database has them.

    Attributes:
        data: (table id, name) of those with rows that are registered and there, for the table that their name is of.
        deletes: (table id, name) of those with deletes of tables that the catalog knows.
        missing: (table id, name) of those that are registered and not there.
        dead: (table id, name) of those with rows that are there and not registered, or of tables that the catalog does not know.
            Not told are empty ones of known tables, which a flush leaves to sessions that have seen them, and on MySQL those that a
            commit may be making.
    """

    data: tuple[tuple[int, str], ...] = ()
    deletes: tuple[tuple[int, str], ...] = ()
    missing: tuple[tuple[int, str], ...] = ()
    dead: tuple[tuple[int, str], ...] = ()


def inlined_tables(connection: Connection, tables: CatalogTables, known: Iterable[int]) -> InlinedTables:
    """Tables of inlined rows and deletes, those that are missing and those that nothing reads; three statements, or four.

    Args:
        connection: An open transaction.
        tables: The metadata tables.
        known: Ids of all tables of the catalog, dropped ones too.
    """
    counters = newest_counters(connection, tables)
    registered = tables["inlined_data_tables"]
    wanted = {(row.table_id, row.table_name) for row in connection.execute(select(registered.c.table_id, registered.c.table_name))}
    there = set(inspect(connection).get_table_names(schema=tables.schema))
    known_ids, registered_names = set(known), {name for _, name in wanted}
    of_rows = {(owner, name) for name in there if (owner := inlined_owner(name)) is not None}
    of_deletes = {(owner, name) for name in there if (owner := inlined_deletes_owner(name)) is not None}
    # Of tables that nothing registers those of known tables are dead when they have rows.
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
    """Ids of the tables that the catalog knows at all; of one whose row was lost it has the columns still, and perhaps the only rows."""
    both = union(*(select(tables[name].c.table_id) for name in ("table", "column"))).subquery()
    return frozenset(number for (number,) in complete_rows(connection, select(both.c.table_id), "ids of tables"))


def registered_names(connection: Connection, tables: CatalogTables) -> frozenset[str]:
    """Names of tables of inlined rows as the catalog registers them.

    On MySQL a transaction sees rows as they were and tables as they are: what :func:`inlined_tables` calls missing may have been dropped
    by an expiry meanwhile. A later transaction sees that it is not registered any more.
    """
    query = select(tables["inlined_data_tables"].c.table_name)
    return frozenset(name for (name,) in complete_rows(connection, query, "tables of inlined rows"))


def newest_counters(connection: Connection, tables: CatalogTables) -> RowMapping | None:
    """The schema version and the next catalog id of the newest snapshot.

    None where nobody sees the tables of a transaction before its COMMIT: only on MySQL may a table be in the making.
    """
    if not abilities_of(connection.dialect).commits_at_ddl:
        return None
    snapshot = tables["snapshot"]
    counters = select(snapshot.c.schema_version, snapshot.c.next_catalog_id).order_by(snapshot.c.snapshot_id.desc()).limit(1)
    return connection.execute(counters).mappings().one_or_none()


def in_the_making(names: Iterable[str], counters: RowMapping | None) -> frozenset[str]:
    """Those of some tables of inlined rows and deletes that commits may have been making when :func:`newest_counters` was read.

    Whoever then calls a table a leftover must have read the counters before what is registered: a commit that ends in between has
    registered its table, and has counters beyond these.
    """
    return frozenset() if counters is None else frozenset(name for name in names if may_be_in_the_making(name, **counters))


def names_with_rows(connection: Connection, tables: CatalogTables, names: Sequence[str]) -> frozenset[str]:
    """Names of those of some tables of inlined rows that have any row."""
    if not names:
        return frozenset()
    queries = [
        select(literal(name).label("name")).where(select(literal(1)).select_from(tables.inlined_data(name)).exists()) for name in names
    ]
    with tables_that_may_go():
        return frozenset(connection.execute(all_of(queries)).scalars())


@contextmanager
def tables_that_may_go() -> Iterator[None]:
    """Tables of inlined rows and deletes are read that others may drop meanwhile, as servers show it at once.

    Raises:
        CatalogUnavailableError: One of them is gone; whoever reads again finds others.
    """
    try:
        yield
    except DBAPIError as error:
        if not is_about_missing_table(error):
            raise
        message = "a table of inlined rows or deletes was dropped during this read; read again"
        raise CatalogUnavailableError(message, failure="retry") from error
