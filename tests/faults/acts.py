"""Acts of other clients between two statements of an operation, on a table with work for every operation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError
from ducklake_core.format.files.paths import new_file_name, write_id
from tests.faults.between import Memory
from tests.faults.upkeep import NOW
from tests.support.oracle import Oracle

OLD = timedelta(days=3)
"""Older than any floor of an age."""


def rows(start: int, stop: int) -> pa.Table:
    """Rows of the table."""
    return pa.table({"n": range(start, stop), "part": [n % 2 for n in range(start, stop)]})


def prepare(lake: DuckLake, name: str) -> None:
    """Create files without deletes, with deletes in a file and with inlined ones, and inlined rows; one of each has ended."""
    for start in (0, 20, 40, 60, 200):
        lake.write(name, rows(start, start + 20), inline=False)
    table = lake.table(name)
    table.delete("n = 205")
    table.delete("n BETWEEN 200 AND 219")
    table.delete("n < 12")
    table.delete("n = 25")
    table.append(rows(80, 84), inline=True)
    table.update({"part": 7}, where="n = 82")


@dataclass
class Context:
    """Context of acts while an operation runs: a lake, DuckDB, running writes, and a memory of their commits."""

    lake: DuckLake
    name: str
    memory: Memory
    oracle: Oracle | None = None
    running: list[Any] = field(default_factory=list)

    def commit(self, *steps: Callable[[], object]) -> None:
        """Take steps, and remember what the lake shows after each of them."""
        for step in steps:
            step()
            self.memory.note(self.lake)

    def end_writes(self) -> None:
        """Commit the writes that are running."""
        while self.running:
            self.commit(lambda: self.running.pop().__exit__(None, None, None))

    def duckdb(self, *statements: str) -> None:
        """Run statements by DuckDB, skipping those that conflict with the operation."""
        assert self.oracle is not None
        for statement in statements:
            try:
                self.oracle.run(statement)
            except duckdb.Error as error:
                if not any(word in str(error).lower() for word in ("conflict", "could not serialize", "deadlock")):
                    raise
            self.memory.note(self.lake)


def append(context: Context) -> None:
    """Rows in files and in the catalog, before and after a new column; a table that comes and goes."""
    lake, name = context.lake, context.name
    table = lake.table(name)
    context.commit(
        lambda: table.append(rows(100, 120), inline=False),
        lambda: table.add_column("c", "bigint"),
        # Makes a table of inlined rows with these columns.
        lambda: lake.table(name).append(rows(120, 122), inline=True, missing_columns="null"),
        lambda: lake.table(name).delete("n = 120"),
        lambda: lake.write(f"{name}gone", rows(0, 1), inline=True),
        lambda: lake.drop_table(f"{name}gone"),
    )


def change(context: Context) -> None:
    """Update, delete in both ways, and merge rows that the operation moves."""
    lake, table = context.lake, context.lake.table(context.name)
    source = pa.table({"n": [44, 81, 200], "part": [9, 9, 9]})
    context.commit(
        lambda: table.update({"part": 8}, where="n IN (13, 42, 80)"),
        lambda: table.delete("n = 27"),
        lambda: lake.table(context.name).delete("n BETWEEN 60 AND 74"),
        lambda: lake.table(context.name).merge(source, on="n").when_matched_update().when_not_matched_insert().execute(),
        lambda: lake.table(context.name).delete("n IN (83, 200)"),
    )


def replace(context: Context) -> None:
    """All rows are replaced, and then restored."""
    lake, name = context.lake, context.name
    before = lake.snapshots()[-1].id
    context.commit(lambda: lake.table(name).overwrite(rows(300, 310), inline=False))
    with suppress(NotFoundError):
        context.commit(lambda: lake.table(name).restore(at=before))


def redefine(context: Context) -> None:
    """The table gets another name and other partitions, and rows by them."""
    lake, name = context.lake, f"{context.name}new"
    context.commit(
        lambda: lake.rename_table(context.name, name),
        lambda: lake.table(name).set_partitioned_by(["part"]),
        lambda: lake.table(name).append(rows(100, 110), inline=False),
        lambda: lake.table(name).set_sorted_by(["n DESC"]),
        lambda: lake.table(name).append(rows(110, 112), inline=True),
        lambda: lake.table(name).rename_column("part", "other"),
        lambda: lake.rename_table(name, context.name),
    )


def recreate(context: Context) -> None:
    """The table is dropped, and another one gets its name."""
    lake, name = context.lake, context.name
    context.commit(
        lambda: lake.drop_table(name),
        lambda: lake.write(name, pa.table({"x": [1, 2]}), inline=True),
        lambda: lake.table(name).append(pa.table({"x": range(20)}), inline=False),
    )


def hold(context: Context) -> None:
    """An old snapshot and the newest are held, a hold is taken back, and options are set."""
    lake = context.lake
    lake.holds.remove("before")
    for snapshot in (lake.snapshots()[2], lake.snapshots()[-1]):
        with suppress(NotFoundError):
            lake.holds.add(f"meanwhile {snapshot.id}", snapshot.id)
    lake.set_option("target_file_size", "100MB")
    lake.set_option("data_inlining_row_limit", 11, table=context.name)
    context.commit(lambda: lake.table(context.name).append(rows(100, 103)))


def maintain(context: Context) -> None:
    """Run maintenance by another client."""
    lake = context.lake
    context.commit(
        lake.flush_inlined_data,
        lambda: lake.rewrite_data_files(delete_threshold=0.0),
        lake.merge_adjacent_files,
        lambda: lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=5),
        lake.cleanup_old_files,
        lake.delete_orphaned_files,
    )


def expire(context: Context) -> None:
    """Expire snapshots by another client."""
    context.commit(lambda: context.lake.expire_snapshots(older_than=NOW, min_age=NOW, keep_last=2))


def change_and_expire(context: Context) -> None:
    """Change rows, and expire the snapshots of the changes."""
    change(context)
    context.commit(lambda: context.lake.expire_snapshots(older_than=NOW, min_age=NOW))


def duckdb_changes(context: Context) -> None:
    """Write rows by DuckDB, and change those that the operation moves."""
    name = context.name
    context.duckdb(
        f"INSERT INTO {name} (n, part) SELECT range, 0 FROM range(100, 120)",
        f"UPDATE {name} SET part = 8 WHERE n IN (13, 42, 80)",
        f"DELETE FROM {name} WHERE n = 27 OR n BETWEEN 60 AND 74",
        f"ALTER TABLE {name} ADD COLUMN d INTEGER",
        f"INSERT INTO {name} (n, part) VALUES (130, 0)",
        f"DELETE FROM {name} WHERE n IN (83, 130)",
    )


def duckdb_maintains(context: Context) -> None:
    """DuckDB's maintenance of the same lake."""
    # All but the held one, which DuckDB does not know.
    first, _, *others = [snapshot.id for snapshot in context.lake.snapshots()]
    context.duckdb(
        f"CALL ducklake_flush_inlined_data('lake', table_name => '{context.name}')",
        f"CALL ducklake_rewrite_data_files('lake', '{context.name}', delete_threshold => 0.0)",
        f"CALL ducklake_merge_adjacent_files('lake', '{context.name}')",
        f"CALL ducklake_expire_snapshots('lake', versions => {[first, *others[:2]]})",
    )


def write_for_long(context: Context) -> None:
    """Commit a write that began before the operation, and begin another; files of both are older than any floor."""
    context.end_writes()
    context.running.append(running_write(context.lake, context.name, 500))


def running_write(lake: DuckLake, name: str, start: int) -> Any:
    """Return a registered transaction with an old file."""
    folder = Path(lake.info.data_path)
    before = set(folder.rglob("*.parquet"))
    transaction = lake.transaction()
    transaction.__enter__().append(name, rows(start, start + 20), inline=False)
    registration = transaction._coordinator._registration
    registration._due = 0.0
    registration.renew()
    make_old(set(folder.rglob("*.parquet")) - before)
    return transaction


def orphan(lake: DuckLake, name: str) -> Path:
    """A file in the table's folder of a writer that was killed long ago."""
    file = Path(lake.info.data_path) / "main" / name / new_file_name(write_id())
    file.write_bytes(b"PAR1 and nothing more")
    make_old([file])
    return file


def make_old(files: Sequence[Path] | set[Path]) -> None:
    """Files were changed before any floor."""
    assert files
    for file in files:
        then = file.stat().st_mtime - OLD.total_seconds()
        os.utime(file, (then, then))


def adopt(context: Context) -> None:
    """A file that is scheduled for deletion is added to the table."""
    schedule = context.lake.database.tables["files_scheduled_for_deletion"]
    with context.lake.database.read() as connection:
        paths = [row.path for row in connection.execute(schedule.select()) if "delete" not in row.path]
    if paths:
        with suppress(NotFoundError):
            file = f"{context.lake.info.data_path}{max(paths)}"
            context.commit(lambda: context.lake.table(context.name).add_data_files(file, allow_duplicates=True))
