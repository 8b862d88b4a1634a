"""A transaction as data: staged actions, base snapshot, commit message and the fingerprint of its operations."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypedDict

from ducklake_core.catalog.reading.options import StoredOptions
from ducklake_core.commit.actions import Action
from ducklake_core.errors import UsageError
from ducklake_core.format.changes import COMMIT_ID_KEY, WRITER_KEY, json_object
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.names import folded, join_name, split_name, storable
from ducklake_core.format.types.text import shown

OPERATION_KEY = "commit_operation"
DEEPEST = 100
"""Maximum nesting of what a commit stores as JSON. The parser recurses: deeper JSON could not be read again from a deep stack."""
Lookup: TypeAlias = Literal["definition", "matches", "rows"]
"""The part of a table that a transaction has read to decide what to do: ``definition``; ``matches``, rows that match a condition, so that
new rows matter; or ``rows``, the set of all rows, so that deleted rows matter too."""

MAX_NAMED = 16
"""Maximum number of operations that are stored by name; more are stored as one digest."""
_DIGEST = re.compile(r" #[0-9a-f]{16}\Z")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class CommitMessage(TypedDict, total=False):
    """Author, message and extra information of a snapshot.

    Attributes:
        author: Author of the commit.
        message: Commit message.
        extra_info: A mapping, stored as JSON next to the commit id, or a string.
    """

    author: str | None
    message: str | None
    extra_info: str | Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Everything that one commit needs.

    Attributes:
        base: The snapshot that the actions were planned on.
        actions: Changes, in the order of the calls that made them.
        commit_id: Identifies this commit permanently; stored in ``commit_extra_info``.
        names: ``schema.table`` of the existing tables that the actions name by id, for messages.
        lookups: Parts of existing tables that were read, whether or not they led to an action, by the table's id.
        overwrites_all: Whether it depends on everything in the lake, so that any other commit since the base is a conflict.
        writer: Identifies this run of the commit when the caller chose the commit id, because several runs may carry the same id; None
            otherwise.
        assumed_options: The lake's options when the base was read, if that was before the call; definitions and options must be unchanged
            then. None when the call read the base itself.
        author: Stored with the snapshot, as are ``message`` and ``extra_info`` (the stored JSON string, commit id included).
    """

    base: Snapshot
    actions: tuple[Action, ...]
    commit_id: str
    names: Mapping[int, str] = field(default_factory=dict)
    lookups: Mapping[int, frozenset[Lookup]] = field(default_factory=dict)
    overwrites_all: bool = False
    writer: str | None = None
    assumed_options: StoredOptions | None = None
    author: str | None = None
    message: str | None = None
    extra_info: str | None = None


def new_commit_id() -> str:
    """Return a new random commit id."""
    return str(uuid.uuid4())


def checked_commit_id(commit_id: object) -> str:
    """Return a commit id that the caller chose, after checking it.

    Raises:
        UsageError: It is not a string, or an empty one.
    """
    if not isinstance(commit_id, str) or not commit_id.strip():
        raise UsageError(
            f"commit_id must be a non-empty string that no other write uses, not {shown(commit_id)}. Remove it if a repeated "
            "write does no harm"
        )
    return storable("commit_id", commit_id)


def stored_extra_info(
    commit_id: str,
    extra_info: str | Mapping[str, object] | None = None,
    *,
    writer: str | None = None,
    operations: Collection[str] = (),
) -> str:
    """Return the string stored in ``commit_extra_info``: a JSON object of the commit id, writer, operations and the caller's own keys.

    A string that is a JSON object is merged; any other string is stored under the key ``extra_info``.

    Args:
        commit_id: Id of the commit.
        extra_info: Information from the caller; None for none.
        writer: Id of this run of the commit; None when the commit id is random.
        operations: Operations of the commit, see :func:`operation`; stored as a fingerprint.

    >>> stored_extra_info("c1", {"run": 7}), stored_extra_info("c1", '{"run": 7}'), stored_extra_info("c1", "by hand")
    ('{"commit_id": "c1", "run": 7}', '{"commit_id": "c1", "run": 7}', '{"commit_id": "c1", "extra_info": "by hand"}')

    Raises:
        UsageError: ``extra_info`` contains another ``commit_id``, a reserved key, values that are not JSON, or too many levels.
    """
    given: Mapping[str, object] = {}
    if isinstance(extra_info, str):
        parsed = json_object(extra_info)
        is_object = parsed is not None and _nests_within(parsed, DEEPEST)
        given = parsed if parsed is not None and is_object else {"extra_info": extra_info}
    elif extra_info is not None:
        given = extra_info
    if given.get(COMMIT_ID_KEY, commit_id) != commit_id:
        raise UsageError(f"extra_info contains the key {COMMIT_ID_KEY!r}. Pass it as the argument commit_id instead")
    if not _nests_within(given, DEEPEST):
        raise UsageError(
            f"extra_info is nested more than {DEEPEST} levels deep, which not every JSON parser can read. Flatten it",
            parameter="extra_info",
        )
    # A forged writer would make a run mistake the commit of another run for its own, or the reverse: it would then keep or delete the
    # wrong files.
    taken = next((key for key in (WRITER_KEY, OPERATION_KEY) if key in given), None)
    if taken is not None:
        raise UsageError(f"extra_info contains the key {taken!r}, which is reserved. Rename it", parameter="extra_info")
    own: dict[str, object] = {COMMIT_ID_KEY: commit_id}
    if writer:
        own[WRITER_KEY] = writer
    if operations:
        own[OPERATION_KEY] = fingerprint(operations)
    try:
        text = json.dumps(own | dict(given), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"extra_info cannot be stored as JSON: {error}. Use strings, numbers, booleans, lists and mappings", parameter="extra_info"
        ) from error
    return text


def other_operation(extra_info: str | None, operations: Sequence[str]) -> str | None:
    """Return an operation that the commit with this ``commit_extra_info`` did not do; None when it did all or stored none."""
    return not_among((json_object(extra_info) or {}).get(OPERATION_KEY), operations) if extra_info else None


def search_text(commit_id: str) -> str:
    """Return a string that every stored ``commit_extra_info`` with this commit id contains, to search for in SQL."""
    return json.dumps(commit_id, ensure_ascii=False)


def _nests_within(value: object, limit: int) -> bool:
    """Return whether lists and mappings are nested no deeper than a limit. Iterates, because recursion is what the limit protects."""
    level: dict[int, object] = {0: value}
    for _ in range(limit + 1):
        # Each object once per level: a list that contains itself twice would otherwise double at every level.
        level = {id(item): item for one in level.values() for item in _items(one)}
        if not level:
            return True
    return False


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def operation(kind: str, name: str, *, is_schema: bool = False, details: tuple[object, ...] = ()) -> str:
    """Return one operation of a call as a string, with the name normalized, so that every spelling of it gives the same string.

    Args:
        kind: Kind of the operation, such as ``append``.
        name: Name of the table or schema, as the caller wrote it; empty for the lake.
        is_schema: Whether ``name`` names a schema; default False.
        details: Rows or columns that it affects, such as a condition; a digest of them is part of the operation. Default none.

    >>> operation("append", "T"), operation("append", 'main."t"'), operation("delete", '"my.schema".t')
    ('append main.t', 'append main.t', 'delete "my.schema".t')
    >>> operation("delete", "t", details=("a = 1",))
    'delete main.t #27f4e9d7c9f7209c'
    >>> operation("set option", "", is_schema=True)
    'set option'
    """
    try:
        called = folded(name if is_schema else join_name(*split_name(name)))
    except UsageError:
        # Not a valid name: the call itself rejects it, with a better message.
        called = name
    # Work on the whole lake has no name.
    return f"{kind} {called}".rstrip() + _digest(details)


def _digest(details: tuple[object, ...]) -> str:
    """Return a short string that differs when the details differ; empty when there are none, or when they are nested too deeply."""
    if all(detail is None for detail in details):
        return ""
    try:
        # The default repr of an object contains its address, which differs in every process.
        text = _ADDRESS.sub("", repr(details))
    except RecursionError:
        return ""
    return f" #{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:16]}"


def without_details(operation: str) -> str:
    """Return an operation with its kind and name only.

    >>> without_details("delete main.t #8f2f1c7f7fe5dd2b"), without_details("delete main.t")
    ('delete main.t', 'delete main.t')
    """
    return _DIGEST.sub("", operation)


def fingerprint(operations: Collection[str]) -> list[str] | str:
    """Return the operations of a commit as they are stored.

    >>> fingerprint(["append main.t", "append main.t", "delete main.s"]), fingerprint([f"append main.t{i}" for i in range(17)])
    (['append main.t', 'delete main.s'], '17 operations 118f00b19524f010')
    """
    distinct = list(dict.fromkeys(operations))
    if len(distinct) <= MAX_NAMED:
        return distinct
    digest = hashlib.sha256("\n".join(sorted(distinct)).encode()).hexdigest()
    return f"{len(distinct)} operations {digest[:16]}"


def not_among(stored: object, operations: Sequence[str]) -> str | None:
    """Return an operation that a commit did not do, by its stored fingerprint; None when it did all or stored none.

    Fewer operations than stored are not a difference: a repeated block that creates a table only if it is missing does not create it again.

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
