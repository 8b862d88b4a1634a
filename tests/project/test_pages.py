"""The code on the pages of the documentation runs as a reader types it; tests/spark and tests/dagster run pages that need more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import page_servers
from tests.support.pages import DOCS, Reader, pages

# tests/behaviour/foreign_files runs the other one.
FREE = [page for page in pages("plain") if page != "how-to/from-delta-and-iceberg.md"]


@pytest.mark.parametrize("page", FREE)
def test_pages_run_in_an_empty_folder(page: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page_servers.names(page):
        page_servers.set_variables(request, monkeypatch)
    Reader(DOCS / page).run()
