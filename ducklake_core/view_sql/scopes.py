"""Which column a name means: relations of a query, names of columns, and the query around it.

Every column of every relation gets an identifier of its own in Spark's text, so that Spark never has a name to resolve in
another way than DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.format.types.data_types import VARIANT, DataType, StructType
from ducklake_core.format.types.names import folded, split_path
from ducklake_core.view_sql.functions import field as struct_field
from ducklake_core.view_sql.typed import Refused, Typed


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputColumn:
    """A column of a relation or query.

    Attributes:
        name: As DuckDB names it; None where that cannot be told.
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
        touched: Is told of columns that are used.
    """

    alias: str | None
    schema: str | None = None
    columns: tuple[OutputColumn, ...]
    virtual: Callable[[str], OutputColumn | None] = lambda _: None
    touched: Callable[[OutputColumn], None] = lambda _: None

    def find(self, name: str) -> list[OutputColumn]:
        """Columns of that name."""
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
        aliases: Expressions of the SELECT list by folded name, as far as they are known.
        alias_rule: What a name means that is both: ``column``, ``alias``, or ``either``, which refuses it.
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
        """Columns of ``*`` or ``relation.*``."""
        relations = [own for own in self.relations if qualifier is None or (own.alias is not None and same_name(own.alias, qualifier))]
        if not relations or (qualifier is not None and len(relations) > 1):
            raise Refused(f"it selects * from {qualifier or 'nothing'}")
        for relation in relations:
            for column in relation.columns:
                if qualifier is not None or column.sql not in self.hidden:
                    relation.touched(column)
                    merged = self.merged.get(folded(column.name or "")) if qualifier is None else None
                    yield merged if merged is not None and column.sql not in self.hidden else column

    def column(self, parts: tuple[str, ...]) -> Typed:
        """Resolve a name with dots.

        Raises:
            Refused: Nothing, or more than one thing.
        """
        found = self._here(parts)
        alias = self.aliases.get(folded(parts[0])) if len(parts) == 1 else None
        if alias is not None and found and self.alias_rule != "column" and found[0] != alias:
            if self.alias_rule == "either":
                raise Refused(f"the name {parts[0]!r} is a column and another expression")
            return alias
        if found:
            if len(found) > 1:
                raise Refused(f"the name {'.'.join(parts)!r} means more than one column")
            return found[0]
        if alias is not None:
            return alias
        variant = self._variant(parts)
        if variant is not None:
            raise Refused(f"{'.'.join(parts)!r} is a part of the variant {variant!r}, and only DuckDB takes parts of variants")
        if self.outer is not None:
            self.uses_outer = True
            return self.outer.column(parts)
        raise Refused(f"there is no column {'.'.join(parts)!r}")

    def _here(self, parts: tuple[str, ...]) -> list[Typed]:
        """Every reading of a name: relation and column, column and fields."""
        readings: list[Typed] = []
        for relation in self.relations:
            for taken in self._qualified(relation, parts):
                readings += self._fields(relation, relation.find(parts[taken]), parts[taken + 1 :])
        if not readings or len(parts) > 1:
            readings += self._unqualified(parts)
        return list(dict.fromkeys(readings))

    def _qualified(self, relation: Relation, parts: tuple[str, ...]) -> Iterator[int]:
        """How many parts name the relation, where they do."""
        from ducklake_core.view_sql.parsing import CATALOG

        schemas = split_path(relation.schema) if relation.schema is not None else (None,)
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
        """The variant of which a name is a part, None for none."""
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
