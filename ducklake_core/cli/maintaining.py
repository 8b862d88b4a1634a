"""Commands that maintain, check and plan, and the tables that they print; each command wraps one operation of the library."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, cast

import typer

from ducklake_core.cli.output import as_commands, print_json, print_lines, print_report, print_table, progress_bar, read_or_not, write
from ducklake_core.cli.session import (
    FOUND,
    Author,
    DryRun,
    ExtraInfo,
    Json,
    LakeOptions,
    Message,
    TableName,
    column_names,
    exit_with,
    opened,
    snapshot_at,
    time_with_zone,
)
from ducklake_core.errors import UsageError
from ducklake_core.format.types.text import counted, parse_age
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance.check.findings import CheckLevel
from ducklake_core.maintenance.checkpoint import CheckpointResult
from ducklake_core.maintenance.cleanup import CleanupResult, age_text
from ducklake_core.maintenance.expire import ExpiryResult
from ducklake_core.maintenance.flush import FlushResult, TableFlush
from ducklake_core.maintenance.health import format_bytes
from ducklake_core.maintenance.merge import MergeResult, TableMerge
from ducklake_core.maintenance.orphans import OrphansResult
from ducklake_core.maintenance.request import THE_LAKE, MaintenanceResult, MaintenanceStep, ends
from ducklake_core.maintenance.rewrite import RewriteResult, TableRewrite

OPTIONS: Mapping[str, Any] = {
    "tables": Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...", help="table or schema.table, where * stands for any letters and ? for one; all tables by default"
        ),
    ],
    "schema": Annotated[str | None, typer.Option("--schema", help="Only tables of a schema.")],
    "older_than": Annotated[str | None, typer.Option("--older-than", help="An age ('7 days'), or a time with a zone.")],
    "versions": Annotated[str | None, typer.Option("--versions", help="Ids of snapshots instead, separated by commas.")],
    "keep_last": Annotated[int | None, typer.Option("--keep-last", min=1, help="Number of newest snapshots to keep, whatever their age.")],
    "min_age": Annotated[str, typer.Option("--min-age", help="Minimum age; lower it only if nothing else uses the lake.")],
    "cleanup_all": Annotated[bool, typer.Option("--cleanup-all", help="Delete files of any age; needs --min-age '0 seconds'.")],
    "every_parquet": Annotated[
        bool, typer.Option("--every-parquet", help="Also delete Parquet files whose names are not those of a DuckLake writer.")
    ],
    "delete_threshold": Annotated[
        float | None, typer.Option("--delete-threshold", help="Fraction of the rows of a file, 0 to 1, that must be deleted.")
    ],
    "cluster_by": Annotated[str | None, typer.Option("--cluster-by", help="Columns to cluster the new files by, separated by commas.")],
    "max_compacted_files": Annotated[
        int | None, typer.Option("--max-compacted-files", help="Maximum number of files to create for each table.")
    ],
    "min_file_size": Annotated[int | None, typer.Option("--min-file-size", help="Bytes; smaller files are not merged.")],
    "max_file_size": Annotated[int | None, typer.Option("--max-file-size", help="Bytes; files of this size or larger are not merged.")],
    "max_input_bytes": Annotated[int | None, typer.Option("--max-input-bytes", help="Maximum bytes of files to read.")],
    "max_files": Annotated[int | None, typer.Option("--max-files", help="Maximum number of files to read.")],
    "max_rows": Annotated[int | None, typer.Option("--max-rows", help="Number of rows after which no further table is started.")],
    "max_seconds": Annotated[float | None, typer.Option("--max-seconds", help="Seconds after which nothing further is started.")],
    "max_concurrency": Annotated[
        int | None, typer.Option("--max-concurrency", help="Maximum number of groups of files at a time, on threads.")
    ],
    "partial_progress": Annotated[bool, typer.Option("--partial-progress", help="Commit each group of files as soon as it is finished.")],
    "dry_run": DryRun,
}
"""Options by parameter of the methods that the commands call. The method has the default."""
COMMIT_OPTIONS: Mapping[str, Any] = {"author": Author, "message": Message, "extra_info": ExtraInfo}
MAX_DELETIONS = Annotated[int | None, typer.Option("--max-files", help="Maximum number of files to delete.")]


def age(text: str) -> str | datetime:
    """Return an age or a time with a zone, as the operations take them.

    >>> age("7 days"), age("2026-01-01T00:00:00+00:00").year
    ('7 days', 2026)

    Raises:
        UsageError: The string is neither, or a number without a unit.
    """
    if text.strip().replace(".", "", 1).isdecimal():
        raise UsageError(f"{text.strip()} has no unit. Write an age as '7 days', and a time as '2026-01-31 12:00:00+00:00'")
    try:
        parse_age(text)
    except UsageError:
        return time_with_zone(text, "an age ('7 days')")
    return text


def command(name: str, method: Callable[..., MaintenanceResult], summary: str, example: str, **options: Any) -> Callable[..., None]:
    """Return the command that calls a method of :class:`DuckLake`, with an option for each parameter that has one.

    The exit code is 1 when a step failed.

    Args:
        name: Name of the command.
        method: The method.
        summary: Description in ``--help``.
        example: Command line that is shown with it.
        **options: Options in place of those of ``OPTIONS``, by parameter.
    """
    known = {**OPTIONS, **options}

    def call(context: typer.Context, *, as_json: bool, **given: Any) -> None:
        if given.get("tables") and given.get("schema") is not None:
            raise UsageError("pass TABLE or --schema, not both; 'sales.t' is a table of a schema, 'sales.*' all of them")
        arguments = {parameter: _READ.get(parameter, _unchanged)(value) for parameter, value in given.items() if value is not None}
        with opened(context, read_only=given["dry_run"]) as lake:
            with progress_bar(as_json=as_json) as progress:
                result = method(lake, progress=progress, **arguments)
            with read_or_not():
                if as_json or given["dry_run"] or isinstance(result, ExpiryResult | CleanupResult | OrphansResult):
                    print_report(result, as_json=as_json)
                else:
                    print_outcome(result)
            exit_with(FOUND, not result.failed_steps)

    parameters = [
        _keyword(one.name, known[one.name], one.default) for one in inspect.signature(method).parameters.values() if one.name in known
    ]
    if "commit" in inspect.signature(method).parameters:
        parameters += [_keyword(one, option, None) for one, option in COMMIT_OPTIONS.items()]
    return _as_command(call, name, f"{summary}\n\nExample: {example}", [_CONTEXT, *parameters, _keyword("as_json", Json, default=False)])


_CONTEXT = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)


def _keyword(name: str, option: Any, default: object) -> inspect.Parameter:
    """Return the parameter of an option. An empty default is None, and an age is a string."""
    shown = age_text(default) if isinstance(default, timedelta) else None if default == () else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=shown, annotation=option)


def _as_command(call: Callable[..., None], name: str, summary: str, parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Return the function with what typer reads of one."""
    call.__name__ = name
    call.__doc__ = summary
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _unchanged(value: Any) -> Any:
    return value


def _numbers(text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise UsageError(f"--versions must be ids of snapshots, separated by commas, not {text!r}") from None


_READ: Mapping[str, Callable[[Any], Any]] = {
    "tables": lambda given: given or None,
    "older_than": age,
    "versions": _numbers,
    "cluster_by": column_names,
}
"""Functions that turn the value of an option into that of the parameter."""


def migrate(
    context: typer.Context,
    *,
    to: Annotated[Literal["1.0", "1.1"] | None, typer.Option("--to", help="Version; 1.0 for earlier ones.")] = None,
    allow_history_loss: Annotated[
        bool, typer.Option("--allow-history-loss", help="Migrate even if merged files then show all of their rows at every snapshot.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Migrate the catalog to a later format version. Back it up first: a migration cannot be undone.

    Example: ducklake migrate --to 1.1 --dry-run
    """
    with opened(context, read_only=dry_run) as lake:
        print_report(lake.migrate(to, allow_history_loss=allow_history_loss, dry_run=dry_run), as_json=as_json)


def restore(
    context: typer.Context,
    *,
    at: Annotated[str, typer.Option("--at", help="Snapshot: its id, a time with a zone, or a hold.")],
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="table or schema.table; the whole lake without it")] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="then restores the earlier columns too, now keeps the present ones; needed if the columns changed."),
    ] = None,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    as_json: Json = False,
) -> None:
    """Restore a table, or the whole lake, to an earlier snapshot, as a new snapshot.

    Example: ducklake restore sales.orders --at 42
    """
    with opened(context, read_only=False) as lake, progress_bar(as_json=as_json) as progress, lake.progress(progress):
        moment = snapshot_at(at)
        if table is not None:
            result: Any = lake.table(table).restore(
                moment, columns=cast("Any", columns), author=author, message=message, extra_info=extra_info
            )
        elif columns is not None:
            raise UsageError("--columns is for one table; a restore of the whole lake restores the columns too")
        else:
            result = lake.restore(moment, author=author, message=message, extra_info=extra_info)
    if as_json:
        print_json(result)
    else:
        write("nothing to change\n" if result is None else f"{result}\n")


def undrop(
    context: typer.Context,
    *,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="table or schema.table, as it was called when it was dropped")],
    at: Annotated[
        str | None,
        typer.Option("--at", help="Snapshot to take it from: its id, a time with a zone, or a hold. The last with it by default."),
    ] = None,
    new_name: Annotated[str | None, typer.Option("--as", help="New name, in the same schema. The former name by default.")] = None,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    as_json: Json = False,
) -> None:
    """Re-create a table that was dropped, with its rows, as a new snapshot.

    Example: ducklake undrop sales.orders --as orders_before
    """
    with opened(context, read_only=False) as lake:
        with progress_bar(as_json=as_json) as progress, lake.progress(progress):
            made = lake.undrop_table(table, at=snapshot_at(at), new_name=new_name, author=author, message=message, extra_info=extra_info)
        info = made.info()
        if as_json:
            print_json(info)
        else:
            print_lines([f"{made.name} was re-created with {counted(info.row_count, 'row')}, at snapshot {made.snapshot_id}"])


def purge(
    context: typer.Context,
    *,
    table: TableName,
    where: Annotated[str, typer.Option("--where", help="Condition in SQL (DuckDB's dialect) on the rows to delete.")],
    min_age: Annotated[str, typer.Option("--min-age", help="Minimum age of snapshots and files to delete.")] = "0 seconds",
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete rows for good: from all snapshots, files and statistics. Expires all snapshots of the lake except the newest.

    The exit code is 1 if something may still contain the rows, or with --dry-run if a hold would stop the command.

    Example: ducklake purge customers --where 'id = 1999'
    """
    with opened(context, read_only=dry_run) as lake:
        commit: dict[str, Any] = {"author": author, "message": message, "extra_info": extra_info}
        with progress_bar(as_json=as_json) as progress:
            result = lake.purge(table, where, min_age=min_age, progress=progress, dry_run=dry_run, **commit)
        with read_or_not():
            print_report(result, as_json=as_json)
        exit_with(FOUND, not result.remains)


def copy(
    context: typer.Context,
    *,
    target: Annotated[str, typer.Argument(metavar="ADDRESS", help="Address of an empty catalog database, or a name in ducklake.toml.")],
    data_path: Annotated[
        str | None, typer.Option("--copy-files", metavar="PATH", help="Also copy the files there; they stay where they are by default.")
    ] = None,
    schema: Annotated[str | None, typer.Option("--target-schema", help="Schema of the target for the catalog's tables.")] = None,
    compare: Annotated[
        Literal["catalog", "rows"], typer.Option("--compare", help="rows: also read and compare all rows of all snapshots.")
    ] = "catalog",
    as_json: Json = False,
) -> None:
    """Copy the lake with all snapshots to another catalog database, for example from SQLite to PostgreSQL.

    Example: ducklake copy postgresql+psycopg://me@host/lake
    """
    options: LakeOptions = context.find_root().obj
    spec = options.known(target)
    with opened(context, read_only=True) as lake:
        with progress_bar(as_json=as_json) as progress:
            result = lake.copy_to(
                spec.catalog,
                data_path=data_path,
                metadata_schema=spec.metadata_schema if schema is None else schema,
                storage_options=spec.storage_options,
                compare=compare,
                progress=progress,
            )
        print_report(result, as_json=as_json)


def move(
    context: typer.Context,
    *,
    data_path: Annotated[str, typer.Argument(metavar="PATH", help="Directory or object store prefix that contains the files now.")],
    copy_files: Annotated[bool, typer.Option("--copy-files", help="Copy the files there first. The old ones are not deleted.")] = False,
    as_json: Json = False,
) -> None:
    """Store another data path, after the files were moved there. Checks first that all files exist in it.

    Example: ducklake move s3://bucket/lake/
    """
    with opened(context, read_only=False) as lake:
        with progress_bar(as_json=as_json) as progress:
            result = lake.move_data(data_path, copy_files=copy_files, progress=progress)
        print_report(result, as_json=as_json)


def check(
    context: typer.Context,
    *,
    level: Annotated[str, typer.Option("--level", help="catalog, footers (opens every file) or rows (reads every row).")] = "catalog",
    repair: Annotated[bool, typer.Option("--repair", help="Repair findings that can be repaired safely.")] = False,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    as_json: Json = False,
) -> None:
    """Check catalog and files. The exit code is 1 if there is an error or a warning that is not repaired.

    Example: ducklake check --level footers
    """
    with opened(context, read_only=not repair) as lake:
        with progress_bar(as_json=as_json) as progress:
            result = lake.check(
                level=cast("CheckLevel", level), repair=repair, author=author, message=message, extra_info=extra_info, progress=progress
            )
        with read_or_not():
            if as_json:
                findings = [_values(one, *one.__dataclass_fields__, "severity", "fix") for one in result.findings]
                print_json({**_values(result, *result.__dataclass_fields__), "findings": findings})
            else:
                print_report(result, as_json=False)
        left = [one for one in result.findings if one.severity != "notice" and not (repair and one.is_repairable)]
        exit_with(FOUND, not left)


def health(
    context: typer.Context,
    *,
    small_file_size: Annotated[int, typer.Option("--small-file-size", min=1, help="Bytes below which a file counts as small.")] = 16 << 20,
    openmetrics: Annotated[bool, typer.Option("--openmetrics", help="Print OpenMetrics text for Prometheus.")] = False,
    label: Annotated[list[str] | None, typer.Option("--label", help="name=value for every sample; may be given again.")] = None,
    as_json: Json = False,
) -> None:
    """Count small files, deleted and inlined rows, snapshots, scheduled files and faults. The exit code is 1 if there are faults.

    Example: ducklake health --openmetrics --label lake=sales
    """
    labels = _labels(label or ())
    if openmetrics and as_json:
        raise UsageError("give either --openmetrics or --json")
    if labels and not openmetrics:
        raise UsageError("--label needs --openmetrics")
    with opened(context) as lake:
        result = lake.health(small_file_size=small_file_size)
        with read_or_not():
            if openmetrics:
                write(result.to_openmetrics(labels))
            else:
                print_report(result, as_json=as_json)
        exit_with(FOUND, not result.faults)


def _values(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def _labels(strings: Iterable[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in strings:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--label {text} must be name=value")
        if name in labels:
            raise UsageError(f"--label {name} is given twice")
        labels[name] = value
    return labels


PLANNED = (
    command(
        "expire",
        DuckLake.expire_snapshots,
        "Expire old snapshots, and schedule the files that only they read for deletion. No file is deleted yet.",
        "ducklake expire --older-than '30 days' --keep-last 10",
    ),
    command(
        "cleanup",
        DuckLake.cleanup_old_files,
        "Delete files that were scheduled for deletion long enough ago.",
        "ducklake cleanup --older-than '7 days'",
        max_files=MAX_DELETIONS,
    ),
    command(
        "orphans",
        DuckLake.delete_orphaned_files,
        "Delete orphaned files: files below the data path that the catalog does not name.",
        "ducklake orphans --older-than '7 days' --dry-run",
        max_files=MAX_DELETIONS,
    ),
    command(
        "merge",
        DuckLake.merge_adjacent_files,
        "Merge small files into larger ones. If a table fails, the others are merged and the exit code is 1.",
        "ducklake merge 'sales.*'",
    ),
    command(
        "rewrite",
        DuckLake.rewrite_data_files,
        "Rewrite data files that have many deleted rows. If a table fails, the others are rewritten and the exit code is 1.",
        "ducklake rewrite sales.orders --delete-threshold 0.2",
    ),
    command(
        "flush",
        DuckLake.flush_inlined_data,
        "Move inlined rows and deletes from the catalog to files. If a table fails, the others are flushed and the exit code is 1.",
        "ducklake flush --schema sales",
    ),
    command(
        "checkpoint",
        DuckLake.checkpoint,
        "Flush, expire, merge, rewrite, clean up and delete orphans. If a part fails, the rest runs and the exit code is 1.",
        "ducklake checkpoint --keep-last 10",
    ),
    migrate,
)


def planned(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command without its option ``--dry-run``, which is always on."""

    def plan(**options: Any) -> None:
        run(**options, dry_run=True)

    summary = f"Dry run: {run.__doc__}".replace("Example: ducklake", "Example: ducklake plan").replace(" --dry-run", "")
    parameters = [one for one in inspect.signature(run, eval_str=True).parameters.values() if one.name != "dry_run"]
    return _as_command(plan, run.__name__, summary, parameters)


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
    print_lines(as_commands(_failure(one)) for one in first_failed)
    print_lines([f"... {counted(len(more), 'more failure')}"] if more else [])
    print_lines(as_commands(_failure(one)) for one in last_failed)
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
