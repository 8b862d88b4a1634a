"""Rows of a table found and changed: by the executors of a Spark session where there is one, else in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ducklake_core.engines.arrow.changed_rows import ChangedRows
    from ducklake_core.engines.arrow.merge_source import MergeSource
    from ducklake_core.engines.arrow.positions import DeleteTarget, Deletions
    from ducklake_core.engines.arrow.row_request import ChangeRequest
    from ducklake_core.engines.arrow.write_state import WriteState
    from ducklake_core.format.types.schema import Schema
    from ducklake_core.planning.plan import ScanPlan
    from ducklake_core.storage.filesystems import Storage
    from ducklake_core.storage.sweeping import NamedFiles


def delete_matching(plan: ScanPlan, target: DeleteTarget, storage: Storage, session: Any, named: NamedFiles | None = None) -> Deletions:
    """Write delete files for the rows that match a plan's predicate.

    Here and below, ``named`` tells which files the catalog names: they are never swept.
    """
    if session is not None:
        from ducklake_core.engines.spark.positions import find_positions as find_with_spark

        return find_with_spark(plan, target, storage, session, named)
    from ducklake_core.engines.arrow.positions import find_positions

    return find_positions(plan, target, storage)


def change_rows(
    plan: ScanPlan,
    request: ChangeRequest,
    target: DeleteTarget,
    state: WriteState,
    storage: Storage,
    *,
    source: MergeSource | None = None,
    session: Any = None,
    keep: int = 0,
    named: NamedFiles | None = None,
) -> ChangedRows:
    """Write what becomes of the rows that an update or a merge is about, on the engine that was chosen for it.

    In this process up to ``keep`` rows are given back instead of written.
    """
    if source is not None and source.session is not None:
        session = source.session
    if session is not None:
        from ducklake_core.engines.spark.changed_rows import change_rows as change_with_spark

        return change_with_spark(plan, request, target, state, session, source, named=named)
    from ducklake_core.engines.arrow.changed_rows import change_rows as change_with_arrow

    rows = None if source is None else source.rows
    if rows is not None and request.by_row_id:
        from ducklake_core.engines.arrow.changed_by_id import change_rows_by_id

        return change_rows_by_id(plan, request.change(), target, state, storage, source=rows, keep=keep)
    return change_with_arrow(plan, request.change(), target, state, storage, source=rows, keep=keep)


def check_source_keys(source: MergeSource, on: Sequence[str], table: Schema) -> None:
    """Check that every row of a merge's source has a key of its own.

    Args:
        source: The source.
        on: Names of the key columns.
        table: The table's columns.

    Raises:
        SchemaError: NULL or repeated keys.
        UnsupportedFeatureError: A key column of a nested type.
    """
    if source.rows is not None:
        from ducklake_core.engines.arrow.keys import key_set

        key_set(source.rows, on, table)
        return
    from ducklake_core.engines.spark.positions import check_keys
    from ducklake_core.engines.spark.read import read_plan

    check_keys(read_plan(source.scan(on), source.storage, source.session, exact=False), table.select(on))


def restore_rows(
    now: ScanPlan,
    then: ScanPlan,
    target: DeleteTarget,
    state: WriteState,
    storage: Storage,
    session: Any = None,
    *,
    named: NamedFiles | None = None,
) -> ChangedRows:
    """Make the rows of a table those of an earlier snapshot, in this process or by the executors of a session."""
    if session is not None:
        from ducklake_core.engines.spark.restored_rows import restore_rows as restore_with_spark

        return restore_with_spark(now, then, target, state, storage, session, named=named)
    from ducklake_core.engines.arrow.restored_rows import restore_rows as restore_with_arrow

    return restore_with_arrow(now, then, target, state, storage)
