"""The verbs of a transaction that tag things: comments, and other texts by key."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.table_rows import COMMENT
from ducklake_core.commit import alterations
from ducklake_core.errors import DuckLakeError, NotFoundError, UnsupportedFeatureError
from ducklake_core.format.evolution.schema_edits import column_path
from ducklake_core.format.types.names import dotted, folded
from ducklake_core.staging.verbs.base import OpenTransaction

if TYPE_CHECKING:
    from ducklake_core.format.evolution.schema_edits import ColumnName
    from ducklake_core.staging.staged_table import StagedView


class TagVerbs(OpenTransaction):
    """Comments and tags staged by a :class:`Transaction`."""

    def set_comment(self, name: str, text: str | None, *, column: ColumnName | None = None) -> None:
        """Comment on a table, a view or a column of either; None takes the comment away.

        Raises:
            NotFoundError: No such table, view or column.
            UnsupportedFeatureError: A column of a view, and the lake is of version 1.0, which has no place for it.
        """
        if not self._is_done("comment", name, text, column):
            self._tag(name, COMMENT, text, column)

    def set_tag(self, name: str, key: str, value: str | None, *, column: ColumnName | None = None) -> None:
        """Give a table or a view a tag: a text under a key; None takes the tag away.

        The tag ``comment`` is the comment, which is the only one that DuckDB shows, and the only one that a column can have.

        Raises:
            NotFoundError: No such table, view or column.
            UnsupportedFeatureError: Another tag of a column than its comment: DuckDB cannot attach a lake that has one.
        """
        if column is not None and key != COMMENT:
            raise UnsupportedFeatureError(
                f"a column of {name} cannot have the tag {key!r}: DuckDB cannot attach a lake in which a column has another tag than its "
                "comment. Tag the table instead",
                table=name,
                key=key,
            )
        if not self._is_done("tag", name, key, value, column):
            self._tag(name, key, value, column)

    def set_schema_comment(self, name: str, text: str | None) -> None:
        """Comment on a schema; None takes the comment away. DuckDB neither writes nor shows comments on schemas.

        Raises:
            NotFoundError: No such schema.
        """
        if not self._is_done("comment schema", name, text, is_schema=True):
            self._tag_schema(name, COMMENT, text)

    def set_schema_tag(self, name: str, key: str, value: str | None) -> None:
        """Give a schema a tag: a text under a key; None takes the tag away.

        Raises:
            NotFoundError: No such schema.
        """
        if not self._is_done("tag schema", name, key, value, is_schema=True):
            self._tag_schema(name, key, value)

    def _tag_schema(self, name: str, key: str, value: str | None) -> None:
        state = self._catalog.schema_called(name)
        assert state is not None
        self._catalog.tag_schema(state, key, value)

    def _tag(self, name: str, key: str, value: str | None, column: ColumnName | None) -> None:
        with self._whole_or_nothing():
            staged = self._catalog.find_table(name)
            if staged is not None:
                if column is None:
                    self._stage(staged, staged.alteration(partial(alterations.set_tag, key=key, value=value)))
                else:
                    self._stage(staged, staged.alteration(partial(alterations.set_column_comment, path=column_path(column), text=value)))
                return
            view = self._catalog.find_view(name)
            if view is None:
                raise NotFoundError(f"there is no table or view {name} at snapshot {self._catalog.base.id}", table=name)
            view.tag(key, value, None if column is None else self._view_column(view, column))

    def _view_column(self, view: StagedView, column: ColumnName) -> str:
        version = self._lake.info.format_version
        if not version.has_view_column_tags:
            raise UnsupportedFeatureError(
                f"columns of view {view.name} cannot have comments: lakes of version {version} have no place for them; migrate to 1.1",
                feature="comments on columns of views",
                view=view.name,
            )
        path = column_path(column)
        names = self._names_of_view(view)
        found = next((stored for shown, stored in names or () if folded(shown) == folded(path[0])), path[0] if names is None else None)
        if found is None or len(path) > 1:
            raise NotFoundError(f"view {view.name} has no column {dotted(path)!r}", view=view.name, column=dotted(path))
        return found

    def _names_of_view(self, view: StagedView) -> list[tuple[str, str]] | None:
        """The names of a view's columns, and those that its query gives them, by which they are stored; None where it is not understood."""
        from ducklake_core.view_sql.translation import view_schema

        try:
            with self._lake.reader() as reader:
                shown = view_schema(reader, view.state).names
                stored = view_schema(reader, replace(view.state, column_aliases=())).names
        except DuckLakeError:
            return None
        return list(zip(shown, stored, strict=True))
