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
from ducklake_core.errors import CatalogUnavailableError, DuckLakeError
from ducklake_core.format.files.paths import printable
from ducklake_core.lake import DuckLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Outcome: TypeAlias = Literal["ok", "warning", "failed", "skipped"]
_JAVA_FROM = 17
_SAME = ("ducklake-dagster", "pyarrow", "fsspec", "s3fs", "gcsfs", "adlfs")
"""Packages that work units use on both sides; rows and files travel between them."""

_LATE_SECONDS = 5.0
_PACKAGES = ("pyarrow", "sqlalchemy", "psycopg", "pymysql", "fsspec", "pyspark", "duckdb", "dagster")


def doctor(
    context: typer.Context,
    *,
    write: Annotated[bool, typer.Option("--write/--no-write", help="Also write a small file below the data path, and delete it.")] = True,
    spark: Annotated[bool, typer.Option("--spark", help="Also start Spark, and try the storage from one of its executors.")] = False,
    as_json: Json = False,
) -> None:
    """Try catalog, clock, storage, Java, Spark and versions. The exit code is 1 when one of them fails."""
    options: LakeOptions = context.find_root().obj
    found = list(hops(options, write=write, spark=spark))
    with read_or_not():
        if as_json:
            print_json(found)
        else:
            for hop in found:
                print_lines([f"{hop.outcome:<8} {hop.name}: {hop.says}", *([f"{'':<8} -> {hop.advice}"] if hop.advice else [])])
    exit_with(FOUND, all(hop.outcome != "failed" for hop in found))


def hops(options: LakeOptions, *, write: bool, spark: bool) -> Iterator[Hop]:
    """Yield the result of each test, one after another; what needs the lake is skipped where there is none."""
    lake: DuckLake | None = None
    started = time.perf_counter()
    try:
        lake = options.connect(read_only=True)
        yield _catalog(lake, time.perf_counter() - started)
    except DuckLakeError as error:
        yield Hop(name="catalog", outcome="failed", says=str(error), advice=_advice(error))
    if lake is not None:
        opened = lake
        try:
            yield _tried("clock", lambda: _clock(opened), "set this machine's clock by NTP")
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


def _of_spark(lake: DuckLake | None, *, write: bool) -> Iterator[Hop]:
    yield java()
    yield pyspark()
    if lake is not None:
        yield from executor_hops(lake, write=write)


def _without_lake(name: str) -> Hop:
    return Hop(name=name, outcome="skipped", says="not tried without the lake")


def _tried(name: str, attempt: Callable[[], Hop], advice: str) -> Hop:
    try:
        return attempt()
    except DuckLakeError as error:
        return Hop(name=name, outcome="failed", says=str(error), advice=advice)


def _catalog(lake: DuckLake, seconds: float) -> Hop:
    snapshot = lake.snapshot()
    says = f"{lake.database.address}, version {lake.info.version}, snapshot {snapshot.id}, opened in {seconds * 1000:.0f} ms"
    if not lake.info.format_version.is_writable:
        advice = "it can be read, not written: ducklake migrate --dry-run"
        return Hop(name="catalog", outcome="warning", says=says, advice=advice)
    return Hop(name="catalog", outcome="ok", says=says)


def _clock(lake: DuckLake) -> Hop:
    with lake.database.read() as connection:
        there, here = lake.database.now(connection), datetime.now(UTC)
    newest = lake.snapshot().time
    apart = (here - there).total_seconds()
    if abs(apart) > _LATE_SECONDS:
        says = f"this machine is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the catalog's database"
        return Hop(name="clock", outcome="warning", says=says, advice="ages in maintenance count by the database's clock; set both by NTP")
    if (newest - there).total_seconds() > _LATE_SECONDS:
        says = f"the newest snapshot is of {newest:%Y-%m-%d %H:%M:%S} UTC, which is in the future"
        return Hop(name="clock", outcome="warning", says=says, advice="the clock of a writer is, or was, wrong")
    return Hop(name="clock", outcome="ok", says=f"{abs(apart):.1f} s apart from the catalog's database")


def _storage(lake: DuckLake) -> Hop:
    path = printable(lake.info.data_path)
    file = first_file(lake)
    if file is None:
        first = next(lake.storage.list(lake.info.data_path), None)
        return Hop(name="storage", outcome="ok", says=f"{path} can be listed" + ("" if first else ", and is empty"))
    size = lake.storage.size(file[0])
    if size != file[1]:
        says = f"{printable(file[0])} has {size} bytes, the catalog says {file[1]}"
        return Hop(name="storage", outcome="failed", says=says, advice="ducklake check --level footers")
    return Hop(name="storage", outcome="ok", says=f"{path}: the first file of the lake is there")


def _versions() -> Hop:
    says = ", ".join(f"{name} {found}" for name, found in installed(("ducklake-dagster", *_PACKAGES)).items())
    return Hop(name="versions", outcome="ok", says=f"Python {platform.python_version()}, {says}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One thing that was tried: how it went, what was seen, and what to do."""

    name: str
    outcome: Outcome
    says: str
    advice: str | None = None


def java() -> Hop:
    """Check the Java that Spark would start: that of JAVA_HOME, or the first of the PATH."""
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
    version = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if version is None or int(version[1]) < _JAVA_FROM:
        return Hop(name="java", outcome="warning", says=f"{found} is of version {version[1] if version else 'unknown'}", advice=advice)
    return Hop(name="java", outcome="ok", says=f"version {version[1]}, {found}")


def pyspark() -> Hop:
    """Check that PySpark is installed, and is new enough."""
    found = installed(["pyspark"]).get("pyspark")
    if found is None or int(found.partition(".")[0]) < 4:
        advice = "install pyspark 4 where tables are read or written with Spark"
        return Hop(name="spark", outcome="warning", says=f"pyspark {found or 'is not installed'}", advice=advice)
    return Hop(name="spark", outcome="ok", says=f"pyspark {found}")


def executor_hops(lake: DuckLake, *, write: bool) -> Iterator[Hop]:
    """Start Spark, or use the session that there is, and have an executor check itself and the store."""
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
        says = f"{printable(file[0])} has {found.size} bytes there, but {file[1]} in the catalog"
        yield Hop(
            name="storage, from an executor", outcome="failed", says=says, advice="executors must read the same store, not a local disk"
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
    """Report whether a small file could be written and deleted."""
    if failure is not None:
        advice = "writers need the right to write and delete below the data path"
        return Hop(name=name, outcome="failed", says=failure, advice=advice)
    return Hop(name=name, outcome="ok", says="a file was written, found and deleted")


def first_file(lake: DuckLake) -> tuple[str, int] | None:
    """Return path and bytes of a data file of the lake, None when it has none."""
    for info in lake.tables():
        # Another client may take the files out meanwhile.
        files = lake.table(info.table).list_files() if info.file_count else []
        if files:
            return files[0].path, files[0].file_size_bytes
    return None


def _first_line(lake: DuckLake, error: Exception) -> str:
    lines: Sequence[str] = (error.message if isinstance(error, DuckLakeError) else str(error)).splitlines()
    return lake.storage.options.redact(f"{type(error).__name__}: {lines[0] if lines else ''}")
