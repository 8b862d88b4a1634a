"""Parse conditions and expressions in DuckDB's dialect into predicates and scalars bound to columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from numbers import Integral
from typing import TypeAlias, assert_never
from uuid import UUID as Uuid

from sqlglot import exp

from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions import comparison
from ducklake_core.format.expressions.comparison import (
    FLIPPED,
    MonotonicTransform,
    Truncated,
    Unit,
    Year,
    cast_of,
    common_domain,
    domain_of,
    has_calendar,
    holds,
    infinity_of,
    key_of,
)
from ducklake_core.format.expressions.literals import number_literal, text_literal
from ducklake_core.format.expressions.nested_tests import box_test, nested_path
from ducklake_core.format.expressions.predicates import (
    FALSE,
    MAX_PARTS,
    TIME_PARTS,
    UNKNOWN,
    BoxOverlap,
    Call,
    Case,
    CastTo,
    ColumnReference,
    Compare,
    Comparison,
    Constant,
    Expression,
    InList,
    InZone,
    IsNull,
    Literal,
    Logical,
    Not,
    Operator,
    Predicate,
    Scalar,
    SqlExpression,
    StartsWith,
    Test,
    Text,
    VariantComparison,
    VariantField,
    VariantIsNull,
    conjunction,
    needs_sql,
    negation,
    parts,
    references,
)
from ducklake_core.format.expressions.ranges import all_of, any_of
from ducklake_core.format.expressions.sql import to_sql
from ducklake_core.format.expressions.syntax import (
    QuotedText,
    column_path,
    constant_of,
    data_type_of,
    operands_of,
    parse_text,
    unwrapped,
    with_folded_times,
    zoned,
)
from ducklake_core.format.expressions.syntax import shown as shown_condition
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT64,
    FLOATS,
    GEOMETRY,
    INT128,
    INTEGERS,
    JSON,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NS,
    TIMESTAMPS,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    VARIANT,
    DataType,
    StructType,
)
from ducklake_core.format.types.names import dotted, folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import shown, similar_or_all
from ducklake_core.format.values.temporal import is_utc, session_zone

COMPARISONS: dict[type[exp.Expression], Operator] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
COMPARED: dict[Operator, type[exp.Expression]] = {name: kind for kind, name in COMPARISONS.items()}
_PLAIN_ARGUMENTS = frozenset({"this", "expression", "expressions", "low", "high"})

Resolver: TypeAlias = Callable[[tuple[str, ...]], tuple[str, ...]]
"""The path of a column in the schema, from the path that the user wrote."""
BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%", exp.DPipe: "||",
}  # fmt: skip
UNARY: dict[type[exp.Expression], str] = {
    exp.Neg: "negate", exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil", exp.Upper: "upper", exp.Lower: "lower", exp.Length: "length",
}  # fmt: skip

_MAX_BITS = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_UNITS: dict[str, Unit] = {
    "year": "year", "years": "year", "quarter": "quarter", "quarters": "quarter", "month": "month", "months": "month", "mon": "month",
    "week": "week", "weeks": "week", "day": "day", "days": "day", "hour": "hour", "hours": "hour", "minute": "minute",
    "minutes": "minute", "second": "second", "seconds": "second",
}  # fmt: skip
_PARTS = ("date_part", "datepart")
PART_NAMES = {
    **{part: part for part in TIME_PARTS}, **{f"{part}s": part for part in TIME_PARTS},
    "dayofmonth": "day", "dow": "dayofweek", "weekday": "dayofweek", "dayofweekiso": "isodow", "doy": "dayofyear",
    "weekofyear": "week", "mon": "month",
}  # fmt: skip
"""Names of the parts of dates and times, in functions and in ``date_part``."""


__all__ = [
    "bind_column",
    "operator_of",
    "parse_predicate",
    "predicate_of",
    "to_sql",
]


def parse_predicate(condition: str | Predicate, schema: Schema) -> Predicate:
    """Return the condition as a predicate on the schema's columns.

    Constants are typed by the column they are compared with, as DuckDB types them.  What has no finer form stays a
    :class:`SqlExpression`, which prunes nothing and which only a SQL engine can evaluate.

    Args:
        condition: SQL text in DuckDB's dialect, or a predicate that was bound before and is only checked.
        schema: The table's columns; names are found without regard to case.

    Raises:
        NotFoundError: A column that the table does not have.
        UsageError: Not one condition: unreadable text, several statements, a subquery, an aggregate, a constant that cannot be
            read as a value of its column, or a column that is not a condition.
    """
    if isinstance(condition, Predicate):
        return _checked(condition, schema)
    return limited(predicate_of(with_folded_times(parse_text(condition), condition), condition, schema), condition)


def limited(predicate: Predicate, written: object) -> Predicate:
    """Return a condition that engines evaluate in reasonable time.

    Args:
        predicate: The condition.
        written: The condition as the caller wrote it, for the message.

    Raises:
        UsageError: The condition has more than :data:`MAX_PARTS` parts.
    """
    count = parts(predicate)
    if count > MAX_PARTS:
        what = shown_condition(written) if isinstance(written, str) else shown(written)
        raise UsageError(
            f"The condition {what} has {count:,} parts, and every row would be compared with each of them; at most {MAX_PARTS:,} are "
            "supported. Equalities and ranges of one column count as one part, so use IN (...) for values of one column. For keys of "
            "several columns, put the keys into a table and use merge(...) or upsert(...), or split the condition"
        )
    return predicate


def bind_column(path: tuple[str, ...], schema: Schema) -> ColumnReference:
    """Return the column at a path of names, without regard to case.

    Raises:
        NotFoundError: It does not exist; the message lists the columns.
    """
    bound, rest = _follow(path, schema)
    if rest:
        raise NotFoundError(f"column {'.'.join(bound.path)!r} of type {bound.type} has no field {rest[0]!r}", column=".".join(path))
    return bound


def _follow(path: tuple[str, ...], schema: Schema) -> tuple[ColumnReference, tuple[str, ...]]:
    whole = ".".join(path)
    if len(path) > 1 and schema.find(path[0]) is None and schema.find(whole) is not None:
        raise NotFoundError(f"there is no column {path[0]!r}; the column {whole!r} has dots in its name: quote it, {dotted((whole,))}")
    field = schema.column(path[0])
    names, rest = [field.name], path[1:]
    while rest and isinstance(field.type, StructType):
        wanted = folded(rest[0])
        child = next((f for f in field.type.fields if folded(f.name) == wanted), None)
        if child is None:
            near = similar_or_all(rest[0], [f.name for f in field.type.fields], "; its fields are:")
            raise NotFoundError(f"the struct {'.'.join(names)!r} has no field {rest[0]!r}{near}", column=".".join(path))
        field, rest = child, rest[1:]
        names.append(field.name)
    return ColumnReference(column_id=field.id, path=tuple(names), type=field.type), rest


def _named(path: tuple[str, ...], schema: Schema) -> tuple[ColumnReference, tuple[str, ...]]:
    """Follow a name in SQL, which may be a string without its quotes."""
    try:
        return _follow(path, schema)
    except NotFoundError as error:
        if len(path) > 1 and schema.find(path[0]) is None and schema.find(path[1]) is not None:
            message = f"there is no column {path[0]!r}. Write {path[1]!r} without the name of a table before it"
            raise NotFoundError(message, column=path[0]) from None
        if len(path) > 1 or "did you mean" in error.message:
            raise
        string = f"If it is a string, write it in single quotes, as in '{path[0]}'"
        remedy = "For a missing value, write IS NULL" if path[0] == "None" else string
        message = f"{error.message}. {remedy}"
        raise NotFoundError(message, column=path[0]) from None


def _checked(predicate: Predicate, schema: Schema) -> Predicate:
    for column in references(predicate):
        found = bind_column(column.path, schema)
        if found != column:
            raise NotFoundError(
                f"the predicate was built for column {'.'.join(column.path)!r} ({column.type}, id {column.column_id}),"
                f" which this table now has as {found.type}, id {found.column_id}: build it again",
                column=".".join(column.path),
            )
    return predicate


def predicate_of(node: exp.Expression, text: str, schema: Schema, *, scalars: bool = True) -> Predicate:
    """Return a parsed condition as a predicate, see :func:`parse_predicate`; with ``scalars``, also what Arrow can evaluate of it.

    Args:
        node: The parsed condition.
        text: Its SQL text, for messages.
        schema: The table's columns.
        scalars: Whether conditions that stay SQL also get the scalar that Arrow evaluates, where there is one.
    """
    return _PredicateParser(text, schema, scalars=scalars).predicate(node)


def operator_of(node: exp.Expression) -> Operator | None:
    """Return the comparison that a node is, None for any other node."""
    return COMPARISONS.get(type(node))


# The forms that a comparison can take; ``comparison`` and ``without_column`` try them in this order:
#
#   column and column         Comparison, if the types share a domain
#   column and constant       Comparison, the constant typed by the column; next to NULL it is UNKNOWN
#   v.a and constant          VariantComparison: a path into a variant, which may be cast
#   f(column) and constant    a condition on the column alone, for functions that never fall (comparison.compared)
#   constant and constant     Constant
#   anything else             SqlExpression: text for a SQL engine, with a scalar where Arrow can compute it
#
# The further up a form is, the more it prunes and the more engines evaluate it.
class _PredicateParser:
    """Turns one parsed condition into a predicate."""

    def __init__(self, text: str, schema: Schema, *, scalars: bool) -> None:
        self.text = text
        self.schema = schema
        self.scalars = scalars
        self.bound: dict[tuple[str, ...], tuple[ColumnReference, tuple[str, ...]]] = {}

    def predicate(self, node: exp.Expression) -> Predicate:
        node = unwrapped(node)
        # sqlglot 30 and later store NOT LIKE and NOT IN as an argument of the operator.
        if node.args.get("negate"):
            plain = node.copy()
            plain.set("negate", None)
            return negation(self.predicate(plain))
        if isinstance(node, exp.Predicate | exp.In) and any(value and name not in _PLAIN_ARGUMENTS for name, value in node.args.items()):
            # A variant of the operator, such as BETWEEN SYMMETRIC.
            return self.expression(node)
        return self.plain_predicate(node)

    def plain_predicate(self, node: exp.Expression) -> Predicate:
        match node:
            case exp.And():
                return all_of([self.predicate(operand) for operand in operands_of(node)])
            case exp.Or():
                return any_of([self.predicate(operand) for operand in operands_of(node)])
            case exp.Not():
                return negation(self.predicate(node.this))
            case exp.Boolean():
                return Constant(value=bool(node.this))
            case exp.Null():
                return UNKNOWN
            case exp.Between():
                low = self.comparison(node, node.this, ">=", node.args["low"])
                return conjunction((low, self.comparison(node, node.this, "<=", node.args["high"])))
            case exp.In():
                return self.in_list(node)
            case exp.Is():
                return self.is_test(node)
            case exp.NullSafeEQ():
                return self.not_distinct(node)
            case exp.NullSafeNEQ():
                return negation(self.not_distinct(node))
            case exp.Like():
                return self.like(node)
            case exp.StartsWith():
                return self.starts_with(node, node.this, node.expression)
            case _ if type(node) in COMPARISONS:
                return self.comparison(node, node.this, COMPARISONS[type(node)], node.expression)
            case _:
                return self.condition(node)

    def condition(self, node: exp.Expression) -> Predicate:
        """Return a boolean column, or any other SQL that must give a boolean."""
        if isinstance(node, exp.Anonymous) and node.name.lower() == "prefix" and len(node.expressions) == 2:
            return self.starts_with(node, *node.expressions)
        found = self.special_numbers(node)
        if found is not None:
            return found
        test = box_test(node)
        subject = None if test is None else self.column(test.subject)
        if test is not None and subject is not None and subject.type == GEOMETRY:
            return BoxOverlap(
                operand=subject, box=test.box, constant=test.constant, relation=test.relation, constant_first=test.constant_first
            )
        column = self.column(node)
        if column is not None and column.type == BOOLEAN:
            return column
        if column is not None or isinstance(unwrapped(node), exp.Literal):
            raise UsageError(f"{node.sql(dialect='duckdb')} in {shown_condition(self.text)} is not a condition. Compare it with a value")
        return self.expression(node)

    def special_numbers(self, node: exp.Expression) -> Predicate | None:
        """Return ``isnan``, ``isinf`` or ``isfinite`` of a column as comparisons, which also prune."""
        function, argument = special_test(node)
        column = None if argument is None else self.column(argument)
        if column is None:
            return None
        infinite: tuple[object, ...]
        nan: tuple[object, ...] = ()
        if column.type in FLOATS:
            infinite, nan = (float("inf"), float("-inf")), (float("nan"),)
        elif column.type == DATE or column.type in TIMESTAMPS:
            infinite = (infinity_of(column.type), -infinity_of(column.type))
        else:
            return None
        values = {"isnan": nan, "isinf": infinite, "isfinite": (*infinite, *nan)}[function]
        if not values:
            return None
        operator: Operator = "<>" if function == "isfinite" else "="
        tests = [Comparison(left=column, operator=operator, right=Literal(value=value, type=column.type)) for value in values]
        return all_of(tests) if function == "isfinite" else any_of(tests)

    def column(self, node: exp.Expression) -> ColumnReference | None:
        path = column_path(node)
        if path is None:
            return None
        # Long conditions name the same few columns thousands of times.
        if path not in self.bound:
            self.bound[path] = _named(path, self.schema)
        bound, rest = self.bound[path]
        if rest and bound.type != VARIANT and isinstance(unwrapped(node), exp.Column | exp.Dot):
            raise NotFoundError(f"column {'.'.join(bound.path)!r} of type {bound.type} has no field {rest[0]!r}", column=".".join(path))
        return None if rest else bound

    def expression(self, node: exp.Expression) -> SqlExpression:
        """Return any SQL, with its columns checked and spelled as the table spells them."""
        copy = node.copy()
        found: dict[ColumnReference, None] = {}
        for column in copy.find_all(exp.Column):
            bound, rest = _named(tuple(part.name for part in column.parts), self.schema)
            if rest:
                raise NotFoundError(f"column {'.'.join(bound.path)!r} of type {bound.type} has no field {rest[0]!r}", column=rest[0])
            for part, name in zip(column.parts, bound.path, strict=True):
                part.set("this", name)
            found[bound] = None
        if copy.find(exp.StartsWith):
            # sqlglot would write a cast to text into it, which DuckDB does not do.
            copy = copy.transform(_as_called)
        sql = copy.sql(dialect="duckdb", identify=True, comments=False)
        return SqlExpression(sql=sql, columns=tuple(found), scalar=self.scalar(sql))

    def scalar(self, sql: str) -> Scalar | None:
        """Return the condition as Arrow evaluates it, None when it cannot."""

        return parse_expression(sql, self.schema).scalar if self.scalars else None

    def comparison(self, whole: exp.Expression, left: exp.Expression, op: Operator, right: exp.Expression) -> Predicate:
        first, second = self.column(left), self.column(right)
        if first is not None and second is not None:
            same = common_domain(first.type, second.type) is not None
            return Comparison(left=first, operator=op, right=second) if same else self.compared(left, op, right)
        if first is None and second is not None:
            return self.comparison(whole, right, FLIPPED[op], left)
        constant = constant_of(right)
        if first is None:
            return self.without_column(left, op, right)
        if constant is None:
            return self.compared(left, op, right)
        literal = self.typed(constant, first.type, first)
        if literal is None:
            return self.compared(left, op, right)
        return UNKNOWN if literal.value is None else Comparison(left=first, operator=op, right=literal)

    def without_column(self, left: exp.Expression, op: Operator, right: exp.Expression) -> Predicate:
        """Return a comparison in which neither side is just a column."""
        for side, operator, other in ((left, op, right), (right, FLIPPED[op], left)):
            field = self.variant_field(side)
            if field is not None:
                return self.variant_compared(field, operator, other, COMPARED[op](this=left, expression=right))
        for function, operator, other in ((self.growing(left), op, right), (self.growing(right), FLIPPED[op], left)):
            found = None if function is None else self.function_compared(function, operator, other)
            if found is not None:
                return found
        return self.folded(constant_of(left), op, constant_of(right)) or self.compared(left, op, right)

    def variant_field(self, node: exp.Expression) -> VariantField | None:
        """Return a value inside of a variant, which may be cast."""
        found = nested_path(node)
        if found is None:
            return None
        column, rest = _follow(found.names, self.schema)
        steps = (*rest, *found.steps)
        if column.type != VARIANT or (not steps and found.cast is None):
            return None
        return VariantField(column=column, path=steps, cast=found.cast, lenient=found.lenient)

    def variant_compared(self, field: VariantField, op: Operator, other: exp.Expression, whole: exp.Expression) -> Predicate:
        constant = constant_of(other)
        if constant is None:
            return self.expression(whole)
        literal = self.own_type(constant) if field.cast is None else self.typed(constant, field.cast)
        if literal is None:
            return self.expression(whole)
        return UNKNOWN if literal.value is None else VariantComparison(left=field, operator=op, right=literal)

    def own_type(self, constant: QuotedText | Literal) -> Literal:
        return Literal(value=constant.text, type=VARCHAR) if isinstance(constant, QuotedText) else constant

    def growing(self, node: exp.Expression) -> MonotonicTransform | None:
        """Return a function of a column that never falls as the column grows."""
        call = call_of(node)
        column = None if call is None else self.column(call.argument)
        return None if call is None or column is None else function_of(call, column)

    def function_compared(self, function: MonotonicTransform, op: Operator, other: exp.Expression) -> Predicate | None:
        constant = constant_of(other)
        literal = None if constant is None else self.typed(constant, function.type)
        return None if literal is None else comparison.compared(function, op, literal)

    def compared(self, left: exp.Expression, op: Operator, right: exp.Expression) -> SqlExpression:
        return self.expression(COMPARED[op](this=left.copy(), expression=right.copy()))

    def folded(self, left: QuotedText | Literal | None, op: Operator, right: QuotedText | Literal | None) -> Constant | None:
        """Return the result of comparing two constants; None where only DuckDB knows it."""
        if left is None or right is None:
            return None
        first = self.typed(left, right.type if isinstance(right, Literal) else VARCHAR)
        second = self.typed(right, left.type if isinstance(left, Literal) else VARCHAR)
        if first is None or second is None:
            return None
        if first.value is None or second.value is None:
            return UNKNOWN
        domain = common_domain(first.type, second.type)
        if domain is None:
            return None
        return Constant(value=holds(key_of(first.value, first.type, domain), op, key_of(second.value, second.type, domain)))

    def typed(self, constant: QuotedText | Literal, data_type: DataType, column: ColumnReference | None = None) -> Literal | None:
        """Return the constant next to a column of ``data_type``; None where DuckDB would have to cast the column."""
        if isinstance(constant, QuotedText):
            return None if domain_of(data_type) is None else _read_constant(constant.text, data_type, column)
        if constant.value is None:
            return constant
        if data_type == TIMESTAMPTZ and constant.type != TIMESTAMPTZ:
            return zoned(constant)
        # In UTC, an instant and what clocks show are the same number. In any other zone the column would have to be cast.
        if constant.type == TIMESTAMPTZ and domain_of(data_type) == "point in time" and is_utc(session_zone()):
            return Literal(value=constant.value, type=TIMESTAMP)
        return None if common_domain(data_type, constant.type) is None else constant

    def in_list(self, node: exp.In) -> Predicate:
        field = self.variant_field(node.this)
        if field is not None:
            return any_of([self.variant_compared(field, "=", item, exp.EQ(this=node.this, expression=item)) for item in node.expressions])
        column, function = self.column(node.this), self.growing(node.this)
        constants = [constant_of(item) for item in node.expressions]
        data_type = column.type if column is not None else function.type if function is not None else None
        if data_type is None or not constants:
            return self.expression(node)
        literals = [None if c is None else self.typed(c, data_type, column) for c in constants]
        known = [literal for literal in literals if literal is not None]
        if len(known) < len(literals):
            return self.expression(node)
        values = tuple(dict.fromkeys(literal for literal in known if literal.value is not None))
        has_null = len([k for k in known if k.value is None]) > 0
        if column is not None:
            return InList(operand=column, values=values, has_null=has_null)
        found = None if function is None else comparison.one_of(function, values, has_null=has_null)
        return found or self.expression(node)

    def is_test(self, node: exp.Is) -> Predicate:
        column, test = self.column(node.this), node.expression
        if isinstance(test, exp.Null):
            constant = constant_of(node.this)
            if constant is not None:
                return Constant(value=isinstance(constant, Literal) and constant.value is None)
            field = self.variant_field(node.this)
            if field is not None and field.cast is None:
                return VariantIsNull(operand=field)
            function = self.growing(node.this)
            if function is not None:
                return comparison.is_null(function)
            return IsNull(operand=column) if column is not None else self.expression(node)
        if isinstance(test, exp.Boolean) and column is not None and column.type == BOOLEAN:
            return conjunction((negation(IsNull(operand=column)), column if test.this else Not(operand=column)))
        return self.expression(node)

    def not_distinct(self, node: exp.Binary) -> Predicate:
        """Return ``column IS NOT DISTINCT FROM constant``, which is never NULL."""
        left, right = (node.this, node.expression) if self.column(node.this) is not None else (node.expression, node.this)
        column, constant = self.column(left), constant_of(right)
        literal = None if column is None or constant is None else self.typed(constant, column.type, column)
        if column is None or literal is None:
            return self.expression(exp.NullSafeEQ(this=node.this.copy(), expression=node.expression.copy()))
        if literal.value is None:
            return IsNull(operand=column)
        return conjunction((negation(IsNull(operand=column)), Comparison(left=column, operator="=", right=literal)))

    def like(self, node: exp.Like) -> Predicate:
        column, pattern = self.column(node.this), constant_of(node.expression)
        if column is None or column.type not in (VARCHAR, JSON) or not isinstance(pattern, QuotedText):
            return self.expression(node)
        # Patterns that are an exact string or a prefix have a finer form. Other wildcards are left to the engine.
        prefix = pattern.text.removesuffix("%")
        if "%" in prefix or "_" in prefix:
            return self.expression(node)
        if prefix == pattern.text:
            return Comparison(left=column, operator="=", right=Literal(value=prefix, type=column.type))
        return StartsWith(operand=column, prefix=prefix)

    def starts_with(self, node: exp.Expression, subject: exp.Expression, start: exp.Expression) -> Predicate:
        column, prefix = self.column(subject), constant_of(start)
        if column is None or column.type not in (VARCHAR, JSON) or not isinstance(prefix, QuotedText):
            return self.expression(node)
        return StartsWith(operand=column, prefix=prefix.text)


def _as_called(node: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="starts_with", expressions=[node.this, node.expression]) if isinstance(node, exp.StartsWith) else node


class _Obstacle(Exception):  # noqa: N818 - never leaves this module
    """Something that only a SQL engine can evaluate."""


def parse_expression(text: str, schema: Schema, resolve: Resolver = lambda path: path) -> Expression:
    """Return an expression bound to columns.

    Args:
        text: SQL in DuckDB's dialect over the columns of one row.
        schema: The columns.
        resolve: Turns the names that the user writes into names of the schema.

    Raises:
        NotFoundError: A column that does not exist.
        UsageError: Not one expression: unreadable text, a subquery, an aggregate, a constant that cannot be read.
    """
    root = with_folded_times(parse_text(text, "expression"), text).copy()
    for column in list(root.find_all(exp.Column)):
        path = resolve(tuple(part.name for part in column.parts))
        bound = bind_column(path, schema)
        # The top-level column as a name, and the fields behind it as dots: ``a.b`` as one name would be column b of table a.
        fresh: exp.Expression = exp.column(*(exp.to_identifier(name, quoted=True) for name in reversed(bound.path[:1])))
        for name in bound.path[1:]:
            fresh = exp.Dot(this=fresh, expression=exp.to_identifier(name, quoted=True))
        # The tree has the bound names from here on; messages show the user's own.
        fresh.meta["written"] = column.sql(dialect="duckdb")
        if column is root:
            root = fresh
        else:
            column.replace(fresh)
    columns = tuple(dict.fromkeys(bind_column(path, schema) for path in _column_paths(root)))
    sql = root.sql(dialect="duckdb", identify=True, comments=False)
    try:
        scalar = _in_session_zone(_ScalarParser(text, schema).scalar(root))
    except _Obstacle as obstacle:
        return Expression(text=text, sql=sql, columns=columns, obstacle=str(obstacle))
    return Expression(text=text, sql=sql, columns=columns, scalar=scalar)


def _in_session_zone(scalar: Scalar) -> Scalar:
    """Return the scalar with the effective time zone, which another process that evaluates it need not have."""
    zone = session_zone()
    return scalar if is_utc(zone) or isinstance(scalar, Literal) else InZone(operand=scalar, zone=zone)


def constant_expression(value: Literal) -> Expression:
    """Return a constant that needs no SQL."""
    return Expression(text=repr(value.value), sql="", scalar=value)


def scalar_of(root: exp.Expression, text: str) -> Scalar:
    """Return a parsed expression without columns as a scalar.

    Raises:
        UnsupportedFeatureError: Only a SQL engine can evaluate it; the message is the part that is not understood.
        UsageError: A constant that cannot be read.
    """
    try:
        return _ScalarParser(text, Schema(columns=())).scalar(root)
    except _Obstacle as obstacle:
        raise UnsupportedFeatureError(str(obstacle)) from obstacle


def _as_written(node: exp.Expression) -> str:
    """Return a part of an expression with the columns' names as the user wrote them."""
    return node.transform(lambda part: exp.Var(this=part.meta["written"]) if "written" in part.meta else part).sql(dialect="duckdb")


def _column_paths(root: exp.Expression) -> list[tuple[str, ...]]:
    return [tuple(part.name for part in column.parts) for column in root.find_all(exp.Column)]


class _ScalarParser:
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
            # A bare number takes the type of what stands next to it; one that is cast keeps its own.
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
            case exp.Escape(this=exp.Like() | exp.ILike() as like) if constant_of(like.expression) and constant_of(node.expression):
                found = self.call(_pattern_function(like), like.this, like.expression, node.expression)
                return Logical(kind="not", operands=(found,)) if like.args.get("negate") else found
            case _ if (part := part_of(node)) is not None:
                return self.call(*part)
            case _ if (test := special_test(node))[1] is not None:
                return self.special(test[0], self.scalar(test[1]))
            case exp.Anonymous() if name == "prefix" and len(node.expressions) == 2:
                return self.call("starts_with", *node.expressions)
            case exp.Anonymous() if name in ("uuidv4", "uuidv7") and not node.expressions:
                return self.call("uuidv7" if name == "uuidv7" else "uuid")
            case _:
                raise _Obstacle(_as_written(node))

    @staticmethod
    def special(function: str, operand: Scalar) -> Scalar:
        """Return ``isnan``, ``isinf`` or ``isfinite`` of a number."""
        values = {"isnan": ("nan",), "isinf": ("inf", "-inf"), "isfinite": ("inf", "-inf", "nan")}[function]
        tests = [Compare(left=operand, operator="=", right=Literal(value=float(value), type=FLOAT64)) for value in values]
        found: Scalar = tests[0] if len(tests) == 1 else Logical(kind="or", operands=tuple(tests))
        return Logical(kind="not", operands=(found,)) if function == "isfinite" else found

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
        """Return ``operand IS TRUE`` or ``IS FALSE``, which are never NULL."""
        found = CastTo(operand=operand, type=BOOLEAN)
        wanted: Scalar = found if value else Logical(kind="not", operands=(found,))
        return Call(function="coalesce", arguments=(wanted, Literal(value=False, type=BOOLEAN)))

    def not_distinct(self, node: exp.Expression) -> Scalar:
        """Return whether two scalars are equal or both NULL."""
        left, right = self.scalar(node.this), self.scalar(node.expression)
        both = Logical(kind="and", operands=tuple(Logical(kind="is null", operands=(side,)) for side in (left, right)))
        return Call(function="coalesce", arguments=(Compare(left=left, operator="=", right=right), both))

    def condition(self, node: exp.Expression) -> Scalar:
        if node.args.get("negate"):
            # NOT LIKE, as sqlglot stores it since version 30.
            plain = node.copy()
            plain.set("negate", None)
            return Logical(kind="not", operands=(self.condition(plain),))
        match node:
            case exp.And() | exp.Or():
                kind = "and" if isinstance(node, exp.And) else "or"
                return Logical(kind=kind, operands=tuple(self.scalar(operand) for operand in operands_of(node)))
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
        if isinstance(node, exp.Like) or (isinstance(node, exp.ILike) and constant_of(node.expression) is not None):
            return self.call(_pattern_function(node), node.this, node.expression)
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


def _pattern_function(node: exp.Expression) -> str:
    return "ilike" if isinstance(node, exp.ILike) else "like"


def compare(schema: Schema, column: str | tuple[str, ...], operator: Operator, value: object) -> Predicate:
    """Return ``column operator value``; a column below structs is a tuple of names.

    >>> from ducklake_core.format.types.data_types import INT32, Field
    >>> from ducklake_core.format.expressions.parser import to_sql
    >>> schema = Schema(columns=(Field(id=1, name="day", type=DATE), Field(id=2, name="n", type=INT32)))
    >>> to_sql(compare(schema, "day", ">=", date(2013, 2, 1)), "duckdb"), to_sql(compare(schema, "N", "<", 5), "spark")
    ('("day" >= DATE \\'2013-02-01\\')', '(`n` < 5)')

    Args:
        schema: The table's columns.
        column: Name of the column, or the names from the column down to the field of a struct.
        operator: The comparison.
        value: A Python value; a string is read as a value of the column's type.

    Raises:
        NotFoundError: There is no such column.
        UsageError: The value cannot be compared with the column; None cannot with any (see :func:`is_null`).
    """
    bound = _bound(schema, column)
    return Comparison(left=bound, operator=operator, right=_literal_for(bound, value))


def between(schema: Schema, column: str | tuple[str, ...], start: object, end: object) -> Predicate:
    """Return ``start <= column < end``, the half-open range of time partitions.

    Args:
        schema: The table's columns.
        column: Name of the column, or the names from the column down to the field of a struct.
        start: Lower bound, included.
        end: Upper bound, excluded.
    """
    return conjunction((compare(schema, column, ">=", start), compare(schema, column, "<", end)))


def one_of(schema: Schema, column: str | tuple[str, ...], values: Iterable[object]) -> Predicate:
    """Return the predicate that the column has one of the values; FALSE when there are none.

    Args:
        schema: The table's columns.
        column: Name of the column, or the names from the column down to the field of a struct.
        values: Python values; None is not allowed.
    """
    bound = _bound(schema, column)
    literals = tuple(_literal_for(bound, value) for value in values)
    return InList(operand=bound, values=literals) if literals else FALSE


def is_null(schema: Schema, column: str | tuple[str, ...]) -> Predicate:
    """Return the predicate that the column is NULL."""
    return IsNull(operand=_bound(schema, column))


def starts_with(schema: Schema, column: str | tuple[str, ...], prefix: str) -> Predicate:
    """Return the predicate that a string column begins with a prefix.

    Args:
        schema: The table's columns.
        column: Name of the column, or the names from the column down to the field of a struct.
        prefix: The prefix; ``%`` and ``_`` are ordinary characters.

    Raises:
        UsageError: The column holds no strings.
    """
    bound = _bound(schema, column)
    if bound.type not in (VARCHAR, JSON):
        raise UsageError(f"column {'.'.join(bound.path)!r} of type {bound.type} does not hold strings, so none starts with {shown(prefix)}")
    return StartsWith(operand=bound, prefix=prefix)


def _bound(schema: Schema, column: str | tuple[str, ...]) -> ColumnReference:
    return bind_column((column,) if isinstance(column, str) else column, schema)


def literal(value: object, data_type: DataType) -> Literal:
    """Return a Python value as a constant to compare with a column of ``data_type``.

    Next to a ``timestamptz``, a datetime without a zone is meant in the effective time zone.

    >>> from ducklake_core.format.types.data_types import INT32
    >>> literal("2013-02-01", DATE).value, literal(datetime(1970, 1, 1, 0, 0, 1), TIMESTAMP).value, literal(1.5, INT32).type
    (15737, 1000000, PrimitiveType(name='float64'))

    Raises:
        UsageError: It cannot be compared with such a column.
    """
    found = text_literal(value, data_type) if isinstance(value, str) else _typed(value, data_type)
    if found is not None and found.type != data_type and data_type == TIMESTAMPTZ:
        found = zoned(found)
    elif found is not None and found.type == TIMESTAMPTZ and domain_of(data_type) == "point in time" and is_utc(session_zone()):
        found = Literal(value=found.value, type=TIMESTAMP)
    if found is None or common_domain(data_type, found.type) is None:
        raise UsageError(f"{shown(value)} cannot be compared with a column of type {data_type}")
    return found


def _read_constant(text: str, data_type: DataType, column: ColumnReference | None) -> Literal:
    try:
        return text_literal(text, data_type)
    except UsageError as error:
        if column is None:
            raise
        name = ".".join(column.path)
        raise UsageError(f"{error.message}, the type of column {name!r}", column=name, type=str(data_type)) from error


def _literal_for(column: ColumnReference, value: object) -> Literal:
    try:
        return literal(value, column.type)
    except UsageError as error:
        name = ".".join(column.path)
        raise UsageError(f"column {name!r}: {error.message}", column=name) from error


def literal_of(value: object) -> Literal:
    """Return a Python value as a constant of its own type; None is NULL.

    Raises:
        UsageError: No constant can be made of it.
    """
    if value is None:
        return Literal(value=None, type=BOOLEAN)
    if not isinstance(value, bool) and isinstance(value, Integral) and int(value).bit_length() <= _MAX_BITS:
        return number_literal(str(int(value)))
    found = _typed(value, UUID if isinstance(value, Uuid) else TIME)
    if found is None:
        raise UsageError(f"{shown(value)} cannot be a constant. Write it as SQL, such as \"'text'\"")
    return found


def _typed(value: object, data_type: DataType) -> Literal | None:
    match value:
        case bool():
            return Literal(value=value, type=BOOLEAN)
        case Integral() if int(value).bit_length() <= _MAX_BITS:
            # Integers of NumPy too.
            return Literal(value=int(value), type=INT128)
        case float():
            return Literal(value=value, type=FLOAT64)
        case Decimal() if value.is_finite():
            return number_literal(f"{value:f}")
        case bytes():
            return Literal(value=value, type=BLOB)
        case datetime():
            return _point_in_time(value)
        case date():
            return Literal(value=value.toordinal() - _EPOCH.toordinal(), type=DATE)
        case time() if value.tzinfo is None:
            return text_literal(value.isoformat(), data_type)
        case Uuid():
            return text_literal(str(value), data_type)
        case _:
            return None


def _point_in_time(value: datetime) -> Literal | None:
    if value != value:  # noqa: PLR0124 - as NaN
        # NaT, the missing value of pandas, is an instance of datetime.
        return None
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    elapsed = aware - _EPOCH
    units = (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    # A pandas.Timestamp has nanoseconds; Arrow returns one for timestamp_ns where pandas is installed.
    finer: int = getattr(value, "nanosecond", 0)
    if not finer:
        return Literal(value=units, type=TIMESTAMPTZ if value.tzinfo else TIMESTAMP)
    return None if value.tzinfo else Literal(value=units * 1000 + finer, type=TIMESTAMP_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CastCall:
    """``CAST(argument AS type)``, or ``TRY_CAST``."""

    argument: exp.Expression
    type: DataType
    is_try: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateCall:
    """``date_trunc(unit, argument)``."""

    argument: exp.Expression
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class YearCall:
    """``year(argument)``."""

    argument: exp.Expression


def special_test(node: exp.Expression) -> tuple[str, exp.Expression | None]:
    """Return the name and the argument of ``isnan``, ``isinf`` or ``isfinite``; no argument for any other expression."""
    match node:
        case exp.IsNan():
            return "isnan", node.this
        case exp.IsInf():
            return "isinf", node.this
        case exp.Anonymous() if node.name.lower() == "isfinite" and len(node.expressions) == 1:
            return "isfinite", node.expressions[0]
        case _:
            return "", None


def part_of(node: exp.Expression) -> tuple[str, exp.Expression] | None:
    """Return the part of a date or time that a call computes, such as ``month``, and its argument; None for any other expression."""
    name, argument = type(node).__name__.lower(), node.args.get("this")
    match node:
        case exp.Extract():
            name, argument = node.this.name.lower(), node.expression
        case exp.Anonymous() if node.name.lower() in _PARTS and len(node.expressions) == 2:
            name, argument = node.expressions[0].name.lower(), node.expressions[1]
        case exp.Anonymous() if len(node.expressions) == 1:
            name, argument = node.name.lower(), node.expressions[0]
        case exp.Column() | exp.Literal():
            return None
        case _:
            pass
    part = PART_NAMES.get(name)
    return None if part is None or not isinstance(argument, exp.Expression) else (part, argument)


def call_of(node: exp.Expression) -> CastCall | TruncateCall | YearCall | None:
    """Return the call that a node is, None for any other expression."""
    node = unwrapped(node)
    match node:
        case exp.Cast():
            target = data_type_of(node.to)
            # Other arguments make it a variant, such as a cast with a format.
            plain = not any(value for name, value in node.args.items() if name not in ("this", "to", "safe"))
            return CastCall(argument=node.this, type=target, is_try=isinstance(node, exp.TryCast)) if target and plain else None
        case exp.TimestampTrunc() | exp.DateTrunc():
            unit = _unit(node.args.get("unit"))
            return TruncateCall(argument=node.this, unit=unit) if unit and not node.args.get("zone") else None
        case exp.Year():
            return YearCall(argument=node.this)
        case exp.Extract() if _unit(node.this) == "year":
            return YearCall(argument=node.expression)
        case exp.Anonymous() if node.name.lower() in _PARTS and len(node.expressions) == 2 and _unit(node.expressions[0]) == "year":
            return YearCall(argument=node.expressions[1])
        case _:
            return None


def function_of(call: CastCall | TruncateCall | YearCall, column: ColumnReference) -> MonotonicTransform | None:
    """Return the call's function of its column; None where it does not grow with it, or depends on the session's time zone."""
    match call:
        case CastCall():
            return cast_of(column, call.type, is_try=call.is_try)
        case TruncateCall():
            return Truncated(column=column, unit=call.unit) if has_calendar(column) else None
        case YearCall():
            return Year(column=column) if has_calendar(column) else None
        case _:
            assert_never(call)


def _unit(node: object) -> Unit | None:
    return _UNITS.get(node.name.lower()) if isinstance(node, exp.Var | exp.Literal) else None
