"""Assets as Spark DataFrames, classic or Connect; the frame's own session does the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ducklake_dagster.handlers.arrow import outside_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ducklake_dagster.handlers.arrow import Rows
    from ducklake_dagster.slice_predicate import SlicePredicate


class SparkHandler:
    """pyspark.sql.DataFrame; takes pandas-on-Spark too."""

    name = "spark"

    def takes(self, frame_type: type) -> bool:
        """Whether the type is a frame of Spark."""
        return self.gives(frame_type) or _is_of(frame_type, "pyspark.pandas")

    def gives(self, frame_type: type) -> bool:
        """Whether the type is a Spark DataFrame, classic or Connect."""
        return _is_of(frame_type, "pyspark.sql")

    def opened(self, frame: Any) -> Any:
        """The frame itself."""
        return frame

    def session_of(self, frame: Any) -> Any:
        """The frame's session."""
        return _spark_frame(frame).sparkSession

    def is_replayable(self, _frame: Any) -> bool:
        """True: it is computed anew."""
        return True

    def column_names(self, frame: Any) -> list[str]:
        """Names of the frame's columns."""
        return list(_spark_frame(frame).columns)

    def is_typed(self, frame: Any) -> bool:
        """Return whether the frame has columns, and none of Spark's type void."""
        from pyspark.sql.types import NullType

        fields = _spark_frame(frame).schema.fields
        return bool(fields) and not any(isinstance(field.dataType, NullType) for field in fields)

    def is_surely_empty(self, _frame: Any) -> bool:
        """False: the frame would have to be computed."""
        return False

    def checked_empty(self, frame: Any) -> tuple[bool, Any]:
        """Return whether there are no rows, for which the frame is computed until there is one; and the frame."""
        return _spark_frame(frame).isEmpty(), frame

    def keep_inside(self, frame: Any, predicate: SlicePredicate) -> DataFrame:
        """Rows for which the predicate is true."""
        inside: DataFrame = _spark_frame(frame).filter(predicate.to_sql("spark"))
        return inside

    def refuse_outside(self, frame: Any, predicate: SlicePredicate, subject: str) -> DataFrame:
        """The frame with the check inside its plan, so that the rows are computed once only."""
        message = outside_text(subject, "a row").replace("\\", "\\\\").replace("'", "\\'")
        return _spark_frame(frame).filter(f"CASE WHEN {predicate.to_sql('spark')} THEN TRUE ELSE raise_error('{message}') END")

    def load(self, rows: Rows, session: Callable[[], Any]) -> DataFrame:
        """A lazy frame, bound to one snapshot."""
        return rows.to_spark(session())

    def empty(self, rows: pa.Table, session: Callable[[], Any]) -> DataFrame:
        """A frame without rows."""
        from pyspark.sql.types import StructType

        frame: DataFrame = session().createDataFrame(rows if rows.num_columns else [], *([] if rows.num_columns else [StructType([])]))
        return frame


def _is_of(frame_type: type, module: str) -> bool:
    return any(kind.__module__.startswith(module) and kind.__name__ == "DataFrame" for kind in frame_type.__mro__)


def _spark_frame(frame: Any) -> DataFrame:
    found: DataFrame = frame.to_spark() if _is_of(type(frame), "pyspark.pandas") else frame
    return found
