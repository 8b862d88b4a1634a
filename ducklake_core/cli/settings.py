"""Commands that manage the options of a lake and the holds on its snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from ducklake_core.cli.output import print_json, print_lines, print_table
from ducklake_core.cli.session import CommandGroup, Json, opened, snapshot_at, time_with_zone

_Table = Annotated[str | None, typer.Option("--table", help="Table that the option is for; the lake by default.")]
_Schema = Annotated[str | None, typer.Option("--schema", help="Schema that the option is for; the lake by default.")]

option = typer.Typer(
    name="option", cls=CommandGroup, help="List, set and unset options of the lake, a schema or a table.", rich_markup_mode=None
)
hold = typer.Typer(
    name="hold", cls=CommandGroup, help="List, add and remove holds, which keep snapshots from expiring.", rich_markup_mode=None
)


@option.command("list")
def list_options(context: typer.Context, *, as_json: Json = False) -> None:
    """List the options that are set, with the lake, schema or table that each is for.

    Example: ducklake option list
    """
    with opened(context) as lake:
        found = lake.scoped_options()
        if as_json:
            print_json(found)
        else:
            print_table(("option", "value", "scope", "of"), [(one.name, one.value, one.scope, one.entry) for one in found])


@option.command("set")
def set_option(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the option.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value.")],
    table: _Table = None,
    schema: _Schema = None,
    as_json: Json = False,
) -> None:
    """Set an option. Makes no snapshot.

    Example: ducklake option set expire_older_than '30 days'
    """
    with opened(context, read_only=False) as lake:
        lake.set_option(name, value, table=table, schema=schema)
        if as_json:
            print_json({"name": name, "value": value, "table": table, "schema": schema})
        else:
            print_lines([f"set {name} = {value} for {_scope(table, schema)}"])


@option.command("unset")
def unset_option(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the option.")],
    table: _Table = None,
    schema: _Schema = None,
    as_json: Json = False,
) -> None:
    """Unset an option, so that the option of the wider scope or the default is effective again. Makes no snapshot.

    Example: ducklake option unset expire_older_than
    """
    with opened(context, read_only=False) as lake:
        was_set = lake.unset_option(name, table=table, schema=schema)
        if as_json:
            print_json({"name": name, "was_set": was_set, "table": table, "schema": schema})
        else:
            print_lines([f"unset {name} for {_scope(table, schema)}" if was_set else f"{name} was not set for {_scope(table, schema)}"])


def _scope(table: str | None, schema: str | None) -> str:
    return "the lake" if table is None and schema is None else f"table {table}" if schema is None else f"schema {schema}"


@hold.command("list")
def list_holds(context: typer.Context, *, as_json: Json = False) -> None:
    """List holds by name, including those that have ended.

    Example: ducklake hold list
    """
    with opened(context) as lake:
        found = lake.holds.list()
        if as_json:
            print_json(found)
        else:
            rows = [(one.name, one.snapshot_id, one.until, "ended" if one.has_ended else "") for one in found]
            print_table(("hold", "snapshot", "until (UTC)", "state"), rows)


@hold.command("add")
def add_hold(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the hold.")],
    at: Annotated[str | None, typer.Option("--at", help="Snapshot: its id, or a time with a zone. The newest by default.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Time with a zone at which the hold ends; never by default.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Move a hold of that name to this snapshot.")] = False,
    as_json: Json = False,
) -> None:
    """Keep a snapshot from expiring. DuckDB's ducklake_expire_snapshots ignores holds.

    Example: ducklake hold add audit-2026 --at 42
    """
    with opened(context, read_only=False) as lake:
        end = None if until is None else time_with_zone(until, "a time")
        made = lake.holds.add(name, snapshot_at(at), until=end, replace=replace)
        if as_json:
            print_json(made)
        else:
            print_lines([f"{made.name} holds snapshot {made.snapshot_id}" + (f" until {made.until}" if made.until else "")])


@hold.command("remove")
def remove_hold(
    context: typer.Context, *, name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the hold.")], as_json: Json = False
) -> None:
    """Remove a hold; its snapshot may expire from then on.

    Example: ducklake hold remove audit-2026
    """
    with opened(context, read_only=False) as lake:
        lake.holds.remove(name)
        if as_json:
            print_json({"name": name})
        else:
            print_lines([f"removed the hold {name}"])
