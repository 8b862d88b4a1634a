"""The README's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest

README = Path(__file__).parents[2] / "README.md"


def example(containing: str) -> str:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = (block for block in blocks if containing in block)
    return str(found)


@pytest.mark.filterwarnings("ignore:.*currently in beta")  # backfill_policy; users see the same notice
def test_the_project_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(example("dg.Definitions"), "README.md", "exec", dont_inherit=True), names)
    definitions = names["defs"]
    assert isinstance(definitions, dg.Definitions)
    dg.Definitions.validate_loadable(definitions)
    assert {key.to_user_string() for key in definitions.resolve_all_asset_keys()} == {"orders", "revenue"}


def test_the_lake_without_dagster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(example("DuckLake.create"), "README.md", "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    delays = [re.findall(r"-?\d+", column.split("]]")[0]) for column in printed.split("delay: [[")[1:]]
    assert delays[:2] == [["7"], ["12", "-3"]]
    assert sorted(delays[2]) == ["-3", "12", "12", "7"]
    # So few rows are in the catalog.
    assert not (tmp_path / "flight_files").exists()


def test_the_example_is_short() -> None:
    assert len(example("dg.Definitions").strip().splitlines()) <= 25
