"""Check a project's definitions before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ducklake_core import folded
from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_dagster.assets.settings import (
    INPUT_KEYS,
    OUTPUT_KEYS,
    WriteSettings,
    input_settings,
    plain_metadata,
    reject_replaced_columns,
    reject_unknown_keys,
    resolve_settings,
)
from ducklake_dagster.assets.tables import TableAddress, table_address
from ducklake_dagster.config.resources import DuckLakeResource
from ducklake_dagster.io.audits import audits_of
from ducklake_dagster.io_manager import DuckLakeIOManager, default_settings, lake_of_outputs
from ducklake_dagster.partitions.predicates import reject_equal_keys
from ducklake_dagster.partitions.slices import PartitionDimension, partition_dimensions


def validate(defs: dg.Definitions) -> None:
    """Reject definitions that a run would reject, or that would overwrite each other's tables, without a connection to the lake.

    Checks every asset whose IO manager, among the resources of ``defs``, is a :class:`DuckLakeIOManager`. Rejects assets that share one
    table of one lake while one of them overwrites it without ``shared=True``; settings and metadata keys that do not exist; partitions
    without a ``partition_expr`` that names a column for each dimension; and static partition keys that are equal as values of their
    column, if ``dagster/column_schema`` in the metadata declares its type. Call it in a test of the project.

    Args:
        defs: The project's definitions.

    Raises:
        UsageError: The definitions have faults; the message lists all of them.
    """
    faults: list[str] = []
    tables: dict[tuple[str, str], list[_Written]] = {}
    for assets in defs.resolve_asset_graph().assets_defs:
        faults += _input_faults(assets)
        for spec in assets.specs:
            manager = manager_of(defs, assets, spec.key)
            if manager is None:
                continue
            try:
                written, place = _written(spec, manager), _lake_of(manager)
            except DuckLakeError as error:
                faults.append(error.message)
                continue
            tables.setdefault((place, folded(str(written.address))), []).append(written)
    for sharing in tables.values():
        faults += _sharing_faults(sharing)
    # A fault of the IO manager, such as a missing lake, is found once for each of its assets.
    faults = list(dict.fromkeys(faults))
    if faults:
        text = (
            faults[0]
            if len(faults) == 1
            else "\n".join([f"the definitions have {len(faults)} errors:", *(f"- {fault}" for fault in faults)])
        )
        raise UsageError(text, faults=tuple(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """An asset, its table and how it is written."""

    asset: str
    address: TableAddress
    settings: WriteSettings


def manager_of(defs: dg.Definitions, assets: dg.AssetsDefinition, key: dg.AssetKey) -> DuckLakeIOManager | None:
    """Return the IO manager that stores an asset's output, None when it is not a :class:`DuckLakeIOManager`."""
    if not assets.is_executable or not assets.is_materializable:
        return None
    output = assets.node_def.output_dict[assets.get_output_name_for_asset_key(key)]
    if output.dagster_type.is_nothing:
        return None
    found = (defs.resources or {}).get(assets.get_io_manager_key_for_asset_key(key))
    return found if isinstance(found, DuckLakeIOManager) else None


def _written(spec: dg.AssetSpec, manager: DuckLakeIOManager) -> _Written:
    subject, metadata = spec.key.to_user_string(), plain_metadata(spec.metadata)
    reject_unknown_keys(metadata, OUTPUT_KEYS, f"asset {subject}")
    audits_of(metadata, subject)
    if spec.partitions_def is not None:
        _reject_equal_keys(partition_dimensions(spec.partitions_def, metadata.get("partition_expr"), subject=subject), metadata, subject)
    settings = resolve_settings(default_settings(manager), metadata, subject=subject)
    reject_replaced_columns(settings, partitioned=spec.partitions_def is not None, subject=subject)
    return _Written(asset=subject, address=table_address(spec.key.path, metadata, manager.schema_), settings=settings)


def _reject_equal_keys(dimensions: Sequence[PartitionDimension], metadata: Mapping[str, Any], subject: str) -> None:
    """Reject partition keys that are equal as values of a column whose type the metadata declares or ``partition_expr`` implies."""
    from ducklake_core import data_type_of

    schema = metadata.get("dagster/column_schema")
    declared = {folded(column.name): column.type for column in schema.columns} if isinstance(schema, dg.TableSchema) else {}
    for dimension in dimensions:
        unit, column = dimension.expression.unit, dimension.column
        try:
            type_name = str(data_type_of(declared.get(folded(column), "varchar")))
        except DuckLakeError:
            # The declared type belongs to another system; the write checks the type of the table itself.
            type_name = "varchar"
        reject_equal_keys(dimension.all_keys(), unit, type_name, column, subject=subject)


def _lake_of(manager: DuckLakeIOManager) -> str:
    lake: object = lake_of_outputs(manager)
    # A lake that is configured at launch has no settings yet, so only the object itself identifies it.
    place = (lake.catalog, lake.storage) if isinstance(lake, DuckLakeResource) else id(lake)
    # A branch without a lake of its own has tables of its own in production's.
    branch = manager.branch if lake is manager.lake else None
    return repr((place, branch or None))


def _input_faults(assets: dg.AssetsDefinition) -> Iterator[str]:
    if not assets.is_executable:
        return
    for taken in assets.node_def.input_defs:
        try:
            subject = f"{taken.name} of {assets.node_def.name}"
            reject_unknown_keys(plain_metadata(taken.metadata), INPUT_KEYS, f"input {subject}")
            input_settings(plain_metadata(taken.metadata), subject)
        except UsageError as error:
            yield error.message


def _sharing_faults(sharing: list[_Written]) -> Iterator[str]:
    for one in sharing:
        others = [other.asset for other in sharing if other is not one]
        if others and one.settings.replaces_rows and not one.settings.shared:
            yield (
                f"asset {one.asset} would overwrite table {one.address}, which {', '.join(others)} write{'s' if len(others) == 1 else ''} "
                "too. Set another table or schema in its metadata, or set shared=True"
            )
