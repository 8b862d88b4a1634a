"""The demo and its project: the definitions load, and every chapter runs, on local files and on PostgreSQL with S3."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, attached
from tests.support.s3 import KEY, SECRET

ROOT = Path(__file__).parents[2]
CHAPTERS = ("1. Ingest", "2. Model", "3. Test", "4. Maintain", "5. Share")


def test_the_project_is_valid() -> None:
    from ducklake_dagster import validate
    from examples.flights.definitions import defs

    validate(defs)


@pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning")
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")
@pytest.mark.parametrize("kind", ["local", "s3"])
def test_the_projects_components_load(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_CATALOG", f"sqlite:///{tmp_path}/lake.sqlite")
    monkeypatch.setenv("LAKE_DATA_PATH", "s3://lake/demo/" if kind == "s3" else f"{tmp_path}/files/")
    for name in ("S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "S3_REGION", "S3_ENDPOINT_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    example = ROOT / "examples" / "flights"
    with DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=os.environ["LAKE_DATA_PATH"]) as lake:
        # Few rows are stored in the catalog, so that S3 is not needed.
        lake.write("partner.bookings", pa.table({"flight": [1545], "seats": [2]}))
    with create_defs_folder_sandbox() as sandbox:
        for folder, name in (("lake", f"lake_{kind}"), ("care", "maintenance"), ("partner", "tables")):
            (sandbox.defs_folder_path / folder).mkdir()
            shutil.copy(example / f"{name}.yaml", sandbox.defs_folder_path / folder / "defs.yaml")
        with sandbox.load_component_and_build_defs(defs_path="partner") as (component, _):
            asyncio.run(component.refresh_state(sandbox.project_root))
        with sandbox.load_component_and_build_defs(defs_path="partner") as (_, defs):
            assert {spec.key.to_user_string() for spec in defs.assets} == {"partner/bookings"}
            assert {sensor.name for sensor in defs.sensors} == {"partner_commits", "partner_checks"}
        with sandbox.load_component_and_build_defs(defs_path="care") as (_, defs):
            assert {sensor.name for sensor in defs.sensors} == {"ducklake_maintenance_sensor", "ducklake_maintenance_checks"}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["local files", "PostgreSQL and S3"])
def test_the_demo_runs_on(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    environment = {**os.environ, "DUCKLAKE_DEMO_HOME": str(tmp_path), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    if place != "local files":
        postgres, s3 = request.getfixturevalue("postgres"), request.getfixturevalue("s3")
        address = replace(postgres.lake(tmp_path), data_path="s3://lake/demo/")
        environment |= {
            "LAKE_CATALOG": address.url,
            "LAKE_DATA_PATH": address.data_path,
            "S3_ACCESS_KEY_ID": KEY,
            "S3_SECRET_ACCESS_KEY": SECRET,
            "S3_REGION": "us-east-1",
            "S3_ENDPOINT_URL": s3.endpoint,
            # This server answers a range with the checksum of the whole object.
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }
        know = s3.know
    else:
        address, know = LakeAddress("", f"ducklake:sqlite:{tmp_path}/lake.sqlite", f"{tmp_path}/lake_files/", "sqlite"), None
    command = [sys.executable, "-W", "ignore", "-m", "examples.flights"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    found = [done.stdout.find(chapter) for chapter in CHAPTERS]
    assert found == sorted(found)
    assert found[0] >= 0
    assert SECRET not in done.stdout
    with attached(address, before=know) as duck:
        assert duck.rows("SELECT count(*), count(DISTINCT day) FROM lake.flights") == [(54_591, 62)]
        assert duck.rows("SELECT count(*) FROM lake.carrier_ranks WHERE rank = 1") == [(62,)]
        assert duck.rows("SELECT name FROM lake.airlines WHERE carrier = 'ZZ'") == [("Chartered Airways",)]
