"""`make docs`: the site is built strictly, reads without a network, and has each page as plain text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.slow
LOADED = re.compile(r"<(?:script|img|iframe|link)[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site") / "docs"
    done = subprocess.run([sys.executable, str(ROOT / ".ci" / "site.py"), str(made)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_every_page_is_there_as_html_and_as_markdown(site: Path) -> None:
    whole = (site / "llms-full.txt").read_text()
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS)
        plain = site / (name.with_name("index.md") if name.name == "README.md" else name)
        assert plain.with_suffix(".html").exists(), name
        # Links to the root are those of the site.
        assert plain.read_text().splitlines()[0] == page.read_text().splitlines()[0]
        assert plain.read_text().strip() in whole
    assert (site / "api" / "ducklake_core" / "DuckLake.md").read_text() in whole


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    assert not {(page.name, found) for page in pages for found in LOADED.findall(page.read_text())}


@pytest.mark.parametrize("link", ["nowhere.md", "types.md#nowhere"])
def test_a_link_that_leads_nowhere_ends_it(link: str, site: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(site.with_name("docs-source"), source)
    with (source / "types.md").open("a") as page:
        page.write(f"\n[away]({link})\n")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / ".ci" / "mkdocs.yml"), "-d", str(tmp_path / "made")]
    done = subprocess.run(build, env={**os.environ, "DOCS_SOURCE": str(source)}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert link.partition("#")[2] in done.stderr
    # click decides where it says so.
    assert "strict mode" in done.stdout + done.stderr
