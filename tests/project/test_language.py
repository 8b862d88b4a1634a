"""Docstrings, names and phrases follow the style guide. `.ci/words.txt` has the words that codespell rejects."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPPED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["codespell"]["skip"]

SOURCES = ("ducklake_core", "ducklake_dagster", "examples", "benchmarks", "tests", ".ci")
DOCUMENTS = ("README.md", ".github", "docs")

CLAUSE = re.compile(r"(What|Which|Whose|Whether|Where|How|Who)\b")
PHRASES = ("says of", "said of", "in force", "seven bits", "as well as ever", "as far as", "made anew")
PHRASE = re.compile(
    "|".join([r"\b" + phrase.replace(" ", r"\s+") + r"\b" for phrase in PHRASES] + [r"(?<!some\s)(?<!each\s)(?<!most\s)\bof\s+which\b"]),
    re.IGNORECASE,
)

VAGUE = frozenset({"ask", "asked", "asks", "gone", "looked", "looks", "say", "says", "tell", "tells"})
"""Words that are plain English in a sentence, but do not describe a value or a function."""

ALLOWED = {
    "tell": "method of file objects",
}


def files(*roots: str, suffix: str) -> list[Path]:
    """Return files with a suffix, except in the paths that `[tool.codespell] skip` lists."""
    found = (path for root in roots for path in ([ROOT / root] if root.endswith(suffix) else (ROOT / root).rglob(f"*{suffix}")))
    return sorted(path for path in found if not any(f"./{path.relative_to(ROOT)}".startswith(skipped) for skipped in SKIPPED))


TREES = {path.relative_to(ROOT): ast.parse(path.read_text()) for path in files(*SOURCES, suffix=".py")}


def defined_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
            ):
                yield node.lineno, name
            case _:
                pass


NAMES = [(f"{path}:{line}: {name}", name) for path, tree in TREES.items() for line, name in defined_names(tree)]


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]*[a-z]+|[A-Z]+", name)}


def test_docstrings_do_not_begin_with_a_clause() -> None:
    found = [
        f"{path}: {docstring.splitlines()[0]}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and CLAUSE.match(docstring := ast.get_docstring(node) or "")
    ]
    assert not found, "begin with a verb or a noun:\n" + "\n".join(found)


def test_names_describe_values_and_functions() -> None:
    found = [where for where, name in NAMES if name not in ALLOWED and VAGUE & words(name)]
    assert not found, "\n".join(found)


def test_limits_are_called_max_and_min() -> None:
    found = [where for where, name in NAMES if re.match(r"_?(MOST|LEAST)(_|$)", name)]
    assert not found, "\n".join(found)


def test_phrases() -> None:
    paths = [*files(*SOURCES, suffix=".py"), *files(*DOCUMENTS, suffix=".md")]
    found = [f"{path.relative_to(ROOT)}: {match.group()}" for path in paths for match in PHRASE.finditer(path.read_text())]
    assert not [line for line in found if "test_language.py" not in line], "\n".join(found)
