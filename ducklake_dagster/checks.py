"""Asset checks from snapshot statistics: answered by the catalog alone, one step for all assets, no Spark and no data read."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.asset_tables import AssetTable, asset_tables
from ducklake_dagster.slice_predicate import slice_predicate
from ducklake_dagster.table_output import schema_lookup
from ducklake_dagster.table_slice import TableSlice, partition_boxes

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Table

Assets = Iterable[dg.AssetsDefinition | dg.AssetSpec]
Verdict = tuple[bool, str, Mapping[str, Any]]
_Evaluate = Callable[["DuckLake", AssetTable, Sequence[str] | None], Verdict]
# Partitions of a run are compared one by one up to so many, and as a whole beyond.
_MOST_PARTITIONS = 50
_MOST_SHOWN = 10
_LONGEST_NAME = 200
_CHANGE_TEXT = "Rows of the table, or of the run's partitions, against those before the last commit that changed rows."
_NULLS_TEXT = "Fractions of NULLs of columns, by the statistics of the table's files."


def build_row_count_change_checks(
    *,
    assets: Assets,
    name: str = "row_count_change",
    max_drop: float | None = None,
    max_growth: float | None = None,
    min_rows: int = 1,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    blocking: bool = False,
    lake_key: str = "lake",
    schema: str | None = None,
) -> Sequence[dg.AssetChecksDefinition]:
    """Checks that compare a table's rows with those before the last commit that changed rows of it.

    In a run of partitions each of them is compared with itself, so that a day that loses its rows is found in a table of years; of more
    than 50 partitions the whole of them. Commits that change no rows, such as a merge of files, are passed over. The catalog alone answers
    where a table is partitioned as its asset is.

    Args:
        assets: Assets that are DuckLake tables.
        name: Name of the checks; checks of one asset need different ones.
        max_drop: Largest fraction of rows that may disappear in one commit, 0.3 for 30 %; None for any.
        max_growth: Largest growth in one commit as a fraction of the rows before; None for any.
        min_rows: Fewest rows that the whole table must have now.
        severity: ERROR or WARN; only ERROR stops what is downstream of a blocking check.
        blocking: Whether downstream assets of the same run wait for the check.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The IO manager's ``schema``.

    Raises:
        UsageError: A bound below 0.
    """
    for setting, bound in (("max_drop", max_drop), ("max_growth", max_growth), ("min_rows", min_rows)):
        if bound is not None and bound < 0:
            raise UsageError(f"{setting} must not be negative, it is {bound}")

    def fault_of(rows: int, before: int | None) -> str | None:
        change = (rows - before) / before if before else 0.0
        if max_drop is not None and -change > max_drop:
            return f"{-change:.1%} of the rows disappeared, more than {max_drop:.1%}"
        if max_growth is not None and change > max_growth:
            return f"the rows grew by {change:.1%}, more than {max_growth:.1%}"
        return None

    def evaluate(lake: "DuckLake", table: AssetTable, keys: Sequence[str] | None) -> Verdict:
        now = lake.table_info(table.address.sql)
        earlier = _before_last_rows(lake, table)
        metadata: dict[str, Any] = {"ducklake/snapshot_id": now.snapshot_id, "dagster/row_count": now.row_count}
        if earlier is not None:
            metadata["ducklake/compared_with_snapshot"] = earlier.snapshot_id
        faults = [f"{now.row_count} rows are fewer than {min_rows}"] if now.row_count < min_rows else []
        if keys is None:
            before = earlier.info().row_count if earlier is not None else None
            if (fault := fault_of(now.row_count, before)) is not None:
                faults.append(fault)
            if before is not None:
                metadata["ducklake/rows_before"] = before
            return (
                not faults,
                "; ".join(faults) or f"{now.row_count} rows, {before if before is not None else 'none known'} before",
                metadata,
            )
        parts = [[key] for key in keys] if len(keys) <= _MOST_PARTITIONS else [list(keys)]
        current, rows, rows_before = lake.table(table.address.sql), 0, 0
        for part in parts:
            count = _rows_of(current, table, part)
            before = _rows_of(earlier, table, part) if earlier is not None else 0
            rows, rows_before = rows + count, rows_before + before
            if (fault := fault_of(count, before)) is not None:
                faults.append(f"{part[0] if len(part) == 1 else f'{len(part)} partitions'}: {fault}")
        metadata |= {"dagster/partition_row_count": rows, "ducklake/rows_before": rows_before}
        shown = "; ".join(faults[:_MOST_SHOWN]) + (f"; and {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else "")
        return not faults, shown or f"{rows} rows in {len(keys)} partitions, {rows_before} before", metadata

    return [_one_step(assets, name, evaluate, severity=severity, blocking=blocking, lake_key=lake_key, schema=schema, text=_CHANGE_TEXT)]


def build_null_fraction_checks(
    *,
    assets: Assets,
    name: str = "null_fraction",
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
        name: Name of the checks; checks of one asset need different ones.
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

    def evaluate(lake: "DuckLake", table: AssetTable, _keys: Sequence[str] | None) -> Verdict:
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

    return [_one_step(assets, name, evaluate, severity=severity, blocking=blocking, lake_key=lake_key, schema=schema, text=_NULLS_TEXT)]


def _null_fraction(table: "Table", column: str) -> float | str:
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
    text: str,
) -> dg.AssetChecksDefinition:
    tables = asset_tables(assets, schema)
    specs = [dg.AssetCheckSpec(name=name, asset=table.key, blocking=blocking, description=text) for table in tables]

    @dg.multi_asset_check(name=step_name(name, tables), specs=specs, can_subset=True, required_resource_keys={lake_key}, description=text)
    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        lake: DuckLake = getattr(context.resources, lake_key).connect()
        selected = context.selected_asset_check_keys
        for table in tables:
            if dg.AssetCheckKey(table.key, name) in selected:
                yield _result(lake, table, name, evaluate, severity, run_partitions(context, table))

    return check


def step_name(name: str, tables: Sequence[AssetTable]) -> str:
    """A name for the step of checks of these assets, which differs from that of others."""
    assets = sorted(table.key.to_python_identifier() for table in tables)
    text = "__".join(["ducklake", name, *assets])
    if len(text) <= _LONGEST_NAME:
        return text
    # What is cut must not make two steps one.
    return f"{text[: _LONGEST_NAME - 9]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def run_partitions(context: dg.AssetCheckExecutionContext, table: AssetTable) -> Sequence[str] | None:
    """The partitions of an asset that a run is about; None when it is about all of it."""
    definition, tags = table.partitions_def, context.run.tags
    if definition is None:
        return None
    known = definition.get_partition_keys(dynamic_partitions_store=context.instance)
    key = tags.get("dagster/partition")
    if key is not None:
        return [key] if key in known else None
    start, end = (tags.get(f"dagster/asset_partition_range_{side}") for side in ("start", "end"))
    if start is None or end is None or start not in known or end not in known:
        # It is about all of the asset, or about the partitions of another one.
        return None
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return definition.get_partition_keys_in_range(dg.PartitionKeyRange(start, end))
    return known[known.index(start) : known.index(end) + 1]


def _result(
    lake: "DuckLake", table: AssetTable, name: str, evaluate: _Evaluate, severity: dg.AssetCheckSeverity, keys: Sequence[str] | None
) -> dg.AssetCheckResult:
    try:
        passed, description, metadata = evaluate(lake, table, keys)
    except NotFoundError:
        # One missing table must not keep the other checks of the step from being made.
        passed, description, metadata = False, f"there is no table {table.address}", {}
    return dg.AssetCheckResult(
        passed=passed, asset_key=table.key, check_name=name, description=description, metadata=metadata, severity=severity
    )


def _before_last_rows(lake: "DuckLake", table: AssetTable) -> "Table | None":
    """The table at the last surviving snapshot before the newest one that changed rows of it; None when it was not there."""
    last = lake.table(table.address.sql).last_row_change()
    earlier = [snapshot.id for snapshot in lake.snapshots() if last is not None and snapshot.id < last.id]
    if not earlier:
        return None
    try:
        return lake.table(table.address.sql, at=earlier[-1])
    except NotFoundError:
        return None


def _rows_of(opened: "Table", table: AssetTable, keys: Sequence[str]) -> int:
    """Rows of partitions."""
    assert table.partitions_def is not None
    boxes = partition_boxes(table.partitions_def, keys, table.partition_expr, subject=table.key.to_user_string())
    predicate = slice_predicate(
        TableSlice(schema=table.address.schema, table=table.address.table, boxes=boxes), schema_lookup(opened.schema)
    )
    return opened.scan([], predicate.to_condition() if predicate is not None else None).count()
