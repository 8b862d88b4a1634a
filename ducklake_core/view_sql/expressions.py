"""Translate expressions of a parsed query to typed Spark SQL; a node that is not named here is rejected by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from ducklake_core.format.expressions.syntax import constant_of, data_type_of
from ducklake_core.format.types.data_types import BOOLEAN
from ducklake_core.view_sql import functions
from ducklake_core.view_sql.clauses import grouping_number, windowed
from ducklake_core.view_sql.functions import AGGREGATES, DATE_FUNCTIONS, Call, date_part, interval_of, lower_sql, moved
from ducklake_core.view_sql.operators import (
    arithmetic,
    cast,
    compared_type,
    comparison,
    condition,
    constant,
    joined,
    like,
    listed,
    logic,
    negated,
)
from ducklake_core.view_sql.parsing import only, shown
from ducklake_core.view_sql.scopes import Query, Scope
from ducklake_core.view_sql.typed import NULL_TYPE, Rejected, Typed

_ARITHMETIC: dict[Any, str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%"}
_COMPARISONS: dict[Any, str] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>"}
_LONGEST = 100_000
"""Letters of one expression: some operators repeat their operands."""
_FUNCTIONS = {**functions.FUNCTIONS, **DATE_FUNCTIONS}


@dataclass(slots=True, kw_only=True)
class Expressions:
    """Translates the expressions of one SELECT.

    Attributes:
        scope: What names mean.
        subquery: Translates a query within an expression.
        macros: Folded names of the lake's macros, which win over functions.
        windows: Windows of the WINDOW clause by lower-case name.
        aggregates: How many aggregates were translated so far.
        sets: Whether the rows are grouped by several sets of keys.
        here: A condition on the rows that aggregates count, None for all.
    """

    scope: Scope
    subquery: Callable[[exp.Expression, Scope], Query]
    macros: frozenset[str]
    windows: Mapping[str, exp.Window] = field(default_factory=dict)
    aggregates: int = 0
    sets: bool = False
    here: str | None = None

    def typed(self, node: exp.Expression) -> Typed:
        """Translate an expression.

        Raises:
            Rejected: Something in it is not translated.
        """
        found = self._typed(node)
        if len(found.sql) > _LONGEST:
            raise Rejected("an expression is too long")
        return found

    def condition(self, node: exp.Expression) -> str:
        """Return the expression as a condition."""
        return condition(self.typed(node)).sql

    def _typed(self, node: exp.Expression) -> Typed:  # noqa: C901, PLR0912 - one case per kind of node
        match node:
            case exp.Paren():
                return self.typed(node.this)
            case exp.Literal() | exp.Null() | exp.Boolean():
                found = constant_of(node)
                assert found is not None
                return constant(found)
            case exp.Column() if not isinstance(node.this, exp.Star):
                only(node, "this", "table", "db", "catalog")
                return self.scope.column(tuple(part.name for part in node.parts))
            case exp.Dot():
                return self._dot(node)
            case exp.Bracket():
                only(node, "this", "expressions")
                return self._bracket(node)
            case exp.Neg():
                bare = constant_of(node)
                return constant(bare) if bare is not None else negated(self.typed(node.this))
            case exp.Not():
                return Typed(sql=f"(NOT {self.condition(node.this)})", type=BOOLEAN)
            case exp.And() | exp.Or():
                return self._connected(node)
            case exp.Cast() if not isinstance(node, exp.TryCast):
                return self._cast(node)
            case exp.DPipe():
                return joined(self.typed(node.this), self.typed(node.expression))
            case exp.Case() | exp.If():
                return self._case(node)
            case exp.Is() | exp.Between() | exp.In() | exp.Like() | exp.ILike() | exp.Escape() | exp.NullSafeNEQ():
                return self._test(node)
            case exp.Exists():
                return Typed(sql=f"EXISTS ({self.subquery(node.this, self.scope).sql})", type=BOOLEAN)
            case exp.Subquery() | exp.Select():
                return self._scalar(node)
            case exp.Extract():
                only(node, "this", "expression")
                return date_part(node.name, self.typed(node.expression))
            # Every function arrives as Anonymous, because WrittenDuckDB gives none of them a meaning.
            case exp.Anonymous():
                return self._function(node)
            case exp.Filter():
                only(node, "this", "expression")
                return self._aggregate(node.this, node.expression.this)
            case exp.Window():
                return windowed(node, self.typed, self.windows)
            case _ if type(node) in _ARITHMETIC:
                return self._arithmetic(node)
            case _ if type(node) in _COMPARISONS:
                return self._comparison(node)
            case exp.ArrayOverlaps():
                raise Rejected(f"it has the operator &&: {shown(node)}")
            case _:
                raise Rejected(f"it has {type(node).__name__.upper()}: {shown(node)}")

    def _dot(self, node: exp.Dot) -> Typed:
        """Return a function of DuckDB's own schema, or a field."""
        if isinstance(node.expression, exp.Anonymous):
            qualifier = node.this.name.lower() if isinstance(node.this, exp.Identifier | exp.Column | exp.Var) else shown(node.this)
            if qualifier != "main":
                raise Rejected(f"it calls the macro or function {shown(node)}")
            return self._function(node.expression)
        if not isinstance(node.expression, exp.Identifier):
            raise Rejected(f"it has {shown(node)}")
        return functions.field(self.typed(node.this), node.expression.name)

    def _bracket(self, node: exp.Bracket) -> Typed:
        if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
            raise Rejected(f"it takes a part of a value: {shown(node)}")
        return functions.element(self.typed(node.this), self.typed(node.expressions[0]))

    def _connected(self, node: exp.Expression) -> Typed:
        """Return a chain of ANDs or ORs, without recursing into its length."""
        word, kind = ("AND", exp.And) if isinstance(node, exp.And) else ("OR", exp.Or)
        operands: list[exp.Expression] = []
        while isinstance(node, kind):
            operands.append(node.expression)
            node = node.this
        found = self.typed(node)
        for operand in reversed(operands):
            found = logic(word, found, self.typed(operand))
        return found

    def _cast(self, node: exp.Cast) -> Typed:
        only(node, "this", "to")
        target = data_type_of(node.to)
        if target is None:
            raise Rejected(f"it casts to {node.to.sql('duckdb')}")
        return cast(self.typed(node.this), target)

    def _case(self, node: exp.Expression) -> Typed:
        if isinstance(node, exp.If):
            branches, subject, otherwise = [node], None, node.args.get("false")
        else:
            only(node, "this", "ifs", "default")
            branches, subject, otherwise = node.args["ifs"], node.this, node.args.get("default")
        tests = [
            self.condition(branch.this) if subject is None else comparison("=", self.typed(subject), self.typed(branch.this)).sql
            for branch in branches
        ]
        results = [self.typed(branch.args["true"]) for branch in branches]
        last = self.typed(otherwise) if otherwise is not None else constant_null()
        return functions.choice(tests, results, last)

    def _test(self, node: exp.Expression) -> Typed:
        match node:
            case exp.Is():
                only(node, "this", "expression")
                return self._is(node)
            case exp.NullSafeNEQ():
                same = comparison("<=>", self.typed(node.this), self.typed(node.expression))
                return Typed(sql=f"(NOT {same.sql})", type=BOOLEAN)
            case exp.Between():
                only(node, "this", "low", "high")
                parts = [self.typed(node.args[name]) for name in ("this", "low", "high")]
                kind = compared_type(tuple(parts))
                value, low, high = (cast(part, kind).sql for part in parts)
                return Typed(sql=f"({value} BETWEEN {low} AND {high})", type=BOOLEAN)
            case exp.In():
                only(node, "this", "expressions", "query")
                if node.args.get("query") is not None:
                    return self._within(self.typed(node.this), node.args["query"])
                return listed(self.typed(node.this), [self.typed(item) for item in node.expressions])
            case _:
                pattern, escape = (node.this, self.typed(node.expression)) if isinstance(node, exp.Escape) else (node, None)
                if not isinstance(pattern, exp.Like | exp.ILike):
                    raise Rejected(f"it has {shown(node)}")
                only(pattern, "this", "expression", "negate")
                lower = lower_sql if isinstance(pattern, exp.ILike) else None
                found = like(self.typed(pattern.this), self.typed(pattern.expression), escape, lower=lower)
                return Typed(sql=f"(NOT {found.sql})", type=BOOLEAN) if pattern.args.get("negate") else found

    def _is(self, node: exp.Expression) -> Typed:
        subject, test = self.typed(node.this), node.expression
        if isinstance(test, exp.Null):
            return Typed(sql=f"({subject.sql} IS NULL)", type=BOOLEAN)
        if isinstance(test, exp.Boolean):
            return Typed(sql=f"({condition(subject).sql} <=> {str(bool(test.this)).upper()})", type=BOOLEAN)
        raise Rejected(f"it has {shown(node)}")

    def _arithmetic(self, node: exp.Expression) -> Typed:
        operator = _ARITHMETIC[type(node)]
        if operator in ("+", "-"):
            interval = interval_of(node.expression)
            if interval is not None:
                return moved(self.typed(node.this), operator, interval)
            interval = interval_of(node.this)
            if interval is not None and operator == "+":
                return moved(self.typed(node.expression), operator, interval)
        return arithmetic(operator, self.typed(node.this), self.typed(node.expression))

    def _comparison(self, node: exp.Expression) -> Typed:
        if isinstance(node.expression, exp.Any) and isinstance(node, exp.EQ):
            return self._within(self.typed(node.this), node.expression.this)
        return comparison(_COMPARISONS[type(node)], self.typed(node.this), self.typed(node.expression))

    def _within(self, subject: Typed, node: exp.Expression) -> Typed:
        """Return ``IN`` with a query."""
        if not isinstance(node, exp.Subquery | exp.Query):
            raise Rejected(f"it has ANY: {shown(node)}")
        query = self.subquery(node, self.scope)
        if len(query.columns) != 1:
            raise Rejected("it has IN with a query of several columns")
        (column,) = query.columns
        kind = compared_type((subject, column.typed))
        inner = f"SELECT {cast(column.typed, kind).sql} FROM ({query.sql})"
        return Typed(sql=f"({cast(subject, kind).sql} IN ({inner}))", type=BOOLEAN)

    def _scalar(self, node: exp.Expression) -> Typed:
        query = self.subquery(node, self.scope)
        if len(query.columns) != 1:
            raise Rejected("it uses a query of several columns as a value")
        # Spark takes a correlated query for a value only if it is an aggregate.
        if query.correlated and not query.single_row:
            raise Rejected("it uses a correlated query without an aggregate as a value")
        return Typed(sql=f"({query.sql})", type=query.columns[0].type)

    def _function(self, node: exp.Anonymous) -> Typed:
        name = node.name.lower()
        if name in self.macros:
            raise Rejected(f"it calls the macro {name}")
        if name in AGGREGATES:
            return self._aggregate(node, None)
        if name in ("grouping", "grouping_id") and self.sets:
            self.aggregates += 1
            return grouping_number(name, node, [self.typed(part) for part in node.expressions])
        if name == "if":
            raise Rejected("it calls if without exactly three arguments")
        if name not in _FUNCTIONS:
            raise Rejected(f"function {name} is not supported")
        try:
            return _FUNCTIONS[name]([self.typed(part) for part in node.expressions])
        except Rejected as problem:
            raise Rejected(f"{problem} (in {name})") from problem
        # Functions unpack their arguments, ``(part,) = parts``, which raises ValueError for any other number.
        except ValueError as problem:
            raise Rejected(f"it calls {name} with {len(node.expressions)} arguments") from problem

    def _aggregate(self, node: exp.Expression, where: exp.Expression | None) -> Typed:
        if isinstance(node, exp.Dot) and node.this.name.lower() == "main":
            node = node.expression
        name = node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__
        if name in self.macros or name not in AGGREGATES:
            raise Rejected(f"aggregate {name} is not supported")
        self.aggregates += 1
        # The flag is cleared to find out about the arguments alone, and restored for the query.
        around, self.scope.uses_outer = self.scope.uses_outer, False
        distinct, nodes = "", list(node.expressions)
        if len(nodes) == 1 and isinstance(nodes[0], exp.Distinct):
            only(nodes[0], "expressions")
            distinct, nodes = "DISTINCT ", list(nodes[0].expressions)
        parts = [self.typed(part) for part in nodes if not isinstance(part, exp.Star)]
        call: Call = str
        tests = [self.here] if self.here is not None else []
        tests += [self.condition(where)] if where is not None else []
        if tests:
            text = " AND ".join(tests)

            def call(sql: str) -> str:
                return f"{sql} FILTER (WHERE {text})"

        if self.scope.uses_outer:
            raise Rejected(f"it has {name} of columns of the query around it")
        self.scope.uses_outer = around
        try:
            return AGGREGATES[name](parts, distinct, call)
        except ValueError as problem:
            raise Rejected(f"it calls {name} with {len(parts)} arguments") from problem


def constant_null() -> Typed:
    """Return NULL without a type."""
    return Typed(sql="CAST(NULL AS INT)", type=NULL_TYPE)
