"""Fingerprints of what a commit with an id from outside did, kept beside the id, so that the id is refused for other work."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence

from ducklake_core.errors import UsageError
from ducklake_core.format.types.names import folded, join_name, split_name

MOST_NAMED = 16
"""More operations than these are kept as one digest."""


_DIGEST = re.compile(r" #[0-9a-f]{16}\Z")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def operation(kind: str, name: str, *, is_schema: bool = False, details: tuple[object, ...] = ()) -> str:
    """One thing that a call does, by the name that it was asked for, in the same letters however that is spelled.

    Args:
        kind: What it does.
        name: To what.
        is_schema: Whether ``name`` is that of a schema.
        details: Which rows or columns it is about, such as a condition; a digest of them is part of the operation.

    >>> operation("append", "T"), operation("append", 'main."t"'), operation("delete", '"my.schema".t')
    ('append main.t', 'append main.t', 'delete "my.schema".t')
    >>> operation("delete", "t", details=("a = 1",))
    'delete main.t #27f4e9d7c9f7209c'
    """
    try:
        called = folded(name if is_schema else join_name(*split_name(name)))
    except UsageError:
        # No name at all: the call itself refuses it, and says what it is about.
        called = name
    return f"{kind} {called}{_digest(details)}"


def _digest(details: tuple[object, ...]) -> str:
    """A short text that differs where the details do; nothing when there are none, or when they are nested too deeply to be written."""
    if all(detail is None for detail in details):
        return ""
    try:
        text = _ADDRESS.sub("", repr(details))
    except RecursionError:
        return ""
    return f" #{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:16]}"


def without_details(operation: str) -> str:
    """An operation by its kind and name alone.

    >>> without_details("delete main.t #8f2f1c7f7fe5dd2b"), without_details("delete main.t")
    ('delete main.t', 'delete main.t')
    """
    return _DIGEST.sub("", operation)


def fingerprint(operations: Collection[str]) -> list[str] | str:
    """The operations of a commit as they are stored.

    >>> fingerprint(["append main.t", "append main.t", "delete main.s"]), fingerprint([f"append main.t{i}" for i in range(17)])
    (['append main.t', 'delete main.s'], '17 operations 118f00b19524f010')
    """
    distinct = list(dict.fromkeys(operations))
    if len(distinct) <= MOST_NAMED:
        return distinct
    digest = hashlib.sha256("\n".join(sorted(distinct)).encode()).hexdigest()
    return f"{len(distinct)} operations {digest[:16]}"


def not_among(stored: object, operations: Sequence[str]) -> str | None:
    """Find an operation that a commit did not do, by its fingerprint; None when it did them all or does not say.

    Doing less is no difference: a block that makes a table only where it is missing does not make it again.

    >>> not_among(["append main.a"], ["append main.b"]), not_among(["create main.a", "append main.a"], ["append main.a"])
    ('append main.b', None)
    >>> not_among(None, ["append main.b"])
    """
    if isinstance(stored, list):
        # Earlier releases did not store the details.
        return next((one for one in operations if one not in stored and without_details(one) not in stored), None)
    distinct = len(set(operations))
    if isinstance(stored, str) and distinct >= _count(stored) and fingerprint(operations) != stored:
        return f"{distinct} operations"
    return None


def _count(stored: str) -> int:
    number = stored.partition(" ")[0]
    return int(number) if number.isdecimal() else 0
