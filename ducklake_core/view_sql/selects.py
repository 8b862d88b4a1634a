"""SELECT: from its clauses to one Spark query whose sort keys and conditions on windows are columns of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp

from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.format.state import TableState
from ducklake_core.format.types.names import folded
from ducklake_core.view_sql.expressions import Expressions
from ducklake_core.view_sql.grouping import Grouping, Keys, grouping_of, grouping_sets
from ducklake_core.view_sql.joins import FromClause
from ducklake_core.view_sql.parsing import only, shown
from ducklake_core.view_sql.pushdown import push_conditions
from ducklake_core.view_sql.scopes import OutputColumn, Query, Scope
from ducklake_core.view_sql.sources import Sources
from ducklake_core.view_sql.typed import Refused, Typed, is_comparable, spark_name
from ducklake_core.view_sql.windows import sort_key


class Surroundings(Protocol):
    """The services that a SELECT needs of the queries around it."""

    def query(self, node: exp.Expression, outer: Scope | None) -> Query:
        """Translates a query within this one."""

    def named(self, table: exp.Table) -> Query | TableState:
        """Resolve a name in FROM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """One expression of the SELECT list."""

    name: str | None
    typed: Typed
    has_aggregate: bool
    node: exp.Expression


@dataclass(slots=True, kw_only=True)
class Select:
    """One SELECT.

    Attributes:
        queries: Translates what is within.
        sources: What is read.
        node: The parsed SELECT.
        outer: Names of the query around it.
    """

    queries: Surroundings
    sources: Sources
    node: exp.Select
    outer: Scope | None
    items: list[_Item] = field(default_factory=list)

    def translated(self) -> Query:
        """The query in Spark SQL."""
        node = self.node
        only(node, "with", "expressions", "from", "joins", "where", "group", "having", "qualify", "windows", "distinct", "order",
             "limit", "offset")  # fmt: skip
        scope = Scope(outer=self.outer)
        windows: Mapping[str, exp.Window] = {window.name.lower(): window for window in node.args.get("windows") or ()}
        sets = grouping_sets(node.args.get("group"))
        here = self.sources.fresh() if sets is not None and () in sets else None
        texts = Expressions(
            scope=scope, subquery=self.queries.query, macros=self.sources.macros, windows=windows, sets=sets is not None, here=here
        )
        source, is_inner = self._from(scope, texts)
        self._list(scope, texts)
        where = self._clause("where", texts, scope, "column")
        if where and is_inner:
            push_conditions(node.args["where"].this, scope, self.sources)
        grouping = None if sets is None else self._grouping(sets, scope, texts)
        group = self._group(scope, texts) if grouping is None else grouping.clause
        having = self._clause("having", texts, scope, "either")
        qualify = self._clause("qualify", texts, scope, "either")
        keys = self._keys(scope, texts)
        columns = tuple(OutputColumn(name=item.name, sql=self.sources.fresh(), type=item.typed.type) for item in self.items)
        rows = f"{source}{f' WHERE {where}' if where else ''}"
        if grouping is not None:
            above = [*(item.typed.sql for item in self.items), having, qualify, *(key.sql for key, *_ in keys)]
            rows = grouping.source(rows, scope, above)
            having, qualify = self._above_sets(grouping, having, qualify)
        body = f"{rows}{group or ''}{f' HAVING {having}' if having else ''}"
        sql = self._outermost(columns, body, qualify, keys)
        single = group is None and texts.aggregates > 0 and not having and not node.args.get("limit") and not node.args.get("offset")
        return Query(sql=sql, columns=columns, correlated=scope.uses_outer, single_row=single)

    def _from(self, scope: Scope, texts: Expressions) -> tuple[str, bool]:
        clause = self.node.args.get("from_") or self.node.args.get("from")
        if clause is None:
            return "", False
        reads = FromClause(
            sources=self.sources,
            scope=scope,
            named=self.queries.named,
            expressions=texts,
            subquery=lambda node: self.queries.query(node, None),
        )
        return f" FROM {reads.text(clause.this, self.node.args.get('joins') or [])}", reads.only_inner

    def _list(self, scope: Scope, texts: Expressions) -> None:
        """The SELECT list, stars expanded; a name that it gives may be used to its right."""
        for node in self.node.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                self._star(node, scope, texts)
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            before = texts.aggregates
            typed = texts.typed(inner)
            name = node.alias if isinstance(node, exp.Alias) else _own_name(inner)
            self.items.append(_Item(name=name, typed=typed, has_aggregate=texts.aggregates > before, node=inner))
            if isinstance(node, exp.Alias):
                scope.aliases.setdefault(folded(node.alias), typed)

    def _star(self, node: exp.Expression, scope: Scope, texts: Expressions) -> None:
        star = node if isinstance(node, exp.Star) else node.this
        qualifier = node.table if isinstance(node, exp.Column) else None
        if isinstance(node, exp.Column):
            only(node, "this", "table")
        excluded = [name.name for name in star.args.get("except_") or star.args.get("except") or ()]
        replaced = {folded(item.alias): item.this for item in star.args.get("replace") or ()}
        only(star, "except", "replace")
        for column in scope.star(qualifier):
            if column.name is not None and any(same_name(column.name, name) for name in excluded):
                continue
            other = replaced.pop(folded(column.name or ""), None)
            before = texts.aggregates
            typed = column.typed if other is None else texts.typed(other)
            node = exp.column(column.name or "", quoted=True)
            self.items.append(_Item(name=column.name, typed=typed, has_aggregate=texts.aggregates > before, node=node))
        if replaced:
            raise Refused(f"it replaces {', '.join(replaced)}, which * does not have")

    def _clause(self, key: str, texts: Expressions, scope: Scope, rule: str) -> str:
        clause = self.node.args.get(key)
        if clause is None:
            return ""
        scope.alias_rule = rule
        return texts.condition(clause.this)

    def _group(self, scope: Scope, texts: Expressions) -> str | None:
        clause = self.node.args.get("group")
        if clause is None:
            return None
        only(clause, "expressions", "all")
        scope.alias_rule = "column"
        if clause.args.get("all"):
            keys = [item.typed for item in self.items if not item.has_aggregate]
        else:
            keys = [self._position(part) or texts.typed(part) for part in clause.expressions if not _is_empty(part)]
        for key in keys:
            if not is_comparable(key.type):
                raise Refused(f"it groups by values of type {key.type}")
        # A bare number would be a position.
        listed = [key.sql if key.constant is None else f"CAST({key.sql} AS {spark_name(key.type)})" for key in keys]
        return f" GROUP BY {', '.join(dict.fromkeys(listed))}" if listed else None

    def _grouping(self, sets: Sequence[Keys], scope: Scope, texts: Expressions) -> Grouping:
        """The sets of ROLLUP, CUBE and GROUPING SETS."""
        scope.alias_rule = "column"

        def key(node: exp.Expression) -> Typed:
            found = self._position(node) or texts.typed(node)
            if not is_comparable(found.type):
                raise Refused(f"it groups by values of type {found.type}")
            return found

        return grouping_of(sets, key, texts.here)

    def _above_sets(self, grouping: Grouping, having: str, qualify: str) -> tuple[str, str]:
        """HAVING and QUALIFY in Spark: it does not find keys of sets in HAVING, so that conditions are tested above the groups."""
        has_windows = self.node.find(exp.Window) is not None
        if having and has_windows:
            raise Refused("it has HAVING and windows over ROLLUP, CUBE or GROUPING SETS")
        if not grouping.has_twins:
            return grouping.is_group, qualify or having
        if has_windows and grouping.is_group:
            raise Refused("it has windows over a grouping set that is there twice")
        return "", " AND ".join(f"({test})" for test in (grouping.is_group, qualify or having) if test)

    def _position(self, node: exp.Expression) -> Typed | None:
        """The expression that a bare number in GROUP BY or ORDER BY counts to."""
        if not isinstance(node, exp.Literal) or node.is_string:
            return None
        if not node.name.isdigit() or not 1 <= int(node.name) <= len(self.items):
            raise Refused(f"it has {node.name} for a position among {len(self.items)} columns")
        return self.items[int(node.name) - 1].typed

    def _keys(self, scope: Scope, texts: Expressions) -> list[tuple[Typed, bool, bool]]:
        """Sort keys, whether they descend, and whether NULLs come first."""
        order = self.node.args.get("order")
        if order is None:
            return []
        keys = []
        for item in order.expressions:
            if not isinstance(item, exp.Ordered):
                raise Refused(f"it sorts by {shown(item)}")
            only(item, "this", "desc", "nulls_first")
            direction = bool(item.args.get("desc")), bool(item.args.get("nulls_first"))
            if _is_all(item.this):
                keys += [(own.typed, *direction) for own in self.items]
                continue
            scope.alias_rule = "alias" if isinstance(item.this, exp.Column) and not item.this.table else "either"
            keys.append((self._position(item.this) or texts.typed(item.this), *direction))
        return keys

    def _outermost(self, columns: tuple[OutputColumn, ...], body: str, qualify: str, keys: list[tuple[Typed, bool, bool]]) -> str:
        items = [f"{item.typed.sql} AS {column.sql}" for item, column in zip(self.items, columns, strict=True)]
        distinct = self._distinct(columns)
        limit = limits(self.node)
        if not (qualify or keys or distinct or limit):
            return f"SELECT {', '.join(items)}{body}"
        outputs = {item.typed.sql: column.sql for item, column in zip(self.items, columns, strict=True)}
        sorted_by = []
        for key, descending, nulls_first in keys:
            sql = outputs.get(key.sql)
            if sql is None:
                if distinct:
                    raise Refused("it sorts DISTINCT rows by something else than their columns")
                sql = outputs[key.sql] = self.sources.fresh()
                items.append(f"{key.sql} AS {sql}")
            sorted_by.append(sort_key(Typed(sql=sql, type=key.type), descending=descending, nulls_first=nulls_first))
        kept = ""
        if qualify:
            test = self.sources.fresh()
            items.append(f"{qualify} AS {test}")
            kept = f" WHERE {test}"
        order = f" ORDER BY {', '.join(sorted_by)}" if sorted_by else ""
        listed = ", ".join(column.sql for column in columns)
        return f"SELECT {distinct}{listed} FROM (SELECT {', '.join(items)}{body}){kept}{order}{limit}"

    def _distinct(self, columns: tuple[OutputColumn, ...]) -> str:
        distinct = self.node.args.get("distinct")
        if distinct is None:
            return ""
        if distinct.args.get("on") is not None:
            raise Refused("it has DISTINCT ON")
        for column in columns:
            if not is_comparable(column.type):
                raise Refused(f"it has DISTINCT of values of type {column.type}")
        return "DISTINCT "


def _own_name(node: exp.Expression) -> str | None:
    """The name of a column that was given none; None for one that only the written text tells."""
    match node:
        case exp.Column() | exp.Dot() if not isinstance(node, exp.Dot) or isinstance(node.expression, exp.Identifier):
            return node.name
        case _:
            return None


def _is_empty(node: exp.Expression) -> bool:
    return isinstance(node, exp.Tuple) and not node.expressions


def _is_all(node: exp.Expression) -> bool:
    """ORDER BY ALL, which DuckDB stores as COLUMNS(*)."""
    if isinstance(node, exp.Var):
        return node.name.upper() == "ALL"
    is_columns = isinstance(node, exp.Anonymous) and node.name.lower() == "columns" and len(node.expressions) == 1
    return is_columns and isinstance(node.expressions[0], exp.Star) and not any(node.expressions[0].args.values())


def limits(node: exp.Expression) -> str:
    """LIMIT and OFFSET with constants."""
    text = ""
    for key, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = node.args.get(key)
        if clause is None:
            continue
        only(clause, "expression")
        number = clause.expression
        while isinstance(number, exp.Paren):
            number = number.this
        if not isinstance(number, exp.Literal) or not number.name.isdigit() or int(number.name) >= 2**31:
            raise Refused(f"it has {word} with other than a constant number of rows")
        text += f" {word} {number.name}"
    return text
