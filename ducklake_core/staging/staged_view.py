"""One view within an open transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ducklake_core.catalog.reading.table_rows import COMMENT
from ducklake_core.catalog.reading.views import ViewState
from ducklake_core.commit.actions import Action
from ducklake_core.commit.definition_actions import AlterView, CreateView
from ducklake_core.format.types.names import join_name

TagKey: TypeAlias = tuple[str | None, str]


@dataclass(slots=True, kw_only=True)
class StagedView:
    """The changes of a transaction to one view.

    Attributes:
        state: The view as later calls of the transaction see it; a negative id while it is not committed.
        committed: The view at the transaction's base snapshot, None when the transaction creates it.
        altered: Whether it was commented on or tagged.
        tagged: What was done to its tags, by column (None for the view itself) and key.
    """

    state: ViewState
    committed: ViewState | None
    altered: bool = False
    tagged: Mapping[TagKey, str | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``schema.view``, quoted where needed."""
        return join_name(self.state.schema_name, self.state.name)

    def rename(self, name: str) -> None:
        """Under another name in the same schema."""
        self.state = replace(self.state, name=name)

    def comment(self, text: str | None) -> None:
        """With another comment, or none."""
        self.tag(COMMENT, text)

    def tag(self, key: str, value: str | None, column: str | None = None) -> None:
        """With another tag of its own or of a column, or without it."""
        where = (None if column is None else self.state.commented_column(column), key)
        self.state = tagged_view(self.state, {where: value})
        self.tagged = {**self.tagged, where: value}
        self.altered = True

    def actions(self) -> Iterator[Action]:
        """Everything staged, as the commit takes it."""
        state, before = self.state, self.committed
        if before is None:
            yield CreateView(
                view_id=state.id,
                schema_id=state.schema_id,
                schema_name=state.schema_name,
                name=state.name,
                uuid=state.uuid,
                dialect=state.dialect,
                sql=state.sql,
                column_aliases=state.column_aliases,
                comment=state.comment,
                tags=tuple(sorted(state.tags.items())),
                column_comments=tuple(sorted(state.column_comments.items())),
                altered=self.altered,
            )
            return
        tags = tuple((*where, value) for where, value in self.tagged.items() if _tags(before).get(where) != value)
        if state.name != before.name or tags:
            yield AlterView(
                view_id=before.id,
                schema_id=before.schema_id,
                schema_name=before.schema_name,
                name=before.name,
                new_name=state.name if state.name != before.name else None,
                tags=tags,
            )


def tagged_view(state: ViewState, tags: Mapping[TagKey, str | None]) -> ViewState:
    """A view with some tags changed, the comment perhaps among them."""
    found = {where: value for where, value in (_tags(state) | dict(tags)).items() if value is not None}
    own = {key: value for (column, key), value in found.items() if column is None}
    columns = {column: value for (column, _), value in found.items() if column is not None}
    return replace(state, comment=own.pop(COMMENT, None), tags=own, column_comments=columns)


def _tags(state: ViewState) -> dict[TagKey, str | None]:
    own: dict[TagKey, str | None] = {(None, key): value for key, value in state.tags.items()}
    return own | {(None, COMMENT): state.comment} | {(column, COMMENT): text for column, text in state.column_comments.items()}
