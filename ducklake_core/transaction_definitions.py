"""The verbs of a transaction that change definitions: schemas and tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ducklake_core.catalog.other_entries import other_entries
from ducklake_core.commit.actions import DropSchema, DropTable
from ducklake_core.engines import schema_of
from ducklake_core.errors import AlreadyExistsError, NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.names import split_name
from ducklake_core.staged_catalog import StagedCatalog

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core.catalog.state import Snapshot
    from ducklake_core.format.schema import Schema
    from ducklake_core.lake import DuckLake


class DefinitionVerbs(ABC):
    """Definitions staged by a :class:`Transaction`."""

    _lake: DuckLake

    @property
    @abstractmethod
    def repeated(self) -> Snapshot | None:
        """The snapshot that an earlier run committed with the same commit id; while it is there, calls do nothing."""

    @property
    @abstractmethod
    def _catalog(self) -> StagedCatalog:
        """What is staged."""

    def create_schema(self, name: str) -> None:
        """Create a schema.

        Raises:
            AlreadyExistsError: It exists.
        """
        if self.repeated:
            return
        if self._catalog.find_schema(name) is not None:
            raise AlreadyExistsError(f"there is a schema {name!r} already at snapshot {self._catalog.base.id}", schema=name)
        self._catalog.create_schema(name)

    def drop_schema(self, name: str, *, cascade: bool = False) -> None:
        """Drop a schema that is empty, or with ``cascade`` together with its tables.

        Raises:
            NotFoundError: No such schema.
            UsageError: It is not empty, or this transaction has put something into it.
            UnsupportedFeatureError: It has views or macros.
        """
        if self.repeated:
            return
        catalog = self._catalog
        state = catalog.schema(name)
        if state.id < 0:
            raise NotFoundError(f"there is no schema {name!r} at snapshot {catalog.base.id}", schema=name)
        with self._lake.reader() as reader:
            inside = [item for item in reader.tables(catalog.base.id) if item.schema_id == state.id and not catalog.is_dropped(item.id)]
            others = [entry for _, entry in other_entries(reader.connection, reader.catalog, state.id, catalog.base.id)]
        if others:
            # Left behind, they would keep the reference from opening the lake.
            raise UnsupportedFeatureError(
                f"schema {state.name!r} has views or macros ({', '.join(others)}), which this library cannot drop; do so with DuckDB",
                schema=state.name,
            )
        staged = [table.name for table in catalog.tables if table.state.schema_id == state.id and (table.create or table.written)]
        if staged:
            raise UsageError(f"{', '.join(staged)} was created or written in this same transaction", schema=state.name)
        if inside and not cascade:
            raise UsageError(f"schema {state.name!r} has {len(inside)} tables; drop them first, or pass cascade=True", schema=state.name)
        catalog.definitions += [DropTable(table_id=item.id, schema_name=item.schema_name, name=item.name) for item in inside]
        catalog.definitions.append(DropSchema(schema_id=state.id, name=state.name))

    def create_table(
        self, name: str, schema: Schema | pa.Schema | Any, *, partition_by: Sequence[str] = (), comment: str | None = None
    ) -> None:
        """Create a table, which later calls of this transaction may write to.

        Raises:
            AlreadyExistsError: It exists.
            NotFoundError: Its schema does not.
        """
        if self.repeated:
            return
        schema_name, table_name = split_name(name)
        if self._catalog.find_table(name) is not None:
            raise AlreadyExistsError(f"there is a table {name} already at snapshot {self._catalog.base.id}", table=name)
        self._catalog.create_table(self._catalog.schema(schema_name), table_name, schema_of(schema), partition_by, comment)

    def drop_table(self, name: str) -> None:
        """Drop a table.

        Raises:
            NotFoundError: No such table.
        """
        if self.repeated:
            return
        staged = self._catalog.table(name)
        if staged.committed is None or staged.written:
            raise UsageError(f"table {name} was created or written in this same transaction", table=name)
        state = staged.committed
        self._catalog.definitions.append(DropTable(table_id=state.id, schema_name=state.schema_name, name=state.name))
        self._catalog.forget_table(name)
