"""Commands that maintain, check and plan; each wraps one operation of the library."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import typer

from ducklake_core.cli.output import print_json, print_report, progress_bar, read_or_not, write
from ducklake_core.cli.session import (
    FOUND,
    Author,
    CleanupAll,
    DryRun,
    ExtraInfo,
    Json,
    MaxCompactedFiles,
    MaxFiles,
    MaxInputBytes,
    MaxSeconds,
    Message,
    MinAge,
    OlderThan,
    Schema,
    Tables,
    column_names,
    exit_with,
    opened,
    snapshot_at,
    time_with_zone,
)
from ducklake_core.errors import UsageError
from ducklake_core.format.types.text import parse_age
from ducklake_core.lake import DuckLake
from ducklake_core.maintenance.check.findings import CheckLevel
from ducklake_core.maintenance.request import MaintenanceResult, ProgressCallback

_HOUR = "1 hour"
MaxConcurrency = Annotated[int | None, typer.Option("--max-concurrency", help="Most groups of files at a time, on threads.")]
ClusterBy = Annotated[str | None, typer.Option("--cluster-by", help="Columns, separated by commas, to cluster the new files by.")]
KeepLast = Annotated[int | None, typer.Option("--keep-last", min=1, help="Number of newest snapshots that stay whatever their age.")]
MaxDeletions = Annotated[int | None, typer.Option("--max-files", help="Most files to delete.")]
PartialProgress = Annotated[bool, typer.Option("--partial-progress", help="Commit each group of files as soon as it is done.")]


def age(text: str | None) -> str | datetime | None:
    """An age as the verbs take it, or a time with a zone.

    >>> age("7 days"), age("2026-01-01T00:00:00+00:00").year
    ('7 days', 2026)

    Raises:
        UsageError: Neither, or a number alone, which may be meant as days or as a date.
    """
    if text is None:
        return None
    if text.strip().replace(".", "", 1).isdecimal():
        raise UsageError(f"{text.strip()} has no unit: write an age as '7 days', and a time as '2026-01-31 12:00:00+00:00'")
    try:
        parse_age(text)
    except UsageError:
        return time_with_zone(text, "an age ('7 days')")
    return text


def carry_out(
    context: typer.Context, verb: Callable[[DuckLake, ProgressCallback | None], MaintenanceResult], *, dry_run: bool, as_json: bool
) -> None:
    """Call a verb of the lake that the command is about, and print what came of it. The exit code is 1 when a step failed."""
    with opened(context, read_only=dry_run) as lake:
        with progress_bar(as_json=as_json) as progress:
            result = verb(lake, progress)
        with read_or_not():
            print_report(result, as_json=as_json)
        exit_with(FOUND, not result.failed_steps)


def expire(
    context: typer.Context,
    *,
    older_than: OlderThan = None,
    versions: Annotated[str | None, typer.Option("--versions", help="Ids of snapshots instead, separated by commas.")] = None,
    keep_last: KeepLast = None,
    min_age: MinAge = _HOUR,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Forget old snapshots, and schedule the files that only they read for deletion. No file is deleted yet."""
    wanted = None if versions is None else [_number(one) for one in versions.split(",")]
    carry_out(
        context,
        lambda lake, progress: lake.expire_snapshots(
            older_than=age(older_than), versions=wanted, keep_last=keep_last, min_age=min_age, progress=progress, dry_run=dry_run
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


def cleanup(
    context: typer.Context,
    *,
    older_than: OlderThan = None,
    cleanup_all: CleanupAll = False,
    min_age: MinAge = _HOUR,
    max_files: MaxDeletions = None,
    max_seconds: MaxSeconds = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete files that were scheduled for deletion long enough ago."""
    carry_out(
        context,
        lambda lake, progress: lake.cleanup_old_files(
            older_than=age(older_than),
            cleanup_all=cleanup_all,
            min_age=min_age,
            max_files=max_files,
            max_seconds=max_seconds,
            progress=progress,
            dry_run=dry_run,
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


def orphans(
    context: typer.Context,
    *,
    older_than: OlderThan = None,
    cleanup_all: CleanupAll = False,
    min_age: MinAge = _HOUR,
    every_parquet: Annotated[bool, typer.Option("--every-parquet", help="Also files that no DuckLake writer named.")] = False,
    max_files: MaxDeletions = None,
    max_seconds: MaxSeconds = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete files below the data path that the catalog does not name: what killed writers left behind."""
    carry_out(
        context,
        lambda lake, progress: lake.delete_orphaned_files(
            older_than=age(older_than),
            cleanup_all=cleanup_all,
            min_age=min_age,
            every_parquet=every_parquet,
            max_files=max_files,
            max_seconds=max_seconds,
            progress=progress,
            dry_run=dry_run,
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


def merge(  # noqa: PLR0913 - an option each
    context: typer.Context,
    *,
    tables: Tables = None,
    schema: Schema = None,
    max_compacted_files: MaxCompactedFiles = None,
    min_file_size: Annotated[int | None, typer.Option("--min-file-size", help="Bytes; smaller files are left alone.")] = None,
    max_file_size: Annotated[
        int | None, typer.Option("--max-file-size", help="Bytes; files of this size or larger are left alone.")
    ] = None,
    cluster_by: ClusterBy = None,
    max_input_bytes: MaxInputBytes = None,
    max_files: MaxFiles = None,
    max_seconds: MaxSeconds = None,
    max_concurrency: MaxConcurrency = None,
    partial_progress: PartialProgress = False,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Merge small files into larger ones. A table that fails does not stop the others, and makes the exit code 1."""
    carry_out(
        context,
        lambda lake, progress: lake.merge_adjacent_files(
            **_scope(tables, schema),
            max_compacted_files=max_compacted_files,
            min_file_size=min_file_size,
            max_file_size=max_file_size,
            cluster_by=column_names(cluster_by) if cluster_by is not None else (),
            max_input_bytes=max_input_bytes,
            max_files=max_files,
            max_seconds=max_seconds,
            max_concurrency=max_concurrency,
            partial_progress=partial_progress,
            progress=progress,
            dry_run=dry_run,
            author=author,
            message=message,
            extra_info=extra_info,
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


def flush(
    context: typer.Context,
    *,
    tables: Tables = None,
    schema: Schema = None,
    max_rows: Annotated[int | None, typer.Option("--max-rows", help="Rows after which no further table is begun.")] = None,
    max_seconds: MaxSeconds = None,
    max_concurrency: MaxConcurrency = None,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Move rows and deletes that the catalog itself holds to files. A table that fails does not stop the others: exit code 1."""
    carry_out(
        context,
        lambda lake, progress: lake.flush_inlined_data(
            **_scope(tables, schema),
            max_rows=max_rows,
            max_seconds=max_seconds,
            max_concurrency=max_concurrency,
            progress=progress,
            dry_run=dry_run,
            author=author,
            message=message,
            extra_info=extra_info,
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


def rewrite(  # noqa: PLR0913 - an option each
    context: typer.Context,
    *,
    tables: Tables = None,
    schema: Schema = None,
    delete_threshold: Annotated[
        float | None, typer.Option("--delete-threshold", help="Part of a file's rows, 0 to 1, that must be deleted.")
    ] = None,
    cluster_by: ClusterBy = None,
    max_compacted_files: MaxCompactedFiles = None,
    max_input_bytes: MaxInputBytes = None,
    max_files: MaxFiles = None,
    max_seconds: MaxSeconds = None,
    max_concurrency: MaxConcurrency = None,
    partial_progress: PartialProgress = False,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write files anew of which many rows are deleted. A table that fails does not stop the others: exit code 1."""
    carry_out(
        context,
        lambda lake, progress: lake.rewrite_data_files(
            **_scope(tables, schema),
            delete_threshold=delete_threshold,
            cluster_by=column_names(cluster_by) if cluster_by is not None else (),
            max_compacted_files=max_compacted_files,
            max_input_bytes=max_input_bytes,
            max_files=max_files,
            max_seconds=max_seconds,
            max_concurrency=max_concurrency,
            partial_progress=partial_progress,
            progress=progress,
            dry_run=dry_run,
            author=author,
            message=message,
            extra_info=extra_info,
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


def checkpoint(  # noqa: PLR0913 - an option each
    context: typer.Context,
    *,
    tables: Tables = None,
    max_input_bytes: MaxInputBytes = None,
    max_files: MaxFiles = None,
    max_seconds: MaxSeconds = None,
    keep_last: KeepLast = None,
    min_age: MinAge = _HOUR,
    max_concurrency: MaxConcurrency = None,
    partial_progress: PartialProgress = False,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Run the recommended round: flush, expire, merge, rewrite, cleanup, orphans. What fails does not stop the rest: exit code 1."""
    carry_out(
        context,
        lambda lake, progress: lake.checkpoint(
            tables=tables or None,
            max_input_bytes=max_input_bytes,
            max_files=max_files,
            max_seconds=max_seconds,
            keep_last=keep_last,
            min_age=min_age,
            max_concurrency=max_concurrency,
            partial_progress=partial_progress,
            progress=progress,
            dry_run=dry_run,
            author=author,
            message=message,
            extra_info=extra_info,
        ),
        dry_run=dry_run,
        as_json=as_json,
    )


def migrate(
    context: typer.Context,
    *,
    to: Annotated[Literal["1.0", "1.1"] | None, typer.Option("--to", help="Version; 1.0 for earlier ones.")] = None,
    allow_history_loss: Annotated[
        bool, typer.Option("--allow-history-loss", help="Also when files do not say which row is of which snapshot.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Bring the catalog to a later version. Back it up first: there is no way back."""
    with opened(context, read_only=dry_run) as lake:
        print_report(lake.migrate(to, allow_history_loss=allow_history_loss, dry_run=dry_run), as_json=as_json)


def restore(
    context: typer.Context,
    *,
    at: Annotated[str, typer.Option("--at", help="Snapshot: its id, or a time with a zone.")],
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="table or schema.table; the whole lake without it")] = None,
    columns: Annotated[str | None, typer.Option("--columns", help="then or now: whose columns a table has, where they changed.")] = None,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    as_json: Json = False,
) -> None:
    """Make a table, or the whole lake, what it was at a snapshot, as a new snapshot."""
    with opened(context, read_only=False) as lake:
        moment = snapshot_at(at)
        if table is not None:
            result: Any = lake.table(table).restore(
                moment, columns=cast("Any", columns), author=author, message=message, extra_info=extra_info
            )
        elif columns is not None:
            raise UsageError("--columns is for one table; the whole lake gets the columns that it had")
        else:
            result = lake.restore(moment, author=author, message=message, extra_info=extra_info)
        if as_json:
            print_json(result)
        else:
            write("nothing to change\n" if result is None else f"{result}\n")


def _scope(tables: list[str] | None, schema: str | None) -> dict[str, Any]:
    if tables and schema is not None:
        raise UsageError("give either TABLE or --schema; 'sales.t' is a table of a schema, 'sales.*' all of them")
    return {"schema": schema, "tables": tables or None}


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--versions must be ids of snapshots, not {text!r}") from None


def check(
    context: typer.Context,
    *,
    level: Annotated[str, typer.Option("--level", help="catalog, footers (opens every file) or rows (reads every row).")] = "catalog",
    repair: Annotated[bool, typer.Option("--repair", help="Mend what is safe to mend.")] = False,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    as_json: Json = False,
) -> None:
    """Look for everything that is not as it must be. The exit code is 1 when there is an error or a warning that is not mended."""
    with opened(context, read_only=not repair) as lake:
        with progress_bar(as_json=as_json) as progress:
            result = lake.check(
                level=cast("CheckLevel", level), repair=repair, author=author, message=message, extra_info=extra_info, progress=progress
            )
        with read_or_not():
            if as_json:
                findings = [_values(one, *one.__dataclass_fields__, "severity", "mend") for one in result.findings]
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
    """Count small files, deleted and inlined rows, snapshots, scheduled files and faults. The exit code is 1 when there are faults."""
    labels = _labels(label or ())
    if openmetrics and as_json:
        raise UsageError("give either --openmetrics or --json")
    if labels and not openmetrics:
        raise UsageError("--label is for the samples of --openmetrics")
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


def _labels(texts: Iterable[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--label {text} must be name=value")
        if name in labels:
            raise UsageError(f"--label {name} is given twice")
        labels[name] = value
    return labels


PLANNED = (
    expire,
    cleanup,
    orphans,
    merge,
    rewrite,
    flush,
    checkpoint,
    migrate,
)


def planned(command: Callable[..., None]) -> Callable[..., None]:
    """A command without its option ``--dry-run``, which is always on."""

    def plan(**options: Any) -> None:
        command(**options, dry_run=True)

    signature = inspect.signature(command, eval_str=True)
    parameters = [one for one in signature.parameters.values() if one.name != "dry_run"]
    plan.__name__ = command.__name__
    plan.__doc__ = f"What this would do: {command.__doc__}"
    plan.__annotations__ = {one.name: one.annotation for one in parameters}
    plan.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return plan
