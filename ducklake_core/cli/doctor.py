"""``ducklake doctor``: tries each hop between here and the rows, and says what to do about one that does not work."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from ducklake_core.catalog.database.failures import is_about_login
from ducklake_core.cli.options import Json
from ducklake_core.cli.output import print_json, print_lines, read_or_not
from ducklake_core.cli.session import FOUND, LakeOptions, exit_with
from ducklake_core.cli.spark_hops import Hop, executor_hops, first_file, java, pyspark, written
from ducklake_core.engines.spark.probe import installed, written_and_deleted
from ducklake_core.errors import CatalogUnavailableError, DuckLakeError
from ducklake_core.format.files.locations import printable
from ducklake_core.lake import DuckLake

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
    """Everything that is tried, one after another; what needs the lake is skipped where there is none."""
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
    """What to do about a catalog that could not be opened."""
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
