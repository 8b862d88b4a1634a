"""Views: a text of SQL under a name (specification: ducklake_view)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, Select, String, Subquery, cast, null, select

from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.reading.reader import CatalogReader, similar_entries
from ducklake_core.catalog.reading.table_rows import COMMENT, tags_of
from ducklake_core.catalog.reading.visibility import live, may_be_named, same_name
from ducklake_core.errors import CatalogCorruptError, NotFoundError

COLUMN_ALIASES = re.compile(r'"(?:[^"]|"")*"(?:,"(?:[^"]|"")*")*')


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """A view at one snapshot, as stored.

    Attributes:
        id: ``view_id``.
        dialect: Language of ``sql``; DuckDB writes ``duckdb``.
        sql: The query; ``{DUCKLAKE_CATALOG}`` stands for the name under which a reader has attached the lake.
        column_aliases: Names of its columns, the first ones at least; empty when the query names them all.
        comment: Its ``comment`` tag; ``tags`` are its other tags by key.
        column_comments: Comments of its columns by the names that the query gives them (format 1.1).
        snapshot_id: The snapshot this state was read at.
    """

    id: int
    uuid: str
    name: str
    schema_id: int
    schema_name: str
    dialect: str
    sql: str
    column_aliases: tuple[str, ...]
    comment: str | None
    snapshot_id: int
    tags: Mapping[str, str] = field(default_factory=dict)
    column_comments: Mapping[str, str] = field(default_factory=dict)

    def commented_column(self, name: str) -> str:
        """A column's name as the comment that it has is stored under, which differs at most in case."""
        return next((one for one in self.column_comments if same_name(one, name)), name)


def views(reader: CatalogReader, snapshot_id: int) -> list[ViewState]:
    """All views at a snapshot, by schema and name."""
    found: dict[int, list[Row[Any]]] = {}
    for row in reader.connection.execute(_query(reader.catalog, snapshot_id)):
        found.setdefault(row.view_id, []).append(row)
    return sorted((_state(rows, snapshot_id) for rows in found.values()), key=lambda view: (view.schema_name, view.name))


def find_view(reader: CatalogReader, schema: str, name: str, snapshot_id: int) -> ViewState | None:
    """A view by name without regard to case, None when there is none at that snapshot."""
    tables = reader.catalog
    query = _query(tables, snapshot_id).where(
        may_be_named(tables["view"].c.view_name, name), may_be_named(tables.schemas.c.schema_name, schema)
    )
    rows = [row for row in reader.connection.execute(query) if same_name(row.view_name, name) and same_name(row.schema_name, schema)]
    return _state([row for row in rows if row.view_id == rows[0].view_id], snapshot_id) if rows else None


def view(reader: CatalogReader, schema: str, name: str, snapshot_id: int) -> ViewState:
    """A view by name without regard to case.

    Raises:
        NotFoundError: It does not exist at that snapshot.
    """
    found = find_view(reader, schema, name, snapshot_id)
    if found is None:
        near = similar_entries(schema, name, [(one.schema_name, one.name) for one in views(reader, snapshot_id)])
        raise NotFoundError(
            f"there is no view {schema}.{name} at snapshot {snapshot_id}{near}", view=f"{schema}.{name}", snapshot_id=snapshot_id
        )
    return found


def _query(tables: CatalogTables, snapshot_id: int) -> Select[Any]:
    view, schema, tag = tables["view"], tables.schemas, _tags(tables, snapshot_id)
    is_tag = tag.c.object_id == view.c.view_id
    labels = (tag.c.column_name.label("tag_column"), tag.c.key.label("tag_key"), tag.c.value.label("tag_value"))
    return (
        select(view, schema.c.schema_name, *labels)
        .select_from(view.join(schema, schema.c.schema_id == view.c.schema_id).outerjoin(tag, is_tag))
        .where(live(view, snapshot_id), live(schema, snapshot_id))
    )


def _tags(tables: CatalogTables, snapshot_id: int) -> Subquery:
    """Tags of views, and those of their columns where the version has any."""
    tag = tables["tag"]
    own = select(tag.c.object_id, cast(null(), String).label("column_name"), tag.c.key, tag.c.value).where(live(tag, snapshot_id))
    if "view_column_tag" not in tables:
        return own.subquery("tags")
    column_tag = tables["view_column_tag"]
    columns = (column_tag.c.view_id, column_tag.c.column_name, column_tag.c.key, column_tag.c.value)
    return own.union_all(select(*columns).where(live(column_tag, snapshot_id))).subquery("tags")


def _state(rows: Sequence[Row[Any]], snapshot_id: int) -> ViewState:
    row, tags = rows[0], tags_of(one for one in rows if one.tag_column is None)
    comments = {one.tag_column: one.tag_value for one in rows if one.tag_column is not None and one.tag_key == COMMENT}
    return ViewState(
        id=row.view_id,
        uuid=row.view_uuid or "",
        name=row.view_name,
        schema_id=row.schema_id,
        schema_name=row.schema_name,
        dialect=row.dialect or "duckdb",
        sql=row.sql or "",
        column_aliases=tuple(_aliases(row)),
        comment=tags.pop(COMMENT, None),
        snapshot_id=snapshot_id,
        tags=tags,
        column_comments={name: text for name, text in sorted(comments.items()) if text is not None},
    )


def _aliases(row: Row[Any]) -> Iterator[str]:
    text = row.column_aliases or ""
    if text and not COLUMN_ALIASES.fullmatch(text):
        where = f"{row.schema_name}.{row.view_name}"
        raise CatalogCorruptError(f"cannot read the column names {text!r} of view {where}", view=where)
    for quoted in re.findall(r'"((?:[^"]|"")*)"', text):
        yield quoted.replace('""', '"')
