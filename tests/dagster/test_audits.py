"""Write, audit, publish: what fails an audit is never seen by anybody."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest

from ducklake_core import Scan
from ducklake_core.errors import UsageError
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, build_audit_checks, ducklake_metadata, validate
from ducklake_dagster.statistics.commit_metadata import commit_metadata
from tests.support.oracle import LakeAddress, attached

Run = Callable[..., dg.ExecuteInProcessResult]
DAYS = dg.DailyPartitionsDefinition("2026-03-27", end_date="2026-03-30")
NEXT: list[int] = []


AUDITED: list[int] = []
MEANWHILE: list[Callable[[], object]] = []


def at_most_three(rows: Scan) -> bool:
    AUDITED.append(sum(rows.to_arrow()["n"].to_pylist()))
    if MEANWHILE:
        MEANWHILE.pop()()
    return AUDITED[-1] <= 3


def unique_ids(rows: Scan) -> bool:
    ids = rows.to_arrow()["id"].to_pylist()
    return len(set(ids)) == len(ids)


@dg.asset(metadata=ducklake_metadata(write_mode="append", audits={"positive": "amount > 0", "unique": unique_ids}))
def payments() -> pa.Table:
    return pa.table({"id": NEXT, "amount": pa.array([None if number == 0 else number for number in NEXT], pa.int64())})


def evaluations(instance: dg.DagsterInstance, key: str = "payments") -> dict[str, str]:
    asset = dg.AssetKey(key)
    found = {}
    for name in ("positive", "unique"):
        (record,) = instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(asset, name), limit=1)
        found[name] = record.status.value
    return found


def test_rows_that_pass_are_committed_and_checks_succeed(run: Run, lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    NEXT[:] = [1, 2]
    result = run([payments, *build_audit_checks(assets=[payments])])
    checks = {one.check_name: one for one in result.get_asset_check_evaluations()}
    assert {name: check.passed for name, check in checks.items()} == {"positive": True, "unique": True}
    assert checks["positive"].description == "positive: passed, before the commit"
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["ducklake/audits"].value["positive"] == {"passed": True, "failing_rows": 0}
    assert lake_resource.connect().table("payments").scan().count() == 2


@pytest.mark.parametrize(("rows", "failed"), [([3, -4, 0], "positive: 2 rows failed"), ([2], "unique: failed")])
def test_rows_that_fail_leave_the_table_as_it_was(
    run: Run,
    lake_resource: DuckLakeResource,
    instance: dg.DagsterInstance,
    sqlite_address: LakeAddress,
    rows: list[int],
    failed: str,
) -> None:
    checks = build_audit_checks(assets=[payments])

    @dg.asset(deps=[payments])
    def later() -> None: ...

    NEXT[:] = [1, 2]
    run([payments, *checks])
    lake = lake_resource.connect()
    before, files = lake.snapshot().id, sorted(lake.storage.options.by_protocol)
    NEXT[:] = rows
    result = run([payments, later, *checks], raise_on_error=False)
    assert not result.success
    failure = result.failure_data_for_node("payments")
    assert failure is not None
    assert failed in failure.user_failure_data.description
    assert "Nothing was committed" in failure.user_failure_data.description
    assert lake.snapshot().id == before
    assert sorted(lake.storage.options.by_protocol) == files
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), max(amount) FROM lake.payments") == [(2, 2)]
    # The page shows which audit failed, though no step of the run could evaluate the checks.
    wanted = {"positive": "SUCCEEDED", "unique": "SUCCEEDED"} | {failed.partition(":")[0]: "FAILED"}
    assert evaluations(instance) == wanted
    assert [event.asset_key.to_user_string() for event in result.get_asset_materialization_events()] == []


def test_audits_see_the_slice_as_the_commit_would_leave_it(run: Run, lake_resource: DuckLakeResource) -> None:
    values: dict[str, int] = {}

    @dg.asset(partitions_def=DAYS, metadata=ducklake_metadata(partition_expr="day", audits={"positive": "n > 0"}))
    def daily(context) -> pa.Table:
        return pa.table({"day": pa.array([date.fromisoformat(key) for key in context.partition_keys], pa.date32()), "n": [values["n"]]})

    values["n"] = 1
    run([daily], partition_key="2026-03-27")
    values["n"] = -1
    with pytest.raises(dg.Failure, match="positive: 1 row failed"):
        run([daily], partition_key="2026-03-27")
    # Bad rows of other days, written by another client, do not fail this run.
    lake_resource.connect().write("daily", pa.table({"day": pa.array([date(2026, 3, 28)], pa.date32()), "n": [-5]}))
    values["n"] = 7
    run([daily], partition_key="2026-03-27")
    assert sorted(lake_resource.connect().table("daily").scan().to_arrow()["n"].to_pylist()) == [-5, 7]


def test_a_concurrent_commit_repeats_the_audit(run: Run, lake_resource: DuckLakeResource) -> None:
    """Another client commits between the audit and the commit: the audit runs again on the current rows."""
    lake = lake_resource.connect()
    lake.write("totals", pa.table({"n": [1]}))
    AUDITED.clear()
    MEANWHILE[:] = [lambda: lake.write("totals", pa.table({"n": [2]}))]

    @dg.asset(metadata=ducklake_metadata(write_mode="append", audits={"sum": at_most_three}))
    def totals() -> pa.Table:
        return pa.table({"n": [2]})

    with pytest.raises(dg.Failure, match="sum: failed"):
        run([totals])
    assert AUDITED == [3, 5]
    assert sorted(lake.table("totals").scan().to_arrow()["n"].to_pylist()) == [1, 2]


@pytest.mark.parametrize(("setting", "expected"), [("fail", "another writer added or changed rows"), ("replace", "that other wrote")])
def test_rows_that_another_asset_writes_meanwhile_are_not_replaced(
    run: Run, lake_resource: DuckLakeResource, setting: Any, expected: str
) -> None:
    lake = lake_resource.connect()
    lake.write("totals", pa.table({"n": [1]}))
    other = {"author": "dagster", "extra_info": {"dagster": {"asset_key": "other"}}}
    MEANWHILE[:] = [lambda: lake.write("totals", pa.table({"n": [2]}), **other)]

    @dg.asset(metadata=ducklake_metadata(audits={"sum": at_most_three}, concurrent_appends=setting))
    def totals() -> pa.Table:
        return pa.table({"n": [3]})

    with pytest.raises(dg.Failure, match=expected):
        run([totals])
    assert sorted(lake.table("totals").scan().to_arrow()["n"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("how", [{"write_mode": "append"}, {"write_mode": "merge", "merge_keys": "id"}, {"schema_evolution": "replace"}])
def test_a_commit_of_an_earlier_attempt_was_audited(
    run: Run, lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    """The first attempt commits and is lost: the retry finds the commit, which is there because its audits passed."""
    lost: list[int] = []

    def lose(*args: Any, **named: Any) -> dict[str, Any]:
        if not lost:
            lost.append(1)
            raise RuntimeError("lost after the commit")
        return commit_metadata(*args, **named)

    @dg.asset(metadata=ducklake_metadata(audits={"positive": "id > 0"}, **how), retry_policy=dg.RetryPolicy(max_retries=1))
    def retried() -> pa.Table:
        return pa.table({"id": [1]})

    monkeypatch.setattr("ducklake_dagster.io_manager.commit_metadata", lose)
    lake_resource.connect().write("retried", pa.table({"id": ["7"] if "schema_evolution" in how else [7]}))
    result = run([retried, *build_audit_checks(assets=[retried])])
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["ducklake/repeated"].value is True
    assert [(one.passed, one.description) for one in result.get_asset_check_evaluations()] == [
        (True, "positive: passed, before the commit")
    ]


def test_a_new_table_that_fails_does_not_come_to_be(run: Run, lake_resource: DuckLakeResource) -> None:
    NEXT[:] = [-1]
    with pytest.raises(dg.Failure):
        run([payments])
    assert not lake_resource.connect().has_table("payments")
    NEXT[:] = [1]
    run([payments])
    assert lake_resource.connect().table("payments").scan().count() == 1


def test_an_earlier_commit_without_audit_does_not_pass(run: Run, instance: dg.DagsterInstance) -> None:
    instance.report_runless_asset_event(dg.AssetMaterialization("payments"))
    checks = build_audit_checks(assets=[payments])
    result = run([payments, *checks], selection=dg.AssetSelection.checks_for_assets(payments))
    assert {one.passed for one in result.get_asset_check_evaluations()} == {False}
    assert "was not audited" in str(result.get_asset_check_evaluations()[0].description)


@pytest.mark.parametrize("audits", [{"a b": "n > 0"}, {"a": 1}, {"a": " "}, ["n > 0"], {"a": {"function": 1}}])
def test_audits_that_cannot_be(lake_resource: DuckLakeResource, audits: Any) -> None:
    with pytest.raises(UsageError, match="audits must be a mapping"):
        ducklake_metadata(audits=audits)

    @dg.asset(metadata={"audits": audits})
    def wrong() -> pa.Table: ...

    with pytest.raises(UsageError, match="audits must be a mapping"):
        validate(dg.Definitions(assets=[wrong], resources={"io_manager": DuckLakeIOManager(lake=lake_resource)}))


def test_a_condition_that_needs_an_engine_raises(run: Run) -> None:
    @dg.asset(metadata=ducklake_metadata(audits={"short": "regexp_matches(s, 'a')"}))
    def words() -> pa.Table:
        return pa.table({"s": ["a"]})

    with pytest.raises(dg.Failure, match="Arrow cannot evaluate"):
        run([words])


def test_functions_are_found_by_name() -> None:
    assert ducklake_metadata(audits={"unique": unique_ids})["audits"] == {"unique": {"function": f"{__name__}:unique_ids"}}
    with pytest.raises(UsageError, match="is not a function at the top level of a module"):
        ducklake_metadata(audits={"never": lambda rows: False})
    with pytest.raises(UsageError, match="audit function nowhere:gone cannot be imported"):
        ducklake_metadata(audits={"a": {"function": "nowhere:gone"}})  # type: ignore[dict-item]


def returns(rows: Scan) -> Any:
    return NEXT[0]


@pytest.mark.parametrize("found", ["no", None, 1, 0.0, np.array([True, True])])
def test_an_audit_function_must_return_a_boolean(run: Run, lake_resource: DuckLakeResource, found: Any) -> None:
    NEXT[:] = [found]

    @dg.asset(metadata=ducklake_metadata(audits={"clear": returns}))
    def vague() -> pa.Table:
        return pa.table({"n": [1]})

    with pytest.raises(dg.Failure, match=f"the function of audit clear must return True or False, but returned {re.escape(repr(found))}"):
        run([vague])
    assert not lake_resource.connect().has_table("vague")


def test_an_audit_function_may_return_a_numpy_boolean(run: Run) -> None:
    NEXT[:] = [np.bool_(True)]

    @dg.asset(metadata=ducklake_metadata(audits={"clear": returns}))
    def plain() -> pa.Table:
        return pa.table({"n": [1]})

    assert run([plain]).success


@pytest.mark.parametrize(("condition", "message"), [("n >", "cannot read the condition 'n >'"), ("m > 0", "there is no column 'm'")])
def test_a_condition_that_cannot_be_is_shown_as_it_was_written(run: Run, condition: str, message: str) -> None:
    @dg.asset(metadata=ducklake_metadata(audits={"wrong": condition}))
    def numbers() -> pa.Table:
        return pa.table({"n": [1]})

    with pytest.raises(dg.Failure, match=rf"audit wrong \('{condition}'\): {message}") as caught:
        run([numbers])
    assert "IS NULL" not in str(caught.value.description)
