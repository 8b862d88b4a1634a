"""Every operation on every layout of a table, on every catalog and engine: supported, or rejected by an error.

``python -m tests.support.verdicts SECTION ...`` (process, catalogs, spark, connect) runs them and writes these sections of the page
tests/support/supported-operations.md; tests/project/test_verdicts.py compares them.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from ducklake_core.spark_source import register
from tests.support.oracle import LakeAddress, file_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).with_name("supported-operations.md")
DAY = dt.date(2026, 1, 31)
YES = "yes"
_FOLDER = re.compile(r"/\S*/")
_SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.string()), ("d", pa.date32()), ("x", pa.float64())])
INTRODUCTION = """\
# Supported operations

Which operations work on which kinds of tables. `tests/support/verdicts.py` generates the page: it runs every operation
on every kind of table, and compares the rows with those of the same operation on plain files.

- In process: {process}
- On Spark: {spark}
"""


def rows(first: int, number: int) -> pa.Table:
    """Rows of the table ``t (i, s, d, x)``."""
    numbers = range(first, first + number)
    days = [DAY + dt.timedelta(days=number) for number in numbers]
    return pa.table(
        {"i": numbers, "s": [f"s{number % 2}" for number in numbers], "d": days, "x": [number / 2 for number in numbers]}, _SCHEMA
    )


def _filled(lake: DuckLake, inline: bool | None = False, **how: Any) -> DuckLake:
    for first in (0, 6):
        lake.write("t", rows(first, 6), inline=inline, **(how if first == 0 else {}))
    return lake


def _created(address: LakeAddress, **how: Any) -> DuckLake:
    return DuckLake.create(address.url, data_path=address.data_path, **how)


def _with_deletes(address: LakeAddress) -> DuckLake:
    lake = _created(address)
    lake.write("t", rows(-4, 4), inline=False)
    _filled(lake).set_option("data_inlining_row_limit", 0)
    lake.table("t").delete("i < -1")
    lake.set_option("data_inlining_row_limit", 10)
    lake.table("t").delete("i = -1")
    return lake


def _with_added_files(address: LakeAddress) -> DuckLake:
    lake = _created(address)
    lake.create_table("t", rows(0, 0).schema)
    folder = Path(tempfile.mkdtemp(dir=Path(address.data_path).parent))
    for first in (0, 6):
        pq.write_table(rows(first, 6), folder / f"{first}.parquet")
    lake.add_data_files("t", [str(path) for path in sorted(folder.glob("*.parquet"))])
    return lake


def _with_changed_columns(address: LakeAddress) -> DuckLake:
    lake = _created(address)
    old = rows(0, 6)
    lake.write("t", old.rename_columns(["i", "text", "d", "x"]).set_column(3, "x", old.column("x").cast(pa.float32())), inline=False)
    lake.sql("ALTER TABLE t RENAME COLUMN text TO s")
    lake.sql("ALTER TABLE t ALTER x TYPE DOUBLE")
    lake.write("t", rows(6, 6), inline=False)
    return lake


LAYOUTS: dict[str, Callable[[LakeAddress], DuckLake]] = {
    "files": lambda address: _filled(_created(address)),
    "inlined": lambda address: _filled(_created(address), inline=True),
    "deleted rows": _with_deletes,
    "partitioned": lambda address: _filled(_created(address), partition_by=["s", "month(d)"]),
    "encrypted": lambda address: _filled(_created(address, encrypted=True)),
    "added files": _with_added_files,
    "changed columns": _with_changed_columns,
    "version 1.1": lambda address: _filled(_created(address, version="1.1")),
}
"""Rows before each operation: 0 to 11."""


IN_CATALOGS = ("inlined", "deleted rows")
"""Layouts that each catalog database stores partly in its own way."""


class Run(NamedTuple):
    """Arguments of an operation."""

    lake: DuckLake
    address: LakeAddress
    session: SparkSession | None

    @property
    def folder(self) -> Path:
        return Path(self.address.data_path).parent

    def frame(self, table: pa.Table) -> Any:
        return table if self.session is None else self.session.createDataFrame(table.to_pandas(), _SPARK_SCHEMA)

    def read(self, scan: Any) -> list[Any]:
        found = scan.to_arrow() if self.session is None else scan.to_spark(self.session).toArrow()
        return _sorted(found)


_SPARK_SCHEMA = "i LONG, s STRING, d DATE, x DOUBLE"


def _sorted(table: pa.Table) -> list[Any]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def _added(run: Run) -> None:
    path = run.folder / "more.parquet"
    pq.write_table(rows(50, 3), path)
    run.lake.add_data_files("t", [str(path)])


def _changes(run: Run) -> list[Any]:
    first = run.lake.snapshot().id
    run.lake.table("t").update({"x": "x + 1"}, where="i = 3")
    return run.read(run.lake.table("t").changes(first + 1, first + 1, columns=["i", "x"]))


def _registered(run: Run) -> list[Any]:
    assert run.session is not None
    run.lake.register(run.session)
    return _sorted(run.session.sql("SELECT s, count(*) AS n FROM t GROUP BY s").toArrow())


def _source_read(run: Run) -> list[Any]:
    assert run.session is not None
    register(run.session)
    return _sorted(run.session.read.format("ducklake").option("catalogUrl", run.address.url).load("main.t").toArrow())


def _sql(text: str) -> Callable[[Run], object]:
    return lambda run: run.lake.sql(text)


def _merge(run: Run) -> None:
    run.lake.table("t").merge(run.frame(rows(10, 4)), on="i").when_matched_update().when_not_matched_insert().execute()


def _checked(run: Run) -> None:
    findings = run.lake.check(level="rows").findings
    assert not findings, findings


def _restore(run: Run) -> None:
    before = run.lake.snapshot().id
    run.lake.table("t").delete("i > 3")
    run.lake.table("t").restore(before)


READS: dict[str, Callable[[Run], object]] = {
    "scan": lambda run: run.read(run.lake.table("t").scan()),
    "scan under a condition": lambda run: run.read(run.lake.table("t").scan(columns=["i"], where="s = 's1' AND x > 1.5")),
    "count": lambda run: run.lake.table("t").scan().count(),
    "earlier snapshot": lambda run: run.read(run.lake.table("t", at=run.lake.snapshot().id).scan()),
    "changes": _changes,
    "SQL query": lambda run: _sorted(run.lake.sql("SELECT s, sum(x) AS x FROM t GROUP BY s", spark=run.session).to_arrow()),  # type: ignore[union-attr]
}
WRITES: dict[str, Callable[[Run], object]] = {
    "append": lambda run: run.lake.table("t").append(run.frame(rows(20, 3))),
    "overwrite": lambda run: run.lake.table("t").overwrite(run.frame(rows(20, 3))),
    "overwrite where": lambda run: run.lake.table("t").overwrite(run.frame(rows(20, 1)), where="s = 's0'"),
    "update": lambda run: run.lake.table("t").update({"x": "x * 2", "s": "upper(s)"}, where="i % 2 = 0 OR i = 3", spark=run.session),
    "delete": lambda run: run.lake.table("t").delete("i > 2 AND s = 's0'", spark=run.session),
    "merge": _merge,
}
OTHER_OPERATIONS: dict[str, Callable[[Run], object]] = {
    "SQL statement": _sql("INSERT INTO t SELECT i + 100, s, d, x FROM t WHERE i < 3"),
    "restore": _restore,
    "add_data_files": _added,
    "add a column": _sql("ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 7"),
    "drop a column": _sql("ALTER TABLE t DROP COLUMN x"),
    "rename a column": _sql("ALTER TABLE t RENAME COLUMN s TO text"),
    "change a type": _sql("ALTER TABLE t ALTER i TYPE HUGEINT"),
    "change the partition keys": _sql("ALTER TABLE t SET PARTITIONED BY (bucket(4, i))"),
    "sort": _sql("ALTER TABLE t SET SORTED BY (x DESC)"),
    "drop and undrop": lambda run: (run.lake.drop_table("t"), run.lake.undrop_table("t")),
    "merge_adjacent_files": lambda run: run.lake.merge_adjacent_files("t"),
    "rewrite_data_files": lambda run: run.lake.rewrite_data_files("t", delete_threshold=0.0),
    "flush_inlined_data": lambda run: run.lake.flush_inlined_data("t"),
    "expire_snapshots": lambda run: run.lake.expire_snapshots(versions=[run.lake.snapshots()[1].id], min_age="0 days"),
    "cleanup_old_files": lambda run: run.lake.cleanup_old_files(older_than=dt.datetime(2000, 1, 1, tzinfo=dt.UTC)),
    "delete_orphaned_files": lambda run: run.lake.delete_orphaned_files(older_than=dt.datetime(2000, 1, 1, tzinfo=dt.UTC)),
    "checkpoint": lambda run: run.lake.checkpoint(),
    "check": _checked,
}
OF_SPARK: dict[str, Callable[[Run], object]] = {"register, and spark.sql": _registered, 'format("ducklake")': _source_read}
IN_PROCESS = {**READS, **WRITES, **OTHER_OPERATIONS}
ON_SPARK = {**READS, **WRITES, **OF_SPARK}


class Verdicts:
    """Runs operations, and remembers the rows that they are to give."""

    def __init__(self, new_lake: Callable[[], LakeAddress], session: SparkSession | None = None) -> None:
        self._new_lake = new_lake
        self._session = session
        self._expected: dict[str, object] = {}

    def of(self, operation: str, layout: str) -> str:
        """``yes``, or the error.

        Raises:
            AssertionError: The rows are not those that plain files give.
        """
        found = self._outcome(operation, layout)
        if isinstance(found, DuckLakeError):
            return f"`{found.code}`: {_reason(found.message)}"
        if operation not in self._expected:
            self._expected[operation] = found if layout == "files" else self._outcome(operation, "files")
        assert found == self._expected[operation], (operation, layout, found, self._expected[operation])
        return YES

    def _outcome(self, operation: str, layout: str) -> object:
        address = self._new_lake()
        with closing(LAYOUTS[layout](address)) as lake:
            run = Run(lake, address, self._session)
            name = {**IN_PROCESS, **ON_SPARK}[operation]
            try:
                found = name(run)
            except DuckLakeError as error:
                return error
            return found if operation in READS or operation in OF_SPARK else _sorted(lake.table("t").scan().to_arrow())


def _reason(message: str) -> str:
    return _FOLDER.sub("", message.partition(";")[0].replace("|", "\\|"))


def section(title: str, table: Mapping[str, Sequence[str]], columns: Sequence[str]) -> str:
    """Return a section of the page: a table of the operations that do not always work, with the errors below it."""
    always = [operation for operation, verdicts in table.items() if set(verdicts) == {YES}]
    others = "Every operation is" if len(always) == len(table) else "All operations but the following are"
    lines = [f"## {title}", "", f"Kinds of tables: {', '.join(columns)}. {others} supported."]
    notes: dict[str, int] = {}
    rows_of_others = []
    for operation in (one for one in table if one not in always):
        cells = [one if one == YES else f"[{notes.setdefault(one, len(notes) + 1)}]" for one in table[operation]]
        rows_of_others.append(f"| {operation} | {' | '.join(cells)} |")
    if rows_of_others:
        lines += ["", f"| | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}", *rows_of_others, ""]
        lines += [f"{number}. {note}" for note, number in notes.items()]
    return "\n".join(lines).rstrip() + "\n"


def read_section(text: str) -> dict[str, list[bool]]:
    """Return which operations of a section's table are supported, one value for each kind of table."""
    rows_of_table = re.findall(r"^\| (\w.*?) \| (.+) \|$", text, re.MULTILINE)
    return {operation: [cell == YES for cell in cells.split(" | ")] for operation, cells in rows_of_table}


def in_process(new_lake: Callable[[], LakeAddress], operations: Sequence[str] = (), layouts: Sequence[str] = ()) -> dict[str, list[str]]:
    """Verdicts of operations in this process, one for each layout."""
    verdicts = Verdicts(new_lake)
    return {name: [verdicts.of(name, layout) for layout in layouts or LAYOUTS] for name in operations or IN_PROCESS}


def over_layouts(verdicts: Verdicts, operation: str) -> str:
    """Return one verdict for the layouts that catalogs store differently: the rejected ones with their errors."""
    found = {layout: verdicts.of(operation, layout) for layout in IN_CATALOGS}
    return "; ".join(f"{layout}: {verdict}" for layout, verdict in found.items() if verdict != YES) or YES


def new_lakes(folder: Path, backend: str = "sqlite", server: Any = None) -> Callable[[], LakeAddress]:
    """New places for lakes below a folder."""
    numbers = count()

    def new_lake() -> LakeAddress:
        below = folder / f"{backend}{next(numbers)}"
        below.mkdir()
        found: LakeAddress = file_lake(backend, below) if server is None else server.lake(below)
        return found

    return new_lake


def sections(page: str) -> dict[str, str]:
    """The sections of the page by their titles."""
    parts = page.split("\n## ")[1:]
    return {part.partition("\n")[0]: f"## {part.strip()}\n" for part in parts}


TITLES = {
    "process": "In process, by layout",
    "catalogs": "In process, by catalog, with rows and deletes in the catalog",
    "spark": "On Spark, by layout",
    "connect": "On Spark Connect, by layout",
}


def _made(names: Sequence[str], folder: Path, stack: ExitStack) -> Iterator[str]:
    if "process" in names:
        yield section(TITLES["process"], in_process(new_lakes(folder)), list(LAYOUTS))
    if "catalogs" in names:
        yield section(TITLES["catalogs"], by_catalog(folder, stack), list(CATALOGS))
    # A process has sessions of one kind: with SPARK_REMOTE those of a Connect server.
    for name in {"spark", "connect"} & set(names):
        from pyspark.sql import SparkSession

        from tests.support.spark import local_session

        session = SparkSession.builder.getOrCreate() if name == "connect" else local_session()
        yield section(TITLES[name], on_spark(new_lakes(folder), session), list(LAYOUTS))


CATALOGS = {"PostgreSQL": "postgresql", "DuckDB file": "duckdb", "MySQL (MariaDB)": "mysql"}


def by_catalog(folder: Path, stack: ExitStack) -> dict[str, list[str]]:
    """Verdicts on each catalog but SQLite, which the first section is about."""
    from tests.support.mysql import mysql_server
    from tests.support.postgres import start_server

    postgres = start_server()
    stack.callback(postgres.stop)
    servers: dict[str, Any] = {"postgresql": postgres, "mysql": stack.enter_context(mysql_server())}
    verdicts = [Verdicts(new_lakes(folder, backend, servers.get(backend))) for backend in CATALOGS.values()]
    return {name: [over_layouts(one, name) for one in verdicts] for name in IN_PROCESS}


def on_spark(new_lake: Callable[[], LakeAddress], session: SparkSession) -> dict[str, list[str]]:
    """Verdicts on a session, one for each layout."""
    verdicts = Verdicts(new_lake, session)
    return {name: [verdicts.of(name, layout) for layout in LAYOUTS] for name in ON_SPARK}


def introduction() -> str:
    """Return the head of the page, with the names of all operations."""
    process, spark = (", ".join(f"`{one}`" for one in names) for names in (IN_PROCESS, ON_SPARK))
    return INTRODUCTION.format(process=process, spark=spark)


def main(names: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made = list(_made(names, Path(folder), stack))
    known = sections(PAGE.read_text()) if PAGE.exists() else {}
    for text in made:
        known |= sections(f"\n{text}")
    PAGE.write_text("\n".join([introduction(), *(known[title] for title in TITLES.values() if title in known)]))


if __name__ == "__main__":
    main(sys.argv[1:])
