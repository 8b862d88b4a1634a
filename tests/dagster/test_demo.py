"""The demo and its project: the definitions load, and every chapter runs, on local files and on PostgreSQL with S3."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.oracle import LakeAddress, attached
from tests.support.s3 import KEY, SECRET

ROOT = Path(__file__).parents[2]
CHAPTERS = ("1. Ingest", "2. Model", "3. Test", "4. Maintain", "5. Share")


def test_the_project_is_valid() -> None:
    from ducklake_dagster import validate
    from examples.flights.definitions import defs

    validate(defs)


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
