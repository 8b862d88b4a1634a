"""Run files of DuckDB's own test suite (sqllogictest) through ``lake.sql`` on SQLite, and count the outcomes.

``python -m tests.support.duckdb_suite FOLDER`` prints the outcome of each ``*.test`` file of ``test/sql`` of duckdb/ducklake in a folder:
``pass``, ``rejected`` for a statement that lake.sql rejects, or ``different`` for other rows or errors, with the first reason.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.readable import Readable
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from ducklake_core.transaction import Transaction

ATTACH = re.compile(r"ATTACH\s+'ducklake:[^']*'(?:\s+AS\s+(\w+))?\s*(?:\((.*)\))?", re.IGNORECASE | re.DOTALL)
OTHER_DATABASES = ("postgres", "mysql", "quack")
OWN_STATEMENTS = re.compile(r"(USE|DETACH|SET (?!VARIABLE)|PRAGMA|ATTACH|INSTALL|LOAD|CREATE TEMP)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Record:
    """A statement or query with its expected outcome."""

    kind: str
    sql: str
    expected: tuple[str, ...]
    options: tuple[str, ...] = ()


class OutcomeError(Exception):
    """The file does not pass."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def records(text: str) -> Iterator[Record]:
    """Yield the records of a file, with loops unrolled."""
    blocks = [block.splitlines() for block in re.split(r"\n\s*\n", re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE))]
    yield from _unrolled([[line for line in block if line.strip()] for block in blocks])


def _unrolled(blocks: list[list[str]]) -> Iterator[Record]:
    place = 0
    while place < len(blocks):
        block = blocks[place]
        place += 1
        if not block:
            continue
        words = block[0].split()
        if words[0] in ("loop", "foreach"):
            depth, inner = 1, []
            while depth:
                depth += (bool(blocks[place]) and blocks[place][0].split()[0] in ("loop", "foreach")) - (blocks[place] == ["endloop"])
                inner.append(blocks[place])
                place += 1
            values = [str(one) for one in range(int(words[2]), int(words[3]))] if words[0] == "loop" else words[2:]
            for value in values:
                filled = [[line.replace("${" + words[1] + "}", value) for line in one] for one in inner[:-1]]
                yield from _unrolled(filled)
        elif words[0] in ("statement", "query"):
            sql = list(takewhile(lambda line: line != "----", block[1:]))
            yield Record(
                f"{words[0]} {words[1] if words[0] == 'statement' else ''}".strip(),
                "\n".join(sql),
                tuple(block[2 + len(sql) :]),
                tuple(words[2:]),
            )
        elif words[0] in ("mode", "concurrentloop", "unzip", "restart", "load", "endloop"):
            raise OutcomeError("unsupported by the runner", words[0])


@dataclass
class Runner:
    """The lake and the connections of one file."""

    folder: Path
    lake: DuckLake | None = None
    name: str = "lake"
    metadata: str = ""
    at: int | None = None
    local: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    open: dict[str, Transaction] = field(default_factory=dict)

    def run(self, record: Record) -> None:
        connection = next((option for option in record.options if re.fullmatch(r"con\d*", option)), "")
        sql = re.sub(r"\$?\{(TEST_DIR|DATA_PATH|DUCKLAKE_CONNECTION)\}|__TEST_DIR__", str(self.folder), record.sql).rstrip().rstrip(";")
        try:
            found = self._execute(sql, connection)
        except (DuckLakeError, duckdb.Error) as problem:
            if record.kind == "statement error":
                return
            outcome = "rejected" if isinstance(problem, UnsupportedFeatureError) else "different"
            raise OutcomeError(outcome, f"{sql[:100]} -> {str(problem)[:150]}") from problem
        if record.kind == "statement error":
            raise OutcomeError("different", f"{sql[:100]} -> no error: {' '.join(record.expected)[:80]}")
        if record.kind == "query":
            self._compare(sql, found, record)

    def _execute(self, sql: str, connection: str) -> Readable | None:
        attached = ATTACH.match(sql)
        if attached:
            self._attach(attached)
            return None
        word = sql.split(maxsplit=1)[0].upper()
        assert self.lake is not None
        if word == "BEGIN":
            self.open[connection] = self.lake.transaction().__enter__()
            return None
        if word in ("COMMIT", "ROLLBACK"):
            transaction = self.open.pop(connection)
            error = None if word == "COMMIT" else RuntimeError("rolled back")
            transaction.__exit__(None if error is None else RuntimeError, error, None)
            return None
        if OWN_STATEMENTS.match(sql):
            if word == "CREATE":
                self.local.execute(sql)
            return None
        sql = re.sub(rf"\b{self.name}\.", "lake.", sql)
        sql = re.sub(rf"(\(\s*|table_catalog = )'{self.name}'", r"\1'lake'", sql)
        sql = re.sub(rf"CHECKPOINT {self.name}$", "CHECKPOINT lake", sql)
        # DuckDB has no minimum age; this is a difference that the page on SQL documents.
        sql = re.sub(r"(ducklake_(?:expire_snapshots|cleanup_old_files|delete_orphaned_files)\('lake')", r"\1, min_age => '0 seconds'", sql)
        for metadata in filter(None, (f"__ducklake_metadata_{self.name}", self.metadata)):
            sql = re.sub(rf"\b{metadata}\.", "__ducklake_metadata_lake.", sql)
        tables = [name for (name,) in self.local.execute("SELECT table_name FROM duckdb_tables()").fetchall() if name in sql]
        frames = {name: self.local.table(name).to_arrow_table() for name in tables}
        target = self.open.get(connection, self.lake)
        moment = {} if self.at is None else {"at": self.at}
        found = target.sql(sql, files=True, **moment, **frames)
        return found if isinstance(found, Readable) else None

    def _attach(self, attached: re.Match[str]) -> None:
        options = attached[2] or ""
        self.name = attached[1] or "lake"
        metadata = re.search(r"METADATA_CATALOG\s+'(\w+)'", options, re.IGNORECASE)
        self.metadata = metadata[1] if metadata else ""
        if self.lake is None:
            path = re.search(r"DATA_PATH\s+'([^']*)'", options, re.IGNORECASE)
            self.lake = DuckLake.create(
                f"sqlite:///{self.folder}/lake.sqlite",
                data_path=f"{path[1] if path else self.folder}/",
                encrypted="ENCRYPTED" in options.upper(),
            )
            limit = re.search(r"DATA_INLINING_ROW_LIMIT\s+(\d+)", options, re.IGNORECASE)
            self.lake.set_option("data_inlining_row_limit", limit[1] if limit else "10")
        version = re.search(r"SNAPSHOT_VERSION\s+(\d+)", options, re.IGNORECASE)
        self.at = int(version[1]) if version else None

    def _compare(self, sql: str, found: Readable | None, record: Record) -> None:
        if found is None:
            return
        rows = found.to_reader()
        names = ", ".join(f"CAST(#{place + 1} AS VARCHAR)" for place in range(len(rows.schema)))
        given = [
            tuple("NULL" if one is None else one or "(empty)" for one in row) for row in duckdb.sql(f"SELECT {names} FROM rows").fetchall()
        ]
        lines = ["\t".join(row) for row in given]
        expected = list(record.expected)
        if "rowsort" in record.options:
            lines, expected = sorted(lines), sorted(expected)
        pattern = expected[0].partition("<REGEX>:") if len(expected) == 1 else ("", "", "")
        same = bool(re.search(pattern[2], lines[0], re.DOTALL)) if pattern[1] and lines else lines == expected
        if not same:
            raise OutcomeError("different", f"{sql[:120]} -> {lines[:4]} instead of {expected[:4]}")


def outcome(path: Path) -> tuple[str, str]:
    """Return the outcome of a file, and the reason."""
    text = path.read_text()
    if any(f"require {one}" in text or one in path.name for one in OTHER_DATABASES):
        return "other database", ""
    with TemporaryDirectory() as folder:
        runner = Runner(Path(folder))
        try:
            for record in records(text):
                runner.run(record)
        except OutcomeError as problem:
            return problem.outcome, str(problem)
        finally:
            if runner.lake is not None:
                runner.lake.close()
    return "pass", ""


def main(folder: str) -> None:
    """Print the outcome of each file, and the counts."""
    counts: Counter[str] = Counter()
    for path in sorted(Path(folder).rglob("*.test")):
        kind, reason = outcome(path)
        counts[kind] += 1
        print(f"{kind:10} {path.relative_to(folder)}  {reason}", flush=True)
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1])
