"""What a user sees: pictures of the pages by Chromium, kept in ``artifacts/pages``, and the texts that must be on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dagster.deployment.conftest import PASSWORD, Deployment
from tests.dagster.deployment.names import GENERATION, RANGE_END, RANGE_START
from tests.support.dagster_dev import Browser, browser
from tests.support.s3 import SECRET

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
PICTURES = Path(__file__).parents[3] / "artifacts" / "pages"
REPOSITORY = "/locations/__repository__@lake-project"
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "asset overview": (
        "/assets/ranged",
        ("main.ranged", "Day of the sale, in Berlin", "Three rows for each day", "partitioned by month(day)"),
    ),
    "plots over partitions": ("/assets/ranged?view=plots", ("ducklake/rows_added", "dagster/partition_row_count")),
    "partitions of two dimensions": ("/assets/grid?view=partitions", ("region", "asia")),
    "checks": ("/assets/judged?view=checks", ("row_count", "null_fraction")),
    "resource": (f"{REPOSITORY}/resources/lake", ("catalog", "storage")),
    "ticks of the commit sensor": (f"{REPOSITORY}/sensors/ducklake_commits", ("reported",)),
    "maintenance on its asset": ("/assets/ranged?view=events", ("ducklake/table_files",)),
}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    found = browser(tmp_path_factory.mktemp("chromium"))
    if found is None:
        pytest.fail("there is no Chromium: `make browser` installs it")
    PICTURES.mkdir(parents=True, exist_ok=True)
    return found


@pytest.fixture(scope="module")
def failed_run(deployment: Deployment) -> str:
    """Everything that the pages show has happened; gives the run that failed."""
    dagster = deployment.dagster
    dagster.ask("mutation { setNuxSeen }")
    dagster.finish(dagster.materialize("ranged", tags={RANGE_START: "2025-10-01", RANGE_END: "2025-10-20"}))
    dagster.finish(dagster.materialize("grid", tags={RANGE_START: "2025-10-01|eu", RANGE_END: "2025-10-09|asia"}))
    checks = [{"assetKey": {"path": ["judged"]}, "name": name} for name in ("row_count", "null_fraction")]
    dagster.end_of(dagster.materialize("judged", tags={GENERATION: "1"}, checks=checks))
    with deployment.commits_reported():
        with deployment.duckdb() as duck:
            duck.run("INSERT INTO lake.ranged VALUES (DATE '2025-10-25', 1, 9)")
            newest = int(str(duck.value("SELECT max(snapshot_id) FROM lake.snapshots()")))
        dagster.wait_for(lambda: (deployment.cursor() or 0) >= newest, "the cursor")
    dagster.end_of(dagster.begin("ducklake_maintenance"))
    dagster.end_of(dagster.materialize("misfit", tags={GENERATION: "40"}))
    run = dagster.materialize("misfit", tags={GENERATION: "41"})
    assert dagster.end_of(run) == "FAILURE"
    return run


def look(chromium: Browser, url: str, name: str) -> Callable[[str], bool]:
    chromium.picture(url, PICTURES / f"{name.replace(' ', '-')}.png")
    text = chromium.text(url)
    assert not [secret for secret in (PASSWORD, SECRET) if secret in text]
    return lambda expected: expected in text


@pytest.mark.parametrize("name", PAGES)
def test_page(deployment: Deployment, chromium: Browser, failed_run: str, name: str) -> None:
    del failed_run
    path, expected = PAGES[name]
    is_there = look(chromium, deployment.dagster.url + path, name)
    assert [text for text in expected if not is_there(text)] == []


def test_the_first_screen_of_a_failed_run(deployment: Deployment, chromium: Browser, failed_run: str) -> None:
    is_there = look(chromium, f"{deployment.dagster.url}/runs/{failed_run}", "failed run")
    assert is_there("generation_41"), "what is wrong"
    assert is_there("main.misfit"), "with which table"
