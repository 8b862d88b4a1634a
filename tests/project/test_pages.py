"""The code on the pages of the documentation runs as it stands; what needs Spark or a server is in tests/spark and tests/dagster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import page_servers
from tests.support.page_setups import SETUPS
from tests.support.pages import DOCS, Reader, pages, run_python

# tests/behaviour/sql and tests/behaviour/foreign_files run these.
ELSEWHERE = ["how-to/from-delta-and-iceberg.md", "reference/sql.md"]
FREE = [page for page in pages("plain") if page not in (*SETUPS, *ELSEWHERE)]


@pytest.mark.parametrize("page", SETUPS)
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    setup = SETUPS[page]()
    run_python(DOCS / page, setup.names, setup.replaced)


@pytest.mark.parametrize("page", FREE)
def test_pages_run_in_an_empty_folder(page: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page_servers.names(page):
        page_servers.set_variables(request, monkeypatch)
    Reader(DOCS / page).run()
