"""Others commit between any two statements of a verb that forgets or mends: every snapshot that is left reads as it did."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from ducklake_core import DuckLake
from tests.faults.upkeep import NOW
from tests.support.oracle import LakeAddress

PATIENCE = 0.5
"""Seconds after which a commit is taken for one that waits for the verb."""
VERBS: dict[str, Callable[[DuckLake], object]] = {
    "expire": lambda lake: lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=2),
    "repair": lambda lake: lake.check(repair=True),
    "checkpoint": lambda lake: lake.checkpoint(keep_last=2, min_age=NOW),
}


class _Others:
    """Writes, replaces and redefines a table, and drops another one, when asked for the first time; notes what each snapshot shows."""

    def __init__(self, address: LakeAddress, turn: int) -> None:
        self._lake, self._turn = DuckLake.connect(address.url), turn
        self.shown: dict[int, Counter[str]] = {}
        self.thread: threading.Thread | None = None
        self.failed: list[BaseException] = []

    def begin(self) -> None:
        self.thread = threading.Thread(target=self._commit)
        self.thread.start()
        self.thread.join(PATIENCE)

    def end(self) -> None:
        if self.thread is not None:
            self.thread.join()
        self._lake.close()
        assert not self.failed, self.failed

    def _commit(self) -> None:
        try:
            lake, turn = self._lake, self._turn
            self._note(lake.write("t", pa.table({"a": [turn, turn]}), inline=False).snapshot_id)
            self._note(lake.table("t").overwrite(pa.table({"a": [-turn]}), inline=False).snapshot_id)
            lake.table("t").add_column(f"c{turn}", "bigint")
            # Makes a table of inlined rows with these columns.
            self._note(lake.table("t").append(pa.table({"a": [turn]}), inline=True).snapshot_id)
            self._note(lake.table("t").delete(f"a = {-turn}").snapshot_id)
            lake.write(f"gone{turn}", pa.table({"a": [1]}), inline=True)
            lake.drop_table(f"gone{turn}")
        except BaseException as error:  # noqa: BLE001 - told by the thread that joins this one
            self.failed.append(error)

    def _note(self, snapshot_id: int) -> None:
        self.shown[snapshot_id] = shown(self._lake, snapshot_id)


def shown(lake: DuckLake, snapshot_id: int) -> Counter[str]:
    """Rows of ``t`` at a snapshot."""
    return Counter(map(repr, lake.table("t", at=snapshot_id).to_arrow()["a"].to_pylist()))


@contextmanager
def before_statement(number: int, call: Callable[[], None]) -> Iterator[list[str]]:
    """Call it before one of the statements of this thread, counted from 0; gives those that were sent."""
    mine, sent = threading.get_ident(), list[str]()

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.get_ident() == mine:
            sent.append(statement)
            if len(sent) == number + 1:
                call()

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("verb", "stride"), [("expire", 1), ("repair", 4), ("checkpoint", 9)])
@pytest.mark.parametrize("backend", ["postgres", "mysql"])
def test_commits_between_any_two_statements(request: pytest.FixtureRequest, tmp_path: Path, backend: str, verb: str, stride: int) -> None:
    address: LakeAddress = request.getfixturevalue(backend).lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.write("t", pa.table({"a": [0]}), inline=False)
    place, was_last = 0, False
    while not was_last:
        lake.write("t", pa.table({"a": [1000 + place]}), inline=place % 2 == 0)
        if verb == "repair":
            _spoil(lake)
        others = _Others(address, place + 1)
        before = {snapshot.id: shown(lake, snapshot.id) for snapshot in lake.snapshots() if snapshot.id}
        with before_statement(place, others.begin) as sent:
            VERBS[verb](lake)
        others.end()
        was_last = others.thread is None
        before |= others.shown
        statement = f"commits before statement {place}: {sent[place] if place < len(sent) else 'none'}"
        for snapshot in lake.snapshots():
            if snapshot.id in before:
                assert shown(lake, snapshot.id) == before[snapshot.id], f"snapshot {snapshot.id}, {statement}"
        found = lake.check(level="rows")
        assert set(found.by_code) <= {"inlined-table-dead"}, f"{found}\n{statement}"
        place += stride
    assert place > 10
    lake.close()


def _spoil(lake: DuckLake) -> None:
    """Something to mend: statistics of no file."""
    with lake.database.write() as connection:
        connection.execute(lake.database.tables["file_column_stats"].insert(), [{"data_file_id": 10**6, "table_id": 1, "column_id": 1}])
