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
MinAge: TypeAlias = Annotated[str, typer.Option("--min-age", help="Floor under --older-than; lower it only when nothing runs.")]
TableOrAll: TypeAlias = Annotated[str | None, typer.Argument(metavar="[TABLE]", help="table or schema.table; all tables without it")]
Schema: TypeAlias = Annotated[str | None, typer.Option("--schema", help="Only tables of a schema.")]
