"""Checks what would be released: built packages in environments of their own, and the tests with the lowest and the newest versions.

python .ci/release_check.py [FOLDER [PART ...]]

Parts: changelog, fragments, build, executors, users, lowest, newest; all when none is named. They are made in the folder, which must be
outside of the project; without one in a new folder for temporary files.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from lowest import lowest

ROOT = Path(__file__).parents[1]
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "ducklake_core" / "__init__.py").read_text(), re.MULTILINE).group(1)
# What executors need in addition to the package; Spark's Python has pyspark.
EXECUTORS = ("pyarrow", "numpy", "fsspec", "mmh3", "sqlglot", "thrift", "pyspark")
ON_EXECUTORS = """
import sys
import ducklake_core.engines.arrow.changes, ducklake_core.engines.arrow.read, ducklake_core.engines.arrow.compaction
import ducklake_core.engines.arrow.writer, ducklake_core.engines.spark.read
import ducklake_core.spark_source.reading, ducklake_core.spark_source.writers
assert not {"sqlalchemy", "psycopg", "dagster"} & set(sys.modules)
"""
IN_PROCESS = """
import pyarrow as pa
from ducklake_core import DuckLake
lake = DuckLake.create("sqlite:///process.sqlite", data_path="process_files/")
lake.write("t", pa.table({"n": range(100)}))
lake.table("t").update({"n": "n + 1"}, where="n > 50")
assert sorted(lake.table("t").scan(where="n > 98").to_arrow().column("n").to_pylist()) == [99, 100]
import sys
assert "pyspark" not in sys.modules and "dagster" not in sys.modules
"""
WITH_SPARK = """
from pyspark.sql import SparkSession
from ducklake_core import DuckLake
spark = SparkSession.builder.master("local[1]").getOrCreate()
lake = DuckLake.create("sqlite:///spark.sqlite", data_path="spark_files/")
lake.write("t", spark.range(100))
assert lake.table("t").scan(where="id >= 90").to_spark(spark).count() == 10
spark.stop()
"""
WITH_DAGSTER = """
import dagster as dg, pyarrow as pa
from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage, SqliteCatalog
files = LocalStorage(data_path="dagster_files/")
lake = DuckLakeResource(catalog=SqliteCatalog(path="dagster.sqlite"), storage=files, create_if_missing=True)
@dg.asset
def numbers() -> pa.Table:
    return pa.table({"n": [1, 2]})
assert dg.materialize([numbers], resources={"io_manager": DuckLakeIOManager(lake=lake)}).success
assert lake.connect().table("numbers").scan().count() == 2
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command; Spark's workers use the Python that the command begins with, not the one that runs this script."""
    print("+", *command if len(str(command[-1])) < 200 else (*command[:-1], "..."), flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYSPARK_PYTHON": str(command[0])}
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, env=environment)


def environment(folder: Path, *install: str) -> Path:
    """The Python of a new environment with these packages and nothing else."""
    venv.create(folder, with_pip=True, clear=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *install)
    return folder / "bin" / "python"


def check_changelog() -> None:
    """The version of the package has a dated section, below what is not released."""
    heads = re.findall(r"^## \[(.+?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0][0] == "Unreleased", heads
    assert VERSION in [version for version, _ in heads], f"CHANGELOG.md has no section {VERSION}"
    for version, date in heads[1:]:
        assert re.fullmatch(r" - \d{4}-\d{2}-\d{2}", date), f"the section {version} of CHANGELOG.md has no date"


def check_fragments(folder: Path) -> None:
    """Build a draft of the next section of the changelog from the fragments in ``.changes``."""
    python = environment(folder / "fragments", "towncrier")
    run(python, "-m", "towncrier", "build", "--draft", "--version", "next")


def build(folder: Path) -> Path:
    """The wheel, after both packages were built and looked into."""
    python = environment(folder / "tools", "build")
    run(python, "-m", "build", "--outdir", folder / "dist", ROOT)
    (wheel,) = (folder / "dist").glob("*.whl")
    (source,) = (folder / "dist").glob("*.tar.gz")
    names = set(zipfile.ZipFile(wheel).namelist())
    held = {path.relative_to(ROOT).as_posix() for name in ("ducklake_core", "ducklake_dagster") for path in (ROOT / name).rglob("*.py")}
    assert held <= names, held - names
    assert not {name for name in names if name.startswith(("tests", "docs"))}
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    wanted = held | {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "docs/README.md", "docs/images/asset-page.png"}
    assert wanted <= inside, wanted - inside
    return wheel


def check_executors(folder: Path, wheel: Path) -> None:
    """Work units are imported where nothing but their few packages is installed."""
    python = environment(folder / "executors", *EXECUTORS)
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", str(wheel))
    run(python, "-c", ON_EXECUTORS, cwd=folder)


def check_users(folder: Path, wheel: Path) -> None:
    """Check what each extra installs: enough for its part, and not the others."""
    for extras, programs, missing in (
        ("", (IN_PROCESS,), ("pyspark", "dagster", "pandas", "duckdb")),
        ("[dagster]", (IN_PROCESS, WITH_DAGSTER), ("pyspark", "pandas")),
        ("[spark]", (IN_PROCESS, WITH_SPARK), ("dagster",)),
        ("[all]", (IN_PROCESS, WITH_DAGSTER, WITH_SPARK), ()),
    ):
        python = environment(folder / f"users{extras.strip('[]')}", f"{wheel}{extras}")
        place = Path(tempfile.mkdtemp(dir=folder))
        for program in programs:
            run(python, "-c", program, cwd=place)
        for package in missing:
            run(python, "-c", f"import importlib.util; assert importlib.util.find_spec({package!r}) is None", cwd=place)
        packages = python.parents[1] / "lib"
        size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
        print(f"ducklake-dagster{extras}: {size / 1e6:,.0f} MB without bytecode", flush=True)


def check_tests(folder: Path, name: str, *more: str, ignore: tuple[str, ...] = ()) -> None:
    python = environment(folder / name, *more, f"{ROOT}[demo,dev]")
    ignored = [f"--ignore={path}" for path in ignore]
    # The packages bring no server of MySQL catalogs and none of Azure.
    chosen = ["-m", "not slow and not spark", "-k", "not mysql and not object_stores", "--numprocesses", "2", "--dist", "loadfile"]
    run(python, "-m", "pytest", "-p", "no:cacheprovider", *chosen, *ignored, "tests/unit", "tests/behaviour", "ducklake_core")
    place = Path(tempfile.mkdtemp(dir=folder))
    for program in (IN_PROCESS, WITH_DAGSTER, WITH_SPARK):
        run(python, "-c", program, cwd=place)


def check_lowest(folder: Path) -> None:
    bounds = folder / "lowest.txt"
    bounds.write_text("".join(f"{name}=={version}\n" for name, version in lowest().items()))
    # Spark 4.0 has no writers of streams that take Arrow: format("ducklake") does not support writing streams there.
    check_tests(folder, "lowest", "--constraint", str(bounds), ignore=("ducklake_core/spark_source/writers.py",))


def main(folder: Path, parts: list[str]) -> None:
    parts = parts or ["changelog", "fragments", "build", "executors", "users", "lowest", "newest"]
    if "changelog" in parts:
        check_changelog()
    if "fragments" in parts:
        check_fragments(folder)
    if {"build", "executors", "users"} & set(parts):
        wheel = build(folder)
        if "executors" in parts:
            check_executors(folder, wheel)
        if "users" in parts:
            check_users(folder, wheel)
    if "lowest" in parts:
        check_lowest(folder)
    if "newest" in parts:
        check_tests(folder, "newest")
    print("checked:", *parts)


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="ducklake-release-"))
    if place.is_relative_to(ROOT):
        sys.exit("the folder must be outside of the project, so that nothing is imported from it")
    place.mkdir(parents=True, exist_ok=True)
    main(place, sys.argv[2:])
