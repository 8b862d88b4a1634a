"""The base class of a transaction's verbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from ducklake_core.commit.actions import CreateMacro
from ducklake_core.commit.request import operation
from ducklake_core.staging.namespace import StagedCatalog

Given = TypeVar("Given")

if TYPE_CHECKING:
    from ducklake_core.format.state import Snapshot
    from ducklake_core.format.types.data_types import Field
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.staging.context import LakeContext
    from ducklake_core.staging.publish import CommitCoordinator
    from ducklake_core.staging.staged_table import StagedTable, Step


class OpenTransaction(ABC):
    """A transaction while its block runs."""

    _lake: LakeContext
    _coordinator: CommitCoordinator

    @property
    @abstractmethod
    def repeated(self) -> Snapshot | None:
        """The snapshot that an earlier run committed with the same commit id; while it is there, calls do nothing."""

    def _is_done(self, kind: str, name: str, *details: object, is_schema: bool = False) -> bool:
        """Note what a call does and to what; whether an earlier run has committed it, so that the call does nothing.

        Args:
            kind: What the call does.
            name: To what.
            details: What else tells it from other work under the same commit id, such as the condition; the same in every run.
            is_schema: Whether ``name`` is that of a schema.
        """
        if self._coordinator.given:
            self._coordinator.operations.append(operation(kind, name, is_schema=is_schema, details=details))
        return self.repeated is not None

    @property
    @abstractmethod
    def _catalog(self) -> StagedCatalog:
        """The staged objects of the open transaction."""

    @abstractmethod
    def _whole_or_nothing(self) -> AbstractContextManager[None]:
        """A call that fails leaves nothing staged."""

    def _without_macros(self, given: Given) -> Given | str:
        """A condition or expression with macros of the base snapshot in place of their calls."""
        from ducklake_core.catalog.reading.definitions import without_macro_calls

        if not isinstance(given, str):
            return given
        with self._lake.reader() as reader:
            return without_macro_calls(reader, given, self._catalog.base.id)

    def _check_expression(self, table: str, text: str, columns: Schema, target: Field | None = None) -> None:
        """Let DuckDB, where it is installed, bind an expression that a table will store; see :func:`check_expression`."""
        from ducklake_core.engines.duckdb.query import check_expression

        # Macros that this transaction makes are known to no reader.
        if not any(isinstance(action, CreateMacro) for action in self._catalog.definitions):
            check_expression(table, self._without_macros(text), columns, target)

    def _stage(self, staged: StagedTable, step: Step) -> None:
        self._coordinator.stage(staged, step, self._catalog.base)
