"""Frames that assets return and take: one handler for each kind, chosen by type without importing what is not there yet."""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol, get_args, get_origin

from ducklake_core.errors import UsageError
from ducklake_dagster.handlers.arrow import ArrowHandler
from ducklake_dagster.handlers.spark import SparkHandler

if TYPE_CHECKING:
    from ducklake_core import Table
    from ducklake_dagster.slice_predicate import SlicePredicate


class FrameHandler(Protocol):
    """What the IO manager needs to know about a kind of frame."""

    name: str

    def accepts(self, frame_type: type) -> bool:
        """Whether frames of this type are handled here."""

    def keep_inside(self, frame: Any, predicate: SlicePredicate) -> Any:
        """The frame's rows that belong to the slice."""

    def refuse_outside(self, frame: Any, predicate: SlicePredicate, subject: str) -> Any:
        """The same frame, which fails at the latest while it is written if a row lies outside the slice."""

    def load(self, table: Table, columns: tuple[str, ...] | None, where: str | None, session: Callable[[], Any], /) -> Any:
        """Rows of a table; ``session`` gives the Spark session where one is needed."""

    def empty(self, session: Callable[[], Any], /) -> Any:
        """A frame without rows and columns, for a table that does not exist yet."""


HANDLERS: tuple[FrameHandler, ...] = (ArrowHandler(), SparkHandler())


def handler_for_frame(frame: object, subject: str) -> FrameHandler:
    """The handler of a frame that an asset returned.

    Raises:
        UsageError: None, or something that is no frame.
    """
    for handler in HANDLERS:
        if handler.accepts(type(frame)):
            return handler
    hint = "; annotate the asset '-> None' when it stores its data itself" if frame is None else ""
    raise UsageError(
        f"asset {subject} returned {type(frame).__module__}.{type(frame).__qualname__}, which cannot be written to DuckLake: "
        f"return a Spark DataFrame or a pyarrow Table{hint}",
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
            if isinstance(kind, type) and handler.accepts(kind):
                return handler
    raise UsageError(
        f"input {subject} cannot be loaded as {annotation}: annotate it as pyspark.sql.DataFrame or pyarrow.Table", input=subject
    )
