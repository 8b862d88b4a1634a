"""The worked examples in docstrings are true."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from ducklake_dagster import naming, table_slice, write_settings


@pytest.mark.parametrize("module", [naming, table_slice, write_settings])
def test_worked_examples(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
