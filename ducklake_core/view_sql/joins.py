"""FROM: tables, views, queries, VALUES, and joins of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.format.state import TableState
from ducklake_core.format.types.names import folded
from ducklake_core.format.view_text import table_names
from ducklake_core.view_sql.casts import cast
from ducklake_core.view_sql.expressions import Expressions
from ducklake_core.view_sql.operators import compared_type
from ducklake_core.view_sql.parsing import only, shown
from ducklake_core.view_sql.scopes import OutputColumn, Query, Relation, Scope
from ducklake_core.view_sql.sources import Sources, renamed
from ducklake_core.view_sql.typed import Refused, common_type

Named = Callable[[exp.Table], Query | TableState]
"""The meaning of a name in FROM: a table of the lake, or the query of a CTE or view."""


@dataclass(slots=True, kw_only=True)
class FromClause:
    """Builds the text and the names of one FROM clause.

    Attributes:
        sources: Where tables are noted.
        scope: What its relations are added to.
        named: Finds tables, views and CTEs.
        subquery: Translates a query in FROM.
        expressions: Translates conditions of joins.
        only_inner: Whether every row comes of rows that fulfil WHERE in each relation.
    """

    sources: Sources
    scope: Scope
    named: Named
    subquery: Callable[[exp.Expression], Query]
    expressions: Expressions
    only_inner: bool = True

    def text(self, first: exp.Expression, joins: list[exp.Join]) -> str:
        """The clause without the word FROM."""
        sql = self._added(first)
        has_comma = False
        for join in joins:
            only(join, "this", "on", "using", "kind", "side", "method")
            side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
            method = str(join.args.get("method") or "").upper()
            if method not in ("", "NATURAL") or kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
                raise Refused(f"it has a {method or kind} join")
            conditioned = bool(join.args.get("on") is not None or join.args.get("using") or method)
            if has_comma and side in ("RIGHT", "FULL"):
                raise Refused(f"it has a {side} join after a comma")
            has_comma = has_comma or not (conditioned or kind or side)
            word = "LEFT " + kind if kind in ("SEMI", "ANTI") else side or ("INNER" if conditioned else "CROSS")
            self.only_inner = self.only_inner and word in ("INNER", "CROSS")
            sql = self._joined(sql, join, word)
        return sql

    def _joined(self, left: str, join: exp.Join, word: str) -> str:
        before = list(self.scope.relations)
        right = self._added(join.this)
        new = self.scope.relations[-1]
        condition = ""
        if join.args.get("on") is not None:
            condition = f" ON {self.expressions.condition(join.args['on'])}"
        elif join.args.get("using") or join.args.get("method"):
            names = [name.name for name in join.args.get("using") or ()] or self._shared(before, new)
            condition = " ON " + " AND ".join(self._merge(name, before, new, word) for name in names)
        elif word != "CROSS":
            raise Refused(f"it has a {word} join without a condition")
        if word in ("LEFT SEMI", "LEFT ANTI"):
            self.scope.relations.pop()
        return f"{left} {word} JOIN {right}{condition}"

    def _shared(self, before: list[Relation], new: Relation) -> list[str]:
        """Names of a NATURAL join."""
        left = [column.name for relation in before for column in relation.columns if column.name is not None]
        names = [c.name for c in new.columns if c.name is not None and any(same_name(c.name, other) for other in left)]
        if not names or any(column.name is None for relation in (*before, new) for column in relation.columns):
            raise Refused("it has a NATURAL join of relations without names in common")
        return names

    def _merge(self, name: str, before: list[Relation], new: Relation, word: str) -> str:
        """One column of USING: its condition, and which side the name means from then on."""
        merged = self.scope.merged.get(folded(name))
        lefts = [(r, c) for r in before for c in r.find(name) if c.sql not in self.scope.hidden]
        rights = new.find(name)
        if len(rights) != 1 or (len(lefts) != 1 and merged is None):
            raise Refused(f"it joins using {name!r}, which is not one column on each side")
        if merged is not None and word in ("RIGHT", "FULL"):
            raise Refused(f"it has a {word} join using {name!r} after another join using it")
        (right,) = rights
        new.touched(right)
        for relation, column in lefts:
            relation.touched(column)
        left = merged or lefts[0][1]
        kind = compared_type((left.typed, right.typed))
        equal = f"({cast(left.typed, kind).sql} = {cast(right.typed, kind).sql})"
        if word in ("LEFT SEMI", "LEFT ANTI"):
            return equal
        self.scope.hidden.add(right.sql)
        if word == "RIGHT":
            self.scope.merged[folded(name)] = OutputColumn(name=left.name, sql=right.sql, type=right.type)
        elif word == "FULL":
            both = f"coalesce({cast(left.typed, kind).sql}, {cast(right.typed, kind).sql})"
            self.scope.merged[folded(name)] = OutputColumn(name=left.name, sql=both, type=kind)
        else:
            self.scope.merged[folded(name)] = left
        return equal

    def _added(self, node: exp.Expression) -> str:
        sql, relation = self._relation(node)
        if relation.alias is not None and any(
            own.alias is not None and same_name(own.alias, relation.alias) and own.schema == relation.schema for own in self.scope.relations
        ):
            raise Refused(f"it reads two relations called {relation.alias!r}")
        self.scope.relations.append(relation)
        return sql

    def _relation(self, node: exp.Expression) -> tuple[str, Relation]:
        match node:
            case exp.Table() if table_names(node):
                only(node, "this", "db", "catalog", "alias")
                names = tuple(node.alias_column_names)
                found = self.named(node)
                alias = node.alias or None
                if isinstance(found, TableState):
                    return self.sources.relation(found, alias, names)
                return self._query(found, alias or node.name, names)
            case exp.Table():
                raise Refused(f"it reads {shown(node.this)}, which is not a table of the lake")
            case exp.Subquery():
                only(node, "this", "alias")
                if isinstance(node.this, exp.Table):
                    raise Refused("it has a join in brackets")
                return self._query(self.subquery(node.this), node.alias or None, tuple(node.alias_column_names))
            case exp.Values():
                only(node, "expressions", "alias")
                return self._query(values(node, self.expressions, self.sources), node.alias or None, tuple(node.alias_column_names))
            case _:
                raise Refused(f"it reads {shown(node)}")

    def _query(self, query: Query, alias: str | None, names: tuple[str, ...]) -> tuple[str, Relation]:
        return f"({query.sql})", Relation(alias=alias, columns=renamed(query.columns, names))


def values(node: exp.Values, expressions: Expressions, sources: Sources) -> Query:
    """VALUES: columns ``col0``, ``col1`` and so on, of the types that all rows have in common."""
    rows = [[expressions.typed(item) for item in (row.expressions if isinstance(row, exp.Tuple) else [row])] for row in node.expressions]
    if len({len(row) for row in rows}) != 1:
        raise Refused("it has VALUES of different lengths")
    kinds = [common_type(column) for column in zip(*rows, strict=True)]
    columns = tuple(OutputColumn(name=f"col{i}", sql=sources.fresh(), type=kind) for i, kind in enumerate(kinds))
    lines = [
        "SELECT " + ", ".join(f"{cast(item, column.type).sql} AS {column.sql}" for item, column in zip(row, columns, strict=True))
        for row in rows
    ]
    return Query(sql=" UNION ALL ".join(lines), columns=columns)
