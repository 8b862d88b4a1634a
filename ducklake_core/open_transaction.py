"""What the verbs of a transaction have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ducklake_core.staged_catalog import StagedCatalog

if TYPE_CHECKING:
    from ducklake_core.catalog.state import Snapshot
    from ducklake_core.lake import DuckLake


class OpenTransaction(ABC):
    """A transaction while its block runs."""

    _lake: DuckLake

    @property
    @abstractmethod
    def repeated(self) -> Snapshot | None:
        """The snapshot that an earlier run committed with the same commit id; while it is there, calls do nothing."""

    @property
    @abstractmethod
    def _catalog(self) -> StagedCatalog:
        """What is staged."""
