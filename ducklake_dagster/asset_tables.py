"""Assets and the DuckLake tables behind them, for checks and sensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import folded, split_name
from ducklake_core.errors import UsageError
from ducklake_dagster.naming import TableAddress, table_address
from ducklake_dagster.write_settings import plain_metadata

if TYPE_CHECKING:
    from ducklake_core import DuckLake

_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetTable:
    """An asset and its table.

    Attributes:
        key: Asset key.
        address: Table.
        partitions_def: None for an unpartitioned asset.
        partition_expr: The asset's metadata of that name.
        declared: Columns that the definition says the table has, None when it does not.
    """

    key: dg.AssetKey
    address: TableAddress
    partitions_def: dg.PartitionsDefinition[str] | None
    partition_expr: object
    declared: dg.TableSchema | None = None


def asset_tables(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec], schema: str | None) -> Sequence[AssetTable]:
    """The tables of assets, named as the IO manager names them.

    Args:
        assets: Definitions or specs; a definition of several assets counts with all of them.
        schema: The IO manager's ``schema``.

    Raises:
        UsageError: Something else than a list of these.
    """
    return [_asset_table(spec, schema) for spec in asset_specs(assets)]


def asset_specs(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.AssetSpec]:
    """The specs of assets; a definition of several assets has several.

    Raises:
        UsageError: Something else than a list of definitions and specs.
    """
    return [spec for asset in listed_assets(assets) for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset])]


def listed_assets(assets: object) -> list[Any]:
    """Definitions and specs as a list.

    Raises:
        UsageError: Something else than a list of these, such as one of them.
    """
    # A spec is a tuple.
    found = list(assets) if isinstance(assets, Iterable) and not isinstance(assets, dg.AssetSpec) else [None]
    if not all(isinstance(one, (dg.AssetSpec, dg.AssetsDefinition)) for one in found):
        raise UsageError(f"assets must be a list of asset definitions and specs, not {assets!r}", parameter="assets")
    return found


def _asset_table(spec: dg.AssetSpec, schema: str | None) -> AssetTable:
    metadata: dict[str, Any] = plain_metadata(spec.metadata)
    return AssetTable(
        key=spec.key,
        address=table_address(spec.key.path, metadata, schema),
        partitions_def=spec.partitions_def,
        partition_expr=metadata.get("partition_expr"),
        declared=declared if isinstance(declared := metadata.get("dagster/column_schema"), dg.TableSchema) else None,
    )


def other_schemas_text(lake: DuckLake, tables: Iterable[AssetTable]) -> str:
    """Which assets have no table where they are looked for, but one of the same name in another schema; empty when there is none.

    Args:
        lake: The lake, which is asked for the names of its tables.
        tables: Assets.
    """
    known: dict[str, list[str]] = {}
    for name in lake:
        known.setdefault(folded(split_name(name)[1]), []).append(name)
    faults = []
    for table in tables:
        found = known.get(folded(table.address.table), [])
        if found and folded(table.address.sql) not in map(folded, found):
            faults.append(f"asset {table.key.to_user_string()} is looked for as {table.address}, and there is {', '.join(found)}")
    more = [f"and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
    return f"{'; '.join([*faults[:_MOST_SHOWN], *more])}: give schema= as the IO manager has it" if faults else ""
