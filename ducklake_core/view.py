"""A view of a lake, at its newest state or at one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.catalog.tags import object_tags
from ducklake_core.catalog.views import ViewState
from ducklake_core.format.names import join_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_core.lake_listing import Listings
    from ducklake_core.scan.scan import Scan
    from ducklake_core.view_selection import Selection


class View:
    """A view. Made by :meth:`DuckLake.view` and :meth:`DuckLake.views`, at the snapshot that they were asked for."""

    def __init__(self, lake: Listings, state: ViewState) -> None:
        self._lake = lake
        self._state = state

    def __repr__(self) -> str:
        return f"<View {self.name} at snapshot {self.snapshot_id}>"

    @property
    def name(self) -> str:
        """``schema.view``, parts with dots or quotes double-quoted."""
        return join_name(self._state.schema_name, self._state.name)

    @property
    def state(self) -> ViewState:
        """Everything the catalog says about the view at :attr:`snapshot_id`."""
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
        """The view's comment, None for none."""
        return self._state.comment

    def tags(self) -> dict[str, str]:
        """All tags of the view by key, the comment included."""
        with self._lake.reader() as reader:
            return object_tags(reader, self._state.id, self.snapshot_id)

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table, in no particular order.

        Raises:
            UnsupportedFeatureError: The query is not of the kind that docs/views.md describes; the message says why.
        """
        import pyarrow as pa

        selected, scan = self._scan()
        rows = scan.to_arrow()
        return pa.table([rows.column(base) for _, base in selected.columns], names=[name for name, _ in selected.columns])

    def to_spark(self, session: SparkSession) -> DataFrame:
        """The rows as a lazy DataFrame of a session, classic or Connect.

        Raises:
            UnsupportedFeatureError: As for :meth:`to_arrow`.
        """
        selected, scan = self._scan()
        frame = scan.to_spark(session)
        return frame.select(*(frame["`" + base.replace("`", "``") + "`"].alias(name) for name, base in selected.columns))

    def _scan(self) -> tuple[Selection, Scan]:
        from ducklake_core.scan.scan import Scan
        from ducklake_core.view_selection import selection

        with self._lake.reader() as reader:
            selected = selection(reader, self._state)
        columns = list(dict.fromkeys(base for _, base in selected.columns))
        scan = Scan(table=selected.table, columns=columns, where=selected.where, reader=self._lake.reader, storage=self._lake.storage)
        return selected, scan
