"""The command ``ducklake`` with its subcommands.

To add a command, add a function to one of the lists below, or to ``PLANNED`` if it has a dry run.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ducklake_core import __version__
from ducklake_core.cli import data, doctor, maintaining, reading
from ducklake_core.cli.output import write
from ducklake_core.cli.session import CommandGroup, LakeOptions

app = typer.Typer(
    name="ducklake",
    cls=CommandGroup,
    help="Create, read, write, check and maintain DuckLake lakes.",
    # Local variables hold addresses with passwords.
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
)

_READING = (reading.snapshots, reading.tables, reading.files, reading.info, reading.changes, reading.query, reading.sql)
_DATA = (data.create, data.load, data.export)
_MAINTAINING = (
    *maintaining.PLANNED,
    maintaining.restore,
    maintaining.undrop,
    maintaining.purge,
    maintaining.copy,
    maintaining.move,
    maintaining.check,
    maintaining.health,
)

for _command in (*_READING, *_DATA, *_MAINTAINING, doctor.doctor):
    app.command(_command.__name__)(_command)
app.add_typer(data.option)
app.add_typer(data.hold)

plans = typer.Typer(
    name="plan", cls=CommandGroup, help="Print what a maintenance command would do, without changing anything.", rich_markup_mode=None
)
for _command in maintaining.PLANNED:
    plans.command(_command.__name__)(maintaining.planned(_command))
app.add_typer(plans)


def _version(value: bool) -> None:
    if value:
        write(f"ducklake {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    lake: Annotated[
        str | None,
        typer.Option("--lake", envvar="DUCKLAKE_URL", show_envvar=True, help="Address of the catalog, or a name of ducklake.toml."),
    ] = None,
    data_path: Annotated[
        str | None,
        typer.Option("--data-path", envvar="DUCKLAKE_DATA_PATH", show_envvar=True, help="Data path to use in place of the stored one."),
    ] = None,
    metadata_schema: Annotated[
        str | None,
        typer.Option("--metadata-schema", envvar="DUCKLAKE_METADATA_SCHEMA", show_envvar=True, help="Schema of the catalog's tables."),
    ] = None,
    allowed_path: Annotated[
        list[str] | None, typer.Option("--allowed-path", help="A further path prefix that the catalog may name; repeatable.")
    ] = None,
    storage_options: Annotated[
        str | None,
        typer.Option(
            "--storage-options",
            envvar="DUCKLAKE_STORAGE_OPTIONS",
            hidden=True,
            help="fsspec options by protocol, as JSON. Use the variable.",
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,  # noqa: ARG001
) -> None:
    """Read, query, check and maintain a DuckLake lake."""
    context.obj = LakeOptions(
        url=lake,
        data_path=data_path,
        metadata_schema=metadata_schema,
        storage_options=storage_options,
        allowed_paths=tuple(allowed_path or ()),
    )
