"""The code of pages that need a Spark session runs as it stands."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.page_setups import Setup, flights, lake_with_flights
from tests.support.pages import DOCS, Reader, pages, run_python
from tests.support.parameters import spread

pytestmark = pytest.mark.spark


def setup_of(page: str, spark: SparkSession) -> Setup:
    lake = lake_with_flights(12)
    names = {"lake": lake, "table": lake.table("flights"), "spark": spark, "datetime": dt.datetime, "UTC": dt.UTC}
    if page == "reference/spark.md":
        lake.create_schema("raw")
        lake.write("raw.flights", flights())
        address = {
            "postgresql+psycopg://me:secret@db/lake": f"sqlite:///{Path.cwd()}/lake.sqlite",
            "/checkpoints/": f"{Path.cwd()}/checkpoints/",
            "2024-01-01": "2013-01-01",
        }
        return Setup(names, address)
    return Setup(names)


@pytest.mark.parametrize("page", spread([*pages("spark"), "reference/spark.md"], 1))
def test_examples_run(page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = {key: spark.conf.get(key, None) for key in ("spark.ducklake.read.types", "spark.ducklake.read.native.schemes")}
    try:
        if page.startswith("tutorials/"):
            Reader(DOCS / page).run()
            return
        setup = setup_of(page, spark)
        run_python(DOCS / page, setup.names, setup.replaced)
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
