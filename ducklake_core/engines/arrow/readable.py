"""Rows as a stream of Arrow batches, and their conversion to pandas, polars and other libraries."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from html import escape
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format import arguments
from ducklake_core.format.types.schema import ArrowField, ArrowType, Schema, duckdb_type, from_arrow_field
from ducklake_core.format.types.text import counted, one_line, shown
from ducklake_core.format.values.arrow_cast import has_part, parts, with_parts

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow.dataset as pds
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

    from ducklake_core.format.expressions.predicates import Predicate


DtypeBackend: TypeAlias = Literal["numpy", "numpy_nullable", "pyarrow"]
"""Types of the columns of a pandas frame, as pandas' own readers call them."""
_MIN_POLARS = 2

_ELSEWHERE = {
    **dict.fromkeys(("df", "to_df", "fetchdf", "fetch_df"), "to_pandas()"),
    "pl": "to_polars()",
    **dict.fromkeys(("arrow", "to_arrow_table", "fetch_arrow_table"), "to_arrow()"),
    **dict.fromkeys(("to_arrow_batch_reader", "fetch_record_batch", "fetch_arrow_reader"), "to_reader()"),
    **dict.fromkeys(
        ("fetchall", "fetchmany", "fetchone", "to_pylist", "to_dicts"), "to_arrow().to_pylist(), which has a dict for each row"
    ),
}
"""Methods of :class:`Readable` by the names that DuckDB, PyIceberg and Polars give them."""
_WIDEST = 38

_JSON = "arrow.json"
_DURATION = pa.duration("us")
_DAY = 86_400_000_000
"""Microseconds of a day."""

_BACKENDS = ("numpy", "numpy_nullable", "pyarrow")
_NOT_CONVERTED = (ValueError, OverflowError, pa.ArrowException)


@arguments.none_means_default
class Readable(ABC):
    """An object with rows: a table, a scan, a change feed, a view, or a table within a transaction.

    It is also an Arrow stream, which other libraries read directly (``pa.table(x)``, ``pl.DataFrame(x)``, ``duckdb.sql("FROM x")``,
    ``pd.DataFrame.from_arrow(x)``). It can be read any number of times, and holds only a few batches in memory.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if hasattr(type(self), name):
                # A property raised AttributeError, which Python would replace. The second call raises it again.
                return object.__getattribute__(self, name)
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(f"{message}. Use {_ELSEWHERE[name]}" if name in _ELSEWHERE else message, name=name, obj=self)

    @abstractmethod
    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a ``RecordBatchReader``, a stream with a known schema."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of the rows in Arrow's PyCapsule protocol, cast to the requested schema if there is one."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in Arrow batches; memory is bounded by a few batches. The scan is planned when the first batch is requested."""
        yield from self.to_reader()

    def to_arrow(self) -> pa.Table:
        """Return all rows as one Arrow table, in no particular order."""
        return self.to_reader().read_all()

    def head(self, n: int = 5) -> pa.Table:
        """Return any ``n`` rows (5 by default) as an Arrow table. Reads only as many batches as needed."""
        reader = self.to_reader()
        return pa.Table.from_batches(first_rows(iter(reader), n), schema=reader.schema)

    def to_pandas(self, *, dtype_backend: DtypeBackend = "numpy") -> pd.DataFrame:
        """Return all rows as a pandas frame.

        Args:
            dtype_backend: ``"numpy"`` converts integers with NULLs to floats. ``"numpy_nullable"`` and ``"pyarrow"`` use types that hold
                NULL, as in pandas' own readers. Default: ``"numpy"``.

        Intervals without months become durations, in which a day has 24 hours; a column with other intervals has ``DateOffset`` objects.
        UUIDs are ``uuid.UUID`` objects, and JSON is strings. Nested columns with UUIDs, nanoseconds or time zones are Python lists and
        dicts.

        Raises:
            UsageError: A column of integers has NULLs and a number that no float represents. Use another ``dtype_backend``.
            UnsupportedFeatureError: A date is before the year 1 or after 9999, or a time is 24:00:00. Use ``"pyarrow"``.
        """

        return pandas_frame(self.to_arrow(), dtype_backend)

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a Polars frame.

        Integers of 128 bits come as decimals of 38 digits, JSON as strings, UUIDs as 16 bytes, and intervals as durations, in which a day
        has 24 hours.

        Raises:
            UnsupportedFeatureError: Polars is not installed or older than 2.0, or has no type for the values of a column, such as intervals
                of months or the time 24:00:00.
        """

        polars = _polars("to_polars")
        reader = self.to_reader()
        converted = with_polars_types(reader)
        # Polars replaces errors of a stream that it reads by its own; a converted stream, which may raise, is read here.
        frame: pl.DataFrame = polars.DataFrame(reader if converted is reader else converted.read_all())
        return frame

    def to_polars_lazy(self) -> pl.LazyFrame:
        """Return the rows as a lazy frame of Polars, which reads the columns that a query needs, in batches, each time it runs.

        Comparisons with constants, ``is_in``, ``is_between``, ``is_null``, ``starts_with`` and their combinations skip files, as in
        ``where``; Polars evaluates all conditions. Columns have the types of :meth:`to_polars`.

        Raises:
            UnsupportedFeatureError: Polars is not installed or older than 2.0, or has no type for a column.
        """
        polars = _polars("to_polars_lazy")
        from ducklake_core.engines.arrow.pushdown import lazy_polars

        columns, schema = self._lazy_columns()
        return lazy_polars(polars, columns, schema, self._selected, repr(self))

    def to_dataset(self) -> pds.Dataset:
        """Return the rows as a pyarrow dataset, for ``to_table``, ``to_batches``, ``scanner``, ``head``, ``count_rows``, ``filter`` and
        libraries that scan datasets.

        Each scan reads its own columns in batches; comparisons with constants, ``isin``, ``is_null`` and their combinations skip files,
        as in ``where``. Deletes and inlined rows are applied, so that the dataset has no fragments for other programs to read: functions
        of pyarrow that bypass the scanner, such as ``Scanner.from_dataset``, raise an error. ``join`` and ``sort_by`` work in memory.
        """
        from ducklake_core.engines.arrow.pushdown import LazyDataset

        return LazyDataset(*self._lazy_columns(), self._selected)

    def _lazy_columns(self) -> tuple[Schema, pa.Schema]:
        """Return the columns by which :meth:`_selected` may skip files, and all columns in Arrow."""
        return Schema(columns=()), self.to_reader().schema

    def _selected(self, columns: Sequence[str], predicate: Predicate | None) -> pa.RecordBatchReader:
        """Return some columns of the rows.

        Args:
            columns: Names of columns, in order.
            predicate: Condition on columns of :meth:`_lazy_columns`; rows for which it is not true may be left out.
        """
        del predicate
        reader = self.to_reader()
        schema = pa.schema([reader.schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, (batch.select(columns) for batch in reader))

    def to_duckdb(self, connection: DuckDBPyConnection | None = None) -> DuckDBPyRelation:
        """Return the rows as a DuckDB relation, which reads them again each time it runs.

        Integers of 128 bits come as decimals of 38 digits.

        Args:
            connection: Connection that can query the relation. Default: DuckDB's default connection.

        Raises:
            UnsupportedFeatureError: DuckDB is not installed.
            UsageError: ``connection`` is not a connection of DuckDB.
        """

        duckdb = _optional("duckdb", "to_duckdb", "pip install 'ducklake-dagster[duckdb]'")
        if connection is not None and not isinstance(connection, duckdb.DuckDBPyConnection):
            raise UsageError(f"connection must be a connection of DuckDB, not {shown(connection)}", parameter="connection")
        relation: DuckDBPyRelation = (duckdb.default_connection() if connection is None else connection).from_arrow(NarrowStream(self))
        return relation


_SHOWN_ROWS = 20
_SHOWN_COLUMNS = 20
_CELL = 40
_NUMBER = re.compile(r"U?[A-Z]*INT|INTEGER|UINTEGER|DOUBLE|FLOAT|DECIMAL\(.*\)")
_PLAN = ["explain_key", "explain_value"]
"""Columns of EXPLAIN, whose rows are long strings."""


def rows_text(rows: Readable, otherwise: str | None = None) -> str:
    """Return the first rows as a table of text, with the types under the names.

    Args:
        rows: The rows.
        otherwise: Text to return if the rows cannot be read. Default: raise the error.
    """
    try:
        head, table, note, strings = _shown_cells(rows)
    except Exception:
        if otherwise is None:
            raise
        return otherwise
    if head[0] == _PLAN:
        return "\n".join(strings)
    widths = [max(map(len, column)) for column in zip(*head, *table, strict=True)]
    right = [bool(_NUMBER.fullmatch(kind)) for kind in head[1]]

    def line(cells: Sequence[str]) -> str:
        padded = (cell.rjust(width) if at else cell.ljust(width) for cell, width, at in zip(cells, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([*map(line, head), "  ".join("-" * width for width in widths), *map(line, table), note])


def rows_html(rows: Readable) -> str:
    """Return the first rows as a table for a notebook, with the types under the names."""
    (names, kinds), table, note, strings = _shown_cells(rows)
    if names == _PLAN:
        return f"<pre>{escape(chr(10).join(strings))}</pre>"
    header = "".join(f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in zip(names, kinds, strict=True))
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table><small>{escape(note)}</small>"


def _shown_cells(rows: Readable) -> tuple[tuple[list[str], list[str]], list[list[str]], str, list[str]]:
    """Return names and types of columns, the first rows, a line about the others, and the whole values of the last column."""
    found = rows.head(_SHOWN_ROWS + 1)
    fields = list(found.schema)[:_SHOWN_COLUMNS]
    names, kinds = [_cell(field.name) for field in fields], [_cell(_shown_type(field)) for field in fields]
    values = [column.slice(0, _SHOWN_ROWS).to_pylist() for column in found.columns[:_SHOWN_COLUMNS]]
    note = f"first {_SHOWN_ROWS} rows" if found.num_rows > _SHOWN_ROWS else counted(found.num_rows, "row")
    if len(found.column_names) > _SHOWN_COLUMNS:
        note += f", first {_SHOWN_COLUMNS} of {len(found.column_names)} columns"
    cells = [["NULL" if value is None else _cell(str(value)) for value in row] for row in zip(*values, strict=True)]
    return (names, kinds), cells, note, list(map(str, values[-1]))


def _shown_type(field: ArrowField) -> str:
    try:
        return duckdb_type(from_arrow_field(field).type).upper()
    except DuckLakeError:
        return str(field.type)


def _cell(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _CELL else f"{line[: _CELL - 3]}..."


def first_rows(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of batches, and close the source without reading further."""
    left = count
    # Closing a generator of this library closes its open file; readers of other libraries have nothing to close.
    with closing(_Closable(batches)) as rows:
        while left > 0:
            batch = next(rows.batches, None)
            if batch is None:
                return
            yield batch.slice(0, left)
            left -= batch.num_rows


class _Closable:
    """An iterator that is closed if it can be."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.batches = batches

    def close(self) -> None:
        close = getattr(self.batches, "close", None)
        if close is not None:
            close()


def _polars(method: str) -> ModuleType:
    polars = _optional("polars", method, "pip install 'ducklake-dagster[polars]'")
    if int(polars.__version__.partition(".")[0]) < _MIN_POLARS:
        # Earlier versions turn a stream into columns of Python objects, or nested JSON into strings.
        message = f"{method}() needs polars {_MIN_POLARS} or later, not {polars.__version__}. Run pip install 'ducklake-dagster[polars]'"
        raise UnsupportedFeatureError(message, package="polars")
    return polars


def _optional(package: str, method: str, install: str) -> ModuleType:
    """Import an optional library; raise an error that names it if it is missing."""
    try:
        return import_module(package)
    except ImportError as error:
        raise UnsupportedFeatureError(f"{method}() needs the package {package}. Run {install}", package=package) from error


def with_narrow_decimals(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows with integers of 128 bits as decimals of 38 digits, which are the widest ones of DuckDB and Polars.

    Raises:
        UnsupportedFeatureError: While it is read, a value of 39 digits.
    """
    return _with_types(reader, _narrow)


def with_polars_types(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows with narrow decimals, durations in place of intervals, and strings in place of JSON.

    Raises:
        UnsupportedFeatureError: A column has intervals inside another type; or, while it is read, a value of 39 digits, an interval that
            has months, or the time 24:00:00.
    """
    for field in reader.schema:
        if not pa.types.is_interval(field.type) and has_part(field.type, pa.types.is_interval):
            message = f"column {field.name!r} has intervals inside lists, structs or maps, for which Polars has no type. Use to_arrow()"
            raise UnsupportedFeatureError(message, column=field.name)
    checked = [field.name for field in reader.schema if has_part(field.type, pa.types.is_time)]
    if checked:
        reader = pa.RecordBatchReader.from_batches(reader.schema, _without_ends_of_days(reader, checked))
    # No function of Polars accepts its type of JSON.
    return _with_types(reader, lambda kind: _DURATION if pa.types.is_interval(kind) else _text(_narrow(kind)))


def _without_ends_of_days(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; Polars would replace 24:00:00 by NULL."""
    for batch in batches:
        for name in names:
            if _has_end_of_day(batch.column(name)):
                raise UnsupportedFeatureError(
                    f"column {name!r} has the time 24:00:00, for which Polars has no value. Use to_arrow()", column=name
                )
        yield batch


def _has_end_of_day(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether an array has the time 24:00:00 at any depth.

    >>> _has_end_of_day(pa.array([[86_400_000_000], None], pa.list_(pa.time64("us"))))
    True
    """
    latest = (pc.max(times.cast(pa.time64("ns")).cast(pa.int64())).as_py() for times in parts(values, pa.types.is_time))
    return any(time is not None and time >= 1000 * _DAY for time in latest)


def with_integer_strings(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows with 128-bit integers as strings: no other type that Arrow and DuckDB share holds 39 digits."""
    return _with_types(reader, lambda kind: pa.string() if _is_wide(kind) else kind)


def _is_wide(kind: ArrowType) -> bool:
    return bool(pa.types.is_decimal256(kind)) and not kind.scale


def _narrow(kind: ArrowType) -> ArrowType:
    return pa.decimal128(_WIDEST, 0) if _is_wide(kind) else kind


def _text(kind: ArrowType) -> ArrowType:
    return pa.string() if getattr(kind, "extension_name", None) == _JSON else kind


def _with_types(reader: pa.RecordBatchReader, replace: Callable[[ArrowType], ArrowType]) -> pa.RecordBatchReader:
    schema = pa.schema([field.with_type(with_parts(field.type, replace)) for field in reader.schema], reader.schema.metadata)
    if schema.types == reader.schema.types:
        return reader

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield pa.RecordBatch.from_arrays(
                [_cast(column, field) for column, field in zip(batch.columns, schema, strict=True)], schema=schema
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    if pa.types.is_interval(column.type):
        found = _durations(column)
        if found is None:
            message = f"column {field.name!r} has intervals of months or of more than 290,000 years, for which Polars has no type. "
            raise UnsupportedFeatureError(message + "Use to_arrow()", column=field.name)
        return found
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        message = f"column {field.name!r} has integers of 39 digits, which only Arrow supports. Use to_arrow()"
        raise UnsupportedFeatureError(message, column=field.name) from error


def _durations(intervals: pa.Array) -> pa.Array | None:
    """Return intervals as durations, with days of 24 hours; None if one has months or is longer than a duration can be."""
    values = intervals.to_pylist()
    if any(value.months for value in values if value is not None):
        return None
    try:
        return pa.array([None if value is None else value.days * _DAY + value.nanoseconds // 1000 for value in values], _DURATION)
    except (OverflowError, pa.ArrowInvalid):
        return None


class NarrowStream:
    """A stream that can be read any number of times, with decimals of at most 38 digits."""

    def __init__(self, rows: Readable) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of the rows."""
        return with_narrow_decimals(self._rows.to_reader()).__arrow_c_stream__(requested_schema)


def pandas_frame(table: pa.Table, dtype_backend: DtypeBackend) -> pd.DataFrame:
    """Return the rows of a table as a pandas frame; see :meth:`~ducklake_core.engines.arrow.readable.Readable.to_pandas`."""
    if dtype_backend not in _BACKENDS:
        raise UsageError(f"dtype_backend must be one of {', '.join(_BACKENDS)}, not {shown(dtype_backend)}", parameter="dtype_backend")
    pd = _optional("pandas", "to_pandas", "pip install 'ducklake-dagster[pandas]'")
    table = _with_columns(table, map(_pandas_column, table.columns))
    objects = {field.name for field in table.schema if _becomes_objects(field.type, dtype_backend)}
    if dtype_backend == "numpy":
        plain = _with_columns(table, map(_pandas_integers, table.column_names, table.columns))
        return _converted(plain, None, objects)
    if dtype_backend == "pyarrow":
        # pandas cannot print a column of intervals or UUIDs, which become objects.
        return _converted(table, lambda kind: None if _is_object(kind) else pd.ArrowDtype(kind), objects)
    nullable = {pa.from_numpy_dtype(kind.type): kind for kind in _nullable_numbers()}
    nullable |= {pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}
    return _converted(table, nullable.get, objects)


def _becomes_objects(kind: ArrowType, dtype_backend: DtypeBackend) -> bool:
    """Return whether pyarrow's conversion of a nested column to pandas fails, or loses nanoseconds, zones or UUIDs."""
    if not pa.types.is_nested(kind):
        return False
    return has_part(kind, _is_uuid if dtype_backend == "pyarrow" else lambda part: _is_uuid(part) or _is_fine_time(part))


def _is_uuid(kind: ArrowType) -> bool:
    return getattr(kind, "extension_name", None) == "arrow.uuid"


def _is_object(kind: ArrowType) -> bool:
    return pa.types.is_interval(kind) or _is_uuid(kind)


def _is_fine_time(kind: ArrowType) -> bool:
    return pa.types.is_timestamp(kind) and (kind.unit == "ns" or kind.tz is not None)


def _with_columns(table: pa.Table, columns: Iterable[pa.ChunkedArray]) -> pa.Table:
    converted = list(columns)
    fields = [field.with_type(column.type) for field, column in zip(table.schema, converted, strict=True)]
    return pa.table(converted, schema=pa.schema(fields, table.schema.metadata))


def _pandas_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return JSON as strings, and intervals without months as durations; pyarrow makes objects of pandas of the others."""
    if not pa.types.is_interval(column.type):
        plain = with_parts(column.type, _text)
        return column if plain == column.type else column.cast(plain)
    chunks = [_durations(chunk) for chunk in column.chunks]
    return column if None in chunks else pa.chunked_array(chunks, _DURATION)


def _pandas_integers(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return integers with NULL as floats."""
    if not column.null_count or not pa.types.is_integer(column.type):
        return column
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid as error:
        message = f"column {name!r} has NULLs and integers beyond 2^53, which pandas would round to floats. Pass "
        raise UsageError(message + "dtype_backend='numpy_nullable' or 'pyarrow'", column=name) from error


def _converted(table: pa.Table, types_mapper: Callable[[Any], Any] | None, objects: Collection[str]) -> pd.DataFrame:
    """Return a pandas frame; the columns ``objects`` have lists and dicts of Python."""
    placeholders = (pa.chunked_array([pa.nulls(len(table))]) if name in objects else table.column(name) for name in table.column_names)
    whole = _with_columns(table, placeholders) if objects else table
    try:
        # Integers inside lists and structs stay integers where there are NULLs.
        frame = whole.to_pandas(types_mapper=types_mapper, integer_object_nulls=True)
    except _NOT_CONVERTED as error:
        name = next(name for name in whole.column_names if not _converts(whole.select([name]), types_mapper))
        message = f"column {name!r} does not fit this form of pandas frame ({error}). Pass dtype_backend='pyarrow', or use to_arrow()"
        raise UnsupportedFeatureError(message, column=name) from error
    for name in objects:
        frame[name] = _objects(name, table.column(name))
    return frame


def _objects(name: str, column: pa.ChunkedArray) -> Any:
    import pandas as pd

    try:
        if _has_end_of_day(column):
            raise ValueError("hour must be in 0..23")
        return pd.Series(column.to_pylist(), dtype=object)
    except _NOT_CONVERTED as error:
        raise UnsupportedFeatureError(f"column {name!r} does not fit a pandas frame ({error}). Use to_arrow()", column=name) from error


def _converts(table: pa.Table, types_mapper: Callable[[Any], Any] | None) -> bool:
    try:
        table.to_pandas(types_mapper=types_mapper)
    except _NOT_CONVERTED:
        return False
    return True


def _nullable_numbers() -> Iterator[Any]:
    import pandas as pd

    yield from (pd.Int8Dtype(), pd.Int16Dtype(), pd.Int32Dtype(), pd.Int64Dtype())
    yield from (pd.UInt8Dtype(), pd.UInt16Dtype(), pd.UInt32Dtype(), pd.UInt64Dtype())
    yield from (pd.Float32Dtype(), pd.Float64Dtype())
