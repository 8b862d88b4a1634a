"""Frames that assets return and take: one handler for each kind, chosen by type without importing what is not there yet."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol, get_args, get_origin

from ducklake_core.errors import UsageError
from ducklake_dagster.handlers.arrow import ArrowHandler, LazyPolarsHandler, PandasHandler, PolarsHandler, StreamHandler
from ducklake_dagster.handlers.spark import SparkHandler

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_dagster.handlers.arrow import Rows
    from ducklake_dagster.slice_predicate import SlicePredicate


class FrameHandler(Protocol):
    """The interface of a kind of frame to the IO manager."""

    name: str

    def takes(self, frame_type: type) -> bool:
        """Whether frames of this type are written here."""

    def gives(self, frame_type: type) -> bool:
        """Whether frames of this type are loaded here."""

    def opened(self, frame: Any) -> Any:
        """The frame in the form that the other methods take."""

    def session_of(self, frame: Any) -> Any:
        """The Spark session that computes the frame, None for one of this process."""

    def is_replayable(self, frame: Any) -> bool:
        """Whether the frame can be written a second time."""

    def column_names(self, frame: Any) -> list[str]:
        """Names of the frame's columns."""

    def is_typed(self, frame: Any) -> bool:
        """Return whether the frame has columns, and each of them has a type of its own."""

    def is_surely_empty(self, frame: Any) -> bool:
        """Return whether it is known without reading that there are no rows."""

    def checked_empty(self, frame: Any) -> tuple[bool, Any]:
        """Return whether there are no rows, and a frame that still has them all."""

    def keep_inside(self, frame: Any, predicate: SlicePredicate) -> Any:
        """The frame's rows that belong to the slice."""

    def refuse_outside(self, frame: Any, predicate: SlicePredicate, subject: str) -> Any:
        """The same frame, which fails at the latest while it is written if a row lies outside the slice."""

    def load(self, rows: Rows, session: Callable[[], Any], /) -> Any:
        """Rows of a table or view, or changes of a table; ``session`` gives the Spark session where one is needed."""

    def empty(self, rows: pa.Table, session: Callable[[], Any], /) -> Any:
        """A frame with the columns of an Arrow table that has no rows, for a table that does not exist yet."""


# Spark's frames, and those of pandas and polars, give Arrow streams too: the last one takes whatever else does.
HANDLERS: tuple[FrameHandler, ...] = (
    SparkHandler(), PandasHandler(), PolarsHandler(), LazyPolarsHandler(), StreamHandler(), ArrowHandler(),
)  # fmt: skip


def handler_for_frame(frame: object, subject: str) -> FrameHandler:
    """The handler of a frame that an asset returned.

    Raises:
        UsageError: None, or something that is no frame.
    """
    for handler in HANDLERS:
        if handler.takes(type(frame)):
            return handler
    hint = "; annotate the asset '-> None' when it stores its data itself" if frame is None else ""
    raise UsageError(
        f"asset {subject} returned {type(frame).__module__}.{type(frame).__qualname__}, which cannot be written to DuckLake: "
        f"return a Spark, pandas or polars DataFrame, a pyarrow Table or RecordBatchReader{hint}",
        asset=subject,
    )


def handler_for_type(annotation: object, default: str, subject: str) -> FrameHandler:
    """The handler of an input's annotated type; without a telling annotation the one named ``default``.

    Raises:
        UsageError: A type that DuckLake data cannot be loaded as.
    """
    choices = [kind for kind in get_args(annotation) if kind is not NoneType] if get_origin(annotation) is not None else [annotation]
    if choices and all(kind in (Any, None, NoneType, object) for kind in choices):
        return next(handler for handler in HANDLERS if handler.name == default)
    for kind in choices:
        for handler in HANDLERS:
            if isinstance(kind, type) and handler.gives(kind):
                return handler
    raise UsageError(
        f"input {subject} cannot be loaded as {annotation}: annotate it as pyspark.sql.DataFrame, pandas.DataFrame, polars.DataFrame, "
        "polars.LazyFrame, pyarrow.Table or pyarrow.RecordBatchReader",
        input=subject,
    )
