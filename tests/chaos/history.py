"""History of a run, read from the ledgers of its processes and from the log in the catalog."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.changes import Change
from tests.chaos.duckdb_writer import EXTRA_INFO
from tests.chaos.lake import Run, query
from tests.chaos.ledger import Failure, FlushEnded, Found, Intent, Plan, ReadFailure, Rerun, RerunIntent, RowIdsAfter, Success, read_ledger


@dataclass(frozen=True, slots=True)
class Commit:
    """A logged snapshot. ``operation`` is None for maintenance and definitions."""

    snapshot: int
    operation: str | None
    changes_made: str


@dataclass(slots=True)
class History:
    """Entries of all ledgers by operation, and the commits in the order of their snapshots."""

    intents: dict[str, Intent] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    outcomes: dict[str, Success | Failure] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)
    rerun_intents: list[RerunIntent] = field(default_factory=list)
    reruns: dict[str, Rerun] = field(default_factory=dict)
    merged_row_ids: defaultdict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))
    """Row ids that merges by DuckDB gave to rows which had others, by table and unique id."""
    flushes: list[FlushEnded] = field(default_factory=list)
    """Flushes by DuckDB, with the deletes that each doubled."""
    read_failures: list[ReadFailure] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    snapshots: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Snapshots of each operation."""
    expired: set[int] = field(default_factory=set)

    def changes(self, operation: str) -> Sequence[Change]:
        """Return the changes of an operation."""
        return self.plans[operation].changes if operation in self.plans else self.intents[operation].changes

    def named(self, operation: str) -> str:
        """Return the name of an operation with its kind."""
        return f"{operation} ({self.intents[operation].kind})" if operation in self.intents else operation


def writer_of(operation: str) -> str:
    """Return the name of the process that runs an operation."""
    return operation.partition(".")[0]


def uses_duckdb(operation: str) -> bool:
    """Return True if DuckDB runs an operation."""
    return operation.startswith("d")


def read_history(run: Run) -> History:
    """Read the ledgers and the log."""
    history = History()
    for path in sorted((run.folder / "ledger").iterdir()):
        for entry in read_ledger(path):
            match entry:
                case Intent():
                    history.intents[entry.operation] = entry
                case Plan():
                    history.plans[entry.operation] = entry
                case Success() | Failure():
                    history.outcomes[entry.operation] = entry
                case Found():
                    history.found[entry.operation] = entry
                case RerunIntent():
                    history.rerun_intents.append(entry)
                case Rerun():
                    history.reruns[entry.operation] = entry
                case RowIdsAfter():
                    for row, row_id in entry.row_ids.items():
                        history.merged_row_ids[row].add(row_id)
                case FlushEnded():
                    history.flushes.append(entry)
                case ReadFailure():
                    history.read_failures.append(entry)
    for kind, snapshot, changes, extra_info in query(run, "SELECT kind, snapshot_id, changes, extra_info FROM chaos_log ORDER BY number"):
        if kind == "expiry":
            history.expired.add(snapshot)
            continue
        operation = _operation(extra_info)
        history.commits.append(Commit(snapshot, operation, changes or ""))
        if operation is not None:
            history.snapshots[operation].append(snapshot)
    history.commits.sort(key=lambda commit: commit.snapshot)
    return history


def _operation(extra_info: str | None) -> str | None:
    if not extra_info:
        return None
    if extra_info.startswith(EXTRA_INFO):
        return extra_info.removeprefix(EXTRA_INFO)
    try:
        operation: str | None = json.loads(extra_info).get("operation")
    except ValueError:
        return None
    return operation
