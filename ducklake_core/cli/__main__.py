"""``python -m ducklake_core.cli``: the command, where no script is installed."""

from ducklake_core.cli import main

main()
