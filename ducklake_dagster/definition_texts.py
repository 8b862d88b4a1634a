"""What an asset's definition says about its table, which becomes comments in the catalog for everybody who reads the lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import folded

if TYPE_CHECKING:
    from ducklake_core import Schema, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A text about a table, or about one of its columns."""

    text: str
    column: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTexts:
    """Descriptions of a table and of its columns; what has none says nothing about the comment that the catalog may have.

    Attributes:
        table: Of the table.
        columns: By name.
    """

    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def differing_from(self, table: Table | None, frame: Schema) -> list[Comment]:
        """The comments that the catalog does not have yet.

        Args:
            table: The table before the write, None for a new one.
            frame: Columns that the write may add.
        """
        found = [Comment(text=self.table)] if self.table and (table is None or table.comment != self.table) else []
        present = {folded(name): text for name, text in table.column_comments.items()} if table is not None else {}
        for name, text in self.columns.items():
            column = (table.schema.find(name) if table is not None else None) or frame.find(name)
            if column is not None and present.get(folded(name)) != text:
                found.append(Comment(text=text, column=(column.name,)))
        return found


def table_texts(context: dg.OutputContext, metadata: Mapping[str, Any]) -> TableTexts:
    """The descriptions in an asset's definition: its own, and those of ``dagster/column_schema`` in its metadata."""
    if not context.has_asset_key:
        return TableTexts()
    schema = metadata.get("dagster/column_schema")
    columns = schema.columns if isinstance(schema, dg.TableSchema) else []
    described = {column.name: column.description for column in columns if column.description}
    spec = spec_of(context)
    return TableTexts(table=spec.description or None if spec is not None else None, columns=described)


def spec_of(context: dg.OutputContext) -> dg.AssetSpec | None:
    """The definition of the asset that an output is of; None for an op's, and in a context made by hand."""
    try:
        return context.asset_spec if context.has_asset_key else None
    except dg.DagsterInvariantViolationError:
        return None
