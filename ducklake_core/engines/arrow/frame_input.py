"""Whatever holds rows in this process as Arrow: a table when the rows are in memory, else a stream that is read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from ducklake_core.errors import UsageError
from ducklake_core.format.types.arrow_types import HUGE_INTEGER, TYPE_KEY, ArrowArray
from ducklake_core.format.types.message_text import shown

ArrowData: TypeAlias = pa.Table | pa.RecordBatchReader

ACCEPTED = (
    "give Arrow data (a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a DuckDB relation, anything with "
    "__arrow_c_stream__ or __arrow_c_array__), a list of dicts, or a Spark DataFrame"
)

_ONE_COLUMN = "it is one column without a name, not rows: make it a table, such as pyarrow.table({'a': values})"
_FAILURES = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)
_LARGEST_UNSIGNED = 2**64 - 1


def is_a(data: object, package: str, name: str) -> bool:
    """Whether a value is of a class of a package that need not be installed, or of a subclass of it."""
    return any(cls.__name__ == name and cls.__module__.partition(".")[0] == package for cls in type(data).__mro__)


def kind_of(data: object) -> str:
    """What messages call a frame.

    >>> kind_of(pa.table({"a": [1]})), kind_of([]), kind_of({})
    ('pyarrow Table', 'list', 'dict')
    """
    cls = type(data)
    package = cls.__module__.partition(".")[0]
    if package == "builtins":
        return cls.__qualname__
    return {"pyarrow": "pyarrow ", "pandas": "pandas ", "polars": "polars ", "_duckdb": "DuckDB "}.get(package, f"{cls.__module__}.") + (
        "relation" if cls.__name__ == "DuckDBPyRelation" else cls.__qualname__
    )


def arrow_data(data: Any) -> ArrowData:
    """The rows of a frame; a stream is opened but not read. A frame without rows may have no columns.

    Raises:
        UsageError: The value holds no rows in columns, or rows without columns; the message names its kind.
    """
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, list | tuple):
        return _of_mappings(data)
    if is_a(data, "pandas", "DataFrame"):
        check_index(data, "pandas DataFrame")
        if not len(data.columns) and len(data):
            raise no_columns("pandas DataFrame")
    try:
        if is_a(data, "pandas", "DataFrame"):
            return _of_pandas(data)
        if is_a(data, "polars", "DataFrame"):
            return pa.table(data)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
    except _FAILURES as error:
        raise UsageError(f"cannot write a {kind_of(data)}: {_reason(error)}", type=kind_of(data)) from error
    raise UsageError(f"cannot write a {kind_of(data)}: {_advice(data)}", type=kind_of(data))


def no_columns(kind: str) -> UsageError:
    """Return the error for a frame without columns where its rows or its columns are needed: rows of NULLs would hide a mistake."""
    return UsageError(f"cannot write a {kind} without columns: give at least one column of the table", type=kind)


def _of_pandas(data: Any) -> pa.Table:
    """Labels of rows without a name are no column. Without rows pandas makes up types (float64, object), so the columns have none."""
    rows = pa.Table.from_pandas(data, preserve_index=False)
    return rows if len(data) else pa.table([pa.nulls(0)] * rows.num_columns, names=rows.column_names)


def _advice(data: object) -> str:
    if type(data).__name__ in ("Series", "ChunkedArray"):
        return _ONE_COLUMN
    if is_a(data, "polars", "LazyFrame"):
        return "call its collect()"
    if isinstance(data, Mapping):
        return "make it a table of columns, pyarrow.table(...), or a list with a dict for each row"
    if isinstance(data, Iterator):
        return "make a stream of record batches with pyarrow.RecordBatchReader.from_batches(schema, batches), or a list of dicts"
    return ACCEPTED


def _reason(error: Exception) -> str:
    if "non-struct" in str(error):
        return _ONE_COLUMN
    return "; ".join(str(part).partition("\n")[0] for part in error.args) or type(error).__name__


def check_index(data: Any, kind: str) -> None:
    """Refuse a frame in the manner of pandas whose rows are labelled by what has a name: it was a column, and must not get lost.

    Raises:
        UsageError: The index is named.
    """
    named = [str(name) for name in data.index.names if name is not None]
    if named:
        raise UsageError(
            f"cannot write a {kind} whose index is named ({', '.join(named)}): make it columns with reset_index(), or leave it away with "
            "reset_index(drop=True)",
            type=kind,
        )


def _of_mappings(rows: Sequence[object]) -> pa.Table:
    """Rows as dicts: columns in the order in which rows first name them, NULL where a row lacks one."""
    values: dict[str, list[object]] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"cannot write a list of rows: row {number} is of type {kind_of(row)}, not a dict", row=number)
        for name in row:
            if not isinstance(name, str):
                raise UsageError(f"cannot write a list of dicts: row {number} names a column {name!r}, which is no text", row=number)
            if name not in values:
                values[name] = [None] * number
        for name, column in values.items():
            column.append(row.get(name))
    if rows and not values:
        raise no_columns("list of empty dicts")
    columns = [_column(name, column) for name, column in values.items()]
    return pa.Table.from_arrays([array for _, array in columns], schema=pa.schema([field for field, _ in columns]))


def _column(name: str, values: list[Any]) -> tuple[Any, Any]:
    """One column of Python values as Arrow infers its type; larger integers than Arrow infers get a type of DuckLake."""
    try:
        try:
            array = _with_nanoseconds(pa.array(values), values)
        except OverflowError:
            return _large_integers(name, values)
        return pa.field(name, array.type), array
    except _FAILURES as error:
        raise UsageError(f"cannot write a list of dicts: column {name!r}: {_where(values)}{_reason(error)}", column=name) from error


def _with_nanoseconds(array: ArrowArray, values: list[Any]) -> ArrowArray:
    """Arrow takes the times of pandas for those of Python, and drops their nanoseconds."""
    arrow = array.type
    if not (pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow)):
        return array
    if not any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in values):
        return array
    return pa.array(values, pa.timestamp("ns", arrow.tz) if pa.types.is_timestamp(arrow) else pa.duration("ns"))


def _large_integers(name: str, values: list[Any]) -> tuple[Any, Any]:
    known = [value for value in values if value is not None]
    if not all(isinstance(value, int) for value in known):
        raise UsageError(f"cannot write a list of dicts: column {name!r} mixes integers beyond 64 bits with other values", column=name)
    if min(known) >= 0 and max(known) <= _LARGEST_UNSIGNED:
        return pa.field(name, pa.uint64()), pa.array(values, pa.uint64())
    huge = "uint128" if max(known) >= 2**127 else "int128"
    texts: Any = pa.array([None if value is None else str(int(value)) for value in values], pa.string())
    return pa.field(name, HUGE_INTEGER, metadata={TYPE_KEY: huge.encode()}), texts.cast(HUGE_INTEGER)


def _where(values: list[Any]) -> str:
    """The first row at which the values are no column any more."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pa.array(values[:middle])
            low = middle
        except _FAILURES:
            high = middle
    return f"row {low} ({shown(values[low])}): "
