"""Verification of a run: the history against itself, the reads against the model, and the files against the catalog."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.errors import CommitOutcomeUnknownError
from tests.chaos.changes import (
    STABLE_ROW_IDS,
    TABLES,
    Change,
    Delete,
    DuckDBChange,
    Insert,
    Merge,
    Overwrite,
    Restore,
    Term,
    Update,
    matches,
)
from tests.chaos.history import History, read_history, uses_duckdb, writer_of
from tests.chaos.lake import FIRST_SNAPSHOT, Run, query
from tests.chaos.ledger import Failure, Success
from tests.chaos.model import Model
from tests.chaos.reader import Observation, read_observations

_MAINTENANCE = ("merge_adjacent", "flushed_inlined", "inline_flush", "compacted_table", "rewrite_delete")
_EXPECTED_ERRORS = {
    "CommitConflictError",
    "CommitRetriesExhaustedError",
    "CatalogUnavailableError",
    "CommitOutcomeUnknownError",
    "NotFoundError",
}
_EXPECTED_ERRORS_OF = {"add_column": {"SchemaError", "AlreadyExistsError"}}
_AFTER_THE_COMMIT = "Failed to drop superseded inlined-data tables"
"""Message of a flush by DuckDB that failed after its commit. DuckDB deletes the files then, as if it had not committed."""
_MAX_SECONDS = 60
"""Maximum duration of an operation, with pauses and on a loaded machine."""


@dataclass(slots=True)
class Findings:
    """Result of the verification. Only ``violations`` fail a run; DuckDB or isolation explain the other differences."""

    violations: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Known damage by DuckDB, each traced to the commit of DuckDB that did it."""
    duckdb: list[str] = field(default_factory=list)
    """DuckDB read or wrote something else than the library and the model."""
    time_travel: list[str] = field(default_factory=list)
    """Reads of older snapshots that DuckDB's repeated commits changed."""
    skew: list[str] = field(default_factory=list)
    """Changes that matched no rows when their transaction began, and would have matched rows of a later snapshot."""
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    """First message of each error."""
    outcomes: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    """Longest duration in seconds by kind of operation."""
    orphans: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    expired: int = 0
    observations: int = 0
    counted: int = 0
    """Operations whose numbers of rows were compared with the model."""

    def count_error(self, kind: str, message: str) -> None:
        """Count an error and keep the first message of its kind."""
        self.errors[kind] += 1
        self.examples.setdefault(kind, message)


def verify(run: Run, kills: list[tuple[str, float]]) -> Findings:
    """Verify a run whose processes have ended.

    Args:
        run: The run.
        kills: Names of killed processes, each with its time.
    """
    findings = Findings()
    history, observations = read_history(run), read_observations(run)
    lost = _lost_files(run, history)
    _check_commits(history, findings)
    for operation in history.intents:
        _check_outcome(history, operation, findings)
    _check_interrupted(history, findings)
    _check_read_failures(history, lost, findings)
    _check_flushes(history, findings)
    model = _replay(history, observations, findings)
    _check_duckdb_reads(history, model, findings)
    _check_unchanged(history, model, findings)
    _check_observations(history, observations, model, findings)
    if not run.duckdb_writers:
        # All files that DuckDB read are those of the library.
        findings.violations += findings.duckdb + findings.time_travel
    _check_files(run, history, kills, lost, findings)
    _check_catalog(run, findings)
    for kind, seconds in findings.longest.items():
        if seconds > _MAX_SECONDS:
            findings.violations.append(f"an operation {kind} took {seconds:.0f} seconds")
    findings.commits, findings.expired, findings.observations = len(history.commits), len(history.expired), len(observations)
    return findings


def _check_commits(history: History, findings: Findings) -> None:
    """Check that snapshots are numbered without gaps and that each belongs to one operation."""
    violations = findings.violations
    snapshots = [commit.snapshot for commit in history.commits]
    if snapshots != list(range(1, len(snapshots) + 1)):
        repeated = [snapshot for snapshot, count in Counter(snapshots).items() if count > 1]
        violations.append(f"snapshot ids are not consecutive; repeated ids: {repeated[:5]}")
    for commit in history.commits:
        known = commit.operation is not None or any(word in commit.changes_made for word in _MAINTENANCE)
        if not known and commit.snapshot > FIRST_SNAPSHOT:
            violations.append(f"snapshot {commit.snapshot} belongs to no operation: {commit.changes_made!r}")
    for operation, committed in history.snapshots.items():
        if operation not in history.intents:
            violations.append(f"snapshots {committed} belong to operation {operation}, which no writer started")
        elif len(committed) > 1:
            if operation in history.reruns and committed[0] in history.expired:
                findings.outcomes["committed twice, first snapshot expired"] += 1
            else:
                violations.append(f"{history.named(operation)} was committed twice: {committed}, {history.outcomes.get(operation)}")


def _check_outcome(history: History, operation: str, findings: Findings) -> None:
    """Check what was reported to the caller about an operation against the log."""
    kind, outcome, committed = history.intents[operation].kind, history.outcomes.get(operation), history.snapshots.get(operation, [])
    engine = "DuckDB" if uses_duckdb(operation) else "library"
    label = f"DuckDB {kind}" if uses_duckdb(operation) else kind
    named = history.named(operation)
    if outcome is None:
        findings.outcomes[f"{engine} killed, {'' if committed else 'not '}committed"] += 1
        return
    findings.longest[label] = max(findings.longest.get(label, 0), outcome.seconds)
    if isinstance(outcome, Success):
        findings.outcomes[f"{engine} succeeded"] += 1
        result = outcome.result
        for failure in result.failures:
            findings.count_error(f"{label}, listed in the result", failure)
        if uses_duckdb(operation):
            if operation in history.plans and isinstance(history.plans[operation].changes[0], Insert) and not committed:
                findings.duckdb.append(f"{named} succeeded, but is not in the log")
        elif result.committed and result.snapshot not in committed:
            findings.violations.append(f"{named} returned snapshot {result.snapshot}, the log has {committed}")
        elif result.committed is False and committed:
            findings.violations.append(f"{named} returned without a commit, the log has {committed}")
        return
    findings.outcomes[f"{engine} failed"] += 1
    findings.count_error(f"{label} {outcome.error}", outcome.message)
    if uses_duckdb(operation):
        if committed:
            findings.outcomes["DuckDB failed, committed"] += 1
        return
    if outcome.traceback is not None:
        findings.violations.append(f"{named} raised {outcome.error}, which is not a DuckLakeError:\n{outcome.traceback}")
    elif outcome.error not in _EXPECTED_ERRORS | _EXPECTED_ERRORS_OF.get(kind, set()):
        findings.violations.append(f"{named} raised {outcome.error}: {outcome.message}")
    if not outcome.outcome_unknown and committed and operation not in history.reruns:
        findings.violations.append(f"{named} raised {outcome.error}, but the log has {committed}: {outcome.message}")


def _check_interrupted(history: History, findings: Findings) -> None:
    """Check ``find_commit`` and repeated commit ids after kills against the log."""
    for operation, found in history.found.items():
        committed = history.snapshots.get(operation, [])
        if found.snapshot is None and committed and operation not in history.reruns and not history.expired & set(committed):
            findings.violations.append(f"find_commit found nothing for {history.named(operation)}, the log has {committed}")
        if found.snapshot is not None and found.snapshot not in committed:
            findings.violations.append(f"find_commit found {found.snapshot} for {history.named(operation)}, the log has {committed}")
    for operation, rerun in history.reruns.items():
        findings.outcomes["rerun, repeated" if rerun.repeated else "rerun, committed"] += 1
        if rerun.found and not rerun.repeated and rerun.found not in history.expired:
            findings.violations.append(f"{history.named(operation)} was committed again, although find_commit found {rerun.found}")


def _lost_files(run: Run, history: History) -> set[str]:
    """Names of files that DuckDB committed and then deleted, because its connection ended when it dropped tables after the commit."""
    flushes = [
        (outcome.time - outcome.seconds, outcome.time)
        for operation, outcome in history.outcomes.items()
        if uses_duckdb(operation)
        and isinstance(outcome, Failure)
        and _AFTER_THE_COMMIT in outcome.message
        and history.snapshots.get(operation)
    ]
    named = _file_names(run, "SELECT path FROM ducklake_data_file UNION SELECT path FROM ducklake_delete_file")
    missing = named - {path.name for path in Path(run.address.data_path).rglob("*")}
    return {name for name in missing if any(start <= _time_of_name(name) <= end for start, end in flushes)}


def _time_of_name(name: str) -> float:
    """Time of the UUID in the name of a file, which DuckDB and the library take when they begin to write it."""
    return int(name.removeprefix("ducklake-").replace("-", "")[:12], 16) / 1000


def _check_read_failures(history: History, lost: set[str], findings: Findings) -> None:
    for failure in history.read_failures:
        findings.count_error(f"read by {failure.engine} {failure.error}", failure.message)
        if failure.engine == "library" and failure.error != "CatalogUnavailableError" and failure.retained:
            where = findings.known if any(name in failure.message for name in lost) else findings.violations
            where.append(f"the library could not read snapshot {failure.snapshot}, which is retained: {failure.message}")


def _check_flushes(history: History, findings: Findings) -> None:
    """Check that only flushes of DuckDB that were committed again doubled deletes."""
    for flush in history.flushes:
        committed = history.snapshots.get(flush.operation, [])
        if not flush.doubled:
            continue
        found = f"{flush.doubled} inlined deletes are in delete files as well after the flush {flush.operation}, {committed}"
        is_repeated = any(snapshot > flush.base + 1 for snapshot in committed)
        where = findings.known if is_repeated else findings.violations
        where.append(f"{found}, which began at snapshot {flush.base}")


def _replay(history: History, observations: list[Observation], findings: Findings) -> Model:
    """Replay all commits. Keep the snapshots that later checks need."""
    needed = {observation.snapshot for observation in observations}
    needed |= {plan.base for plan in history.plans.values() if plan.base is not None}
    needed |= {change.snapshot for intent in history.intents.values() for change in intent.changes if isinstance(change, Restore)}
    for outcome in history.outcomes.values():
        if isinstance(outcome, Success) and outcome.result.committed is False and outcome.result.snapshot:
            needed.add(outcome.result.snapshot)
    model = Model()
    for commit in history.commits:
        if commit.operation in history.intents:
            _replay_operation(history, model, commit.operation, commit.snapshot, findings)
        if commit.snapshot in needed:
            model.keep(commit.snapshot)
    findings.violations += model.violations
    return model


def _replay_operation(history: History, model: Model, operation: str, snapshot: int, findings: Findings) -> None:
    changes, outcome, plan = history.changes(operation), history.outcomes.get(operation), history.plans.get(operation)
    rows = outcome.result.rows if isinstance(outcome, Success) else None
    if plan is not None and plan.base is not None:
        for change in changes:
            for uid in _changed_by_duckdb(change):
                model.changed_by_duckdb[change.table, uid].append((plan.base, snapshot))
    model.counts.clear()
    for change in changes:
        applied = change
        if rows is not None and len(changes) > 1 and isinstance(change, (Delete, Update)):
            changed = rows.get(change.table, Counter())["updated" if isinstance(change, Update) else "deleted"]
            others = (uid for uid, row in model.tables[change.table].items() if matches(change.condition, uid, row))
            if not changed and any(not uid.startswith(f"{operation}#") for uid in others):
                # It matched no rows when the transaction began, and changes that match no rows take part in no conflict.
                findings.skew.append(
                    f"{history.named(operation)}, snapshot {snapshot}: {change} matched no rows when its transaction began"
                )
                applied = replace(change, condition=(*change.condition, Term("uid", "starts with", f"{operation}#")))
        model.apply(operation, applied, snapshot)
    one_change = len(changes) == 1 and isinstance(changes[0], (Insert, Delete, Update, Overwrite, Merge))
    if rows is not None and one_change and isinstance(outcome, Success) and not outcome.result.repeated:
        findings.counted += 1
        for table, counts in model.counts.items():
            if rows.get(table) != counts:
                reported = dict(rows.get(table, {}))
                findings.violations.append(f"{history.named(operation)} reported {reported} rows of {table}, the model has {dict(counts)}")


def _changed_by_duckdb(change: Change) -> list[str]:
    match change:
        case DuckDBChange(read=read):
            return [uid for uid, _ in read]
        case Update(condition=(Term(value=uid),)):
            return [uid]
        case _:
            return []


def _check_duckdb_reads(history: History, model: Model, findings: Findings) -> None:
    """Check what DuckDB's transactions read against the model at their bases."""
    for operation, plan in history.plans.items():
        for change in plan.changes:
            if not isinstance(change, DuckDBChange) or plan.base not in model.kept:
                continue
            table = model.kept[plan.base][0][change.table]
            expected = {(uid, row.v) for uid, row in table.items() if matches(change.condition, uid, row)}
            actual = set(change.read)
            if expected != actual or len(actual) != len(change.read):
                findings.violations.append(
                    f"{history.named(operation)} read {len(change.read)} rows of {change.table} with DuckDB at snapshot {plan.base}, "
                    f"the model has {len(expected)}: missing {sorted(expected - actual)[:3]}, unexpected {sorted(actual - expected)[:3]}"
                )


def _check_unchanged(history: History, model: Model, findings: Findings) -> None:
    """Check that no row matched deletes and updates that returned without a commit."""
    for operation, outcome in history.outcomes.items():
        if not isinstance(outcome, Success) or outcome.result.committed is not False or outcome.result.snapshot not in model.kept:
            continue
        for change in history.intents[operation].changes:
            if isinstance(change, (Delete, Update)):
                table = model.kept[outcome.result.snapshot][0][change.table]
                matched = [uid for uid, row in table.items() if matches(change.condition, uid, row)]
                if matched:
                    findings.violations.append(
                        f"{history.named(operation)} changed nothing at snapshot {outcome.result.snapshot}, where {len(matched)} rows "
                        f"of {change.table} match, such as {matched[:3]}"
                    )


def _check_observations(history: History, observations: list[Observation], model: Model, findings: Findings) -> None:
    """Check what both engines read against the model, and the row ids against each other."""
    row_ids: dict[tuple[str, str], int] = {}
    for observation in observations:
        snapshot = observation.snapshot
        if snapshot not in model.kept:
            findings.violations.append(f"a reader read snapshot {snapshot}, which is not in the log")
            continue
        differences, early = model.compare(snapshot, observation.library, "library")
        findings.violations += differences
        findings.time_travel += early
        of_duckdb, early = model.compare(snapshot, observation.duckdb, "DuckDB")
        findings.time_travel += early
        if not differences:
            (findings.duckdb if observation.is_newest else findings.time_travel).extend(of_duckdb)
        for table in TABLES:
            ids = {uid: row_id for uid, (_, row_id) in observation.library[table].rows.items()}
            if observation.duckdb and not differences:
                other_ids = {uid: row_id for uid, (_, row_id) in observation.duckdb[table].rows.items()}
                if other_ids and ids != other_ids:
                    other = [(uid, ids[uid], other_ids[uid]) for uid in ids.keys() & other_ids.keys() if ids[uid] != other_ids[uid]]
                    findings.duckdb.append(f"snapshot {snapshot}, table {table}: the engines read different row ids, such as {other[:3]}")
            if table in STABLE_ROW_IDS:
                changed = [(uid, row_ids[table, uid], row_id) for uid, row_id in ids.items() if row_ids.get((table, uid), row_id) != row_id]
                # A merge also changes snapshots before it, and observations are not in the order of the merges.
                by_merge = [one for one in changed if {one[1], one[2]} & history.merged_row_ids[table, one[0]]]
                for found, where in ((by_merge, findings.known), (sorted({*changed} - {*by_merge}), findings.violations)):
                    if found:
                        where.append(f"snapshot {snapshot}, table {table}: {len(found)} row ids changed, such as {found[:3]}")
                row_ids |= {(table, uid): row_id for uid, row_id in ids.items()}


@dataclass(frozen=True, slots=True)
class _Span:
    """Time during which an operation ran."""

    operation: str
    start: float
    end: float
    may_leave_files: bool
    tables: frozenset[str]
    """Tables that the operation changes; all tables if empty."""

    def may_have_written(self, table: str, moment: float) -> bool:
        return self.start <= moment <= self.end and (not self.tables or table in self.tables)


def _spans(history: History, kills: list[tuple[str, float]]) -> list[_Span]:
    killed = defaultdict(list)
    for name, moment in kills:
        killed[name].append(moment)

    def span(operation: str, start: float, outcome: Success | Failure | None) -> _Span:
        tables = frozenset(change.table for change in history.changes(operation))
        if outcome is not None:
            return _Span(operation, start, start + outcome.seconds + 1, _is_unknown(outcome), tables)
        end = min((moment for moment in killed[writer_of(operation)] if moment >= start), default=time.time())
        return _Span(operation, start, end + 1, True, tables)

    spans = [span(operation, intent.time, history.outcomes.get(operation)) for operation, intent in history.intents.items()]
    return spans + [span(rerun.operation, rerun.time, None) for rerun in history.rerun_intents]


def _is_unknown(outcome: Success | Failure) -> bool:
    """Return True if the outcome of a commit is unknown. Files of such a commit stay."""
    if isinstance(outcome, Failure):
        return outcome.outcome_unknown
    return any(f"[{CommitOutcomeUnknownError.code}]" in failure for failure in outcome.result.failures)


def _check_files(run: Run, history: History, kills: list[tuple[str, float]], lost: set[str], findings: Findings) -> None:
    """Check that files exist which the catalog names, and that only interrupted operations left files behind."""
    files = {path.name: path for path in Path(run.address.data_path).rglob("*") if path.is_file()}
    live = _file_names(run, "SELECT path FROM ducklake_data_file UNION SELECT path FROM ducklake_delete_file")
    scheduled = _file_names(run, "SELECT path FROM ducklake_files_scheduled_for_deletion")
    if lost:
        findings.known.append(f"DuckDB deleted {len(lost)} files after it had committed them, such as {sorted(lost)[:3]}")
    if missing := sorted(live - files.keys() - lost):
        findings.violations.append(f"{len(missing)} files of the catalog are missing, such as {missing[:3]}")
    spans = _spans(history, kills)
    for name in sorted(files.keys() - live - scheduled):
        path = files[name]
        written, engine = path.stat().st_mtime, _engine(path)
        _schema, table, *_ = path.relative_to(run.address.data_path).parts
        running = [span for span in spans if span.may_have_written(table, written) and engine in {None, uses_duckdb(span.operation)}]
        explained = any(span.may_leave_files for span in running)
        label = {True: "DuckDB", False: "library", None: "cut off"}[engine]
        findings.orphans[f"{label} {'interrupted' if explained else 'not interrupted'}"] += 1
        if not explained and engine is not True:
            outcomes = [f"{history.named(span.operation)}: {history.outcomes.get(span.operation)}" for span in running]
            findings.violations.append(
                f"file {path.relative_to(run.address.data_path)}, written at {written:.2f}, belongs to no snapshot, and no operation "
                f"was interrupted that could have left it. Running then: {outcomes}"
            )


def _file_names(run: Run, statement: str) -> set[str]:
    return {Path(path).name for (path,) in query(run, statement)}


def _engine(path: Path) -> bool | None:
    """Return True if DuckDB wrote a file, False if the library did, and None if the file has no footer."""
    try:
        return "DuckDB" in (pq.read_metadata(path).created_by or "")
    except (pa.ArrowException, OSError):
        return None


def _check_catalog(run: Run, findings: Findings) -> None:
    """Check rules that the catalog's tables do not enforce."""
    rules: dict[str, str] = {
        "data files with the same id": "SELECT data_file_id FROM ducklake_data_file GROUP BY 1 HAVING count(*) > 1",
        "data files with several current delete files": (
            "SELECT data_file_id FROM ducklake_delete_file WHERE end_snapshot IS NULL GROUP BY 1 HAVING count(*) > 1"
        ),
        "delete files without a data file": (
            "SELECT delete_file_id FROM ducklake_delete_file WHERE data_file_id NOT IN (SELECT data_file_id FROM ducklake_data_file)"
        ),
    }
    for rule, statement in rules.items():
        found: list[tuple[Any, ...]] = query(run, statement)
        if found:
            findings.violations.append(f"{rule}: {[number for (number,) in found[:5]]}")
