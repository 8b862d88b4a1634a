"""What can happen to a lake: plain values, so that a history prints itself and can be played again, or in part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

FOLDER = "{folder}"


@dataclass(frozen=True, slots=True)
class Sql:
    """A statement of the oracle; :data:`FOLDER` in it stands for a folder beside the lake's files."""

    text: str


@dataclass(frozen=True, slots=True)
class Reattach:
    """The oracle leaves the lake and comes back: nothing that it keeps in memory stays."""


@dataclass(frozen=True, slots=True)
class Write:
    """A commit of ours.

    Attributes:
        table: ``schema.table``, quoted as SQL wants it.
        rows: SELECT of the rows to write, with the table's columns; the oracle makes the values.
        where: Condition of a delete or overwrite.
        on: Key columns of an upsert.
    """

    verb: Literal["append", "overwrite", "upsert", "delete", "create", "widen"]
    table: str
    rows: str = ""
    where: str | None = None
    on: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Maintenance of ours."""

    verb: Literal["merge_adjacent_files", "flush_inlined_data", "rewrite_data_files", "checkpoint", "expire_snapshots", "cleanup_old_files"]
    versions: tuple[int, ...] = ()


Action: TypeAlias = Sql | Reattach | Write | Upkeep


def script(actions: list[Action]) -> str:
    """A history as Python text that :func:`tests.property.histories.play.replay` takes."""
    return "[\n" + "".join(f"    {action!r},\n" for action in actions) + "]"
