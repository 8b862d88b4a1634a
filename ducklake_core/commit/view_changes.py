"""What becomes of actions on views and macros."""

from __future__ import annotations

from ducklake_core.commit.actions import AlterView, CreateMacro, CreateView, DropMacro, DropView
from ducklake_core.commit.definition_changes import end_comment, insert_comment, rename_row
from ducklake_core.commit.draft import Draft
from ducklake_core.format.changes import QualifiedName
from ducklake_core.format.view_text import aliases_text


def create_view(draft: Draft, action: CreateView) -> None:
    """A new view."""
    view_id = draft.ids[action.view_id] = draft.catalog_id()
    draft.insert(
        "view",
        view_id=view_id,
        view_uuid=action.uuid,
        begin_snapshot=draft.snapshot_id,
        end_snapshot=None,
        schema_id=draft.real_id(action.schema_id),
        view_name=action.name,
        dialect=action.dialect,
        sql=action.sql,
        column_aliases=aliases_text(action.column_aliases),
    )
    if action.comment is not None:
        insert_comment(draft, view_id, None, action.comment)
    draft.log("created_view", QualifiedName(schema=action.schema_name, name=action.name))
    if action.altered:
        draft.log("altered_view", view_id)
    draft.schema_changed = True


def alter_view(draft: Draft, action: AlterView) -> None:
    """Another name or comment."""
    if action.new_name is not None:
        rename_row(draft, "view", {"view_id": action.view_id}, {"view_name": action.new_name})
        draft.log("created_view", QualifiedName(schema=action.schema_name, name=action.new_name))
    if action.commented:
        end_comment(draft, action.view_id, None)
        insert_comment(draft, action.view_id, None, action.comment)
        draft.log("altered_view", action.view_id)
    draft.schema_changed = True


def drop_view(draft: Draft, action: DropView) -> None:
    """The end of a view and of its tags."""
    draft.end("view", {"view_id": action.view_id})
    draft.end("tag", {"object_id": action.view_id})
    draft.log("dropped_view", action.view_id)
    draft.schema_changed = True


def create_macro(draft: Draft, action: CreateMacro) -> None:
    """A new macro with its definitions and their parameters."""
    macro_id = draft.ids[action.macro_id] = draft.catalog_id()
    draft.insert(
        "macro",
        schema_id=draft.real_id(action.schema_id),
        macro_id=macro_id,
        macro_name=action.name,
        begin_snapshot=draft.snapshot_id,
        end_snapshot=None,
    )
    for number, one in enumerate(action.implementations):
        draft.insert("macro_impl", macro_id=macro_id, impl_id=number, dialect=one.dialect, sql=one.sql, type=one.kind)
        for place, parameter in enumerate(one.parameters):
            draft.insert(
                "macro_parameters",
                macro_id=macro_id,
                impl_id=number,
                column_id=place,
                parameter_name=parameter.name,
                parameter_type=parameter.type or "unknown",
                default_value="NULL" if parameter.default is None else parameter.default,
                default_value_type=parameter.default_type or "unknown",
            )
    draft.log(f"created_{action.kind}_macro", QualifiedName(schema=action.schema_name, name=action.name))
    draft.schema_changed = True


def drop_macro(draft: Draft, action: DropMacro) -> None:
    """The end of a macro."""
    draft.end("macro", {"macro_id": action.macro_id})
    draft.log(f"dropped_{action.kind}_macro", action.macro_id)
    draft.schema_changed = True
