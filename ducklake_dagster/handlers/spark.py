"""Assets as Spark DataFrames, classic or Connect; the frame's own session does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ducklake_dagster.handlers.arrow import outside_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ducklake_core import Table
    from ducklake_dagster.slice_predicate import SlicePredicate


class SparkHandler:
    """pyspark.sql.DataFrame."""

    name = "spark"

    def accepts(self, frame_type: type) -> bool:
        """Whether the type is a Spark DataFrame, classic or Connect."""
        return any(kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in frame_type.__mro__)

    def keep_inside(self, frame: DataFrame, predicate: SlicePredicate) -> DataFrame:
        """Rows for which the predicate is true."""
        inside: DataFrame = frame.filter(predicate.to_sql("spark"))
        return inside

    def refuse_outside(self, frame: DataFrame, predicate: SlicePredicate, subject: str) -> DataFrame:
        """The frame with the check inside its plan, so that the rows are computed once only."""
        message = outside_text(subject, "a row").replace("\\", "\\\\").replace("'", "\\'")
        return frame.filter(f"CASE WHEN {predicate.to_sql('spark')} THEN TRUE ELSE raise_error('{message}') END")

    def load(self, table: Table, columns: tuple[str, ...] | None, where: str | None, session: Callable[[], Any]) -> DataFrame:
        """A lazy frame, bound to one snapshot."""
        return table.scan(columns, where).to_spark(session())

    def empty(self, session: Callable[[], Any]) -> DataFrame:
        """A frame without columns."""
        from pyspark.sql.types import StructType

        frame: DataFrame = session().createDataFrame([], StructType([]))
        return frame
