"""Open the lake of a command, share options between commands, and turn errors into messages and exit codes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperGroup

from ducklake_core.cli.output import as_commands, discard_output, flush, plain, read_or_not
from ducklake_core.errors import DuckLakeError, NotALakeError, NotFoundError, UsageError
from ducklake_core.format.types.text import shown
from ducklake_core.lake import DuckLake
from ducklake_core.staging.lake_files import LakeSpec, find_lake

_NAME = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"\s*|(?P<plain>(?:[^",][^,]*)?))(?P<comma>,|\Z)', re.DOTALL)

# Click's, which some versions of typer import and others bring along under a private name.
_WrongCall: Any = typer.BadParameter.__bases__[0]
_NAMES = {"catalog": "lake", "labels": "label"}
"""Arguments of the library that options have other names for."""

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
At: TypeAlias = Annotated[str | None, typer.Option("--at", help="Snapshot: its id, a time with a zone, or a hold. The newest by default.")]
Where: TypeAlias = Annotated[str | None, typer.Option("--where", help="Condition in SQL (DuckDB's dialect).")]
Columns: TypeAlias = Annotated[str | None, typer.Option("--columns", help="Names of columns, separated by commas; all by default.")]
TableName: TypeAlias = Annotated[str, typer.Argument(metavar="TABLE", help="table or schema.table")]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, without changing anything.")]
Author: TypeAlias = Annotated[str | None, typer.Option("--author", help="Author of the snapshots.")]
Message: TypeAlias = Annotated[str | None, typer.Option("--message", help="Message of the snapshots; describes the operation by default.")]
ExtraInfo: TypeAlias = Annotated[str | None, typer.Option("--extra-info", help="Further information for the snapshots: a string or JSON.")]


FOUND, USAGE, FAILED, TRY_AGAIN, INTERRUPTED = 1, 2, 3, 4, 130
"""Exit codes: something was found or a part failed; a wrong call; an error; an error that a retry may fix; Ctrl-C."""


@dataclass(frozen=True, slots=True, repr=False)
class LakeOptions:
    """Settings of the lake from the command line and the environment. Its repr shows nothing, as all of it may be secret.

    Attributes:
        url: Address of the catalog, or the name of a lake in ``ducklake.toml``.
        storage_options: JSON text: fsspec options by protocol.
    """

    url: str | None = None
    data_path: str | None = None
    metadata_schema: str | None = None
    storage_options: str | None = None
    allowed_paths: tuple[str, ...] = field(default=())

    def connect(self, *, read_only: bool) -> DuckLake:
        """Open the lake. Options and their variables take precedence over ``ducklake.toml``.

        Args:
            read_only: Whether to reject changes. A lake that ``ducklake.toml`` sets to read only always rejects them.

        Raises:
            UsageError: No lake is given, its name is unknown, or the options cannot be read.
        """
        known = self.known(self.url)
        return DuckLake.connect(
            known.catalog,
            data_path=known.data_path if self.data_path is None else self.data_path,
            override_data_path=known.override_data_path or self.data_path is not None,
            metadata_schema=known.metadata_schema if self.metadata_schema is None else self.metadata_schema,
            storage_options={**known.storage_options, **self._storage_options()},
            allowed_paths=(*known.allowed_paths, *self.allowed_paths),
            read_only=known.read_only or read_only,
        )

    def create(self, address: str | None, *, data_path: str | None, **settings: Any) -> DuckLake:
        """Create a lake.

        Args:
            address: Address of its catalog, or a name in ``ducklake.toml``; that of ``--lake`` when None.
            data_path: Its data path; that of the global option, or of ``ducklake.toml``, when None.
            **settings: Further arguments of :meth:`DuckLake.create`.

        Raises:
            UsageError: No address, or an unknown name.
        """
        known = self.known(address or self.url)
        return DuckLake.create(
            known.catalog,
            data_path=data_path or self.data_path or known.data_path,
            metadata_schema=known.metadata_schema if self.metadata_schema is None else self.metadata_schema,
            storage_options={**known.storage_options, **self._storage_options()},
            allowed_paths=(*known.allowed_paths, *self.allowed_paths),
            **settings,
        )

    @staticmethod
    def known(url: str | None) -> LakeSpec:
        """Return the settings of a lake by its address, or by its name in ``ducklake.toml``."""
        if not url:
            raise UsageError("no lake is selected. Set --lake or DUCKLAKE_URL to the address of a catalog, or to a name in ducklake.toml")
        is_name = re.fullmatch(r"[\w-]+", url) is not None
        try:
            return find_lake(url) if is_name else LakeSpec(name=url, catalog=url)
        except NotFoundError as error:
            raise UsageError(error.message, **error.details) from error

    def _storage_options(self) -> dict[str, dict[str, object]]:
        if not self.storage_options:
            return {}
        try:
            found = json.loads(self.storage_options)
        except ValueError:
            # The string and the error that contains it may hold secrets.
            raise UsageError("DUCKLAKE_STORAGE_OPTIONS is not JSON") from None
        if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
            raise UsageError('DUCKLAKE_STORAGE_OPTIONS must be options by protocol: {"s3": {"key": "..."}}')
        return found


@contextmanager
def opened(context: typer.Context, *, read_only: bool = True) -> Iterator[DuckLake]:
    """Open the lake of the command, and close it at the end."""
    options: LakeOptions = context.find_root().obj
    lake = options.connect(read_only=read_only)
    try:
        yield lake
    finally:
        lake.close()


def snapshot_at(text: str | None) -> int | datetime | str | None:
    """Return the snapshot that a string names by its id, by a time with a zone, or else by the name of a hold.

    >>> snapshot_at("7"), snapshot_at(None), snapshot_at("2026-01-01 12:00:00+00:00").isoformat(), snapshot_at("year end")
    (7, None, '2026-01-01T12:00:00+00:00', 'year end')

    Raises:
        UsageError: The string is a time without a zone.
    """
    if text is None:
        return None
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return text
    return time_with_zone(text, "the name of a hold")


def time_with_zone(text: str, otherwise: str) -> datetime:
    """Return a point in time.

    Args:
        otherwise: Name of the other form that the string may have, for the error.

    Raises:
        UsageError: The string is not a time, or has no zone.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{shown(text)} is neither {otherwise} nor a time (2026-01-31 12:00:00+00:00)") from None
    if found.tzinfo is None:
        raise UsageError(f"the time {text} has no zone: write {found.isoformat(sep=' ')}+00:00 for UTC")
    return found


def column_names(text: str) -> list[str]:
    """Return names separated by commas; double quotes enclose a name that contains a comma, or begins or ends with a blank or a quote.

    >>> column_names('a, b c'), column_names('"a, b","c""d"')
    (['a', 'b c'], ['a, b', 'c"d'])

    Raises:
        UsageError: A quote is not closed.
    """
    names: list[str] = []
    position = 0
    while (found := _NAME.match(text, position)) is not None:
        quoted = found["quoted"]
        names.append(found["plain"].rstrip() if quoted is None else quoted.replace('""', '"'))
        if not found["comma"]:
            return names
        position = found.end()
    raise UsageError(f"cannot read the names {shown(text)}: a name in double quotes ends at a comma, and has its own quotes doubled")


def exit_with(code: int, ok: Any = True) -> None:
    """End the command with a code unless all went well."""
    if not ok:
        raise typer.Exit(code)


class CommandGroup(TyperGroup):
    """A group of commands. Errors, including wrong calls, end it with an exit code and one line or one JSON object."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help when there are no arguments."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(USAGE)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. End it without an error when the reader of the output stops reading."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard_output()
            raise typer.Exit(0) from None
        except DuckLakeError as error:
            option = self._option_for(ctx, error.details.get("parameter"))
            if option is not None:
                error.details["command_option"] = option
            raise

    def _option_for(self, ctx: Any, parameter: object) -> str | None:
        """Return the option or argument of the command that sets a parameter of the library; None if there is none."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        for one in (*(command.params if command is not None else ()), *self.params):
            if one.name == _NAMES.get(str(parameter), parameter):
                return str(one.opts[0]) if one.param_type_name == "option" else str(one.name).upper()
        return None

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run the command line, and end the process unless ``standalone_mode`` is False."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        try:
            # Click would print errors in its own format and choose other exit codes.
            code = super().main(args, standalone_mode=False, **extra)
            with read_or_not():
                flush()
        except _WrongCall as error:
            code = _reported(_as_usage_error(error), _is_json_requested(args))
        except DuckLakeError as error:
            code = _reported(error, _is_json_requested(args))
        except typer.Abort:
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)


def _is_json_requested(args: Sequence[str] | None) -> bool:
    return "--json" in takewhile(lambda argument: argument != "--", sys.argv[1:] if args is None else args)


def _as_usage_error(error: Any) -> UsageError:
    # Lists of choices take a line each.
    message = " ".join(str(error.format_message()).split()).rstrip(".").replace(": Value error, ", ": ")
    return UsageError(message if error.ctx is None else f"{message} (see '{error.ctx.command_path} --help')")


def _is_wrong_call(error: DuckLakeError) -> bool:
    """Return whether the call has to be changed, for example the address of the catalog."""
    return isinstance(error, UsageError | NotALakeError) or error.details.get("parameter") == "catalog"


def _reported(error: DuckLakeError, as_json: bool) -> int:
    """Report an error, and return its exit code."""
    code = TRY_AGAIN if error.retriable else USAGE if _is_wrong_call(error) else FAILED
    message = as_commands(error.message)
    report = {"code": error.code, "message": message, "retriable": error.retriable, "exit_code": code, "details": error.details}
    option = error.details.get("command_option")
    message = message if option is None or str(option) in message else f"{message} ({option})"
    line = json.dumps({"error": plain(report)}, ensure_ascii=False) if as_json else f"error: {message} [{error.code}]"
    sys.stderr.write(f"{line}\n")
    return code
