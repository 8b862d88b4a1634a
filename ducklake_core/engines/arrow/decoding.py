"""Decode row groups of Parquet files into Arrow batches, and skip row groups by their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, islice, pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ducklake_core.errors import CorruptFileError, SchemaError, UnsupportedFeatureError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate
from ducklake_core.format.files.data_files import ColumnStatistics, DataFile
from ducklake_core.format.types.data_types import FLOATS, Field
from ducklake_core.format.types.schema import NO_KEY_TYPES, VARIANT_STORAGE, ArrowArray, Schema, is_list, to_arrow_type
from ducklake_core.format.values import leaf_values
from ducklake_core.format.values import variant_encoding as encoding
from ducklake_core.storage.added_files import ForeignLeaf, foreign_leaf, trusted_bounds
from ducklake_core.storage.filesystems import Storage, printable
from ducklake_core.storage.footers import Footer, RowGroup, footer_content, parse_footer, parsed, without_arrow_schema
from ducklake_core.storage.parquet_files import open_parquet

BATCH_ROWS = 65_536

_MANY_GROUPS = 64
_SMALL_FOOTER_BYTES = 64 << 10
_recent_footer = lru_cache(maxsize=16)(parse_footer)
"""Recently parsed footers by their bytes. Parsing takes about 0.25 ms for each row group of eight columns."""
_FIXED: dict[pa.DataType, tuple[bytes, int]] = {
    pa.int8(): (encoding.INT8, 1),
    pa.int16(): (encoding.INT16, 2),
    pa.int32(): (encoding.INT32, 4),
    pa.int64(): (encoding.INT64, 8),
    pa.float32(): (encoding.FLOAT32, 4),
    pa.float64(): (encoding.FLOAT64, 8),
    pa.date32(): (encoding.DATE, 4),
    pa.time64("us"): (encoding.TIME, 8),
    pa.timestamp("us"): (encoding.TIMESTAMP, 8),
    pa.timestamp("ns"): (encoding.TIMESTAMP_NS, 8),
    pa.timestamp("us", "UTC"): (encoding.TIMESTAMPTZ, 8),
    pa.timestamp("ns", "UTC"): (encoding.TIMESTAMPTZ_NS, 8),
}


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The footer of a file, unparsed and as pyarrow's object, and the size of the file."""

    content: bytes
    size: int
    metadata: pq.FileMetaData


class OpenFile:
    """An open Parquet file for one thread, whose checksums are verified.

    Args:
        source: The file.
        path: Its path, as messages may show it.
        table: Its table, for messages; empty for none.
        end: Its end, if that was read before.
        pre_buffer: Whether other threads fetch all columns of a row group at once (the default); not worth it for local files.

    Raises:
        CorruptFileError: The file does not end like a Parquet file.
        UnsupportedFeatureError: Its footer is encrypted.
    """

    def __init__(self, source: pa.NativeFile, path: str, table: str = "", *, end: FileEnd | None = None, pre_buffer: bool = True) -> None:
        self.pre_buffer = pre_buffer
        self._path, self._table = path, table
        self._source = source
        if end is None:
            with self._naming_file():
                content, size = footer_content(source, self._where)
            end = FileEnd(content, size, parsed(content))
        self.end = end
        self._parquet = self._opened("us")
        if any("_view" in str(field.type) for field in self.schema):
            # Arrow cannot take rows of such arrays.
            self.end = FileEnd(end.content, end.size, parsed(without_arrow_schema(end.content)))
            self._parquet = self._opened("us")
        self._coarse: pq.ParquetFile | None = None
        self._old_timestamps = _old_timestamps(self.metadata, self.schema)

    def _opened(self, unit: str) -> pq.ParquetFile:
        return pq.ParquetFile(
            self._source,
            metadata=self.end.metadata,
            coerce_int96_timestamp_unit=unit,
            page_checksum_verification=True,
            pre_buffer=self.pre_buffer,
        )

    @property
    def metadata(self) -> pq.FileMetaData:
        """Return the footer."""
        return self.end.metadata

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema."""
        return self._parquet.schema_arrow

    @property
    def rows(self) -> int:
        """Return the number of rows in all row groups; some writers leave the total in the footer at 0."""
        metadata = self.metadata
        return sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))

    def footer(self) -> Footer:
        """Return the footer with its statistics, which pyarrow cannot be asked for: it ends the process on damaged ones.

        Raises:
            CorruptFileError: The footer contradicts itself.
            UnsupportedFeatureError: Columns are encrypted, or in other files.
        """
        with self._naming_file():
            parse = _recent_footer if len(self.end.content) <= _SMALL_FOOTER_BYTES else parse_footer
            return parse(self.end.content, self.end.size, self._where)

    @property
    def _where(self) -> str:
        return f"{self._path} of table {self._table}" if self._table else self._path

    @contextmanager
    def _naming_file(self) -> Iterator[None]:
        try:
            yield
        except (CorruptFileError, UnsupportedFeatureError) as error:
            raise type(error)(error.message, **self._details) from error

    @property
    def _details(self) -> dict[str, str]:
        return {"path": self._path, "table": self._table} if self._table else {"path": self._path}

    def batches(self, groups: list[int], columns: list[str] | None, rows: int, threads: bool) -> Iterator[pa.RecordBatch]:
        """Yield the batches of some row groups.

        Args:
            groups: Numbers of the row groups.
            columns: Names of the columns; None for all.
            rows: Number of rows of a batch; the last of a row group may have fewer.
            threads: Whether to decode columns in parallel.

        Raises:
            SchemaError: A timestamp of 96 bits is outside of the years that microseconds reach.
        """
        batches = self._parquet.iter_batches(rows, row_groups=groups, columns=columns, use_threads=threads)
        old = self._old_timestamps if columns is None else self._old_timestamps & set(columns)
        if not old:
            yield from batches
            return
        # Arrow wraps such timestamps around without an error. In milliseconds all of them fit, which shows what was wrapped.
        if self._coarse is None:
            self._coarse = self._opened("ms")
        coarse = self._coarse.iter_batches(rows, row_groups=groups, columns=sorted(old), use_threads=threads)
        for batch in batches:
            other = next(coarse, None)
            if other is None or other.num_rows != batch.num_rows:
                raise CorruptFileError(f"columns of {self._where} have different numbers of rows: it is damaged", **self._details)
            for name, rough in zip(other.schema.names, other.columns, strict=True):
                if _is_wrapped(batch.column(name), rough):
                    raise SchemaError(
                        f"column {name!r} of {self._where} has timestamps (INT96) outside of the years that microseconds reach, 290308 BC "
                        "to 294246; replace them with the program that wrote the file",
                        column=name,
                        **self._details,
                    )
            yield batch


def _old_timestamps(metadata: pq.FileMetaData, schema: pa.Schema) -> frozenset[str]:
    """Return the names of top-level columns that hold timestamps of 96 bits."""
    if not any("timestamp[us]" in str(field.type) for field in schema):
        return frozenset()
    columns = (metadata.schema.column(number) for number in range(metadata.num_columns))
    paths = [column.path for column in columns if column.physical_type == "INT96"]
    return frozenset(name for name in schema.names if any(path == name or path.startswith(f"{name}.") for path in paths))


def _is_wrapped(fine: pa.Array[Any], coarse: pa.Array[Any]) -> bool:
    """Return whether a timestamp in microseconds, or in what is nested, is another moment in milliseconds."""
    if pa.types.is_timestamp(fine.type):
        if fine.type == coarse.type:
            return False
        numbers = (array.fill_null(0).to_numpy(zero_copy_only=False).view(np.int64) for array in (fine, coarse))
        micros, millis = numbers
        return bool(np.any(micros // 1000 != millis))
    if pa.types.is_struct(fine.type):
        return any(map(_is_wrapped, fine.flatten(), coarse.flatten()))
    if pa.types.is_map(fine.type):
        return _is_wrapped(fine.keys, coarse.keys) or _is_wrapped(fine.items, coarse.items)
    return is_list(fine.type) and _is_wrapped(fine.values, coarse.values)


class Handles:
    """A file that is open several times, as each thread needs it for itself."""

    def __init__(self, first: OpenFile, file: DataFile, storage: Storage) -> None:
        self._first = first
        self._idle = [first]
        self._file = file
        self._storage = storage
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def one(self) -> Iterator[OpenFile]:
        """Lend the file to one thread until the block ends."""
        try:
            opened = self._idle.pop()
        except IndexError:
            source = self._stack.enter_context(open_parquet(self._storage, self._file.path, self._file.encryption_key))
            opened = OpenFile(source, printable(self._file.path), end=self._first.end, pre_buffer=self._first.pre_buffer)
        try:
            yield opened
        finally:
            self._idle.append(opened)


def decoded(
    opened: OpenFile,
    groups: list[int],
    columns: list[str] | None,
    file: DataFile,
    storage: Storage,
    *,
    threads: bool,
    until: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of some row groups; if decoding fails, open the file again and continue from the same batch.

    Args:
        opened: The open file.
        groups: Numbers of the row groups.
        columns: Names of the columns; None for all.
        file: Which file it is.
        storage: How to open it again.
        threads: Whether to decode columns in parallel.
        until: Number of wanted rows; None for all. Batches are cut so that one ends there, and a caller that stops decodes no more.

    Raises:
        CorruptFileError: It cannot be decoded, twice.
        StorageError: The store does not answer.
    """
    fresh = [opened]
    batch_rows = BATCH_ROWS if until is None else _even(until)

    def decode() -> Iterator[pa.RecordBatch]:
        if fresh:
            yield from fresh.pop().batches(groups, columns, batch_rows, threads)
            return
        with open_parquet(storage, file.path, file.encryption_key) as source:
            yield from OpenFile(source, printable(file.path)).batches(groups, columns, batch_rows, threads)

    batches, count, is_reread = decode(), 0, False
    while True:
        try:
            batch = _next(batches, file, storage)
        except CorruptFileError:
            if is_reread:
                raise
            # A truncated response of an object store looks like a corrupt file, so that one failure proves nothing. The second reader
            # cuts its batches in the same way, and skips those that the caller already has.
            batches, is_reread = islice(decode(), count, None), True
            continue
        if batch is None:
            return
        yield batch
        count += 1


def _even(rows: int) -> int:
    """Return the batch size that splits the rows into the fewest batches of about the same size.

    >>> _even(1), _even(BATCH_ROWS), _even(BATCH_ROWS + 1)
    (1, 65536, 32769)
    """
    return -(-rows // -(-rows // BATCH_ROWS))


def _next(batches: Iterator[pa.RecordBatch], file: DataFile, storage: Storage) -> pa.RecordBatch | None:
    """Return the next batch; convert only errors of the decoder, not those of the code that uses a batch."""
    try:
        return next(batches, None)
    except Exception as error:
        # The context costs time, and there may be thousands of small files: it is entered only after an error.
        with storage.reporting("read", file.path):
            if not isinstance(error, pa.ArrowInvalid | OSError) or (isinstance(error, OSError) and error.errno is not None):
                # An error of the store. Errors of the decoder, such as an invalid page header, have no errno.
                raise
            where = printable(file.path)
            raise CorruptFileError(f"{where} cannot be decoded: {error}", path=where) from error


def row_group_runs(
    opened: OpenFile,
    read_schema: Schema,
    places: Sequence[int | None],
    predicate: Predicate | None,
    *,
    rows: tuple[int, int] | None = None,
    only: np.ndarray | None = None,
) -> Iterator[tuple[int, list[int]]]:
    """Yield runs of neighbouring row groups to read, each with the position in the file of its first row.

    Args:
        opened: The file.
        read_schema: Columns that the predicate is bound to.
        places: Index in the file of each of them, None for those that it lacks.
        predicate: Rows wanted; None for all.
        rows: When given, only row groups that begin in this range of positions.
        only: When given, only row groups that hold one of these positions, which ascend.
    """
    metadata = opened.metadata
    may_match = _pruning(opened, read_schema, places, predicate)
    position = start = 0
    run: list[int] = []
    for index in range(metadata.num_row_groups):
        count = metadata.row_group(index).num_rows
        wanted = (rows is None or rows[0] <= position < rows[1]) and (only is None or _holds(only, position, count))
        if wanted and may_match(index):
            if not run:
                start = position
            run.append(index)
        elif run:
            yield start, run
            run = []
        position += count
    if run:
        yield start, run


def _holds(positions: np.ndarray, start: int, count: int) -> bool:
    first, last = np.searchsorted(positions, [start, start + count])
    return bool(last > first)


def _pruning(opened: OpenFile, read_schema: Schema, places: Sequence[int | None], predicate: Predicate | None) -> Callable[[int], bool]:
    """Return a function that decides by the statistics of a row group whether it may have matching rows."""
    # The planner has compared the statistics of whole files. To parse a footer takes milliseconds, which only several row groups repay.
    is_worthwhile = predicate is not None and opened.metadata.num_row_groups > 1
    usable = _usable_columns(opened.schema, read_schema, places, predicate) if predicate is not None and is_worthwhile else []
    if predicate is None or not usable:
        return lambda _: True
    footer = opened.footer()
    leaves = [(foreign_leaf(footer.columns[place]), column) for place, column in usable if footer.columns[place].physical]

    def may_match(index: int) -> bool:
        group = footer.row_groups[index]
        return pruning.may_match(predicate, _statistics(group, leaves), group.rows)

    return may_match


def _usable_columns(
    file_schema: pa.Schema, read_schema: Schema, places: Sequence[int | None], predicate: Predicate
) -> list[tuple[int, Field]]:
    """Return index and column, for top-level columns that the predicate reads and the file holds in their present type."""
    wanted = pruning.columns(predicate)
    found: list[tuple[int, Field]] = []
    for column, place in zip(read_schema, places, strict=True):
        if column.id not in wanted or place is None or not column.is_leaf or column.type in NO_KEY_TYPES:
            continue
        # Statistics of another type would need the casts of the values, and those of floats leave NaN out: neither is used.
        if file_schema.field(place).type == to_arrow_type(column.type, physical=True) and column.type not in FLOATS:
            found.append((place, column))
    return found


def _statistics(group: RowGroup, columns: list[tuple[ForeignLeaf, Field]]) -> dict[int, ColumnStatistics]:
    result: dict[int, ColumnStatistics] = {}
    for leaf, column in columns:
        chunk = group.chunks[leaf.node.position]
        if chunk.null_count is None:
            continue
        bounds = trusted_bounds(chunk, leaf, column.type)
        result[column.id] = ColumnStatistics(
            column_id=column.id,
            column_size_bytes=0,
            value_count=group.rows - chunk.null_count,
            null_count=chunk.null_count,
            min_value=None if bounds is None else leaf_values.to_text(bounds[0], column.type),
            max_value=None if bounds is None else leaf_values.to_text(bounds[1], column.type),
        )
    return result


def reassemble(array: pa.Array[Any]) -> pa.StructArray:
    """Return variants as :data:`~ducklake_core.format.types.schema.VARIANT_STORAGE`; a null variant is NULL, as in DuckDB.

    Args:
        array: The file's group: ``metadata``, ``value``, and ``typed_value`` when it is shredded.

    Raises:
        CorruptFileError: The group or a value is not a variant.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not pa.types.is_struct(array.type) or array.type.get_field_index("metadata") < 0:
        raise CorruptFileError(f"a file has type {array.type} instead of a variant")
    parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    metadata = parts["metadata"].cast(pa.binary())
    if pc.any(pc.and_(metadata.is_null(), array.is_valid())).as_py():
        raise CorruptFileError("a file has a variant value without metadata")
    values = _binary(parts.get("value"), len(array))
    if "typed_value" in parts and parts["typed_value"].null_count < len(array):
        names = _Names(pc.fill_null(metadata, encoding.EMPTY_METADATA))
        values = _group(values, parts["typed_value"], names, names.of_rows)
    missing = pc.fill_null(pc.equal(values, encoding.NULL), True)
    return pa.StructArray.from_arrays(
        [_plain_metadata(metadata), pc.fill_null(values, encoding.NULL)],
        fields=[VARIANT_STORAGE.field(0), VARIANT_STORAGE.field(1)],
        mask=missing if pc.any(missing).as_py() else None,
    )


class _Names:
    """The distinct dictionaries of field names, and the index of each row's dictionary."""

    def __init__(self, metadata: ArrowArray) -> None:
        encoded = metadata.dictionary_encode()
        self.dictionaries: list[bytes] = encoded.dictionary.to_pylist()
        self.of_rows = encoded.indices.to_numpy(zero_copy_only=False)


def _binary(array: pa.Array[Any] | None, length: int) -> pa.Array[Any]:
    return pa.nulls(length, pa.binary()) if array is None else array.cast(pa.binary())


def _plain_metadata(metadata: pa.Array[Any]) -> pa.Array[Any]:
    encoded = metadata.dictionary_encode()
    plain = pa.array([encoding.plain_metadata(each) for each in encoded.dictionary.to_pylist()], pa.binary())
    return pc.fill_null(pc.take(plain, encoded.indices), encoding.EMPTY_METADATA)


def _group(rests: ArrowArray, typed: ArrowArray, names: _Names, dictionaries: np.ndarray) -> ArrowArray:
    """Return the encoded values of one shredded group, NULL where it holds neither ``value`` nor ``typed_value``."""
    if pa.types.is_struct(typed.type):
        return _objects(rests, typed, names, dictionaries)
    shredded = _arrays(typed, names, dictionaries) if is_list(typed.type) else _primitives(typed)
    if pc.any(pc.and_(rests.is_valid(), shredded.is_valid())).as_py():
        raise CorruptFileError("a file has a variant value that is both shredded and not shredded")
    return pc.coalesce(shredded, rests)


def _members(group: ArrowArray, names: _Names, dictionaries: np.ndarray) -> ArrowArray:
    """Return the encoded values of a group below ``typed_value``: a field of an object or an element of an array."""
    parts = dict(zip((field.name for field in group.type), group.flatten(), strict=True))
    values = _binary(parts.get("value"), len(group))
    return _group(values, parts["typed_value"], names, dictionaries) if "typed_value" in parts else values


def _objects(rests: ArrowArray, typed: ArrowArray, names: _Names, dictionaries: np.ndarray) -> ArrowArray:
    # An encoded object has its fields in the order of their names' bytes (Parquet variant encoding). Rows with the same fields and the
    # same dictionary have the same header except for the offsets, so that they are encoded together:
    #
    #   rows with only shredded fields  -> grouped by (present fields, dictionary) -> _alike_objects, column by column
    #   rows with further fields in "value", or too many groups                    -> _object, row by row in Python
    order = sorted(range(typed.type.num_fields), key=lambda place: typed.type.field(place).name.encode())
    children = typed.flatten()
    fields = [(typed.type.field(place).name, _members(children[place], names, dictionaries)) for place in order]
    there = typed.is_valid().to_numpy(zero_copy_only=False)
    in_part = there & rests.is_valid().to_numpy(zero_copy_only=False)
    made = _Scattered(len(typed))
    rows = np.flatnonzero(there & ~in_part)
    present = np.zeros((len(rows), len(fields)), bool)
    for place, (_, values) in enumerate(fields):
        present[:, place] = values.is_valid().to_numpy(zero_copy_only=False)[rows]
    alike = _alike(np.packbits(present, axis=1), dictionaries[rows])
    if len(alike) > _MANY_GROUPS and len(alike) * 8 > len(rows):
        in_part[rows] = True
        alike = []
    for chosen in alike:
        having = list(compress(fields, present[chosen[0]]))
        made.add(rows[chosen], _alike_objects(having, pa.array(rows[chosen]), names.dictionaries[dictionaries[rows[chosen[0]]]]))
    one_by_one = np.flatnonzero(in_part)
    if len(one_by_one):
        picked = pa.array(one_by_one)
        columns = [(name, values.take(picked).to_pylist()) for name, values in fields]
        others = rests.take(picked).to_pylist()
        found = [_object(n, others[n], columns, names.dictionaries[dictionaries[row]]) for n, row in enumerate(one_by_one.tolist())]
        made.add(one_by_one, pa.array(found, pa.binary()))
    return pc.coalesce(made.array(), rests)


def _alike(patterns: np.ndarray, dictionaries: np.ndarray) -> list[np.ndarray]:
    """Return positions of rows that have the same fields and the same dictionary."""
    keys = np.concatenate([patterns, np.ascontiguousarray(dictionaries, "<i8").view(np.uint8).reshape(-1, 8)], axis=1)
    _, groups = np.unique(keys, axis=0, return_inverse=True)
    return _places_of(groups.reshape(-1))


def _places_of(groups: np.ndarray) -> list[np.ndarray]:
    """Return positions by number of their group."""
    order = np.argsort(groups, kind="stable")
    edges = np.flatnonzero(np.diff(groups[order], prepend=-1, append=-1))
    return [order[low:high] for low, high in pairwise(edges)]


def _alike_objects(fields: Sequence[tuple[str, ArrowArray]], rows: ArrowArray, metadata: bytes) -> ArrowArray:
    """Return objects that all have the same fields, which are given in the order of their names."""
    ids = encoding.name_numbers([name for name, _ in fields], metadata)
    children = [values.take(rows) for _, values in fields]
    ends = np.zeros((len(rows), len(fields) + 1), np.int64)
    for place, values in enumerate(children):
        ends[:, place + 1] = ends[:, place] + pc.binary_length(values).to_numpy(zero_copy_only=False)
    widths = _widths(ends[:, -1])
    offsets = _Scattered(len(rows))
    for width in np.unique(widths).tolist():
        chosen = np.flatnonzero(widths == width)
        start = np.frombuffer(encoding.object_start(ids, width), np.uint8)
        table = _little(ends[chosen].reshape(-1), width).reshape(len(chosen), -1)
        offsets.add(chosen, _of_one_size(np.concatenate([np.broadcast_to(start, (len(chosen), len(start))), table], axis=1)))
    return _joined([offsets.array(), *children])


def _object(row: int, rest: bytes | None, fields: Sequence[tuple[str, list[bytes | None]]], metadata: bytes) -> bytes:
    found = {name: value for name, values in fields if (value := values[row]) is not None}
    if rest is not None:
        others = encoding.object_fields(rest, metadata)
        if others is None or any(name in others for name, _ in fields):
            raise CorruptFileError("a file has a variant value with a field that is both shredded and not shredded")
        found |= others
    return encoding.object_(found, metadata)


def _arrays(typed: ArrowArray, names: _Names, dictionaries: np.ndarray) -> ArrowArray:
    counts = pc.fill_null(pc.list_value_length(typed), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = _members(typed.flatten(), names, np.repeat(dictionaries, counts))
    # The shredding specification reads an element with neither value nor typed_value as a variant null.
    elements = pc.fill_null(elements, encoding.NULL)
    lists = np.concatenate([[0], np.cumsum(counts)])
    sizes = np.concatenate([[0], np.cumsum(pc.binary_length(elements).to_numpy(zero_copy_only=False).astype(np.int64))])
    content = pc.binary_join(pa.ListArray.from_arrays(pa.array(lists, pa.int32()), elements), b"")
    # One number per array for all that its header depends on: the width of the offsets (1 to 4), and 8 if the count takes four bytes.
    forms = _widths(sizes[lists[1:]] - sizes[lists[:-1]]) + 8 * (counts > 255)
    heads = _Scattered(len(typed))
    for form in np.unique(forms).tolist():
        chosen = np.flatnonzero(forms == form)
        many = counts[chosen] + 1
        owner = np.repeat(np.arange(len(chosen)), many)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(many) - many, many)
        first = lists[chosen][owner]
        offsets = _little(sizes[first + place] - sizes[first], form & 7)
        limits = np.concatenate([[0], np.cumsum(many * (form & 7))])
        starts = encoding.array_starts(counts[chosen].tolist(), form & 7)
        heads.add(chosen, _joined([pa.array(starts, pa.binary()), _from_bytes(offsets, limits)]))
    return pc.if_else(typed.is_valid(), _joined([heads.array(), content]), pa.scalar(None, pa.binary()))


class _Scattered:
    """An array of binaries that is made in parts; NULL where nothing was added."""

    def __init__(self, length: int) -> None:
        self._places = np.full(length, -1, np.int64)
        self._parts: list[ArrowArray] = []
        self._count = 0

    def add(self, places: np.ndarray, values: ArrowArray) -> None:
        """Add values at these indexes."""
        self._places[places] = self._count + np.arange(len(places))
        self._parts.append(values)
        self._count += len(places)

    def array(self) -> ArrowArray:
        """Return the whole array."""
        if not self._parts:
            return pa.nulls(len(self._places), pa.binary())
        return pa.concat_arrays(self._parts).take(pa.array(self._places, mask=self._places < 0))


def _widths(sizes: np.ndarray) -> np.ndarray:
    """Return the number of bytes that each offset up to a size takes."""
    return 1 + (sizes > 0xFF).astype(np.int64) + (sizes > 0xFFFF) + (sizes > 0xFFFFFF)


def _little(numbers: np.ndarray, width: int) -> np.ndarray:
    """Return the numbers as little-endian bytes of the given width."""
    return np.ascontiguousarray(numbers.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]).reshape(-1)


def _joined(parts: Sequence[ArrowArray]) -> ArrowArray:
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _from_bytes(data: np.ndarray, limits: np.ndarray) -> ArrowArray:
    return pa.Array.from_buffers(
        pa.binary(), len(limits) - 1, [None, pa.py_buffer(limits.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    )


def _of_one_size(rows: np.ndarray) -> ArrowArray:
    """Return one binary for each row of bytes."""
    return _from_bytes(rows.reshape(-1), np.arange(len(rows) + 1) * rows.shape[1])


def _primitives(typed: ArrowArray) -> ArrowArray:
    if isinstance(typed, pa.ExtensionArray):
        typed = typed.storage
    arrow = typed.type
    if arrow in _FIXED:
        kind, width = _FIXED[arrow]
        found = _fixed(kind, typed, width, width)
    elif pa.types.is_boolean(arrow):
        return pc.if_else(typed, pa.scalar(encoding.TRUE), pa.scalar(encoding.FALSE))
    elif pa.types.is_fixed_size_binary(arrow) and arrow.byte_width == 16:
        found = _fixed(encoding.UUID, typed, 16, 16)
    elif isinstance(arrow, pa.Decimal128Type | pa.Decimal32Type | pa.Decimal64Type):
        kind, width = _decimal_form(arrow.precision)
        # Arrow's 16 bytes are little-endian, so that the first 4 or 8 of them are the shorter forms of the variant encoding.
        found = _fixed(kind + bytes([arrow.scale]), typed.cast(pa.decimal128(arrow.precision, arrow.scale)), 16, width)
    elif pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        return _sized(typed.cast(pa.binary()), encoding.string_start)
    elif pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow):
        return _sized(typed.cast(pa.binary()), encoding.binary_start)
    else:
        raise CorruptFileError(f"a file has a variant that is shredded as {arrow}, but variants do not have this type")
    return pc.if_else(typed.is_valid(), found, pa.scalar(None, pa.binary())) if typed.null_count else found


def _fixed(start: bytes, typed: ArrowArray, width: int, kept: int) -> ArrowArray:
    held = np.frombuffer(typed.buffers()[1] or b"", np.uint8)[typed.offset * width :][: len(typed) * width].reshape(-1, width)
    starts = np.broadcast_to(np.frombuffer(start, np.uint8), (len(typed), len(start)))
    return _of_one_size(np.concatenate([starts, held[:, :kept]], axis=1))


def _sized(strings: ArrowArray, start: Any) -> ArrowArray:
    lengths = pc.binary_length(strings).dictionary_encode()
    starts = pa.array([start(length) for length in lengths.dictionary.to_pylist()], pa.binary())
    return _joined([starts.take(lengths.indices), strings])


def _decimal_form(precision: int) -> tuple[bytes, int]:
    if precision <= 9:
        return encoding.DECIMAL4, 4
    return (encoding.DECIMAL8, 8) if precision <= 18 else (encoding.DECIMAL16, 16)
