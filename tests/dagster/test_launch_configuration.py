"""Run configuration that changes the lake changes it everywhere, or the run fails before it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, SqliteCatalog, materialize_together
from tests.dagster.conftest import QUIET


def settings(folder: Path, name: str) -> dict[str, Any]:
    return {
        "catalog": {"sqlite": {"path": str(folder / f"{name}.sqlite")}},
        "storage": {"local": {"data_path": str(folder / name), "options": {}}},
        "create_if_missing": True,
    }


def lake(folder: Path, name: str) -> DuckLakeResource:
    return DuckLakeResource(
        catalog=SqliteCatalog(path=str(folder / f"{name}.sqlite")),
        storage=LocalStorage(data_path=str(folder / name)),
        create_if_missing=True,
    )


@dg.asset
def things() -> pa.Table:
    return pa.table({"n": [1]})


@dg.asset_check(asset=things)
def has_rows(lake: DuckLakeResource) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=lake.connect().has_table("things"), metadata={"lake": lake.shown_catalog()})


@dg.asset
def reader(things: pa.Table, lake: DuckLakeResource) -> None:
    assert things.num_rows == 1


@dg.multi_asset(specs=[dg.AssetSpec("one")])
def together(context, lake: DuckLakeResource):  # type: ignore[no-untyped-def] # Dagster rejects a name of the annotation in strings
    yield from materialize_together(context, {"one": pa.table({"n": [1]})})


def launched(resources: dict[str, Any], config: dict[str, Any], *, selection: Any = None, assets: Any = (things, reader)) -> Any:
    defs = dg.Definitions(assets=list(assets), asset_checks=[has_rows] if things in assets else [], resources=resources)
    job = defs.resolve_implicit_global_asset_job_def()
    run_config = {**QUIET, "resources": {key: {"config": one} for key, one in config.items()}}
    return job.execute_in_process(run_config=run_config, raise_on_error=False, asset_selection=selection)


def failure_of(result: Any) -> str:
    event = next(event for event in result.all_events if event.is_step_failure)
    return str(event.step_failure_data.user_failure_data.description).splitlines()[0]


@pytest.mark.parametrize("shared", [True, False], ids=["one object", "two equal objects"])
def test_a_configured_lake_that_the_launchpad_changes_fails_with_the_remedy(tmp_path: Path, shared: bool) -> None:
    top = lake(tmp_path, "a")
    inner = top if shared else lake(tmp_path, "a")
    resources = {"lake": top, "io_manager": DuckLakeIOManager(lake=inner, default_frame="arrow")}
    result = launched(resources, {"lake": settings(tmp_path, "b")})
    assert not result.success
    assert "configure_at_launch()" in failure_of(result)
    assert "'lake'" in failure_of(result)
    assert f"{tmp_path}/a.sqlite" in failure_of(result)
    assert not (tmp_path / "a.sqlite").exists()


def test_an_input_fails_too(tmp_path: Path) -> None:
    resources = {"lake": lake(tmp_path, "a"), "io_manager": DuckLakeIOManager(lake=lake(tmp_path, "a"), default_frame="arrow")}
    assert launched(resources, {}).success
    result = launched(resources, {"lake": settings(tmp_path, "b")}, selection=[reader.key])
    assert "configure_at_launch()" in failure_of(result)


def test_a_joint_commit_fails_too(tmp_path: Path) -> None:
    resources = {"lake": (top := lake(tmp_path, "a")), "io_manager": DuckLakeIOManager(lake=top)}
    result = launched(resources, {"lake": settings(tmp_path, "b")}, assets=(things, together), selection=[dg.AssetKey("one")])
    assert "configure_at_launch()" in failure_of(result)


def test_the_lake_of_a_branch_counts_too(tmp_path: Path) -> None:
    top = lake(tmp_path, "a")
    manager = DuckLakeIOManager(lake=lake(tmp_path, "production"), branch="b", branch_lake=top)
    assert "branch_lake=" in failure_of(launched({"lake": top, "io_manager": manager}, {"lake": settings(tmp_path, "b")}))


def test_a_launchpad_that_repeats_the_definition_runs(tmp_path: Path) -> None:
    top = lake(tmp_path, "a")
    assert launched(
        {"lake": top, "io_manager": DuckLakeIOManager(lake=top, default_frame="arrow")}, {"lake": settings(tmp_path, "a")}
    ).success


def test_another_lake_may_be_changed(tmp_path: Path) -> None:
    resources = {"lake": lake(tmp_path, "other"), "io_manager": DuckLakeIOManager(lake=lake(tmp_path, "a"), default_frame="arrow")}
    assert launched(resources, {"lake": settings(tmp_path, "b")}).success
    assert (tmp_path / "a.sqlite").exists()


def test_a_lake_that_is_configured_at_launch_is_one_everywhere(tmp_path: Path) -> None:
    top = DuckLakeResource.configure_at_launch()
    result = launched({"lake": top, "io_manager": DuckLakeIOManager(lake=top, default_frame="arrow")}, {"lake": settings(tmp_path, "b")})
    assert result.success
    (check,) = result.get_asset_check_evaluations()
    assert check.passed
    assert check.metadata["lake"].value.endswith("/b.sqlite")
    assert DuckLake.connect(f"sqlite:///{tmp_path}/b.sqlite").table("things").scan().count() == 1
