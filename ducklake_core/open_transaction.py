"""What the verbs of a transaction have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from ducklake_core.staged_catalog import StagedCatalog

if TYPE_CHECKING:
    from ducklake_core.catalog.state import Snapshot
    from ducklake_core.lake import DuckLake
    from ducklake_core.publication import Publication
    from ducklake_core.staged_table import StagedTable, Step


class OpenTransaction(ABC):
    """A transaction while its block runs."""

    _lake: DuckLake
    _publication: Publication

    @property
    @abstractmethod
    def repeated(self) -> Snapshot | None:
        """The snapshot that an earlier run committed with the same commit id; while it is there, calls do nothing."""

    @property
    @abstractmethod
    def _catalog(self) -> StagedCatalog:
        """What is staged."""

    @abstractmethod
    def _whole_or_nothing(self) -> AbstractContextManager[None]:
        """A call that fails leaves nothing staged."""

    def _stage(self, staged: StagedTable, step: Step) -> None:
        self._publication.stage(staged, step, self._catalog.base)
