"""The worked examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import ducklake_dagster

_ROOT = Path(ducklake_dagster.__file__).parent
_WITH_EXAMPLES = sorted(
    ".".join(("ducklake_dagster", *file.relative_to(_ROOT).with_suffix("").parts))
    for file in _ROOT.rglob("*.py")
    if ">>> " in file.read_text()
)


@pytest.mark.parametrize("module", _WITH_EXAMPLES)
def test_worked_examples(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
