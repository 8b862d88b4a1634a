"""Tables of inlined rows that no snapshot will ever name, where tables do not vanish with the transaction that made them.

A commit makes its tables before it writes: one that fails, or is killed, may leave them behind. And what an expiry drops it drops after
its COMMIT. A table whose name says that it is of a schema version, or of a lake's table, that the catalog has passed can no longer be
registered: whoever commits next takes the next version and the next id. So it is of no commit that is under way.
"""

from __future__ import annotations

import re

from sqlalchemy import Connection, inspect, select
from sqlalchemy.schema import DropTable

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import inlined_owner, inlined_version

_DELETES = re.compile(r"ducklake_inlined_delete_(\d+)", re.ASCII)


def drop_leftovers(connection: Connection, database: Database) -> None:
    """Drop them once the transaction, which has changed the catalog already, has committed."""
    tables = database.tables
    snapshot = tables["snapshot"]
    counters = select(snapshot.c.schema_version, snapshot.c.next_catalog_id).order_by(snapshot.c.snapshot_id.desc()).limit(1)
    newest = connection.execute(counters).one()
    registered = set(connection.execute(select(tables["inlined_data_tables"].c.table_name)).scalars())
    known = set(connection.execute(select(tables["table"].c.table_id)).scalars())
    for name in sorted(inspect(connection).get_table_names(schema=tables.schema)):
        owner, deletes = inlined_owner(name), _DELETES.fullmatch(name)
        if owner is not None:
            is_left = name not in registered and (inlined_version(name) <= newest.schema_version and owner < newest.next_catalog_id)
        else:
            is_left = deletes is not None and int(deletes[1]) not in known and int(deletes[1]) < newest.next_catalog_id
        if is_left:
            database.definitions.drop(connection, DropTable(tables.inlined_data(name), if_exists=True))
