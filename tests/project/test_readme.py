"""The README's examples run as they stand, and a stranger reads it to the end."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from tests.support.pages import ROOT, Reader

README = ROOT / "README.md"


def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    definitions = Reader(README).run()["defs"]
    assert isinstance(definitions, dg.Definitions)
    dg.Definitions.validate_loadable(definitions)
    assert (tmp_path / "lake.sqlite").exists()


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 80
