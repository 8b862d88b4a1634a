"""Importing is cheap, and what runs on executors loads neither the catalog's libraries nor Dagster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ducklake_core import DuckLake

ROOT = Path(__file__).parents[2]
OF_EXTRAS = {"pyspark", "dagster", "duckdb", "pandas", "polars", "pymysql", "typer", "shapely", "s3fs", "gcsfs", "adlfs"}
"""Packages that plain ``pip install ducklake-dagster`` does not install."""
EXECUTOR_SIDE = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for top_name in ("format", "storage", "engines/arrow")
    for path in (ROOT / "ducklake_core" / top_name).rglob("*.py")
)


def modules_after(program: str) -> set[str]:
    """Names of everything that a fresh interpreter has loaded after running a program."""
    whole = f"import json, sys\n{program}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", whole], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def loaded_by(*modules: str) -> set[str]:
    """Top-level names of everything that a fresh interpreter has loaded after importing some modules."""
    return {name.split(".")[0] for name in modules_after(f"import {', '.join(modules)}")}


@pytest.mark.parametrize(
    ("modules", "never"),
    [
        (("ducklake_core",), {"pyspark", "duckdb", "sqlalchemy", "pyarrow", "dagster", "sqlglot"}),
        (("ducklake_core.errors",), {"pyspark", "duckdb", "sqlalchemy", "pyarrow", "dagster", "sqlglot"}),
        (("ducklake_dagster",), {"pyspark", "duckdb"}),
        (
            ("ducklake_core.engines.arrow.read", "ducklake_core.engines.spark.read"),
            {"duckdb", "sqlalchemy", "psycopg", "dagster", "cryptography"},
        ),
        (
            tuple(f"ducklake_core.spark_source.{name}" for name in ("source", "reading", "readers", "writing", "writers")),
            {"duckdb", "sqlalchemy", "psycopg", "dagster", "cryptography"},
        ),
        (
            ("ducklake_core.engines.arrow.writer", "ducklake_core.engines.arrow.read", "ducklake_core.spark_source.reading"),
            {"sqlglot", "pandas", "aiohttp", "s3fs"},
        ),
        (tuple(EXECUTOR_SIDE), {"pyspark", "duckdb", "sqlalchemy", "psycopg", "dagster"}),
    ],
    ids=["core", "errors", "dagster", "work unit", "data source", "tasks of Spark", "executor side"],
)
def test_import_loads_no_more_than_needed(modules: tuple[str, ...], never: set[str]) -> None:
    assert loaded_by(*modules) & never == set()


def test_a_process_that_reads_loads_neither_parsers_nor_writers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'lake.sqlite'}"
    with DuckLake.create(url, data_path=tmp_path / "files") as lake:
        lake.write("t", [{"n": 1}], inline=False)
    loaded = modules_after(f"from ducklake_core import DuckLake\nassert DuckLake.open({url!r}).table('t').scan().to_arrow().num_rows == 1")
    heavy = {name.split(".")[0] for name in loaded} & {"fsspec", "numpy", "pyarrow", "sqlalchemy", "sqlglot", "cryptography", *OF_EXTRAS}
    assert heavy == {"fsspec", "numpy", "pyarrow", "sqlalchemy"}
    writing = {
        f"ducklake_core.{name}" for name in ("transaction", "commit.committer", "maintenance", "merge_builder", "engines.spark", "sql")
    }
    assert loaded & writing == set()


def test_executor_side_is_found() -> None:
    assert "ducklake_core.engines.arrow.read" in EXECUTOR_SIDE
    assert len(EXECUTOR_SIDE) > 10


def test_every_export_exists() -> None:
    import ducklake_core
    import ducklake_dagster

    for package in (ducklake_core, ducklake_dagster):
        for name in package.__all__:
            assert getattr(package, name) is not None
        assert set(package.__all__) <= set(dir(package))
