"""SQL expressions of users, in DuckDB's dialect, as scalars bound to columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlglot import exp

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.predicate_parser import bind_column, operator_of, predicate_of
from ducklake_core.format.expressions.predicates import Literal, needs_sql
from ducklake_core.format.expressions.scalars import Call, Case, CastTo, Compare, Expression, InZone, Logical, Scalar, Test, Text
from ducklake_core.format.expressions.sql_constants import QuotedText, constant_of, data_type_of, unwrapped
from ducklake_core.format.expressions.sql_trees import column_path, parse_text
from ducklake_core.format.types.data_types import BOOLEAN, INTEGERS
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.time_zones import is_utc, session_zone

Resolver: TypeAlias = Callable[[tuple[str, ...]], tuple[str, ...]]
"""The path of a column in the schema, from the path that the user wrote."""

BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%", exp.DPipe: "||",
}  # fmt: skip
UNARY: dict[type[exp.Expression], str] = {
    exp.Neg: "negate", exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil", exp.Upper: "upper", exp.Lower: "lower", exp.Length: "length",
}  # fmt: skip


class _Obstacle(Exception):  # noqa: N818 - never leaves this module
    """Something that only a SQL engine can evaluate."""


def parse_expression(text: str, schema: Schema, resolve: Resolver = lambda path: path) -> Expression:
    """An expression bound to columns.

    Args:
        text: SQL in DuckDB's dialect over the columns of one row.
        schema: The columns.
        resolve: Turns the names that the user writes into names of the schema.

    Raises:
        NotFoundError: A column that does not exist.
        UsageError: Not one expression: unreadable text, a subquery, an aggregate, a constant that cannot be read.
    """
    root = parse_text(text, "expression").copy()
    for column in list(root.find_all(exp.Column)):
        path = resolve(tuple(part.name for part in column.parts))
        bound = bind_column(path, schema)
        fresh: exp.Expression = exp.column(*(exp.to_identifier(name, quoted=True) for name in reversed(bound.path[:1])))
        for name in bound.path[1:]:
            fresh = exp.Dot(this=fresh, expression=exp.to_identifier(name, quoted=True))
        fresh.meta["written"] = column.sql(dialect="duckdb")
        if column is root:
            root = fresh
        else:
            column.replace(fresh)
    columns = tuple(dict.fromkeys(bind_column(path, schema) for path in _column_paths(root)))
    sql = root.sql(dialect="duckdb", identify=True, comments=False)
    try:
        scalar = _in_session_zone(_Parser(text, schema).scalar(root))
    except _Obstacle as obstacle:
        return Expression(text=text, sql=sql, columns=columns, obstacle=str(obstacle))
    return Expression(text=text, sql=sql, columns=columns, scalar=scalar)


def _in_session_zone(scalar: Scalar) -> Scalar:
    """The scalar with the effective time zone, which another process that evaluates it need not have."""
    zone = session_zone()
    return scalar if is_utc(zone) or isinstance(scalar, Literal) else InZone(operand=scalar, zone=zone)


def constant_expression(value: Literal) -> Expression:
    """A constant that needs no SQL."""
    return Expression(text=repr(value.value), sql="", scalar=value)


def scalar_of(root: exp.Expression, text: str) -> Scalar:
    """A parsed expression without columns as a scalar.

    Raises:
        UnsupportedFeatureError: Only a SQL engine can evaluate it; the message is the part that is not understood.
        UsageError: A constant that cannot be read.
    """
    try:
        return _Parser(text, Schema(columns=())).scalar(root)
    except _Obstacle as obstacle:
        raise UnsupportedFeatureError(str(obstacle)) from obstacle


def _as_written(node: exp.Expression) -> str:
    """A part of an expression with the columns' names as the user wrote them."""
    return node.transform(lambda part: exp.Var(this=part.meta["written"]) if "written" in part.meta else part).sql(dialect="duckdb")


def _column_paths(root: exp.Expression) -> list[tuple[str, ...]]:
    return [tuple(part.name for part in column.parts) for column in root.find_all(exp.Column)]


class _Parser:
    """Turns one parsed expression into a scalar."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema

    def scalar(self, node: exp.Expression) -> Scalar:
        node = unwrapped(node)
        path = column_path(node)
        if path is not None:
            return bind_column(path, self.schema)
        constant = constant_of(node)
        if isinstance(constant, QuotedText):
            return Text(text=constant.text)
        if constant is not None:
            # A number as it is written takes the type of what stands beside it, one that is cast does not.
            return CastTo(operand=constant, type=constant.type) if isinstance(node, exp.Cast) and constant.type in INTEGERS else constant
        if type(node) in BINARY:
            return Call(function=BINARY[type(node)], arguments=(self.scalar(node.this), self.scalar(node.expression)))
        if type(node) in UNARY and not any(value for name, value in node.args.items() if name != "this"):
            return Call(function=UNARY[type(node)], arguments=(self.scalar(node.this),))
        return self.condition(node) if isinstance(node, exp.Predicate | exp.Connector | exp.Not | exp.In) else self.function(node)

    def function(self, node: exp.Expression) -> Scalar:
        match node:
            case exp.Cast():
                target = data_type_of(node.to)
                if target is None:
                    raise _Obstacle(f"a cast to {node.to.sql(dialect='duckdb')}")
                return CastTo(operand=self.scalar(node.this), type=target, lenient=isinstance(node, exp.TryCast))
            case exp.Case():
                return self.case(node)
            case exp.If():
                return self.branching([node], node.args.get("false"))
            case exp.Coalesce():
                return self.call("coalesce", node.this, *node.expressions)
            case exp.Nullif():
                return self.call("nullif", node.this, node.expression)
            case exp.Concat() if node.expressions:
                return self.call("concat", *node.expressions)
            case exp.Trim() if not node.args.get("expression"):
                function = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or ""), "trim")
                return self.call(function, node.this)
            case exp.Replace() if node.args.get("replacement") is not None:
                return self.call("replace", node.this, node.expression, node.args["replacement"])
            case exp.Substring() if node.args.get("start") is not None:
                sizes = [node.args["start"], node.args.get("length")]
                return self.call("substring", node.this, *(size for size in sizes if size is not None))
            case exp.Uuid():
                return self.call("uuid")
            case exp.Rand() if node.this is None:
                return self.call("random")
            case _:
                return self.text_function(node)

    def text_function(self, node: exp.Expression) -> Scalar:
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        match node:
            case exp.StartsWith():
                return self.call("starts_with", node.this, node.expression)
            case exp.Anonymous() if name == "prefix" and len(node.expressions) == 2:
                return self.call("starts_with", *node.expressions)
            case exp.Anonymous() if name in ("uuidv4", "uuidv7") and not node.expressions:
                return self.call("uuidv7" if name == "uuidv7" else "uuid")
            case _:
                raise _Obstacle(_as_written(node))

    def call(self, function: str, *arguments: exp.Expression) -> Call:
        return Call(function=function, arguments=tuple(self.scalar(argument) for argument in arguments))

    def case(self, node: exp.Case) -> Case:
        if node.this is None:
            return self.branching(node.args["ifs"], node.args.get("default"))
        subject = self.scalar(node.this)
        branches = tuple(
            (Compare(left=subject, operator="=", right=self.scalar(branch.this)), self.scalar(branch.args["true"]))
            for branch in node.args["ifs"]
        )
        return Case(branches=branches, otherwise=self.default(node.args.get("default")))

    def branching(self, ifs: list[exp.If], default: exp.Expression | None) -> Case:
        branches = tuple((self.scalar(branch.this), self.scalar(branch.args["true"])) for branch in ifs)
        return Case(branches=branches, otherwise=self.default(default))

    def default(self, node: exp.Expression | None) -> Scalar:
        return Literal(value=None, type=BOOLEAN) if node is None else self.scalar(node)

    def is_boolean(self, operand: Scalar, *, value: bool) -> Scalar:
        """``operand IS TRUE`` or ``IS FALSE``, which are never NULL."""
        found = CastTo(operand=operand, type=BOOLEAN)
        wanted: Scalar = found if value else Logical(kind="not", operands=(found,))
        return Call(function="coalesce", arguments=(wanted, Literal(value=False, type=BOOLEAN)))

    def not_distinct(self, node: exp.Expression) -> Scalar:
        """Equal, or both NULL."""
        left, right = self.scalar(node.this), self.scalar(node.expression)
        both = Logical(kind="and", operands=tuple(Logical(kind="is null", operands=(side,)) for side in (left, right)))
        return Call(function="coalesce", arguments=(Compare(left=left, operator="=", right=right), both))

    def condition(self, node: exp.Expression) -> Scalar:
        if node.args.get("negate"):
            # NOT LIKE, as the parser says it since its version 30.
            plain = node.copy()
            plain.set("negate", None)
            return Logical(kind="not", operands=(self.condition(plain),))
        match node:
            case exp.And():
                return Logical(kind="and", operands=(self.scalar(node.this), self.scalar(node.expression)))
            case exp.Or():
                return Logical(kind="or", operands=(self.scalar(node.this), self.scalar(node.expression)))
            case exp.Not():
                return Logical(kind="not", operands=(self.scalar(node.this),))
            case exp.Is() if isinstance(node.expression, exp.Null):
                return Logical(kind="is null", operands=(self.scalar(node.this),))
            case exp.NullSafeEQ():
                return self.not_distinct(node)
            case exp.NullSafeNEQ():
                return Logical(kind="not", operands=(self.not_distinct(node),))
            case exp.Between() if not node.args.get("symmetric"):
                subject = self.scalar(node.this)
                low = Compare(left=subject, operator=">=", right=self.scalar(node.args["low"]))
                return Logical(kind="and", operands=(low, Compare(left=subject, operator="<=", right=self.scalar(node.args["high"]))))
            case exp.In() if node.expressions and (
                column_path(node.this) is None or any(constant_of(one) is None for one in node.expressions)
            ):
                return Logical(kind="in", operands=tuple(self.scalar(part) for part in (node.this, *node.expressions)))
        return self.comparison(node)

    def comparison(self, node: exp.Expression) -> Scalar:
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
            return self.is_boolean(self.scalar(node.this), value=bool(node.expression.this))
        if isinstance(node, exp.Like):
            return self.call("like", node.this, node.expression)
        operator = operator_of(node)
        if operator is not None:
            return Compare(left=self.scalar(node.this), operator=operator, right=self.scalar(node.expression))
        try:
            predicate = predicate_of(node, self.text, self.schema, scalars=False)
        except UnsupportedFeatureError as error:
            raise _Obstacle(_as_written(node)) from error
        if needs_sql(predicate):
            raise _Obstacle(_as_written(node))
        return Test(predicate=predicate)
