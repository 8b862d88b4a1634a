"""`make docs`: the site builds strictly, works without a network, and has each page as plain text."""

from __future__ import annotations

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
    assert (site / "reference" / "api" / "ducklake_core" / "DuckLake.md").read_text() in whole


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    assert not {(page.name, found) for page in pages for found in LOADED.findall(page.read_text())}


@pytest.mark.parametrize("link", ["nowhere.md", "types.md#nowhere"])
def test_broken_links_stop_the_build(link: str, site: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(site.with_name("docs-source"), source)
    with (source / "reference" / "types.md").open("a") as page:
        page.write(f"\n[away]({link})\n")
    program = (
        "import pathlib, runpy, sys; sys.path.insert(0, '.ci'); runpy.run_path('.ci/site.py')['build'](*map(pathlib.Path, sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, str(source), str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert link.partition("#")[2] in done.stderr
    assert "strict mode" in done.stderr
