"""Translate queries: SELECT, FROM with joins, set operations, WITH, and views within views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from sqlglot import exp

from ducklake_core.catalog.reading.definitions import ViewState
from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.format.macros import table_names
from ducklake_core.format.state import TableState
from ducklake_core.format.types.names import folded
from ducklake_core.view_sql.clauses import Grouping, Keys, grouping_of, grouping_sets, order_item, push_conditions, sort_key
from ducklake_core.view_sql.expressions import Expressions
from ducklake_core.view_sql.operators import cast, compared_type
from ducklake_core.view_sql.parsing import only, parse_query, schema_and_name, shown, written_columns
from ducklake_core.view_sql.scopes import OutputColumn, Query, Relation, Scope, Sources, renamed
from ducklake_core.view_sql.typed import Rejected, Typed, common_type, is_comparable, spark_name

_SETS: dict[Any, str] = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}
_DEEPEST = 60

Named = Callable[[exp.Table], Query | TableState]
"""The meaning of a name in FROM: a table of the lake, or the query of a CTE or view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cte:
    """A query of a WITH clause, translated again for each reference."""

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
        """Return the view's own query, with the names that it gives its columns.

        Raises:
            Rejected: It cannot be translated.
        """
        if self.view.dialect.lower() != "duckdb":
            raise Rejected(f"its dialect is {self.view.dialect!r}")
        if self.view.id in self.above:
            raise Rejected("it reads itself")
        inner = replace(self, above=self.above | {self.view.id})
        query = inner.query(parse_query(self.view.sql), None)
        written = written_columns(self.view.sql)
        if len(written) == len(query.columns):
            named = zip(query.columns, written, strict=True)
            query = replace(query, columns=tuple(c if c.name is not None else replace(c, name=text) for c, text in named))
        return replace(query, columns=renamed(query.columns, self.view.column_aliases))

    def query(self, node: exp.Expression, outer: Scope | None) -> Query:
        """Translate any query."""
        if self.depth > _DEEPEST:
            raise Rejected("its queries are nested too deeply")
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
                raise Rejected(f"it uses {shown(node)} as a query")
            case _:
                raise Rejected(f"it is a {type(node).__name__.upper()}, not a query")

    def expressions(self, scope: Scope) -> Expressions:
        """Return a translator of expressions over some names."""
        return Expressions(scope=scope, subquery=self.query, macros=self.sources.macros)

    def _with(self, clause: exp.With) -> Mapping[str, Cte]:
        if clause.args.get("recursive"):
            raise Rejected("it has WITH RECURSIVE")
        known = dict(self.ctes)
        for cte in clause.expressions:
            only(cte, "this", "alias", "materialized")
            known[folded(cte.alias)] = Cte(query=cte.this, names=tuple(cte.alias_column_names), ctes=dict(known))
        return known

    def named(self, table: exp.Table) -> Query | TableState:
        """Resolve a name in FROM."""
        if len(table_names(table)) == 1 and folded(table.name) in self.ctes:
            # Translated again for every reference, each with identifiers of its own.
            cte = self.ctes[folded(table.name)]
            query = replace(self, ctes=cte.ctes, depth=self.depth + 1).query(cte.query, None)
            return replace(query, columns=renamed(query.columns, cte.names))
        found = self.sources.find(*schema_and_name(table), self.view.schema_name)
        if isinstance(found, TableState):
            return found
        inner = Queries(sources=self.sources, view=found, above=self.above, depth=self.depth + 1)
        try:
            return inner.whole_view()
        except Rejected as problem:
            raise Rejected(f"it reads view {found.schema_name}.{found.name}, which is not supported: {problem}") from problem

    def set_operation(self, node: exp.Expression, outer: Scope | None) -> Query:
        """Translate UNION, EXCEPT or INTERSECT, with ALL or without."""
        only(node, "this", "expression", "distinct", "order", "limit", "offset", "with")
        sides = [self.query(side, outer) for side in (node.this, node.expression)]
        widths = [len(side.columns) for side in sides]
        if widths[0] != widths[1]:
            raise Rejected(f"it puts {widths[0]} columns next to {widths[1]}")
        word = f"{_SETS[type(node)]}{'' if node.args.get('distinct') else ' ALL'}"
        columns = []
        for left, right in zip(*(side.columns for side in sides), strict=True):
            kind = common_type((left.typed, right.typed))
            if word != "UNION ALL" and not is_comparable(kind):
                raise Rejected(f"it has {word} of values of type {kind}")
            columns.append(OutputColumn(name=left.name, sql=self.sources.fresh(), type=kind))
        queries = [_selected(side, columns) for side in sides]
        query = Query(
            sql=f"({queries[0]}) {word} ({queries[1]})", columns=tuple(columns), correlated=any(side.correlated for side in sides)
        )
        return self._ordered(node, query)

    def _ordered(self, node: exp.Expression, query: Query) -> Query:
        """Translate ORDER BY names or positions, LIMIT and OFFSET of a set operation."""
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
    """Return the column of a result that a key of its order names."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and 1 <= int(node.name) <= len(query.columns):
        return query.columns[int(node.name) - 1].typed
    if isinstance(node, exp.Column) and not node.table:
        found = [column for column in query.columns if column.name is not None and folded(column.name) == folded(node.name)]
        if len(found) == 1:
            return found[0].typed
    raise Rejected(f"it sorts the rows of a set operation by {shown(node)}")


class Surroundings(Protocol):
    """The services that a SELECT needs of the queries around it."""

    def query(self, node: exp.Expression, outer: Scope | None) -> Query:
        """Translate a query within this one."""

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
        """Return the query in Spark SQL."""
        node = self.node
        only(node, "with", "expressions", "from", "joins", "where", "group", "having", "qualify", "windows", "distinct", "order",
             "limit", "offset")  # fmt: skip
        scope = Scope(outer=self.outer)
        windows: Mapping[str, exp.Window] = {window.name.lower(): window for window in node.args.get("windows") or ()}
        sets = grouping_sets(node.args.get("group"))
        here = self.sources.fresh() if sets is not None and () in sets else None
        expressions = Expressions(
            scope=scope, subquery=self.queries.query, macros=self.sources.macros, windows=windows, sets=sets is not None, here=here
        )
        # In the order in which DuckDB binds names: FROM makes the relations and the list its aliases; alias_rule decides for each later
        # clause whether a name means a column or an alias. Tables note every column that is used on the way.
        source, is_inner = self._from(scope, expressions)
        self._list(scope, expressions)
        where = self._clause("where", expressions, scope, "column")
        if where and is_inner:
            push_conditions(node.args["where"].this, scope, self.sources)
        grouping = None if sets is None else self._grouping(sets, scope, expressions)
        group = self._group(scope, expressions) if grouping is None else grouping.clause
        having = self._clause("having", expressions, scope, "either")
        qualify = self._clause("qualify", expressions, scope, "either")
        keys = self._keys(scope, expressions)
        columns = tuple(OutputColumn(name=item.name, sql=self.sources.fresh(), type=item.typed.type) for item in self.items)
        rows = f"{source}{f' WHERE {where}' if where else ''}"
        if grouping is not None:
            above = [*(item.typed.sql for item in self.items), having, qualify, *(key.sql for key, *_ in keys)]
            rows = grouping.source(rows, scope, above)
            having, qualify = self._above_sets(grouping, having, qualify)
        body = f"{rows}{group or ''}{f' HAVING {having}' if having else ''}"
        sql = self._outermost(columns, body, qualify, keys)
        # An aggregate without GROUP BY makes exactly one row, unless HAVING or LIMIT removes it.
        single = group is None and expressions.aggregates > 0 and not having and not node.args.get("limit") and not node.args.get("offset")
        return Query(sql=sql, columns=columns, correlated=scope.uses_outer, single_row=single)

    def _from(self, scope: Scope, expressions: Expressions) -> tuple[str, bool]:
        clause = self.node.args.get("from_") or self.node.args.get("from")
        if clause is None:
            return "", False
        reads = FromClause(
            sources=self.sources,
            scope=scope,
            named=self.queries.named,
            expressions=expressions,
            subquery=lambda node: self.queries.query(node, None),
        )
        return f" FROM {reads.text(clause.this, self.node.args.get('joins') or [])}", reads.only_inner

    def _list(self, scope: Scope, expressions: Expressions) -> None:
        """Translate the SELECT list, stars expanded; a name that it gives may be used to its right."""
        for node in self.node.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                self._star(node, scope, expressions)
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            before = expressions.aggregates
            typed = expressions.typed(inner)
            name = node.alias if isinstance(node, exp.Alias) else _own_name(inner)
            self.items.append(_Item(name=name, typed=typed, has_aggregate=expressions.aggregates > before, node=inner))
            if isinstance(node, exp.Alias):
                scope.aliases.setdefault(folded(node.alias), typed)

    def _star(self, node: exp.Expression, scope: Scope, expressions: Expressions) -> None:
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
            before = expressions.aggregates
            typed = column.typed if other is None else expressions.typed(other)
            node = exp.column(column.name or "", quoted=True)
            self.items.append(_Item(name=column.name, typed=typed, has_aggregate=expressions.aggregates > before, node=node))
        if replaced:
            raise Rejected(f"it replaces {', '.join(replaced)}, but * does not have it")

    def _clause(self, key: str, expressions: Expressions, scope: Scope, rule: str) -> str:
        clause = self.node.args.get(key)
        if clause is None:
            return ""
        scope.alias_rule = rule
        return expressions.condition(clause.this)

    def _group(self, scope: Scope, expressions: Expressions) -> str | None:
        clause = self.node.args.get("group")
        if clause is None:
            return None
        only(clause, "expressions", "all")
        scope.alias_rule = "column"
        if clause.args.get("all"):
            keys = [item.typed for item in self.items if not item.has_aggregate]
        else:
            keys = [self._position(part) or expressions.typed(part) for part in clause.expressions if not _is_empty(part)]
        for key in keys:
            if not is_comparable(key.type):
                raise Rejected(f"it groups by values of type {key.type}")
        # A bare number would be a position.
        listed = [key.sql if key.constant is None else f"CAST({key.sql} AS {spark_name(key.type)})" for key in keys]
        return f" GROUP BY {', '.join(dict.fromkeys(listed))}" if listed else None

    def _grouping(self, sets: Sequence[Keys], scope: Scope, expressions: Expressions) -> Grouping:
        """Return the sets of ROLLUP, CUBE and GROUPING SETS."""
        scope.alias_rule = "column"

        def key(node: exp.Expression) -> Typed:
            found = self._position(node) or expressions.typed(node)
            if not is_comparable(found.type):
                raise Rejected(f"it groups by values of type {found.type}")
            return found

        return grouping_of(sets, key, expressions.here)

    def _above_sets(self, grouping: Grouping, having: str, qualify: str) -> tuple[str, str]:
        """Return HAVING and QUALIFY for Spark, which finds no keys of sets in HAVING: conditions are tested above the groups."""
        has_windows = self.node.find(exp.Window) is not None
        if having and has_windows:
            raise Rejected("it has HAVING and windows over ROLLUP, CUBE or GROUPING SETS")
        if not grouping.has_twins:
            return grouping.is_group, qualify or having
        if has_windows and grouping.is_group:
            raise Rejected("it has windows over a repeated grouping set")
        return "", " AND ".join(f"({test})" for test in (grouping.is_group, qualify or having) if test)

    def _position(self, node: exp.Expression) -> Typed | None:
        """Return the expression that a bare number in GROUP BY or ORDER BY counts to."""
        if not isinstance(node, exp.Literal) or node.is_string:
            return None
        if not node.name.isdigit() or not 1 <= int(node.name) <= len(self.items):
            raise Rejected(f"it has position {node.name}, but only {len(self.items)} columns")
        return self.items[int(node.name) - 1].typed

    def _keys(self, scope: Scope, expressions: Expressions) -> list[tuple[Typed, bool, bool]]:
        """Sort keys, whether they descend, and whether NULLs come first."""
        order = self.node.args.get("order")
        if order is None:
            return []
        keys = []
        for item in order.expressions:
            if not isinstance(item, exp.Ordered):
                raise Rejected(f"it sorts by {shown(item)}")
            only(item, "this", "desc", "nulls_first")
            direction = bool(item.args.get("desc")), bool(item.args.get("nulls_first"))
            if _is_all(item.this):
                keys += [(own.typed, *direction) for own in self.items]
                continue
            scope.alias_rule = "alias" if isinstance(item.this, exp.Column) and not item.this.table else "either"
            keys.append((self._position(item.this) or expressions.typed(item.this), *direction))
        return keys

    def _outermost(self, columns: tuple[OutputColumn, ...], body: str, qualify: str, keys: list[tuple[Typed, bool, bool]]) -> str:
        # DISTINCT, QUALIFY, LIMIT and sort keys need a SELECT around the columns, which also keeps other sort keys out of the result:
        #
        #   SELECT columns FROM (SELECT items, other sort keys, test of QUALIFY FROM ...) WHERE test ORDER BY ... LIMIT ...
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
                    raise Rejected("it sorts DISTINCT rows by an expression that is not one of their columns")
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
            raise Rejected("it has DISTINCT ON")
        for column in columns:
            if not is_comparable(column.type):
                raise Rejected(f"it has DISTINCT of values of type {column.type}")
        return "DISTINCT "


def _own_name(node: exp.Expression) -> str | None:
    """Return the name of a column that was given none; None for one that only the written text gives."""
    match node:
        case exp.Column() | exp.Dot() if not isinstance(node, exp.Dot) or isinstance(node.expression, exp.Identifier):
            return node.name
        case _:
            return None


def _is_empty(node: exp.Expression) -> bool:
    return isinstance(node, exp.Tuple) and not node.expressions


def _is_all(node: exp.Expression) -> bool:
    """Return whether a sort key is ALL, which DuckDB stores as COLUMNS(*)."""
    if isinstance(node, exp.Var):
        return node.name.upper() == "ALL"
    is_columns = isinstance(node, exp.Anonymous) and node.name.lower() == "columns" and len(node.expressions) == 1
    return is_columns and isinstance(node.expressions[0], exp.Star) and not any(node.expressions[0].args.values())


def limits(node: exp.Expression) -> str:
    """Return LIMIT and OFFSET with constants."""
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
            raise Rejected(f"it has {word} with a number of rows that is not constant")
        text += f" {word} {number.name}"
    return text


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
        """Return the clause without the word FROM."""
        sql = self._added(first)
        has_comma = False
        for join in joins:
            only(join, "this", "on", "using", "kind", "side", "method")
            side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
            method = str(join.args.get("method") or "").upper()
            if method not in ("", "NATURAL") or kind not in ("", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"):
                raise Rejected(f"it has a {method or kind} join")
            conditioned = bool(join.args.get("on") is not None or join.args.get("using") or method)
            # A comma binds less tightly than JOIN, so the rows that such a join keeps would differ.
            if has_comma and side in ("RIGHT", "FULL"):
                raise Rejected(f"it has a {side} join after a comma")
            has_comma = has_comma or not (conditioned or kind or side)
            word = "LEFT " + kind if kind in ("SEMI", "ANTI") else side or ("INNER" if conditioned else "CROSS")
            # Below an outer, semi or anti join, a row that fails WHERE may still decide what becomes of another row, so conditions stay
            # above.
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
            raise Rejected(f"it has a {word} join without a condition")
        if word in ("LEFT SEMI", "LEFT ANTI"):
            self.scope.relations.pop()
        return f"{left} {word} JOIN {right}{condition}"

    def _shared(self, before: list[Relation], new: Relation) -> list[str]:
        """Return the names of a NATURAL join."""
        left = [column.name for relation in before for column in relation.columns if column.name is not None]
        names = [c.name for c in new.columns if c.name is not None and any(same_name(c.name, other) for other in left)]
        if not names or any(column.name is None for relation in (*before, new) for column in relation.columns):
            raise Rejected("it has a NATURAL join of relations without names in common")
        return names

    def _merge(self, name: str, before: list[Relation], new: Relation, word: str) -> str:
        """Return the condition of one column of USING, and note which side its name means from here on."""
        merged = self.scope.merged.get(folded(name))
        lefts = [(r, c) for r in before for c in r.find(name) if c.sql not in self.scope.hidden]
        rights = new.find(name)
        if len(rights) != 1 or (len(lefts) != 1 and merged is None):
            raise Rejected(f"it joins using {name!r}, which is not one column on each side")
        if merged is not None and word in ("RIGHT", "FULL"):
            raise Rejected(f"it has a {word} join using {name!r} after another join using it")
        (right,) = rights
        new.touched(right)
        for relation, column in lefts:
            relation.touched(column)
        left = merged or lefts[0][1]
        kind = compared_type((left.typed, right.typed))
        equal = f"({cast(left.typed, kind).sql} = {cast(right.typed, kind).sql})"
        if word in ("LEFT SEMI", "LEFT ANTI"):
            return equal
        # From here on the name means the left column, after a right join the right one, and after a full join the first that is not NULL.
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
            raise Rejected(f"it reads two relations named {relation.alias!r}")
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
                raise Rejected(f"it reads {shown(node.this)}, which is not a table of the lake")
            case exp.Subquery():
                only(node, "this", "alias")
                if isinstance(node.this, exp.Table):
                    raise Rejected("it has a join in parentheses")
                return self._query(self.subquery(node.this), node.alias or None, tuple(node.alias_column_names))
            case exp.Values():
                only(node, "expressions", "alias")
                return self._query(values(node, self.expressions, self.sources), node.alias or None, tuple(node.alias_column_names))
            case _:
                raise Rejected(f"it reads {shown(node)}")

    def _query(self, query: Query, alias: str | None, names: tuple[str, ...]) -> tuple[str, Relation]:
        return f"({query.sql})", Relation(alias=alias, columns=renamed(query.columns, names))


def values(node: exp.Values, expressions: Expressions, sources: Sources) -> Query:
    """Translate VALUES: columns ``col0``, ``col1`` and so on, of the types that all rows have in common."""
    rows = [[expressions.typed(item) for item in (row.expressions if isinstance(row, exp.Tuple) else [row])] for row in node.expressions]
    if len({len(row) for row in rows}) != 1:
        raise Rejected("it has rows of VALUES with different lengths")
    kinds = [common_type(column) for column in zip(*rows, strict=True)]
    columns = tuple(OutputColumn(name=f"col{i}", sql=sources.fresh(), type=kind) for i, kind in enumerate(kinds))
    lines = [
        "SELECT " + ", ".join(f"{cast(item, column.type).sql} AS {column.sql}" for item, column in zip(row, columns, strict=True))
        for row in rows
    ]
    return Query(sql=" UNION ALL ".join(lines), columns=columns)
