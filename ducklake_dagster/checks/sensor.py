"""Build a sensor that evaluates checks without runs and reports their results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from ducklake_core.errors import UsageError
from ducklake_dagster.assets.tables import AssetTable, asset_tables, listed_assets
from ducklake_dagster.checks.base import LakeCheck
from ducklake_dagster.checks.builders import Assets, Judge, build_lake_checks, read_lake, reject_names

if TYPE_CHECKING:
    from ducklake_core import DuckLake


_CURSOR_VERSION = 1
# Maximum number of changed partitions to judge one by one; with more, the whole table is judged.
_MAX_PARTITIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cursor:
    """The state of the last evaluation.

    Attributes:
        snapshot: The newest snapshot that was evaluated.
        passed: Verdicts by asset and check.
    """

    snapshot: int = -1
    passed: Mapping[str, bool] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps({"v": _CURSOR_VERSION, "snapshot": self.snapshot, "passed": self.passed})

    @classmethod
    def parse(cls, text: str | None) -> _Cursor:
        """Return the cursor; an empty one when there is none, or another version of this library wrote it."""
        try:
            fields = json.loads(text or "null")
            if fields["v"] != _CURSOR_VERSION:
                return cls()
            return cls(snapshot=int(fields["snapshot"]), passed={str(key): bool(value) for key, value in fields["passed"].items()})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return cls()


def build_check_sensor(
    *,
    assets: Assets,
    checks: Sequence[LakeCheck],
    name: str = "ducklake_checks",
    lake_key: str = "lake",
    schema: str | None = None,
    minimum_interval_seconds: int = 300,
) -> dg.SensorDefinition:
    """Build a sensor that evaluates checks of :func:`build_lake_checks` without a run, whichever client changed the tables.

    The sensor reports a check when rows of its table changed since the last evaluation, and when its verdict changed for another reason,
    such as time for :class:`Freshness`. For partitioned assets it judges the partitions that changed. Pass the same ``checks`` to
    :func:`build_lake_checks`, so that Dagster knows them. The number of catalog statements depends on neither assets nor checks, except
    where files hold rows of several partitions. The sensor is stopped by default.

    Args:
        assets: Assets that are DuckLake tables.
        checks: Checks of each of them, without kinds that read rows.
        name: Name of the sensor.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The ``schema`` setting of the IO manager.
        minimum_interval_seconds: Seconds between evaluations, 300 by default.

    Raises:
        UsageError: There are no assets or no checks, two checks have one name, or a check reads rows.
    """
    tables = asset_tables(assets, schema)
    reject_names(checks)
    reading = [check.name for check in checks if check.reads_rows]
    if reading:
        raise UsageError(
            f"sensor {name} evaluates checks from statistics only, but these checks read rows: {', '.join(reading)}. Run them with "
            "build_lake_checks",
            checks=tuple(reading),
        )
    if not tables:
        raise UsageError(f"sensor {name} has no assets to check. Pass assets=")

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={lake_key},
        description="Checks DuckLake tables by the statistics of their catalog after each commit, whichever client made it.",
    )
    def check_tables(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _evaluate(context, getattr(context.resources, lake_key).connect(), tables, checks)

    return check_tables


def checks_with_sensor(
    assets: Assets,
    checks: Sequence[LakeCheck],
    *,
    name: str,
    lake_key: str,
    schema: str | None = None,
    minimum_interval_seconds: int = 300,
) -> dg.Definitions:
    """Return checks of assets, and the sensor that evaluates those that read no rows; nothing without checks.

    Args:
        assets: Assets that are DuckLake tables.
        checks: Checks of each of them.
        name: Name of the sensor.
        lake_key: Resource key of the :class:`DuckLakeResource`.
        schema: The ``schema`` setting of the IO manager.
        minimum_interval_seconds: Seconds between evaluations of the sensor, 300 by default.
    """
    if not checks:
        return dg.Definitions()
    assets = listed_assets(assets)
    built = build_lake_checks(assets=assets, checks=checks, lake_key=lake_key, schema=schema)
    watched = [check for check in checks if not check.reads_rows]
    sensors = (
        [
            build_check_sensor(
                assets=assets,
                checks=watched,
                name=name,
                lake_key=lake_key,
                schema=schema,
                minimum_interval_seconds=minimum_interval_seconds,
            )
        ]
        if watched
        else []
    )
    return dg.Definitions(asset_checks=built, sensors=sensors)


def _evaluate(
    context: dg.SensorEvaluationContext, lake: DuckLake, tables: Sequence[AssetTable], checks: Sequence[LakeCheck]
) -> dg.SensorResult:
    cursor = _Cursor.parse(context.cursor)
    state = read_lake(lake, tables, checks)
    judge = Judge(state, context.instance)
    passed = dict(cursor.passed)
    events = [event for table in tables for event in _evaluations(judge, table, checks, cursor.snapshot, passed)]
    failed = sum(not event.passed for event in events)
    return dg.SensorResult(
        asset_events=events,
        cursor=_Cursor(snapshot=state.snapshot_id, passed=passed).text(),
        skip_reason=f"reported {len(events)} check{'' if len(events) == 1 else 's'} ({failed} failed) at snapshot {state.snapshot_id}",
    )


def _evaluations(
    judge: Judge, table: AssetTable, checks: Sequence[LakeCheck], since: int, passed: dict[str, bool]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the evaluations to report for a table; store the verdicts in ``passed``."""
    changed, keys = _is_changed(judge, table, since), _changed_partitions(judge, table, since)
    for check in checks:
        own = f"{table.key.to_user_string()}:{check.name}"
        known = passed.get(own)
        if check.judges_changes and known is not None and not changed:
            # Without a change the verdict stays the same: a check of no rows would pass and hide the failure.
            continue
        found = judge.verdict(table, check, keys if check.judges_changes else None)
        if changed or known != found.passed:
            yield dg.AssetCheckEvaluation(
                asset_key=table.key,
                check_name=check.name,
                passed=found.passed,
                metadata=found.metadata,
                description=found.description,
                severity=check.severity,
                blocking=check.blocking,
            )
        passed[own] = found.passed


def _is_changed(judge: Judge, table: AssetTable, since: int) -> bool:
    stored = judge.stored(table)
    return stored is not None and any(True for _ in stored.row_changes(since))


def _changed_partitions(judge: Judge, table: AssetTable, since: int) -> Sequence[str] | None:
    stored = judge.stored(table)
    if stored is None or table.partitions_def is None:
        return None
    changed = stored.keys_changed_since(since)
    return changed if 0 < len(changed) <= _MAX_PARTITIONS else None
