"""Checks answer from the catalog alone, for all assets in one step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeResource, build_null_fraction_checks, build_row_count_change_checks
from tests.support.oracle import LakeAddress

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


def test_null_fractions_come_from_file_statistics(run: Run) -> None:
    asset = things(10, nulls=3)

    def check(**columns: float) -> tuple[bool, str]:
        return verdicts(run([asset, *build_null_fraction_checks(assets=[asset], columns=columns)]))["null_fraction"]

    assert check(N=0.3, label=0.0)[0] is True
    assert check(n=0.29) == (False, "30.00% of 'n' is NULL, more than 29.00%")
    assert check(gone=0.5) == (False, "there is no column 'gone'")


def test_rows_that_live_in_the_catalog_count(
    run: Run, lake_resource: DuckLakeResource, oracle: Callable[..., Any], sqlite_address: LakeAddress
) -> None:
    asset = things(2)
    run([asset])
    with oracle(sqlite_address) as duck:
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
    checks = [
        *build_row_count_change_checks(assets=[asset, other]),
        *build_null_fraction_checks(assets=[asset], columns={"n": 0.0}),
    ]
    assert len(checks) == 2
    result = run(checks, selection=dg.AssetSelection.all_asset_checks())
    found = {(check.asset_key.to_user_string(), check.check_name): check for check in result.get_asset_check_evaluations()}
    assert found["things", "row_count_change"].passed
    assert found["things", "null_fraction"].passed
    assert found["elsewhere", "row_count_change"].description == "there is no table no.elsewhere"


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
def test_bounds_that_make_no_sense_are_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(UsageError):
        build()
