"""The verbs of a transaction that make, rename and drop views."""

from __future__ import annotations

from collections.abc import Sequence

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.macros import view_text
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, join_name, split_name
from ducklake_core.staging.verbs.base import OpenTransaction


class ViewVerbs(OpenTransaction):
    """Views staged by a :class:`Transaction`."""

    def create_view(
        self,
        name: str,
        sql: str,
        *,
        columns: Sequence[str] = (),
        comment: str | None = None,
        or_replace: bool = False,
        if_not_exists: bool = False,
    ) -> None:
        """Create a view.

        Args:
            name: ``view`` or ``schema.view``.
            sql: One SELECT in DuckDB's SQL. Tables and views are named by ``name`` (in the view's schema or in main) or
                ``schema.name``; they must exist.
            columns: Names of its first columns, instead of those of the query.
            comment: The view's comment.
            or_replace: Whether to drop a view of that name first.
            if_not_exists: Whether to leave a view or table of that name as it is.

        Raises:
            AlreadyExistsError: A view or table has the name.
            NotFoundError: Its schema does not exist, or something that it reads.
            UsageError: Not one SELECT, a name that could be two tables, or two columns of one name.
            UnsupportedFeatureError: The query cannot be parsed.
        """
        if self._is_done("create view", name, sql, tuple(columns) or None):
            return
        catalog = self._catalog
        schema_name, view_name = split_name(name)
        owner = catalog.schema(schema_name)
        names = tuple(columns) if not isinstance(columns, str) else (columns,)
        if any(not column for column in names) or len({folded(column) for column in names}) < len(names):
            raise UsageError(f"view {name} needs columns of different names, not {list(names)}", view=name)
        existing = catalog.find_view(name)
        if if_not_exists and (existing is not None or catalog.find_table(name) is not None):
            return
        text = view_text(sql, lambda schema, table: self._schema_of(schema, table, owner.name))
        if existing is not None and or_replace:
            catalog.drop_view(name)
        catalog.check_free(owner.name, view_name)
        catalog.create_view(owner, view_name, text, names, comment)

    def rename_view(self, name: str, new_name: str) -> None:
        """Rename a view within its schema; ``new_name`` is the name as it is, without a schema.

        Raises:
            NotFoundError: No such view.
            AlreadyExistsError: A view or table has the new name.
        """
        if self._is_done("rename", name, new_name):
            return
        if not new_name:
            raise UsageError(f"view {name} needs a name", view=name)
        self._catalog.rename_view(self._catalog.view(name), new_name)

    def drop_view(self, name: str, *, if_exists: bool = False) -> None:
        """Drop a view. Views that read it stay, and fail when they are read.

        Raises:
            NotFoundError: No such view.
        """
        if self._is_done("drop view", name) or (if_exists and self._catalog.find_view(name) is None):
            return
        self._catalog.drop_view(name)

    def _schema_of(self, schema: str | None, name: str, own: str) -> str:
        """The schema of what a view reads."""
        found = [place for place in ([schema] if schema else dict.fromkeys((own, DEFAULT_SCHEMA))) if self._exists(place, name)]
        if not found:
            where = join_name(schema or own, name)
            raise NotFoundError(f"the view reads {where}, which is not a table or view at snapshot {self._catalog.base.id}", table=where)
        if len(found) > 1:
            raise UsageError(f"the view reads {name!r}, which is in the schemas {' and '.join(found)}: write schema.name", table=name)
        return found[0]

    def _exists(self, schema: str, name: str) -> bool:
        whole = join_name(schema, name)
        return self._catalog.find_table(whole) is not None or self._catalog.find_view(whole) is not None
