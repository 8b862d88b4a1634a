"""The code on the pages of the documentation runs as it stands; what needs Spark or a server is in tests/spark and tests/dagster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.oracle import new_connection
from tests.support.page_setups import SETUPS, Setup
from tests.support.pages import DOCS, blocks, run_python

ALONE = ["README.md", "tutorials/notebook.md", "operations/backup.md", *SETUPS]


@pytest.mark.takes_seconds
@pytest.mark.parametrize("page", ALONE)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    setup = SETUPS.get(page, Setup)()
    run_python(DOCS / page, setup.names, setup.replaced)


def test_duckdb_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python(DOCS / "README.md")
    (statements,) = blocks(DOCS / "README.md", "sql")
    with new_connection() as duck:
        assert duck.execute(statements).fetchall() == [("AA", 0), ("B6", 5), ("UA", 12)]
