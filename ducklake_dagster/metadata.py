"""Build and check the metadata of assets and inputs: tables, write settings, and the rows to read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.assets.settings import (
    Branches,
    ChangesFrom,
    ConcurrentAppends,
    MissingColumns,
    OutOfSlice,
    SchemaEvolution,
    WhenMatched,
    WhenNotMatched,
    WhenNotMatchedBySource,
    WriteMode,
    input_settings,
    name_list,
    plain_metadata,
    reject_wrong_choices,
)
from ducklake_dagster.assets.tables import KEY_PREFIX, MAPPING_KEY, table_address
from ducklake_dagster.io.audits import Audit, stored_audits
from ducklake_dagster.io_manager import DuckLakeIOManager, branch_settings, lake_of_outputs
from ducklake_dagster.validation import manager_of

_KIND = "ducklake"
# Dagster rejects an asset that has more kinds.
_MAX_KINDS = 10


def ducklake_metadata(  # noqa: PLR0913 - one call configures one asset
    *,
    table: str | None = None,
    schema: str | None = None,
    partition_expr: str | Mapping[str, str] | None = None,
    partition_by: str | Sequence[str] = (),
    sort_by: str | Sequence[str] = (),
    write_mode: WriteMode | None = None,
    upsert_keys: str | Sequence[str] = (),
    merge_keys: str | Sequence[str] = (),
    merge_on: str | None = None,
    when_matched: WhenMatched | Branches | None = None,
    when_not_matched: WhenNotMatched | Branches | None = None,
    when_not_matched_by_source: WhenNotMatchedBySource | Branches | None = None,
    delete_when: str | None = None,
    schema_evolution: SchemaEvolution | None = None,
    missing_columns: MissingColumns | None = None,
    out_of_slice: OutOfSlice | None = None,
    shared: bool | None = None,
    concurrent_appends: ConcurrentAppends | None = None,
    audits: Mapping[str, Audit] | None = None,
) -> dict[str, Any]:
    """Return definition metadata of an asset for :class:`DuckLakeIOManager`. The settings of the IO manager apply to omitted arguments.

    Args:
        table: Table name; the last part of the asset key by default.
        schema: DuckLake schema, such as ``sales``, or ``sales.europe`` for a nested one. ``{key_prefix}`` is replaced by the asset key
            without its last part.
        partition_expr: Column that holds the values of partition keys, or ``{dimension: column}``; ``CAST(column AS DATE)`` and
            ``date_trunc('month', column)`` are allowed when the partitions are whole days or months, ``strptime(column, '%Y%m%d')``,
            ``to_timestamp(column)`` and ``epoch_ms(column)`` for columns that store times as strings or integers.
        partition_by: Partition key or keys of the table. The next write also changes the keys of an existing table, for new files.
        sort_by: Sort order of new files, such as ``["day", "amount DESC"]``. The next write also changes it for an existing table.
        write_mode: ``overwrite``, ``append``, ``upsert``, ``merge``, ``error`` or ``ignore``. ``error`` fails the step if the table exists
            or, for a partitioned asset, if the run's partitions have rows; ``ignore`` then keeps those rows and skips the frame's.
        upsert_keys: Key column or columns of an upsert.
        merge_keys: Column or columns that a merge compares to match rows.
        merge_on: SQL condition that matches rows, in place of ``merge_keys``, such as ``t.id = s.id``. ``t`` is the table and ``s`` the
            frame. It needs at least one equality between the two.
        when_matched: Action of a merge on a row of the table that matches a row of the frame: ``update``, ``ignore`` or ``delete``. It
            may also be a mapping with ``action``, ``where`` (SQL condition on ``t.column`` and ``s.column``) and ``set`` (SQL expression
            by column), or a list of mappings. The first one with a true condition is used.
        when_not_matched: Action of a merge on a row of the frame without a match: ``insert`` or ``ignore``, or mappings as above.
        when_not_matched_by_source: Action of a merge on a row of the run's partitions without a match in the frame: ``keep`` or
            ``delete``, or mappings as above, which may also update.
        delete_when: SQL condition on the frame's columns as ``s.column``. If it is true, a matched row is deleted, and an unmatched
            row of the frame is not inserted.
        schema_evolution: ``strict``, ``additive`` or, for an unpartitioned asset, ``replace``.
        missing_columns: ``error``, ``null`` or ``auto``, which is ``error`` with ``strict`` and ``null`` with ``additive``.
        out_of_slice: ``error`` or ``filter``.
        shared: Whether an overwrite may replace rows that another asset wrote to the same table.
        concurrent_appends: Treatment of rows that another writer commits to the run's partitions during an overwrite: ``fail`` or
            ``replace``.
        audits: Conditions for the commit, by name: SQL that must be true for every row of the run's partitions as the commit would leave
            them (of the whole table, without partitions), or a module-level function that takes a :class:`ducklake_core.Scan` of those
            rows and returns a bool. A write that fails an audit leaves the table as it was.

    Raises:
        UsageError: The value of a setting is invalid.
    """
    lists = {"partition_by": partition_by, "sort_by": sort_by, "upsert_keys": upsert_keys, "merge_keys": merge_keys}
    settings = {
        "table": table,
        "schema": schema,
        "partition_expr": partition_expr,
        **{name: list(name_list(name, value)) or None for name, value in lists.items()},
        "write_mode": write_mode,
        "merge_on": merge_on,
        "when_matched": when_matched,
        "when_not_matched": when_not_matched,
        "when_not_matched_by_source": when_not_matched_by_source,
        "delete_when": delete_when,
        "schema_evolution": schema_evolution,
        "missing_columns": missing_columns,
        "out_of_slice": out_of_slice,
        "shared": shared,
        "concurrent_appends": concurrent_appends,
        "audits": stored_audits(audits) if audits is not None else None,
    }
    if table and schema and KEY_PREFIX not in schema and MAPPING_KEY not in table:
        # With only one of them, the other comes from the asset key or the IO manager, which are not known here.
        settings["dagster/table_name"] = str(table_address([table], settings, None))
    settings["dagster/storage_kind"] = "ducklake"
    found = {name: value for name, value in settings.items() if value is not None}
    reject_wrong_choices(found, "ducklake_metadata")
    return found


def ducklake_input(
    *,
    columns: str | Sequence[str] = (),
    where: str | None = None,
    snapshot: int | None = None,
    as_of: datetime | str | None = None,
    run_id: str | None = None,
    changes: ChangesFrom | None = None,
    production: bool | None = None,
) -> dict[str, Any]:
    """Return metadata of an input for :class:`DuckLakeIOManager`: ``AssetIn(metadata=ducklake_input(...))``.

    Set at most one of ``snapshot``, ``as_of``, ``run_id`` and ``changes``. Without them, the newest rows are read.

    Args:
        columns: Columns to load; all when empty.
        where: Condition on rows, SQL in DuckDB's dialect, in addition to the run's partitions.
        snapshot: Id of the snapshot to read.
        as_of: Time with a zone, as a datetime or an ISO 8601 string. The last snapshot at or before this time is read.
        run_id: Id of a run of this Dagster instance that materialised the upstream asset. The table is read as that run left it.
        changes: Load changes instead of rows, with the columns ``snapshot_id``, ``rowid`` and ``change_type`` before the table's:
            ``last_materialization`` for changes since the snapshot that the last materialisation of this asset read (all rows, as
            inserts, the first time), ``beginning`` for all rows as inserts.
        production: Whether to read production even if the manager's branch has the table.

    Raises:
        UsageError: Two arguments select a snapshot, or a time has no zone.
    """
    settings = {
        "columns": list(name_list("columns", columns)) or None,
        "ducklake/where": where,
        "ducklake/snapshot": snapshot,
        "ducklake/as_of": as_of.isoformat() if isinstance(as_of, datetime) else as_of,
        "ducklake/run_id": run_id,
        "ducklake/changes": changes,
        "ducklake/production": production,
    }
    found = {name: value for name, value in settings.items() if value is not None}
    input_settings(found, "ducklake_input")
    return found


def with_table_metadata(defs: dg.Definitions) -> dg.Definitions:
    """Return the definitions with the table of every asset that a :class:`DuckLakeIOManager` stores, which Dagster shows as its storage.

    Adds ``dagster/table_name`` (the branch's table, where the manager writes to a branch;
    left out where a ``dg.EnvVar`` decides), ``dagster/uri`` (the folder of a new table, if the data path is part of the definitions),
    ``dagster/storage_kind`` and the kind ``ducklake``. Metadata of the asset itself is kept.

    Args:
        defs: The project's definitions. The function does not connect to the lake.
    """
    managers = {
        spec.key: manager
        for assets in defs.resolve_asset_graph().assets_defs
        for spec in assets.specs
        if (manager := manager_of(defs, assets, spec.key)) is not None
    }
    with warnings.catch_warnings():
        # Dagster marks this API as a preview; users of this library cannot act on the warning.
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
            # Definitions must load: the run and validate() report what is wrong with the name.
            return spec
        kinds = {*spec.kinds, _KIND} if len(spec.kinds) < _MAX_KINDS else spec.kinds
        return spec.replace_attributes(metadata=metadata, kinds=kinds)

    return describe


def _storage(spec: dg.AssetSpec, manager: DuckLakeIOManager) -> dict[str, Any]:
    if any(isinstance(setting, dg.EnvVar) for setting in (manager.schema_, manager.branch)):
        # The variable is read when a run begins, so the table is not known here.
        return {"dagster/storage_kind": _KIND}
    address = table_address(spec.key.path, plain_metadata(spec.metadata), manager.schema_)
    branch = branch_settings(manager)
    address = branch.address(address) if branch is not None else address
    found = {"dagster/table_name": str(address), "dagster/storage_kind": _KIND}
    storage = getattr(lake_of_outputs(manager), "storage", None)
    path = storage.data_path if storage is not None else None
    # A path with a password is a placeholder of asterisks here, not an address.
    if path and not isinstance(path, dg.EnvVar) and not path.startswith("*"):
        found["dagster/uri"] = f"{path.rstrip('/')}/{address.schema}/{address.table}/"
    return found
