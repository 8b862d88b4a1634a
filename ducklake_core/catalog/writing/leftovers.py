"""Tables of inlined rows that no snapshot will ever name, where tables do not vanish with the transaction that made them.

A commit makes its tables before it writes: one that fails, or is killed, may leave them behind. And what an expiry drops it drops after
its COMMIT. A table whose name says that it is of a schema version, or of a lake's table, that the catalog has passed can no longer be
registered: whoever commits next takes the next version and the next id. So it is of no commit that is under way.
"""

from __future__ import annotations

from sqlalchemy import Connection, inspect
from sqlalchemy.schema import DropTable

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import inlined_deletes_owner, inlined_owner
from ducklake_core.catalog.reading.inlined_tables import in_the_making, known_tables, newest_counters, registered_names


def drop_leftovers(connection: Connection, database: Database) -> None:
    """Drop them once the transaction, which has changed the catalog already, has committed."""
    tables = database.tables
    # First of all: a commit that ends later, and registers a table, has counters beyond these, so that its table is left alone.
    counters = newest_counters(connection, tables)
    registered = registered_names(connection, tables)
    known = known_tables(connection, tables)
    left = []
    for name in inspect(connection).get_table_names(schema=tables.schema):
        owner = inlined_deletes_owner(name)
        if (inlined_owner(name) is not None and name not in registered) or (owner is not None and owner not in known):
            left.append(name)
    for name in sorted({*left} - in_the_making(left, counters)):
        database.definitions.drop(connection, DropTable(tables.inlined_data(name), if_exists=True))
