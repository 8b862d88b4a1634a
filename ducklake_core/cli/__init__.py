"""The command ``ducklake``: what is in a lake, and what keeps it small, fast and sound, for people, cron and orchestrators."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command with the arguments of the process; its packages are an extra of this library."""
    try:
        from ducklake_core.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "click"):
            raise
        sys.stderr.write("the command needs the package typer: pip install 'ducklake-dagster[cli]'\n")
        sys.exit(2)
    app()
