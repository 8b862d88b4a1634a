"""Read a view of a lake at one snapshot: the class :class:`View`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.definitions import ViewState
from ducklake_core.catalog.reading.reader import CatalogReader, object_tags
from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format import arguments
from ducklake_core.format.types.names import join_name
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.text import visible

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.staging.context import LakeContext


@dataclass(frozen=True, slots=True, kw_only=True)
@arguments.none_means_default
class ViewDefinition:
    """A view with everything that its query states; part of :class:`LakeDefinitions`.

    Attributes:
        view: The view.
        references: :attr:`View.references`; empty if the query cannot be analysed.
        schema: :attr:`View.schema`; None if the query cannot be analysed.
        problem: Why the query cannot be analysed; None if it can.
    """

    view: View
    references: tuple[str, ...] = ()
    schema: Schema | None = None
    problem: str | None = None


class View(Readable):
    """A view at one snapshot, returned by :meth:`DuckLake.view` and :meth:`DuckLake.views`."""

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
        """Id of the snapshot that reads use."""
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
        """Names of the first columns, if the view renames columns of its query; otherwise empty."""
        return self._state.column_aliases

    @property
    def comment(self) -> str | None:
        """The view's comment, or None."""
        return self._state.comment

    @property
    def column_comments(self) -> dict[str, str]:
        """Comments of columns, by the names in the query (before :attr:`column_aliases`). Always empty on lakes of version 1.0."""
        return dict(self._state.column_comments)

    @property
    def references(self) -> tuple[str, ...]:
        """Sorted names (``schema.name``) of the tables and views that the query reads.

        Raises:
            UnsupportedFeatureError: The query cannot be parsed, or reads something that is not a table or view of the lake.
        """
        from ducklake_core.view_sql.translation import referenced

        with self._lake.reader() as reader:
            return referenced(reader, self._state)

    @property
    def schema(self) -> Schema:
        """The columns with the types that DuckDB gives them. Reads no row and needs no engine.

        Raises:
            UnsupportedFeatureError: A part of the query is not supported; the message names it.
        """
        from ducklake_core.view_sql.translation import view_schema

        with self._lake.reader() as reader:
            return view_schema(reader, self._state)

    def definition(self, reader: CatalogReader) -> ViewDefinition:
        """Return the view with its references and columns.

        Args:
            reader: Reader of the catalog.
        """
        from ducklake_core.view_sql.translation import referenced, view_schema

        references: tuple[str, ...] = ()
        schema, problems = None, []
        try:
            references = referenced(reader, self._state)
        except UnsupportedFeatureError as error:
            problems.append(error.message)
        try:
            schema = view_schema(reader, self._state)
        except UnsupportedFeatureError as error:
            problems.append(error.message)
        return ViewDefinition(view=self, references=references, schema=schema, problem=problems[0] if problems else None)

    def tags(self) -> dict[str, str]:
        """Return all tags of the view by key, the comment included."""
        with self._lake.reader() as reader:
            return object_tags(reader, self._state.id, self.snapshot_id)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a ``RecordBatchReader``, computed in this process.

        A query that selects columns of one table, with an optional condition, runs as a scan. Other queries run in DuckDB, which must
        be installed.

        Raises:
            UnsupportedFeatureError: DuckDB is required and not installed. :meth:`to_spark` works without it.
            UsageError: DuckDB rejects the query, or the query fails.
        """
        from ducklake_core.sql.query import renamed, selected_scan
        from ducklake_core.view_sql.selection import selection

        try:
            with self._lake.reader() as reader:
                selected = selection(reader, self._state)
        except UnsupportedFeatureError as problem:
            return self._computed(problem)
        return renamed(selected_scan(self._lake, selected).to_reader(), selected)

    def _computed(self, problem: UnsupportedFeatureError) -> pa.RecordBatchReader:
        """Return the rows as computed by DuckDB."""
        from ducklake_core.engines.duckdb.query import name_in_instance
        from ducklake_core.engines.duckdb_instance import require_duckdb
        from ducklake_core.sql.names import lake_names
        from ducklake_core.sql.query import rows_in_process

        require_duckdb(f"{problem.message}; view.to_spark(session) reads more")
        with self._lake.reader() as reader:
            names = lake_names(self._lake, reader, self.snapshot_id)
        name = name_in_instance(self._state.schema_name, self._state.name)
        return rows_in_process(self._lake, names, f"FROM {name}")

    def to_spark(self, session: SparkSession) -> DataFrame:
        """Return the rows as a lazy Spark DataFrame, classic or Connect.

        The query runs as Spark SQL over scans of its tables at :attr:`snapshot_id`, with the columns, types and rows of DuckDB.
        docs/reference/views.md lists what is translated.

        Args:
            session: Spark session.

        Raises:
            UnsupportedFeatureError: A part of the query is not translated; the message names it.
            UsageError: The session does not use ANSI SQL.
        """
        from ducklake_core.sql.query import selected_frame, translated_frame
        from ducklake_core.view_sql.selection import selection
        from ducklake_core.view_sql.translation import translate

        with self._lake.reader() as reader:
            try:
                selected = selection(reader, self._state)
            except UnsupportedFeatureError:
                translated = translate(reader, self._state)
            else:
                return selected_frame(self._lake, selected, session)
        return translated_frame(self._lake, translated, session)
