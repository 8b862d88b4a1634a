"""One transaction over five tables, in a process that can be made to die at any of its steps; and the model of what it does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

KILLED = 9
Rows = frozenset[tuple[int, int]]


NAMES = ("added", "replaced", "thinned", "updated", "merged")


@dataclass(frozen=True, kw_only=True)
class Model:
    """Rows of the five tables: (k, owner) pairs. ``number`` is that of the next transaction."""

    number: int = 0
    added: Rows = frozenset()
    replaced: Rows = frozenset((k, owner) for owner in (1, 2) for k in range(20))
    thinned: Rows = field(default=frozenset((k, k % 3) for k in range(400)))
    updated: Rows = field(default=frozenset((k, 0) for k in range(60)))
    merged: Rows = field(default=frozenset((k, 0) for k in range(30)))

    def after(self) -> Model:
        """The model when the next transaction is committed."""
        number = self.number
        return replace(
            self,
            number=number + 1,
            added=self.added | {(number * 10 + owner, owner) for owner in range(3)},
            replaced=frozenset((k, owner) for k, owner in self.replaced if owner != 1) | {((number + 1) * 100 + n, 1) for n in range(20)},
            thinned=frozenset((k, owner) for k, owner in self.thinned if k != number),
            updated=frozenset((k, owner + 1 if k % 10 == number % 10 else owner) for k, owner in self.updated),
            merged=frozenset((k, owner) for k, owner in self.merged if k not in self.source) | {(k, number + 1) for k in self.source},
        )

    @property
    def source(self) -> range:
        """Keys of the merge: most of them are there."""
        return range(self.number, self.number + 31)

    def tables(self) -> dict[str, Rows]:
        """Rows by table name."""
        return {name: getattr(self, name) for name in NAMES}


def frame(rows: Rows) -> pa.Table:
    """Rows as a table that both this library and DuckDB can write."""
    ordered = sorted(rows)
    return pa.table({"k": pa.array([k for k, _ in ordered], pa.int64()), "owner": pa.array([o for _, o in ordered], pa.int32())})


def prepare(url: str, data_path: str, inlining: int) -> Model:
    """Create the lake that the model begins with."""
    from ducklake_core import DuckLake

    lake = DuckLake.create(url, data_path=data_path)
    lake.set_option("data_inlining_row_limit", inlining)
    model = Model()
    lake.create_table("added", frame(frozenset()).schema, partition_by=["owner"])
    for name in NAMES[1:]:
        lake.write(name, frame(model.tables()[name]))
    lake.close()
    return model


def work(lake: Any, model: Model, **transaction: Any) -> None:
    """The model's next transaction."""
    after = model.after()
    with lake.transaction(**transaction) as tx:
        tx.append("added", frame(after.added - model.added | {(-1, 0), (-1, 1)}))
        tx.delete("added", "k = -1")
        tx.overwrite("replaced", frame(frozenset(row for row in after.replaced if row[1] == 1)), where="owner = 1")
        tx.delete("thinned", f"k = {model.number}")
        tx.update("updated", {"owner": "owner + 1"}, where=f"k % 10 = {model.number % 10}")
        source = frame(frozenset((k, model.number + 1) for k in model.source))
        tx.merge("merged", source, on=["k"]).when_matched_update().when_not_matched_insert().execute()


def run_and_die(url: str, model: Model, step: int) -> None:
    """Do the work in this process, and die at a step of it; return when there are fewer steps."""
    from ducklake_core import DuckLake

    lake = DuckLake.connect(url)
    with dying_at(step):
        work(lake, model)
    lake.close()


@contextmanager
def dying_at(last: int) -> Iterator[list[str]]:
    """Every file that is begun or deleted, every statement, every COMMIT and its return is a step; the process ends at one of them.

    Gives the steps that were taken, in words.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    from ducklake_core.catalog.database.connections import Database
    from ducklake_core.catalog.database.statements import PipelinedStatements
    from ducklake_core.storage.filesystems import Storage

    taken: list[str] = []

    def step(what: str, path: str | None = None) -> None:
        taken.append(what)
        if len(taken) == last:
            _die(path)

    real_open, real_write = Storage.open_output, Database.write

    def open_output(self: Storage, path: str) -> pa.NativeFile:
        step("write a file", path)
        return real_open(self, path)

    @contextmanager
    def write(self: Database, **arguments: Any) -> Iterator[Any]:
        with real_write(self, **arguments) as connection:
            yield connection
        step("after a COMMIT")

    real_run, real_fetch, real_commit = PipelinedStatements.run, PipelinedStatements.fetch, Database.commit

    def run(self: PipelinedStatements, *given: Any, **more: Any) -> None:
        step(str(given[0]))
        real_run(self, *given, **more)

    def fetch(self: PipelinedStatements, *given: Any, **more: Any) -> Any:
        step(str(given[0]))
        return real_fetch(self, *given, **more)

    @contextmanager
    def commit(self: Database, *given: Any, **more: Any) -> Iterator[Any]:
        with real_commit(self, *given, **more) as statements:
            yield statements
            step("COMMIT")
        step("after a COMMIT")

    real_delete = Storage._delete_one

    def delete(self: Storage, path: str) -> None:
        step("delete a file")
        real_delete(self, path)

    def execute(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        step(statement)

    def sqlalchemy_commit(_connection: Any) -> None:
        step("COMMIT")

    # Files of a disk are deleted past it, unless that fails.
    Storage._delete_one, Storage._unlinked = delete, lambda self, path: False  # type: ignore[method-assign]
    # On PostgreSQL a commit goes past SQLAlchemy.
    PipelinedStatements.run, PipelinedStatements.fetch, Database.commit = run, fetch, commit  # type: ignore[method-assign]
    event.listen(Engine, "before_cursor_execute", execute)
    event.listen(Engine, "commit", sqlalchemy_commit)
    Storage.open_output, Database.write = open_output, write  # type: ignore[method-assign]
    yield taken


def _die(path: str | None) -> NoReturn:
    if path is not None:
        # Half a file is what a killed writer leaves on a disk.
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(b"PAR1 and nothing more")
    os._exit(KILLED)
