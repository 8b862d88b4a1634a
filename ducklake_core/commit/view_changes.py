"""Turns actions on views and macros into catalog rows."""

from __future__ import annotations

from ducklake_core.commit.definition_actions import AlterView, CreateMacro, CreateView, DropMacro, DropView
from ducklake_core.commit.definition_changes import end_tag, insert_tag, rename_row
from ducklake_core.commit.snapshot_builder import SnapshotBuilder
from ducklake_core.format.changes import QualifiedName
from ducklake_core.format.view_text import aliases_text


def create_view(builder: SnapshotBuilder, action: CreateView) -> None:
    """Create a view."""
    view_id = builder.ids[action.view_id] = builder.catalog_id()
    builder.insert(
        "view",
        view_id=view_id,
        view_uuid=action.uuid,
        begin_snapshot=builder.snapshot_id,
        end_snapshot=None,
        schema_id=builder.real_id(action.schema_id),
        view_name=action.name,
        dialect=action.dialect,
        sql=action.sql,
        column_aliases=aliases_text(action.column_aliases),
    )
    if action.comment is not None:
        insert_tag(builder, view_id, None, "comment", action.comment)
    for key, value in action.tags:
        insert_tag(builder, view_id, None, key, value)
    for column, text in action.column_comments:
        _insert_column_tag(builder, view_id, column, "comment", text)
    builder.log("created_view", QualifiedName(schema=action.schema_name, name=action.name))
    if action.altered:
        builder.log("altered_view", view_id)
    builder.schema_changed = True


def alter_view(builder: SnapshotBuilder, action: AlterView) -> None:
    """Rename a view, or change its tags."""
    if action.new_name is not None:
        rename_row(builder, "view", {"view_id": action.view_id}, {"view_name": action.new_name})
        builder.log("created_view", QualifiedName(schema=action.schema_name, name=action.new_name))
    for column, key, text in action.tags:
        if column is None:
            end_tag(builder, action.view_id, None, key)
            insert_tag(builder, action.view_id, None, key, text)
            continue
        builder.end("view_column_tag", {"view_id": action.view_id, "column_name": column, "key": key})
        if text is not None:
            _insert_column_tag(builder, action.view_id, column, key, text)
    if action.tags:
        builder.log("altered_view", action.view_id)
    builder.schema_changed = True


def drop_view(builder: SnapshotBuilder, action: DropView) -> None:
    """Drop a view with its tags."""
    builder.end("view", {"view_id": action.view_id})
    builder.end("tag", {"object_id": action.view_id})
    builder.end("view_column_tag", {"view_id": action.view_id})
    builder.log("dropped_view", action.view_id)
    builder.schema_changed = True


def _insert_column_tag(builder: SnapshotBuilder, view_id: int, column: str, key: str, text: str) -> None:
    lifetime = {"begin_snapshot": builder.snapshot_id, "end_snapshot": None}
    builder.insert("view_column_tag", view_id=view_id, column_name=column, **lifetime, key=key, value=text)


def create_macro(builder: SnapshotBuilder, action: CreateMacro) -> None:
    """Create a macro with its definitions and their parameters."""
    macro_id = builder.ids[action.macro_id] = builder.catalog_id()
    builder.insert(
        "macro",
        schema_id=builder.real_id(action.schema_id),
        macro_id=macro_id,
        macro_name=action.name,
        begin_snapshot=builder.snapshot_id,
        end_snapshot=None,
    )
    for number, one in enumerate(action.implementations):
        builder.insert("macro_impl", macro_id=macro_id, impl_id=number, dialect=one.dialect, sql=one.sql, type=one.kind)
        for place, parameter in enumerate(one.parameters):
            builder.insert(
                "macro_parameters",
                macro_id=macro_id,
                impl_id=number,
                column_id=place,
                parameter_name=parameter.name,
                parameter_type=parameter.type or "unknown",
                default_value="NULL" if parameter.default is None else parameter.default,
                default_value_type=parameter.default_type or "unknown",
            )
    builder.log(f"created_{action.kind}_macro", QualifiedName(schema=action.schema_name, name=action.name))
    builder.schema_changed = True


def drop_macro(builder: SnapshotBuilder, action: DropMacro) -> None:
    """Drop a macro."""
    builder.end("macro", {"macro_id": action.macro_id})
    builder.log(f"dropped_{action.kind}_macro", action.macro_id)
    builder.schema_changed = True
