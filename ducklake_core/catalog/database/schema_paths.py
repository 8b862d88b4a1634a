"""Schemas with the path of each as its name: a schema's row has its own name alone, and the id of the schema that it is in."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, FromClause, Select, String, Table, Text, case, cast, func, or_, select, type_coerce


def schemas_by_path(schema: Table) -> FromClause:
    """The rows of ``ducklake_schema`` with paths in ``schema_name``, as names of tables begin with (format/types/names.py).

    A schema is visible while every schema around it is, so that ``begin_snapshot`` and ``end_snapshot`` are those of all of them. One in a
    schema that is not there, or in itself, is at no place, and left out; so is one without a name.
    """
    top = _rows(schema, _quoted(schema.c.schema_name))
    parent = schema.c.get("parent_schema_id")
    if parent is None:
        return top.subquery("schemas")
    around = top.where(parent.is_(None)).cte("schemas", recursive=True)
    inner = schema.alias("inner_schema")
    name = around.c.schema_name + "." + _quoted(inner.c.schema_name)
    begin = case((inner.c.begin_snapshot < around.c.begin_snapshot, around.c.begin_snapshot), else_=inner.c.begin_snapshot)
    is_longer = or_(inner.c.end_snapshot.is_(None), inner.c.end_snapshot > around.c.end_snapshot)
    end = case((is_longer, func.coalesce(around.c.end_snapshot, inner.c.end_snapshot)), else_=inner.c.end_snapshot)
    return around.union_all(
        _rows(inner, name, begin_snapshot=begin, end_snapshot=end).join(around, around.c.schema_id == inner.c.parent_schema_id)
    )


def _rows(schema: FromClause, name: ColumnElement[str], **others: ColumnElement[Any]) -> Select[Any]:
    # Both halves of a recursive query need the same type, which databases make of VARCHAR and of joined text.
    others = {**others, "schema_name": cast(name, Text)}
    columns = (others.get(column.name, column).label(column.name) for column in schema.c)
    return select(*columns).where(schema.c.schema_name.is_not(None))


def _quoted(column: ColumnElement[str]) -> ColumnElement[str]:
    """A name as it stands in a path: see ``dotted``."""
    name = type_coerce(column, String)
    is_odd = or_(name.contains("."), name.contains('"'))
    return case((is_odd, '"' + func.replace(name, '"', '""') + '"'), else_=name)
