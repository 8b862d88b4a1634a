"""Docstrings, names and phrases follow the style guide. `.ci/words.txt` has the words that codespell rejects."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["codespell"]["skip"]

SOURCES = ("ducklake_core", "ducklake_dagster", "examples", "benchmarks", "tests", ".ci")
DOCUMENTS = ("README.md", ".github", "docs")

CLAUSE = re.compile(r"(What|Which|Whose|Whether|Where|How|Who)\b")
WORDS = ("says", "asks", "tells")
PHRASES = ("says of", "said of", "in force", "seven bits", "as well as ever", "as far as", "made anew")  # codespell:ignore said,anew
PHRASE = re.compile(
    "|".join(
        [r"\b" + phrase.replace(" ", r"\s+") + r"\b" for phrase in (*WORDS, *PHRASES)]
        + [r"(?<!some\s)(?<!none\s)(?<!each\s)(?<!most\s)\bof\s+which\b"]
    ),
    re.IGNORECASE,
)

VAGUE = frozenset({"ask", "asked", "asks", "gone", "looked", "looks", "say", "says", "tell", "tells"})
"""Words that are plain English in a sentence, but do not describe a value or a function."""

ALLOWED = {"tell": "method of file objects"}


def files(*roots: str, suffix: str) -> list[Path]:
    """Return files with a suffix, except in the paths that `[tool.codespell] skip` lists."""
    found = (path for root in roots for path in ([ROOT / root] if root.endswith(suffix) else (ROOT / root).rglob(f"*{suffix}")))
    return sorted(path for path in found if not any(f"./{path.relative_to(ROOT)}".startswith(skipped) for skipped in SKIPPED))


@dataclass(frozen=True, slots=True)
class Source:
    """Names that a module defines, with their lines, and the first lines of its docstrings."""

    path: str
    names: list[tuple[int, str]] = field(default_factory=list)
    docstrings: list[str] = field(default_factory=list)

    @classmethod
    def parse(cls, path: Path) -> Source:
        source = cls(str(path.relative_to(ROOT)))
        for node in ast.walk(ast.parse(path.read_text())):
            # A string that is a statement is a docstring, also below a constant or a field.
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                source.docstrings.append(node.value.value.strip().partition("\n")[0])
            elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                source.names.append((node.lineno, node.name))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                source.names.append((node.lineno, node.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                source.names.append((node.lineno, node.attr))
            elif isinstance(node, ast.arg):
                source.names.append((node.lineno, node.arg))
        return source

    def named(self, is_bad: Callable[[str], object]) -> list[str]:
        return [f"{self.path}:{line}: {name}" for line, name in self.names if is_bad(name)]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return [Source.parse(path) for path in files(*SOURCES, suffix=".py")]


def is_vague(name: str) -> bool:
    return name not in ALLOWED and bool(VAGUE & {word.lower() for word in re.findall(r"[A-Z]*[a-z]+|[A-Z]+", name)})


def test_docstrings_do_not_begin_with_a_clause(sources: list[Source]) -> None:
    found = [f"{source.path}: {docstring}" for source in sources for docstring in source.docstrings if CLAUSE.match(docstring)]
    assert not found, "begin with an imperative or a noun:\n" + "\n".join(found)


def test_names_describe_values_and_functions(sources: list[Source]) -> None:
    found = [where for source in sources for where in source.named(is_vague)]
    assert not found, "\n".join(found)


def test_limits_are_called_max_and_min(sources: list[Source]) -> None:
    found = [where for source in sources for where in source.named(re.compile(r"_?(MOST|LEAST)(_|$)").match)]
    assert not found, "\n".join(found)


def test_phrases() -> None:
    paths = [*files(*SOURCES, suffix=".py"), *files(*DOCUMENTS, suffix=".md")]
    found = [f"{path.relative_to(ROOT)}: {match.group()}" for path in paths for match in PHRASE.finditer(path.read_text())]
    assert not [line for line in found if "test_language.py" not in line], "\n".join(found)
