"""Tables and views that a query reads: found in the catalog, and what is used of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ducklake_core.catalog.reading.macros import macros
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.views import ViewState, find_view
from ducklake_core.errors import NotFoundError
from ducklake_core.format.state import TableState
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded
from ducklake_core.format.types.type_parser import without_ids
from ducklake_core.planning.virtual import FILE_INDEX, VIRTUAL_SCHEMA
from ducklake_core.view_sql.scopes import OutputColumn, Relation
from ducklake_core.view_sql.typed import Refused

OTHER_SNAPSHOTS = "__ducklake_at"
"""The schema of names that stand for tables at other snapshots."""


@dataclass(slots=True, kw_only=True)
class TableSource:
    """One reference to a table.

    Attributes:
        key: Its name in Spark's text, in braces.
        table: The table at the snapshot.
        used: Names of the used columns by their identifiers in Spark's text.
        conditions: Conditions in DuckDB's SQL that rows which matter fulfil.
    """

    key: str
    table: TableState
    used: dict[str, str] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)


class Sources:
    """Everything that a view reads, at its snapshot."""

    def __init__(self, reader: CatalogReader, snapshot_id: int, then: Mapping[str, TableState] | None = None) -> None:
        self._then = then or {}
        self._reader = reader
        self._snapshot_id = snapshot_id
        self._count = 0
        self.tables: list[TableSource] = []
        self.macros = frozenset(folded(macro.name) for macro in macros(reader, snapshot_id))

    def fresh(self) -> str:
        """An identifier that nothing else has."""
        self._count += 1
        return f"c{self._count}"

    def find(self, schema: str | None, name: str, own_schema: str) -> TableState | ViewState:
        """The table or view of a name, without a schema in that of the view or in ``main``.

        Raises:
            Refused: None, or one in each.
        """
        if schema == OTHER_SNAPSHOTS and name in self._then:
            return self._then[name]
        schemas = [schema] if schema else list({folded(one): one for one in (own_schema, DEFAULT_SCHEMA)}.values())
        found = [source for one in schemas if (source := self._named(one, name)) is not None]
        if len(found) != 1:
            what = "is not a table of the lake at that snapshot" if not found else "is a table of several schemas"
            raise Refused(f"{name!r} {what}")
        return found[0]

    def _named(self, schema: str, name: str) -> TableState | ViewState | None:
        try:
            return self._reader.table(schema, name, self._snapshot_id)
        except NotFoundError:
            return find_view(self._reader, schema, name, self._snapshot_id)

    def relation(self, table: TableState, alias: str | None, names: tuple[str, ...] = ()) -> tuple[str, Relation]:
        """One reference to a table: its text for FROM, and its columns."""
        source = TableSource(key=f"t{len(self.tables)}", table=table)
        self.tables.append(source)
        columns = tuple(OutputColumn(name=column.name, sql=self.fresh(), type=without_ids(column.type)) for column in table.schema)
        stored = {column.sql: column.name for column in columns if column.name is not None}
        virtual: dict[str, OutputColumn] = {}

        def find_virtual(name: str) -> OutputColumn | None:
            found = next((own for own in VIRTUAL_SCHEMA if folded(own.name) == folded(name)), None)
            if found is None:
                return None
            if found == FILE_INDEX:
                raise Refused("it reads file_index, which counts the files of one scan")
            if found.name not in virtual:
                virtual[found.name] = OutputColumn(name=found.name, sql=self.fresh(), type=found.type)
                stored[virtual[found.name].sql] = found.name
            return virtual[found.name]

        def touch(column: OutputColumn) -> None:
            if column.sql in stored:
                source.used[column.sql] = stored[column.sql]

        relation = Relation(
            alias=alias if alias is not None else table.name,
            schema=table.schema_name if alias is None else None,
            columns=renamed(columns, names),
            virtual=find_virtual,
            touched=touch,
        )
        return "{" + source.key + "}", relation


def renamed(columns: tuple[OutputColumn, ...], names: tuple[str, ...]) -> tuple[OutputColumn, ...]:
    """The columns with other names, of the first ones at least.

    Raises:
        Refused: More names than columns.
    """
    if len(names) > len(columns):
        raise Refused(f"it names {len(names)} columns of {len(columns)}")
    first = tuple(OutputColumn(name=name, sql=column.sql, type=column.type) for name, column in zip(names, columns, strict=False))
    return first + columns[len(names) :]
