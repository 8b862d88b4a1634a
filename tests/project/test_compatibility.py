"""docs/reference/compatibility.md agrees with the code and the installed extension."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.oracle import new_connection

SCRIPT = Path(__file__).parents[2] / ".ci" / "compatibility.py"
NOT_FOR_USERS = {"ducklake_scan"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compatibility", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_writes(script: ModuleType) -> None:
    assert script.PAGE.read_text() == script.page(), "run python .ci/compatibility.py"


def test_every_function_and_parameter_of_the_extension_has_a_row(script: ModuleType) -> None:
    with new_connection() as duck:
        found = duck.execute(
            "SELECT function_name, max(len(parameters)), flatten(list(parameters)) FROM duckdb_functions() "
            "WHERE function_name LIKE 'ducklake_%' GROUP BY ALL"
        ).fetchall()
    known = {name: (count, {one for one in parameters if not one.startswith("col")}) for name, count, parameters in found}
    assert set(script.FUNCTIONS) == set(known) - NOT_FOR_USERS
    for name, rows in script.FUNCTIONS.items():
        named = {row.duckdb for row in rows} - {""}
        count, parameters = known[name]
        assert parameters <= named, name
        assert len(named) == count, name
