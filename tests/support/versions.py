"""The version of lakes that tests make without saying which: one run of any tests on lakes of another version than the usual one."""

from __future__ import annotations

from functools import wraps
from typing import Any

from ducklake_core import DuckLake
from ducklake_core.format.versions import DEFAULT_VERSION
from tests.support import oracle


def choose(version: str) -> None:
    """Let lakes have a version from now on; a DuckDB that does not know it works on them in the form of the one before."""
    if version == DEFAULT_VERSION.name:
        return
    made = DuckLake.create.__func__  # type: ignore[attr-defined]

    @wraps(made)
    def create(cls: type[DuckLake], *arguments: Any, **named: Any) -> Any:
        return made(cls, *arguments, **{"version": version, **named})

    DuckLake.create = classmethod(create)  # type: ignore[method-assign, assignment]
    if version not in oracle.READS:
        from tests.support import earlier_form

        earlier_form.use()
