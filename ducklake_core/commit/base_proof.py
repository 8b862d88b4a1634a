"""Whether the base of a transaction is still what it was planned on: a snapshot of this very catalog, and recent enough.

An id of a snapshot or table proves nothing: after a backup of the catalog was put back, or a lake was made anew in its place, ids are given
out again. A snapshot that is the same in all of its columns has the same history, and with it the same tables, columns and keys.
"""

from __future__ import annotations

from ducklake_core.catalog.writing.head import Head
from ducklake_core.commit.conflicts import Conflict
from ducklake_core.commit.request import CommitRequest
from ducklake_core.format.state import is_same_snapshot


def find_stale(transaction: CommitRequest, head: Head) -> Conflict | None:
    """The first reason why the base cannot be built on, None when it can.

    Of a base that is older than the call, everything that the call has used must be as it was: names, columns and keys by the schema
    version, and the options.
    """
    base = transaction.base
    if head.base is None or not is_same_snapshot(head.base, base):
        reason = "has been expired" if head.base is None else "is another commit now: the catalog was replaced, by a backup or a new lake"
        return Conflict(
            rule="base-gone",
            message=f"Transaction conflict - snapshot {base.id}, on which this transaction was planned, {reason}. "
            "Nothing was changed; run the write again on the newest snapshot",
            snapshot_id=base.id,
        )
    if transaction.assumed_options is None:
        return None
    if head.snapshot.schema_version != base.schema_version:
        return _older("definitions of tables or views were changed", head)
    if head.options is None or not head.options.is_same(transaction.assumed_options):
        return _older("options were changed", head)
    return None


def _older(what: str, head: Head) -> Conflict:
    return Conflict(
        rule="base-older-than-call",
        message=f"Transaction conflict - {what} since the snapshot that was seen last. Nothing was changed; run the write again",
        snapshot_id=head.snapshot.id,
    )
