"""The version of lakes that tests make without saying which: one run of any tests on lakes of another version than the usual one."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest

from ducklake_core import DuckLake
from tests.support import oracle


def choose(version: str) -> None:
    """Let lakes have a version from now on."""
    if version in oracle.READS:
        return
    made = DuckLake.create.__func__  # type: ignore[attr-defined]

    @wraps(made)
    def create(cls: type[DuckLake], *arguments: Any, **named: Any) -> Any:
        return made(cls, *arguments, **{"version": version, **named})

    DuckLake.create = classmethod(create)  # type: ignore[method-assign, assignment]
    oracle.on_newer_version = _end


def _end(version: str) -> None:
    """A test asks DuckDB only after what it has asked of us, and which tests ask is not known before they run: none can be deselected."""
    pytest.skip(f"the installed DuckDB reads no lake of version {version}; all before this has passed")
