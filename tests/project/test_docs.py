"""Names and links in the documentation exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ducklake_core import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / ".github").glob("*.md"), *DOCS.rglob("*.md")])
DECISIONS = sorted((DOCS / "project" / "decisions").glob("0*.md"))


def error_classes(base: type[errors.DuckLakeError] = errors.DuckLakeError) -> Iterator[type[errors.DuckLakeError]]:
    yield base
    for subclass in base.__subclasses__():
        yield from error_classes(subclass)


def documented() -> dict[str, str]:
    """Return the beginning of the description of each error: its class, with what else it is in parentheses."""
    page = (DOCS / "reference" / "errors.md").read_text()
    return dict(re.findall(r"^### `([a-z-]+)`\n\n```text\n.*?\n```\n\n(`\w+`(?: \([^)]*\))?): ", page, re.MULTILINE | re.DOTALL))


def test_every_error_is_documented_under_its_code() -> None:
    raised = [error for error in error_classes() if error.__module__ == "ducklake_core.errors" and error is not errors.DuckLakeError]
    classes = {error.code: error for error in raised}
    listed = documented()
    assert listed.keys() == classes.keys()
    for code, error in classes.items():
        assert listed[code].startswith(f"`{error.__name__}`")
        assert ("retriable" in listed[code]) == error.retriable


def test_codes_are_unique() -> None:
    codes = [error.code for error in error_classes() if error.__module__ == "ducklake_core.errors"]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def pages_by_group() -> dict[str, list[str]]:
    text = (ROOT / ".ci" / "mkdocs.yml").read_text()
    (_, *groups) = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    return {name: re.findall(r"'([\w./-]+\.md)'", str(entries)) for group in groups for name, entries in group.items()}


def test_folders_equal_the_navigation() -> None:
    groups = pages_by_group()
    for name, pages in groups.items():
        assert {page.split("/")[0] for page in pages} == {name.lower()}
    # The build of the site writes these.
    generated = {"project/changelog.md", "reference/api/README.md"}
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page not in DECISIONS}
    assert pages | generated == {"README.md"} | {page for pages in groups.values() for page in pages}


def test_the_index_links_to_every_page() -> None:
    linked = re.findall(r"\]\(([\w./-]+\.md)\)", (DOCS / "README.md").read_text())
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page not in DECISIONS}
    assert {"README.md", *linked} == pages | {"../CHANGELOG.md"}


def test_python_examples_of_the_readme_are_python() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        compile(example, "README.md", "exec")


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decisions_are_short_and_have_the_same_sections(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {int(path.name[:4])}. ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert re.search(r"^Status: (proposed|accepted)$", text, re.MULTILINE)
    assert len(text.split()) <= 300


def test_decisions_that_code_names_exist() -> None:
    files = [path for folder in ("ducklake_core", "ducklake_dagster", "tests") for path in (ROOT / folder).rglob("*.py")]
    named = {int(number) for path in [*files, *DOCUMENTS] for number in re.findall(r"\bdecision (\d+)", path.read_text())}
    assert named <= {int(path.name[:4]) for path in DECISIONS}


def test_every_decision_is_in_the_index() -> None:
    index = (DOCS / "project" / "decisions" / "README.md").read_text()
    listed = re.findall(r"^- \[(\d+)\. (.*)\]\((\S+)\)$", index, re.MULTILINE)
    titles = [(path.read_text().splitlines()[0].removeprefix("# "), path.name) for path in DECISIONS]
    assert sorted((f"{number}. {title}", name) for number, title, name in listed) == sorted(titles)


def test_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for document in DOCUMENTS for name in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", document.read_text(), re.MULTILINE)}
    assert {one or other for one, other in named} <= targets
