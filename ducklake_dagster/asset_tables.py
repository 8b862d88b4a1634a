"""Assets and the DuckLake tables behind them, for checks and sensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.naming import TableAddress, table_address
from ducklake_dagster.write_settings import plain_metadata


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
    return [spec for asset in _listed(assets) for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset])]


def _listed(assets: object) -> list[Any]:
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
