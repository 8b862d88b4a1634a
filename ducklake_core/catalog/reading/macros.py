"""Macros: expressions and queries with parameters, for DuckDB to call (specification: ducklake_macro, ducklake_macro_impl)."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import and_, select

from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import live
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.macro_text import MacroImplementation, MacroKind, MacroParameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """A macro at one snapshot."""

    id: int
    schema_id: int
    schema_name: str
    name: str
    implementations: tuple[MacroImplementation, ...]

    @property
    def kind(self) -> MacroKind:
        """Whether it makes values or rows; all of its definitions do the same."""
        return self.implementations[0].kind if self.implementations else "scalar"


def macros(reader: CatalogReader, snapshot_id: int) -> list[Macro]:
    """All macros at a snapshot, by schema, name and id: two statements whatever their number."""
    found: dict[int, Macro] = {}
    parameters = _parameters(reader, snapshot_id)
    macro, schema, implementation = reader.catalog["macro"], reader.catalog.schemas, reader.catalog["macro_impl"]
    query = (
        select(macro.c.macro_id, macro.c.macro_name, schema.c.schema_id, schema.c.schema_name, implementation)
        .select_from(
            macro.join(schema, schema.c.schema_id == macro.c.schema_id).outerjoin(
                implementation, implementation.c.macro_id == macro.c.macro_id
            )
        )
        .where(live(macro, snapshot_id), live(schema, snapshot_id))
        .order_by(schema.c.schema_name, macro.c.macro_name, macro.c.macro_id, implementation.c.impl_id)
    )
    for row in reader.connection.execute(query):
        before = found.get(row.macro_id)
        own: tuple[MacroImplementation, ...] = ()
        if row.impl_id is not None:
            if row.type not in ("scalar", "table"):
                where = f"{row.schema_name}.{row.macro_name}"
                raise CatalogCorruptError(f"macro {where} is neither scalar nor table: {row.type!r}", macro=where)
            of_it = parameters.get((row.macro_id, row.impl_id), ())
            own = (MacroImplementation(kind=row.type, dialect=row.dialect or "duckdb", sql=row.sql or "", parameters=tuple(of_it)),)
        found[row.macro_id] = Macro(
            id=row.macro_id,
            schema_id=row.schema_id,
            schema_name=row.schema_name,
            name=row.macro_name,
            implementations=(*(before.implementations if before else ()), *own),
        )
    return list(found.values())


def _parameters(reader: CatalogReader, snapshot_id: int) -> dict[tuple[int, int], list[MacroParameter]]:
    macro, parameter = reader.catalog["macro"], reader.catalog["macro_parameters"]
    query = (
        select(parameter)
        .join(macro, and_(macro.c.macro_id == parameter.c.macro_id, live(macro, snapshot_id)))
        .order_by(parameter.c.macro_id, parameter.c.impl_id, parameter.c.column_id)
    )
    found: dict[tuple[int, int], list[MacroParameter]] = {}
    for row in reader.connection.execute(query):
        # A default is missing where its type is unknown: its text is then NULL, which is no default.
        has_default = row.default_value_type not in (None, "", "unknown")
        found.setdefault((row.macro_id, row.impl_id), []).append(
            MacroParameter(
                name=row.parameter_name,
                type=None if row.parameter_type in (None, "", "unknown") else row.parameter_type,
                default=row.default_value if has_default else None,
                default_type=row.default_value_type if has_default else None,
            )
        )
    return found
