"""Checks answer from the catalog alone, for all assets in one step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.errors import UsageError
from ducklake_dagster import (
    DeleteRatio,
    DuckLakeResource,
    FileSize,
    Freshness,
    InlinedRows,
    NullFraction,
    RowCount,
    ScheduledFiles,
    SmallFiles,
    SnapshotBacklog,
    SoundCatalog,
    build_lake_checks,
    build_null_fraction_checks,
    build_row_count_change_checks,
)
from ducklake_dagster.assets.tables import asset_tables
from ducklake_dagster.checks.builders import Judge, read_lake
from tests.support.oracle import LakeAddress, attached
from tests.support.statements import noted_statements

Run = Callable[..., dg.ExecuteInProcessResult]


def things(rows: int, nulls: int = 0) -> dg.AssetsDefinition:
    @dg.asset(name="things")
    def build() -> pa.Table:
        return pa.table(
            {"n": pa.array([None] * nulls + list(range(rows - nulls)), pa.int64()), "Label": pa.array(["x"] * rows, pa.string())}
        )

    return build


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    return {check.check_name: (check.passed, check.description or "") for check in result.get_asset_check_evaluations()}


def test_row_counts_are_compared_with_those_before_the_last_commit(run: Run) -> None:
    def write(rows: int) -> tuple[bool, str]:
        asset = things(rows)
        checks = build_row_count_change_checks(assets=[asset], max_drop=0.3, max_growth=1.0)
        return verdicts(run([asset, *checks]))["row_count_change"]

    assert write(10) == (True, "10 rows, none known before")
    assert write(8) == (True, "8 rows, 10 before")
    assert write(5) == (False, "37.5% of the rows disappeared, more than 30.0%")
    assert write(11) == (False, "the rows grew by 120.0%, more than 100.0%")
    assert write(0)[0] is False


DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-05-30")


def test_a_day_that_loses_its_rows_is_found_in_a_large_table(run: Run, lake_resource: DuckLakeResource) -> None:
    rows = {"count": 100}

    @dg.asset(name="days", partitions_def=DAYS, metadata={"partition_expr": "day", "partition_by": "day"})
    def build(context) -> pa.Table:
        days = [date.fromisoformat(key) for key in context.partition_keys for _ in range(rows["count"])]
        return pa.table({"day": pa.array(days, pa.date32()), "n": range(len(days))})

    checks = [
        *build_row_count_change_checks(assets=[build], max_drop=0.5, name="half"),
        *build_row_count_change_checks(assets=[build], max_drop=0.995, name="nearly_all"),
    ]

    def results_of(*days: str) -> dict[str, tuple[bool, str]]:
        span = {"dagster/asset_partition_range_start": days[0], "dagster/asset_partition_range_end": days[-1]}
        return verdicts(run([build, *checks], partition_key=days[0]) if len(days) == 1 else run([build, *checks], tags=span))

    assert results_of("2026-03-27", "2026-05-20")["half"][0] is True
    lake_resource.connect().set_comment("days", "changes no row")
    rows["count"] = 1
    assert results_of("2026-03-28") == {
        "half": (False, "2026-03-28: 99.0% of the rows disappeared, more than 50.0%"),
        "nearly_all": (True, "1 row in 1 partition, 100 before"),
    }
    passed, text = results_of("2026-03-27", "2026-03-29")["half"]
    assert not passed
    lost = "99.0% of the rows disappeared, more than 50.0%"
    assert text == f"2026-03-27: {lost}; 2026-03-29: {lost}", "and not the day that had lost its rows before"
    lake_resource.connect().set_comment("days", "changes no row either")
    assert verdicts(run([build, *checks], selection=dg.AssetSelection.checks(*checks)))["half"][0] is True
    passed, text = results_of("2026-03-27", "2026-05-20")["half"]
    assert not passed
    assert text.startswith("2026-03-30: 99.0% of the rows disappeared"), "and no day that had lost its rows before"
    assert text.endswith("; and 42 more")


def test_null_fractions_come_from_file_statistics(run: Run) -> None:
    asset = things(10, nulls=3)

    def check(**columns: float) -> tuple[bool, str]:
        return verdicts(run([asset, *build_null_fraction_checks(assets=[asset], columns=columns)]))["null_fraction"]

    assert check(N=0.3, label=0.0)[0] is True
    assert check(n=0.29) == (False, "30.00% of 'n' is NULL, more than 29.00%")
    assert check(missing=0.5) == (False, "column 'missing' does not exist")


def test_rows_that_live_in_the_catalog_count(run: Run, lake_resource: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    asset = things(2)
    run([asset])
    with attached(sqlite_address) as duck:
        duck.run("INSERT INTO lake.things VALUES (NULL, 'x'), (NULL, NULL)")
    assert lake_resource.connect().table_info("things").inlined_row_count == 4
    checks = build_null_fraction_checks(assets=[asset], columns={"n": 0.4, "Label": 0.25})
    (check,) = run(checks, selection=dg.AssetSelection.all_asset_checks()).get_asset_check_evaluations()
    assert check.description == "50.00% of 'n' is NULL, more than 40.00%"


def test_no_file_is_read_and_a_missing_table_does_not_stop_the_others(run: Run, lake_resource: DuckLakeResource) -> None:
    asset, other = things(20), dg.AssetSpec("elsewhere", metadata={"schema": "no"})
    run([asset])
    for file in lake_resource.connect().table("things").scan().plan().plan.tasks:
        Path(file.file.path).unlink()
    checks = [*build_row_count_change_checks(assets=[asset, other]), *build_null_fraction_checks(assets=[asset], columns={"n": 0.0})]
    assert len(checks) == 2
    result = run(checks, selection=dg.AssetSelection.all_asset_checks())
    found = {(check.asset_key.to_user_string(), check.check_name): check for check in result.get_asset_check_evaluations()}
    assert found["things", "row_count_change"].passed
    assert found["things", "null_fraction"].passed
    assert found["elsewhere", "row_count_change"].description == "table no.elsewhere does not exist. Materialise elsewhere first"


@pytest.mark.parametrize("severity", list(dg.AssetCheckSeverity))
def test_a_blocking_check_of_severity_error_stops_what_is_downstream(run: Run, severity: dg.AssetCheckSeverity) -> None:
    asset, reached = things(3, nulls=3), []

    @dg.asset
    def after(things: pa.Table) -> None:
        reached.append(things.num_rows)

    checks = build_null_fraction_checks(assets=[asset], columns={"n": 0.0}, severity=severity, blocking=True)
    run([asset, after, *checks], raise_on_error=False)
    assert reached == ([] if severity is dg.AssetCheckSeverity.ERROR else [3])


@pytest.mark.parametrize(
    "build",
    [
        lambda: build_row_count_change_checks(assets=[], max_drop=-0.1),
        lambda: build_null_fraction_checks(assets=[], columns={}),
        lambda: build_null_fraction_checks(assets=[], columns={"n": 1.1}),
    ],
)
def test_invalid_bounds_raise(build: Callable[[], Any]) -> None:
    with pytest.raises(UsageError):
        build()


KEYS = ["filled", "inlined", "gone"]


@pytest.fixture
def tables(lake_resource: DuckLakeResource) -> DuckLakeResource:
    """A table of four files with deletes, and one of three rows in the catalog."""
    lake = lake_resource.connect()
    lake.set_option("data_inlining_row_limit", 0)
    for number in range(4):
        lake.write("filled", pa.table({"n": range(100 * number, 100 * number + 100)}))
    lake.table("filled").delete("n >= 380")
    lake.unset_option("data_inlining_row_limit")
    lake.write("inlined", pa.table({"n": [1, 2, 3]}))
    return lake_resource


def state(run: Run, checks: list[Any], names: list[str] = KEYS) -> dict[str, dict[str, bool]]:
    built = build_lake_checks(assets=[dg.AssetSpec(name) for name in names], checks=checks)
    result = run([*(dg.AssetSpec(name) for name in names), *built], selection=dg.AssetSelection.checks(*built))
    found: dict[str, dict[str, bool]] = {}
    for one in result.get_asset_check_evaluations():
        found.setdefault(one.check_name, {})[one.asset_key.to_user_string()] = one.passed
    return found


def test_the_state_of_all_tables_is_checked(run: Run, tables: DuckLakeResource) -> None:
    strict = [
        RowCount(minimum=100), Freshness(max_age=timedelta(0)), FileSize(min_average_bytes=10**6), SmallFiles(max_ratio=0.1, min_files=2),
        DeleteRatio(maximum=0.01), InlinedRows(maximum=0), SnapshotBacklog(maximum=1), ScheduledFiles(maximum=0), SoundCatalog(),
    ]  # fmt: skip
    assert state(run, strict) == {
        "row_count": {"filled": True, "inlined": False, "gone": False},
        "freshness": {"filled": False, "inlined": False, "gone": False},
        "file_size": {"filled": False, "inlined": True, "gone": False},
        "small_files": {"filled": False, "inlined": True, "gone": False},
        "delete_ratio": {"filled": False, "inlined": True, "gone": False},
        "inlined_rows": {"filled": True, "inlined": False, "gone": False},
        "snapshots": {"filled": False, "inlined": False, "gone": False},
        "scheduled_files": {"filled": True, "inlined": True, "gone": False},
        "catalog": {"filled": True, "inlined": True, "gone": False},
    }
    loose = [
        RowCount(maximum=400), Freshness(max_age="1 day"), FileSize(min_average_bytes=1), SmallFiles(min_files=5, max_ratio=0),
        DeleteRatio(maximum=0.05), InlinedRows(maximum=3), SnapshotBacklog(maximum=100, max_age="1 day"), ScheduledFiles(max_age="1 hour"),
    ]  # fmt: skip
    for found in state(run, loose).values():
        assert found == {"filled": True, "inlined": True, "gone": False}


def test_a_damaged_catalog_fails_the_check_of_its_table(run: Run, tables: DuckLakeResource, sqlite_address: LakeAddress) -> None:
    import sqlite3

    with sqlite3.connect(sqlite_address.url.removeprefix("sqlite:///")) as catalog:
        catalog.execute("UPDATE ducklake_data_file SET record_count = record_count + 1 WHERE data_file_id = 0")
    found = state(run, [SoundCatalog()])["catalog"]
    assert (found["filled"], found["inlined"]) == (False, True)


def test_the_number_of_statements_depends_on_neither_tables_nor_checks(
    run: Run, tables: DuckLakeResource, monkeypatch: pytest.MonkeyPatch, instance: dg.DagsterInstance
) -> None:
    lake = tables.connect()
    few = [Freshness(max_age="1 day"), NullFraction(limits={"n": 0.0})]
    many = [*few, RowCount(minimum=1), InlinedRows(maximum=9), SmallFiles(), DeleteRatio(maximum=1), SnapshotBacklog(maximum=99)]

    def statements(names: list[str], checks: list[Any]) -> int:
        found = asset_tables([dg.AssetSpec(name) for name in names], None)
        with noted_statements() as noted:
            judge = Judge(read_lake(lake, found, checks), instance)
            assert all(judge.verdict(table, check, None).passed for table in found for check in checks)
        return len(noted)

    at_first = statements(["filled", "inlined"], many)
    assert at_first <= statements(["filled"], few) + 3
    for number in range(20):
        lake.write(f"more_{number}", pa.table({"n": [number]}))
    assert statements(["filled", "inlined", *(f"more_{number}" for number in range(20))], many) == at_first <= 40


def test_invalid_sets_of_checks_raise() -> None:
    with pytest.raises(UsageError, match="checks is empty"):
        build_lake_checks(assets=[dg.AssetSpec("a")], checks=[])
    for one in (dg.AssetSpec("a"), "a", None):
        with pytest.raises(UsageError, match="assets must be a list of asset definitions"):
            build_lake_checks(assets=one, checks=[RowCount(minimum=1)])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="several checks are named 'row_count'"):
        build_lake_checks(assets=[dg.AssetSpec("a")], checks=[RowCount(minimum=1), RowCount(maximum=1)])
    with pytest.raises(UsageError, match="maximum must not be negative"):
        RowCount(maximum=-1)
    with pytest.raises(UsageError, match="needs at least one of minimum, maximum"):
        RowCount()
