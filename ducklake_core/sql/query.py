"""A query over a lake, as ``lake.sql`` returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ducklake_core.catalog.reading.views import ViewState
from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.checked_calls import checked
from ducklake_core.format.types.message_text import shown
from ducklake_core.format.types.names import DEFAULT_SCHEMA
from ducklake_core.format.values.time_zones import checked_zone, in_zone, is_named, session_zone
from ducklake_core.sql.names import all_then, lake_names
from ducklake_core.sql.spark_query import selected_frame, selected_scan, translated_frame
from ducklake_core.sql.time_travel import without_time_travel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.staging.context import LakeContext
    from ducklake_core.view_sql.selection import Selection

_SUBJECT = "the query"


@checked
class Query(Readable):
    """Rows of a query at one snapshot. Made by :meth:`DuckLake.sql`; every run computes them anew, at that snapshot.

    With a Spark session the session computes the rows. Without one, columns of one table under a condition are read as a scan, and
    whatever else by DuckDB in this process, where it is installed, over scans that read only the columns and files that it asks for.
    """

    def __init__(self, lake: LakeContext, sql: str, snapshot_id: int, session: SparkSession | None = None, zone: str | None = None) -> None:
        self._lake = lake
        self._sql = sql
        self._snapshot_id = snapshot_id
        self._session = session
        self._given_zone = zone
        self._zone = zone or session_zone()

    def __repr__(self) -> str:
        return f"<Query at snapshot {self._snapshot_id}: {shown(self._sql)}>"

    @property
    def snapshot_id(self) -> int:
        """The snapshot that tables without AT are read at."""
        return self._snapshot_id

    @property
    def text(self) -> str:
        """The query as it was given."""
        return self._sql

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream with a known schema; in their order where the query has ORDER BY.

        Raises:
            NotFoundError: A table that does not exist.
            UsageError: The engine refuses the query, or fails while it runs.
            UnsupportedFeatureError: The query needs an engine and there is none, or the engine lacks something.
        """
        if self._session is not None:
            return self.to_spark(self._session).toArrow().to_reader()
        with in_zone(self._zone):
            return self._rows_in_process()

    def _rows_in_process(self) -> pa.RecordBatchReader:
        selected = self._selection()
        if selected is not None:
            return renamed(selected_scan(self._lake, selected).to_reader(), selected)
        from ducklake_core.engines.duckdb.instance import require_duckdb
        from ducklake_core.sql.in_process import rows_in_process

        require_duckdb("the query is more than columns of one table: give a Spark session (spark)")
        with self._lake.reader() as reader:
            names = lake_names(self._lake, reader, self._snapshot_id)
        return rows_in_process(self._lake, names, self._sql)

    def to_spark(self, session: SparkSession | None = None) -> DataFrame:
        """The rows as a lazy DataFrame, classic or Connect; docs/views.md lists what is translated to Spark.

        Args:
            session: The session to read with, that of the query when None.

        Raises:
            UnsupportedFeatureError: Something in the query is not translated; the message names it.
            UsageError: There is no session, it does not follow ANSI SQL, or its time zone is not that of the query.
        """
        session = session or self._session
        if session is None:
            raise UsageError("to_spark needs a session: query.to_spark(session), or lake.sql(..., spark=session)")
        with in_zone(statement_zone(self._given_zone, session)):
            return self._on_spark(session)

    def _on_spark(self, session: SparkSession) -> DataFrame:
        from ducklake_core.view_sql.translation import translate

        selected = self._selection()
        if selected is not None:
            return selected_frame(self._lake, selected, session)
        text, then = without_time_travel(self._sql)
        with self._lake.reader() as reader:
            translated = translate(reader, self._as_view(text), _SUBJECT, all_then(reader, then))
        return translated_frame(self._lake, translated, session)

    def _selection(self) -> Selection | None:
        """The query as a scan of one table, None when it is more."""
        from ducklake_core.view_sql.selection import selection

        try:
            with self._lake.reader() as reader:
                return selection(reader, self._as_view(self._sql))
        except UnsupportedFeatureError:
            return None

    def _as_view(self, text: str) -> ViewState:
        return ViewState(
            id=-1,
            uuid="",
            name="query",
            schema_id=-1,
            schema_name=DEFAULT_SCHEMA,
            dialect="duckdb",
            sql=text.rstrip().rstrip(";"),
            column_aliases=(),
            comment=None,
            snapshot_id=self._snapshot_id,
        )


def statement_zone(timezone: str | None, spark: SparkSession | None) -> str:
    """Return the time zone of a statement: the one given, that of its Spark session, or the effective one.

    Raises:
        UsageError: There is no such zone, or the session has another.
    """
    chosen = checked_zone(timezone)
    if spark is None:
        if chosen is not None and not is_named(chosen):
            raise UsageError(
                f"timezone must be a name such as 'Europe/Berlin', not {chosen!r}: DuckDB has no offsets as time zones, but names such as "
                "'Etc/GMT-5' for +05:00",
                parameter="timezone",
            )
        return chosen or session_zone()
    from ducklake_core.engines.spark.session_settings import TIME_ZONE, zone_of

    own = zone_of(spark)
    if chosen is not None and chosen != own:
        raise UsageError(
            f"timezone is {chosen!r}, and the time zone of the Spark session is {own!r}: leave timezone out, or call "
            f"spark.conf.set({TIME_ZONE!r}, {chosen!r}) before",
            parameter="timezone",
        )
    return own


def renamed(rows: pa.RecordBatchReader, selected: Selection) -> pa.RecordBatchReader:
    """The rows of a scan under the names that a query gives its columns."""
    schema = pa.schema([rows.schema.field(base).with_name(name) for name, base in selected.columns])
    batches = (pa.RecordBatch.from_arrays([batch.column(base) for _, base in selected.columns], schema=schema) for batch in rows)
    return pa.RecordBatchReader.from_batches(schema, batches)
