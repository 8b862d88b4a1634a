"""The handles of a lake that internals take instead of the lake itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.state import LakeInfo
from ducklake_core.planning.table_info import Size
from ducklake_core.results import TableInfo
from ducklake_core.staging.table_cache import TableStateCache
from ducklake_core.storage.filesystems import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeContext:
    """A lake's catalog, files and cached table states.

    Attributes:
        database: The catalog's database.
        info: Version, data path and encryption of the lake.
        storage: How to reach its files; picklable.
        table_cache: Table states that were read before.
    """

    database: Database
    info: LakeInfo
    storage: Storage
    table_cache: TableStateCache

    def counted(self, size: Size) -> TableInfo:
        """Complete a table's size by counting in its files what the catalog does not know."""
        if size.plan is None:
            return size.info
        from ducklake_core.engines.arrow.read import count_rows

        return size.counted(self.storage, count_rows)

    @contextmanager
    def reader(self) -> Iterator[CatalogReader]:
        """Questions to the catalog within one short read transaction that sees one state of it."""
        with self.database.read() as connection:
            yield CatalogReader(connection, self.info, self.database.tables)
