"""Access to a lake's catalog in tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ducklake_core.catalog.database.bootstrap import open_catalog
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.catalog.reading.reader import CatalogReader
from tests.support.oracle import LakeAddress


def database_of(address: LakeAddress) -> Database:
    """Return the lake's catalog database."""
    return Database(parse_catalog_url(address.url))


@contextmanager
def reading(address: LakeAddress) -> Iterator[CatalogReader]:
    """A reader in one read transaction."""
    database = database_of(address)
    info = open_catalog(database)
    try:
        with database.read() as connection:
            yield CatalogReader(connection, info, database.tables)
    finally:
        database.close()
