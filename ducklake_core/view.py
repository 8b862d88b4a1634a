"""A view of a lake, at its newest state or at one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.tags import object_tags
from ducklake_core.catalog.reading.views import ViewState
from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.checked_calls import checked
from ducklake_core.format.state import TableState
from ducklake_core.format.types.message_text import visible
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.scan import Scan
    from ducklake_core.staging.context import LakeContext
    from ducklake_core.view_sql.selection import Selection
    from ducklake_core.view_sql.translation import Translation


@checked
class View(Readable):
    """A view. Made by :meth:`DuckLake.view` and :meth:`DuckLake.views`, at the snapshot that they were asked for."""

    def __init__(self, lake: LakeContext, state: ViewState) -> None:
        self._lake = lake
        self._state = state

    def __repr__(self) -> str:
        return f"<View {visible(self.name)} at snapshot {self.snapshot_id}>"

    @property
    def name(self) -> str:
        """``schema.view``, parts with dots or quotes double-quoted."""
        return join_name(self._state.schema_name, self._state.name)

    @property
    def state(self) -> ViewState:
        """The definition of the view at :attr:`snapshot_id`."""
        return self._state

    @property
    def snapshot_id(self) -> int:
        """The snapshot that this object is of."""
        return self._state.snapshot_id

    @property
    def sql(self) -> str:
        """The query as stored; ``{DUCKLAKE_CATALOG}`` stands for the name under which a reader has attached the lake."""
        return self._state.sql

    @property
    def dialect(self) -> str:
        """Language of :attr:`sql`; DuckDB writes ``duckdb``."""
        return self._state.dialect

    @property
    def column_aliases(self) -> tuple[str, ...]:
        """Names that the view gives to its first columns, instead of those of its query; empty for none."""
        return self._state.column_aliases

    @property
    def comment(self) -> str | None:
        """The view's comment, or None."""
        return self._state.comment

    @property
    def column_comments(self) -> dict[str, str]:
        """Comments of its columns, by the names that the query gives them (before :attr:`column_aliases`). None on lakes of 1.0."""
        return dict(self._state.column_comments)

    @property
    def references(self) -> tuple[str, ...]:
        """Names of the tables and views that its query names, ``schema.name``, each once, sorted.

        Raises:
            UnsupportedFeatureError: The query cannot be parsed, or names what is no table or view of the lake.
        """
        from ducklake_core.view_sql.references import referenced

        with self._lake.reader() as reader:
            return referenced(reader, self._state)

    @property
    def schema(self) -> Schema:
        """Its columns, with the types that DuckDB gives them; no row is read, and no engine is needed.

        Raises:
            UnsupportedFeatureError: Something in the query is not understood; the message names it.
        """
        from ducklake_core.view_sql.references import view_schema

        with self._lake.reader() as reader:
            return view_schema(reader, self._state)

    def tags(self) -> dict[str, str]:
        """All tags of the view by key, the comment included."""
        with self._lake.reader() as reader:
            return object_tags(reader, self._state.id, self.snapshot_id)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream with a known schema, in no particular order, computed in this process.

        Raises:
            UnsupportedFeatureError: The query is more than columns of one table under a condition; :meth:`to_spark` reads more.
        """
        import pyarrow as pa

        from ducklake_core.view_sql.selection import selection

        try:
            with self._lake.reader() as reader:
                selected = selection(reader, self._state)
        except UnsupportedFeatureError as problem:
            message = f"{problem.message} without an engine; view.to_spark(session) reads more"
            raise UnsupportedFeatureError(message, **problem.details) from problem
        rows = self._selected(selected).to_reader()
        schema = pa.schema([rows.schema.field(base).with_name(name) for name, base in selected.columns])
        batches = (pa.RecordBatch.from_arrays([batch.column(base) for _, base in selected.columns], schema=schema) for batch in rows)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_spark(self, session: SparkSession) -> DataFrame:
        """The rows as a lazy DataFrame of a session, classic or Connect.

        The query runs as Spark SQL over scans of its tables at :attr:`snapshot_id`, with the columns, types and rows that
        DuckDB gives it; docs/views.md lists what is translated.

        Raises:
            UnsupportedFeatureError: Something in the query is not translated; the message names it.
            UsageError: The session does not follow ANSI SQL.
        """
        from ducklake_core.view_sql.selection import selection
        from ducklake_core.view_sql.translation import translate

        with self._lake.reader() as reader:
            try:
                selected = selection(reader, self._state)
            except UnsupportedFeatureError:
                translated = translate(reader, self._state)
            else:
                frame = self._selected(selected).to_spark(session)
                return frame.select(*(frame["`" + base.replace("`", "``") + "`"].alias(name) for name, base in selected.columns))
        return self._translated(translated, session)

    def _selected(self, selected: Selection) -> Scan:
        columns = list(dict.fromkeys(base for _, base in selected.columns))
        return self._scan(selected.table, columns, selected.where)

    def _scan(self, table: TableState, columns: Sequence[str], where: str | None) -> Scan:
        from ducklake_core.scan import Scan

        return Scan(table=table, columns=columns, where=where, reader=self._lake.reader, storage=self._lake.storage)

    def _translated(self, translated: Translation, session: SparkSession) -> DataFrame:
        from ducklake_core.engines.spark.query import run_query, scanned

        frames = {}
        for scan in translated.scans:
            # A query calculates with its columns, which a text in place of a number would not let it do.
            frame = self._scan(scan.table, scan.columns, scan.where).to_spark(session, exact=False)
            frames[scan.key] = scanned(frame, scan.types, scan.identifiers, self.name)
        return run_query(translated.sql, frames, translated.identifiers, translated.schema, session, self.name)
