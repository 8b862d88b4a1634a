"""Tells Dagster's pages which table an asset is before it was ever materialised."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.io_manager import DuckLakeIOManager, branch_settings, lake_of_outputs
from ducklake_dagster.naming import table_address
from ducklake_dagster.validation import manager_of
from ducklake_dagster.write_settings import plain_metadata

_KIND = "ducklake"
# Dagster refuses an asset of more kinds.
_MOST_KINDS = 10


def with_table_metadata(defs: dg.Definitions) -> dg.Definitions:
    """The same definitions, in which every asset that a :class:`DuckLakeIOManager` stores says which table it is.

    Dagster shows that as the asset's storage. Added are ``dagster/table_name`` (the branch's table, where the manager writes to a branch;
    nothing, where a ``dg.EnvVar`` decides), ``dagster/uri`` (the folder that a new table gets, if the data path is part of the
    definitions), ``dagster/storage_kind`` and the kind ``ducklake``; what an asset says itself is left alone.

    Args:
        defs: The project's definitions; nothing is connected to.
    """
    managers = {
        spec.key: manager
        for assets in defs.resolve_asset_graph().assets_defs
        for spec in assets.specs
        if (manager := manager_of(defs, assets, spec.key)) is not None
    }
    with warnings.catch_warnings():
        # Dagster says that this may change, which is for this library to follow.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return defs.map_asset_specs(func=_describer(managers))


def _describer(managers: dict[dg.AssetKey, DuckLakeIOManager]) -> Callable[[dg.AssetSpec], dg.AssetSpec]:
    def describe(spec: dg.AssetSpec) -> dg.AssetSpec:
        manager = managers.get(spec.key)
        if manager is None:
            return spec
        try:
            metadata = {**_storage(spec, manager), **spec.metadata}
        except UsageError:
            # A run says what is wrong with its name, and so does validate.
            return spec
        kinds = {*spec.kinds, _KIND} if len(spec.kinds) < _MOST_KINDS else spec.kinds
        return spec.replace_attributes(metadata=metadata, kinds=kinds)

    return describe


def _storage(spec: dg.AssetSpec, manager: DuckLakeIOManager) -> dict[str, Any]:
    if any(isinstance(setting, dg.EnvVar) for setting in (manager.schema_, manager.branch)):
        # Only a run knows which table it is.
        return {"dagster/storage_kind": _KIND}
    address = table_address(spec.key.path, plain_metadata(spec.metadata), manager.schema_)
    branch = branch_settings(manager)
    address = branch.address(address) if branch is not None else address
    found = {"dagster/table_name": str(address), "dagster/storage_kind": _KIND}
    storage = getattr(lake_of_outputs(manager), "storage", None)
    path = storage.data_path if storage is not None else None
    if path and not isinstance(path, dg.EnvVar) and not path.startswith("*"):
        found["dagster/uri"] = f"{path.rstrip('/')}/{address.schema}/{address.table}/"
    return found
