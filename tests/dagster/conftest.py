"""Fixtures of the Dagster tests: a lake as resource, an instance, and a way to run assets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, SqliteCatalog
from tests.support.oracle import LakeAddress

# Dagster warns about its own behaviour and its preview features, which this project cannot change.
DAGSTER_WARNINGS = (
    "ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning",
    "ignore::dagster_shared.utils.warnings.BetaWarning",
)
# A project that code servers load, not tests.
collect_ignore = ["secret_project.py"]
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let Dagster's warnings about itself pass in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for warning in DAGSTER_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture
def lake_resource(sqlite_address: LakeAddress, lake_version: Any) -> DuckLakeResource:
    """A lake that is created on first use."""
    path = sqlite_address.url.removeprefix("sqlite:///")
    storage = LocalStorage(data_path=sqlite_address.data_path)
    return DuckLakeResource(catalog=SqliteCatalog(path=path), storage=storage, create_if_missing=True, version=lake_version)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def run(lake_resource: DuckLakeResource, instance: dg.DagsterInstance) -> Callable[..., dg.ExecuteInProcessResult]:
    """``run([assets], partition_key=..., io={...})``: materialize on the lake; manager settings go into ``io``."""

    def materialize(assets: Any, *, io: dict[str, Any] | None = None, **how: Any) -> dg.ExecuteInProcessResult:
        manager = DuckLakeIOManager(lake=lake_resource, **{"default_frame": "arrow", **(io or {})})
        resources = {"io_manager": manager, "lake": lake_resource, **how.pop("resources", {})}
        return dg.materialize(assets, resources=resources, run_config=QUIET, **{"instance": instance, **how})

    return materialize
