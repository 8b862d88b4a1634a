"""Which table a check judges: the branch's where the run writes to a branch that has it, otherwise that of production."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.asset_tables import AssetTable
from ducklake_dagster.branches import branch_holds

if TYPE_CHECKING:
    from ducklake_core import DuckLake
    from ducklake_dagster.branches import Branch


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTable:
    """What a check of an asset looks at.

    Attributes:
        table: The asset, with the address of the table.
        lake: The lake that holds it.
        branch: The branch of the run, None in production.
        lakes: The branch's lake and that of production, which may be one; that of production alone without a branch.
        fault: Why nobody knows which table is the right one; empty when it is known.
    """

    table: AssetTable
    lake: DuckLake
    branch: Branch | None = None
    lakes: Sequence[DuckLake] = ()
    fault: str = ""


def io_manager_keys(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> Mapping[dg.AssetKey, str]:
    """Resource keys of the IO managers that assets are stored with; what others write has none."""
    return {
        key: asset.get_io_manager_key_for_asset_key(key)
        for asset in assets
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable
        for key in asset.keys
    }


def judged_table(table: AssetTable, production: DuckLake, manager: object, keys: Sequence[str] | None) -> JudgedTable:
    """The table that is judged.

    Args:
        table: The asset.
        production: The lake of production.
        manager: What the run stores the asset with, None for an asset that no run stores.
        keys: Partitions that are judged, None for all of the table.
    """
    from ducklake_dagster.io_manager import DuckLakeIOManager, branch_settings, writing_lake

    branch = branch_settings(manager) if isinstance(manager, DuckLakeIOManager) else None
    if branch is None or not isinstance(manager, DuckLakeIOManager):
        return JudgedTable(table=table, lake=production, lakes=(production,))
    lake = writing_lake(manager).connect() if branch.own_lake else production
    address = branch.address(table.address)
    found = JudgedTable(table=table, lake=production, branch=branch, lakes=(lake, production))
    try:
        holds = branch_holds(lake, address, keys, table.key.to_user_string())
    except UsageError as error:
        return replace(found, fault=error.message)
    return replace(found, table=replace(table, address=address), lake=lake) if holds else found
