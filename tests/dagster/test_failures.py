"""Failures as the page of a run shows them, and retries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptFileError,
    DuckLakeError,
    NotFoundError,
    SchemaError,
    StorageError,
    UsageError,
)
from ducklake_dagster import DuckLakeResource
from ducklake_dagster.config.errors import may_pass
from ducklake_dagster.io import inputs

ROOT = Path(__file__).parents[2]
Run = Callable[..., dg.ExecuteInProcessResult]


def test_permanent_errors_are_not_retried_and_give_advice(run: Run, lake_resource: DuckLakeResource) -> None:
    computed: list[int] = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def things() -> pa.Table:
        computed.append(1)
        return pa.table({"n": ["text"]})

    lake_resource.connect().write("things", pa.table({"n": [1]}))
    result = run([things], raise_on_error=False)
    assert len(computed) == 1
    (event,) = [event for event in result.all_events if event.is_step_failure]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert failure.description.splitlines()[0].startswith("table main.things") or "main.things" in failure.description
    metadata = {key: value.value for key, value in failure.metadata.items()}
    assert (metadata["table"], metadata["error_code"]) == ("main.things", "schema")
    assert (ROOT / metadata["documentation"]).is_file()


def test_the_documentation_is_a_link_where_its_address_is_known(
    run: Run, lake_resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.asset
    def things() -> pa.Table:
        return pa.table({"n": ["text"]})

    lake_resource.connect().write("things", pa.table({"n": [1]}))
    monkeypatch.setenv("DUCKLAKE_DOCUMENTATION", "https://docs.example/lake/")
    failure = run([things], raise_on_error=False).failure_data_for_node("things")
    assert failure is not None
    assert failure.user_failure_data is not None
    page = failure.user_failure_data.metadata["documentation"]
    assert page == dg.MetadataValue.url("https://docs.example/lake/how-to/dagster/troubleshooting.html")


@pytest.mark.parametrize("name", ["t", "data", "things"])
def test_errors_name_tables_with_any_name(run: Run, lake_resource: DuckLakeResource, name: str) -> None:
    @dg.asset(name=name)
    def build() -> pa.Table:
        return pa.table({"n": ["text"]})

    lake_resource.connect().write(name, pa.table({"n": [1]}))
    failure = run([build], raise_on_error=False).failure_data_for_node(name)
    assert failure is not None
    assert failure.user_failure_data is not None
    assert str(failure.user_failure_data.description).count(f"main.{name}") == 1


def test_an_expired_pinned_snapshot_is_not_reported_as_a_missing_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "pinned_snapshot", lambda *_: 999)

    @dg.asset(name="numbers")
    def build() -> pa.Table:
        return pa.table({"n": [1]})

    @dg.asset
    def reader(numbers: pa.Table) -> None:
        del numbers

    failure = run([build, reader], io={"pin_reads": True}, raise_on_error=False).failure_data_for_node("reader")
    assert failure is not None
    assert failure.user_failure_data is not None
    message = str(failure.user_failure_data.description)
    assert "there is no snapshot 999" in message
    assert "materialise" not in message


def test_an_input_without_a_table_is_not_retried(run: Run) -> None:
    @dg.asset
    def upstream() -> None: ...

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def reader(upstream: pa.Table) -> None: ...

    source = dg.AssetSpec("upstream")
    result = run([source, reader], raise_on_error=False)
    (event,) = [event for event in result.all_events if event.is_step_failure]
    message = event.step_failure_data.user_failure_data.description
    assert "main.upstream" in message
    assert "Materialise upstream first. An asset that stores no rows belongs in deps=" in message
    assert not [event for event in result.all_events if event.is_step_up_for_retry]


def test_transient_errors_are_retried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ducklake_dagster.io.outputs import TableOutput

    computed: list[int] = []
    real = TableOutput.write

    def conflicting(self: Any, *args: Any) -> Any:
        if len(computed) < 2:
            raise CommitConflictError("someone else was faster")
        return real(self, *args)

    monkeypatch.setattr(TableOutput, "write", conflicting)

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def things() -> pa.Table:
        computed.append(1)
        return pa.table({"n": [1]})

    assert run([things]).success
    assert len(computed) == 2


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(UsageError, False), (SchemaError, False), (NotFoundError, False), (CorruptFileError, False), (StorageError, True),
     (CommitConflictError, True), (CommitOutcomeUnknownError, True)],
)  # fmt: skip
def test_which_errors_may_pass(kind: type[DuckLakeError], expected: bool) -> None:
    assert may_pass(kind("x")) is expected
