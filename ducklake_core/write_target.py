"""What a write asks for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ducklake_core.errors import UsageError

if TYPE_CHECKING:
    from ducklake_core.lake import Where, WriteMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that a write goes to, and how it is made when it is missing."""

    name: str
    create: bool
    partition_by: tuple[str, ...]
    comment: str | None


def check_mode(mode: WriteMode, where: Where, on: Sequence[str]) -> None:
    """Refuse a mode that does not exist, and arguments that belong to another one.

    Raises:
        UsageError: What is wrong with them.
    """
    if mode not in ("append", "overwrite", "upsert"):
        raise UsageError(f"unknown write mode {mode!r}: append, overwrite or upsert")
    if where is not None and mode != "overwrite":
        raise UsageError(f"where belongs to overwrite, not to {mode}")
    if on and mode != "upsert":
        raise UsageError(f"on belongs to upsert, not to {mode}")
