"""Commands that say how a lake is: what is wrong with it, and what it weighs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, cast

import typer

from ducklake_core.cli.options import Author, ExtraInfo, Json, Message
from ducklake_core.cli.output import print_json, print_report, read_or_not, write
from ducklake_core.cli.progress import progress_bar
from ducklake_core.cli.session import FOUND, exit_with, opened
from ducklake_core.errors import UsageError
from ducklake_core.maintenance.check.findings import CheckLevel


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
