"""Notes of writes go to a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The driver's directory for temporary files."""
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setattr("ducklake_core.spark_source.notes._DIRECTORY", str(folder))
    return folder
