"""What a write asks for, checked before anything is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ducklake_core.arrow.write_state import WriteState
from ducklake_core.errors import UsageError
from ducklake_core.format import paths
from ducklake_core.format.names import join_name
from ducklake_core.format.options import Options
from ducklake_core.format.sorting import sort_orders

if TYPE_CHECKING:
    from ducklake_core.catalog.state import LakeInfo, TableState
    from ducklake_core.format.predicates import Predicate
    from ducklake_core.lake import Partitions, Where, WriteMode
    from ducklake_core.storage.filesystems import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that a write goes to, and how it is made when it is missing."""

    name: str
    create: bool
    partition_by: tuple[str, ...]
    comment: str | None


def check_mode(mode: WriteMode, where: Where, on: Sequence[str], partitions: Partitions | None = None) -> None:
    """Refuse a mode that does not exist, and arguments that belong to another one.

    Raises:
        UsageError: What is wrong with them.
    """
    if mode not in ("append", "overwrite", "upsert"):
        raise UsageError(f"unknown write mode {mode!r}: append, overwrite or upsert")
    if where is not None and mode != "overwrite":
        raise UsageError(f"where belongs to overwrite, not to {mode}")
    if partitions is not None and mode != "overwrite":
        raise UsageError(f"partitions belong to overwrite, not to {mode}")
    if partitions is not None and where is not None:
        raise UsageError("an overwrite takes where or partitions, not both")
    if on and mode != "upsert":
        raise UsageError(f"on belongs to upsert, not to {mode}")


def new_write_state(
    table: TableState, info: LakeInfo, storage: Storage, *, promise: Predicate | None = None, write_id: str | None = None
) -> WriteState:
    """What the writers of a table's new files need to know.

    Args:
        table: The table as the write leaves it behind.
        info: The lake.
        storage: How to reach its files.
        promise: What every row must satisfy.
        write_id: Mark of the write, a new one when None.

    Raises:
        UnsupportedFeatureError: The catalog names a directory that the lake has no business to write to.
    """
    name, options = join_name(table.schema_name, table.name), Options.from_mapping(table.options)
    return WriteState(
        table=name,
        directory=info.checked_location(table.path, f"table {name}", table=name),
        schema=table.schema,
        partition_spec=table.partition_spec,
        storage=storage,
        encrypted=info.encrypted,
        options=options,
        promise=promise,
        sort=sort_orders(table.sort_keys, table.schema, name) if options.sort_on_insert else (),
        write_id=write_id or paths.write_id(),
    )
