"""The catalog database prunes the files of these tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _pruned(pruned_by_the_database: None) -> None:
    """Prune in the database."""
