"""Commands that look into a lake."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, Any

import typer

from ducklake_core.cli.output import Parts, Size, is_terminal, plain, print_json, print_lines, print_rows, print_table, write
from ducklake_core.cli.session import At, Author, Columns, ExtraInfo, Json, Message, TableName, Where, column_names, opened, snapshot_at
from ducklake_core.engines.arrow.readable import first_rows
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.sql.query import Query

_ROWS_FOR_PEOPLE = 100
_CHANGE = re.compile(r'(?:[^,"]|"[^"]*"?)+')
"""One change of a snapshot; names in it may have commas, and quotes, which are doubled."""


def snapshots(
    context: typer.Context,
    *,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only so many of the newest.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only those that touch a table.")] = None,
    as_json: Json = False,
) -> None:
    """List snapshots: when, by whom, and what changed."""
    with opened(context) as lake:
        found = lake.snapshots() if table is None else lake.table(table).snapshots()
        found = found[-last:] if last is not None else found
        if as_json:
            print_json(found)
        else:
            rows = [(one.id, one.time, Parts(_CHANGE.findall(one.changes)), one.author, one.message) for one in found]
            print_table(("snapshot", "time (UTC)", "changes", "author", "message"), rows)


def tables(
    context: typer.Context,
    *,
    schema: Annotated[str | None, typer.Option("--schema", help="Only those of a schema.")] = None,
    at: At = None,
    as_json: Json = False,
) -> None:
    """List tables with their rows, files and bytes."""
    with opened(context) as lake:
        found = lake.tables(schema, at=snapshot_at(at))
        if as_json:
            print_json(found)
        else:
            rows = [
                (one.table, one.row_count, one.file_count, Size(one.file_size_bytes), one.deleted_row_count, one.inlined_row_count)
                for one in found
            ]
            print_table(("table", "rows", "files", "size", "deleted rows", "inlined rows"), rows)


def files(context: typer.Context, *, table: TableName, at: At = None, as_json: Json = False) -> None:
    """List the data files of a table."""
    with opened(context) as lake:
        found = lake.table(table, at=snapshot_at(at)).list_files()
        if as_json:
            print_json([{**plain(one), "path": one.path} for one in found])
        else:
            _print_files(found)


def _print_files(files: Sequence[DataFile]) -> None:
    """Print a line for each file. On a terminal, print the directory that they share once, first."""
    shared = _shared_directory([one.path for one in files]) if is_terminal() else ""
    if shared:
        print_lines([f"files below {shared}"])
    rows = [
        (
            one.id,
            one.record_count,
            Size(one.file_size_bytes),
            sum(deletes.delete_count for deletes in one.delete_files) + len(one.inlined_deletes),
            one.begin_snapshot,
            ", ".join("NULL" if value is None else value for _, value in sorted(one.partition_values)),
            one.path.removeprefix(shared),
        )
        for one in files
    ]
    if print_table(("file", "rows", "size", "deleted rows", "since snapshot", "partition", "path"), rows, shorten_last=True):
        typer.echo("paths are shortened; a wider terminal, a pipe and --json have all of them", err=True)


def _shared_directory(paths: Sequence[str]) -> str:
    """Return the directory that paths have in common; empty when they have none.

    >>> _shared_directory(["s3://b/t/day=1/a", "s3://b/t/day=2/b"]), _shared_directory(["s3://b/a", "/a"]), _shared_directory(["/t/a"])
    ('s3://b/t/', '', '/t/')
    """
    directories = [path.split("/")[:-1] for path in paths]
    same = takewhile(lambda names: names[0] == names[1], zip(min(directories), max(directories), strict=False)) if directories else ()
    return "".join(f"{name}/" for name, _ in same)


def info(
    context: typer.Context,
    *,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="table or schema.table; the lake without it")] = None,
    at: At = None,
    as_json: Json = False,
) -> None:
    """Show what a lake, or one of its tables, is: version, data path, options; or columns, keys and sizes."""
    with opened(context) as lake:
        if table is None:
            settings = lake.settings()
            summary = {
                **plain(settings),
                "snapshot": lake.snapshot(snapshot_at(at)).id,
                "options": [
                    {"name": one.name, "value": one.value, "scope": one.scope, "entry": one.entry} for one in lake.scoped_options()
                ],
            }
        else:
            moment = snapshot_at(at)
            one = lake.table(table, at=moment)
            summary = {
                **plain(lake.table_info(table, at=moment)),
                "columns": [
                    {"name": column.name, "type": str(column.type), "nullable": column.nullable, "id": column.id} for column in one.schema
                ],
                "partition_by": [key.expression for key in one.partition_spec.fields] if one.partition_spec else [],
                "sorted_by": [key.expression for key in one.sort_keys],
            }
        if as_json:
            print_json(summary)
            return
        for name, value in summary.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                print_table(tuple(value[0]), [tuple(item.values()) for item in value], title=name)
            else:
                print_lines([f"{name.replace('_', ' ')}: {', '.join(value) if isinstance(value, list) else value}"])


def query(
    context: typer.Context,
    *,
    table: TableName,
    where: Where = None,
    columns: Columns = None,
    at: At = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Most rows; 100 by default, with --json all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print rows of a table."""
    with opened(context) as lake:
        most = limit if limit is not None or as_json else _ROWS_FOR_PEOPLE
        scan = lake.table(table, at=snapshot_at(at)).scan(columns=None if columns is None else column_names(columns), where=where)
        reader = (scan if most is None else scan.limit(most)).to_reader()
        _say_if_more(print_rows(reader, reader.schema.names, as_json=as_json), limit, as_json=as_json)


def sql(
    context: typer.Context,
    *,
    text: Annotated[str, typer.Argument(metavar="SQL", help="One statement in DuckDB's dialect.")],
    at: At = None,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Most rows; 100 by default, with --json all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Run a query and print its rows, or a statement and print what it did. Most queries need DuckDB."""
    with opened(context, read_only=False) as lake:
        commit = {"author": author, "message": message, "extra_info": extra_info}
        # A query makes no snapshot, and rejects options of one.
        given: Any = {name: value for name, value in commit.items() if value is not None}
        found = lake.sql(text, at=snapshot_at(at), **given)
        if not isinstance(found, Query):
            print_json(found) if as_json else write(f"{found}\n")
            return
        most = limit if limit is not None or as_json else _ROWS_FOR_PEOPLE
        reader = found.to_reader()
        batches = iter(reader) if most is None else first_rows(iter(reader), most)
        _say_if_more(print_rows(batches, reader.schema.names, as_json=as_json), limit, as_json=as_json)


def changes(
    context: typer.Context,
    *,
    table: TableName,
    since: Annotated[str, typer.Option("--from", help="First snapshot: its id, or a time with a zone.")],
    until: Annotated[str | None, typer.Option("--to", help="Last snapshot, included. The newest by default.")] = None,
    where: Where = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="Most rows; 100 by default, with --json all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print the rows that came, went and changed between two snapshots, both included."""
    with opened(context) as lake:
        first = snapshot_at(since)
        assert first is not None
        most = limit if limit is not None or as_json else _ROWS_FOR_PEOPLE
        feed = lake.table(table).changes(first, snapshot_at(until), where=where)
        reader = (feed if most is None else feed.limit(most)).to_reader()
        _say_if_more(print_rows(reader, reader.schema.names, as_json=as_json), limit, as_json=as_json)


def _say_if_more(count: int, limit: int | None, *, as_json: bool) -> None:
    if not as_json and limit is None and count == _ROWS_FOR_PEOPLE:
        typer.echo(f"the first {count} rows; --limit gives more", err=True)
