"""The rows of a Spark DataFrame in this process, when they are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.engines.spark.write import for_python

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def few_rows(df: DataFrame, most: int, most_bytes: int) -> pa.Table | None:
    """All rows of a frame, None when there are more than ``most``, or more bytes than ``most_bytes``.

    No more than one row beyond ``most`` leaves the executors. A frame with more rows is computed once more to be written.
    """
    if not df.columns:
        return None
    rows = for_python(df).limit(most + 1).toArrow().rename_columns(df.columns)
    return rows if rows.num_rows <= most and rows.nbytes <= most_bytes else None
