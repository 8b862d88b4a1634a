"""Define the base class of checks, the table that a check judges, and its verdict."""

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
        description: The reason, in words.
        metadata: Numbers, which Dagster plots.
    """

    passed: bool
    description: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The input of a check: one asset with its table.

    Attributes:
        table: The asset.
        stored: Its stored rows.
        keys: Partition keys to check, None for the whole table.
        session: Returns a Spark session; None without Spark.
        judged: The choice of the table; None when only production is checked.
    """

    table: AssetTable
    stored: StoredTable
    keys: Sequence[str] | None
    session: Callable[[], Any] | None = None
    judged: JudgedTable | None = None

    @property
    def state(self) -> LakeState:
        """Return the state of the whole lake."""
        return self.stored.state

    def other_table(self, name: str) -> Table:
        """Return another table: from the branch if the branch has it, otherwise from production.

        Raises:
            NotFoundError: The table does not exist.
        """
        if self.judged is None or self.judged.branch is None:
            return self.state.lake.table(name, at=self.state.snapshot_id)
        schema, table = split_name(name)
        address = self.judged.branch.address(TableAddress(schema=schema, table=table))
        own, production = self.judged.lakes
        return own.table(address.sql) if own.has_table(address.sql) else production.table(name)

    def parts(self) -> list[Part]:
        """Return the partitions to check, or the whole table."""
        return self.stored.parts(self.keys)


@dataclass(frozen=True, kw_only=True)
class LakeCheck(ABC):
    """A check of DuckLake tables, for :func:`build_lake_checks` and :func:`build_check_sensor`.

    Attributes:
        name: Name of the check; checks of one asset need different ones.
        severity: ERROR or WARN; only ERROR stops the assets downstream of a blocking check.
        blocking: Whether downstream assets of the same run wait for it.
    """

    name: str
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
    blocking: bool = False

    # judges_changes: depends only on rows of the partitions that changed, so the sensor repeats it only after a change.
    # reads_rows: opens data files, so it needs a run; the sensor rejects it.
    # checks_catalog: needs the findings of lake.check(), which are read only when a check needs them.
    judges_changes: ClassVar[bool] = False
    reads_rows: ClassVar[bool] = False
    checks_catalog: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.reject_nonsense()

    @abstractmethod
    def text(self) -> str:
        """Return the sentence that is true when the check passes."""

    @abstractmethod
    def _verdict(self, subject: Subject) -> Verdict:
        """Judge one asset.

        Raises:
            DuckLakeError: The table cannot be judged.
        """

    def columns(self) -> Iterable[str]:
        """Return the columns whose bounds and NULLs the check needs."""
        return ()

    def reject_nonsense(self) -> None:  # noqa: B027 - some kinds have nothing to reject
        """Reject invalid settings.

        Raises:
            UsageError: A setting is invalid.
        """

    def reject_negative(self, **bounds: float | None) -> None:
        """Reject bounds that are not numbers or are negative, and a check without any bound.

        Raises:
            UsageError: A bound is invalid, or there is none; the message names it.
        """
        for setting, bound in bounds.items():
            if bound is not None and not is_number(bound):
                raise UsageError(f"{type(self).__name__}: {setting} must be a number, not {bound!r}", parameter=setting)
            if bound is not None and bound < 0:
                raise UsageError(f"{type(self).__name__}: {setting} must not be negative, it is {bound}", parameter=setting)
        if all(bound is None for bound in bounds.values()):
            raise UsageError(f"{type(self).__name__} needs at least one of {', '.join(bounds)}")

    def reject_above_all(self, **fractions: float | None) -> None:
        """Reject fractions above 1, which no value can exceed.

        Raises:
            UsageError: There is such a fraction; the message names it.
        """
        for setting, fraction in fractions.items():
            if fraction is not None and fraction > 1:
                raise UsageError(
                    f"{type(self).__name__}: {setting} must be a fraction, such as 0.3 for 30 %, not {fraction}", parameter=setting
                )


def verdict_of(check: LakeCheck, subject: Subject) -> Verdict:
    """Return the verdict of a check on one asset.

    Raises:
        DuckLakeError: The table cannot be judged.
    """
    return check._verdict(subject)  # noqa: SLF001 - the type of its argument is not public


def judged(faults: Sequence[str], otherwise: str, metadata: Mapping[str, Any]) -> Verdict:
    """Return the verdict for a list of faults; it shows the first few."""
    more = f"; and {len(faults) - _MAX_SHOWN} more" if len(faults) > _MAX_SHOWN else ""
    return Verdict(passed=not faults, description="; ".join(faults[:_MAX_SHOWN]) + more or otherwise, metadata=metadata)


def absent_table(table: AssetTable) -> str:
    """Return the description of a check whose table does not exist."""
    return f"table {table.address} does not exist. Materialise {table.key.to_user_string()} first"


def labelled(part: Part, fault: str) -> str:
    """Return a fault with the name of its partition."""
    return f"{part.label}: {fault}" if part.label else fault


def rows_of_parts(count: int, parts: Sequence[Part]) -> str:
    """Return the number of rows, and of the partitions that they are in, as a part of a sentence."""
    keys = sum(len(part.keys or ()) for part in parts)
    rows = f"{count:,} row{'' if count == 1 else 's'}"
    return f"{rows} in {keys:,} partition{'' if keys == 1 else 's'}" if keys else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTable:
    """The table that a check of an asset judges, in a branch or in production.

    Attributes:
        table: The asset, with the address of the table.
        lake: The lake that holds it.
        branch: The branch of the run, None in production.
        lakes: The branch's lake and that of production, which may be the same; only production's without a branch.
        fault: Reason why the right table is unknown; empty when it is known.
    """

    table: AssetTable
    lake: DuckLake
    branch: Branch | None = None
    lakes: Sequence[DuckLake] = ()
    fault: str = ""


def io_manager_keys(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> Mapping[dg.AssetKey, str]:
    """Return resource keys of the IO managers that store assets; assets that no run stores are left out."""
    return {
        key: asset.get_io_manager_key_for_asset_key(key)
        for asset in assets
        if isinstance(asset, dg.AssetsDefinition) and asset.is_executable
        for key in asset.keys
    }


def judged_table(table: AssetTable, production: DuckLake, manager: object, keys: Sequence[str] | None) -> JudgedTable:
    """Return the table to judge: from a branch or from production, by the same rule as for inputs.

    Args:
        table: The asset.
        production: The lake of production.
        manager: IO manager that stores the asset, None for an asset that no run stores.
        keys: Partition keys to judge, None for the whole table.
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
