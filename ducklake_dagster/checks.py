"""Asset checks from snapshot statistics: answered by the catalog alone, one step for all assets, no Spark and no data read."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from ducklake_core import DuckLake, Table
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.asset_tables import AssetTable, asset_tables

Assets = Iterable[dg.AssetsDefinition | dg.AssetSpec]
_Evaluate = Callable[[DuckLake, AssetTable], tuple[bool, str, Mapping[str, Any]]]


def build_row_count_change_checks(
    *,
    assets: Assets,
    max_drop: float | None = None,
    max_growth: float | None = None,
    min_rows: int = 1,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    blocking: bool = False,
    lake_key: str = "lake",
    schema: str | None = None,
) -> Sequence[dg.AssetChecksDefinition]:
    """Checks that compare a table's rows with those before the last commit that touched it.

    Args:
        assets: Assets that are DuckLake tables.
        max_drop: Largest fraction of rows that may disappear in one commit, 0.3 for 30 %; None for any.
        max_growth: Largest growth in one commit as a fraction of the rows before; None for any.
        min_rows: Fewest rows that the table must have now.
        severity: ERROR or WARN; only ERROR stops what is downstream of a blocking check.
        blocking: Whether downstream assets of the same run wait for the check.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The IO manager's ``schema``.

    Raises:
        UsageError: A bound below 0.
    """
    for name, bound in (("max_drop", max_drop), ("max_growth", max_growth), ("min_rows", min_rows)):
        if bound is not None and bound < 0:
            raise UsageError(f"{name} must not be negative, it is {bound}")

    def evaluate(lake: "DuckLake", table: AssetTable) -> tuple[bool, str, Mapping[str, Any]]:
        now = lake.table_info(table.address.sql)
        before = _rows_before_last_commit(lake, table)
        change = (now.row_count - before) / before if before else None
        faults = [f"{now.row_count} rows are fewer than {min_rows}"] if now.row_count < min_rows else []
        if change is not None and max_drop is not None and -change > max_drop:
            faults.append(f"{-change:.1%} of the rows disappeared, more than {max_drop:.1%}")
        if change is not None and max_growth is not None and change > max_growth:
            faults.append(f"the rows grew by {change:.1%}, more than {max_growth:.1%}")
        metadata = {"ducklake/snapshot_id": now.snapshot_id, "dagster/row_count": now.row_count}
        if before is not None:
            metadata["ducklake/rows_before"] = before
        return not faults, "; ".join(faults) or f"{now.row_count} rows, {before if before is not None else 'none known'} before", metadata

    return [_one_step(assets, "row_count_change", evaluate, severity=severity, blocking=blocking, lake_key=lake_key, schema=schema)]


def build_null_fraction_checks(
    *,
    assets: Assets,
    columns: Mapping[str, float],
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
    blocking: bool = False,
    lake_key: str = "lake",
    schema: str | None = None,
) -> Sequence[dg.AssetChecksDefinition]:
    """Checks that bound the fraction of NULLs per column, by the statistics of the table's live files and its inlined rows.

    Rows that a delete hides in a file that stays still count, as in the catalog's own statistics.  A column that no statistics
    tell about fails the check, because nothing is known about it.

    Args:
        assets: Assets that are DuckLake tables; each must have all of the columns.
        columns: Largest fraction of NULLs by column name, 0.0 for none at all.
        severity: ERROR or WARN; only ERROR stops what is downstream of a blocking check.
        blocking: Whether downstream assets of the same run wait for the check.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The IO manager's ``schema``.

    Raises:
        UsageError: No columns, or a fraction outside of 0 to 1.
    """
    if not columns or any(not 0 <= fraction <= 1 for fraction in columns.values()):
        raise UsageError(f"columns must map column names to fractions from 0 to 1, not {dict(columns)!r}")

    def evaluate(lake: "DuckLake", table: AssetTable) -> tuple[bool, str, Mapping[str, Any]]:
        opened = lake.table(table.address.sql)
        faults: list[str] = []
        metadata: dict[str, Any] = {"ducklake/snapshot_id": opened.snapshot_id}
        for column, largest in columns.items():
            fraction = _null_fraction(opened, column)
            if isinstance(fraction, str):
                faults.append(fraction)
                continue
            metadata[f"null_fraction/{column}"] = fraction
            if fraction > largest:
                faults.append(f"{fraction:.2%} of {column!r} is NULL, more than {largest:.2%}")
        return not faults, "; ".join(faults) or f"NULLs of {', '.join(columns)} are within bounds", metadata

    return [_one_step(assets, "null_fraction", evaluate, severity=severity, blocking=blocking, lake_key=lake_key, schema=schema)]


def _null_fraction(table: Table, column: str) -> float | str:
    """The fraction, or why there is none."""
    found = table.schema.find(column)
    summary = table.column_summaries().get(found.name) if found else None
    if found is None or summary is None:
        return f"there is no column {column!r}" if found is None else f"column {column!r} has no statistics of its own"
    if summary.null_count is None or summary.value_count is None:
        return f"the files have no statistics of {column!r}"
    nulls, rows = summary.null_count, summary.null_count + summary.value_count
    inlined = table.scan([found.name]).plan().plan.inlined
    if inlined is not None:
        nulls, rows = nulls + inlined[found.name].null_count, rows + inlined.num_rows
    return nulls / rows if rows else 0.0


def _one_step(
    assets: Assets,
    name: str,
    evaluate: _Evaluate,
    *,
    severity: dg.AssetCheckSeverity,
    blocking: bool,
    lake_key: str,
    schema: str | None,
) -> dg.AssetChecksDefinition:
    tables = asset_tables(assets, schema)
    specs = [dg.AssetCheckSpec(name=name, asset=table.key, blocking=blocking) for table in tables]
    step_name = "__".join(["ducklake", name, *sorted(table.key.to_python_identifier() for table in tables)])

    @dg.multi_asset_check(name=step_name[:200], specs=specs, can_subset=True, required_resource_keys={lake_key})
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        selected = context.selected_asset_check_keys
        for table in tables:
            if dg.AssetCheckKey(table.key, name) in selected:
                yield _result(lake, table, name, evaluate, severity)

    return check


def _result(lake: "DuckLake", table: AssetTable, name: str, evaluate: _Evaluate, severity: dg.AssetCheckSeverity) -> dg.AssetCheckResult:
    try:
        passed, description, metadata = evaluate(lake, table)
    except NotFoundError:
        # One missing table must not keep the other checks of the step from being made.
        passed, description, metadata = False, f"there is no table {table.address}", {}
    return dg.AssetCheckResult(
        passed=passed, asset_key=table.key, check_name=name, description=description, metadata=metadata, severity=severity
    )


def _rows_before_last_commit(lake: "DuckLake", table: AssetTable) -> int | None:
    """Rows at the last surviving snapshot before the newest one that touched the table; None when the table was not there."""
    history = lake.table(table.address.sql).snapshots()
    earlier = [snapshot.id for snapshot in lake.snapshots() if history and snapshot.id < history[-1].id]
    if not earlier:
        return None
    try:
        return lake.table_info(table.address.sql, at=earlier[-1]).row_count
    except NotFoundError:
        return None
