"""The guides: their Python runs from top to bottom, their YAML loads, and their tables of metadata are complete."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from ducklake_dagster.assets.settings import INPUT_KEYS, OUTPUT_KEYS
from ducklake_dagster.components.lake import DuckLakeComponent, DuckLakeTablesComponent
from ducklake_dagster.components.maintenance import DuckLakeMaintenanceComponent
from tests.support.page_setups import SETUPS
from tests.support.pages import Reader, blocks
from tests.support.parameters import slow

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "how-to" / "dagster"
METADATA = ROOT / "docs" / "reference" / "dagster-metadata.md"
# Pages whose code needs names that others define run in tests/project/test_pages.py.
ALONE = [page for page in sorted(GUIDES.glob("*.md")) if blocks(page, "python") and f"how-to/dagster/{page.name}" not in SETUPS]
# Dagster's own tags, not metadata.
TAGS = {"dagster/partition", "dagster/retry_number", "dagster/is_resume_retry", "dagster/is_asset_resume_retry"}
KEY = re.compile(r"(?:ducklake|dagster)/[a-z_]+(?:/[a-z_]*)?")
pytestmark = [
    pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.PreviewWarning"),
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20"),
    # In Dagster's Pipes client.
    pytest.mark.filterwarnings("ignore:AssetExecutionContext:DeprecationWarning"),
]


@pytest.mark.parametrize("page", ALONE, ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Reader(page).run()


@pytest.mark.filterwarnings("ignore:.*currently in beta")
@pytest.mark.parametrize("slow_commands", [False, slow(True)])
def test_the_tutorial(slow_commands: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(ROOT / "docs" / "tutorials" / "dagster-project.md", slow_commands=slow_commands)
    project = reader.run()["defs"]
    assert isinstance(project, dg.Definitions)
    assert {"nightly_schedule"} < {schedule.name for schedule in project.get_repository_def().schedule_defs}


def test_components_of_the_guide_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    kinds = {"lake": DuckLakeComponent, "raw": DuckLakeTablesComponent, "care": DuckLakeMaintenanceComponent}
    with create_defs_folder_sandbox() as sandbox:
        for text, folder in zip(blocks(GUIDES / "components.md", "yaml"), kinds, strict=True):
            (sandbox.defs_folder_path / folder).mkdir()
            (sandbox.defs_folder_path / folder / "defs.yaml").write_text(text)
        for folder, kind in kinds.items():
            with sandbox.load_component_and_build_defs(defs_path=folder) as (component, _):
                assert isinstance(component, kind)


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
    assert {*OUTPUT_KEYS, *INPUT_KEYS} <= listed


def test_every_listed_key_exists() -> None:
    page = METADATA.read_text()
    keys = set(emitted())
    prefixes = tuple(key for key in keys if key.endswith(("_", "/")))
    listed = set(re.findall(r"`((?:ducklake|dagster)/[^`\s<]+)", page))
    unknown = {key for key in listed - keys if not key.startswith(prefixes)}
    assert not unknown


def test_every_error_code_has_advice() -> None:
    codes = set(re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "reference" / "errors.md").read_text(), re.MULTILINE))
    advised = set(
        re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \|", (GUIDES / "troubleshooting.md").read_text(), re.MULTILINE)))
    )
    # Bases of others, which are never raised.
    assert codes - {"ducklake", "commit"} <= advised, codes - advised


def test_guides_speak_of_names_that_exist() -> None:
    import ducklake_dagster

    for page in GUIDES.glob("*.md"):
        for imports in re.findall(r"from ducklake_dagster import (?:\(([^)]*)\)|(.*))", page.read_text()):
            names = [name.strip() for name in "".join(imports).replace("\n", " ").split(",") if name.strip()]
            assert set(names) <= set(ducklake_dagster.__all__), page.name
    assert dg.__version__
