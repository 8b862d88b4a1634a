"""``ducklake doctor``: test each step between the command and the rows, on Spark too, and report how to fix failures."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from ducklake_core.catalog.database.failures import is_about_login
from ducklake_core.cli.output import print_json, print_lines, read_or_not
from ducklake_core.cli.session import FOUND, Json, LakeOptions, exit_with
from ducklake_core.engines.spark.probe import ExecutorProbe, installed, probe_executor, written_and_deleted
from ducklake_core.errors import CatalogUnavailableError, DuckLakeError, NotFoundError
from ducklake_core.format.files.paths import printable
from ducklake_core.lake import DuckLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Outcome: TypeAlias = Literal["ok", "warning", "failed", "skipped"]
_JAVA_FROM = 17
_SAME = ("ducklake-dagster", "pyarrow", "fsspec", "s3fs", "gcsfs", "adlfs")
"""Packages that this process and Spark executors must have in the same version."""

_LATE_SECONDS = 5.0
_PACKAGES = ("pyarrow", "sqlalchemy", "psycopg", "pymysql", "fsspec", "pyspark", "duckdb", "dagster")


def doctor(
    context: typer.Context,
    *,
    write: Annotated[bool, typer.Option("--write/--no-write", help="Also write and delete a small file below the data path.")] = True,
    spark: Annotated[bool, typer.Option("--spark", help="Also start Spark, and test the storage from an executor.")] = False,
    as_json: Json = False,
) -> None:
    """Test catalog, clock, storage, Java, Spark and versions. The exit code is 1 if a test fails.

    Example: ducklake doctor --spark
    """
    options: LakeOptions = context.find_root().obj
    found = list(probes(options, write=write, spark=spark))
    with read_or_not():
        if as_json:
            print_json(found)
        else:
            for probe in found:
                print_lines(
                    [f"{probe.outcome:<8} {probe.name}: {probe.message}", *([f"{'':<8} -> {probe.advice}"] if probe.advice else [])]
                )
    exit_with(FOUND, all(probe.outcome != "failed" for probe in found))


def probes(options: LakeOptions, *, write: bool, spark: bool) -> Iterator[Probe]:
    """Yield the result of each test, one after another. Tests that need the lake are skipped if it cannot be opened."""
    lake: DuckLake | None = None
    started = time.perf_counter()
    try:
        lake = options.connect(read_only=True)
        yield _catalog(lake, time.perf_counter() - started)
    except DuckLakeError as error:
        yield Probe(name="catalog", outcome="failed", message=str(error), advice=_advice(error))
    if lake is not None:
        opened = lake
        try:
            yield _tried("clock", lambda: _clock(opened), "synchronize the clock of this machine with NTP")
            yield _tried("storage", lambda: _storage(opened), "check the data path, the permissions and the credentials")
            if write:
                yield written("storage, writing", written_and_deleted(opened.storage, opened.info.data_path))
            yield from _of_spark(opened if spark else None, write=write)
        finally:
            lake.close()
    else:
        for name in ("clock", "storage", *(("storage, writing",) if write else ())):
            yield _without_lake(name)
        yield from _of_spark(None, write=write)
        if spark:
            yield _without_lake("executor")
    yield _versions()


def _advice(error: DuckLakeError) -> str:
    """Return advice for a catalog that could not be opened."""
    is_away, is_forbidden = isinstance(error, CatalogUnavailableError), error.details.get("parameter") == "catalog"
    if is_forbidden or (is_away and ("path" in error.details or error.details.get("sqlite_error") is not None)):
        return "check the path, its permissions, and which processes have the file open"
    if is_away or is_about_login(error):
        return "check the address, the network, the user and its password"
    return "check --lake or DUCKLAKE_URL, and the other options and variables of the lake"


def _of_spark(lake: DuckLake | None, *, write: bool) -> Iterator[Probe]:
    yield java()
    yield pyspark()
    if lake is not None:
        yield from executor_probes(lake, write=write)


def _without_lake(name: str) -> Probe:
    return Probe(name=name, outcome="skipped", message="skipped because the lake cannot be opened")


def _tried(name: str, attempt: Callable[[], Probe], advice: str) -> Probe:
    try:
        return attempt()
    except DuckLakeError as error:
        return Probe(name=name, outcome="failed", message=str(error), advice=advice)


def _catalog(lake: DuckLake, seconds: float) -> Probe:
    snapshot = lake.snapshot()
    message = f"{lake.database.address}, version {lake.info.version}, snapshot {snapshot.id}, opened in {seconds * 1000:.0f} ms"
    if not lake.info.format_version.is_writable:
        advice = "the catalog can be read but not written: run ducklake migrate --dry-run"
        return Probe(name="catalog", outcome="warning", message=message, advice=advice)
    return Probe(name="catalog", outcome="ok", message=message)


def _clock(lake: DuckLake) -> Probe:
    with lake.database.read() as connection:
        there, here = lake.database.now(connection), datetime.now(UTC)
    newest = lake.snapshot().time
    apart = (here - there).total_seconds()
    if abs(apart) > _LATE_SECONDS:
        message = f"this machine is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the catalog's database"
        return Probe(
            name="clock",
            outcome="warning",
            message=message,
            advice="synchronize both clocks with NTP: maintenance measures ages with the clock of the database",
        )
    if (newest - there).total_seconds() > _LATE_SECONDS:
        message = f"the newest snapshot has the time {newest:%Y-%m-%d %H:%M:%S} UTC, which is in the future"
        return Probe(
            name="clock",
            outcome="warning",
            message=message,
            advice="the clock of a writer is or was wrong: synchronize the clocks of all writers with NTP",
        )
    return Probe(name="clock", outcome="ok", message=f"{abs(apart):.1f} s difference to the database of the catalog")


def _storage(lake: DuckLake) -> Probe:
    path = printable(lake.info.data_path)
    file = first_file(lake)
    if file is None:
        first = next(lake.storage.list(lake.info.data_path), None)
        return Probe(name="storage", outcome="ok", message=f"{path} can be listed" + ("" if first else ", and is empty"))
    try:
        size = lake.storage.size(file[0])
    except NotFoundError as error:
        advice = "check the data path; if the files were moved, store the new one: ducklake move NEW_PATH"
        return Probe(name="storage", outcome="failed", message=str(error), advice=advice)
    if size != file[1]:
        message = f"{printable(file[0])} has {size} bytes, but {file[1]} in the catalog"
        return Probe(name="storage", outcome="failed", message=message, advice="ducklake check --level footers")
    return Probe(name="storage", outcome="ok", message=f"{path}: the first file of the lake exists")


def _versions() -> Probe:
    message = ", ".join(f"{name} {found}" for name, found in installed(("ducklake-dagster", *_PACKAGES)).items())
    return Probe(name="versions", outcome="ok", message=f"Python {platform.python_version()}, {message}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The result of one test of the setup: its outcome, a message, and advice where something is wrong."""

    name: str
    outcome: Outcome
    message: str
    advice: str | None = None


def java() -> Probe:
    """Check the Java that Spark would start: the one of JAVA_HOME, or the first one on the PATH."""
    advice = f"install Java {_JAVA_FROM} or later and set JAVA_HOME; only Spark needs it"
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on the PATH"
        return Probe(name="java", outcome="warning", message=where, advice=advice)
    try:
        done = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe(name="java", outcome="warning", message=f"{found} does not run: {type(error).__name__}", advice=advice)
    version = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if version is None or int(version[1]) < _JAVA_FROM:
        return Probe(name="java", outcome="warning", message=f"{found} is of version {version[1] if version else 'unknown'}", advice=advice)
    return Probe(name="java", outcome="ok", message=f"version {version[1]}, {found}")


def pyspark() -> Probe:
    """Check that PySpark is installed and recent enough."""
    found = installed(["pyspark"]).get("pyspark")
    if found is None or int(found.partition(".")[0]) < 4:
        advice = "install pyspark 4 where tables are read or written with Spark"
        return Probe(name="spark", outcome="warning", message=f"pyspark {found or 'is not installed'}", advice=advice)
    return Probe(name="spark", outcome="ok", message=f"pyspark {found}")


def executor_probes(lake: DuckLake, *, write: bool) -> Iterator[Probe]:
    """Start Spark, or use the running session, and test the packages and the storage of an executor."""
    try:
        from pyspark.sql import SparkSession

        running = SparkSession.getActiveSession()
        session = running or SparkSession.builder.appName("ducklake doctor").getOrCreate()
    except Exception as error:  # noqa: BLE001 - any error of Spark is a result
        yield Probe(
            name="spark session", outcome="failed", message=_first_line(lake, error), advice="check Java, SPARK_HOME and SPARK_REMOTE"
        )
        return
    try:
        yield Probe(name="spark session", outcome="ok", message=f"Spark {session.version}")
        yield from _of_executor(session, lake, write=write)
    finally:
        if running is None:
            session.stop()


def _of_executor(session: SparkSession, lake: DuckLake, *, write: bool) -> Iterator[Probe]:
    try:
        file = first_file(lake)
        found = probe_executor(
            session, lake.storage, lake.info.data_path, file[0] if file else None, write=write, packages=(*_SAME, "pyspark")
        )
    except Exception as error:  # noqa: BLE001 - any error of Spark is a result
        advice = "install ducklake-dagster and its packages on the executors, or ship them with --py-files or addArtifacts"
        yield Probe(name="executor", outcome="failed", message=_first_line(lake, error), advice=advice)
        return
    yield _same_packages(found)
    if found.reading is not None:
        advice = "executors need the network access and the credentials of this process: check storage options and roles"
        yield Probe(name="storage, from an executor", outcome="failed", message=found.reading, advice=advice)
    elif file is not None and found.size != file[1]:
        message = f"{printable(file[0])} has {found.size} bytes on the executor, but {file[1]} in the catalog"
        yield Probe(
            name="storage, from an executor",
            outcome="failed",
            message=message,
            advice="executors must read the same store, not a local disk",
        )
    else:
        message = f"{printable(lake.info.data_path)}: {'the first file exists' if file else 'the store answers'}"
        yield Probe(name="storage, from an executor", outcome="ok", message=message)
    if write:
        yield written("storage, writing from an executor", found.writing)


def _same_packages(found: ExecutorProbe) -> Probe:
    here = {"Python": platform.python_version().rpartition(".")[0], **installed(_SAME)}
    there = {"Python": found.python.rpartition(".")[0], **found.packages}
    apart = [
        f"{name} {there.get(name, 'is missing')} on the executor, {version} in this process"
        for name, version in here.items()
        if there.get(name) != version
    ]
    if apart:
        advice = "install the same versions on executors as in this process"
        return Probe(name="executor", outcome="warning", message="; ".join(apart), advice=advice)
    return Probe(name="executor", outcome="ok", message=f"Python {found.python}, the same packages as in this process")


def written(name: str, failure: str | None) -> Probe:
    """Report whether a small file could be written and deleted."""
    if failure is not None:
        advice = "grant the right to write and delete below the data path"
        return Probe(name=name, outcome="failed", message=failure, advice=advice)
    return Probe(name=name, outcome="ok", message="a file was written, found and deleted")


def first_file(lake: DuckLake) -> tuple[str, int] | None:
    """Return path and size in bytes of a data file of the lake; None if it has no data file."""
    for info in lake.tables():
        # Another client may remove the files meanwhile.
        files = lake.table(info.table).list_files() if info.file_count else []
        if files:
            return files[0].path, files[0].file_size_bytes
    return None


def _first_line(lake: DuckLake, error: Exception) -> str:
    lines: Sequence[str] = (error.message if isinstance(error, DuckLakeError) else str(error)).splitlines()
    return lake.storage.options.redact(f"{type(error).__name__}: {lines[0] if lines else ''}")
