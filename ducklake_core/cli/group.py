"""How the command tells of errors: one line for people, one JSON object for programs, both on the error output."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import typer
from typer.core import TyperGroup

from ducklake_core.cli.output import discard_output, flush, plain, read_or_not
from ducklake_core.cli.session import FAILED, INTERRUPTED, TRY_AGAIN, USAGE
from ducklake_core.errors import DuckLakeError, NotALakeError, UsageError

# Click's, which some versions of typer import and others bring along under a private name.
_WrongCall: Any = typer.BadParameter.__bases__[0]


_NAMES = {"catalog": "lake", "labels": "label"}
"""Arguments of the library that options have other names for."""


class CommandGroup(TyperGroup):
    """A group of commands whose errors, wrong calls among them, end it with a code and one line or one JSON object."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without any argument the help is all that there is to say."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(USAGE)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for, until whoever reads the output has seen enough."""
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
        """The option or argument by which the command that was called takes an argument of the library; None when it does not."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        for one in (*(command.params if command is not None else ()), *self.params):
            if one.name == _NAMES.get(str(parameter), parameter):
                return str(one.opts[0]) if one.param_type_name == "option" else one.human_readable_name
        return None

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run the command line, and end the process unless ``standalone_mode`` is False."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        try:
            code = super().main(args, standalone_mode=False, **extra)
            with read_or_not():
                flush()
        except _WrongCall as error:
            code = _reported(_as_usage_error(error), _asks_for_json(args))
        except DuckLakeError as error:
            code = _reported(error, _asks_for_json(args))
        except typer.Abort:
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)


def _asks_for_json(args: Sequence[str] | None) -> bool:
    return "--json" in takewhile(lambda argument: argument != "--", sys.argv[1:] if args is None else args)


def _as_usage_error(error: Any) -> UsageError:
    # Lists of choices take a line each.
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    return UsageError(message if error.ctx is None else f"{message} (see '{error.ctx.command_path} --help')")


def _is_wrong_call(error: DuckLakeError) -> bool:
    """Whether the arguments have to be others, the address of the catalog among them."""
    return isinstance(error, UsageError | NotALakeError) or error.details.get("parameter") == "catalog"


def _reported(error: DuckLakeError, as_json: bool) -> int:
    """Tell of an error; the exit code for it."""
    code = TRY_AGAIN if error.retriable else USAGE if _is_wrong_call(error) else FAILED
    told = {"code": error.code, "message": error.message, "retriable": error.retriable, "exit_code": code, "details": error.details}
    option = error.details.get("command_option")
    message = error.message if option is None or str(option) in error.message else f"{error.message} ({option})"
    line = json.dumps({"error": plain(told)}, ensure_ascii=False) if as_json else f"error: {message} [{error.code}]"
    sys.stderr.write(f"{line}\n")
    return code
