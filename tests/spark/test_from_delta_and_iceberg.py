"""The page on tables of Delta Lake and Iceberg runs as it stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.oracle import new_connection
from tests.support.pages import DOCS, run_python
from tests.support.table_formats import OldTables, modules, rows


@pytest.mark.slow
def test_rows_and_files_come_over(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    old = OldTables(tmp_path)
    for name, module in modules(old.trips).items():
        monkeypatch.setitem(sys.modules, name, module)
    from_files = {
        'spark.read.format("delta").load("/data/delta/orders")': f'spark.read.parquet("{old.orders.path}")',
        'format("iceberg").load("sales.trips")': f'option("recursiveFileLookup", True).parquet("{old.trips.path}")',
        "/data/delta/orders": str(old.orders.path),
    }
    run_python(DOCS / "how-to/from-delta-and-iceberg.md", {"lake": old.lake, "spark": spark}, from_files)
    for name, key in (("orders", "region"), ("trips", "city")):
        wanted = rows(key)
        for schema in ("sales", "copied", "added"):
            found = old.lake.table(f"{schema}.{name}").scan().to_arrow().select(wanted.column_names).sort_by("id")
            assert found.to_pylist() == wanted.to_pylist(), (schema, name)
    old.lake.close()
    with new_connection() as duck:
        duck.execute(f"ATTACH 'ducklake:sqlite:{old.catalog}' AS lake")
        for name, key in (("orders", "region"), ("trips", "city")):
            found = duck.execute(f"SELECT id, {key}, day, price FROM lake.added.{name} ORDER BY id").fetchall()
            assert found == [tuple(row.values()) for row in rows(key).select(["id", key, "day", "price"]).to_pylist()]
