"""An UPDATE or MERGE as it was asked for: expressions bound to the flat columns, before an engine is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ducklake_core.engines.arrow.row_change import Action, Clause, RowChange, When, flat_columns, source_ids
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions.columns import Column
from ducklake_core.format.expressions.conditions import Condition
from ducklake_core.format.expressions.predicate_builder import literal_of
from ducklake_core.format.expressions.predicate_parser import parse_predicate
from ducklake_core.format.expressions.predicate_sql import to_sql
from ducklake_core.format.expressions.predicates import And, ColumnReference, Predicate, conjunction, needs_sql
from ducklake_core.format.expressions.scalar_parser import constant_expression, parse_expression
from ducklake_core.format.expressions.scalars import Expression, Scalar
from ducklake_core.format.types.data_types import DataType, Field
from ducklake_core.format.types.message_text import similar_in_brackets
from ducklake_core.format.types.names import folded, split_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.planning.virtual import with_virtual

_COMPUTED_IDS = 1_500_000_000
TARGET_NAMES = ("t", "target")
SOURCE_NAMES = ("s", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedClause:
    """A branch whose expressions may need an engine; see :class:`~ducklake_core.engines.arrow.row_change.Clause`."""

    when: When
    action: Action
    condition: Expression | None = None
    values: tuple[tuple[int, Expression], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """A change of rows as it was asked for.

    Attributes:
        where: Which rows of the table an update is about; None for all.
        residual: What must hold for a match besides the keys.
        by_row_id: See :class:`~ducklake_core.engines.arrow.row_change.RowChange`.
    """

    table: str
    target: Schema
    source: Schema = Schema(columns=())  # noqa: RUF009 - a frozen value
    where: Predicate | None = None
    keys: tuple[tuple[int, int], ...] = ()
    residual: Expression | None = None
    by_row_id: bool = False
    clauses: tuple[RequestedClause, ...]

    @property
    def for_engine(self) -> tuple[Expression, ...]:
        """The expressions that only a SQL engine can evaluate, each once."""
        found: list[Expression] = [] if self.residual is None else [self.residual]
        for clause in self.clauses:
            found += [] if clause.condition is None else [clause.condition]
            found += [value for _, value in clause.values]
        return tuple(dict.fromkeys(expression for expression in found if expression.scalar is None))

    def change(self, types: Sequence[DataType] | None = None) -> RowChange:
        """The change as it is carried out.

        Args:
            types: Types of the columns ``x0`` ... that an engine makes of :attr:`for_engine`; None when there is none.

        Raises:
            UnsupportedFeatureError: There is no engine for an expression that needs one.
        """
        computed = self.for_engine
        if types is None and computed:
            raise UnsupportedFeatureError(
                f"{computed[0].text!r} for {self.table} needs a SQL engine ({computed[0].obstacle}); give a Spark session (spark)",
                expression=computed[0].text,
                table=self.table,
            )
        fields = tuple(Field(id=_COMPUTED_IDS + n, name=f"x{n}", type=kind) for n, kind in enumerate(types or ()))

        def scalar(expression: Expression) -> Scalar:
            if expression.scalar is not None:
                return expression.scalar
            column = fields[computed.index(expression)]
            return ColumnReference(column_id=column.id, path=(column.name,), type=column.type)

        clauses = tuple(
            Clause(
                when=clause.when,
                action=clause.action,
                condition=None if clause.condition is None else scalar(clause.condition),
                values=tuple((place, scalar(value)) for place, value in clause.values),
            )
            for clause in self.clauses
        )
        change = RowChange(
            target=self.target,
            source=self.source,
            computed=Schema(columns=fields),
            keys=self.keys,
            residual=None if self.residual is None else scalar(self.residual),
            by_row_id=self.by_row_id,
            clauses=clauses,
        )
        change.check()
        return change


class Binder:
    """Binds what a user writes to the flat columns of a target and a source.

    Args:
        table: ``schema.table`` for messages.
        target: The table's columns.
        source: The source's columns, None for an update.
    """

    def __init__(self, table: str, target: Schema, source: Schema | None = None) -> None:
        self.table = table
        self.target = target
        self.source = Schema(columns=()) if source is None else source_ids(source)
        own = (*TARGET_NAMES, folded(split_name(table)[1]))
        self._sides = [(own, target, "t")] if source is None else [(own, target, "t"), (SOURCE_NAMES, self.source, "s")]

    @property
    def flat(self) -> Schema:
        """The flat columns."""
        return Schema(columns=(*flat_columns(self.target, "t"), *flat_columns(self.source, "s")))

    def expression(self, given: object) -> Expression:
        """SQL text, or a Python value as a constant.

        Raises:
            NotFoundError: A column that neither side has.
            UsageError: A name that both sides have, or something that is no expression over one row.
        """
        if isinstance(given, str):
            return parse_expression(given, self.flat, self._resolve)
        return constant_expression(literal_of(given))

    def values(self, given: Mapping[str, object]) -> tuple[tuple[int, Expression], ...]:
        """Values for columns of the target by name.

        Raises:
            UsageError: No column, or one of them twice.
            NotFoundError: A column that the table does not have.
        """
        found: dict[int, Expression] = {}
        for name, value in given.items():
            place = self.target.columns.index(self.target.column(name))
            if place in found:
                raise UsageError(f"column {name!r} of {self.table} is set twice", table=self.table, column=name)
            found[place] = self.expression(value)
        if not found:
            raise UsageError(f"no column of {self.table} is given a value", table=self.table)
        return tuple(found.items())

    def same_names(self, *, whole: bool) -> tuple[tuple[int, Expression], ...]:
        """For ``"all"``: every column of the source goes to the column of the target that has its name.

        Args:
            whole: Whether the source has to have all columns of the target.

        Raises:
            NotFoundError: A column of the source that the table does not have.
            UsageError: A column of the table that the source does not have.
        """
        for column in self.source:
            self.target.column(column.name)
        missing = [column.name for column in self.target if self.source.find(column.name) is None]
        if whole and missing:
            raise UsageError(
                f"the source has no column {', '.join(missing)}, which {self.table} has: name the columns to set", table=self.table
            )
        found: list[tuple[int, Expression]] = []
        for place, column in enumerate(self.target):
            theirs = self.source.find(column.name)
            if theirs is not None:
                flat = f"s{self.source.columns.index(theirs)}"
                found.append((place, parse_expression(f'"{flat}"', self.flat)))
        return tuple(found)

    def _resolve(self, path: tuple[str, ...]) -> tuple[str, ...]:
        if len(path) > 1:
            for names, schema, letter in self._sides:
                if folded(path[0]) in names and schema.find(path[1]) is not None:
                    return self._flat(schema, letter, path[1:])
        owners = [(schema, letter) for _, schema, letter in self._sides if schema.find(path[0]) is not None]
        if len(owners) > 1:
            raise UsageError(f"both sides have a column {path[0]!r}: write t.{path[0]} or s.{path[0]}", column=path[0])
        if not owners:
            every = ", ".join(
                f"{letter}.{name}" if len(self._sides) > 1 else name for _, schema, letter in self._sides for name in schema.names
            )
            near = similar_in_brackets(path[0], [name for _, schema, _ in self._sides for name in schema.names])
            raise NotFoundError(f"there is no column {'.'.join(path)!r}{near}; the columns are: {every}", column=".".join(path))
        return self._flat(*owners[0], path)

    @staticmethod
    def _flat(schema: Schema, letter: str, path: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{letter}{schema.columns.index(schema.column(path[0]))}", *path[1:])


def update_request(
    table: str, schema: Schema, values: Mapping[str, object], where: str | Predicate | Condition | Column | None
) -> ChangeRequest:
    """The change that ``UPDATE table SET ... WHERE ...`` asks for.

    Files are narrowed by those parts of the condition that predicates know; the whole of it is looked at for each row.
    """
    binder = Binder(table, schema)
    predicate = None if where is None else parse_predicate(where, with_virtual(schema))
    condition = None
    if predicate is not None and needs_sql(predicate):
        condition = binder.expression(where if isinstance(where, str) else to_sql(predicate, "duckdb"))
        parts = predicate.operands if isinstance(predicate, And) else (predicate,)
        known = [part for part in parts if not needs_sql(part)]
        predicate = conjunction(known) if known else None
    clause = RequestedClause(when="matched", action="update", condition=condition, values=binder.values(values))
    return ChangeRequest(table=table, target=schema, where=predicate, clauses=(clause,))
