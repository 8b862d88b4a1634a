"""The verbs of a transaction that tag things: comments, and other texts by key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.table_rows import COMMENT
from ducklake_core.commit import alterations
from ducklake_core.errors import NotFoundError, UnsupportedFeatureError
from ducklake_core.format.evolution.schema_edits import column_path
from ducklake_core.staging.verbs.base import OpenTransaction

if TYPE_CHECKING:
    from ducklake_core.format.evolution.schema_edits import ColumnName


class TagVerbs(OpenTransaction):
    """Comments and tags staged by a :class:`Transaction`."""

    def set_comment(self, name: str, text: str | None, *, column: ColumnName | None = None) -> None:
        """Comment on a table, a view or a column of a table; None takes the comment away.

        Raises:
            NotFoundError: No such table, view or column.
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
            view = self._catalog.find_view(name) if column is None else None
            if view is None:
                what = "table or view" if column is None else "table"
                raise NotFoundError(f"there is no {what} {name} at snapshot {self._catalog.base.id}", table=name)
            view.tag(key, value)
