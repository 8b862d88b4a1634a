"""Expose rows to libraries that read lazily, with the columns and the filter of each of their scans.

A library passes a filter in its own form::

    pyarrow expression ──┐
                         ├─> Call / ColumnAt / array ──> predicate: files and row groups to skip
    polars expression  ──┘

The predicate contains the parts of the filter that this library supports, and may be true for more rows than the filter. The library
filters every batch with its whole expression afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
from pyarrow.fs import FileSystemHandler, PyFileSystem

from ducklake_core.engines.arrow.readable import with_polars_types
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.expressions.predicates import (
    ColumnReference,
    Comparison,
    InList,
    IsNull,
    Literal,
    Operator,
    Predicate,
    StartsWith,
    negation,
)
from ducklake_core.format.expressions.ranges import all_of, any_of
from ducklake_core.format.types.data_types import BOOLEAN, FLOATS, VARCHAR, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.leaf_values import python_values

if TYPE_CHECKING:
    import polars as pl

_OPERATORS: dict[str, Operator] = {
    "equal": "=",
    "not_equal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_SWAPPED: dict[Operator, Operator] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TOKEN = re.compile(r"^(\w+): '([^'\n]*)'$", re.MULTILINE)
_POLARS_FUNCTIONS = {
    "Eq": "equal",
    "NotEq": "not_equal",
    "Lt": "less",
    "LtEq": "less_equal",
    "Gt": "greater",
    "GtEq": "greater_equal",
    "And": "and_kleene",
    "LogicalAnd": "and_kleene",
    "Or": "or_kleene",
    "LogicalOr": "or_kleene",
    "Not": "invert",
    "IsNull": "is_null",
    "IsNotNull": "is_valid",
    "StartsWith": "starts_with",
}
_UNKNOWN = "unknown"

Node: TypeAlias = "Call | ColumnAt | pa.Array"
"""Part of a filter; an array of one value is a literal."""
ReadColumns: TypeAlias = Callable[[Sequence[str], Predicate | None], pa.RecordBatchReader]
"""Reads columns, in this order; it may skip rows for which the predicate is not true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function of a filter, by Arrow's name."""

    function: str
    operands: tuple[Node, ...]
    options: Any = None


@dataclass(frozen=True, slots=True)
class ColumnAt:
    """A column of a filter, by its index in the schema."""

    index: int


@dataclass(frozen=True, slots=True)
class FilterColumns:
    """The columns that a filter may name.

    Attributes:
        fields: The columns.
        schema: Their types in Arrow.
        fits_constants: Whether the library converts constants to the type of the column that they are compared with, without rounding
            either. False requires constants of exactly the column's type.
    """

    fields: Sequence[Field]
    schema: pa.Schema
    fits_constants: bool = False

    def reference(self, column: ColumnAt) -> ColumnReference:
        """Return the column in a predicate."""
        field = self.fields[column.index]
        return ColumnReference(column_id=field.id, path=(field.name,), type=field.type)

    def literals(self, column: ColumnAt, values: pa.Array) -> tuple[Literal, ...]:
        """Return constants next to a column; none if one is NULL or of another type."""
        field, wanted = self.fields[column.index], self.schema.field(column.index).type
        if self.fits_constants:
            values = _fitted(values, wanted)
        given = values.type
        if pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted) and given.tz and wanted.tz:
            # Both hold instants; the zone is for display.
            given = pa.timestamp(given.unit, wanted.tz)
        if values.null_count or given != wanted:
            return ()
        return tuple(Literal(value=value, type=field.type) for value in python_values(values, field.type))


def _fitted(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return constants in the type of their column if it holds them exactly, otherwise unchanged."""
    given = values.type
    integers = pa.types.is_integer(given) and pa.types.is_integer(wanted)
    times = pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted) and bool(given.tz) == bool(wanted.tz)
    if not integers and not times:
        return values
    try:
        return values.cast(wanted)
    except pa.ArrowInvalid:
        return values


def parsed_arrow(expression: Any, index: Callable[[str], int]) -> Node:
    """Return the structure of an Arrow expression, which pyarrow exposes only in the form that it pickles.

    That form is a record batch of the literals and the options, with the calls in the metadata of its schema, in prefix notation.

    Args:
        expression: The expression.
        index: Returns the index of a column by its name.
    """
    _, (buffer,) = expression.__reduce__()
    with pa.ipc.open_file(buffer) as file:
        batch = file.get_batch(0)
    _, _, metadata = batch.schema.to_string(truncate_metadata=False, show_field_metadata=False).partition("-- schema metadata --\n")
    tokens = iter(_TOKEN.findall(metadata))
    return _node(next(tokens), tokens, batch, index)


def _node(token: tuple[str, str], tokens: Iterator[tuple[str, str]], batch: pa.RecordBatch, index: Callable[[str], int]) -> Node:
    kind, value = token
    if kind == "field_ref":
        return ColumnAt(index(value))
    if kind == "literal":
        return batch.column(int(value))
    if kind != "call":
        raise UnsupportedFeatureError(f"DuckDB passed a filter with a {kind}, which is not supported. Write the condition differently")
    operands: list[Node] = []
    options = None
    while (token := next(tokens))[0] != "end":
        if token[0] == "options":
            options = batch.column(int(token[1]))
        else:
            operands.append(_node(token, tokens, batch, index))
    return Call(function=value, operands=tuple(operands), options=options)


def columns_at(node: Node | None) -> Iterator[int]:
    """Yield the indexes of the columns that a filter reads."""
    if isinstance(node, ColumnAt):
        yield node.index
    elif isinstance(node, Call):
        for operand in node.operands:
            yield from columns_at(operand)


def predicate_of(node: Node, columns: FilterColumns) -> Predicate | None:
    """Return the supported parts of a filter, None when there are none."""
    match node:
        case ColumnAt() if columns.reference(node).type == BOOLEAN:
            return columns.reference(node)
        case Call(function="and_kleene", operands=operands):
            known = [part for part in (predicate_of(operand, columns) for operand in operands) if part is not None]
            return all_of(known) if known else None
        case Call(function="or_kleene", operands=operands):
            found = [predicate_of(operand, columns) for operand in operands]
            return None if any(part is None for part in found) else any_of(part for part in found if part is not None)
        case Call(function="invert", operands=(operand,)) if _is_exact(operand, columns):
            inner = predicate_of(operand, columns)
            return None if inner is None else negation(inner)
        case Call(function="if_else", operands=(Call(function="is_valid"), Call(function="is_in") as part, pa.Array())):
            # DuckDB 2.0: NULL for NULL, the list otherwise.
            return predicate_of(part, columns)
        case Call(function="is_null", operands=(ColumnAt() as column,), options=options) if not _nan_is_null(options):
            return IsNull(operand=columns.reference(column))
        case Call(function="is_valid", operands=(ColumnAt() as column,)):
            return negation(IsNull(operand=columns.reference(column)))
        case Call(function="is_in", operands=(ColumnAt() as column,), options=options):
            values = columns.literals(column, options.field("value_set").flatten())
            return InList(operand=columns.reference(column), values=values) if values else None
        case Call(function="starts_with", operands=(ColumnAt() as column, pa.Array() as prefix)):
            strings = columns.literals(column, prefix) if columns.reference(column).type == VARCHAR else ()
            return StartsWith(operand=columns.reference(column), prefix=str(strings[0].value)) if strings else None
        case Call(function=function, operands=(ColumnAt() as column, pa.Array() as literal)) if function in _OPERATORS:
            return _comparison(columns, column, _OPERATORS[function], literal)
        case Call(function=function, operands=(pa.Array() as literal, ColumnAt() as column)) if function in _OPERATORS:
            return _comparison(columns, column, _SWAPPED[_OPERATORS[function]], literal)
        case _:
            return None


def _comparison(columns: FilterColumns, column: ColumnAt, operator: Operator, literal: pa.Array) -> Predicate | None:
    values = columns.literals(column, literal)
    if pa.types.is_floating(literal.type) and pc.is_nan(literal)[0].as_py():
        # NaN equals nothing in Arrow, and itself here.
        return None
    return Comparison(left=columns.reference(column), operator=operator, right=values[0]) if values else None


def _nan_is_null(options: Any) -> bool:
    return options is not None and bool(options.field("nan_is_null")[0].as_py())


def _is_exact(node: Node, columns: FilterColumns) -> bool:
    """Return whether the predicate of a filter is true for the same rows and NULL for the same rows, so that it may be negated.

    Arrow orders NaN differently, and its ``is_in`` is false for NULL.
    """
    match node:
        case Call(function="and_kleene" | "or_kleene" | "invert", operands=operands):
            return all(_is_exact(operand, columns) for operand in operands)
        case Call(function="is_in" | "if_else"):
            return False
        case Call(operands=operands):
            named = [columns.reference(operand) for operand in operands if isinstance(operand, ColumnAt)]
            return all(one.type not in FLOATS for one in named) and predicate_of(node, columns) is not None
        case _:
            return predicate_of(node, columns) is not None


class _Closed(FileSystemHandler):  # type: ignore[misc]
    """A file system whose only file cannot be opened, for functions of pyarrow that read a dataset without its scanner."""

    def _reject(self, *_: object) -> Any:
        raise UnsupportedFeatureError(
            "this function of pyarrow reads the files of a dataset itself, but only this library applies deletes and inlined rows. Call "
            "dataset.scanner(), dataset.to_batches() or dataset.to_table(), or pass dataset.scanner() to the function"
        )

    get_type_name = delete_dir_contents = copy_file = create_dir = delete_dir = delete_file = delete_root_dir_contents = _reject
    get_file_info = get_file_info_selector = move = open_append_stream = open_input_file = open_input_stream = _reject
    open_output_stream = _reject

    def normalize_path(self, path: str) -> str:
        return path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Closed)

    __hash__ = FileSystemHandler.__hash__


class LazyDataset(pds.FileSystemDataset):  # type: ignore[misc]
    """Rows as an Arrow dataset: each scan reads its own columns and skips files by its own filter.

    The base class has no public way to define a dataset in Python, but its methods use :meth:`scanner`. Functions that bypass it find a
    single file that cannot be opened.
    """

    def __init__(self, columns: Schema, schema: pa.Schema, read: ReadColumns, kept: pc.Expression | None = None) -> None:
        file_format = pds.ParquetFileFormat()
        files = PyFileSystem(_Closed())
        super().__init__([file_format.make_fragment("ducklake", files)], schema, file_format, files)
        self._columns, self._read, self._kept = columns, read, kept

    def __reduce__(self) -> Any:
        raise UnsupportedFeatureError("a dataset of a lake cannot be pickled, because it has a connection. Open the lake in each process")

    def __repr__(self) -> str:
        return f"<LazyDataset: {', '.join(self.schema.names)}>"

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        batch_size: int | None = None,
        **_: Any,
    ) -> pds.Scanner:
        """Return a scan of some columns and rows, which can be read once.

        Args:
            columns: Names of columns, or expressions by name. Default: all columns.
            filter: Condition on the rows. Default: all rows.
            batch_size: Maximum number of rows of a batch. Default: those of the files.
        """
        condition = _both(self._kept, filter)
        # Expressions may read any column.
        names = list(columns) if isinstance(columns, list | tuple) else self.schema.names
        needed, predicate = names, None
        if condition is not None:
            needed, predicate = self._pushed(names, condition)
        reader = self._read(needed, predicate) if needed else self._read(self.schema.names[:1], predicate)
        options = {} if batch_size is None else {"batch_size": batch_size}
        return pds.Scanner.from_batches(reader, columns=columns, filter=condition, **options)

    def _pushed(self, names: list[str], condition: pc.Expression) -> tuple[list[str], Predicate | None]:
        """Return the columns that a scan reads, and the supported parts of its condition."""
        own = self.schema.names
        try:
            if any(not _TOKEN.match(f"field_ref: '{name}'") for name in own):
                return own, None
            node = parsed_arrow(condition, own.index)
        except (pa.ArrowException, UnsupportedFeatureError, ValueError, StopIteration):
            return own, None
        needed = list(dict.fromkeys((*names, *(own[index] for index in columns_at(node)))))
        fields = [self._columns.find(name) for name in own]
        if any(field is None for field in fields):
            return needed, None
        known = [field for field in fields if field is not None]
        return needed, predicate_of(node, FilterColumns(known, self.schema, fits_constants=True))

    def filter(self, expression: pc.Expression) -> LazyDataset:
        """Return the rows for which an expression is true, too.

        Args:
            expression: Condition on the rows.
        """
        return LazyDataset(self._columns, self.schema, self._read, _both(self._kept, expression))

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:  # noqa: A002 - Arrow's name
        """Return the number of rows.

        Args:
            filter: Condition on the rows. Default: all rows.
        """
        return sum(batch.num_rows for batch in self.scanner(columns=self.schema.names[:1], filter=filter).to_batches())

    def sort_by(self, sorting: Any, **options: Any) -> pds.InMemoryDataset:
        """Return the rows in order, in memory."""
        return self._in_memory().sort_by(sorting, **options)

    def join(self, right_dataset: Any, *args: Any, **options: Any) -> pds.InMemoryDataset:
        """Return the rows joined with those of another dataset, both in memory."""
        return self._in_memory().join(_in_memory(right_dataset), *args, **options)

    def join_asof(self, right_dataset: Any, *args: Any, **options: Any) -> pds.InMemoryDataset:
        """Return the rows joined with the nearest ones of another dataset, both in memory."""
        return self._in_memory().join_asof(_in_memory(right_dataset), *args, **options)

    def _in_memory(self) -> pds.InMemoryDataset:
        return pds.InMemoryDataset(self.to_table())


def _in_memory(dataset: Any) -> Any:
    return dataset._in_memory() if isinstance(dataset, LazyDataset) else dataset  # noqa: SLF001 - a function of this class's module


def _both(left: pc.Expression | None, right: pc.Expression | None) -> pc.Expression | None:
    return right if left is None else left if right is None else left & right


def lazy_polars(polars: ModuleType, columns: Schema, schema: pa.Schema, read: ReadColumns, name: str) -> pl.LazyFrame:
    """Return a lazy frame of polars that passes columns and filter of each query to ``read``.

    Args:
        polars: The package.
        columns: The columns that filters may skip files by.
        schema: All columns, in Arrow.
        read: Reads columns.
        name: Name of the rows in plans of polars.
    """
    from polars.io.plugins import register_io_source

    fields = [columns.find(one) for one in schema.names]
    known = FilterColumns([field for field in fields if field is not None], schema) if None not in fields else None

    def frames(selected: list[str] | None, condition: pl.Expr | None, limit: int | None, _: int | None) -> Iterator[pl.DataFrame]:
        wanted = schema.names if selected is None else selected
        # Polars filters after the limit, so that a limited scan must not filter before.
        pushed = condition is not None and limit is None and known is not None
        predicate = predicate_of(_parsed_polars(polars, condition, schema.names), known) if pushed and known is not None else None
        reader = with_polars_types(read(wanted or schema.names[:1], predicate))
        for batch in reader:
            frame = polars.DataFrame(batch)
            if limit is not None:
                frame = frame.head(limit)
                limit -= frame.height
            yield frame if condition is None else frame.filter(condition)
            if limit == 0:
                return

    nothing = pa.RecordBatchReader.from_batches(schema, iter(()))
    types = polars.DataFrame(with_polars_types(nothing).read_all()).schema
    frame: pl.LazyFrame = register_io_source(frames, schema=types, is_pure=True, explain_name=name)
    return frame


def _parsed_polars(polars: ModuleType, expression: Any, names: Sequence[str]) -> Node:
    """Return the structure of a polars expression, which polars exposes only in the form that it serializes."""
    try:
        return _polars_node(polars, json.loads(expression.meta.serialize(format="json")), names)
    except (polars.exceptions.PolarsError, ValueError, TypeError, AttributeError):
        # Functions of Python have no such form, and other versions of polars may have another one.
        return Call(function=_UNKNOWN, operands=())


def _polars_node(polars: ModuleType, node: Any, names: Sequence[str]) -> Node:
    match node:
        case {"Column": str(name)} if name in names:
            return ColumnAt(names.index(name))
        case {"Literal": _}:
            return _polars_constant(polars, node)
        case {"BinaryExpr": {"left": left, "op": str(operator), "right": right}}:
            return _polars_call(polars, operator, (left, right), names)
        case {"Function": {"input": [value, low, high], "function": {"Boolean": {"IsBetween": {"closed": str(closed)}}}}}:
            lower = "GtEq" if closed in ("Both", "Left") else "Gt"
            upper = "LtEq" if closed in ("Both", "Right") else "Lt"
            ends = (_polars_call(polars, lower, (value, low), names), _polars_call(polars, upper, (value, high), names))
            return Call(function="and_kleene", operands=ends)
        case {"Function": {"input": [value, {"Literal": _} as literal], "function": {"Boolean": {"IsIn": {"nulls_equal": False}}}}}:
            values = _polars_constant(polars, literal)
            if not pa.types.is_list(values.type) and not pa.types.is_large_list(values.type):
                return Call(function=_UNKNOWN, operands=())
            found = _plain(values.flatten())
            options = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, len(found)], found)], names=["value_set"])
            return Call(function="is_in", operands=(_polars_node(polars, value, names),), options=options)
        case {"Function": {"input": [*operands], "function": {"Boolean": str(function)} | {"StringExpr": str(function)}}}:
            return _polars_call(polars, function, operands, names)
        case _:
            return Call(function=_UNKNOWN, operands=())


def _polars_call(polars: ModuleType, function: str, operands: Sequence[Any], names: Sequence[str]) -> Call:
    known = _POLARS_FUNCTIONS.get(function, _UNKNOWN)
    return Call(function=known, operands=tuple(_polars_node(polars, operand, names) for operand in operands))


def _polars_constant(polars: ModuleType, node: Any) -> pa.Array:
    constant = polars.Expr.deserialize(BytesIO(json.dumps(node).encode()), format="json")
    return _plain(polars.select(constant).to_series().to_arrow())


def _plain(values: pa.Array) -> pa.Array:
    """Return strings in the form that columns of this library have."""
    is_text = pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type)
    return values.cast(pa.string()) if is_text else values
