"""Builds the documentation: the pages of docs/, the API reference, README and CHANGELOG as a site, each page as plain Markdown beside it.

python .ci/site.py build/docs
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from api_reference import write_reference

ROOT = Path(__file__).parents[1]
CONFIGURATION = ROOT / ".ci" / "mkdocs.yml"
# Documents at the root, and what they are called among the pages.
ROOT_PAGES = {"README.md": "project.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"\]\(([^)#\s]*)")


def gather(source: Path) -> None:
    """Put all pages into one folder, with links as they are there."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source)
    write_reference(source / "api")
    for page in source.rglob("*.md"):
        for name, moved in ROOT_PAGES.items():
            outside = "../" * len(page.relative_to(source).parts) + name
            inside = "../" * len(page.relative_to(source).parts[1:]) + moved
            page.write_text(LINK.sub(lambda link, a=outside, b=inside: f"]({b}" if link[1] == a else link[0], page.read_text()))
    for name, moved in ROOT_PAGES.items():
        text = (ROOT / name).read_text()
        (source / moved).write_text(LINK.sub(lambda link: f"]({ROOT_PAGES.get(link[1], link[1].removeprefix('docs/'))}", text))


def listed(entries: object) -> Iterator[str]:
    """Pages in the order of the navigation."""
    if isinstance(entries, str):
        yield entries
    elif isinstance(entries, dict):
        for below in entries.values():
            yield from listed(below)
    elif isinstance(entries, list):
        for entry in entries:
            yield from listed(entry)


def navigation() -> list[str]:
    text = CONFIGURATION.read_text()
    return list(listed(yaml.safe_load(text[text.index("\nnav:") :])["nav"]))


def in_order(source: Path) -> list[Path]:
    first = [source / name for name in navigation()]
    return [*first, *sorted(set(source.rglob("*.md")) - set(first))]


def add_plain_text(source: Path, site: Path) -> int:
    """Every page as Markdown beside its HTML, and all of them in one file."""
    pages = in_order(source)
    whole = []
    for page in pages:
        name = page.relative_to(source)
        beside = site / (name.with_name("index.md") if name.name == "README.md" else name)
        shutil.copyfile(page, beside)
        whole.append(f"<!-- {beside.relative_to(site).as_posix()} -->\n\n{page.read_text().strip()}\n")
    (site / "llms-full.txt").write_text("\n".join(whole))
    return len(pages)


def main(site: Path) -> None:
    source = site.with_name(f"{site.name}-source")
    gather(source)
    build = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--config-file", str(CONFIGURATION), "--site-dir", str(site)]
    # The theme would advertise its successor otherwise.
    settings = {"DOCS_SOURCE": str(source), "NO_MKDOCS_2_WARNING": "true"}
    subprocess.run(build, check=True, env={**os.environ, **settings})
    print(f"{add_plain_text(source, site)} pages in {site}, all of them as Markdown in llms-full.txt")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
