"""Requests, budgets, progress and steps that all maintenance operations share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, get_args

from ducklake_core.catalog.reading.bulk_reader import SharedReading
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.visibility import same_name
from ducklake_core.commit.request import CommitMessage, new_commit_id, stored_extra_info
from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.arguments import optional, seconds, whole_number
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.types.names import TablePattern, join_name, schema_path, schemas_meant, similar_entries, split_name
from ducklake_core.format.types.text import counted, short_repr, shown
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.storage.uploads import StoredFile

OUT_OF_TIME = "beyond max_seconds"
OUT_OF_FILES = "beyond max_files"
THE_LAKE = "the lake"
"""Target of a step about a whole operation."""
T = TypeVar("T")

_LISTED_AT_ONCE = 1000
ProgressUnit: TypeAlias = Literal["files", "groups", "tables", "snapshots", "rows"]

StepOutcome: TypeAlias = Literal["planned", "done", "skipped", "failed"]

MAX_LINES = 6
"""Maximum number of lines about objects of one kind, such as snapshots or files, in a brief list."""
_MAX_RANGES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceStep:
    """One step of an operation.

    Attributes:
        verb: Name of the operation.
        target: Object of the step: ``schema.table``, a snapshot, a file, or ``the lake``.
        action: Description of the action.
        reason: Reason for the action, for skipping it, or for its failure.
        outcome: ``planned`` in a dry run, ``done`` in a run, or ``skipped`` or ``failed`` in both.
        files: Number of files that it reads, deletes or schedules.
        rows: Number of rows that it moves.
        bytes: Bytes of the files, if the catalog contains them.
    """

    verb: str
    target: str
    action: str
    reason: str
    outcome: StepOutcome
    files: int = 0
    rows: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        where = self.verb if self.target == THE_LAKE else f"{self.verb} {self.target}"
        match self.outcome:
            case "skipped":
                return f"{where}: skipped ({self.reason})"
            case "failed":
                return f"{where}: FAILED, {self.reason}"
            case _:
                return f"{where}: {self.outcome}, {self.action}{_sizes(self.files, self.rows, self.bytes)}: {self.reason}"


def unmatched_steps(operation: str, patterns: Iterable[str]) -> tuple[MaintenanceStep, ...]:
    """Return a skipped step for each pattern that matches no table."""
    return tuple(
        MaintenanceStep(verb=operation, target=pattern, action="find its tables", reason="no table matches it", outcome="skipped")
        for pattern in patterns
    )


def _listed(steps: Sequence[MaintenanceStep], most: int | None) -> list[str]:
    if most is None or len(steps) <= most:
        return list(map(str, steps))
    kinds: dict[tuple[str, str, str], list[MaintenanceStep]] = {}
    for step in steps:
        kinds.setdefault((step.verb, step.outcome, step.action), []).append(step)
    return [line for kind in kinds.values() for line in listed(kind, str, most, _left_out)]


def _left_out(steps: Sequence[MaintenanceStep]) -> str:
    files, rows, size = (sum(getattr(step, name) for step in steps) for name in ("files", "rows", "bytes"))
    return f"{len(steps):,} more: {steps[0].verb}, {steps[0].outcome}{_sizes(files, rows, size)}"


def _sizes(files: int, rows: int, size: int) -> str:
    sizes = [counted(count, unit) for count, unit in ((files, "file"), (rows, "row")) if count]
    sizes += [format_bytes(size)] if size else []
    return f" ({', '.join(sizes)})" if sizes else ""


class MaintenanceResult:
    """Base class of the results of all maintenance operations: the steps and their outcomes."""

    __slots__ = ()

    @property
    def steps(self) -> tuple[MaintenanceStep, ...]:
        """All steps, in order."""
        raise NotImplementedError

    @property
    def skipped_steps(self) -> tuple[MaintenanceStep, ...]:
        """Skipped steps, each with the reason."""
        return tuple(step for step in self.steps if step.outcome == "skipped")

    @property
    def failed_steps(self) -> tuple[MaintenanceStep, ...]:
        """Failed steps, each with the error. A failed step does not stop the others."""
        return tuple(step for step in self.steps if step.outcome == "failed")

    def lines(self) -> list[str]:
        """Return a line for each step, and a summary with the number of steps by outcome."""
        return self._lines(None)

    def brief_lines(self) -> list[str]:
        """Return the lines of :meth:`lines`, shortened: of many objects of one kind only the first and last three, and the number
        between."""
        return self._lines(MAX_LINES)

    def _lines(self, most: int | None) -> list[str]:
        steps = self.steps
        counts = Counter(step.outcome for step in steps)
        parts = [f"{counts[outcome]} {outcome}" for outcome in get_args(StepOutcome) if counts[outcome]]
        return [*_listed(steps, most), f"steps: {', '.join(parts)}" if parts else "nothing to do"]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = short_repr


def listed(items: Sequence[T], line: Callable[[T], str], most: int | None, left_out: Callable[[Sequence[T]], str]) -> list[str]:
    """Return a line for each item, or for a limited number of them.

    Args:
        items: The items.
        line: Returns the line of an item.
        most: Approximate maximum number of lines; None for all items.
        left_out: Returns a description of the omitted items in the middle.

    >>> listed("abcdefg", str.upper, 4, lambda rest: f"{len(rest)} more")
    ['A', 'B', '... 3 more', 'F', 'G']
    """
    first, middle, last = ends(items, most)
    return [*map(line, first), *([f"... {left_out(middle)}"] if middle else []), *map(line, last)]


def ends(items: Sequence[T], most: int | None) -> tuple[Sequence[T], Sequence[T], Sequence[T]]:
    """Return the first, the middle and the last items: half of ``most`` at each end. Few items are all returned as the first."""
    if most is None or len(items) <= most + 1:
        return items, (), ()
    kept = most // 2
    return items[:kept], items[kept : len(items) - kept], items[len(items) - kept :]


def more_files(left_out: Sequence[object]) -> str:
    """Return the line for files that a list omits."""
    return counted(len(left_out), "more file")


def id_ranges(ids: Iterable[int]) -> str:
    """Return numbers as ranges; many ranges are shortened to the first and last number.

    >>> id_ranges([4, 1, 2, 3, 7]), id_ranges([8]), id_ranges(range(0, 100, 2))
    ('1 to 4, 7', '8', '50 between 0 and 98')
    """
    known = sorted(ids)
    starts = [one for place, one in enumerate(known) if place == 0 or known[place - 1] != one - 1]
    if len(starts) > _MAX_RANGES:
        return f"{len(known):,} between {known[0]} and {known[-1]}"
    stops = [one for place, one in enumerate(known) if place == len(known) - 1 or known[place + 1] != one + 1]
    return ", ".join(f"{start}" if start == stop else f"{start} to {stop}" for start, stop in zip(starts, stops, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one call, over all of its tables; None for no limit.

    Attributes:
        max_input_bytes: Maximum bytes of data files to read.
        max_files: Maximum number of data files to read, or files to delete.
        max_rows: Number of inlined rows and deletes after which no further table is started.
        max_seconds: Seconds after which no further work is started.
    """

    max_input_bytes: int | None = None
    max_files: int | None = None
    max_rows: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_input_bytes", "max_files", "max_rows"):
            optional(partial(whole_number, least=1), name, getattr(self, name))
        optional(seconds, "max_seconds", self.max_seconds)


class BudgetMeter:
    """The remaining budget while an operation plans and runs. Time counts from its creation."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self._bytes = _or_all(self.budget.max_input_bytes)
        self._files = _or_all(self.budget.max_files)
        self._rows = _or_all(self.budget.max_rows)
        self._deadline = time.monotonic() + _or_all(self.budget.max_seconds)

    @property
    def is_out_of_time(self) -> bool:
        """Return whether no further work may be started."""
        return time.monotonic() >= self._deadline

    def of_time(self) -> BudgetMeter:
        """Return a meter with the same end, and no other limit."""
        other = BudgetMeter()
        other._deadline = self._deadline
        return other

    def begin_rows(self, count: int) -> bool:
        """Return whether work on a number of rows may start, and count them if so."""
        if self._rows <= 0:
            return False
        self._rows -= count
        return True

    def spend(self, files: Sequence[DataFile]) -> None:
        """Count files that are read."""
        self._files -= len(files)
        self._bytes -= _size(files)

    def refund(self, files: Sequence[DataFile]) -> None:
        """Undo the count of files of a replaced plan."""
        self._files += len(files)
        self._bytes += _size(files)

    def first(self, files: Sequence[DataFile]) -> Sequence[DataFile]:
        """Return as many of the first files as fit."""
        size = 0
        for place, file in enumerate(files):
            size += file.file_size_bytes
            if place >= self._files or size > self._bytes:
                return files[:place]
        return files

    def most(self, files: Sequence[DataFile]) -> Sequence[DataFile]:
        """Return the longest run of adjacent files that fits, and of equally long runs the smallest in bytes.

        So repeated calls with a small budget merge files that are still small before merged ones.
        """
        best: tuple[int, float] = (0, 0)
        chosen: Sequence[DataFile] = ()
        start, size = 0, 0
        for end, file in enumerate(files, 1):
            size += file.file_size_bytes
            while end - start > self._files or size > self._bytes:
                size -= files[start].file_size_bytes
                start += 1
            if (end - start, -size) > best:
                best, chosen = (end - start, -size), files[start:end]
        return chosen

    def first_deletions(self, files: Sequence[T]) -> Sequence[T]:
        """Return as many of the first files as one call may delete. Bytes do not count, because no file is read."""
        return files if self.budget.max_files is None else files[: self.budget.max_files]

    def beyond(self, files: Sequence[DataFile], least: int = 1) -> str:
        """Return the reason why files did not fit, after the others were counted.

        Args:
            files: Adjacent files, in order.
            least: Minimum number of files that have to fit together.
        """
        most_files, most_bytes = _or_all(self.budget.max_files), _or_all(self.budget.max_input_bytes)
        if least > most_files:
            return f"max_files={self.budget.max_files} is too small: {least} files are needed"
        smallest = min(_size(files[start : start + least]) for start in range(max(1, len(files) - least + 1)))
        if smallest > most_bytes:
            return f"max_input_bytes={self.budget.max_input_bytes} is too small for them"
        return OUT_OF_FILES if self._files < least else "beyond max_input_bytes"


def also_left(left: Iterable[tuple[str, int]], beyond: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the number of remaining files, by reason, with further ones added.

    >>> also_left([("beyond max_files", 1)], {"beyond max_files": 2, "beyond max_input_bytes": 1})
    (('beyond max_files', 3), ('beyond max_input_bytes', 1))
    """
    counts = Counter(dict(left))
    counts.update(beyond)
    return tuple(sorted(counts.items()))


def left_text(left: Iterable[tuple[str, int]]) -> str:
    """Return the number of remaining files, by reason, as the end of a line with other counts.

    >>> left_text([("beyond max_files", 3)]), left_text([])
    (', 3 beyond max_files', '')
    """
    return "".join(f", {count} {reason}" for reason, count in left)


def _or_all(bound: float | None) -> float:
    return inf if bound is None else bound


def _size(files: Sequence[DataFile]) -> int:
    return sum(file.file_size_bytes for file in files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of an operation.

    An operation has one or several phases (``list files``, ``delete files``), each of which counts from 0. A checkpoint reports the
    operations that it runs.

    Attributes:
        verb: Name of the operation.
        phase: Name of the phase.
        table: Current or last table; None if the phase concerns the whole lake.
        unit: Unit of ``done`` and ``total``: files, groups of files (each becomes one or a few files), tables, snapshots or rows.
        done: Number of finished units, including failed ones.
        total: Number of units, None if unknown. It grows if a table has to be planned again.
        rows: Rows of finished units, if the catalog contains them.
        bytes: Bytes of finished units, if the catalog contains them.
        seconds: Seconds since the call.
        seconds_left: Estimated seconds until the end of the phase, by bytes, rows or units; None if unknown.
    """

    verb: str
    phase: str
    unit: ProgressUnit
    done: int
    table: str | None = None
    total: int | None = None
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        sizes = [counted(self.rows, "row")] if self.rows else []
        sizes += [format_bytes(self.bytes)] if self.bytes else []
        left = "" if self.seconds_left is None else f", {self.seconds_left:.0f} s left"
        table = "" if self.table is None else f" {self.table}"
        return f"{self.verb}{table}: {', '.join([f'{self.done:,}{of} {self.unit}', *sizes])} in {self.seconds:.0f} s{left} ({self.phase})"


ProgressCallback: TypeAlias = Callable[[Progress], object]
"""Called in the thread of the operation, at the start of a phase and when a unit has finished. An exception that it raises ends the
operation as Ctrl-C does: committed changes and deletions are kept, and no uncommitted file is left behind."""


class ProgressMeter:
    """Counts the work of an operation, and calls a progress callback. Time counts from its creation."""

    def __init__(self, callback: ProgressCallback | None = None) -> None:
        # A class can be called, too, but does not report anything.
        given: Any = callback
        if given is not None and (not callable(given) or isinstance(given, type)):
            raise UsageError(f"progress must be a function of one argument, not {shown(given)}", parameter="progress")
        self._callback = callback
        self._started = time.monotonic()
        self._now = Progress(verb="", phase="", unit="files", done=0)
        self._phase_started = self._started
        self._whole, self._ended = 0, 0

    def begin(self, operation: str, phase: str, unit: ProgressUnit, total: int | None, *, work: int = 0) -> None:
        """Start a phase.

        Args:
            operation: Name of the operation.
            phase: Name of the phase.
            unit: Unit of the total.
            total: Number of units, None if unknown.
            work: Total size of the work, such as bytes, for the estimate of the remaining time. Default: estimate by units.
        """
        self._phase_started = time.monotonic()
        self._whole, self._ended = work, 0
        self._report(Progress(verb=operation, phase=phase, unit=unit, done=0, total=total))

    def extend(self, count: int, *, work: int = 0) -> None:
        """Add units and work to the phase, for example after another plan."""
        now = self._now
        self._whole += work
        self._report(replace(now, total=None if now.total is None else now.total + count))

    def at(self, table: str) -> None:
        """Set the current table."""
        self._report(replace(self._now, table=table))

    def advance(self, count: int = 1, *, rows: int = 0, size: int = 0, work: int = 0, table: str | None = None) -> None:
        """Count finished work.

        Args:
            count: Number of units.
            rows: Number of rows.
            size: Bytes.
            work: Share of the total work.
            table: Table of the work. Default: the current table.
        """
        now = self._now
        self._ended += work
        self._report(replace(now, done=now.done + count, rows=now.rows + rows, bytes=now.bytes + size, table=table or now.table))

    def _report(self, now: Progress) -> None:
        self._now = now
        if self._callback is None:
            return
        moment = time.monotonic()
        done, whole = (self._ended, self._whole) if self._whole else (now.done, now.total or 0)
        spent = moment - self._phase_started
        left = spent * max(0, whole - done) / done if done and whole else None
        self._callback(replace(now, seconds=moment - self._started, seconds_left=left))


def listed_with_progress(files: Iterable[StoredFile], operation: str, progress: ProgressMeter) -> Iterator[StoredFile]:
    """Yield the files of a store while they are listed. The total is known only at the end."""
    progress.begin(operation, "list files", "files", None)
    count = size = 0
    for file in files:
        count, size = count + 1, size + file.size
        if count == _LISTED_AT_ONCE:
            progress.advance(count, size=size)
            count = size = 0
        yield file
    progress.advance(count, size=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScope:
    """The tables of an operation: all, one, those of a schema, or those that match names with wildcards.

    Attributes:
        table: ``table`` or ``schema.table``; with ``schema``, the name of a table in it.
        schema: Name of a schema.
        tables: Names and patterns (:class:`TablePattern`).
    """

    table: str | None = None
    schema: str | None = None
    tables: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.tables is None:
            return
        if self.table is not None or self.schema is not None:
            raise UsageError(
                "tables cannot be combined with table or schema. Use tables=['sales.*'] for all tables of a schema", parameter="tables"
            )
        if not self.tables:
            raise UsageError("tables is an empty list. Name at least one table, or remove tables to process all tables", parameter="tables")

    def select(self, reader: CatalogReader, snapshot_id: int) -> SelectedTables:
        """Return the tables at a snapshot.

        Raises:
            NotFoundError: A name without wildcards does not exist.
        """
        names = reader.table_names(snapshot_id)
        if self.tables is not None:
            return _matching([TablePattern.parse(text) for text in self.tables], names, snapshot_id)
        if self.table is not None:
            schema, name = split_name(self.table)
            for owner in (schema,) if self.schema is None else schemas_meant(self.schema):
                found = {number: one for number, one in names.items() if same_name(one[0], owner) and same_name(one[1], name)}
                if found:
                    return SelectedTables(_joined(found))
            _missing((schema if self.schema is None else schema_path(self.schema), name), names, snapshot_id)
        if self.schema is not None:
            schema = reader.schema(*schemas_meant(self.schema), snapshot_id=snapshot_id).name
            names = {number: one for number, one in names.items() if same_name(one[0], schema)}
        return SelectedTables(_joined(names))


@dataclass(frozen=True, slots=True)
class SelectedTables:
    """Names of tables by id, and the patterns that match no table."""

    names: dict[int, str]
    unmatched: tuple[str, ...] = ()


def _matching(patterns: Sequence[TablePattern], names: dict[int, tuple[str, str]], snapshot_id: int) -> SelectedTables:
    chosen: set[int] = set()
    unmatched: list[str] = []
    for pattern in patterns:
        found = {number for number, (schema, table) in names.items() if pattern.matches(schema, table)}
        if not found and not pattern.has_wildcards:
            _missing(pattern.name, names, snapshot_id)
        if not found:
            unmatched.append(pattern.text)
        chosen |= found
    return SelectedTables(_joined({number: name for number, name in names.items() if number in chosen}), tuple(dict.fromkeys(unmatched)))


def _missing(name: tuple[str, str], names: dict[int, tuple[str, str]], snapshot_id: int) -> NoReturn:
    near = similar_entries(*name, names.values())
    text = ".".join(name)
    raise NotFoundError(f"there is no table {text} at snapshot {snapshot_id}{near}", table=text, snapshot_id=snapshot_id)


def _joined(names: dict[int, tuple[str, str]]) -> dict[int, str]:
    return {number: join_name(*name) for number, name in names.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """A call of an operation on tables.

    Attributes:
        scope: The tables.
        meter: The budget.
        commit: Author, message and extra_info of the snapshots.
        progress: Progress callback.
        dry_run: Whether to plan only.
        reading: Shared tables of several operations that plan one after the other; None to read them for each.
    """

    scope: TableScope = field(default_factory=TableScope)
    meter: BudgetMeter = field(default_factory=BudgetMeter)
    commit: CommitMessage = field(default_factory=CommitMessage)
    progress: ProgressMeter = field(default_factory=ProgressMeter)
    dry_run: bool = False
    reading: SharedReading | None = None

    def __post_init__(self) -> None:
        # Checked first, because it would make every commit fail.
        stored_extra_info(new_commit_id(), self.commit.get("extra_info"))
