"""Compute the changes that restore a whole lake to an earlier snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ducklake_core.catalog.reading.definitions import Macro, ViewState, changed_definitions, macros, views
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.table_rows import COMMENT
from ducklake_core.commit import alterations
from ducklake_core.commit.alterations import difference
from ducklake_core.format.files.paths import uuid7
from ducklake_core.format.state import SchemaState, Snapshot, TableListing, TableState
from ducklake_core.format.types.names import folded, join_name, parent_schema
from ducklake_core.planning.lake_changes import plan_lake_changes

if TYPE_CHECKING:
    from ducklake_core.staging.namespace import StagedCatalog
    from ducklake_core.staging.staged_table import StagedTable, Step

_Stage = Callable[["StagedTable", "Step"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Content:
    """The contents of a lake at one snapshot, by id. Schemas are by name, because a re-created schema can be kept."""

    schemas: dict[str, SchemaState]
    tables: dict[int, TableListing]
    views: dict[int, ViewState]
    macros: dict[int, Macro]

    @classmethod
    def read(cls, reader: CatalogReader, snapshot_id: int) -> _Content:
        return cls(
            schemas={folded(schema.name): schema for schema in reader.schemas(snapshot_id)},
            tables={table.id: table for table in reader.tables(snapshot_id)},
            views={view.id: view for view in views(reader, snapshot_id)},
            macros={macro.id: macro for macro in macros(reader, snapshot_id)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRestore:
    """The differences between the current lake and an earlier snapshot.

    Attributes:
        now: Current contents.
        then: Earlier contents.
        altered: Tables that exist in both, in their earlier state, whose definition may differ.
        changed_rows: Tables that exist in both, in their earlier state, whose rows may differ.
        dropped_tables: Tables that no longer exist, in their earlier state.
    """

    now: _Content
    then: _Content
    altered: tuple[TableState, ...]
    changed_rows: tuple[TableState, ...]
    dropped_tables: tuple[TableState, ...]

    @classmethod
    def plan(cls, reader: CatalogReader, then: Snapshot, base: Snapshot) -> LakeRestore:
        """Compare two snapshots. Tables that are the same at both are not compared individually."""
        before, now = _Content.read(reader, then.id), _Content.read(reader, base.id)
        both = before.tables.keys() & now.tables.keys()
        defined = both & changed_definitions(reader, then.id)
        rows = {
            number
            for table in plan_lake_changes(reader, then.id, base.id).tables
            if table.rows or table.unknown is not None
            for number in (table.id_before, table.id_after)
        }
        # A table that was renamed, or whose columns changed, has two names or two forms, so its rows are compared.
        changed = (both & rows) | defined
        states = {number: reader.table_by_id(number, then.id) for number in sorted(changed | (before.tables.keys() - both))}
        return cls(
            now=now,
            then=before,
            altered=tuple(states[number] for number in sorted(defined)),
            changed_rows=tuple(states[number] for number in sorted(changed)),
            dropped_tables=tuple(state for number, state in states.items() if number not in both),
        )

    def stage_definitions(self, catalog: StagedCatalog, stage: _Stage) -> None:
        """Stage everything except rows and dropped tables: first drops, then schemas and names, then restored objects."""
        # The order matters: drops free names, schemas come before their tables, tables get their names before definitions are found by
        # name, and views and macros come last because they use tables.
        self._drop(catalog)
        for name, schema in self.then.schemas.items():
            if name not in self.now.schemas:
                catalog.create_schema(schema.name)
            _tag_schema(catalog, catalog.schema(schema.name), schema)
        self._rename(catalog, stage)
        for then in self.altered:
            staged = catalog.table(join_name(then.schema_name, then.name))
            step = staged.alteration(partial(alterations.restore_definition, then=then), discards=True)
            if staged.committed is not None and difference(staged.committed, step.after) != difference(staged.committed, staged.state):
                stage(staged, step)
        for number, view in self.then.views.items():
            if number not in self.now.views:
                catalog.restore_view(catalog.schema(view.schema_name), view)
            else:
                _tag_view(catalog, view)
        for number, macro in self.then.macros.items():
            if number not in self.now.macros:
                catalog.create_macro(catalog.schema(macro.schema_name), macro.name, macro.implementations)

    def _drop(self, catalog: StagedCatalog) -> None:
        for name, schema in self.now.schemas.items():
            around = parent_schema(name)
            if name not in self.then.schemas and (around is None or around in self.then.schemas):
                catalog.drop_schema(schema, cascade=True)
        kept = self.then.schemas
        for number, table in self.now.tables.items():
            if number not in self.then.tables and folded(table.schema_name) in kept:
                catalog.drop_table(join_name(table.schema_name, table.name))
        for number, view in self.now.views.items():
            if number not in self.then.views and folded(view.schema_name) in kept:
                catalog.drop_view(join_name(view.schema_name, view.name))
        for number, macro in self.now.macros.items():
            if number not in self.then.macros and folded(macro.schema_name) in kept:
                found = catalog.find_macro(join_name(macro.schema_name, macro.name), macro.kind)
                assert found is not None
                catalog.drop_macro(found)

    def _rename(self, catalog: StagedCatalog, stage: _Stage) -> None:
        """Give tables and views their old names, through unused names, because some may have been exchanged."""
        tables = [(self.now.tables[i], table) for i, table in self.then.tables.items() if i in self.now.tables]
        renamed = [(now, then, uuid7()) for now, then in tables if now.name != then.name]
        seen = [(self.now.views[i], view) for i, view in self.then.views.items() if i in self.now.views]
        renamed_views = [(now, then, uuid7()) for now, then in seen if now.name != then.name]
        for now, _, passing in renamed:
            _rename_table(catalog, stage, join_name(now.schema_name, now.name), passing)
        for now_view, _, passing in renamed_views:
            catalog.rename_view(catalog.view(join_name(now_view.schema_name, now_view.name)), passing)
        for now, then, passing in renamed:
            _rename_table(catalog, stage, join_name(now.schema_name, passing), then.name)
        for now_view, then_view, passing in renamed_views:
            catalog.rename_view(catalog.view(join_name(now_view.schema_name, passing)), then_view.name)


def _rename_table(catalog: StagedCatalog, stage: _Stage, name: str, new_name: str) -> None:
    staged = catalog.table(name)
    step = staged.alteration(partial(alterations.rename_table, name=new_name))
    catalog.move_table(staged, new_name)
    stage(staged, step)


def _tag_schema(catalog: StagedCatalog, now: SchemaState, then: SchemaState) -> None:
    wanted = {**then.tags, **({} if then.comment is None else {COMMENT: then.comment})}
    for key in dict.fromkeys((*wanted, *now.tags, COMMENT)):
        catalog.tag_schema(now, key, wanted.get(key))


def _tag_view(catalog: StagedCatalog, then: ViewState) -> None:
    staged = catalog.view(join_name(then.schema_name, then.name))
    wanted = {**then.tags, **({} if then.comment is None else {COMMENT: then.comment})}
    present = {**staged.state.tags, **({} if staged.state.comment is None else {COMMENT: staged.state.comment})}
    for key in dict.fromkeys((*wanted, *present)):
        if wanted.get(key) != present.get(key):
            staged.tag(key, wanted.get(key))
    columns, had = then.column_comments, staged.state.column_comments
    for column in dict.fromkeys((*columns, *had)):
        if columns.get(column) != had.get(column):
            staged.tag(COMMENT, columns.get(column), column)
