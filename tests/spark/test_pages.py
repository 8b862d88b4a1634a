"""The code of pages that need a Spark session runs as a reader types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import DOCS, Reader, pages
from tests.support.parameters import spread

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("page", spread(pages("spark"), 1))
@pytest.mark.usefixtures("spark")
def test_pages_run_in_an_empty_folder(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Reader(DOCS / page).run()
