"""One maintenance operation, run again and again from the same lake, and killed at another step each time."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from pathlib import Path

import duckdb
from sqlalchemy import create_engine, inspect, text

from ducklake_core import DuckLake
from tests.behaviour.maintenance.lakes import readings
from tests.faults.upkeep import OPERATIONS, is_sound, nothing_is_lost, prepare, run_and_die, shown
from tests.faults.work import KILLED
from tests.support.backups import Backup
from tests.support.oracle import LakeAddress

_RANDOM = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+\d\d(?::\d\d)?)?"
)
"""Ids and times of commits, which differ from run to run."""
_LIMIT = 1800
Layout = dict[str, tuple[int, ...]]


class Rehearsal:
    """An operation that completed once in a process of its own, and the lake before it.

    Attributes:
        steps: Description of each step at which the run can be killed.
        states: Number of different lakes that killed runs have left behind.
    """

    def __init__(self, address: LakeAddress, operation: str, context: ForkServerContext) -> None:
        self._address, self._operation, self._context = address, operation, context
        prepare(address, operation)
        lake = DuckLake.connect(address.url)
        self._before = shown(lake)
        lake.close()
        self._expected = readings(address)
        self._backup = Backup(address=address)
        self._files = Path(address.data_path)
        self._copy = self._files.with_name("files.backup")
        shutil.copytree(self._files, self._copy)
        self._known = {path.relative_to(self._copy) for path in self._copy.rglob("*")}
        self._seen: set[str] = set()
        output = self._files.with_name("steps.json")
        assert self._run(0, output) == 0
        self.steps: list[str] = json.loads(output.read_text())
        self._wanted = self._layout()

    @property
    def states(self) -> int:
        return len(self._seen)

    def kill_at(self, step: int) -> None:
        """Run the operation on the lake as it was, kill it at a step (from 1), and check that the next run does the rest.

        Equal states after a kill are checked once.
        """
        self._restore()
        assert self._run(step) == KILLED, self.steps[step - 1]
        state = self._state()
        if state in self._seen:
            return
        self._seen.add(state)
        lake = DuckLake.connect(self._address.url)
        nothing_is_lost(lake, self._before)
        found = lake.check(level="rows").by_code
        assert set(found) <= {"orphaned-file"} | self._to_repair() | self._dropped_later(), found
        result = OPERATIONS[self._operation](lake)
        assert not getattr(result, "failed_steps", ()), result
        if set(lake.check().by_code) & self._dropped_later():
            lake.check(repair=True)
        is_sound(lake)
        lake.close()
        assert self._layout() == self._wanted
        self._duckdb_reads_the_same()

    def _duckdb_reads_the_same(self) -> None:
        """Every snapshot that is left as before, and the newest as the newest did."""
        before, after = self._expected, readings(self._address)
        assert {key: after[key] for key in before if key in after} == {key: before[key] for key in before if key in after}
        (then, *_), (now, *_) = max(before), max(after)
        assert {name: rows for (n, name), rows in after.items() if n == now} == {
            name: rows for (n, name), rows in before.items() if n == then
        }

    def _dropped_later(self) -> set[str]:
        """Tables that do not vanish with the transaction that forgets them go after its COMMIT, or by the next expiry or repair."""
        return {"inlined-table-dead"} if self._address.backend == "mysql" else set()

    def _to_repair(self) -> set[str]:
        return {"table-bounds-narrow", "table-statistics-stale"} if self._operation == "repair" else set()

    def _run(self, step: int, output: Path | None = None) -> int | None:
        process = self._context.Process(target=run_and_die, args=(self._address.url, self._operation, step, output))
        process.start()
        process.join(_LIMIT)
        return process.exitcode

    def _restore(self) -> None:
        if self._address.backend in ("sqlite", "duckdb"):
            # What a killed transaction has left there would be undone, or done, in the copy.
            for end in ("-journal", "-wal", "-shm", ".wal"):
                with suppress(FileNotFoundError):
                    Path(self._address.url.partition(":///")[2] + end).unlink()
        self._backup.restore()
        for path in sorted(self._files.rglob("*"), reverse=True):
            if path.relative_to(self._files) not in self._known:
                path.rmdir() if path.is_dir() else path.unlink()
        for path in self._known:
            if not (self._files / path).exists():
                (self._files / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(self._copy / path, self._files / path) if (self._copy / path).is_dir() else shutil.copy2(
                    self._copy / path, self._files / path
                )

    def _layout(self) -> Layout:
        """Return the cost of reading each table, which an interruption must not raise."""
        lake = DuckLake.connect(self._address.url)
        try:
            return {
                one.table: (one.file_count, one.record_count, one.delete_file_count, one.deleted_row_count, one.inlined_row_count)
                for one in lake.health().tables
            }
        finally:
            lake.close()

    def _rows(self) -> list[str]:
        engine = create_engine(self._address.url)
        rows: list[str] = []
        quoted = engine.dialect.identifier_preparer.quote_identifier
        with engine.connect() as connection:
            for name in sorted(inspect(connection).get_table_names()):
                rows += [name, *sorted(map(repr, connection.execute(text(f"SELECT * FROM {quoted(name)}")).all()))]
        engine.dispose()
        return rows

    def _rows_of_file(self) -> list[str]:
        """SQLAlchemy knows no DuckDB but through the library."""
        rows: list[str] = []
        with duckdb.connect(self._address.url.partition(":///")[2]) as connection:
            for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall():
                rows += [name, *sorted(map(repr, connection.execute(f'SELECT * FROM "{name}"').fetchall()))]
        return rows

    def _state(self) -> str:
        """Return catalog and files as a string that is equal for equal ones; random names become numbers."""
        rows = self._rows_of_file() if self._address.backend == "duckdb" else self._rows()
        files = sorted(f"{path.relative_to(self._files)} {path.stat().st_size}" for path in self._files.rglob("*") if path.is_file())
        numbers: dict[str, str] = {}
        return _RANDOM.sub(lambda found: numbers.setdefault(found[0], f"<{len(numbers)}>"), "\n".join([*rows, *files]))
