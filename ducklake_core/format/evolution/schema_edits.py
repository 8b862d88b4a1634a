"""Edits of a table's columns at any depth, by path (specification: Schema Evolution).

A path names a column and then fields: ``("s", "z")`` is field z of the struct s, ``("l", "element", "x")`` field x of the structs in
the list l; maps have ``key`` and ``value``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ducklake_core.errors import AlreadyExistsError, NotFoundError, SchemaError, UsageError
from ducklake_core.format.evolution.defaults import canonical_default
from ducklake_core.format.evolution.reconciliation import promotes
from ducklake_core.format.types.data_types import BOOLEAN, INTEGERS, DataType, Field, ListType, MapType, StructType
from ducklake_core.format.types.names import dotted, folded, split_path, storable
from ducklake_core.format.types.schema import Schema, with_ids
from ducklake_core.format.types.text import shown, similar_or_all

ColumnName: TypeAlias = "str | Sequence[str]"


def column_path(name: ColumnName) -> tuple[str, ...]:
    """Return the parts of a name: ``s.z``, a part with dots or quotes double-quoted; or the parts themselves.

    >>> column_path("s.z"), column_path('s."odd.na""me"'), column_path(("odd.name",))
    (('s', 'z'), ('s', 'odd.na"me'), ('odd.name',))

    Raises:
        UsageError: The string is not a path, or there are no parts.
    """
    if isinstance(name, str):
        return split_path(name)
    parts = tuple(name) if isinstance(name, list | tuple) else ()
    if not parts or not all(storable("a part of a column's name", part) for part in parts):
        raise UsageError(
            f"a column name must be a string, or a tuple of strings for a field of a struct, not {shown(name)}", parameter="column"
        )
    return parts


def find_node(schema: Schema, path: Sequence[str]) -> Field:
    """Return the node at a path.

    Raises:
        NotFoundError: It does not exist.
    """
    return _child(schema.columns, path, 0) if len(path) == 1 else _child(find_node(schema, path[:-1]).children, path, len(path) - 1)


def add_node(schema: Schema, parent: Sequence[str], field: Field, next_id: int) -> tuple[Schema, int]:
    """Return a new last column, or last field of the struct ``parent``, with ids from ``next_id`` on; and the next id after them.

    Args:
        schema: The table's columns.
        parent: Path of the struct; empty for a new column.
        field: The node to add; its ids are replaced.
        next_id: First id that the node and those below it take.

    Raises:
        AlreadyExistsError: The name is taken.
        SchemaError: The parent is not a struct.
    """
    (numbered,) = with_ids(Schema(columns=(field,)), next_id)
    after = next_id + sum(1 for _ in numbered.walk())
    if not parent:
        _check_free(schema.columns, field.name)
        return Schema(columns=(*schema.columns, numbered)), after

    def extended(node: Field) -> Field:
        if not isinstance(node.type, StructType):
            raise SchemaError(f"{dotted(parent)} is {node.type}, not a struct, so it has no fields to add to", column=dotted(parent))
        _check_free(node.children, field.name)
        return replace(node, type=StructType(fields=(*node.type.fields, numbered)))

    return edit_node(schema, parent, extended), after


def drop_node(schema: Schema, path: Sequence[str]) -> Schema:
    """Return the schema without a column or field.

    Raises:
        NotFoundError: It does not exist.
        SchemaError: It is the only one, or part of a list or map.
    """
    node = find_node(schema, path)
    if len(path) == 1:
        if len(schema.columns) == 1:
            raise SchemaError(f"{dotted(path)} is the only column of the table; drop the table instead", column=dotted(path))
        return Schema(columns=tuple(column for column in schema if column.id != node.id))
    _check_field(schema, path, "dropped")

    def reduced(parent: Field) -> Field:
        left = tuple(field for field in parent.children if field.id != node.id)
        if not left:
            # DuckDB drops it, and can then no longer open the lake: a struct has fields.
            raise SchemaError(f"{dotted(path)} is the only field of its struct; drop {dotted(path[:-1])} instead", column=dotted(path))
        return replace(parent, type=StructType(fields=left))

    return edit_node(schema, path[:-1], reduced)


def rename_node(schema: Schema, path: Sequence[str], name: str) -> Schema:
    """Return the schema with another name for a column or field.

    Args:
        schema: The table's columns.
        path: Path of the column or field.
        name: The new name, without a path.

    Raises:
        NotFoundError: It does not exist.
        AlreadyExistsError: The name is taken.
        SchemaError: It is part of a list or map.
    """
    node = find_node(schema, path)
    siblings = schema.columns if len(path) == 1 else find_node(schema, path[:-1]).children
    if len(path) > 1:
        _check_field(schema, path, "renamed")
    if not name:
        raise UsageError(f"the new name of column {dotted(path)} is empty. Pass a name", column=dotted(path))
    _check_free(tuple(field for field in siblings if field.id != node.id), name)
    return edit_node(schema, path, lambda field: replace(field, name=name))


def retype_node(schema: Schema, path: Sequence[str], data_type: DataType, next_id: int) -> tuple[Schema, int]:
    """Return the schema with another type for a column or field, and the next id; structs may gain and lose fields.

    Args:
        schema: The table's columns.
        path: Path of the column or field.
        data_type: The new type; the ids in it are ignored.
        next_id: First id that new fields of structs take.

    Raises:
        NotFoundError: There is no such column.
        SchemaError: The values of the column cannot be converted to the type.
    """
    work = _Retyping(next_id=next_id)
    changed = edit_node(
        schema, path, lambda field: replace(_with_number(field, data_type), type=work.retyped(field, data_type, tuple(path)))
    )
    return changed, work.next_id


def _with_number(field: Field, wanted: DataType) -> Field:
    """Return a boolean column that becomes integers with 1 or 0 as its constant defaults: DuckDB does not read ``true`` as an integer."""
    if field.type != BOOLEAN or wanted not in INTEGERS:
        return field
    numbers = {"true": "1", "false": "0", None: None}
    field = replace(field, initial_default=numbers[field.initial_default])
    if field.default is None or field.default_is_expression:
        return field
    return replace(field, default=numbers[canonical_default(field)])


# Nodes that stay keep their ids, because data files identify columns by id. New fields get ids from next_id on.
class _Retyping:
    def __init__(self, next_id: int) -> None:
        self.next_id = next_id

    def retyped(self, field: Field, wanted: DataType, path: tuple[str, ...]) -> DataType:
        match field.type, wanted:
            case StructType(fields=fields), StructType(fields=others):
                return self.struct(fields, others, path)
            case ListType(element=element), ListType(element=other):
                return ListType(element=self.child(element, other, path))
            case MapType(key=key, value=value), MapType(key=other_key, value=other_value):
                return MapType(key=self.child(key, other_key, path), value=self.child(value, other_value, path))
            case old, new if old == new:
                return old
            case old, new if field.is_leaf and promotes(old, new):
                return new
            case old, new:
                raise SchemaError(
                    f"{dotted(path)} cannot change from {old} to {new}: columns only become types that hold all of their values",
                    column=dotted(path),
                )

    def child(self, field: Field, wanted: Field, path: tuple[str, ...]) -> Field:
        return replace(field, type=self.retyped(field, wanted.type, (*path, field.name)))

    def struct(self, fields: tuple[Field, ...], others: tuple[Field, ...], path: tuple[str, ...]) -> StructType:
        wanted: dict[str, Field] = {}
        for other in others:
            if wanted.setdefault(folded(other.name), other) is not other:
                raise SchemaError(f"{dotted(path)} would have two fields {other.name!r}", column=dotted(path))
        kept = [self.child(field, wanted.pop(folded(field.name)), path) for field in fields if folded(field.name) in wanted]
        for other in wanted.values():
            (numbered,) = with_ids(Schema(columns=(other,)), self.next_id)
            self.next_id += sum(1 for _ in numbered.walk())
            kept.append(numbered)
        return StructType(fields=tuple(kept))


def edit_node(schema: Schema, path: Sequence[str], edit: Callable[[Field], Field]) -> Schema:
    """Return the schema with another version of the node at a path.

    Args:
        schema: The table's columns.
        path: Path of the node.
        edit: Returns the new version of the node.
    """
    find_node(schema, path)
    # find_node has raised an error for a missing node; _edited would return the schema unchanged.
    return Schema(columns=_edited(schema.columns, tuple(path), edit))


def _edited(fields: tuple[Field, ...], path: tuple[str, ...], edit: Callable[[Field], Field]) -> tuple[Field, ...]:
    return tuple(_edited_field(field, path, edit) if folded(field.name) == folded(path[0]) else field for field in fields)


def _edited_field(field: Field, path: tuple[str, ...], edit: Callable[[Field], Field]) -> Field:
    if len(path) == 1:
        return edit(field)
    # Containers are immutable: every node on the way down is built again around the edited one.
    children = _edited(field.children, path[1:], edit)
    match field.type:
        case StructType():
            return replace(field, type=StructType(fields=children))
        case ListType():
            return replace(field, type=ListType(element=children[0]))
        case MapType():
            return replace(field, type=MapType(key=children[0], value=children[1]))
        case _:
            return field


def _child(fields: tuple[Field, ...], path: Sequence[str], depth: int) -> Field:
    found = next((field for field in fields if folded(field.name) == folded(path[depth])), None)
    if found is None:
        listed = similar_or_all(path[depth], [field.name for field in fields], ". The columns are") if fields else ""
        raise NotFoundError(f"there is no column {dotted(path[: depth + 1])!r}{listed}", column=dotted(path))
    return found


def _check_free(siblings: tuple[Field, ...], name: str) -> None:
    other = next((field for field in siblings if folded(field.name) == folded(name)), None)
    if other is not None:
        raise AlreadyExistsError(f"there is a column {other.name!r} already: names are compared without regard to case", column=name)


def _check_field(schema: Schema, path: Sequence[str], done: str) -> None:
    if not isinstance(find_node(schema, path[:-1]).type, StructType):
        raise SchemaError(f"{dotted(path)} is part of a list or map and cannot be {done}", column=dotted(path))
