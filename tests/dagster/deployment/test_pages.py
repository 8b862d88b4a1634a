"""Pages in Chromium: pictures in ``build/pictures``, and strings that each page must show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.dagster.deployment.conftest import PASSWORD, Deployment
from tests.dagster.deployment.names import GENERATION, RANGE_END, RANGE_START
from tests.support.chromium import Page, chromium
from tests.support.s3 import SECRET

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
PICTURES = Path(__file__).parents[3] / "build" / "pictures"
REPOSITORY = "/locations/__repository__@lake-project"


@dataclass(frozen=True, kw_only=True)
class View:
    """A page, the clicks on it, and the strings that it must show.

    Attributes:
        path: Below the server's address; ``{failed}`` and ``{maintenance}`` are ids of runs. In ``shows``, ``{grid}`` is how many
            partitions of that asset there are by now.
        clicks: Strings to click on, after which the others are shown.
        width: Width of the window in pixels, as ``height`` is its height.
    """

    path: str
    shows: Sequence[str]
    clicks: Sequence[str] = ()
    width: int = 1600
    height: int = 1300


VIEWS = {
    "asset-overview": View(
        path="/assets/ranged",
        shows=("main.ranged", "Day of the sale, in Berlin", "Three rows for each day", "partitioned by month(day)"),
        height=2000,
    ),
    "plots-over-partitions": View(
        path="/assets/plotted",
        clicks=("Plots",),
        shows=("ducklake/rows_added", "ducklake/bytes_added", "dagster/partition_row_count", "highest data point"),
        height=2600,
    ),
    "partitions-of-two-dimensions": View(path="/assets/grid?view=partitions", shows=("asia", "Materialized ({grid})")),
    "checks": View(
        path="/assets/judged?view=checks&checkDetail=row_count", shows=("null_fraction", "blocking", "Failed", "dagster/row_count")
    ),
    "resource": View(
        path=f"{REPOSITORY}/resources/lake",
        shows=(
            "Database that stores the metadata of the lake",
            "allowed_paths",
            "Example:",
            "******** (password 1)",
            "LAKE_SECRET",
            "one of local, s3, gcs, azure",
        ),
        width=2600,
    ),
    "ticks-of-the-commit-sensor": View(
        path=f"{REPOSITORY}/sensors/ducklake_commits",
        clicks=("0 runs requested",),
        shows=("Skip reason: 1 partition of ranged changed by",),
    ),
    "failed-run": View(path="/runs/{failed}", shows=("column 'generation_41' is new", "main.misfit", "schema_evolution='additive'")),
    "maintenance-run": View(path="/runs/{maintenance}", shows=("delete_orphaned_files", "Succeeded (7)", "ASSET_OBSERVATION")),
    "maintenance-on-its-asset": View(
        path="/assets/ranged?view=events", shows=("Observed in run", "After ducklake_maintenance", "ducklake/table_files")
    ),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def runs(deployment: Deployment) -> dict[str, str]:
    """Everything that the pages show has happened; gives what differs each time."""
    dagster = deployment.dagster
    dagster.query("mutation { setNuxSeen }")
    dagster.finish(dagster.materialize("ranged", tags={RANGE_START: "2025-12-01", RANGE_END: "2025-12-30"}))
    dagster.finish(dagster.materialize("grid", tags={RANGE_START: "2025-12-20|eu", RANGE_END: "2025-12-31|asia"}))
    newest = dagster.newest_partitions("plotted", 30)
    dagster.finish(dagster.materialize("plotted", tags={RANGE_START: newest[0], RANGE_END: newest[-1]}))
    checks = [{"assetKey": {"path": ["judged"]}, "name": name} for name in ("row_count", "null_fraction")]
    dagster.end_of(dagster.materialize("judged", tags={GENERATION: "1"}, checks=checks))
    with deployment.commits_reported():
        with deployment.duckdb() as duck:
            duck.run("INSERT INTO lake.ranged VALUES (DATE '2025-12-31', 1, 9)")
            newest = int(str(duck.value("SELECT max(snapshot_id) FROM lake.snapshots()")))
        dagster.wait_for(lambda: (deployment.cursor() or 0) >= newest, "the cursor")
    maintenance = dagster.begin("ducklake_maintenance")
    dagster.end_of(maintenance)
    dagster.end_of(dagster.materialize("misfit", tags={GENERATION: "40"}))
    failed = dagster.materialize("misfit", tags={GENERATION: "41"})
    assert dagster.end_of(failed) == "FAILURE"
    return {"failed": failed, "maintenance": maintenance, "grid": str(dagster.asset("grid")["partitionStats"]["numMaterialized"])}


@pytest.mark.parametrize("name", VIEWS)
def test_page(deployment: Deployment, page: Page, runs: dict[str, str], name: str) -> None:
    view = VIEWS[name]
    page.open(deployment.dagster.url + view.path.format(**runs))
    page.resize(view.width, view.height)
    shows = [text.format(**runs) for text in view.shows]
    for text in view.clicks:
        page.click_for(text, *shows)
    page.wait_for(*shows)
    page.picture(PICTURES / f"{name}.png")
    assert not [secret for secret in (PASSWORD, SECRET) if secret in page.source()]
