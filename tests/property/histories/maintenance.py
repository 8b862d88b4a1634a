"""Maintenance by the library with random options, and what must hold after each run: nothing that is left reads differently."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect, select

from ducklake_core import DuckLake
from ducklake_core.catalog.reading.running_writes import read_running_writes
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.maintenance.request import MaintenanceStep
from tests.property.histories.actions import Action, Upkeep
from tests.support.scans import Shown, change_feed, counted, shown

if TYPE_CHECKING:
    from tests.property.histories.play import Lake

NOW = timedelta(0)
_EVERYTHING: dict[str, Any] = {"cleanup_all": True, "min_age": NOW}
_BUDGETS: tuple[dict[str, Any], ...] = ({}, {}, {}, {"max_files": 3}, {"max_input_bytes": 3000}, {"max_seconds": 0})
_SIZES: tuple[dict[str, Any], ...] = ({"max_compacted_files": 2}, {"min_file_size": 700}, {"max_file_size": 2000}, {})
_FLUSHES: tuple[dict[str, Any], ...] = ({}, {"max_rows": 4}, {"max_seconds": 0}, {"max_concurrency": 2})
_BY_EXECUTORS = ("merge_adjacent_files", "rewrite_data_files", "flush_inlined_data", "checkpoint")
_CLUSTERABLE = ("int32", "int64", "varchar", "date", "float64")
_EXPIRY_OPTIONS = ("expire_older_than", "delete_older_than")
_NAMED = ("data_file", "delete_file")
_DELETES = "ducklake_inlined_delete_"


def draw_upkeep(draw: Random, lake: Lake) -> list[Action]:
    """Any operation with any options; those that rewrite come up most."""
    names = [info.table for info in lake.library.tables()]
    ids = [snapshot.id for snapshot in lake.library.snapshots()][:-1]
    scope, budget = _scope(draw, names), draw.choice(_BUDGETS)
    groups = {"partial_progress": draw.random() < 0.3, "max_concurrency": draw.choice((None, 2))}
    some_files = {key: value for key, value in budget.items() if key != "max_input_bytes"}
    threshold = {"delete_threshold": draw.choice((0.0, 0.3, None))}
    choices: list[tuple[str, dict[str, Any]]] = [
        ("merge_adjacent_files", {**scope, **groups, **budget}), ("merge_adjacent_files", {**scope, **groups, **draw.choice(_SIZES)}),
        ("rewrite_data_files", {**scope, **groups, **budget, **threshold}), ("flush_inlined_data", {**scope, **draw.choice(_FLUSHES)}),
        ("flush_inlined_data", scope), ("checkpoint", {**scope, **groups, **budget}),
        ("expiring_checkpoint", {**scope, "keep_last": draw.randint(2, 8)}), ("cleanup_old_files", {**_EVERYTHING, **some_files}),
        ("delete_orphaned_files", {**_EVERYTHING, **some_files}),
    ]  # fmt: skip
    if draw.random() < 0.7:
        choices.append(("expire_snapshots", {"older_than": "0 days", "keep_last": draw.randint(1, len(ids) + 2), "min_age": NOW}))
    if expired := sorted(draw.sample(ids, draw.randint(0, len(ids) // 3))):
        choices.append(("expire_snapshots", {"versions": expired, "min_age": "0 days"}))
    for name in draw.sample(names, len(names)):
        columns = [c.name for c in lake.library.table(name).schema if str(c.type) in _CLUSTERABLE]
        if columns:
            how = {"tables": [name], "cluster_by": draw.sample(columns, min(len(columns), draw.randint(1, 3)))}
            choices += [("rewrite_data_files", how), ("merge_adjacent_files", how)]
            break
    operation, options = draw.choice(choices)
    drawn: list[Action] = [Upkeep(operation, options, draw.random() < 0.5, draw.randrange(2**20) if draw.random() < 0.25 else None)]
    if lake.mode == "alone" and draw.random() < 0.3:
        # A rewrite within a budget takes no small neighbours along; a merge of what it made does.
        limited = Upkeep("rewrite_data_files", {"delete_threshold": 0.0, "max_files": draw.randint(2, 6)})
        drawn = [limited, Upkeep("merge_adjacent_files")]
    return drawn


def _scope(draw: Random, tables: list[str]) -> dict[str, Any]:
    """Everything, some tables by name, those that a pattern matches, or a schema."""
    if not tables or draw.random() < 0.5:
        return {}
    if draw.random() < 0.5:
        return {"tables": draw.sample(tables, draw.randint(1, len(tables)))}
    return {"tables": draw.choice(("main.*", "*.*", "**.*", ["*.t", "*.u", "main.?"], ["*", "other.*"]))}


@dataclass(frozen=True)
class _Before:
    """The lake before the operation."""

    newest: int
    shown: Shown
    feed: dict[str, Counter[str]]
    changed: dict[int, set[str]]
    held: set[int]
    scheduled: set[str]
    lost_deletes: set[tuple[int, int]]


def keep_up(lake: Lake, action: Upkeep) -> None:
    """Plan an operation, run it, and compare the lake with what it was."""
    library, draw = lake.library, Random(action.seed)
    if action.seed is not None:
        _hold(library, draw)
    if "versions" in action.options:
        left = {snapshot.id for snapshot in library.snapshots()[:-1]}
        versions = sorted(left & set(action.options["versions"]))
        if not versions:
            return
        action = replace(action, options={**action.options, "versions": versions})
    newest = library.snapshot().id
    before = _Before(
        newest=newest,
        shown=shown(library, lake.library_reads),
        feed=change_feed(library, newest),
        changed=_changed(library),
        held={hold.snapshot_id for hold in library.holds.list()} & {snapshot.id for snapshot in library.snapshots()},
        scheduled=_scheduled_files(library),
        lost_deletes=deletes_of_no_file(library),
    )
    sweeps = action.operation in ("delete_orphaned_files", "checkpoint", "expiring_checkpoint")
    # A process that has loaded DuckDB does not register its writes in SQLite.
    is_known = lake.address.backend != "sqlite" or not sweeps
    with _open_write(lake, draw) if action.seed is not None and draw.random() < 0.6 and is_known else nullcontext():
        planned = _run(lake, action, dry_run=True)
        assert library.snapshot().id == newest
        done = _run(lake, action)
        assert done.failed_steps == (), done
        if "checkpoint" not in action.operation and "max_seconds" not in action.options:
            assert list(map(_outline, planned.steps)) == list(map(_outline, done.steps)), f"{planned}\n-- done:\n{done}"
            if (most := action.options.get("max_files")) is not None:
                assert sum(step.files for step in done.steps if step.outcome == "done") <= most
        _compare(lake, action, before)
        _look_for_remains(lake, action, before)
    lake.check()


def _run(lake: Lake, action: Upkeep, *, dry_run: bool = False) -> Any:
    options = action.options
    if action.by_executors and lake.session is not None and action.operation in _BY_EXECUTORS:
        options = {**options, "spark": lake.session}
    if action.operation != "expiring_checkpoint":
        return getattr(lake.library, action.operation)(**options, dry_run=dry_run)
    # DuckDB's own checkpoint does not see these options of the lake.
    for name in _EXPIRY_OPTIONS:
        lake.library.set_option(name, "0 days")
    try:
        return lake.library.checkpoint(**options, min_age=NOW, dry_run=dry_run)
    finally:
        for name in _EXPIRY_OPTIONS:
            lake.library.unset_option(name)


def _hold(lake: DuckLake, draw: Random) -> None:
    """Hold a snapshot, or let one go."""
    holds = lake.holds.list()
    if holds and draw.random() < 0.5:
        lake.holds.remove(draw.choice(holds).name)
    else:
        lake.holds.add(f"hold {draw.random()}", snapshot=draw.choice(lake.snapshots()).id)


def _outline(step: MaintenanceStep) -> MaintenanceStep:
    """Return a step without the words in which a plan and its run differ."""
    by_the_clock = "cluster" in step.reason or "older than" in step.reason
    return replace(step, outcome="done", reason="" if by_the_clock else step.reason)


def _compare(lake: Lake, action: Upkeep, before: _Before) -> None:
    """Nothing that is left shows other rows or changes, and what must be left is."""
    library, operation = lake.library, action.operation
    left = {snapshot.id for snapshot in library.snapshots()}
    last = max(left)
    lake.library_reads = after = shown(library)
    for (number, table), rows in before.shown.items():
        if number in left:
            assert after[number, table] == rows, f"we read {table} at {number} differently after {operation}"
    assert _at(after, last) == _at(before.shown, before.newest), operation
    were = {number for number, _ in before.shown}
    if left >= were:
        assert change_feed(library, before.newest) == before.feed, f"the change feed after {operation}"
        # DuckDB logs a flush of deletes as a delete, so that a rewrite may count as one.
        for number, names in _changed(library).items() if lake.mode == "alone" else ():
            others = {table for (at, table), rows in after.items() if at == number and after.get((last, table), rows) != rows}
            altered = {table for table in others if library.table(table, at=number).schema != library.table(table).schema}
            assert others - altered <= names, f"some of {others} do not count as changed since {number} after {operation}"
            # What expired may have changed rows. Rows that came and went in the catalog count once they are flushed.
            if left.issuperset(range(number, last)) and "flush" not in operation and "checkpoint" not in operation:
                more = names - before.changed.get(number, set())
                assert not more, f"rows of {more} count as changed since {number} after {operation}"
    assert before.held <= left
    if (least := action.options.get("keep_last")) is not None:
        # A checkpoint makes snapshots before it expires some, and afterwards.
        assert left >= set(sorted(were)[-least:]) if operation == "expire_snapshots" else len(left) >= min(least, len(were))


def _at(rows: Shown, number: int) -> dict[str, Counter[str]]:
    return {table: found for (snapshot, table), found in rows.items() if snapshot == number}


def _look_for_remains(lake: Lake, action: Upkeep, before: _Before) -> None:
    """Nothing that expired remains in the catalog, and nothing that the catalog has let go in a local directory."""
    if action.operation == "expire_snapshots":
        assert _expired_files(lake.library) == []
        assert deletes_of_no_file(lake.library) <= before.lost_deletes
    if lake.store is not None or {"max_files", "max_seconds", "max_input_bytes"} & action.options.keys():
        return
    stored = {path.name for path in Path(lake.address.data_path).rglob("*") if path.is_file()}
    named = _names(row.path for row in _catalog_rows(lake.library, _NAMED))
    if action.operation == "cleanup_old_files":
        assert not (before.scheduled - named) & stored
    if action.operation == "delete_orphaned_files":
        kept = {step.target.rpartition("/")[2] for step in _run(lake, action, dry_run=True).skipped_steps}
        assert stored <= named | _scheduled_files(lake.library) | kept


def _expired_files(lake: DuckLake) -> list[Any]:
    """Files that the catalog names and no snapshot that is left reads."""
    numbers = [snapshot.id for snapshot in lake.snapshots()]
    return [
        (row.path, row.begin_snapshot, row.end_snapshot)
        for row in _catalog_rows(lake, _NAMED)
        if row.end_snapshot is not None and not any(row.begin_snapshot <= number < row.end_snapshot for number in numbers)
    ]


def deletes_of_no_file(lake: DuckLake) -> set[tuple[int, int]]:
    """Tables and data files whose rows the catalog itself deletes, although it does not know the file."""
    known = {row.data_file_id for row in _catalog_rows(lake, ("data_file",))}
    found: set[tuple[int, int]] = set()
    with lake.database.read() as connection:
        for name in inspect(connection).get_table_names():
            if name.startswith(_DELETES):
                number = int(name.removeprefix(_DELETES))
                deleted = connection.execute(select(lake.database.tables.inlined_delete(number).c.file_id)).scalars()
                found |= {(number, file) for file in deleted if file not in known}
    return found


def _scheduled_files(lake: DuckLake) -> set[str]:
    return _names(row.path for row in _catalog_rows(lake, ("files_scheduled_for_deletion",)))


def _catalog_rows(lake: DuckLake, kinds: Iterable[str]) -> list[Any]:
    with lake.database.read() as connection:
        return [row for kind in kinds for row in connection.execute(select(lake.database.tables[kind]))]


def _names(paths: Iterable[str]) -> set[str]:
    """Names of files without their directories: each is given to one file alone."""
    return {path.rpartition("/")[2] for path in paths}


def _changed(lake: DuckLake) -> dict[int, set[str]]:
    """Return the tables with possibly changed rows since each snapshot, as sensors use them."""
    numbers = [snapshot.id for snapshot in lake.snapshots()][:-1]
    return {number: {table.name for table in lake.changed_tables(number).tables if table.rows} for number in numbers}


@contextmanager
def _open_write(on: Lake, draw: Random) -> Iterator[None]:
    """A transaction that has written files and is registered; it is committed at the end, when all of its rows must be there."""
    lake = on.library
    tables = [info.table for info in lake.tables() if info.row_count]
    if not tables:
        yield
        return
    table = lake.table(draw.choice(tables))
    found = table.scan().to_arrow()
    rows, before = found.slice(0, 40), counted(found)
    ids = sorted(table.scan(columns=["rowid"]).to_arrow()["rowid"].to_pylist())
    chosen = draw.sample(ids, len(ids) // draw.choice((2, 5, 20)))
    expired = f"rowid IN ({', '.join(map(str, chosen))})" if chosen and draw.random() < 0.5 else ""
    deleted = counted(table.scan(where=expired).to_arrow()) if expired else Counter()
    stored = _stored(lake)
    with lake.transaction() as tx:
        try:
            tx.append(table.name, rows)
        except UnsupportedFeatureError:
            # Sorted by what Arrow cannot sort by.
            yield
            return
        if expired:
            tx.delete(table.name, expired)
        # A process that has loaded DuckDB does not register its writes in SQLite.
        if _stored(lake) > stored and lake.database.address.url.get_backend_name() != "sqlite":
            _wait_until_registered(lake)
        yield
    after, right = counted(lake.table(table.name).scan().to_arrow()), before - deleted + counted(rows)
    assert after == right, f"rows of {table.name} after a write that ran meanwhile: {after - right} too many, {right - after} missing"
    on.changed_meanwhile(table.name)


def _stored(lake: DuckLake) -> int:
    """Return the number of files below the data path; inlined rows have none, and need no registration."""
    return sum(1 for _ in lake.storage.list(lake.info.data_path))


def _wait_until_registered(lake: DuckLake) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with lake.database.read() as connection:
            if read_running_writes(connection, lake.database.tables):
                return
        time.sleep(0.02)
