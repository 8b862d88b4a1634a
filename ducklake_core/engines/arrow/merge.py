"""A MERGE or UPDATE request: bound expressions, keys, the source's rows with an index over them, and the outcome for a batch.

Expressions are bound to flat columns, because target and source may have columns of the same names::

    | t0 | t1 | ... | s0 | s1 | ... | x0 | ... |
      target          source          computed by a SQL engine where Arrow cannot evaluate an expression

A request becomes a change in two steps: ``Binder`` parses the user's SQL to a :class:`ChangeRequest`, and :meth:`ChangeRequest.change`
makes the picklable :class:`RowChange` that executors carry out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from ducklake_core.engines.arrow.evaluate import SOURCE_IDS, assigned, check_scalar, hashable, holds_for, unified
from ducklake_core.engines.arrow.file_reader import ChosenRows
from ducklake_core.engines.arrow.read import read_chosen, read_inlined, read_plan, read_task
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.comparison import Domain, common_domain
from ducklake_core.format.expressions.conditions import Column, Condition, Constant, bind
from ducklake_core.format.expressions.parser import constant_expression, literal_of, parse_expression
from ducklake_core.format.expressions.predicates import (
    FALSE,
    And,
    ColumnReference,
    Comparison,
    Expression,
    InList,
    Predicate,
    Scalar,
    Text,
    conjunction,
    needs_sql,
)
from ducklake_core.format.expressions.predicates import Literal as LiteralValue
from ducklake_core.format.expressions.sql import to_sql
from ducklake_core.format.expressions.syntax import column_path, conjuncts, equal_sides, parse_text
from ducklake_core.format.files.data_files import WrittenFile
from ducklake_core.format.types.data_types import FLOATS, DataType, Field
from ducklake_core.format.types.names import folded, quoted_path, split_name
from ducklake_core.format.types.schema import Schema, to_arrow_schema
from ducklake_core.format.types.text import similar_or_all
from ducklake_core.format.values.arrow_cast import null_array
from ducklake_core.format.values.leaf_values import from_text, order_key, python_values
from ducklake_core.planning.plan import FileTask, ScanPlan, ScanProjection, empty_plan, with_virtual, written_plan
from ducklake_core.storage.filesystems import Storage

_COMPUTED_IDS = 1_500_000_000
TARGET_NAMES = ("t", "target")
SOURCE_NAMES = ("s", "source")

_LISTED = 100
"""Up to this many distinct keys prune files one by one; more keys prune only by their range."""

SOUGHT = 250_000
"""Readers filter by the keys of a source of at most this many rows; a larger source is joined with all rows in its range."""
_CHUNK_ROWS = 524_288
"""Rows of the target that are matched at once: each chunk costs one pass over the source's keys."""

_POSITION = ("file_row_number",)
_WHOLE_BYTES = 4 << 20
"""Files up to this size are read once; of larger ones the keys are read first, then only the rows that may match."""

_ORDER: tuple[tuple[When, tuple[Action, ...]], ...] = (
    ("matched", ("update", "delete")),
    ("not matched", ("insert",)),
    ("not matched by source", ("update", "delete")),
)

When: TypeAlias = Literal["matched", "not matched", "not matched by source"]
Action: TypeAlias = Literal["update", "delete", "insert"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedClause:
    """A branch whose expressions may need an engine; see :class:`~ducklake_core.engines.arrow.merge.Clause`."""

    when: When
    action: Action
    condition: Expression | None = None
    values: tuple[tuple[int, Expression], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """A change of rows as the caller requested it.

    Attributes:
        where: Rows of the table that an update changes; None for all.
        residual: Condition for a match in addition to the keys; None for none.
        by_row_id: See :class:`~ducklake_core.engines.arrow.merge.RowChange`.
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
        """Return the expressions that only a SQL engine can evaluate, each once."""
        found: list[Expression] = [] if self.residual is None else [self.residual]
        for clause in self.clauses:
            found += [] if clause.condition is None else [clause.condition]
            found += [value for _, value in clause.values]
        return tuple(dict.fromkeys(expression for expression in found if expression.scalar is None))

    def change(self, types: Sequence[DataType] | None = None) -> RowChange:
        """Return the change as it is carried out.

        Args:
            types: Types of the columns ``x0`` ... that an engine makes of :attr:`for_engine`; None when there is none.

        Raises:
            UnsupportedFeatureError: There is no engine for an expression that needs one.
        """
        computed = self.for_engine
        if types is None and computed:
            raise UnsupportedFeatureError(
                f"{computed[0].text!r} for {self.table} cannot be evaluated by Arrow ({computed[0].obstacle}). Pass a Spark session with "
                "spark=",
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
        """Return the flat columns."""
        return Schema(columns=(*flat_columns(self.target, "t"), *flat_columns(self.source, "s")))

    def expression(self, given: object) -> Expression:
        """Parse SQL text, or make an expression of a column or a constant of a Python value.

        Raises:
            NotFoundError: A column that neither side has.
            UsageError: A name that both sides have, or a string that is not an expression over one row.
        """
        if isinstance(given, str):
            return parse_expression(given, self.flat, self._resolve)
        if isinstance(given, Column):
            return parse_expression(quoted_path((given.path,) if isinstance(given.path, str) else given.path), self.flat, self._resolve)
        value = given.value if isinstance(given, Constant) else given
        if isinstance(value, str):
            return Expression(text=repr(value), sql="", scalar=Text(text=value))
        return constant_expression(literal_of(value))

    def values(self, given: Mapping[str, object]) -> tuple[tuple[int, Expression], ...]:
        """Return values for columns of the target by name.

        Raises:
            UsageError: There is no key column, or one of them is repeated.
            NotFoundError: A column that the table does not have.
        """
        found: dict[int, Expression] = {}
        for name, value in given.items():
            place = self.target.columns.index(self.target.column(name))
            if place in found:
                raise UsageError(f"column {name!r} of {self.table} is set twice. Set it once", table=self.table, column=name)
            found[place] = self.expression(value)
        if not found:
            raise UsageError(f"no column of {self.table} is set. Set at least one", table=self.table)
        return tuple(found.items())

    def same_names(self, *, whole: bool) -> tuple[tuple[int, Expression], ...]:
        """Assign every column of the source to the target's column of the same name, for ``"all"``.

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
                f"the source lacks columns {', '.join(missing)} of {self.table}. Add them, or list the columns to set", table=self.table
            )
        found: list[tuple[int, Expression]] = []
        for place, column in enumerate(self.target):
            source_column = self.source.find(column.name)
            if source_column is not None:
                flat = f"s{self.source.columns.index(source_column)}"
                found.append((place, parse_expression(f'"{flat}"', self.flat)))
        return tuple(found)

    def _resolve(self, path: tuple[str, ...]) -> tuple[str, ...]:
        if len(path) > 1:
            for names, schema, letter in self._sides:
                if folded(path[0]) in names and schema.find(path[1]) is not None:
                    return self._flat(schema, letter, path[1:])
        owners = [(schema, letter) for _, schema, letter in self._sides if schema.find(path[0]) is not None]
        if len(owners) > 1:
            raise UsageError(
                f"column {path[0]!r} is ambiguous, because both the table and the source have it. Write t.{path[0]} or s.{path[0]}",
                column=path[0],
            )
        if not owners:
            raise self._missing(path)
        return self._flat(*owners[0], path)

    def _missing(self, path: tuple[str, ...]) -> NotFoundError:
        """Return the error for a column, without the letters of the sides: SQL has aliases of its own."""
        for names, schema, letter in self._sides if len(path) > 1 else ():
            if folded(path[0]) in names:
                side = f"table {self.table}" if letter == "t" else "the source"
                listed = similar_or_all(path[1], schema.names, ". Its columns are")
                return NotFoundError(f"{side} has no column {path[1]!r}{listed}", column=path[1])
        listed = similar_or_all(path[0], dict.fromkeys(name for _, schema, _ in self._sides for name in schema.names), ". The columns are")
        string = "" if "did you mean" in listed or len(path) > 1 else f". If it is a string, write it in single quotes, as in '{path[0]}'"
        return NotFoundError(f"column {'.'.join(path)!r} does not exist{listed}{string}", column=".".join(path))

    @staticmethod
    def _flat(schema: Schema, letter: str, path: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{letter}{schema.columns.index(schema.column(path[0]))}", *path[1:])


def update_request(
    table: str, schema: Schema, values: Mapping[str, object], where: str | Predicate | Condition | Column | None
) -> ChangeRequest:
    """Return the change that corresponds to ``UPDATE table SET ... WHERE ...``.

    Predicates prune files by the parts of the condition that they support; the whole condition is evaluated for each row.

    Args:
        table: ``schema.table`` for messages.
        schema: The table's columns.
        values: New values by column name: SQL text, or Python values as constants.
        where: Rows to change: SQL text or a predicate; all rows when None.
    """
    binder = Binder(table, schema)
    predicate = None if where is None else bind(where, with_virtual(schema))
    condition = None
    if predicate is not None and needs_sql(predicate):
        condition = binder.expression(where if isinstance(where, str) else to_sql(predicate, "duckdb"))
        parts = predicate.operands if isinstance(predicate, And) else (predicate,)
        known = [part for part in parts if not needs_sql(part)]
        predicate = conjunction(known) if known else None
    clause = RequestedClause(when="matched", action="update", condition=condition, values=binder.values(values))
    return ChangeRequest(table=table, target=schema, where=predicate, clauses=(clause,))


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """A source: rows in memory, or files that a Spark session wrote next to the table's and that no catalog names.

    Attributes:
        schema: Its columns.
        rows: The rows, when they are in memory.
        files: The files, when they are not, relative to ``directory``.
        session: The Spark session that reads them.
        storage: How to reach them.
    """

    schema: Schema
    rows: pa.Table | None = None
    files: tuple[WrittenFile, ...] = ()
    directory: str = ""
    session: Any = field(default=None, repr=False)
    storage: Storage = field(default_factory=Storage)

    def narrowing(self, request: ChangeRequest) -> Predicate | None:
        """Return a predicate that holds for every row of the target that a row of the source can match; None when all rows matter."""
        if any(clause.when == "not matched by source" for clause in request.clauses):
            return None
        if (self.rows is not None and not self.rows.num_rows) or (self.rows is None and not self.files):
            return FALSE
        if request.by_row_id:
            return request.where
        known = self._known_keys(request)
        columns = request.target.columns, self.schema.columns
        return _all_bounds(
            _bounds(columns[0][target], columns[1][source], known.get(source), self.files) for target, source in request.keys
        )

    def keys(self, request: ChangeRequest) -> SourceKeys | None:
        """Return the keys by which readers skip target rows that match nothing; None when all rows matter, or the source is large."""
        if any(clause.when == "not matched by source" for clause in request.clauses) or self._row_count > SOUGHT:
            return None
        parts = tuple((request.target.columns[target], self.schema.columns[source]) for target, source in request.keys)
        if self.rows is not None:
            held: list[Any] = [self.rows.column(source).combine_chunks() for _, source in request.keys]
            return SourceKeys(parts=parts, rows=tuple(held))
        names = tuple(dict.fromkeys(column.name for _, column in parts))
        return SourceKeys(parts=parts, plan=self.scan(names))

    @property
    def _row_count(self) -> int:
        return self.rows.num_rows if self.rows is not None else sum(file.record_count for file in self.files)

    def _known_keys(self, request: ChangeRequest) -> dict[int, Any]:
        """Return the key columns by their index; none when they are too large to be held in memory."""
        places = dict.fromkeys(source for _, source in request.keys)
        if self.rows is not None:
            return {place: self.rows.column(place).combine_chunks() for place in places}
        if self._row_count > SOUGHT:
            return {}
        plan = self.scan(tuple(self.schema.columns[place].name for place in places))
        table = pa.Table.from_batches(read_plan(plan, self.storage), plan.shape.arrow_schema())
        return {place: table.column(number).combine_chunks() for number, place in enumerate(places)}

    def scan(self, names: Sequence[str]) -> ScanPlan:
        """Return a scan of some columns of a source in files."""
        return written_plan(empty_plan("source", 0, self.schema), names, self.directory, self.files)


def key_bounds(columns: Sequence[Field], known: Sequence[Any], files: Sequence[WrittenFile] = ()) -> Predicate | None:
    """Return a predicate that holds for every row of a table with one of some keys; None when the keys have no usable bounds.

    Args:
        columns: The key columns of the table.
        known: Values of the keys by column; None for columns whose values are only in files.
        files: Files of the table that hold the keys.
    """
    return _all_bounds(_bounds(column, column, values, files) for column, values in zip(columns, known, strict=True))


def _all_bounds(parts: Iterable[Predicate | None]) -> Predicate | None:
    found = [part for part in parts if part is not None]
    return conjunction(found) if found else None


def _bounds(target: Field, column: Field, known: Any, files: Sequence[WrittenFile]) -> Predicate | None:
    if column.type in FLOATS or target.type in FLOATS or common_domain(target.type, column.type) is None:
        # NaN equals NaN as a key, but bounds of floats leave NaN out. Values without a domain (TIMETZ) cannot be compared with bounds.
        return None
    reference = ColumnReference(column_id=target.id, path=(target.name,), type=target.type)
    if known is not None:
        distinct: Any = distinct_values(known)
        values = python_values(distinct, column.type) if len(distinct) <= _LISTED else _ends(distinct, column)
        if len(distinct) <= _LISTED:
            literals = tuple(LiteralValue(value=value, type=column.type) for value in values)
            return InList(operand=reference, values=literals) if literals else FALSE
    else:
        values = _ends_in_files(column, files)
    if len(values) != 2:
        return None
    low, high = (LiteralValue(value=value, type=column.type) for value in values)
    return conjunction(
        (Comparison(left=reference, operator=">=", right=low), Comparison(left=reference, operator="<=", right=high)),
    )


def _ends_in_files(column: Field, files: Sequence[WrittenFile]) -> Sequence[object]:
    lows: list[object] = []
    highs: list[object] = []
    for file in files:
        statistics = next(one for one in file.statistics if one.column_id == column.id)
        if statistics.value_count == 0:
            continue
        if statistics.min_value is None or statistics.max_value is None:
            return []
        lows.append(from_text(statistics.min_value, column.type))
        highs.append(from_text(statistics.max_value, column.type))
    return [min(lows, key=order_key), max(highs, key=order_key)] if lows else []


def _ends(distinct: Any, column: Field) -> Sequence[object]:
    plain = distinct.storage if isinstance(distinct, pa.ExtensionArray) else distinct
    try:
        bounds: Any = pc.min_max(plain)
    except pa.ArrowNotImplementedError:
        return []
    return python_values(pa.array([bounds["min"], bounds["max"]], plain.type), column.type)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKeys:
    """The keys of a source, or the location of files with them; small enough to travel with every task.

    Attributes:
        parts: Column of the target and column of the source of each part of the key.
        plan: A scan of the source's files; None when ``rows`` has them.
        rows: The source's key columns; each column by itself, its rows do not belong together.
    """

    parts: tuple[tuple[Field, Field], ...]
    plan: ScanPlan | None = None
    rows: tuple[pa.Array[Any], ...] = ()

    def load(self, storage: Storage) -> KeyFilter:
        """Read the keys.

        Raises:
            StorageError: A file of the source cannot be read.
        """
        if self.plan is None:
            return KeyFilter(self.parts, self.rows)
        names = [column.name for _, column in self.parts]
        table = pa.Table.from_batches(read_plan(self.plan, storage), self.plan.shape.arrow_schema())
        return KeyFilter(self.parts, [table.column(name).combine_chunks() for name in names])


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of many rows."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        gathered.append(batch)
        if sum(part.num_rows for part in gathered) >= _CHUNK_ROWS:
            yield _concatenated(gathered)
            gathered = []
    if gathered:
        yield _concatenated(gathered)


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class KeyFilter:
    """Keeps the rows that may match: every part of their key occurs in the source, as SQL compares. NULL never does.

    Parts are checked separately, so that a row may pass whose combination of parts does not occur. The join decides later.

    Args:
        parts: Column of the target and column of the source of each part of the key.
        values: What the source has in each of these columns.
    """

    def __init__(self, parts: Sequence[tuple[Field, Field]], values: Sequence[Any]) -> None:
        self._parts = [
            (target, column, key_domain(target, column), distinct_values(known))
            for (target, column), known in zip(parts, values, strict=True)
        ]

    def rows(self, task: FileTask, shape: ScanProjection, storage: Storage, *, threads: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that may match, in the way of :func:`ducklake_core.engines.arrow.read.read_task`."""
        if task.file.file_size_bytes <= _WHOLE_BYTES or len(shape.schema) <= len(self._parts):
            yield from self._of(read_task(task, shape, storage, threads=threads), shape)
            return
        keys = self._shape(shape)
        found = [
            np.asarray(keys.virtual_column(batch, *_POSITION)) for batch in self._of(read_task(task, keys, storage, threads=threads), keys)
        ]
        if found:
            chosen = ChosenRows(positions=np.concatenate(found), wanted=True)
            yield from read_chosen(task, shape, chosen, storage, threads=threads)

    def inlined(self, rows: pa.Table, shape: ScanProjection) -> Iterator[pa.RecordBatch]:
        """Yield the inlined rows that may match."""
        return self._of(read_inlined(rows, shape), shape)

    def _shape(self, shape: ScanProjection) -> ScanProjection:
        """Return the projection of key columns and positions, and what the predicate needs."""
        ids = {target.id for target, *_ in self._parts}
        read = ids | (pruning.columns(shape.predicate) if shape.predicate is not None else frozenset())
        return replace(
            shape,
            schema=Schema(columns=tuple(column for column in shape.schema if column.id in ids)),
            read_schema=Schema(columns=tuple(column for column in shape.read_schema if column.id in read)),
            virtual=_POSITION,
        )

    def _of(self, batches: Iterator[pa.RecordBatch], shape: ScanProjection) -> Iterator[pa.RecordBatch]:
        place = {column.id: index for index, column in enumerate(shape.schema)}
        for batch in chunks(batches):
            mask = np.ones(batch.num_rows, dtype=bool)
            for target, column, domain, known in self._parts:
                keys, source_keys = unified(batch.column(place[target.id]), target.type, known, column.type, domain)
                mask &= np.asarray(pc.is_in(hashable(keys), value_set=hashable(source_keys)))
            kept = batch if mask.all() else batch.filter(pa.array(mask))
            if kept.num_rows:
                yield kept


def merge_request(
    table: str, target: Schema, source: Schema, on: str | Sequence[str], clauses: Sequence[tuple[When, Action, Any, str | None]]
) -> ChangeRequest:
    """Return the change that corresponds to a MERGE.

    Args:
        table: ``schema.table`` for messages.
        target: The table's columns.
        source: The source's columns.
        on: Name or names of columns that both have, or a condition over ``t.column`` and ``s.column``.
        clauses: Kind of rows, action, values (a mapping, ``"all"``, None for deletes) and condition of each branch.

    Raises:
        UsageError: No branch, a branch that can never be reached, or invalid columns.
        NotFoundError: A column that does not exist.
        UnsupportedFeatureError: The condition does not compare a column of one side with a column of the other.
    """
    if not clauses:
        raise UsageError(f"the merge into {table} has no action. Add at least one, such as .when_matched_update(...)", table=table)
    binder = Binder(table, target, source)
    keys, residual = _matching(binder, on)
    for target_key, source_key in keys:
        key_domain(target.columns[target_key], binder.source.columns[source_key])
    requested = tuple(_clause(binder, *clause) for clause in clauses)
    for when, _ in _ORDER:
        about = [clause for clause in requested if clause.when == when]
        if any(clause.condition is None for clause in about[:-1]):
            raise UsageError(
                f"the merge into {table} has an action for rows {when!r} after one without a condition, so it is never used. Change the "
                "order"
            )
    return ChangeRequest(table=table, target=target, source=binder.source, keys=keys, residual=residual, clauses=requested)


def stored_names(source: Schema, clauses: Sequence[tuple[When, Action, Any, str | None]]) -> frozenset[str]:
    """Return the folded names of source columns that a branch stores as they are, in the column of the same name.

    >>> from ducklake_core.format.types.data_types import INT32, Field
    >>> source = Schema(columns=(Field(id=0, name="a", type=INT32), Field(id=0, name="B", type=INT32)))
    >>> sorted(stored_names(source, [("matched", "update", "all", None)])), stored_names(source, [("matched", "delete", None, None)])
    (['a', 'b'], frozenset())
    """
    found: set[str] = set()
    for _, _, values, _ in clauses:
        if values == "all":
            found |= {folded(column.name) for column in source}
        found |= {folded(name) for name, text in _expressions_by_name(values) if _is_same_name(name, text)}
    return frozenset(found)


def computed_names(clauses: Sequence[tuple[When, Action, Any, str | None]]) -> frozenset[str]:
    """Return the folded names in expressions and conditions of branches, without values that are a column of the same name.

    >>> sorted(computed_names([("matched", "update", {"a": "s.a", "b": "s.c + 1"}, "s.d > t.d")]))
    ['c', 'd', 's', 't']

    Raises:
        UsageError: An expression cannot be parsed.
    """
    found: set[str] = set()
    for _, _, values, condition in clauses:
        expressions = [text for name, text in _expressions_by_name(values) if not _is_same_name(name, text)]
        for text in [*expressions, *([condition] if condition is not None else [])]:
            found |= {folded(one.name) for one in parse_text(text).find_all(exp.Identifier)}
    return frozenset(found)


def _expressions_by_name(values: object) -> list[tuple[str, str]]:
    return [(name, text) for name, text in values.items() if isinstance(text, str)] if isinstance(values, Mapping) else []


def _is_same_name(name: str, text: str) -> bool:
    path = column_path(parse_text(text))
    return path is not None and len(path) <= len(("s", name)) and folded(path[-1]) == folded(name)


def _clause(binder: Binder, when: When, action: Action, values: Any, condition: str | None) -> RequestedClause:
    bound: tuple[tuple[int, Expression], ...] = ()
    if action != "delete":
        bound = binder.same_names(whole=False) if isinstance(values, str) and values == "all" else binder.values(values)
    return RequestedClause(when=when, action=action, values=bound, condition=None if condition is None else binder.expression(condition))


def _matching(binder: Binder, on: str | Sequence[str]) -> tuple[tuple[tuple[int, int], ...], Expression | None]:
    on = _as_names(binder, on)
    if not isinstance(on, str):
        if not on:
            raise UsageError(
                f"the merge into {binder.table} has no on=. Set it to names of key columns, or to a condition", table=binder.table
            )
        columns = [(binder.target.column(name), binder.source.column(name)) for name in on]
        return tuple((binder.target.columns.index(target), binder.source.columns.index(source)) for target, source in columns), None
    keys: list[tuple[int, int]] = []
    rest: list[str] = []
    for part in conjuncts(on):
        pair = _key(binder, part)
        if pair is None:
            rest.append(part)
        else:
            keys.append(pair)
    if not keys:
        raise UnsupportedFeatureError(
            f"the condition {on!r} of the merge into {binder.table} does not compare a column of the table with a column of the source. "
            "Add an equality such as t.id = s.id",
            table=binder.table,
        )
    return tuple(keys), binder.expression(" AND ".join(f"({part})" for part in rest)) if rest else None


def _as_names(binder: Binder, on: str | Sequence[str]) -> str | Sequence[str]:
    """Return a list of one name if the string is the name of a column, and the string itself otherwise."""
    if not isinstance(on, str):
        return on
    if binder.target.find(on) is not None and binder.source.find(on) is not None:
        return (on,)
    path = column_path(parse_text(on))
    return path if path is not None and len(path) == 1 else on


def _key(binder: Binder, condition: str) -> tuple[int, int] | None:
    sides = equal_sides(condition)
    if sides is None:
        return None
    bound = [binder.expression(side).scalar for side in sides]
    places: dict[str, int] = {}
    for side in bound:
        if not isinstance(side, ColumnReference) or len(side.path) > 1:
            return None
        places[side.path[0][0]] = int(side.path[0][1:])
    return (places["t"], places["s"]) if set(places) == {"t", "s"} else None


class SourceIndex:
    """Looks rows up by key, as SQL compares: NULL equals nothing, NaN equals NaN, 0.0 equals -0.0.

    Args:
        source: All rows of the source, in flat form.
        keys: Column of the target, column of the source (by its flat name) for each part of the key.
    """

    def __init__(self, source: pa.RecordBatch, keys: Sequence[tuple[Field, Field]]) -> None:
        self._source = source
        self._keys = [(target, column, key_domain(target, column)) for target, column in keys]

    def pairs(self, rows: pa.RecordBatch, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the indexes of target and source rows whose keys are equal.

        Args:
            rows: Rows of the target.
            names: Names of their key columns.
        """
        if not rows.num_rows or not self._source.num_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        # Each key becomes one integer on both sides, -1 where a part is NULL or does not occur in the source:
        #
        #   part 1 -> code in its distinct values;  combined = code 1;  for each further part: combined * size + code, made dense
        #
        # The sources are then sorted by that integer, and every target finds its run of equal ones by a binary search.
        targets, sources = np.zeros(rows.num_rows, np.int64), np.zeros(self._source.num_rows, np.int64)
        for (target, column, domain), name in zip(self._keys, names, strict=True):
            target_values, source_values = unified(rows.column(name), target.type, self._source.column(column.name), column.type, domain)
            target_values, source_values = hashable(target_values), hashable(source_values)
            distinct = source_values.unique().drop_null()
            target_codes, source_codes = (_codes(array, distinct) for array in (target_values, source_values))
            size = len(distinct) + 1
            targets = np.where((targets < 0) | (target_codes < 0), -1, targets * size + target_codes)
            sources = np.where((sources < 0) | (source_codes < 0), -1, sources * size + source_codes)
            # Dense numbers are below the number of rows, so that the product with the next part cannot overflow 64 bits.
            _, dense = np.unique(np.concatenate([targets, sources]), return_inverse=True)
            dense = dense.reshape(-1)
            targets, sources = (
                np.where(targets < 0, -1, dense[: len(targets)]),
                np.where(sources < 0, -1, dense[len(targets) :]),
            )
        order = np.argsort(sources, kind="stable")
        ordered = sources[order]
        first, last = np.searchsorted(ordered, targets, "left"), np.searchsorted(ordered, targets, "right")
        counts = np.where(targets < 0, 0, last - first)
        # One pair for each source row in a target's run: the target repeated, and first, first + 1, ... of the sorted sources.
        matched = np.repeat(np.arange(len(targets)), counts)
        offsets = np.arange(len(matched)) - np.repeat(np.cumsum(counts) - counts, counts)
        return matched, order[np.repeat(first, counts) + offsets]


def key_domain(target: Field, source: Field) -> Domain:
    """Return the domain in which two columns are compared.

    Raises:
        UnsupportedFeatureError: They cannot be compared without a cast, or not at all.
    """
    domain = common_domain(target.type, source.type)
    if domain is None:
        raise UnsupportedFeatureError(
            f"column {target.name!r} of type {target.type} cannot be compared with column {source.name!r} of type "
            f"{source.type} of the source. Cast the column of the source, or use lake.sql('MERGE INTO t USING rows ON ...', rows=rows)",
            column=target.name,
        )
    return domain


def _codes(array: Any, distinct: Any) -> np.ndarray:
    found: np.ndarray = np.asarray(pc.fill_null(pc.index_in(array, value_set=distinct), -1)).astype(np.int64)
    return np.where(np.asarray(array.is_null()), -1, found)


def distinct_values(array: Any) -> Any:
    """Return the different values of a column, NULL left out."""
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, array.storage.unique().drop_null())
    return array.unique().drop_null()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One branch of a MERGE; the first that holds for a row is carried out.

    Attributes:
        when: The kind of rows.
        action: The action for them.
        condition: Further condition over the flat columns, None for none.
        values: Index of a target column and its new value; other columns keep their value, or get their default in an inserted row.
    """

    when: When
    action: Action
    condition: Scalar | None = None
    values: tuple[tuple[int, Scalar], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """A change of rows. It travels to executors and contains nothing of the catalog.

    Attributes:
        target: The table's columns.
        source: The source's columns, with ids of their own; empty for an update.
        computed: Flat columns that an engine computes before, empty when there are none.
        keys: Indexes of a target and a source column that must be equal for a match; NULL equals nothing.
        residual: Further condition for a match, None for none.
        by_row_id: Whether there are no keys, and the source's first column has the row id of the row to change; NULL for a new row.
        clauses: The branches in order.
    """

    target: Schema
    source: Schema
    computed: Schema = Schema(columns=())  # noqa: RUF009 - a frozen value
    keys: tuple[tuple[int, int], ...] = ()
    residual: Scalar | None = None
    by_row_id: bool = False
    clauses: tuple[Clause, ...]

    @property
    def flat(self) -> Schema:
        """Return the flat columns."""
        return Schema(columns=(*flat_columns(self.target, "t"), *flat_columns(self.source, "s"), *self.computed))

    def about(self, when: When) -> tuple[Clause, ...]:
        """Return the branches for one kind of rows."""
        return tuple(clause for clause in self.clauses if clause.when == when)

    @property
    def read_places(self) -> frozenset[int]:
        """Return the indexes of the target's columns that the outcome depends on: only the keys if the source replaces whole rows."""
        every = range(len(self.target))
        own = {column.id for column in (*flat_columns(self.source, "s"), *self.computed)}
        keys = {place for place, _ in self.keys}
        for clause in self.clauses:
            values = dict(clause.values)
            from_source = all(isinstance(value, ColumnReference) and value.column_id in own for value in values.values())
            keeps_none = clause.action != "update" or values.keys() | keys >= set(every)
            if clause.condition is not None or not from_source or not keeps_none:
                return frozenset(every)
        return frozenset(every if self.residual is not None or not keys else keys)

    def check(self) -> None:
        """Reject expressions that Arrow cannot evaluate, before any row is read.

        Raises:
            UnsupportedFeatureError: An expression or a cast that only a SQL engine can do.
            SchemaError: A constant that does not fit its column.
        """
        schema = nullable_schema(self.flat)
        # pyarrow cannot make an empty array of a list of an extension type from Python values.
        nothing = pa.RecordBatch.from_arrays([null_array(0, field.type) for field in schema], schema=schema)
        if self.residual is not None:
            check_scalar(self.residual, nothing)
        for clause in self.clauses:
            if clause.condition is not None:
                check_scalar(clause.condition, nothing)
            for place, value in clause.values:
                check_scalar(value, nothing, self.target.columns[place])

    def chosen(self, when: When, rows: pa.RecordBatch) -> Iterator[tuple[Clause, np.ndarray, pa.RecordBatch]]:
        """Yield for every branch the indexes of its rows, and these rows."""
        places = np.arange(rows.num_rows)
        for clause in self.about(when):
            if not rows.num_rows:
                return
            if clause.condition is None:
                yield clause, places, rows
                return
            holds = holds_for(clause.condition, rows)
            # The first branch that holds takes the row, as in SQL: later branches see only the rest.
            mask = np.asarray(holds)
            if mask.any():
                yield clause, places[mask], rows.filter(holds)
            places, rows = places[~mask], rows.filter(pa.array(~mask))

    def new_rows(self, clause: Clause, rows: pa.RecordBatch) -> tuple[list[str], list[Any]]:
        """Return names and values of the target's columns after a branch; absent columns get their default."""
        values = dict(clause.values)
        names: list[str] = []
        arrays: list[Any] = []
        for place, column in enumerate(self.target):
            if place in values:
                arrays.append(assigned(values[place], column, rows))
            elif clause.action == "update":
                arrays.append(rows.column(f"t{place}"))
            else:
                continue
            names.append(column.name)
        return names, arrays


def flat_columns(schema: Schema, letter: str) -> tuple[Field, ...]:
    """Return columns under their flat names."""
    return tuple(replace(column, name=f"{letter}{place}", nullable=True) for place, column in enumerate(schema))


def source_ids(schema: Schema) -> Schema:
    """Return a source's columns with ids that no table has."""
    from ducklake_core.format.types.schema import with_ids

    return with_ids(schema, SOURCE_IDS)


def nullable_schema(schema: Schema) -> pa.Schema:
    """Return the logical Arrow schema of columns, all of them nullable."""
    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(schema)])
