"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
At: TypeAlias = Annotated[str | None, typer.Option("--at", help="Snapshot: its id, or a time with a zone. The newest by default.")]
Where: TypeAlias = Annotated[str | None, typer.Option("--where", help="Condition in SQL (DuckDB's dialect).")]
Columns: TypeAlias = Annotated[str | None, typer.Option("--columns", help="Names of columns, separated by commas. All by default.")]
TableName: TypeAlias = Annotated[str, typer.Argument(metavar="TABLE", help="table or schema.table")]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Change nothing; print what would be done.")]
OlderThan: TypeAlias = Annotated[str | None, typer.Option("--older-than", help="An age ('7 days'), or a time with a zone.")]
MinAge: TypeAlias = Annotated[str, typer.Option("--min-age", help="Floor of all ages; lower it only when nothing runs.")]
Tables: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TABLE]...", help="table or schema.table, with * and ? for any letters and one; all tables without any"),
]
Schema: TypeAlias = Annotated[str | None, typer.Option("--schema", help="Only tables of a schema.")]
CleanupAll: TypeAlias = Annotated[bool, typer.Option("--cleanup-all", help="Whatever their age; needs --min-age '0 seconds'.")]
MaxInputBytes: TypeAlias = Annotated[int | None, typer.Option("--max-input-bytes", help="Most bytes of files to read.")]
MaxFiles: TypeAlias = Annotated[int | None, typer.Option("--max-files", help="Most files to read.")]
MaxSeconds: TypeAlias = Annotated[float | None, typer.Option("--max-seconds", help="Seconds after which nothing further is begun.")]
MaxCompactedFiles: TypeAlias = Annotated[int | None, typer.Option("--max-compacted-files", help="Most files to make for each table.")]
Author: TypeAlias = Annotated[str | None, typer.Option("--author", help="Who, for the snapshots.")]
Message: TypeAlias = Annotated[str | None, typer.Option("--message", help="Why, for the snapshots; what was done by default.")]
ExtraInfo: TypeAlias = Annotated[str | None, typer.Option("--extra-info", help="Further text or JSON for the snapshots.")]
