"""One view within an open transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ducklake_core.catalog.views import ViewState
from ducklake_core.commit.actions import Action, AlterView, CreateView
from ducklake_core.format.names import join_name


@dataclass(slots=True, kw_only=True)
class StagedView:
    """What a transaction does to one view.

    Attributes:
        state: The view as later calls of the transaction see it; a negative id while it is not committed.
        committed: The view at the transaction's base snapshot, None when the transaction creates it.
        altered: Whether it was commented on.
    """

    state: ViewState
    committed: ViewState | None
    altered: bool = False

    @property
    def name(self) -> str:
        """``schema.view``, quoted where needed."""
        return join_name(self.state.schema_name, self.state.name)

    def rename(self, name: str) -> None:
        """Under another name in the same schema."""
        self.state = replace(self.state, name=name)

    def comment(self, text: str | None) -> None:
        """With another comment, or none."""
        self.state = replace(self.state, comment=text)
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
                altered=self.altered,
            )
            return
        if (state.name, state.comment) != (before.name, before.comment):
            yield AlterView(
                view_id=before.id,
                schema_id=before.schema_id,
                schema_name=before.schema_name,
                name=before.name,
                new_name=state.name if state.name != before.name else None,
                commented=state.comment != before.comment,
                comment=state.comment,
            )
