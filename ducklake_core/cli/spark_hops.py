"""The hops of ``ducklake doctor`` that need Spark: Java, the package, a session, and the store as one of its executors sees it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from ducklake_core.engines.spark.probe import ExecutorProbe, installed, probe_executor
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.files.locations import printable
from ducklake_core.lake import DuckLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Outcome: TypeAlias = Literal["ok", "warning", "failed", "skipped"]
_JAVA_FROM = 17
_SAME = ("ducklake-dagster", "pyarrow", "fsspec", "s3fs", "gcsfs", "adlfs")
"""Packages that work units use on both sides; rows and files travel between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One thing that was tried: how it went, what was seen, and what to do."""

    name: str
    outcome: Outcome
    says: str
    advice: str | None = None


def java() -> Hop:
    """The Java that Spark would start: that of JAVA_HOME, or the first of the PATH."""
    advice = f"install Java {_JAVA_FROM} or later and set JAVA_HOME; only Spark needs it"
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java below it" if home else "there is no java on the PATH"
        return Hop(name="java", outcome="warning", says=where, advice=advice)
    try:
        done = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Hop(name="java", outcome="warning", says=f"{found} does not run: {type(error).__name__}", advice=advice)
    told = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if told is None or int(told[1]) < _JAVA_FROM:
        return Hop(name="java", outcome="warning", says=f"{found} is of version {told[1] if told else 'unknown'}", advice=advice)
    return Hop(name="java", outcome="ok", says=f"version {told[1]}, {found}")


def pyspark() -> Hop:
    """The package."""
    found = installed(["pyspark"]).get("pyspark")
    if found is None or int(found.partition(".")[0]) < 4:
        advice = "install pyspark 4 where tables are read or written with Spark"
        return Hop(name="spark", outcome="warning", says=f"pyspark {found or 'is not installed'}", advice=advice)
    return Hop(name="spark", outcome="ok", says=f"pyspark {found}")


def executor_hops(lake: DuckLake, *, write: bool) -> Iterator[Hop]:
    """Start Spark, or use the session that there is, and have an executor look at itself and at the store."""
    try:
        from pyspark.sql import SparkSession

        running = SparkSession.getActiveSession()
        session = running or SparkSession.builder.appName("ducklake doctor").getOrCreate()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the answer
        yield Hop(name="spark session", outcome="failed", says=_first_line(lake, error), advice="check Java, SPARK_HOME and SPARK_REMOTE")
        return
    try:
        yield Hop(name="spark session", outcome="ok", says=f"Spark {session.version}")
        yield from _of_executor(session, lake, write=write)
    finally:
        if running is None:
            session.stop()


def _of_executor(session: SparkSession, lake: DuckLake, *, write: bool) -> Iterator[Hop]:
    try:
        file = first_file(lake)
        found = probe_executor(
            session, lake.storage, lake.info.data_path, file[0] if file else None, write=write, packages=(*_SAME, "pyspark")
        )
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the answer
        advice = "executors need ducklake-dagster and its packages: install them there, or ship them with --py-files or addArtifacts"
        yield Hop(name="executor", outcome="failed", says=_first_line(lake, error), advice=advice)
        return
    yield _same_packages(found)
    if found.reading is not None:
        advice = "executors need the network and the credentials of this process: check the storage options, and roles of the machines"
        yield Hop(name="storage, from an executor", outcome="failed", says=found.reading, advice=advice)
    elif file is not None and found.size != file[1]:
        says = f"{printable(file[0])} has {found.size} bytes there, the catalog says {file[1]}"
        yield Hop(
            name="storage, from an executor", outcome="failed", says=says, advice="executors must see the same store, not a disk of theirs"
        )
    else:
        says = f"{printable(lake.info.data_path)}: {'the first file is there' if file else 'it answers'}"
        yield Hop(name="storage, from an executor", outcome="ok", says=says)
    if write:
        yield written("storage, writing from an executor", found.writing)


def _same_packages(found: ExecutorProbe) -> Hop:
    here = {"Python": platform.python_version().rpartition(".")[0], **installed(_SAME)}
    there = {"Python": found.python.rpartition(".")[0], **found.packages}
    apart = [
        f"{name} {there.get(name, 'is missing')} there and {version} here" for name, version in here.items() if there.get(name) != version
    ]
    if apart:
        advice = "install the same versions on executors as in this process"
        return Hop(name="executor", outcome="warning", says=", ".join(apart), advice=advice)
    return Hop(name="executor", outcome="ok", says=f"Python {found.python}, the same packages as here")


def written(name: str, failure: str | None) -> Hop:
    """Whether a small file could be written and deleted."""
    if failure is not None:
        advice = "writers need the right to write and delete below the data path"
        return Hop(name=name, outcome="failed", says=failure, advice=advice)
    return Hop(name=name, outcome="ok", says="a file was written, found and deleted")


def first_file(lake: DuckLake) -> tuple[str, int] | None:
    """Path and bytes of a data file of the lake, None when it has none."""
    for info in lake.tables():
        # Somebody may take the files out meanwhile.
        files = lake.table(info.table).list_files() if info.file_count else []
        if files:
            return files[0].path, files[0].file_size_bytes
    return None


def _first_line(lake: DuckLake, error: Exception) -> str:
    lines: Sequence[str] = (error.message if isinstance(error, DuckLakeError) else str(error)).splitlines()
    return lake.storage.options.redact(f"{type(error).__name__}: {lines[0] if lines else ''}")
