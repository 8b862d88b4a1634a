"""Translated queries as lazy DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.scan import Scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.staging.context import LakeContext
    from ducklake_core.view_sql.selection import Selection
    from ducklake_core.view_sql.translation import Translation


def selected_scan(lake: LakeContext, selected: Selection) -> Scan:
    """The scan that a query of columns of one table is; a column that is named twice is read once."""
    columns = list(dict.fromkeys(base for _, base in selected.columns))
    return Scan(table=selected.table, columns=columns, where=selected.where, reader=lake.reader, storage=lake.storage)


def selected_frame(lake: LakeContext, selected: Selection, session: SparkSession) -> DataFrame:
    """The rows of such a query."""
    frame = selected_scan(lake, selected).to_spark(session)
    return frame.select(*(frame["`" + base.replace("`", "``") + "`"].alias(name) for name, base in selected.columns))


def translated_frame(lake: LakeContext, translated: Translation, session: SparkSession) -> DataFrame:
    """The rows of a translated query.

    Raises:
        UnsupportedFeatureError: Spark does not run it.
        UsageError: The session does not follow ANSI SQL.
    """
    from ducklake_core.engines.spark.query import run_query, scanned

    frames = {}
    for one in translated.scans:
        # A query calculates with its columns, which a text in place of a number would not let it do.
        scan = Scan(table=one.table, columns=one.columns, where=one.where, reader=lake.reader, storage=lake.storage)
        frames[one.key] = scanned(scan.to_spark(session, exact=False), one.types, one.identifiers, translated.subject)
    return run_query(translated.sql, frames, translated.identifiers, translated.schema, session, translated.subject)
