"""A view of a lake, at its newest state or at one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ducklake_core.catalog.tags import object_tags
from ducklake_core.catalog.views import ViewState
from ducklake_core.format.names import join_name

if TYPE_CHECKING:
    from ducklake_core.lake_listing import Listings


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
