"""Checks on the state of tables and of the lake, for all assets at once: the number of catalog statements depends on neither."""

# No `from __future__ import annotations`: Dagster compares the annotation of `context` with its classes.
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_core.errors import DuckLakeError, UsageError
from ducklake_dagster.asset_tables import AssetTable, asset_tables
from ducklake_dagster.checks import Assets, Verdict, step_name

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Snapshot, TableInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that the checks look at, read once for all of them.

    Attributes:
        tables: By name in lower case.
        snapshots: That were not expired, ascending.
        last_rows: The newest snapshot that changed rows of a table, by the table's id.
        now: When it was read.
    """

    tables: "Mapping[str, TableInfo]"
    snapshots: "Sequence[Snapshot]"
    last_rows: "Mapping[int, Snapshot]"
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One kind of check."""

    name: str
    text: str
    evaluate: "Callable[[TableInfo, State], Verdict]"


def build_lake_checks(  # noqa: PLR0913 - one call says everything about one lake
    *,
    assets: Assets,
    min_rows: int | None = None,
    max_rows: int | None = None,
    max_age: timedelta | str | None = None,
    min_average_file_bytes: int | None = None,
    max_delete_ratio: float | None = None,
    max_inlined_rows: int | None = None,
    max_snapshots: int | None = None,
    prefix: str = "",
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
    blocking: bool = False,
    lake_key: str = "lake",
    schema: str | None = None,
) -> Sequence[dg.AssetChecksDefinition]:
    """Checks on the state of the tables of assets: one of each kind that is asked for, for each asset, in one step.

    The catalog alone answers, in a number of statements that depends on neither assets nor kinds.

    Args:
        assets: Assets that are DuckLake tables.
        min_rows: ``row_count``: fewest rows of the table.
        max_rows: ``row_count``: most rows.
        max_age: ``freshness``: longest time since rows were last changed by anybody, a timedelta or a text such as ``"26 hours"``.
        min_average_file_bytes: ``file_size``: smallest average size of the data files of a table that has several.
        max_delete_ratio: ``delete_ratio``: largest fraction of the rows in files that deletes hide.
        max_inlined_rows: ``inlined_rows``: most rows in the catalog itself.
        max_snapshots: ``snapshots``: most snapshots of the whole lake that are kept.
        prefix: Put before the names of the checks, for another set of them on the same assets.
        severity: ERROR or WARN; only ERROR stops what is downstream of a blocking check.
        blocking: Whether downstream assets of the same run wait for the checks.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The IO manager's ``schema``.

    Raises:
        UsageError: No bound at all, or one below 0.
    """
    bounds = {
        "min_rows": min_rows,
        "max_rows": max_rows,
        "min_average_file_bytes": min_average_file_bytes,
        "max_delete_ratio": max_delete_ratio,
        "max_inlined_rows": max_inlined_rows,
        "max_snapshots": max_snapshots,
    }
    for setting, bound in bounds.items():
        if bound is not None and bound < 0:
            raise UsageError(f"{setting} must not be negative, it is {bound}")
    checks = [
        *([_row_count(min_rows, max_rows)] if min_rows is not None or max_rows is not None else []),
        *([_freshness(_age(max_age))] if max_age is not None else []),
        *([_file_size(min_average_file_bytes)] if min_average_file_bytes is not None else []),
        *([_delete_ratio(max_delete_ratio)] if max_delete_ratio is not None else []),
        *([_inlined_rows(max_inlined_rows)] if max_inlined_rows is not None else []),
        *([_snapshots(max_snapshots)] if max_snapshots is not None else []),
    ]
    if not checks:
        raise UsageError("build_lake_checks needs at least one bound, such as max_age='26 hours'")
    return [_one_step(asset_tables(assets, schema), checks, prefix, severity=severity, blocking=blocking, lake_key=lake_key)]


def _one_step(
    tables: Sequence[AssetTable],
    checks: Sequence[_Check],
    prefix: str,
    *,
    severity: dg.AssetCheckSeverity,
    blocking: bool,
    lake_key: str,
) -> dg.AssetChecksDefinition:
    specs = [
        dg.AssetCheckSpec(name=prefix + check.name, asset=table.key, blocking=blocking, description=check.text)
        for table in tables
        for check in checks
    ]
    kinds = "_".join(check.name for check in checks)

    @dg.multi_asset_check(
        name=step_name(f"{prefix}{kinds}", tables),
        specs=specs,
        can_subset=True,
        required_resource_keys={lake_key},
        description="Checks the state of DuckLake tables by the catalog alone.",
    )
    def check_state(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        state = read_state(getattr(context.resources, lake_key).connect())
        for table in tables:
            for check in checks:
                key = dg.AssetCheckKey(table.key, prefix + check.name)
                if key in context.selected_asset_check_keys:
                    passed, text, metadata = _verdict(table, check, state)
                    yield dg.AssetCheckResult(
                        passed=passed, asset_key=key.asset_key, check_name=key.name, description=text, metadata=metadata, severity=severity
                    )

    return check_state


def read_state(lake: "DuckLake") -> State:
    """What all checks of a step look at."""
    snapshots = lake.snapshots()
    last: dict[int, Snapshot] = {}
    for snapshot in snapshots:
        try:
            changes = snapshot.change_set
        except DuckLakeError:
            # Another writer may have stored what nobody can read.
            continue
        for kind in (changes.inserted_into_table, changes.deleted_from_table, changes.inlined_insert, changes.inlined_delete):
            last.update(dict.fromkeys(kind, snapshot))
    tables = {info.table.casefold(): info for info in lake.tables()}
    return State(tables=tables, snapshots=snapshots, last_rows=last, now=datetime.now(UTC))


def _verdict(table: AssetTable, check: _Check, state: State) -> Verdict:
    info = state.tables.get(table.address.sql.casefold())
    if info is None:
        return False, f"there is no table {table.address}", {}
    passed, text, metadata = check.evaluate(info, state)
    return passed, text, {"ducklake/snapshot_id": info.snapshot_id, **metadata}


def _row_count(least: int | None, most: int | None) -> _Check:
    def evaluate(info: "TableInfo", _state: State) -> Verdict:
        rows = info.row_count
        facts = {"dagster/row_count": rows}
        if least is not None and rows < least:
            return False, f"{rows} rows are fewer than {least}", facts
        if most is not None and rows > most:
            return False, f"{rows} rows are more than {most}", facts
        return True, f"{rows} rows", facts

    return _Check(name="row_count", text=f"The table has {_span(least, most)} rows.", evaluate=evaluate)


def _span(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return f"at most {most}" if least is None else f"at least {least}"
    return f"{least} to {most}"


def _freshness(most: timedelta) -> _Check:
    def evaluate(info: "TableInfo", state: State) -> Verdict:
        last = state.last_rows.get(info.table_id)
        if last is None:
            oldest = state.snapshots[0].time
            known = f"no snapshot since {oldest.isoformat(timespec='seconds')} changed rows"
            # Snapshots of before were expired: the rows are at least as old as the oldest one.
            return state.now - oldest <= most, f"{known}, and earlier ones were expired or there were none", {}
        age = state.now - last.time
        facts = {
            "ducklake/last_row_change": dg.MetadataValue.timestamp(last.time),
            "ducklake/age_hours": round(age / timedelta(hours=1), 3),
        }
        return age <= most, f"rows were last changed {_short(age)} ago", facts

    return _Check(name="freshness", text=f"Somebody changed rows of the table in the last {_short(most)}.", evaluate=evaluate)


def _file_size(least: int) -> _Check:
    def evaluate(info: "TableInfo", _state: State) -> Verdict:
        average = info.file_size_bytes // info.file_count if info.file_count else 0
        facts = {"ducklake/table_files": info.file_count, "ducklake/avg_file_bytes": average}
        passed = info.file_count < 2 or average >= least
        return passed, f"{info.file_count} files of {average} bytes on average", facts

    return _Check(name="file_size", text=f"Data files have {least} bytes or more on average.", evaluate=evaluate)


def _delete_ratio(most: float) -> _Check:
    def evaluate(info: "TableInfo", _state: State) -> Verdict:
        stored = info.row_count - info.inlined_row_count + info.deleted_row_count
        ratio = info.deleted_row_count / stored if stored > 0 else 0.0
        return ratio <= most, f"{ratio:.1%} of the rows in files are deleted", {"ducklake/delete_ratio": round(ratio, 6)}

    return _Check(name="delete_ratio", text=f"At most {most:.1%} of the rows in files are deleted.", evaluate=evaluate)


def _inlined_rows(most: int) -> _Check:
    def evaluate(info: "TableInfo", _state: State) -> Verdict:
        rows = info.inlined_row_count
        return rows <= most, f"{rows} rows are in the catalog", {"ducklake/inlined_rows": rows}

    return _Check(name="inlined_rows", text=f"At most {most} rows of the table are in the catalog.", evaluate=evaluate)


def _snapshots(most: int) -> _Check:
    def evaluate(_info: "TableInfo", state: State) -> Verdict:
        kept = len(state.snapshots)
        return kept <= most, f"the lake keeps {kept} snapshots", {"ducklake/lake_snapshots": kept}

    return _Check(name="snapshots", text=f"The lake keeps at most {most} snapshots.", evaluate=evaluate)


def _short(age: timedelta) -> str:
    """An age for people.

    >>> _short(timedelta(hours=26, minutes=3)), _short(timedelta(seconds=90))
    ('1.1 days', '1.5 minutes')
    """
    seconds = age.total_seconds()
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def _age(value: timedelta | str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    from ducklake_core import parse_age

    return parse_age(value)
