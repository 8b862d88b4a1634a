"""The base class of checks: what a check reads of the catalog, which table it judges, and its verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg

from ducklake_core import split_name
from ducklake_core.errors import UsageError
from ducklake_dagster.assets.tables import AssetTable, TableAddress
from ducklake_dagster.config.values import is_number
from ducklake_dagster.io.audits import branch_holds
from ducklake_dagster.statistics.lake_state import LakeState
from ducklake_dagster.statistics.partitions import Part, StoredTable

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Table
    from ducklake_dagster.io.audits import Branch


_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of a check on one asset.

    Attributes:
        passed: Whether it passed.
        description: Why, in words.
        metadata: Numbers, plotted by Dagster.
    """

    passed: bool
    description: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a check looks at.

    Attributes:
        table: The asset.
        stored: Its rows.
        keys: The partitions that it is about, None for the whole table.
        session: Gives a Spark session; None where there is none.
        judged: How the table was chosen; None where production alone is looked at.
    """

    table: AssetTable
    stored: StoredTable
    keys: Sequence[str] | None
    session: Callable[[], Any] | None = None
    judged: JudgedTable | None = None

    @property
    def state(self) -> LakeState:
        """Of the whole lake."""
        return self.stored.state

    def other_table(self, name: str) -> Table:
        """Another table: in a branch the branch's, where it has one, otherwise that of production.

        Raises:
            NotFoundError: There is none.
        """
        if self.judged is None or self.judged.branch is None:
            return self.state.lake.table(name, at=self.state.snapshot_id)
        schema, table = split_name(name)
        address = self.judged.branch.address(TableAddress(schema=schema, table=table))
        own, production = self.judged.lakes
        return own.table(address.sql) if own.has_table(address.sql) else production.table(name)

    def parts(self) -> list[Part]:
        """The partitions, or the whole table."""
        return self.stored.parts(self.keys)


@dataclass(frozen=True, kw_only=True)
class LakeCheck(ABC):
    """A check of DuckLake tables, for :func:`build_lake_checks` and :func:`build_check_sensor`.

    Attributes:
        name: Name of the check; checks of one asset need different ones.
        severity: ERROR or WARN; only ERROR stops what is downstream of a blocking check.
        blocking: Whether downstream assets of the same run wait for it.
    """

    name: str
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
    blocking: bool = False

    judges_changes: ClassVar[bool] = False
    reads_rows: ClassVar[bool] = False
    checks_catalog: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.reject_nonsense()

    @abstractmethod
    def text(self) -> str:
        """What holds when it passes."""

    @abstractmethod
    def _verdict(self, subject: Subject) -> Verdict:
        """Judge one asset.

        Raises:
            DuckLakeError: It cannot be judged.
        """

    def columns(self) -> Iterable[str]:
        """Columns of which bounds and NULLs are needed."""
        return ()

    def reject_nonsense(self) -> None:  # noqa: B027 - some kinds have nothing to reject
        """Look at the settings.

        Raises:
            UsageError: One that cannot be.
        """

    def reject_negative(self, **bounds: float | None) -> None:
        """Reject what is no number, bounds below 0, and a check without any.

        Raises:
            UsageError: Which one.
        """
        for setting, bound in bounds.items():
            if bound is not None and not is_number(bound):
                raise UsageError(f"{type(self).__name__}: {setting} must be a number, not {bound!r}", parameter=setting)
            if bound is not None and bound < 0:
                raise UsageError(f"{type(self).__name__}: {setting} must not be negative, it is {bound}", parameter=setting)
        if all(bound is None for bound in bounds.values()):
            raise UsageError(f"{type(self).__name__} needs at least one of {', '.join(bounds)}")

    def reject_above_all(self, **fractions: float | None) -> None:
        """Reject fractions above 1, which nothing is above.

        Raises:
            UsageError: Which one.
        """
        for setting, fraction in fractions.items():
            if fraction is not None and fraction > 1:
                raise UsageError(f"{type(self).__name__}: {setting} is a fraction, 0.3 for 30 %, not {fraction}", parameter=setting)


def verdict_of(check: LakeCheck, subject: Subject) -> Verdict:
    """The verdict of a check on one asset.

    Raises:
        DuckLakeError: It cannot be judged.
    """
    return check._verdict(subject)  # noqa: SLF001 - what it takes is no part of the package's face


def judged(faults: Sequence[str], otherwise: str, metadata: Mapping[str, Any]) -> Verdict:
    """The verdict by what was found wrong, of which the first few are shown."""
    more = f"; and {len(faults) - _MAX_SHOWN} more" if len(faults) > _MAX_SHOWN else ""
    return Verdict(passed=not faults, description="; ".join(faults[:_MAX_SHOWN]) + more or otherwise, metadata=metadata)


def labelled(part: Part, fault: str) -> str:
    """A fault with the partition that it is of."""
    return f"{part.label}: {fault}" if part.label else fault


def of_parts(parts: Sequence[Part]) -> str:
    """How many partitions, for a sentence."""
    keys = sum(len(part.keys or ()) for part in parts)
    return f" in {keys} partitions" if keys else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTable:
    """What a check of an asset looks at.

    Attributes:
        table: The asset, with the address of the table.
        lake: The lake that holds it.
        branch: The branch of the run, None in production.
        lakes: The branch's lake and that of production, which may be one; that of production alone without a branch.
        fault: Why nobody knows which table is the right one; empty when it is known.
    """

    table: AssetTable
    lake: DuckLake
    branch: Branch | None = None
    lakes: Sequence[DuckLake] = ()
    fault: str = ""


def io_manager_keys(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> Mapping[dg.AssetKey, str]:
    """Resource keys of the IO managers that assets are stored with; what others write has none."""
    return {
        key: asset.get_io_manager_key_for_asset_key(key)
        for asset in assets
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable
        for key in asset.keys
    }


def judged_table(table: AssetTable, production: DuckLake, manager: object, keys: Sequence[str] | None) -> JudgedTable:
    """The table that is judged.

    Args:
        table: The asset.
        production: The lake of production.
        manager: What the run stores the asset with, None for an asset that no run stores.
        keys: Partitions that are judged, None for all of the table.
    """
    from ducklake_dagster.io_manager import DuckLakeIOManager, branch_settings, writing_lake

    branch = branch_settings(manager) if isinstance(manager, DuckLakeIOManager) else None
    if branch is None or not isinstance(manager, DuckLakeIOManager):
        return JudgedTable(table=table, lake=production, lakes=(production,))
    lake = writing_lake(manager).connect() if branch.own_lake else production
    address = branch.address(table.address)
    found = JudgedTable(table=table, lake=production, branch=branch, lakes=(lake, production))
    try:
        holds = branch_holds(lake, address, keys, table.key.to_user_string())
    except UsageError as error:
        return replace(found, fault=error.message)
    return replace(found, table=replace(table, address=address), lake=lake) if holds else found
