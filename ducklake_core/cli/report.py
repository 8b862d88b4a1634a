"""Print what maintenance changed: a table with a line for each table that changed, the failures, and one line for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ducklake_core.cli.output import print_lines, print_table
from ducklake_core.format.types.text import counted
from ducklake_core.maintenance.checkpoint import CheckpointResult
from ducklake_core.maintenance.cleanup import CleanupResult
from ducklake_core.maintenance.expire import ExpiryResult
from ducklake_core.maintenance.flush import FlushResult, TableFlush
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.merge import MergeResult, TableMerge
from ducklake_core.maintenance.orphans import OrphansResult
from ducklake_core.maintenance.request import THE_LAKE, MaintenanceResult, MaintenanceStep, ends
from ducklake_core.maintenance.rewrite import RewriteResult, TableRewrite

_MAX_CHANGES = 40
"""Lines of the table of changes."""
_MAX_REASONS = 3


class _Change(NamedTuple):
    operation: str
    table: str
    done: str


def print_outcome(result: MaintenanceResult) -> None:
    """Print the outcome of a merge, a rewrite, a flush or a checkpoint that was carried out."""
    changes = list(_changes(result))
    columns = ("operation", "table", "change") if isinstance(result, CheckpointResult) else ("table", "change")
    first, middle, last = ends(changes, _MAX_CHANGES)
    if changes:
        rows = [one[-len(columns) :] for one in first]
        rows += [("",) * (len(columns) - 1) + (f"... {counted(len(middle), 'more change')}",)] if middle else []
        print_table(columns, [*rows, *(one[-len(columns) :] for one in last)])
    failed = result.failed_steps
    first_failed, more, last_failed = ends(failed, _MAX_CHANGES)
    print_lines(map(_failure, first_failed))
    print_lines([f"... {counted(len(more), 'more failure')}"] if more else [])
    print_lines(map(_failure, last_failed))
    changed = {(one.operation, one.table) for one in changes}
    rest = [step for step in result.skipped_steps if (step.verb, step.target) not in changed]
    print_lines(_rest(rest, is_round=isinstance(result, CheckpointResult)))
    if not (changes or failed or rest):
        print_lines(["nothing to do"])


def _failure(step: MaintenanceStep) -> str:
    return f"{step.verb}: FAILED, {step.reason}" if step.target == THE_LAKE else f"{step.target}: FAILED, {step.verb}: {step.reason}"


def _rest(steps: Sequence[MaintenanceStep], *, is_round: bool) -> Iterator[str]:
    """Yield a line for patterns without tables, and one line for everything that was left alone."""
    unmatched = {step.target: None for step in steps if step.action == "find its tables"}
    yield from (f"{pattern}: no table matches it" for pattern in unmatched)
    left = [step for step in steps if step.target not in unmatched]
    if not left:
        return
    if is_round:
        by_operation: dict[str, list[MaintenanceStep]] = {}
        for step in left:
            by_operation.setdefault(step.verb, []).append(step)
        parts = [_nothing_of(operation, among) for operation, among in by_operation.items()]
        yield f"nothing to do: {'; '.join(parts)}"
    else:
        yield f"nothing to do: {_targets(left)} ({_reasons(left)})"


def _nothing_of(operation: str, steps: Sequence[MaintenanceStep]) -> str:
    is_whole = len(steps) == 1 and steps[0].target == THE_LAKE
    return f"{operation} ({steps[0].reason})" if is_whole else f"{operation} of {_targets(steps)}"


def _targets(steps: Sequence[MaintenanceStep]) -> str:
    targets = dict.fromkeys(step.target for step in steps)
    return next(iter(targets)) if len(targets) == 1 else counted(len(targets), "table")


def _reasons(steps: Sequence[MaintenanceStep]) -> str:
    found = Counter(step.reason for step in steps)
    kept = found.most_common(_MAX_REASONS)
    reasons = [reason if len(found) == 1 else f"{count:,}: {reason}" for reason, count in kept]
    return "; ".join([*reasons, *(["..."] if len(found) > len(kept) else [])])


def _changes(result: MaintenanceResult) -> Iterator[_Change]:
    match result:
        case CheckpointResult():
            for one in result.verbs:
                yield from _changes(one.result) if one.result is not None else ()
        case MergeResult() | RewriteResult() | FlushResult():
            yield from _of_tables(result)
        case ExpiryResult() if result.snapshots:
            scheduled = f"scheduled {counted(len(result.files), 'file')} ({format_bytes(result.bytes_scheduled)}) for deletion"
            yield _Change("expire_snapshots", "", f"expired {counted(len(result.snapshots), 'snapshot')}, {scheduled}")
        case CleanupResult() if result.files:
            yield _Change("cleanup_old_files", "", f"deleted {counted(len(result.files), 'file')}")
        case OrphansResult() if result.files:
            orphans = f"{counted(len(result.files), 'orphaned file')} ({format_bytes(result.bytes)})"
            yield _Change("delete_orphaned_files", "", f"deleted {orphans}")
        case _:
            return


def _of_tables(result: MergeResult | RewriteResult | FlushResult) -> Iterator[_Change]:
    for table in result.tables:
        match table:
            case TableMerge() if table.files_merged:
                sizes = (table.files_merged, table.bytes_read, table.files_created, table.bytes_written)
                yield _Change("merge_adjacent_files", table.table, _rewritten("merged", *sizes))
            case TableRewrite() if table.failure is None and any(group.failure is None for group in table.groups):
                groups = [group for group in table.groups if group.failure is None]
                sizes = (sum(g.files for g in groups), sum(g.bytes for g in groups), table.files_created, table.bytes_written)
                yield _Change("rewrite_data_files", table.table, _rewritten("rewrote", *sizes))
            case TableFlush() if table.skipped is None and table.failure is None:
                yield _Change("flush_inlined_data", table.table, _flushed(table))
            case _:
                continue


def _rewritten(done: str, files: int, size: int, created: int, created_size: int) -> str:
    return f"{done} {counted(files, 'file')} ({format_bytes(size)}) into {created:,} ({format_bytes(created_size)})"


def _flushed(table: TableFlush) -> str:
    files = table.files_created + table.delete_files_created
    moved = [counted(table.rows, "inlined row")] if table.rows else []
    moved += [counted(table.deletes, "inlined delete")] if table.deletes else []
    if not moved:
        return f"removed {counted(table.superseded, 'empty table')} of inlined rows from the catalog"
    return f"flushed {' and '.join(moved)} to {counted(files, 'file')}"
