"""tests/support/supported-operations.md lists the operations that work on each kind of table, correctly."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import verdicts
from tests.support.verdicts import CATALOGS, LAYOUTS, TITLES, by_catalog, in_process, new_lakes, read_section, section, sections


def written(name: str) -> str:
    return sections(verdicts.PAGE.read_text())[TITLES[name]]


def test_the_page_names_every_operation_and_layout() -> None:
    assert verdicts.PAGE.read_text().startswith(verdicts.introduction())
    found = read_section(written("process"))
    assert found.keys() <= verdicts.IN_PROCESS.keys()
    assert {len(by_layout) for by_layout in found.values()} == {len(LAYOUTS)}
    assert f"Kinds of tables: {', '.join(LAYOUTS)}. " in written("process")


@pytest.mark.parametrize("operation", ["scan under a condition", "merge", "add_data_files", "rewrite_data_files"])
def test_some_operations(operation: str, tmp_path: Path) -> None:
    found = in_process(new_lakes(tmp_path), [operation])[operation]
    always = [True] * len(LAYOUTS)
    assert read_section(written("process")).get(operation, always) == [verdict == verdicts.YES for verdict in found]


@pytest.mark.slow
def test_every_operation_on_every_layout(tmp_path: Path) -> None:
    assert section(TITLES["process"], in_process(new_lakes(tmp_path)), list(LAYOUTS)) == written("process")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_operation_on_every_catalog(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert section(TITLES["catalogs"], by_catalog(tmp_path, stack), list(CATALOGS)) == written("catalogs")
