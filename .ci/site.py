"""Build the documentation: the pages of docs/, the API reference, README and CHANGELOG as a site, each page as plain Markdown next to it.

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
# Documents at the root, and their paths among the pages.
ROOT_PAGES = {"CHANGELOG.md": "project/changelog.md"}
LINK = re.compile(r"\]\(([^)#\s]*)")


def gather(source: Path) -> None:
    """Put all pages into one folder, with links between them adapted to it."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source)
    write_reference(source / "reference" / "api")
    for name, target in ROOT_PAGES.items():
        shutil.copyfile(ROOT / name, source / target)
    originals = {source / target: ROOT / name for name, target in ROOT_PAGES.items()}
    for page in source.rglob("*.md"):
        original = originals.get(page, ROOT / "docs" / page.relative_to(source))
        page.write_text(LINK.sub(lambda link, p=page, o=original: f"]({relocated(link[1], o, p, source)}", page.read_text()))


def relocated(link: str, original: Path, page: Path, source: Path) -> str:
    """Return a link of a document of the project as a link of the page that shows it."""
    if not link or "://" in link:
        return link
    target = (original.parent / link).resolve()
    name = target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else link
    if original.parent == ROOT or name in ROOT_PAGES:
        return os.path.relpath(source / ROOT_PAGES.get(name, name.removeprefix("docs/")), page.parent)
    return link


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
    """Copy every page as Markdown next to its HTML, and all of them into one file."""
    pages = in_order(source)
    whole = []
    for page in pages:
        name = page.relative_to(source)
        copy = site / (name.with_name("index.md") if name.name == "README.md" else name)
        shutil.copyfile(page, copy)
        whole.append(f"<!-- {copy.relative_to(site).as_posix()} -->\n\n{page.read_text().strip()}\n")
    (site / "llms-full.txt").write_text("\n".join(whole))
    return len(pages)


def build(source: Path, site: Path) -> None:
    """Build the site, or exit with the warnings of mkdocs."""
    # Without --quiet, which would also hide the warnings that --strict counts.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(CONFIGURATION), "--site-dir", str(site)]
    # The theme would advertise its successor otherwise.
    settings = {"DOCS_SOURCE": str(source), "NO_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).splitlines()
        sys.exit("\n".join(line for line in output if not line.startswith("INFO")))


def main(site: Path) -> None:
    source = site.with_name(f"{site.name}-source")
    gather(source)
    build(source, site)
    print(f"{add_plain_text(source, site)} pages in {site}, all of them as Markdown in llms-full.txt")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
