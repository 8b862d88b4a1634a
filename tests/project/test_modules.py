"""Packages have few modules and explain themselves."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(file.parent for name in ("ducklake_core", "ducklake_dagster") for file in (ROOT / name).rglob("__init__.py"))


def _code(file: Path) -> list[ast.stmt]:
    """Statements of a module other than its docstring."""
    tree = ast.parse(file.read_text())
    return tree.body[1:] if ast.get_docstring(tree) is not None else tree.body


@pytest.mark.parametrize(("package", "most", "most_at_root"), [("ducklake_core", 260, 12), ("ducklake_dagster", 45, 7)])
def test_modules_are_few(package: str, most: int, most_at_root: int) -> None:
    """The root of a package holds only what users import."""
    assert len([file for file in (ROOT / package).rglob("*.py") if _code(file)]) <= most
    assert len(list((ROOT / package).glob("*.py"))) <= most_at_root


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_of_packages_name_modules_that_exist(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert docstring
    parts = {file.stem for file in package.glob("*.py")} | {folder.name for folder in package.iterdir() if folder.is_dir()}
    named = set(re.findall(r"``([a-z_0-9]+)``", docstring))
    assert named <= parts | OTHER_NAMES


OTHER_NAMES = {"ducklake", "rowid"}
"""Names in docstrings that are not modules."""
