"""Asset specs for tables and views that something else writes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import NoneType
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import folded
from ducklake_dagster.assets.naming import table_address
from ducklake_dagster.assets.settings import plain_metadata
from ducklake_dagster.assets.translator import DuckLakeTranslator, LakeTable, read_lake_tables

if TYPE_CHECKING:
    from ducklake_core import DuckLake
    from ducklake_dagster.config.resources import DuckLakeResource


def load_table_specs(
    lake: DuckLakeResource | DuckLake,
    *,
    include: str | Sequence[str] = "*",
    exclude: str | Sequence[str] = (),
    translator: DuckLakeTranslator | None = None,
) -> list[dg.AssetSpec]:
    """An asset for each table and view of a lake, with columns, comments and partition keys; a view is a virtual asset of what it reads.

    The catalog is asked when this is called, which for definitions is each time that a code location loads; no data file is opened.
    :class:`DuckLakeTablesComponent` keeps the answer in a file instead. The assets may be inputs, and :func:`build_commit_sensor` reports
    what others write to them.

    Args:
        lake: The lake, or its resource.
        include: Names or patterns of ``schema.name``, such as ``raw.*``; a pattern without a dot is about the schema ``main``, but for
            ``*``, which is everything.
        exclude: Likewise, what to leave out.
        translator: Keys, groups, partitions and the rest of a definition.

    Raises:
        UsageError: A name that neither a table nor a view has, or two tables that get the same asset key.
        CatalogUnavailableError: The catalog cannot be reached.
    """
    from ducklake_core.errors import UsageError
    from ducklake_dagster.config.resources import DuckLakeResource

    if translator is not None and not isinstance(translator, DuckLakeTranslator):
        raise UsageError(f"translator must be a DuckLakeTranslator, made by calling the class, not {translator!r}", parameter="translator")
    opened = lake.process_config_and_initialize().connect() if isinstance(lake, DuckLakeResource) else lake
    if not hasattr(opened, "tables"):
        raise UsageError(f"lake must be a DuckLake or a DuckLakeResource, not {lake!r}", parameter="lake")
    return table_specs(read_lake_tables(opened, include, exclude), translator or DuckLakeTranslator())


def table_specs(tables: Sequence[LakeTable], translator: DuckLakeTranslator) -> list[dg.AssetSpec]:
    """The assets of tables that were read before.

    What a view reads is a dependency even when it is not among ``tables``, under the key that it would have.
    """
    from ducklake_core.errors import UsageError

    known = {table.qualified_name: table for table in tables}
    for table in tables:
        for name in table.references:
            known.setdefault(name, _named(name))
    with warnings.catch_warnings():
        # Dagster says that virtual assets may change, which is for this library to follow.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        specs = [_spec(translator, table, known) for table in tables]
    by_key: dict[dg.AssetKey, str] = {}
    for table, spec in zip(tables, specs, strict=True):
        other = by_key.setdefault(spec.key, table.qualified_name)
        if other != table.qualified_name:
            raise UsageError(
                f"{other} and {table.qualified_name} would both be the asset {spec.key.to_user_string()}: give them keys of their own "
                "in the translator",
                asset=spec.key.to_user_string(),
            )
    return specs


def _spec(translator: DuckLakeTranslator, table: LakeTable, known: Mapping[str, LakeTable]) -> dg.AssetSpec:
    """The asset that the translator makes of a table, of which the IO manager and the sensor would find that table again."""
    from ducklake_core.errors import UsageError

    name, about = type(translator).__name__, table.qualified_name
    parts: Sequence[tuple[str, Any, str]] = (
        ("get_asset_key", (dg.AssetKey, str, Sequence), "an AssetKey"),
        ("get_kinds", (AbstractSet, list, tuple, NoneType), "a set of texts"),
        ("get_metadata", Mapping, "a mapping"),
    )
    for method, kind, wanted in parts:
        part = getattr(translator, method)(table)
        if not isinstance(part, kind):
            raise UsageError(f"{name}.{method} must return {wanted}, and returned {part!r} for {about}", method=method)
    spec = translator.get_asset_spec(table, references=known)
    if not isinstance(spec, dg.AssetSpec):
        raise UsageError(f"{name}.get_asset_spec must return an AssetSpec, and returned {spec!r} for {about}", method="get_asset_spec")
    found = table_address(spec.key.path, plain_metadata(spec.metadata), None)
    if folded(found.sql) != folded(about):
        raise UsageError(
            f"{name} makes an asset of {about} whose metadata stands for the table {found}: keep 'schema' and 'table' of what get_metadata "
            "returns",
            asset=spec.key.to_user_string(),
        )
    return spec


def _named(name: str) -> LakeTable:
    """A table that only a view speaks of."""
    from ducklake_core import split_name

    schema, table = split_name(name)
    return LakeTable(schema=schema, name=table)
