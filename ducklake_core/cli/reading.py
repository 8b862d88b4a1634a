"""Commands that list and print the contents of a lake."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer

from ducklake_core.catalog.reading.definitions import named_changes
from ducklake_core.cli.output import (
    Count,
    Format,
    JsonLines,
    Limit,
    Parts,
    Size,
    is_terminal,
    most_rows,
    plain,
    print_json,
    print_lines,
    print_rows,
    print_table,
    row_format,
    write,
)
from ducklake_core.cli.session import At, Author, Columns, ExtraInfo, Json, Message, TableName, Where, column_names, opened, snapshot_at
from ducklake_core.engines.arrow.readable import first_rows
from ducklake_core.errors import UsageError
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.sql.query import Query


def snapshots(
    context: typer.Context,
    *,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Number of newest snapshots to list; all by default.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Only snapshots that changed a table.")] = None,
    as_json: Json = False,
) -> None:
    """List snapshots with their time, author and changes.

    Example: ducklake snapshots --last 10 --table sales.orders
    """
    with opened(context) as lake:
        found = lake.snapshots(last=last) if table is None else lake.table(table).snapshots()
        found = found[-last:] if last is not None else found
        if as_json:
            print_json(found)
        else:
            with lake.reader() as reader:
                changes_of = named_changes(reader, found)
            rows = [(one.id, one.time, Parts(changes), one.author, one.message) for one, changes in zip(found, changes_of, strict=True)]
            print_table(("snapshot", "time (UTC)", "changes", "author", "message"), rows)


def tables(
    context: typer.Context,
    *,
    schema: Annotated[str | None, typer.Option("--schema", help="Only tables of a schema.")] = None,
    at: At = None,
    as_json: Json = False,
) -> None:
    """List tables with their rows, files and bytes.

    Example: ducklake tables --schema sales
    """
    with opened(context) as lake:
        found = lake.tables(schema, at=snapshot_at(at))
        if as_json:
            print_json(found)
        else:
            rows = [
                (
                    one.table,
                    Count(one.row_count),
                    Count(one.file_count),
                    Size(one.file_size_bytes),
                    Count(one.deleted_row_count),
                    Count(one.inlined_row_count),
                )
                for one in found
            ]
            print_table(("table", "rows", "files", "size", "deleted rows", "inlined rows"), rows)


def files(context: typer.Context, *, table: TableName, at: At = None, as_json: Json = False) -> None:
    """List the data files of a table.

    Example: ducklake files sales.orders
    """
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
            Count(one.record_count),
            Size(one.file_size_bytes),
            Count(sum(deletes.delete_count for deletes in one.delete_files) + len(one.inlined_deletes)),
            one.begin_snapshot,
            ", ".join("NULL" if value is None else value for _, value in sorted(one.partition_values)),
            one.path.removeprefix(shared),
        )
        for one in files
    ]
    if print_table(("file", "rows", "size", "deleted rows", "since snapshot", "partition", "path"), rows, shorten_last=True):
        typer.echo("paths are shortened: use a wider terminal, a pipe or --json", err=True)


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
    """Show version, data path and options of a lake; or columns, keys and sizes of a table.

    Example: ducklake info sales.orders
    """
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
                "sorted_by": [f"{key.expression} {key.direction} {key.null_order.replace('_', ' ')}" for key in one.sort_keys],
            }
        if as_json:
            print_json(summary)
            return
        listings = {name: value for name, value in summary.items() if name in ("columns", "options") and value}
        others = {name: value for name, value in summary.items() if name not in ("columns", "options")}
        facts = [(name.removesuffix("_bytes").replace("_", " "), _fact(name, value)) for name, value in others.items()]
        width = max(len(name) for name, _ in facts)
        print_lines(f"{name:<{width}}  {value}" for name, value in facts if value)
        for name, found in listings.items():
            write("\n")
            print_table(tuple(found[0]), [tuple(_mark(value) for value in item.values()) for item in found], title=name)


def _fact(name: str, value: Any) -> str:
    """Return a value of the summary in words; empty when there is nothing to report."""
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool) or value is None:
        return str(_mark(value))
    if name.endswith("_bytes"):
        return str(Size(value))
    return str(Count(value)) if name.endswith("_count") else str(value)


def _mark(value: Any) -> Any:
    return {True: "yes", False: "no", None: ""}[value] if isinstance(value, bool | None) else value


def query(
    context: typer.Context,
    *,
    table: TableName,
    where: Where = None,
    columns: Columns = None,
    at: At = None,
    limit: Limit = None,
    form: Format = None,
    as_json: JsonLines = False,
) -> None:
    """Print rows of a table.

    Example: ducklake query sales.orders --where "country = 'DE'" --columns id,amount
    """
    with opened(context) as lake:
        chosen = row_format(form, as_json=as_json)
        most = most_rows(limit, chosen)
        scan = lake.table(table, at=snapshot_at(at)).scan(columns=None if columns is None else column_names(columns), where=where)
        reader = (scan if most is None else scan.limit(most)).to_reader()
        print_rows(reader.schema, reader, chosen, limit)


def sql(
    context: typer.Context,
    *,
    text: Annotated[
        str | None, typer.Argument(metavar="[SQL]", help="One statement in DuckDB's dialect; read from the input when missing or -.")
    ] = None,
    file: Annotated[str | None, typer.Option("--file", help="File with the statement, in place of SQL.")] = None,
    files: Annotated[bool, typer.Option("--files", help="Let the SQL read and write files of this machine (files=True).")] = False,
    at: At = None,
    author: Author = None,
    message: Message = None,
    extra_info: ExtraInfo = None,
    limit: Limit = None,
    form: Format = None,
    as_json: JsonLines = False,
) -> None:
    """Run a query and print its rows, or a statement and print what it did. Most queries need DuckDB.

    Example: ducklake sql "SELECT country, count(*) FROM orders GROUP BY ALL" --format csv
    """
    chosen = row_format(form, as_json=as_json)
    statement = _statement(text, file)
    with opened(context, read_only=False) as lake:
        commit = {"author": author, "message": message, "extra_info": extra_info}
        # A query makes no snapshot, and rejects options of one.
        given: Any = {name: value for name, value in commit.items() if value is not None}
        found = lake.sql(statement, at=snapshot_at(at), files=files, **given)
        if not isinstance(found, Query):
            print_json(found) if as_json else write(f"{found}\n")
            return
        most = most_rows(limit, chosen)
        reader = found.to_reader()
        print_rows(reader.schema, iter(reader) if most is None else first_rows(iter(reader), most), chosen, limit)


def _statement(text: str | None, file: str | None) -> str:
    """Return the SQL of an argument, a file or the input.

    Raises:
        UsageError: There is none or more than one of them, or the file cannot be read.
    """
    if text is not None and file is not None:
        raise UsageError("pass the statement as SQL or with --file, not both")
    if file is not None:
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read the statement from {file}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from error
    if text in (None, "-"):
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("the statement is missing. Pass it as an argument, with --file, or on standard input")
        return sys.stdin.read()
    return str(text)


def changes(
    context: typer.Context,
    *,
    table: TableName,
    since: Annotated[str, typer.Option("--from", help="First snapshot: its id, a time with a zone, or a hold.")],
    until: Annotated[str | None, typer.Option("--to", help="Last snapshot, included. The newest by default.")] = None,
    where: Where = None,
    columns: Columns = None,
    limit: Limit = None,
    form: Format = None,
    as_json: JsonLines = False,
) -> None:
    """Print rows that were inserted, updated and deleted between two snapshots, both included.

    Example: ducklake changes sales.orders --from 7 --to 9
    """
    with opened(context) as lake:
        first = snapshot_at(since)
        assert first is not None
        chosen = row_format(form, as_json=as_json)
        most = most_rows(limit, chosen)
        feed = lake.table(table).changes(first, snapshot_at(until), where=where, columns=None if columns is None else column_names(columns))
        reader = (feed if most is None else feed.limit(most)).to_reader()
        print_rows(reader.schema, reader, chosen, limit)
