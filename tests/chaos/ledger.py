"""Ledgers: each process appends what it intends to do and how it ended, so that both survive a kill."""

from __future__ import annotations

import base64
import os
import pickle
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.chaos.changes import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An operation is about to start. Operations are named WRITER.INCARNATION.NUMBER."""

    operation: str
    kind: str
    changes: Sequence[Change] = ()
    has_commit_id: bool = False
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Changes that are known only after the operation has read; DuckDB's with the snapshot that they are based on."""

    operation: str
    changes: Sequence[Change]
    base: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Outcome that the library reported. ``committed`` is None for maintenance and for DuckDB."""

    snapshot: int | None = None
    committed: bool | None = None
    repeated: bool = False
    rows: dict[str, Counter[str]] | None = None
    """Numbers of added, updated and deleted rows by table."""
    failures: Sequence[str] = ()
    """Failures that maintenance lists in its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """The operation returned."""

    operation: str
    seconds: float
    result: Result = Result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The operation raised an error. A traceback is kept if its type is not one that the library documents."""

    operation: str
    seconds: float
    error: str
    message: str
    outcome_unknown: bool
    traceback: str | None = None
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Snapshot that ``find_commit`` returned for the operation during which the writer was killed."""

    operation: str
    snapshot: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunIntent:
    """An interrupted operation is about to run again with the same commit id."""

    operation: str
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """An interrupted operation ran again."""

    operation: str
    repeated: bool
    snapshot: int | None
    found: int | None
    """Snapshot that ``find_commit`` had returned before."""


RowIds: TypeAlias = dict[tuple[str, str], tuple[int, str]]
"""Row id and file of rows, by table and unique id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowIdsBefore:
    """Row ids before DuckDB merges files."""

    operation: str
    row_ids: RowIds


@dataclass(frozen=True, slots=True, kw_only=True)
class RowIdsAfter:
    """Row ids that the merge gave to rows that had others, by table and unique id. Empty if the merge failed or kept all."""

    operation: str
    row_ids: dict[tuple[str, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushBegan:
    """DuckDB begins to flush at a snapshot."""

    operation: str
    base: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushEnded:
    """The deletes that the flush doubled were removed; none if it failed."""

    operation: str
    base: int
    doubled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """An engine failed to read a snapshot. ``retained`` is None if the catalog could not be queried."""

    engine: str
    snapshot: int | None
    error: str
    message: str
    retained: bool | None


Entry: TypeAlias = (
    Intent | Plan | Success | Failure | Found | RerunIntent | Rerun | RowIdsBefore | RowIdsAfter | FlushBegan | FlushEnded | ReadFailure
)


class Ledger:
    """Ledger of one process."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / "ledger" / name
        self._file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def append(self, entry: Entry) -> None:
        """Append an entry with a single write."""
        os.write(self._file, base64.b64encode(pickle.dumps(entry)) + b"\n")

    def entries(self) -> list[Entry]:
        """Return the entries of this process and of its earlier incarnations."""
        return read_ledger(self.path)


def read_ledger(path: Path) -> list[Entry]:
    """Return the entries of a ledger. An entry that a kill cut is left out."""
    entries = []
    for line in path.read_bytes().splitlines():
        with suppress(ValueError, EOFError, pickle.UnpicklingError):
            entries.append(pickle.loads(base64.b64decode(line)))
    return entries
