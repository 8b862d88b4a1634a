"""Convert the frames of outputs and inputs. Handlers are chosen by type, without importing packages that are not loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args, get_origin

from ducklake_core.errors import SchemaError, UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ducklake_core import ChangeFeed, Scan, View
    from ducklake_dagster.io.initial_rows import AllRowsAsInserts
    from ducklake_dagster.partitions.predicates import SlicePredicate

    Rows: TypeAlias = Scan | ChangeFeed | View | AllRowsAsInserts
    from pyspark.sql import DataFrame


Parts: TypeAlias = Literal["list", "dict"]
"""The form of an input with one frame for each partition: a list in the order of the keys, or a dict by key."""


class FrameHandler(Protocol):
    """The interface of a kind of frame to the IO manager."""

    name: str

    def takes(self, frame_type: type) -> bool:
        """Return whether the handler writes frames of this type."""

    def gives(self, frame_type: type) -> bool:
        """Return whether the handler loads frames of this type."""

    def opened(self, frame: Any) -> Any:
        """Return the frame in the form that the other methods take."""

    def session_of(self, frame: Any) -> Any:
        """Return the Spark session that computes the frame; None for a frame of this process."""

    def is_replayable(self, frame: Any) -> bool:
        """Return whether the frame can be written a second time."""

    def column_names(self, frame: Any) -> list[str]:
        """Return names of the frame's columns."""

    def is_typed(self, frame: Any) -> bool:
        """Return whether the frame has columns, and each of them has a type of its own."""

    def is_surely_empty(self, frame: Any) -> bool:
        """Return whether it is known without reading that there are no rows."""

    def checked_empty(self, frame: Any) -> tuple[bool, Any]:
        """Return whether there are no rows, and a frame that still has them all."""

    def keep_inside(self, frame: Any, predicate: SlicePredicate) -> Any:
        """Return the frame's rows that belong to the slice."""

    def reject_outside(self, frame: Any, predicate: SlicePredicate, subject: str) -> Any:
        """Return the same frame; if a row lies outside of the slice, this call or the write raises an error."""

    def load(self, rows: Rows, session: Callable[[], Any], /) -> Any:
        """Return rows of a table or view, or changes of a table; ``session`` returns the Spark session."""

    def empty(self, rows: pa.Table, session: Callable[[], Any], /) -> Any:
        """Return a frame with the columns of an Arrow table that has no rows, for a table that does not exist yet."""


def is_a(frame_type: type, package: str, *names: str) -> bool:
    """Return whether a type is a class of a package that need not be installed, or a subclass of it."""
    # By name: isinstance would import the package, and a frame of it exists only where it is imported already.
    return any(cls.__name__ in names and cls.__module__.partition(".")[0] == package for cls in frame_type.__mro__)


class ArrowHandler:
    """Write pyarrow Tables, RecordBatches and other objects with Arrow batches; load a pyarrow Table."""

    name = "arrow"

    def takes(self, frame_type: type) -> bool:
        """Return whether frames of this type export Arrow data."""
        return is_a(frame_type, "pyarrow", "Table", "RecordBatch") or any(
            hasattr(frame_type, method) for method in ("__arrow_c_stream__", "__arrow_c_array__")
        )

    def gives(self, frame_type: type) -> bool:
        """Return whether the type is pyarrow's Table."""
        return is_a(frame_type, "pyarrow", "Table")

    def opened(self, frame: Any) -> Any:
        """Return a pyarrow Table, or a RecordBatchReader, which is read once.

        Raises:
            UsageError: The frame has no columns, or has row labels that would be lost.
        """
        from ducklake_core import arrow_data

        return arrow_data(frame)

    def session_of(self, _frame: Any) -> None:
        """Return None: the frame is in this process."""

    def is_replayable(self, frame: pa.Table | pa.RecordBatchReader) -> bool:
        """Return whether it is in memory; a stream can be read only once."""
        import pyarrow as pa

        return isinstance(frame, pa.Table)

    def column_names(self, frame: pa.Table | pa.RecordBatchReader) -> list[str]:
        """Return names of the frame's columns."""
        return list(frame.schema.names)

    def is_typed(self, frame: pa.Table | pa.RecordBatchReader) -> bool:
        """Return whether the frame has columns, and none of Arrow's type null."""
        import pyarrow as pa

        return bool(len(frame.schema)) and not any(pa.types.is_null(column.type) for column in frame.schema)

    def is_surely_empty(self, frame: pa.Table | pa.RecordBatchReader) -> bool:
        """Return whether it is a table without rows."""
        import pyarrow as pa

        return isinstance(frame, pa.Table) and not frame.num_rows

    def checked_empty(self, frame: pa.Table | pa.RecordBatchReader) -> tuple[bool, pa.Table | pa.RecordBatchReader]:
        """Return whether there are no rows, and a frame that still has all of them. Reads the first rows of a stream."""
        import pyarrow as pa

        if isinstance(frame, pa.Table):
            return not frame.num_rows, frame
        first = next((batch for batch in frame if batch.num_rows), None)
        # A stream can be read only once, so the batch that was read is put before the others.
        batches = iter(()) if first is None else chain([first], frame)
        return first is None, pa.RecordBatchReader.from_batches(frame.schema, batches)

    def keep_inside(self, frame: pa.Table | pa.RecordBatchReader, predicate: SlicePredicate) -> pa.Table | pa.RecordBatchReader:
        """Return rows for which the predicate is true; of a stream batch by batch while it is written.

        Raises:
            SchemaError: A partition column holds values that cannot be compared with the partitions.
        """
        import pyarrow as pa

        if isinstance(frame, pa.RecordBatchReader):
            return pa.RecordBatchReader.from_batches(frame.schema, _batches_inside(frame, predicate))
        return _rows_inside(frame, predicate)

    def reject_outside(
        self, frame: pa.Table | pa.RecordBatchReader, predicate: SlicePredicate, subject: str
    ) -> pa.Table | pa.RecordBatchReader:
        """Return the same rows; a stream is checked while it is written.

        Raises:
            UsageError: A row lies outside the slice.
        """
        import pyarrow as pa

        if isinstance(frame, pa.RecordBatchReader):
            return pa.RecordBatchReader.from_batches(frame.schema, _checked_batches(frame, predicate, subject))
        _check_inside(frame, predicate, subject)
        return frame

    def load(self, rows: Rows, _session: Callable[[], Any]) -> Any:
        """Return all rows, in memory."""
        return rows.to_arrow()

    def empty(self, rows: pa.Table, _session: Callable[[], Any]) -> Any:
        """Return a table without rows."""
        return rows


class StreamHandler(ArrowHandler):
    """Load a pyarrow RecordBatchReader, with a few batches in memory at a time."""

    name = "stream"

    def takes(self, frame_type: type) -> bool:
        """Return whether it is pyarrow's reader."""
        return is_a(frame_type, "pyarrow", "RecordBatchReader")

    gives = takes

    def load(self, rows: Rows, _session: Callable[[], Any]) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return rows.to_reader()

    def empty(self, rows: pa.Table, _session: Callable[[], Any]) -> pa.RecordBatchReader:
        """Return a stream that ends at once."""
        return rows.to_reader()


class PandasHandler(ArrowHandler):
    """Write and load pandas.DataFrame."""

    name = "pandas"

    def takes(self, frame_type: type) -> bool:
        """Return whether it is a pandas frame."""
        return is_a(frame_type, "pandas", "DataFrame")

    gives = takes

    def load(self, rows: Rows, _session: Callable[[], Any]) -> pd.DataFrame:
        """Return all rows, in memory, with the types that pandas chooses."""
        return rows.to_pandas()

    def empty(self, rows: pa.Table, _session: Callable[[], Any]) -> pd.DataFrame:
        """Return a frame without rows."""
        return rows.to_pandas()


class PolarsHandler(ArrowHandler):
    """Write and load polars.DataFrame."""

    name = "polars"

    def takes(self, frame_type: type) -> bool:
        """Return whether it is a polars frame."""
        return is_a(frame_type, "polars", "DataFrame")

    gives = takes

    def load(self, rows: Rows, _session: Callable[[], Any]) -> pl.DataFrame | pl.LazyFrame:
        """Return all rows, in memory."""
        return rows.to_polars()

    def empty(self, rows: pa.Table, _session: Callable[[], Any]) -> pl.DataFrame | pl.LazyFrame:
        """Return a frame without rows."""
        import polars as pl

        return pl.DataFrame(rows)


class LazyPolarsHandler(PolarsHandler):
    """Write polars.LazyFrame in batches; load one that reads the columns and files that its query needs, at the input's snapshot."""

    name = "polars_lazy"

    def takes(self, frame_type: type) -> bool:
        """Return whether it is a lazy polars frame."""
        return is_a(frame_type, "polars", "LazyFrame")

    gives = takes

    def load(self, rows: Rows, _session: Callable[[], Any]) -> pl.LazyFrame:
        """Return a lazy frame."""
        return rows.to_polars_lazy()

    def empty(self, rows: pa.Table, session: Callable[[], Any]) -> pl.LazyFrame:
        """Return a lazy frame without rows."""
        return super().empty(rows, session).lazy()


def outside_text(subject: str, which: str) -> str:
    """Return the message for rows outside the run's partitions."""
    return (
        f"asset {subject} returned {which} outside the partitions of this run. Filter them, or set out_of_slice to 'filter' to leave "
        "them out"
    )


@contextmanager
def _comparable() -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise SchemaError(
            f"a partition column of the data cannot be compared with the partitions of this run: {error}. Correct the values of the column"
        ) from error


def _rows_inside(rows: pa.Table, predicate: SlicePredicate) -> pa.Table:
    with _comparable():
        return predicate.matching_rows(rows)


def _check_inside(rows: pa.Table, predicate: SlicePredicate, subject: str) -> None:
    with _comparable():
        outside = rows.num_rows - len(predicate.matching_places(rows))
    if outside:
        raise UsageError(outside_text(subject, f"{outside} of {rows.num_rows} rows"), asset=subject)


def _batches_inside(stream: pa.RecordBatchReader, predicate: SlicePredicate) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in stream:
        yield from _rows_inside(pa.Table.from_batches([batch]), predicate).to_batches()


def _checked_batches(stream: pa.RecordBatchReader, predicate: SlicePredicate, subject: str) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in stream:
        _check_inside(pa.Table.from_batches([batch]), predicate, subject)
        yield batch


class SparkHandler:
    """Write and load pyspark.sql.DataFrame; also write pandas-on-Spark frames."""

    name = "spark"

    def takes(self, frame_type: type) -> bool:
        """Return whether the type is a frame of Spark."""
        return self.gives(frame_type) or _is_of(frame_type, "pyspark.pandas")

    def gives(self, frame_type: type) -> bool:
        """Return whether the type is a Spark DataFrame, classic or Connect."""
        return _is_of(frame_type, "pyspark.sql")

    def opened(self, frame: Any) -> Any:
        """Return the frame itself."""
        return frame

    def session_of(self, frame: Any) -> Any:
        """Return the frame's session."""
        return _spark_frame(frame).sparkSession

    def is_replayable(self, _frame: Any) -> bool:
        """Return True: Spark computes the frame again."""
        return True

    def column_names(self, frame: Any) -> list[str]:
        """Return names of the frame's columns."""
        return list(_spark_frame(frame).columns)

    def is_typed(self, frame: Any) -> bool:
        """Return whether the frame has columns, and none of Spark's type void."""
        from pyspark.sql.types import NullType

        fields = _spark_frame(frame).schema.fields
        return bool(fields) and not any(isinstance(field.dataType, NullType) for field in fields)

    def is_surely_empty(self, _frame: Any) -> bool:
        """Return False: Spark would have to compute the frame."""
        return False

    def checked_empty(self, frame: Any) -> tuple[bool, Any]:
        """Return whether there are no rows, and the frame. Spark computes the frame until it has one row."""
        return _spark_frame(frame).isEmpty(), frame

    def keep_inside(self, frame: Any, predicate: SlicePredicate) -> DataFrame:
        """Return rows for which the predicate is true."""
        inside: DataFrame = _spark_frame(frame).filter(predicate.to_sql("spark"))
        return inside

    def reject_outside(self, frame: Any, predicate: SlicePredicate, subject: str) -> DataFrame:
        """Return the frame with the check inside its plan, so that Spark computes the rows only once."""
        from pyspark.sql import functions as F  # noqa: N812

        # otherwise() applies to NULL, too: a row without a partition value is outside of every partition.
        is_inside = F.expr(predicate.to_sql("spark"))
        return _spark_frame(frame).filter(F.when(is_inside, F.lit(True)).otherwise(F.raise_error(F.lit(outside_text(subject, "a row")))))

    def load(self, rows: Rows, session: Callable[[], Any]) -> DataFrame:
        """Return a lazy frame, bound to one snapshot."""
        return rows.to_spark(session())

    def empty(self, rows: pa.Table, session: Callable[[], Any]) -> DataFrame:
        """Return a frame without rows."""
        from pyspark.sql.types import StructType

        frame: DataFrame = session().createDataFrame(rows if rows.num_columns else [], *([] if rows.num_columns else [StructType([])]))
        return frame


def _is_of(frame_type: type, module: str) -> bool:
    return any(kind.__module__.startswith(module) and kind.__name__ == "DataFrame" for kind in frame_type.__mro__)


def _spark_frame(frame: Any) -> DataFrame:
    found: DataFrame = frame.to_spark() if _is_of(type(frame), "pyspark.pandas") else frame
    return found


# The order matters: frames of Spark, pandas and polars also export Arrow streams, and the last handler accepts everything that does.
HANDLERS: tuple[FrameHandler, ...] = (
    SparkHandler(), PandasHandler(), PolarsHandler(), LazyPolarsHandler(), StreamHandler(), ArrowHandler(),
)  # fmt: skip


def handler_for_frame(frame: object, subject: str) -> FrameHandler:
    """Return the handler of a frame that an asset returned.

    Raises:
        UsageError: The asset returned None, or a value that is not a frame.
    """
    for handler in HANDLERS:
        if handler.takes(type(frame)):
            return handler
    kind = type(frame)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    hint = ". If the asset stores its data itself, annotate it with '-> None'" if frame is None else ""
    raise UsageError(
        f"asset {subject} returned {name}, which cannot be written to DuckLake. "
        f"Return a Spark, pandas or polars DataFrame, a pyarrow Table or RecordBatchReader{hint}",
        asset=subject,
    )


def parts_of_type(annotation: object) -> tuple[Parts | None, object]:
    """Return whether an annotation is a list or a dict of frames, one per partition, and the type of a frame.

    >>> parts_of_type(dict[str, int]), parts_of_type(list[int]), parts_of_type(int)
    (('dict', <class 'int'>), ('list', <class 'int'>), (None, <class 'int'>))
    """
    arguments = get_args(annotation)
    if get_origin(annotation) in (dict, Mapping) and len(arguments) == 2 and arguments[0] is str:
        return "dict", arguments[1]
    if get_origin(annotation) in (list, Sequence) and len(arguments) == 1:
        return "list", arguments[0]
    return None, annotation


def handler_for_type(annotation: object, default: str, subject: str) -> FrameHandler:
    """Return the handler of an input's annotated type; the one named ``default`` when the annotation is not a type of frame.

    Raises:
        UsageError: Rows cannot be loaded as the annotated type.
    """
    choices = [kind for kind in get_args(annotation) if kind is not NoneType] if get_origin(annotation) is not None else [annotation]
    if choices and all(kind in (Any, None, NoneType, object) for kind in choices):
        return next(handler for handler in HANDLERS if handler.name == default)
    for kind in choices:
        for handler in HANDLERS:
            if isinstance(kind, type) and handler.gives(kind):
                return handler
    shown = getattr(annotation, "__qualname__", annotation)
    raise UsageError(
        f"input {subject} cannot be loaded as {shown}. Annotate it as pyspark.sql.DataFrame, pandas.DataFrame, polars.DataFrame, "
        "polars.LazyFrame, pyarrow.Table or pyarrow.RecordBatchReader, or as a dict[str, ...] or list[...] of them for one frame per "
        "partition",
        input=subject,
    )
