"""The command ``ducklake`` within tests, and what it prints as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from typer.testing import Result

Run: TypeAlias = Callable[..., Result]
"""Runs a command line, which has to end with ``code=``; variables are further arguments."""


def answer(result: Result) -> Any:
    return json.loads(result.stdout)


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]
