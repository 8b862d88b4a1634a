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
from ducklake_core.format.state import Snapshot
from ducklake_core.format.types.names import folded, join_name, split_name, storable
from ducklake_core.format.types.text import shown

COMMIT_ID_KEY = "commit_id"
WRITER_KEY = "commit_writer"
OPERATION_KEY = "commit_operation"
DEEPEST = 100
"""Nesting of what a commit stores as JSON, so that the commit's id can be read again at any depth of a program's stack."""
Lookup: TypeAlias = Literal["definition", "matches", "rows"]
"""The parts of a table that a transaction has read to decide what to do: its definition; rows that match something, so that new rows
matter; or which rows there are at all, so that deleted rows matter too."""

MAX_NAMED = 16
"""More operations than these are kept as one digest."""
_DIGEST = re.compile(r" #[0-9a-f]{16}\Z")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class CommitMessage(TypedDict, total=False):
    """What is said about a snapshot.

    Attributes:
        author: Who made it.
        message: Why.
        extra_info: A mapping, stored as JSON beside the commit id, or a text.
    """

    author: str | None
    message: str | None
    extra_info: str | Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Everything that one commit needs.

    Attributes:
        base: The snapshot that the actions were planned on.
        actions: What to do, in the order it was asked for.
        commit_id: Identifies this commit for ever; found again in ``commit_extra_info``.
        names: ``schema.table`` of the existing tables that the actions name by id, for messages.
        lookups: What was looked at in existing tables, whether or not anything to do was found there, by the table's id.
        takes_all: Whether it is about everything in the lake, so that whatever others have committed is in the way.
        writer: Identifies this very run of the commit, where the commit id was given from outside and several runs may
            carry it; None otherwise.
        assumed_options: The lake's options when the base was seen, where that was before the call: then definitions and options must
            still be those.
        author: Stored with the snapshot, as are ``message`` and ``extra_info`` (the stored text, commit id included).
    """

    base: Snapshot
    actions: tuple[Action, ...]
    commit_id: str
    names: Mapping[int, str] = field(default_factory=dict)
    lookups: Mapping[int, frozenset[Lookup]] = field(default_factory=dict)
    takes_all: bool = False
    writer: str | None = None
    assumed_options: StoredOptions | None = None
    author: str | None = None
    message: str | None = None
    extra_info: str | None = None


def new_commit_id() -> str:
    """A new random commit id."""
    return str(uuid.uuid4())


def checked_commit_id(commit_id: object) -> str:
    """A commit id from outside.

    Raises:
        UsageError: It is no text, or an empty one.
    """
    if not isinstance(commit_id, str) or not commit_id.strip():
        raise UsageError(
            f"a commit id is a text that no other write has, not {shown(commit_id)}; leave it out where a repeated write does no harm"
        )
    return storable("commit_id", commit_id)


def stored_extra_info(
    commit_id: str,
    extra_info: str | Mapping[str, object] | None = None,
    *,
    writer: str | None = None,
    operations: Collection[str] = (),
) -> str:
    """The text stored in ``commit_extra_info``: a JSON object of the commit id, writer and operations if any, and what the user says.

    A text that is a JSON object is merged, any other text goes below ``extra_info``.

    >>> stored_extra_info("c1", {"run": 7}), stored_extra_info("c1", '{"run": 7}'), stored_extra_info("c1", "by hand")
    ('{"commit_id": "c1", "run": 7}', '{"commit_id": "c1", "run": 7}', '{"commit_id": "c1", "extra_info": "by hand"}')

    Raises:
        UsageError: ``extra_info`` has a ``commit_id`` of its own, or another key that is kept for commits, or values that are not
            JSON, or that are nested too deeply.
    """
    given: Mapping[str, object] = {}
    if isinstance(extra_info, str):
        parsed = _json_object(extra_info)
        is_object = parsed is not None and _nests_within(parsed, DEEPEST)
        given = parsed if parsed is not None and is_object else {"extra_info": extra_info}
    elif extra_info is not None:
        given = extra_info
    if given.get(COMMIT_ID_KEY, commit_id) != commit_id:
        raise UsageError(f"extra_info has a {COMMIT_ID_KEY!r} of its own; give it as the argument commit_id instead")
    if not _nests_within(given, DEEPEST):
        raise UsageError(
            f"extra_info is nested more than {DEEPEST} levels deep, which not every reader of JSON can read", parameter="extra_info"
        )
    # Who takes another writer's name for its own, or its own for another's, deletes files of the lake.
    taken = next((key for key in (WRITER_KEY, OPERATION_KEY) if key in given), None)
    if taken is not None:
        raise UsageError(
            f"extra_info has the key {taken!r}, which this library keeps for itself: call it something else", parameter="extra_info"
        )
    own: dict[str, object] = {COMMIT_ID_KEY: commit_id}
    if writer:
        own[WRITER_KEY] = writer
    if operations:
        own[OPERATION_KEY] = fingerprint(operations)
    try:
        text = json.dumps(own | dict(given), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"extra_info cannot be stored as JSON: {error}", parameter="extra_info") from error
    return text


def commit_id_of(extra_info: str | None) -> str | None:
    """The commit id in a ``commit_extra_info`` text, None when there is none.

    >>> commit_id_of('{"commit_id": "c1", "run": 7}'), commit_id_of("by hand"), commit_id_of(None)
    ('c1', None, None)
    """
    return _text_in(extra_info, COMMIT_ID_KEY)


def writer_of(extra_info: str | None) -> str | None:
    """The writer in a ``commit_extra_info`` text, None when there is none."""
    return _text_in(extra_info, WRITER_KEY)


def other_operation(extra_info: str | None, operations: Sequence[str]) -> str | None:
    """Find an operation that the commit with this ``commit_extra_info`` text did not do; None when it did them all or does not say."""
    return not_among((_json_object(extra_info) or {}).get(OPERATION_KEY), operations) if extra_info else None


def search_text(commit_id: str) -> str:
    """A text that the stored text of a commit with this id surely contains."""
    return json.dumps(commit_id, ensure_ascii=False)


def _text_in(extra_info: str | None, key: str) -> str | None:
    found = (_json_object(extra_info) or {}).get(key) if extra_info else None
    return found if isinstance(found, str) else None


def _json_object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # Anybody may have written it: what cannot be read is no object of ours.
        return None
    return value if isinstance(value, dict) else None


def _nests_within(value: object, limit: int) -> bool:
    """Whether lists and mappings are nested no deeper than a limit."""
    level: dict[int, object] = {0: value}
    for _ in range(limit + 1):
        # Each once: something that holds itself twice would otherwise grow without end.
        level = {id(item): item for one in level.values() for item in _items(one)}
        if not level:
            return True
    return False


def _items(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


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
    if len(distinct) <= MAX_NAMED:
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
