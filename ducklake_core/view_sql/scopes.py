"""Resolve names of a query: relations, columns, and the tables and views that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ducklake_core.catalog.reading.definitions import ViewState, find_relations, macros
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.format.state import TableState
from ducklake_core.format.types.data_types import VARIANT, DataType, StructType
from ducklake_core.format.types.names import folded, similar_entries, split_path
from ducklake_core.format.types.text import similar_in_brackets
from ducklake_core.format.types.type_parser import without_ids
from ducklake_core.planning.plan import FILE_INDEX, VIRTUAL_SCHEMA
from ducklake_core.view_sql.functions import field as struct_field
from ducklake_core.view_sql.typed import Rejected, Typed

OTHER_SNAPSHOTS = "__ducklake_at"
"""The schema of names that stand for tables at other snapshots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputColumn:
    """A column of a relation or query.

    Attributes:
        name: Name in DuckDB; None if unknown.
        sql: Its identifier in Spark's text, or for a merged column of a join an expression.
        type: DuckDB's type.
    """

    name: str | None
    sql: str
    type: DataType

    @property
    def typed(self) -> Typed:
        """The column as an expression."""
        return Typed(sql=self.sql, type=self.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A translated query.

    Attributes:
        sql: Spark SQL, a SELECT whose columns are the identifiers of ``columns``.
        columns: What it makes.
        correlated: Whether it uses columns of the query around it.
        single_row: Whether it makes one row whatever the data, as an aggregate without GROUP BY does.
    """

    sql: str
    columns: tuple[OutputColumn, ...]
    correlated: bool = False
    single_row: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One source of a FROM clause, under its name.

    Attributes:
        alias: Name that qualifies its columns; None for none.
        schema: Name of the table's schema, where it is a table that was given no other name.
        columns: Its columns in order.
        virtual: Makes a column that ``*`` does not show, None where there is none of that name.
        touched: Called with every column that is used.
    """

    alias: str | None
    schema: str | None = None
    columns: tuple[OutputColumn, ...]
    virtual: Callable[[str], OutputColumn | None] = lambda _: None
    touched: Callable[[OutputColumn], None] = lambda _: None

    def find(self, name: str) -> list[OutputColumn]:
        """Return the columns of that name."""
        found = [column for column in self.columns if column.name is not None and same_name(column.name, name)]
        if found:
            return found
        virtual = self.virtual(name)
        return [virtual] if virtual is not None else []


@dataclass(slots=True, kw_only=True)
class Scope:
    """Names that an expression may use.

    Attributes:
        relations: Of this query, in order.
        merged: Columns that USING made one, by folded name.
        hidden: Identifiers of the columns behind a merged one.
        aliases: Known expressions of the SELECT list by folded name.
        alias_rule: What a name means that is both: ``column``, ``alias``, or ``either``, which raises an error.
        outer: The query around this one.
        uses_outer: Whether a column of the query around it was used.
    """

    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, OutputColumn] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    aliases: dict[str, Typed] = field(default_factory=dict)
    alias_rule: str = "column"
    outer: Scope | None = None
    uses_outer: bool = False

    def star(self, qualifier: str | None = None) -> Iterator[OutputColumn]:
        """Yield the columns of ``*`` or ``relation.*``."""
        relations = [own for own in self.relations if qualifier is None or (own.alias is not None and same_name(own.alias, qualifier))]
        if not relations or (qualifier is not None and len(relations) > 1):
            raise Rejected(f"it selects * from {qualifier or 'nothing'}")
        for relation in relations:
            for column in relation.columns:
                if qualifier is not None or column.sql not in self.hidden:
                    relation.touched(column)
                    merged = self.merged.get(folded(column.name or "")) if qualifier is None else None
                    yield merged if merged is not None and column.sql not in self.hidden else column

    def column(self, parts: tuple[str, ...]) -> Typed:
        """Resolve a name with dots.

        Raises:
            Rejected: The name is unknown or ambiguous.
        """
        # Columns and aliases of this query hide those of the query around it; alias_rule decides where a name is a column and an alias.
        found = self._here(parts)
        alias = self.aliases.get(folded(parts[0])) if len(parts) == 1 else None
        if alias is not None and found and self.alias_rule != "column" and found[0] != alias:
            if self.alias_rule == "either":
                raise Rejected(f"name {parts[0]!r} is both a column and another expression")
            return alias
        if found:
            if len(found) > 1:
                raise Rejected(f"name {'.'.join(parts)!r} is ambiguous")
            return found[0]
        if alias is not None:
            return alias
        variant = self._variant(parts)
        if variant is not None:
            raise Rejected(f"{'.'.join(parts)!r} is a part of variant {variant!r}, which only DuckDB supports")
        if self.outer is not None:
            self.uses_outer = True
            return self.outer.column(parts)
        near = similar_in_brackets(parts[-1], [column.name for one in self.relations for column in one.columns if column.name is not None])
        raise Rejected(f"column {'.'.join(parts)!r} does not exist{near}")

    def _here(self, parts: tuple[str, ...]) -> list[Typed]:
        """Return every reading of a name: relation and column, column and fields."""
        readings: list[Typed] = []
        for relation in self.relations:
            for taken in self._qualified(relation, parts):
                readings += self._fields(relation, relation.find(parts[taken]), parts[taken + 1 :])
        if not readings or len(parts) > 1:
            readings += self._unqualified(parts)
        # A column that is found twice, by its alias and by its schema, is not ambiguous.
        return list(dict.fromkeys(readings))

    def _qualified(self, relation: Relation, parts: tuple[str, ...]) -> Iterator[int]:
        """Yield the numbers of leading parts that name the relation."""
        from ducklake_core.view_sql.parsing import CATALOG

        schemas = split_path(relation.schema) if relation.schema is not None else (None,)
        # A column may be qualified by the table, by schema and table, or by lake, schema and table.
        names = (CATALOG, *schemas, relation.alias)
        for taken in range(1, min(len(parts), len(names) + 1)):
            wanted = names[-taken:]
            if all(own is not None and same_name(own, part) for own, part in zip(wanted, parts[:taken], strict=True)):
                yield taken

    def _unqualified(self, parts: tuple[str, ...]) -> list[Typed]:
        merged = self.merged.get(folded(parts[0]))
        if merged is not None:
            for relation in self.relations:
                for column in relation.find(parts[0]):
                    relation.touched(column)
            return self._fields(None, [merged], parts[1:])
        return [
            reading
            for relation in self.relations
            for reading in self._fields(relation, [c for c in relation.find(parts[0]) if c.sql not in self.hidden], parts[1:])
        ]

    def _variant(self, parts: tuple[str, ...]) -> str | None:
        """Return the variant that a name is a part of; None for other names."""
        for relation in self.relations:
            for taken in (0, *self._qualified(relation, parts)):
                inner = len(parts) > taken + 1
                if inner and any(column.type == VARIANT for column in relation.find(parts[taken])):
                    return parts[taken]
        return None

    def _fields(self, relation: Relation | None, columns: list[OutputColumn], rest: tuple[str, ...]) -> list[Typed]:
        readings = []
        for column in columns:
            typed = column.typed
            if rest and not isinstance(typed.type, StructType):
                continue
            for name in rest:
                typed = struct_field(typed, name)
            if relation is not None:
                relation.touched(column)
            readings.append(typed)
        return readings


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
        """Return an identifier that nothing else has."""
        # Generated names need no quoting, and no two relations of a join have the same.
        self._count += 1
        return f"c{self._count}"

    def find(self, schema: str | None, name: str, own_schema: str) -> TableState | ViewState:
        """Return the table or view of a name, without a schema in that of the view or in ``main``.

        Raises:
            Rejected: The name is unknown, or a table of both schemas.
        """
        if schema == OTHER_SNAPSHOTS and name in self._then:
            return self._then[name]
        found = find_relations(self._reader, schema, name, own_schema, self._snapshot_id)
        if len(found) != 1:
            if found:
                raise Rejected(f"{name!r} is a table of several schemas")
            near = similar_entries(schema or own_schema, name, self._reader.table_names(self._snapshot_id).values())
            raise Rejected(f"{name!r} is not a table of the lake at that snapshot{near}")
        return found[0]

    def relation(self, table: TableState, alias: str | None, names: tuple[str, ...] = ()) -> tuple[str, Relation]:
        """Return one reference to a table: its text for FROM, and its columns."""
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
                raise Rejected("it reads file_index, which is only defined for a single scan")
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
        # Spark's session puts the scan in place of the braces.
        return "{" + source.key + "}", relation


def renamed(columns: tuple[OutputColumn, ...], names: tuple[str, ...]) -> tuple[OutputColumn, ...]:
    """Return the columns with other names, of the first ones at least.

    Raises:
        Rejected: More names than columns.
    """
    if len(names) > len(columns):
        raise Rejected(f"it names {len(names)} columns of {len(columns)}")
    first = tuple(OutputColumn(name=name, sql=column.sql, type=column.type) for name, column in zip(names, columns, strict=False))
    return first + columns[len(names) :]
