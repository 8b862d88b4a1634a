"""Queries: SELECT, set operations, WITH, and views within views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from ducklake_core.catalog.reading.views import ViewState
from ducklake_core.format.state import TableState
from ducklake_core.format.types.names import folded
from ducklake_core.format.view_text import table_names
from ducklake_core.view_sql.casts import cast
from ducklake_core.view_sql.expressions import Expressions
from ducklake_core.view_sql.joins import values
from ducklake_core.view_sql.parsing import only, parse_query, schema_and_name, shown, written_columns
from ducklake_core.view_sql.scopes import OutputColumn, Query, Scope
from ducklake_core.view_sql.selects import Select, limits
from ducklake_core.view_sql.sources import Sources, renamed
from ducklake_core.view_sql.typed import Refused, Typed, common_type, is_comparable
from ducklake_core.view_sql.windows import order_item

_SETS: dict[Any, str] = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}
_DEEPEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Cte:
    """A query of a WITH clause, to be translated anew for each reference."""

    query: exp.Expression
    names: tuple[str, ...]
    ctes: Mapping[str, Cte]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Translates queries of one view.

    Attributes:
        sources: What is read.
        view: The view.
        above: Ids of the views that are being translated.
        ctes: Queries that names mean before tables do.
        depth: How many queries are around.
    """

    sources: Sources
    view: ViewState
    above: frozenset[int] = frozenset()
    ctes: Mapping[str, Cte] = field(default_factory=dict)
    depth: int = 0

    def whole_view(self) -> Query:
        """The view's own query, with the names that it gives its columns.

        Raises:
            Refused: It cannot be translated.
        """
        if self.view.dialect.lower() != "duckdb":
            raise Refused(f"its dialect is {self.view.dialect!r}")
        if self.view.id in self.above:
            raise Refused("it reads itself")
        inner = replace(self, above=self.above | {self.view.id})
        query = inner.query(parse_query(self.view.sql), None)
        written = written_columns(self.view.sql)
        if len(written) == len(query.columns):
            named = zip(query.columns, written, strict=True)
            query = replace(query, columns=tuple(c if c.name is not None else replace(c, name=text) for c, text in named))
        return replace(query, columns=renamed(query.columns, self.view.column_aliases))

    def query(self, node: exp.Expression, outer: Scope | None) -> Query:
        """Any query."""
        if self.depth > _DEEPEST:
            raise Refused("its queries are nested too deep")
        clause = node.args.get("with_") or node.args.get("with")
        queries = replace(self, ctes=self._with(clause) if clause is not None else self.ctes, depth=self.depth + 1)
        match node:
            case exp.Subquery():
                only(node, "this", "with")
                return queries.query(node.this, outer)
            case exp.Select():
                return Select(queries=queries, sources=self.sources, node=node, outer=outer).translated()
            case exp.SetOperation():
                return queries.set_operation(node, outer)
            case exp.Values():
                only(node, "expressions")
                return values(node, queries.expressions(Scope(outer=outer)), self.sources)
            case exp.Table():
                raise Refused(f"it has {shown(node)} for a query")
            case _:
                raise Refused(f"it is a {type(node).__name__.upper()}, not a query")

    def expressions(self, scope: Scope) -> Expressions:
        """A translator of expressions over some names."""
        return Expressions(scope=scope, subquery=self.query, macros=self.sources.macros)

    def _with(self, clause: exp.With) -> Mapping[str, Cte]:
        if clause.args.get("recursive"):
            raise Refused("it has WITH RECURSIVE")
        known = dict(self.ctes)
        for cte in clause.expressions:
            only(cte, "this", "alias", "materialized")
            known[folded(cte.alias)] = Cte(query=cte.this, names=tuple(cte.alias_column_names), ctes=dict(known))
        return known

    def named(self, table: exp.Table) -> Query | TableState:
        """Resolve a name in FROM."""
        if len(table_names(table)) == 1 and folded(table.name) in self.ctes:
            cte = self.ctes[folded(table.name)]
            query = replace(self, ctes=cte.ctes, depth=self.depth + 1).query(cte.query, None)
            return replace(query, columns=renamed(query.columns, cte.names))
        found = self.sources.find(*schema_and_name(table), self.view.schema_name)
        if isinstance(found, TableState):
            return found
        inner = Queries(sources=self.sources, view=found, above=self.above, depth=self.depth + 1)
        try:
            return inner.whole_view()
        except Refused as problem:
            raise Refused(f"it reads {found.schema_name}.{found.name}, and that: {problem}") from problem

    def set_operation(self, node: exp.Expression, outer: Scope | None) -> Query:
        """UNION, EXCEPT or INTERSECT, with ALL or without."""
        only(node, "this", "expression", "distinct", "order", "limit", "offset", "with")
        sides = [self.query(side, outer) for side in (node.this, node.expression)]
        widths = [len(side.columns) for side in sides]
        if widths[0] != widths[1]:
            raise Refused(f"it puts {widths[0]} columns beside {widths[1]}")
        word = f"{_SETS[type(node)]}{'' if node.args.get('distinct') else ' ALL'}"
        columns = []
        for left, right in zip(*(side.columns for side in sides), strict=True):
            kind = common_type((left.typed, right.typed))
            if word != "UNION ALL" and not is_comparable(kind):
                raise Refused(f"it has {word} of values of type {kind}")
            columns.append(OutputColumn(name=left.name, sql=self.sources.fresh(), type=kind))
        texts = [_selected(side, columns) for side in sides]
        query = Query(sql=f"({texts[0]}) {word} ({texts[1]})", columns=tuple(columns), correlated=any(side.correlated for side in sides))
        return self._ordered(node, query)

    def _ordered(self, node: exp.Expression, query: Query) -> Query:
        """ORDER BY names or positions, LIMIT and OFFSET of a set operation."""
        if not any(node.args.get(key) for key in ("order", "limit", "offset")):
            return query
        keys = [order_item(item, _output(item.this, query)) for item in (node.args["order"].expressions if node.args.get("order") else ())]
        order = f" ORDER BY {', '.join(keys)}" if keys else ""
        sql = f"SELECT {', '.join(c.sql for c in query.columns)} FROM ({query.sql}){order}{limits(node)}"
        return replace(query, sql=sql)


def _selected(query: Query, columns: list[OutputColumn]) -> str:
    items = []
    for own, column in zip(query.columns, columns, strict=True):
        sql = own.sql if own.type == column.type else cast(own.typed, column.type).sql
        items.append(f"{sql} AS {column.sql}")
    return f"SELECT {', '.join(items)} FROM ({query.sql})"


def _output(node: exp.Expression, query: Query) -> Typed:
    """The column of a result that a key of its order names."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and 1 <= int(node.name) <= len(query.columns):
        return query.columns[int(node.name) - 1].typed
    if isinstance(node, exp.Column) and not node.table:
        found = [column for column in query.columns if column.name is not None and folded(column.name) == folded(node.name)]
        if len(found) == 1:
            return found[0].typed
    raise Refused(f"it sorts the rows of a set operation by {shown(node)}")
