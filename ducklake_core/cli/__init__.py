"""The command ``ducklake``: inspect a lake, query it and maintain it from a shell.

In: arguments and environment variables. Out: tables, lines or JSON, and an exit code. ``app`` lists the subcommands; ``reading`` and
``maintaining`` implement them with the methods of :class:`~ducklake_core.DuckLake`, and ``doctor`` tests a setup step by step.
``session`` opens the lake of a command and turns errors into messages, ``output`` prints results.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import NoReturn


def main() -> None:
    """Run the command with the arguments of the process; its packages are an extra of this library.

    SIGTERM, which ``timeout`` and orchestrators send, ends the process as Ctrl-C does: uncommitted files are deleted.
    """
    try:
        from ducklake_core.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "click"):
            raise
        sys.stderr.write("the command needs the package typer: pip install 'ducklake-dagster[cli]'\n")
        sys.exit(2)
    signal.signal(signal.SIGTERM, _terminate)
    _prepare_output()
    app()


def _prepare_output() -> None:
    """Open a closed output again, and escape letters that an output cannot encode, so that results are always reported."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _terminate(number: int, _frame: object) -> NoReturn:
    # Once is enough, or deleting files would be interrupted too.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
