"""``ducklake doctor``: tries each hop between here and the rows, and says what to do about one that does not work."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Literal, TypeAlias

import typer

from ducklake_core.cli.options import Json
from ducklake_core.cli.output import print_json
from ducklake_core.cli.session import FOUND, LakeOptions, exit_with
from ducklake_core.errors import DuckLakeError
from ducklake_core.format.files.locations import printable
from ducklake_core.lake import DuckLake

Outcome: TypeAlias = Literal["ok", "warning", "failed"]
_LATE_SECONDS = 5.0
_JAVA_FROM = 17
_PACKAGES = ("pyarrow", "sqlalchemy", "psycopg", "fsspec", "pyspark", "duckdb", "dagster")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One thing that was tried: how it went, what was seen, and what to do."""

    name: str
    outcome: Outcome
    says: str
    advice: str | None = None


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
    if as_json:
        print_json(found)
    else:
        for hop in found:
            typer.echo(f"{hop.outcome:<8} {hop.name}: {hop.says}")
            if hop.advice:
                typer.echo(f"{'':<8} -> {hop.advice}")
    exit_with(FOUND, all(hop.outcome != "failed" for hop in found))


def hops(options: LakeOptions, *, write: bool, spark: bool) -> Iterator[Hop]:
    """Everything that is tried, one after another; what needs the lake is left out where there is none."""
    lake: DuckLake | None = None
    started = time.perf_counter()
    try:
        lake = options.connect(read_only=True)
        yield _catalog(lake, time.perf_counter() - started)
    except DuckLakeError as error:
        yield Hop(name="catalog", outcome="failed", says=str(error), advice="check the address, the network, the user and its password")
    if lake is not None:
        opened = lake
        try:
            yield _tried("clock", lambda: _clock(opened), "set this machine's clock by NTP")
            yield _tried("storage", lambda: _storage(opened), "check the data path, the permissions and the credentials")
            if write:
                yield _tried("storage, writing", lambda: _written(opened), "writers need the right to write and delete below the data path")
        finally:
            lake.close()
    yield _java()
    yield _pyspark()
    if spark and lake is not None:
        opened = lake
        yield _tried("storage, from an executor", lambda: _executor(opened), "executors need the same packages, network and credentials")
    yield _versions()


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
    for info in lake.tables():
        for file in lake.table(info.table).list_files()[:1]:
            size = lake.storage.size(file.path)
            if size != file.file_size_bytes:
                says = f"{printable(file.path)} has {size} bytes, the catalog says {file.file_size_bytes}"
                return Hop(name="storage", outcome="failed", says=says, advice="ducklake check --level footers")
            return Hop(name="storage", outcome="ok", says=f"{path}: the first file of {info.table} is there")
    first = next(lake.storage.list(lake.info.data_path), None)
    return Hop(name="storage", outcome="ok", says=f"{path} can be listed" + ("" if first else ", and is empty"))


def _written(lake: DuckLake) -> Hop:
    path = f"{lake.info.data_path}ducklake-doctor-{uuid.uuid4()}.tmp"
    with lake.storage.reporting("write", path), lake.storage.open_output(path) as sink:
        sink.write(b"doctor")
    size = lake.storage.size(path)
    failed = lake.storage.delete([path]).failed
    if failed or size != len(b"doctor"):
        says = failed[0][1] if failed else f"{size} bytes came back instead of {len(b'doctor')}"
        return Hop(name="storage, writing", outcome="failed", says=says, advice="writers need the right to write and delete")
    return Hop(name="storage, writing", outcome="ok", says="a file was written, found and deleted")


def _java() -> Hop:
    advice = f"install Java {_JAVA_FROM} or later and set JAVA_HOME; only Spark needs it"
    java = shutil.which("java")
    if java is None:
        return Hop(name="java", outcome="warning", says="there is no java on the PATH", advice=advice)
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Hop(name="java", outcome="warning", says=f"{java} does not run: {type(error).__name__}", advice=advice)
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if found is None or int(found[1]) < _JAVA_FROM:
        return Hop(name="java", outcome="warning", says=f"{java} is of version {found[1] if found else 'unknown'}", advice=advice)
    return Hop(name="java", outcome="ok", says=f"version {found[1]}")


def _pyspark() -> Hop:
    found = _version_of("pyspark")
    if found is None or int(found.partition(".")[0]) < 4:
        advice = "install pyspark 4 where tables are read or written with Spark"
        return Hop(name="spark", outcome="warning", says=f"pyspark {found or 'is not installed'}", advice=advice)
    return Hop(name="spark", outcome="ok", says=f"pyspark {found}")


def _executor(lake: DuckLake) -> Hop:
    try:
        from pyspark.sql import SparkSession

        session = SparkSession.builder.appName("ducklake doctor").getOrCreate()
        storage, path = lake.storage, lake.info.data_path
        there = session.sparkContext.parallelize([path], 1).map(storage.exists).collect()[0]
    except Exception as error:  # noqa: BLE001 - whatever Spark raises is the answer
        says = storage_safe(lake, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
        return Hop(name="storage, from an executor", outcome="failed", says=says, advice="executors need the same packages and credentials")
    return Hop(name="storage, from an executor", outcome="ok", says=f"{printable(path)} {'is' if there else 'is not'} there")


def storage_safe(lake: DuckLake, text: str) -> str:
    """A text of somebody else without the secrets of the store."""
    return lake.storage.options.redact(text)


def _versions() -> Hop:
    known = {name: _version_of(name) for name in ("ducklake-dagster", *_PACKAGES)}
    says = ", ".join(f"{name} {found}" for name, found in known.items() if found)
    return Hop(name="versions", outcome="ok", says=f"Python {platform.python_version()}, {says}")


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
