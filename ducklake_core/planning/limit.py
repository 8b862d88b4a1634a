"""Plans of scans that return some rows of many: what is not needed for them is not read at all."""

from __future__ import annotations

from dataclasses import replace

from ducklake_core.planning.plan import FileTask, ScanPlan


def limited_plan(plan: ScanPlan, most: int) -> ScanPlan:
    """A plan that has enough rows for the first ``most``, with as few files as the catalog can tell.

    Files are left out only when those before them surely have the rows: their rows are counted, all of them match, and what is deleted of
    them is known.
    """
    sure = plan.inlined.num_rows if plan.inlined is not None and plan.predicate is None else 0
    tasks: list[FileTask] = []
    for task in plan.tasks:
        if sure >= most:
            break
        tasks.append(task)
        sure += _sure_rows(task, filtered=plan.predicate is not None)
    report = replace(
        plan.pruning, files_kept=len(tasks), not_needed_for_limit=plan.pruning.not_needed_for_limit + len(plan.tasks) - len(tasks)
    )
    return replace(plan, tasks=tuple(tasks), inlined=plan.inlined if most else None, pruning=report)


def _sure_rows(task: FileTask, *, filtered: bool) -> int:
    """Rows that a file gives at the least."""
    if task.snapshot_filter is not None or (filtered and not task.all_rows_match):
        return 0
    deletes = task.file.delete_files
    # Without a count nobody knows how many rows a delete file hides; two may hide the same rows, which only makes more of them.
    if any(one.delete_count <= 0 for one in deletes):
        return 0
    return max(0, task.file.record_count - sum(one.delete_count for one in deletes) - len(task.file.inlined_deletes))
