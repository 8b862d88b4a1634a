"""The version of lakes that tests make without saying which: one run of any tests on lakes of another version than the usual one."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest

from ducklake_core import DuckLake
from ducklake_core.format.versions import DEFAULT_VERSION
from tests.support import oracle

_OWN_VERSIONS = "set the version of their lakes themselves"
LEFT_OUT = {
    "tests/behaviour/versions/": _OWN_VERSIONS,
    "tests/behaviour/maintenance/test_migrate.py": _OWN_VERSIONS,
    "tests/behaviour/maintenance/test_migrated_meanwhile.py": _OWN_VERSIONS,
    "tests/dagster/test_version_1_1.py": _OWN_VERSIONS,
    "tests/spark/test_version_1_1.py": _OWN_VERSIONS,
    "test_rows_that_the_catalog_can_no_longer_hold": "is about names that 1.1 does not reserve any more",
    "test_fields_are_shredded_by_their_types": "looks for a file, where 1.1 keeps few variants in the catalog",
    "test_statements_write_them": "reads variants inside of others from the catalog, which DuckDB has from 2.0 on",
    "[mysql": "DuckDB works on copies of these lakes, which have a form already",
}
"""Parts of the names of tests that make nothing of another version, and why."""


def leave_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take the tests of :data:`LEFT_OUT` away, and give them."""
    left_out = [item for item in items if any(part in item.nodeid for part in LEFT_OUT)]
    items[:] = [item for item in items if item not in left_out]
    return left_out


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
