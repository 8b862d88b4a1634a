"""The settings that all writers of one write share, and the fitting of rows to the table's columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.duckdb_instance import shared_connection
from ducklake_core.errors import DuckLakeError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.expressions import pruning
from ducklake_core.format.expressions.predicates import Predicate, Scalar
from ducklake_core.format.expressions.sql import to_sql
from ducklake_core.format.files import paths
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.flushing import FlushRule
from ducklake_core.format.layout.sorting import SortOrder
from ducklake_core.format.options import Options
from ducklake_core.format.types.data_types import JSON, Field
from ducklake_core.format.types.names import folded
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import shown
from ducklake_core.format.values.arrow_cast import cast_to, check_text, check_values, has_part, is_text
from ducklake_core.format.values.value_text import is_json
from ducklake_core.format.versions import DEFAULT_VERSION, FormatVersion
from ducklake_core.storage.delete_files import DeletionVectors
from ducklake_core.storage.file_statistics import leaf_arrays
from ducklake_core.storage.filesystems import Storage

STATE_VERSION = 8

Data = TypeVar("Data", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteState:
    """One write into one table. It travels to executors and contains nothing of the catalog.

    Attributes:
        table: ``schema.table`` for messages.
        directory: Full path of the table's directory, with a trailing slash.
        schema: The table's columns, with final ids, as they will be once the write is committed.
        partition_spec: Keys to split files by, None for none.
        write_id: Mark in the names of all files of this write (``format.paths.write_id``).
        storage: Where the directory is.
        options: The table's options: encoding, target size, hive directories.
        defaults: Computed defaults of columns that the rows lack, by column id.
        row_constraint: Predicate that every row must satisfy, or the write fails; None for none.
        encrypted: Whether each file is encrypted, under a key that its writer makes.
        sort: The sort order of the rows of each file.
        flush: Rule that inlined rows must satisfy so that DuckDB can flush them; None for no rule.
        distribute: Whether rows of one partition are brought together first (Spark), so that each partition gets few files.
        format_version: Version of the lake.
        version: Version of this value's form; an executor with another version of the library rejects it.
    """

    table: str
    directory: str
    schema: Schema
    partition_spec: PartitionSpec | None = None
    write_id: str = field(default_factory=paths.write_id)
    storage: Storage = field(default_factory=Storage)
    options: Options = field(default_factory=Options)
    defaults: tuple[tuple[int, Scalar], ...] = ()
    row_constraint: Predicate | None = None
    encrypted: bool = False
    sort: tuple[SortOrder, ...] = ()
    flush: FlushRule | None = None
    distribute: bool = True
    format_version: FormatVersion = DEFAULT_VERSION
    version: int = STATE_VERSION

    def check_version(self) -> None:
        """Reject a value made by another version of the library.

        Raises:
            UnsupportedFeatureError: The driver and this process do not have the same version.
        """
        if self.version != STATE_VERSION:
            raise UnsupportedFeatureError(
                f"the write of {self.table} was planned by another version of ducklake-dagster (write state {self.version}, here "
                f"{STATE_VERSION}). Install the same version on the driver and the executors"
            )

    @property
    def vectors(self) -> DeletionVectors:
        """Return whether deletes are written as deletion vectors."""
        return DeletionVectors.by(self.options, self.format_version, encrypted=self.encrypted)

    @property
    def has_directories(self) -> bool:
        """Return whether files of partitions lie in directories that name their values; an encrypted lake does not reveal them."""
        return self.partition_spec is not None and self.options.hive_file_pattern and not self.encrypted

    def file_path(self, values: tuple[str | None, ...]) -> str:
        """Return path of a new file below the table's directory, for rows with these partition values."""
        name = paths.new_file_name(self.write_id)
        if self.partition_spec is None or not self.has_directories:
            return name
        return paths.partition_directory(self.partition_spec, values) + name

    def without_columns(self) -> SchemaError:
        """Return the error for rows that have no columns: stored as rows of NULLs they would hide a mistake in the frame."""
        return SchemaError(
            f"cannot write to {self.table}: the data has rows but no columns. Pass at least one column of the table", table=self.table
        )


def fitted(data: Data, state: WriteState, *, physical: bool = True, first_row: int | None = 0) -> Data:
    """Return the rows in the table's columns; see :func:`~ducklake_core.format.values.arrow_cast.cast_to`.

    Args:
        data: The rows.
        state: The write.
        physical: As for ``cast_to``.
        first_row: Number of the first row within the whole write, 0 by default; None where the caller does not know the rows' order.

    Raises:
        SchemaError: The rows do not fit the table; the message names the first row that does not, counted from 0.
    """
    _check_text(data, state)
    try:
        return _checked(data, state, physical=physical)
    except DuckLakeError as error:
        row = None if first_row is None else _first_rejected(data, state, physical=physical)
        where = ""
        if row is not None and first_row is not None:
            error.details["row"] = first_row + row
            where = f"row {first_row + row}: "
        error.message = f"cannot write to {state.table}: {where}{error.message}"
        raise


def _checked(data: Data, state: WriteState, *, physical: bool) -> Data:
    rows = cast_to(data, state.schema, physical=physical, exact=True)
    for column, values in zip(state.schema, rows.columns, strict=True):
        check_values(values, column.name)
        check_json(values, column)
    return rows


def check_json(values: Any, column: Field) -> None:
    """Check the strings of a JSON column, or of JSON inside a column, because DuckDB reads no file with a string that is not JSON.

    DuckDB validates them where it is installed. Otherwise Python does, whose JSON has no trailing commas.

    Raises:
        SchemaError: A string is not JSON.
    """
    if not any(node.type == JSON for node in column.walk()):
        return
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        for leaf, found in leaf_arrays(chunk, column):
            if leaf.type != JSON:
                continue
            strings = found.storage if isinstance(found, pa.ExtensionArray) else found
            invalid = _first_invalid_json(pc.unique(strings).drop_null())
            if invalid is not None:
                raise SchemaError(f"column {column.name!r}: {shown(invalid)} is not JSON", column=column.name)


def _first_invalid_json(strings: Any) -> str | None:
    if find_spec("duckdb") is not None and len(strings):
        import duckdb

        with shared_connection("UTC") as connection:
            connection.register("__ducklake_json", pa.table({"c": strings}))
            try:
                row = connection.execute("SELECT c FROM __ducklake_json WHERE NOT json_valid(c) LIMIT 1").fetchone()
            except duckdb.CatalogException:
                # This build of DuckDB lacks the json extension.
                pass
            else:
                return None if row is None else str(row[0])
    return next((text for text in strings.to_pylist() if not is_json(text)), None)


def with_computed_defaults(data: Data, state: WriteState) -> Data:
    """Return the rows with the columns that they lack and whose defaults are computed.

    Raises:
        SchemaError: A default does not fit its column.
    """
    from ducklake_core.engines.arrow.evaluate import assigned

    given = {folded(name) for name in data.schema.names}
    by_id = {column.id: column for column in state.schema}
    rows = pa.RecordBatch.from_arrays([pa.nulls(data.num_rows)], names=["rows"])
    for column_id, scalar in state.defaults:
        column = by_id.get(column_id)
        if column is not None and folded(column.name) not in given:
            data = data.append_column(column.name, assigned(scalar, column, rows))
    return data


def _first_rejected(data: pa.RecordBatch | pa.Table, state: WriteState, *, physical: bool) -> int | None:
    """Return the index of the first row that does not fit; None when the columns do not fit."""
    # Errors of Arrow do not name the row. A binary search over slices finds it in about log2(rows) more casts, only after a failure.
    low, high = 0, data.num_rows
    if not _fit(data.slice(0, 0), state, physical=physical):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _fit(data.slice(low, middle - low), state, physical=physical):
            low = middle
        else:
            high = middle
    return low


def _fit(data: pa.RecordBatch | pa.Table, state: WriteState, *, physical: bool) -> bool:
    try:
        _checked(data, state, physical=physical)
    except DuckLakeError:
        return False
    return True


def _check_text(data: pa.RecordBatch | pa.Table, state: WriteState) -> None:
    """Reject strings that are not UTF-8: Arrow accepts them, but no reader opens a file with one."""
    for source, column in zip(data.schema, data.columns, strict=True):
        if not has_part(source.type, is_text) or _is_ascii(column):
            continue
        try:
            check_text(column)
        except pa.ArrowInvalid as error:
            reason = str(error).partition("\n")[0]
            raise SchemaError(
                f"cannot write to {state.table}: column {source.name!r} has values that are not strings: {reason}. Convert them to strings",
                table=state.table,
            ) from error


def _is_ascii(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> bool:
    """Return whether all strings are ASCII with valid offsets, in a fifth of the time of full validation; False may mean either.

    >>> _is_ascii(pa.array(["a", None, "b"])), _is_ascii(pa.array(["a", "é"]).slice(0, 1)), _is_ascii(pa.array(["é"]))
    (True, True, False)
    """
    return all(map(_has_seven_bits, column.chunks if isinstance(column, pa.ChunkedArray) else [column]))


def _has_seven_bits(array: pa.Array[Any]) -> bool:
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return False
    # Checks the buffers of the array directly: the offsets ascend and stay inside of the data, and no byte has its highest bit set.
    _, ends, held = array.buffers()
    if not len(array) or ends is None or held is None:
        return not len(array)
    width = np.dtype(np.int32 if pa.types.is_string(array.type) else np.int64)
    if ends.size < (array.offset + len(array) + 1) * width.itemsize:
        return False
    offsets = np.frombuffer(ends, width, len(array) + 1, array.offset * width.itemsize)
    first, last = int(offsets[0]), int(offsets[-1])
    if first < 0 or last > held.size or not (offsets[1:] >= offsets[:-1]).all():
        return False
    return bool(np.frombuffer(held, np.uint8)[first:last].max(initial=0) < 0x80)


def check_row_constraint(data: pa.RecordBatch | pa.Table, state: WriteState, row_constraint: Predicate) -> None:
    """Reject rows that do not satisfy the constraint of a write.

    Args:
        data: Fitted rows.
        state: The write.
        row_constraint: Predicate that every row must satisfy.

    Raises:
        UsageError: A row does not satisfy it.
    """
    from ducklake_core.engines.arrow.evaluate import evaluate

    kept = pc.fill_null(evaluate(row_constraint, cast_to(data, state.schema, physical=False, exact=True)), False)
    if pc.all(kept).as_py() is not False:
        return
    row = data.filter(pc.invert(kept)).slice(0, 1)
    by_id = state.schema.by_id()
    named = pruning.columns(row_constraint)
    columns = [c.name for c in state.schema if named & {node.id for node in c.walk()}] or [by_id[i].name for i in named]
    values = ", ".join(f"{name} = {shown(row.column(name)[0].as_py())}" for name in columns)
    raise UsageError(
        f"cannot write to {state.table}: the row with {values} does not satisfy the condition of the overwrite, "
        f"{to_sql(row_constraint, 'duckdb')}. Filter the data, or change the condition",
        table=state.table,
        row_outside=values,
    )
