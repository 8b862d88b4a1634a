"""Branches: assets that read production and write elsewhere, by one setting."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_dagster.assets.naming import TableAddress
from ducklake_dagster.assets.provenance import dagster_facts
from ducklake_dagster.io.commit import makes_table

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Table


SEPARATOR = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Where the tables of a branch are.

    Attributes:
        name: Name of the branch.
        own_lake: Whether the branch has a lake of its own, in which tables keep their names; otherwise each schema of the branch is
            called ``schema__name``.
    """

    name: str
    own_lake: bool = False

    def address(self, production: TableAddress) -> TableAddress:
        """The branch's table for one of production."""
        from ducklake_core import dotted, split_path

        *around, own = split_path(production.schema)
        return production if self.own_lake else replace(production, schema=dotted((*around, f"{own}{SEPARATOR}{self.name}")))


def branch_holds(lake: DuckLake, address: TableAddress, keys: Sequence[str] | None, subject: str) -> bool:
    """Whether an input is read from the branch: its table is there, and was written for the partitions at hand.

    Args:
        lake: The lake of the branch.
        address: The branch's table.
        keys: Partition keys at hand, None for an asset without partitions.
        subject: The input, for messages.

    Raises:
        UsageError: Some of the partitions were written in the branch and others were not, or nobody knows which were.
    """
    try:
        table = lake.table(address.sql)
    except NotFoundError:
        return False
    if not keys:
        return True
    written, complete = _written_keys(table)
    missing = sorted(set(keys) - written)
    if not missing:
        return True
    shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
    advice = "materialise them in the branch, or set ducklake_input(production=True) on the input to read production alone"
    if not complete:
        raise UsageError(
            f"input {subject}: snapshots of {address} were expired, so nobody knows whether the branch has partitions {shown}: {advice}",
            input=subject,
        )
    if len(missing) == len(set(keys)):
        return False
    raise UsageError(f"input {subject}: the branch has some of the partitions, but not {shown}: {advice}", input=subject)


def _written_keys(table: Table) -> tuple[AbstractSet[str], bool]:
    """Partitions that commits of assets wrote since the table was made, and whether all of these commits are still known."""
    keys: set[str] = set()
    complete = False
    for snapshot in reversed(table.snapshots()):
        found = dagster_facts(snapshot).get("partition_keys")
        if isinstance(found, list):
            keys.update(key for key in found if isinstance(key, str))
        if makes_table(snapshot, table):
            complete = True
            break
    return keys, complete
