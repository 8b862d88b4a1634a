"""Rows in this process that a caller passes in, as an Arrow table or as a stream that is read once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from itertools import chain
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from uuid import UUID
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.errors import SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.reconciliation import may_fit, with_adopted_types, with_types_for_nulls
from ducklake_core.format.types.data_types import DataType, Field
from ducklake_core.format.types.schema import HUGE_INTEGER, TYPE_KEY, ArrowArray, Schema, from_arrow_field, from_arrow_schema
from ducklake_core.format.types.text import shown
from ducklake_core.format.values.arrow_cast import cast_array, has_part, with_parts

if TYPE_CHECKING:
    from ducklake_core.engines.arrow.merge import MergeSource
    from ducklake_core.engines.arrow.positions import DeleteTarget, Deletions
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.format.expressions.predicates import Predicate
    from ducklake_core.format.files.data_files import WrittenFile
    from ducklake_core.format.state import TableState
    from ducklake_core.planning.plan import ScanPlan
    from ducklake_core.storage.filesystems import Storage
    from ducklake_core.storage.unfinished import NamedFiles


_FEW_ROWS = 100_000
_UNREAD: WeakKeyDictionary[Any, pa.RecordBatch] = WeakKeyDictionary()
"""First batches of callers' streams that a check has read; they are written when the caller writes the stream again after an error."""

ArrowData: TypeAlias = pa.Table | pa.RecordBatchReader
ACCEPTED = (
    "pass Arrow data (a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a DuckDB relation, an object with "
    "__arrow_c_stream__ or __arrow_c_array__), a list of dicts, or a Spark DataFrame"
)
_ONE_COLUMN = "it is one column without a name, not rows. Make a table, such as pyarrow.table({'a': values})"
_POLARS_INTEGERS = {"Int128": "int128", "UInt128": "uint128"}
_FAILURES = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)
_LARGEST_UNSIGNED = 2**64 - 1
_NOT_EXPORTED = {
    "variant": "JSON",
    "time with time zone": "TIME or VARCHAR",
    "bit": "VARCHAR",
    "uhugeint": "DECIMAL(38, 0) or VARCHAR",
}
"""Types of DuckDB that it does not export to Arrow, or with other values, and types to cast them to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowFrame:
    """Rows in this process; made by :func:`arrow_frame`.

    Attributes:
        data: A table, or a reader that can be read once.
        schema: The columns, without ids.
        kind: Name of the data for messages.
        stream: The caller's stream, if it is one.
        session: None, because no Spark session does the work.
        inlines_by_default: Whether few rows go into the catalog by default: counting them costs nothing.
    """

    data: ArrowData
    schema: Schema
    kind: str = "pyarrow Table"
    stream: pa.RecordBatchReader | None = field(default=None, repr=False)
    session: ClassVar[None] = None
    inlines_by_default: ClassVar[bool] = True

    @property
    def is_seen(self) -> bool:
        """Return whether :meth:`schema_for` reads the values; a column whose type then still differs does not fit."""
        return isinstance(self.data, pa.Table)

    @property
    def is_small(self) -> bool:
        """Return whether writing the rows a second time costs little."""
        return isinstance(self.data, pa.Table) and self.data.num_rows <= _FEW_ROWS

    @property
    def is_surely_empty(self) -> bool:
        """Return whether it is known without reading that there are no rows."""
        return isinstance(self.data, pa.Table) and not self.data.num_rows

    @property
    def is_typed(self) -> bool:
        """Return whether there are columns, and each of them has a type of its own."""
        return bool(len(self.data.schema)) and not any(pa.types.is_null(column.type) for column in self.data.schema)

    def checked_empty(self) -> tuple[bool, ArrowFrame]:
        """Return whether there are no rows, and a frame that still has them all.

        Reads a stream up to its first row, and keeps that batch until it is written: a caller may write the stream again after an error.
        """
        if isinstance(self.data, pa.Table):
            return not self.data.num_rows, self
        first = next((batch for batch in self.data if batch.num_rows), None)
        if first is None:
            return True, self
        if self.stream is not None:
            _UNREAD[self.stream] = first
        return False, replace(self, data=_starting_with(first, self.data, self.stream))

    def check_overwrites_all(self, _table: TableState) -> None:
        """Check nothing: only Spark sessions have a setting that restricts what an overwrite replaces."""

    def schema_for(self, table: Schema) -> Schema:
        """Return the columns; a column whose values all are values of the table's column takes its type.

        The type of a frame's column is often an accident (pandas has floats for integers with NULLs). Rows in memory are read: a column
        without values takes the type of the table's column, and so does one of numbers or times that the table's type holds exactly.
        The values of a stream are only known when it is written.
        """

        def adopted_type(column: Field, known: Field) -> DataType:
            return known.type if column.type != known.type and self._holds(column, known) else column.type

        return with_adopted_types(self.typed_like(table).schema, table, adopted_type)

    def typed_like(self, table: Schema) -> ArrowFrame:
        """Return the frame; columns, elements and fields that hold only NULL take the table's types."""
        given = {field.name: field.type for field in self.data.schema}
        return replace(self, schema=with_types_for_nulls(self.schema, table, given, _parts))

    def _holds(self, column: Field, known: Field) -> bool:
        """Return whether all values of a column are values of the table's."""
        # A name given twice is rejected later, with the other differences.
        if not isinstance(self.data, pa.Table) or len(self.data.schema.get_all_field_indices(column.name)) != 1:
            return False
        values = self.data.column(column.name)
        if all(map(_is_missing, values.chunks)):
            return True
        if not (column.is_leaf and known.is_leaf and may_fit(column.type, known.type)):
            return False
        try:
            for chunk in values.chunks:
                cast_array(chunk, known, exact=True)
        except SchemaError:
            return False
        return True

    def replayable(self) -> ArrowFrame:
        """Return the same rows as a frame that can be read more than once: a stream is read into memory."""
        return replace(self, data=self.data.read_all()) if isinstance(self.data, pa.RecordBatchReader) else self

    def few_rows(self, limit: int, most_bytes: int) -> tuple[pa.Table | None, ArrowFrame]:
        """Return the rows as a table, None above the limit of rows or bytes; and a frame that still has all of them."""
        data = self.data
        if isinstance(data, pa.Table):
            return (data if data.num_rows <= limit and data.nbytes <= most_bytes else None), self
        seen: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in data:
            seen.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > limit or size > most_bytes:
                return None, replace(self, data=pa.RecordBatchReader.from_batches(data.schema, chain(_given_up(seen), data)))
        table = pa.Table.from_batches(seen, data.schema)
        return table, replace(self, data=table)

    def write(self, state: WriteState, _named: NamedFiles | None = None) -> tuple[WrittenFile, ...]:
        """Write all rows to new files of a table. On failure the files are deleted."""
        from ducklake_core.engines.arrow.writer import write_table

        return write_table(self.data, state)

    def delete_by_key(
        self,
        plan_where: Callable[[Predicate | None], ScanPlan],
        key_columns: Schema,
        _written: Sequence[WrittenFile],
        target: DeleteTarget,
        storage: Storage,
        _named: NamedFiles | None = None,
    ) -> Deletions:
        """Write delete files for the rows of a table whose key columns equal those of a row of the frame.

        Args:
            plan_where: Returns a scan of the key columns of the rows that may satisfy a predicate.
            key_columns: Those of the table.
            target: Where to write delete files.
            storage: How to reach files.

        Raises:
            UsageError: A key of the frame is NULL or repeated.
        """
        from ducklake_core.engines.arrow.merge import key_bounds
        from ducklake_core.engines.arrow.positions import find_positions, key_set

        keys = key_set(self._table(), key_columns.names, key_columns)
        return find_positions(plan_where(key_bounds(key_columns.columns, keys.values())), target, storage, keys)

    def merge_source(self, _state: WriteState, _named: NamedFiles | None = None, columns: Schema | None = None) -> MergeSource:
        """Return the rows as the source of a merge, in memory, with the frame's own columns or with ``columns``, which it has by name."""
        from ducklake_core.engines.arrow.merge import MergeSource, source_ids
        from ducklake_core.format.values.arrow_cast import cast_to

        schema = source_ids(self.schema if columns is None else columns)
        return MergeSource(schema=schema, rows=cast_to(self._table(), schema, physical=False, exact=True))

    def empty_source(self, columns: Schema, _state: WriteState) -> MergeSource:
        """Return the source of a merge that has columns and no rows."""
        from ducklake_core.engines.arrow.merge import MergeSource, source_ids
        from ducklake_core.format.types.schema import to_arrow_schema

        schema = source_ids(columns)
        return MergeSource(schema=schema, rows=to_arrow_schema(schema).empty_table())

    def _table(self) -> pa.Table:
        data = self.replayable().data
        assert isinstance(data, pa.Table)
        return data


def _parts(given: pa.DataType) -> list[pa.DataType] | None:
    if pa.types.is_null(given):
        return None
    if pa.types.is_map(given):
        return [given.key_type, given.item_type]
    if pa.types.is_struct(given):
        return [field.type for field in given]
    return [given.value_type] if pa.types.is_nested(given) and hasattr(given, "value_type") else []


def _is_missing(values: ArrowArray) -> bool:
    """Return whether every value is NULL, or NaN, which pandas has instead of NULL.

    >>> _is_missing(pa.array([None, float("nan")])), _is_missing(pa.array([1.0])), _is_missing(pa.array([], pa.int8()))
    (True, False, True)
    """
    if values.null_count == len(values):
        return True
    return bool(pa.types.is_floating(values.type)) and pc.all(pc.is_nan(values)).as_py() is True


def _starting_with(first: pa.RecordBatch, rest: pa.RecordBatchReader, stream: pa.RecordBatchReader | None) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        if stream is not None:
            _UNREAD.pop(stream, None)
        yield first
        yield from rest

    return pa.RecordBatchReader.from_batches(rest.schema, batches())


def _given_up(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and release each one once the caller has taken it."""
    while batches:
        yield batches.pop(0)


def arrow_frame(data: object) -> ArrowFrame:
    """Return the frame of whatever holds rows in this process.

    Raises:
        UsageError: The value holds no rows; the message names its kind.
        UnsupportedFeatureError: A column of a type that DuckLake does not have.
    """
    rows = arrow_data(data)
    stream = rows if isinstance(rows, pa.RecordBatchReader) else None
    if stream is not None and (first := _UNREAD.get(stream)) is not None:
        rows = _starting_with(first, stream, stream)
    return ArrowFrame(data=rows, schema=from_arrow_schema(rows.schema), kind=kind_of(data), stream=stream)


def is_a(data: object, package: str, name: str) -> bool:
    """Return whether a value is of a class of a package that need not be installed, or of a subclass of it."""
    return any(cls.__name__ == name and cls.__module__.partition(".")[0] == package for cls in type(data).__mro__)


def kind_of(data: object) -> str:
    """Return the name of a frame's kind for messages.

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
    """Return the rows of a frame; a stream is opened but not read. A frame without rows may have no columns.

    Raises:
        UsageError: The value holds no rows in columns, or rows without columns; the message names its kind.
    """
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, list | tuple):
        return _of_mappings(data)
    if isinstance(data, type):
        raise UsageError(f"cannot write the class {data.__name__}: pass one of its objects", type=kind_of(data))
    if is_a(data, "pandas", "DataFrame"):
        check_index(data, "pandas DataFrame")
        if not len(data.columns) and len(data):
            raise no_columns("pandas DataFrame")
    try:
        if (rows := _of_library(data)) is not None:
            return rows
    except (UsageError, UnsupportedFeatureError):
        raise
    except _FAILURES as error:
        raise UsageError(f"cannot write a {kind_of(data)}: {_reason(error)}", type=kind_of(data)) from error
    raise UsageError(f"cannot write a {kind_of(data)}: {_advice(data)}", type=kind_of(data))


def _of_library(data: Any) -> ArrowData | None:
    """Return the rows of an object of another library, None for other values."""
    if is_a(data, "pandas", "DataFrame"):
        return _of_pandas(data)
    if is_a(data, "polars", "DataFrame"):
        return _of_polars(data)
    if is_a(data, "polars", "LazyFrame"):
        return _of_lazy_polars(data)
    if is_a(data, "pyarrow", "Dataset"):
        return _of_stream(data.scanner().to_reader())
    if is_a(data, "pyarrow", "Scanner"):
        return _of_stream(data.to_reader())
    if is_a(data, "pyarrow", "ParquetFile"):
        return pa.RecordBatchReader.from_batches(data.schema_arrow, data.iter_batches())
    if hasattr(data, "__arrow_c_stream__"):
        return _of_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)])
    return None


def _of_stream(data: Any) -> pa.RecordBatchReader:
    kind = kind_of(data)
    if kind == "DuckDB relation":
        _check_relation(data)
    try:
        return pa.RecordBatchReader.from_stream(data)
    except OSError as error:
        raise UsageError(f"cannot write a {kind}: {str(error).partition(chr(10))[0]}", type=kind) from error


def _check_relation(relation: Any) -> None:
    """Raise for a column of a type that DuckDB does not export to Arrow with its values: it drops offsets of times and lengths of bits."""
    for name, data_type in zip(relation.columns, relation.types, strict=True):
        found = next((kind for kind in _parts_of(data_type) if kind.id in _NOT_EXPORTED), None)
        if found is not None:
            raise UnsupportedFeatureError(
                f"cannot read column {name!r} of a DuckDB relation: DuckDB does not export {found} to Arrow. Cast the values to "
                f"{_NOT_EXPORTED[found.id]}, or write them with lake.sql(...)",
                column=name,
            )


def _parts_of(data_type: Any) -> Iterator[Any]:
    yield data_type
    if data_type.id in ("list", "array", "struct", "map"):
        for _, part in data_type.children:
            # An array has its size among its parts.
            yield from () if isinstance(part, int) else _parts_of(part)


def no_columns(kind: str) -> UsageError:
    """Return the error for a frame without columns; writing rows of NULLs would hide a mistake."""
    return UsageError(f"cannot write a {kind} without columns. Pass at least one column of the table", type=kind)


def _of_pandas(data: Any) -> pa.Table:
    """Convert a pandas frame without its unnamed index. Types of an empty frame are dropped, because pandas does not know them."""
    if not len(data):
        names = pa.Table.from_pandas(data, preserve_index=False).column_names
        return pa.table([pa.nulls(0)] * len(names), names=names)
    try:
        rows = pa.Table.from_pandas(data, preserve_index=False)
    except _FAILURES:
        if not data.columns.is_unique:
            raise
        # Arrow's errors name neither the row nor, most of them, the column.
        rows = _table([_pandas_column(str(name), data.iloc[:, place]) for place, name in enumerate(data.columns)])
    for place, name in enumerate(rows.column_names):
        # Only a column of Python objects goes through Arrow's inference, which drops nanoseconds.
        if has_part(rows.schema.types[place], _is_lossy) and str(data.dtypes.iloc[place]) == "object":
            values = data.iloc[:, place].tolist()
            array = _without_loss("pandas DataFrame", name, rows.column(place), values, from_pandas=True)
            rows = rows.set_column(place, pa.field(name, array.type), array)
    return rows


def _pandas_column(name: str, values: Any) -> tuple[Any, Any]:
    if str(values.dtype).startswith("Sparse"):
        values = values.sparse.to_dense()
    try:
        array: Any = pa.Array.from_pandas(values)
    except OverflowError:
        missing = values.isna()
        return _large_integers(
            "pandas DataFrame", name, [None if is_missing else value for value, is_missing in zip(values, missing, strict=True)]
        )
    except _FAILURES as error:
        held = values.tolist() if str(values.dtype) == "object" else []
        array = _nested_uuids("pandas DataFrame", name, held) if isinstance(error, pa.ArrowNotImplementedError) and held else None
        if array is None:
            found = f"column {name!r} of type {values.dtype}: {_where(held, from_pandas=True) if held else ''}{_reason(error)}"
            raise UsageError(f"cannot write a pandas DataFrame: {found}. Convert the column to one type of Arrow", column=name) from error
    return pa.field(name, array.type), array


def _of_polars(data: Any) -> pa.Table:
    """Convert a Polars frame. Polars exports Python objects as addresses, and 128-bit integers in a private type."""
    import polars as pl

    objects = [name for name, kind in data.schema.items() if kind == pl.Object]
    if objects:
        message = f"cannot write a polars DataFrame: column {objects[0]!r} has type Object. Convert its values to a type of Polars"
        raise UsageError(message, column=objects[0])
    # Other libraries reject the private type of 128-bit integers, so they are exported as strings.
    huge = {name: _POLARS_INTEGERS[str(kind)] for name, kind in data.schema.items() if str(kind) in _POLARS_INTEGERS}
    for name, kind in data.schema.items():
        if name not in huge and _has_huge_integers(kind):
            message = f"column {name!r} has integers of 128 bits inside lists or structs. Cast them to Decimal"
            raise UsageError(f"cannot write a polars DataFrame: {message}", column=name)
    if not huge:
        return pa.table(data)
    rows = pa.table(data.with_columns(pl.col(*huge).cast(pl.String)))
    return _table([_huge_column(field, column, huge.get(field.name)) for field, column in zip(rows.schema, rows.columns, strict=True)])


def _has_huge_integers(kind: Any) -> bool:
    parts = [kind.inner] if hasattr(kind, "inner") else [field.dtype for field in getattr(kind, "fields", ())]
    return str(kind) in _POLARS_INTEGERS or any(map(_has_huge_integers, parts))


def _of_lazy_polars(data: Any) -> pa.RecordBatchReader:
    """Return the rows of a lazy frame of Polars, whose query runs in batches when the first of them is read."""
    import polars as pl

    if not hasattr(data, "collect_batches"):
        raise UsageError("cannot write a polars LazyFrame of this version of polars. Call collect() first", type="polars LazyFrame")
    schema = _of_polars(pl.DataFrame(schema=data.collect_schema())).schema
    if not schema.names:
        raise no_columns("polars LazyFrame")

    def batches() -> Iterator[pa.RecordBatch]:
        with warnings.catch_warnings():
            # With the configuration warn_unstable, polars warns about this method.
            warnings.simplefilter("ignore")
            frames = data.collect_batches(lazy=True)
        for frame in frames:
            yield from _of_polars(frame).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _huge_column(field: Any, digits: Any, kind: str | None) -> tuple[Any, Any]:
    if kind is None:
        return field, digits
    return pa.field(field.name, HUGE_INTEGER, metadata={TYPE_KEY: kind.encode()}), digits.cast(pa.string()).cast(HUGE_INTEGER)


def _advice(data: object) -> str:
    if type(data).__name__ in ("Series", "ChunkedArray"):
        return _ONE_COLUMN
    if isinstance(data, Mapping):
        return "pass a table of columns, such as pyarrow.table(...), or a list with one dict for each row"
    if isinstance(data, Iterator):
        return "pass a stream of record batches, such as pyarrow.RecordBatchReader.from_batches(schema, batches), or a list of dicts"
    return ACCEPTED


def _reason(error: Exception) -> str:
    if "non-struct" in str(error):
        return _ONE_COLUMN
    if isinstance(error, UnicodeError):
        return str(error)
    return "; ".join(str(part).partition("\n")[0] for part in error.args) or type(error).__name__


def check_index(data: Any, kind: str) -> None:
    """Reject a pandas-like frame with a named index, which probably was a column that must not be lost.

    Raises:
        UsageError: The index is named.
    """
    named = [str(name) for name in data.index.names if name is not None]
    if named:
        raise UsageError(
            f"cannot write a {kind} whose index is named ({', '.join(named)}). Convert the index to columns with reset_index(), or "
            "drop it with reset_index(drop=True)",
            type=kind,
        )


def _of_mappings(rows: Sequence[object]) -> pa.Table:
    """Return a table of dicts. Columns have the order of their first use; a missing value is NULL."""
    values: dict[str, list[object]] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UsageError(f"cannot write a list of rows: row {number} has type {kind_of(row)}. Pass one dict for each row", row=number)
        for name in row:
            if not isinstance(name, str):
                raise UsageError(f"cannot write a list of dicts: row {number} has column name {name!r}, which is not a string", row=number)
            if name not in values:
                values[name] = [None] * number
        for name, column in values.items():
            column.append(row.get(name))
    if rows and not values:
        raise no_columns("list of empty dicts")
    return _table([_column(name, column) for name, column in values.items()])


def _table(columns: Sequence[tuple[Any, Any]]) -> pa.Table:
    return pa.Table.from_arrays([array for _, array in columns], schema=pa.schema([field for field, _ in columns]))


def _column(name: str, values: list[Any]) -> tuple[Any, Any]:
    """Return one column of Python values with the type that Arrow infers, or a DuckLake type for integers that Arrow does not support."""
    if any(kind.__name__ == "NaTType" for kind in {type(value) for value in values}):
        # Records that pandas made have NaT for a missing time.
        values = [None if type(value).__name__ == "NaTType" else value for value in values]
    try:
        try:
            array = _without_loss("list of dicts", name, pa.array(values), values)
        except OverflowError:
            return _large_integers("list of dicts", name, values)
        except pa.ArrowNotImplementedError:
            array = _nested_uuids("list of dicts", name, values)
            if array is None:
                raise
        return pa.field(name, array.type), array
    except UsageError:
        raise
    except _FAILURES as error:
        raise UsageError(f"cannot write a list of dicts: column {name!r}: {_where(values)}{_reason(error)}", column=name) from error


def _without_loss(kind: str, name: str, array: Any, values: Sequence[Any], *, from_pandas: bool = False) -> Any:
    """Return Python values in a type that keeps nanoseconds of pandas' times, which Arrow's inference drops.

    Raises:
        UsageError: Arrow's inference dropped something else: the time of day, where dates come first, the offset of a time, or the zone of
            a timestamp; or it made bytes of strings.
    """
    if not has_part(array.type, _is_lossy):
        return array
    wanted = _exact_type(f"cannot write a {kind}: column {name!r}", array.type, values)
    return array if wanted == array.type else pa.array(values, wanted, from_pandas=from_pandas)


def _is_lossy(arrow: Any) -> bool:
    return bool(pa.types.is_temporal(arrow) or pa.types.is_binary(arrow) or _is_uuid(arrow))


def _exact_type(failed: str, arrow: Any, values: Sequence[Any]) -> Any:
    if pa.types.is_list(arrow):
        items = [item for value in values if isinstance(value, Iterable) for item in value]
        return pa.list_(arrow.value_field.with_type(_exact_type(failed, arrow.value_type, items)))
    if pa.types.is_struct(arrow):
        rows = [value for value in values if isinstance(value, Mapping)]
        return pa.struct([own.with_type(_exact_type(failed, own.type, [row.get(own.name) for row in rows])) for own in arrow])
    if pa.types.is_binary(arrow) and {bytes, type(None)}.issuperset(map(type, values)):
        return arrow
    # NaT is an instance of datetime with a nanosecond attribute, but differs from itself, as NaN does; NA cannot be compared.
    known = [value for value in values if value is not None and type(value).__name__ != "NAType" and value == value]  # noqa: PLR0124
    uuids = sum(isinstance(value, UUID) for value in known) if pa.types.is_binary(arrow) or _is_uuid(arrow) else 0
    if uuids and uuids < len(known):
        raise UsageError(f"{failed} mixes UUIDs and other values. Convert them to one type")
    if uuids:
        return pa.uuid()
    if pa.types.is_binary(arrow) and any(isinstance(value, str) for value in known):
        raise UsageError(f"{failed} mixes strings and bytes. Convert them to one type")
    if pa.types.is_timestamp(arrow) and len({getattr(value, "tzinfo", None) is None for value in known}) == 2:
        raise UsageError(f"{failed} mixes timestamps with and without a time zone. Convert them to one type")
    if pa.types.is_date(arrow) and any(isinstance(value, datetime) for value in known):
        raise UsageError(f"{failed} mixes dates and timestamps. Convert them to one type")
    if pa.types.is_time(arrow) and any(isinstance(value, time) and value.tzinfo is not None for value in known):
        raise UsageError(f"{failed} has times with a time zone. Convert them to one zone, and remove it with replace(tzinfo=None)")
    if not any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in known):
        return arrow
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("ns", arrow.tz)
    # Intervals have nanoseconds in every unit.
    return pa.duration("ns") if pa.types.is_duration(arrow) else arrow


def _nested_uuids(kind: str, name: str, values: Sequence[Any]) -> Any:
    """Return lists and dicts that contain UUIDs, because Arrow makes no arrays of those; None if there are no UUIDs in them."""
    plain = [_with_bytes(value) for value in values]
    wanted = _exact_type(f"cannot write a {kind}: column {name!r}", pa.array(plain, from_pandas=True).type, values)
    if not has_part(wanted, _is_uuid):
        return None
    stored = pa.array(plain, with_parts(wanted, lambda part: pa.binary(16) if _is_uuid(part) else part), from_pandas=True)
    return cast_array(stored, from_arrow_field(pa.field(name, wanted)))


def _is_uuid(arrow: Any) -> bool:
    return bool(arrow == pa.uuid())


def _with_bytes(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, Mapping):
        return {key: _with_bytes(part) for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | memoryview):
        return [_with_bytes(part) for part in value]
    return value


def _large_integers(kind: str, name: str, values: list[Any]) -> tuple[Any, Any]:
    known = [value for value in values if value is not None]
    if not all(isinstance(value, Integral) for value in known):
        raise UsageError(
            f"cannot write a {kind}: column {name!r} mixes integers of more than 64 bits with other values. Convert them to one type",
            column=name,
        )
    if min(known) >= 0 and max(known) <= _LARGEST_UNSIGNED:
        return pa.field(name, pa.uint64()), pa.array(values, pa.uint64())
    huge = "uint128" if max(known) >= 2**127 else "int128"
    digits: Any = pa.array([None if value is None else str(int(value)) for value in values], pa.string())
    return _huge_column(pa.field(name, HUGE_INTEGER), digits, huge)


def _where(values: list[Any], *, from_pandas: bool = False) -> str:
    """Return the index of the first row from which on the values form no column."""
    # pyarrow's error does not name the row: a binary search for the longest prefix that is still a column finds it.
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pa.array(values[:middle], from_pandas=from_pandas)
            low = middle
        except _FAILURES:
            high = middle
    return f"row {low} ({shown(values[low])}): "
