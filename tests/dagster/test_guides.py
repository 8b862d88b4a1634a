"""The guides: their Python runs from top to bottom, their YAML loads, and their tables of metadata are complete."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from ducklake_dagster.assets.settings import INPUT_KEYS, OUTPUT_KEYS
from ducklake_dagster.components.lake import DuckLakeComponent, DuckLakeTablesComponent
from ducklake_dagster.components.maintenance import DuckLakeMaintenanceComponent
from tests.support import page_servers as servers
from tests.support.pages import DOCS, Reader, all_blocks, blocks, pages

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "how-to" / "dagster"
METADATA = ROOT / "docs" / "reference" / "dagster-metadata.md"
PAGES = pages("dagster")
# Dagster's own tags, not metadata.
TAGS = {"dagster/partition", "dagster/retry_number", "dagster/is_resume_retry", "dagster/is_asset_resume_retry"}
KEY = re.compile(r"(?:ducklake|dagster)/[a-z_]+(?:/[a-z_]*)?")
pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
    # In Dagster's Pipes client.
    pytest.mark.filterwarnings("ignore:AssetExecutionContext:DeprecationWarning"),
]


@pytest.mark.filterwarnings("ignore:.*currently in beta")
@pytest.mark.parametrize("page", PAGES)
def test_pages_run_in_an_empty_folder(page: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(DOCS / page)
    reader.run()
    monkeypatch.syspath_prepend(place)
    for file in locations(reader):
        found = [value for value in runpy.run_path(str(file)).values() if isinstance(value, dg.Definitions)]
        assert len(found) == 1, f"{page}: {file} has {len(found)} Definitions; Dagster loads a module with one"
        dg.Definitions.validate_loadable(found[0])


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if any(block.is_slow for block in all_blocks(DOCS / page))])
def test_commands_run(page: str, place: Path) -> None:
    assert place.exists()
    Reader(DOCS / page, slow_commands=True).run()


@pytest.mark.slow
def test_pages_are_code_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = []
    for page in PAGES:
        folder = tmp_path / page.replace("/", "-").removesuffix(".md")
        folder.mkdir()
        monkeypatch.chdir(folder)
        reader = Reader(DOCS / page)
        reader.write_files()
        for file in locations(reader):
            name = f"{folder.name}-{file.stem}"
            entries.append({"python_file": {"relative_path": str(file), "working_directory": str(folder), "location_name": name}})
    # The page on other writers loads its assets from tables that its first block writes.
    entries = [entry for entry in entries if "foreign-writers" not in entry["python_file"]["location_name"]]
    (tmp_path / "workspace.yaml").write_text(yaml.safe_dump({"load_from": entries}))
    command = [str(Path(sys.executable).parent / "dagster"), "definitions", "validate", "--workspace", "workspace.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def locations(reader: Reader) -> list[Path]:
    """Return the files of a page that Dagster loads by themselves."""
    return [file.absolute() for file in reader.files if file.suffix == ".py" and re.search(r"^defs = ", file.read_text(), re.MULTILINE)]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run a page in, with the variables of the servers that it names."""
    monkeypatch.chdir(tmp_path)
    if servers.names(request.node.callspec.params["page"]):
        servers.set_variables(request, monkeypatch)
    return tmp_path


def test_components_of_the_guide_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    kinds = (DuckLakeComponent, DuckLakeMaintenanceComponent, DuckLakeTablesComponent)
    loaded = set()
    # The lake of the page's files, or the one that reads variables.
    for number in (0, 1):
        with create_defs_folder_sandbox() as sandbox:
            components = {folder_of(text): text for text in sorted(blocks(GUIDES / "components.md", "yaml"), reverse=number == 1)}
            for folder, text in components.items():
                (sandbox.defs_folder_path / folder).mkdir()
                (sandbox.defs_folder_path / folder / "defs.yaml").write_text(text)
            for folder in components:
                with sandbox.load_component_and_build_defs(defs_path=folder) as (component, _):
                    loaded.add(type(component))
    assert loaded == set(kinds)


def folder_of(text: str) -> str:
    """Return the folder of a component's file; the lake's for one that names none."""
    found = re.match(r"# shop/defs/(\w+)/", text)
    return found[1] if found else "lake"


def emitted() -> Iterator[str]:
    """Return the keys in the package's string literals; prefixes of keys end with _ or /."""
    for path in (ROOT / "ducklake_dagster").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.fullmatch(node.value):
                yield node.value


def test_every_metadata_key_is_in_the_tables() -> None:
    page = METADATA.read_text()
    listed = set(re.findall(r"`([^`\s]+)`", page))
    keys = {key for key in emitted() if key not in TAGS and not key.startswith("dagster/asset_partition_range")}
    whole = {key for key in keys if not key.endswith(("_", "/"))}
    assert whole <= listed, sorted(whole - listed)
    for prefix in keys - whole:
        assert any(key.startswith(prefix) for key in listed), prefix
    assert {*INPUT_KEYS} <= listed
    assert {*OUTPUT_KEYS} <= set(re.findall(r"`([^`\s]+)`", (GUIDES / "assets.md").read_text()))


def test_every_listed_key_exists() -> None:
    page = METADATA.read_text()
    keys = set(emitted())
    prefixes = tuple(key for key in keys if key.endswith(("_", "/")))
    listed = set(re.findall(r"`((?:ducklake|dagster)/[^`\s<]+)", page))
    unknown = {key for key in listed - keys if not key.startswith(prefixes)}
    assert not unknown


def test_codes_with_advice_exist() -> None:
    codes = set(re.findall(r"^### `([a-z-]+)`$", (ROOT / "docs" / "reference" / "errors.md").read_text(), re.MULTILINE))
    advice = (GUIDES / "troubleshooting.md").read_text().split("## Error codes\n")[1].split("\n## ")[0]
    advised = set(re.findall(r"`([a-z-]+)`", " ".join(re.findall(r"^- (`.*?): ", advice, re.MULTILINE))))
    assert advised
    assert advised <= codes, advised - codes


def test_guides_speak_of_names_that_exist() -> None:
    import ducklake_dagster

    for page in GUIDES.glob("*.md"):
        for imports in re.findall(r"from ducklake_dagster import (?:\(([^)]*)\)|(.*))", page.read_text()):
            names = [name.strip() for name in "".join(imports).replace("\n", " ").split(",") if name.strip()]
            assert set(names) <= set(ducklake_dagster.__all__), page.name
    assert dg.__version__
