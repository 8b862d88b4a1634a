"""SQL conditions of users, in DuckDB's dialect, as predicates bound to a table's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.expressions import monotonic as growing
from ducklake_core.format.expressions.comparison import FLIPPED, common_domain, domain_of, holds, key_of
from ducklake_core.format.expressions.folding import all_of, any_of, normalized
from ducklake_core.format.expressions.literals import text_literal
from ducklake_core.format.expressions.monotonic import MonotonicTransform
from ducklake_core.format.expressions.nested_tests import box_test, nested_path
from ducklake_core.format.expressions.predicate_sql import to_sql
from ducklake_core.format.expressions.predicates import (
    UNKNOWN,
    BoxOverlap,
    ColumnReference,
    Comparison,
    Constant,
    InList,
    IsNull,
    Literal,
    Not,
    Operator,
    Predicate,
    SqlExpression,
    StartsWith,
    VariantComparison,
    VariantField,
    VariantIsNull,
    conjunction,
    negation,
    references,
)
from ducklake_core.format.expressions.sql_chains import operands_of, shown
from ducklake_core.format.expressions.sql_constants import QuotedText, constant_of, unwrapped, zoned
from ducklake_core.format.expressions.sql_functions import call_of, function_of
from ducklake_core.format.expressions.sql_trees import column_path, parse_text
from ducklake_core.format.types.data_types import BOOLEAN, GEOMETRY, JSON, TIMESTAMP, TIMESTAMPTZ, VARCHAR, VARIANT, DataType, StructType
from ducklake_core.format.types.message_text import similar_in_brackets
from ducklake_core.format.types.names import dotted, folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.time_zones import is_utc, session_zone

if TYPE_CHECKING:
    from ducklake_core.format.expressions.columns import Column
    from ducklake_core.format.expressions.conditions import Condition
    from ducklake_core.format.expressions.scalars import Scalar

__all__ = [
    "bind_column",
    "operator_of",
    "parse_predicate",
    "predicate_of",
    "to_sql",
]

COMPARISONS: dict[type[exp.Expression], Operator] = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
COMPARED: dict[Operator, type[exp.Expression]] = {name: kind for kind, name in COMPARISONS.items()}
_PLAIN_ARGUMENTS = frozenset({"this", "expression", "expressions", "low", "high"})


def parse_predicate(condition: str | Predicate | Condition | Column, schema: Schema) -> Predicate:
    """The condition as a predicate on the schema's columns.

    Constants are typed by the column they are compared with, as DuckDB types them.  What has no finer form stays a
    :class:`SqlExpression`, which prunes nothing and which only a SQL engine can evaluate.

    Args:
        condition: SQL text in DuckDB's dialect, a condition of :mod:`ducklake_core.conditions`, or a predicate that was built before
            and is only checked.
        schema: The table's columns; names are found without regard to case.

    Raises:
        NotFoundError: A column that the table does not have.
        UsageError: Not one condition: unreadable text, several statements, a subquery, an aggregate, a constant that cannot be
            read as a value of its column, or a column that is no condition.
    """
    if isinstance(condition, Predicate):
        return _checked(normalized(condition), schema)
    if not isinstance(condition, str):
        from ducklake_core.format.expressions.conditions import Combinable, bound

        if isinstance(condition, Combinable):
            return bound(condition.as_condition(), schema)
        raise UsageError(f'{condition!r} is no condition: write it as SQL text, such as "k = 5"')
    return predicate_of(parse_text(condition), condition, schema)


def bind_column(path: tuple[str, ...], schema: Schema) -> ColumnReference:
    """The column at a path of names, without regard to case.

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
            fields = ", ".join(f.name for f in field.type.fields)
            near = similar_in_brackets(rest[0], [f.name for f in field.type.fields])
            message = f"the struct {'.'.join(names)!r} has no field {rest[0]!r}{near}; its fields are: {fields}"
            raise NotFoundError(message, column=".".join(path))
        field, rest = child, rest[1:]
        names.append(field.name)
    return ColumnReference(column_id=field.id, path=tuple(names), type=field.type), rest


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
    """A parsed condition as a predicate; see :func:`parse_predicate`. ``scalars`` says whether to look for what Arrow can evaluate."""
    return _Parser(text, schema, scalars=scalars).predicate(node)


def operator_of(node: exp.Expression) -> Operator | None:
    """The comparison that a node is, None for any other node."""
    return COMPARISONS.get(type(node))


class _Parser:
    """Turns one parsed condition into a predicate."""

    def __init__(self, text: str, schema: Schema, *, scalars: bool) -> None:
        self.text = text
        self.schema = schema
        self.scalars = scalars
        self.bound: dict[tuple[str, ...], tuple[ColumnReference, tuple[str, ...]]] = {}

    def predicate(self, node: exp.Expression) -> Predicate:
        node = unwrapped(node)
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
        """A boolean column, or any other SQL that must give a boolean."""
        if isinstance(node, exp.Anonymous) and node.name.lower() == "prefix" and len(node.expressions) == 2:
            return self.starts_with(node, *node.expressions)
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
            raise UsageError(f"{node.sql(dialect='duckdb')} in {shown(self.text)} is not a condition; compare it with something")
        return self.expression(node)

    def column(self, node: exp.Expression) -> ColumnReference | None:
        path = column_path(node)
        if path is None:
            return None
        if path not in self.bound:
            self.bound[path] = _follow(path, self.schema)
        bound, rest = self.bound[path]
        if rest and bound.type != VARIANT and isinstance(unwrapped(node), exp.Column | exp.Dot):
            raise NotFoundError(f"column {'.'.join(bound.path)!r} of type {bound.type} has no field {rest[0]!r}", column=".".join(path))
        return None if rest else bound

    def expression(self, node: exp.Expression) -> SqlExpression:
        """Any SQL, with its columns checked and spelt as the table spells them."""
        copy = node.copy()
        found: dict[ColumnReference, None] = {}
        for column in copy.find_all(exp.Column):
            bound, rest = _follow(tuple(part.name for part in column.parts), self.schema)
            if rest:
                raise NotFoundError(f"column {'.'.join(bound.path)!r} of type {bound.type} has no field {rest[0]!r}", column=rest[0])
            for part, name in zip(column.parts, bound.path, strict=True):
                part.set("this", name)
            found[bound] = None
        sql = copy.sql(dialect="duckdb", identify=True, comments=False)
        return SqlExpression(sql=sql, columns=tuple(found), scalar=self.scalar(sql))

    def scalar(self, sql: str) -> Scalar | None:
        """The condition as Arrow evaluates it, None when it cannot."""
        from ducklake_core.format.expressions.scalar_parser import parse_expression

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
        literal = self.typed(constant, first.type)
        if literal is None:
            return self.compared(left, op, right)
        return UNKNOWN if literal.value is None else Comparison(left=first, operator=op, right=literal)

    def without_column(self, left: exp.Expression, op: Operator, right: exp.Expression) -> Predicate:
        """A comparison in which neither side is just a column."""
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
        """A value inside of a variant, which may be cast."""
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
        """A function of a column that never falls as the column grows."""
        call = call_of(node)
        column = None if call is None else self.column(call.argument)
        return None if call is None or column is None else function_of(call, column)

    def function_compared(self, function: MonotonicTransform, op: Operator, other: exp.Expression) -> Predicate | None:
        constant = constant_of(other)
        literal = None if constant is None else self.typed(constant, function.type)
        return None if literal is None else growing.compared(function, op, literal)

    def compared(self, left: exp.Expression, op: Operator, right: exp.Expression) -> SqlExpression:
        return self.expression(COMPARED[op](this=left.copy(), expression=right.copy()))

    def folded(self, left: QuotedText | Literal | None, op: Operator, right: QuotedText | Literal | None) -> Constant | None:
        """Two constants compared right here; None where only DuckDB knows how."""
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

    def typed(self, constant: QuotedText | Literal, data_type: DataType) -> Literal | None:
        """The constant beside a column of ``data_type``; None where DuckDB would have to cast the column."""
        if isinstance(constant, QuotedText):
            return None if domain_of(data_type) is None else text_literal(constant.text, data_type)
        if constant.value is None:
            return constant
        if data_type == TIMESTAMPTZ and constant.type != TIMESTAMPTZ:
            return zoned(constant)
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
        literals = [None if c is None else self.typed(c, data_type) for c in constants]
        known = [literal for literal in literals if literal is not None]
        if len(known) < len(literals):
            return self.expression(node)
        values = tuple(dict.fromkeys(literal for literal in known if literal.value is not None))
        has_null = len([k for k in known if k.value is None]) > 0
        if column is not None:
            return InList(operand=column, values=values, has_null=has_null)
        found = None if function is None else growing.one_of(function, values, has_null=has_null)
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
                return growing.is_null(function)
            return IsNull(operand=column) if column is not None else self.expression(node)
        if isinstance(test, exp.Boolean) and column is not None and column.type == BOOLEAN:
            return conjunction((negation(IsNull(operand=column)), column if test.this else Not(operand=column)))
        return self.expression(node)

    def not_distinct(self, node: exp.Binary) -> Predicate:
        """``column IS NOT DISTINCT FROM constant``, which is never NULL."""
        left, right = (node.this, node.expression) if self.column(node.this) is not None else (node.expression, node.this)
        column, constant = self.column(left), constant_of(right)
        literal = None if column is None or constant is None else self.typed(constant, column.type)
        if column is None or literal is None:
            return self.expression(exp.NullSafeEQ(this=node.this.copy(), expression=node.expression.copy()))
        if literal.value is None:
            return IsNull(operand=column)
        return conjunction((negation(IsNull(operand=column)), Comparison(left=column, operator="=", right=literal)))

    def like(self, node: exp.Like) -> Predicate:
        column, pattern = self.column(node.this), constant_of(node.expression)
        if column is None or column.type not in (VARCHAR, JSON) or not isinstance(pattern, QuotedText):
            return self.expression(node)
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
