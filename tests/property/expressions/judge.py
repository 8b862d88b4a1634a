"""An expression evaluated by the library and by DuckDB over the same rows: equal, or rejected before any row is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_core.engines.arrow.evaluate import _eval, assigned, evaluate
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.format.expressions.comparison import integer_range, round_to_float32
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.expressions.parser import parse_expression
from ducklake_core.format.expressions.predicates import Comparison, Constant, IsNull, Predicate, Scalar, SqlExpression, walk
from ducklake_core.format.types.data_types import BOOLEAN, FLOAT32, FLOATS, PRIMITIVES, DataType, DecimalType, Field, children_of
from ducklake_core.format.types.schema import Schema, parse_leaf_type
from ducklake_core.format.values.leaf_values import python_values
from ducklake_core.format.values.value_text import to_cast_text
from tests.property.expressions.edge_values import SCHEMA, TYPE_NAMES, edge_batch, load
from tests.property.expressions.generator import Node, smaller

_TYPES = {**TYPE_NAMES, "TIMESTAMP WITH TIME ZONE": TYPE_NAMES["TIMESTAMPTZ"], '"NULL"': None}


_COMPARES = re.compile(r"[=<>]|IS (NOT )?NULL|\bIN\b|BETWEEN|DISTINCT|nullif|CASE (?!WHEN)")
_NO_COMMON_TYPE = re.compile(
    r"Casting value|Could not cast value|Malformed JSON|Cannot (?:compare|mix) values of type|"
    r"Could not convert Timestamp|Date and time not in timestamp range|can't be cast (because|to the destination)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of a comparison: ``equal``, ``rejected`` by the library, ``error`` in both, or the kind of difference."""

    kind: str
    text: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.kind not in ("equal", "rejected", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """DuckDB's cells by row, the rows that raise, and those whose values it cannot cast to VARCHAR."""

    type: DataType | None
    cells: list[object]
    failing: tuple[int, ...]
    wordless: tuple[int, ...] = ()
    error: str = ""


class Prepared:
    """An expression to evaluate: its values and their type, None where only its values count.

    ``is_decided`` marks that constants alone decide it, so that errors of its other parts do not matter.
    """

    def __init__(self, run: Callable[[pa.RecordBatch], tuple[Any, DataType | None]], *, is_decided: bool = False) -> None:
        self.run = run
        self.is_decided = is_decided


class _Unsupported(Exception):  # noqa: N818 - never leaves this module
    """An expression that the library does not evaluate."""


def connection() -> duckdb.DuckDBPyConnection:
    """DuckDB with the table of edge values, computing every part of an expression as it is written."""
    duck = duckdb.connect(config={"threads": 1})
    duck.execute("SET TimeZone = 'UTC'")
    # What it leaves out of an expression depends on its plans: so does then whether a part of it is an error.
    duck.execute("PRAGMA disable_optimizer")
    load(duck)
    return duck


def expected(sql: str, duck: duckdb.DuckDBPyConnection, table: str = "t") -> Expected:
    """Return DuckDB's result for each row."""
    described = f'SELECT typeof({sql}), CAST({sql} AS VARCHAR) FROM {table} ORDER BY "row"'
    try:
        try:
            rows = duck.execute(described).fetchall()
            return Expected(type=_type(rows[0][0]), cells=[row[1] for row in rows], failing=())
        except (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.InvalidInputException) as problem:
            error = str(problem)
        query = f'SELECT TRY(({sql}) IS NULL), TRY(CAST(({sql}) AS VARCHAR)) FROM {table} ORDER BY "row"'
        rows = duck.execute(query).fetchall()
        kind = duck.execute(f"DESCRIBE SELECT {sql} FROM {table}").fetchall()[0][1]
        return Expected(
            type=_type(kind),
            cells=[row[1] for row in rows],
            failing=tuple(i for i, row in enumerate(rows) if row[0] is None),
            wordless=tuple(i for i, row in enumerate(rows) if row[0] is False and row[1] is None),
            error=error,
        )
    except duckdb.Error as problem:
        return Expected(type=None, cells=[], failing=tuple(range(edge_batch().num_rows)), error=str(problem))


def _type(name: str) -> DataType | None:
    if name in _TYPES:
        return _TYPES[name]
    return parse_leaf_type(name) if name.startswith("DECIMAL") else None


def cells_of(array: Any, data_type: DataType | None) -> list[object]:
    """Return values as DuckDB casts them to VARCHAR."""
    if data_type is None or children_of(data_type):
        return [None if value is None else "nested" for value in array.to_pylist()]
    return [None if value is None else to_cast_text(value, data_type) for value in python_values(array, data_type)]


def as_scalar(sql: str) -> Prepared:
    """As an UPDATE or MERGE evaluates it."""
    expression = parse_expression(sql, SCHEMA)
    if expression.scalar is None:
        raise _Unsupported(expression.obstacle)
    scalar: Scalar = expression.scalar

    def values(batch: pa.RecordBatch) -> tuple[Any, DataType | None]:
        value = _eval(scalar, batch)
        # NULL takes the type of what stands next to it.
        return value.array, None if value.is_null else value.type

    return Prepared(values)


def as_value_of(column: Field) -> Callable[[str], Prepared]:
    """As it is assigned to a column."""

    def prepared(sql: str) -> Prepared:
        expression = parse_expression(sql, SCHEMA)
        if expression.scalar is None:
            raise _Unsupported(expression.obstacle)
        scalar: Scalar = expression.scalar
        return Prepared(lambda batch: (assigned(scalar, column, batch), column.type))

    return prepared


def as_predicate(sql: str) -> Prepared:
    """As ``where=`` evaluates it."""
    predicate = bind(sql, SCHEMA)
    if any(_needs_engine(part) for part in walk(predicate)):
        raise _Unsupported("it needs SQL")
    return Prepared(lambda batch: (evaluate(predicate, batch), BOOLEAN), is_decided=isinstance(predicate, Constant))


def _needs_engine(part: Predicate) -> bool:
    """Return True where a scan in this process rejects a part of a condition."""
    match part:
        case SqlExpression(scalar=scalar):
            return scalar is None
        case Comparison(left=left, right=right):
            return isinstance(left, SqlExpression) or isinstance(right, SqlExpression)
        case IsNull(operand=operand):
            return isinstance(operand, SqlExpression)
        case _:
            return False


@cache
def _none() -> pa.RecordBatch:
    return edge_batch().slice(0, 0)


def judge(
    sql: str, duckdb_sql: str, duck: duckdb.DuckDBPyConnection, prepare: Callable[[str], Prepared], draw: Random, failing: int = 3
) -> Verdict:
    """Compare the library's evaluation of an expression with DuckDB's of ``duckdb_sql``.

    Args:
        failing: Number of rows with an error in DuckDB for which the library must raise too.
    """
    wanted, batch = expected(duckdb_sql, duck), edge_batch()
    all_fail = len(wanted.failing) == batch.num_rows
    try:
        prepared = prepare(sql)
        prepared.run(_none())
    except _Unsupported as unsupported:
        return Verdict(kind="rejected", text=str(unsupported))
    except UnsupportedFeatureError as unsupported:
        return Verdict(kind="rejected", text=unsupported.message)
    except DuckLakeError as error:
        # Without rows only a constant can be one that cannot be read.
        if "is not a condition" in error.message or "cannot be read as a value" in error.message:
            return Verdict(kind="rejected", text=error.message)
        return Verdict(kind="error") if all_fail else Verdict(kind="needless error", text=f"{error!r}, DuckDB: {_some(wanted)}")
    except Exception as crash:  # noqa: BLE001 - any crash is a finding
        return Verdict(kind="crash", text=f"{type(crash).__name__}: {crash}")
    good = [row for row in range(batch.num_rows) if row not in {*wanted.failing, *wanted.wordless}]
    if good:
        rows = batch if len(good) == batch.num_rows else batch.take(pa.array(good))
        verdict = _values(prepared, rows, good, wanted)
        if verdict is not None:
            return verdict
    if prepared.is_decided or _is_forgiven(sql, wanted.error):
        return Verdict(kind="equal")
    wrong = _without_error(sql, duckdb_sql, duck, prepared, draw.sample(wanted.failing, min(failing, len(wanted.failing))))
    return wrong or Verdict(kind="error" if all_fail else "equal")


def _without_error(sql: str, duckdb_sql: str, duck: duckdb.DuckDBPyConnection, prepared: Prepared, rows: Sequence[int]) -> Verdict | None:
    """Return what is wrong with rows that have an error in DuckDB, None if the library raises too."""
    batch = edge_batch()
    for row in rows:
        try:
            array, kind = prepared.run(batch.slice(row, 1))
        except UnsupportedFeatureError as error:
            return Verdict(kind="late rejection", text=f"row {row}: {error!r}")
        except DuckLakeError:
            continue
        except Exception as crash:  # noqa: BLE001 - any crash is a finding
            return Verdict(kind="crash", text=f"row {row} {_row(sql, row)}: {type(crash).__name__}: {crash}")
        # Each row has an error of its own.
        error = _error_of_row(duckdb_sql, duck, row)
        if not _is_forgiven(sql, error):
            return Verdict(kind="no error", text=f"row {row} {_row(sql, row)}: {cells_of(array, kind)} but DuckDB has {error!r}")
    return None


def _error_of_row(sql: str, duck: duckdb.DuckDBPyConnection, row: int) -> str:
    try:
        duck.execute(f'SELECT CAST(({sql}) AS VARCHAR) FROM (FROM t WHERE "row" = {row})').fetchall()
    except duckdb.Error as problem:
        return str(problem)
    return ""


def _is_forgiven(sql: str, error: str) -> bool:
    """Return True where a value is correct despite DuckDB's error: it finds no common type of exactly comparable ones."""
    # The calendar of its ICU extension ends before the last microsecond of a timestamp, which is an instant like any other.
    if "ICU date overflows timestamp range" in error:
        return True
    # A condition with FALSE in it is FALSE, whatever type the rest of it has.
    is_folded = "Unimplemented type for cast" in error and re.search(r"\b(FALSE|TRUE|NULL)\b", sql)
    return bool(_COMPARES.search(sql) and _NO_COMMON_TYPE.search(error)) or bool(is_folded)


def _rounds_beyond(message: str) -> bool:
    """Return True where a float is rounded out of an integer type: DuckDB wraps around (127.5 becomes -128)."""
    found = re.search(r"the value (-?\d+\.\d+) is out of the range of (u?int\d+)$", message)
    return found is not None and float(found[1]) < integer_range(PRIMITIVES[found[2]])[1] + 1


def _values(prepared: Prepared, rows: pa.RecordBatch, rows_of: Sequence[int], wanted: Expected) -> Verdict | None:
    try:
        array, kind = prepared.run(rows)
        found = cells_of(array, kind)
    except UnsupportedFeatureError as error:
        return Verdict(kind="late rejection", text=repr(error))
    except DuckLakeError as error:
        if _rounds_beyond(error.message):
            return Verdict(kind="error")
        return Verdict(kind="needless error", text=f"{error!r}, DuckDB: {_some(wanted)}")
    except Exception as crash:  # noqa: BLE001 - any crash is a finding
        return Verdict(kind="crash", text=f"{type(crash).__name__}: {crash}")
    if len(found) != len(rows_of):
        return Verdict(kind="length", text=f"{len(found)} values for {len(rows_of)} rows")
    expected_cells = [wanted.cells[row] for row in rows_of]
    if kind is not None and children_of(kind):
        expected_cells = [None if text is None else "nested" for text in expected_cells]
    if kind in FLOATS:
        # The sign of NaN is visible in strings only.
        expected_cells = ["nan" if text == "-nan" else text for text in expected_cells]
    if kind == FLOAT32:
        # DuckDB's string of a float32 is not always the shortest one.
        found, expected_cells = (
            [None if v is None else repr(round_to_float32(float(str(v)))) for v in cells] for cells in (found, expected_cells)
        )
    wrong = [(row, value, text) for row, value, text in zip(rows_of, found, expected_cells, strict=True) if value != text]
    if wrong:
        shown = "; ".join(f"row {row}: library {value!r}, DuckDB {text!r}" for row, value, text in wrong[:4])
        return Verdict(kind="values", text=f"{len(wrong)} of {len(rows_of)} rows: {shown}")
    if kind != wanted.type and wanted.type is not None and kind is not None:
        return Verdict(kind="type", text=f"library {kind}, DuckDB {wanted.type}")
    return None


def _some(wanted: Expected) -> str:
    return f"{wanted.type} {wanted.cells[:3]}"


def _row(sql: str, row: int) -> dict[str, object]:
    columns = parse_expression(sql, SCHEMA).columns
    batch = edge_batch()
    return {
        column.path[0]: cells_of(batch.column(column.path[0]).slice(row, 1), SCHEMA.column(column.path[0]).type)[0] for column in columns
    }


def minimised(node: Node, fails: Callable[[Node], Verdict]) -> tuple[Node, Verdict]:
    """The smallest expression found that fails in the same way."""
    verdict = fails(node)
    for _ in range(12):
        for candidate in smaller(node):
            other = fails(candidate)
            if other.is_wrong and other.kind == verdict.kind:
                node, verdict = candidate, other
                break
        else:
            break
    return node, verdict


def columns_to_set() -> list[Field]:
    """The columns that expressions are assigned to."""
    return [field for field in SCHEMA if not field.children]


__all__ = [
    "DecimalType", "Schema", "as_predicate", "as_scalar", "as_value_of", "columns_to_set", "connection", "expected", "judge", "minimised",
]  # fmt: skip
