"""A transaction as data: staged actions, the snapshot they were planned on, and what is said about the commit."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from ducklake_core.catalog.state import Snapshot
from ducklake_core.commit.actions import Action
from ducklake_core.errors import UsageError

COMMIT_ID_KEY = "commit_id"
WRITER_KEY = "writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTransaction:
    """Everything that one commit needs.

    Attributes:
        base: The snapshot that the actions were planned on.
        actions: What to do, in the order it was asked for.
        commit_id: Identifies this commit for ever; found again in ``commit_extra_info``.
        names: ``schema.table`` of the existing tables that the actions name by id, for messages.
        writer: Identifies this very run of the commit, where the commit id was given from outside and several runs may
            carry it; None otherwise.
        author: Stored with the snapshot, as are ``message`` and ``extra_info`` (the stored text, commit id included).
    """

    base: Snapshot
    actions: tuple[Action, ...]
    commit_id: str
    names: Mapping[int, str] = field(default_factory=dict)
    writer: str | None = None
    author: str | None = None
    message: str | None = None
    extra_info: str | None = None


def new_commit_id() -> str:
    """A new random commit id."""
    return str(uuid.uuid4())


def stored_extra_info(commit_id: str, extra_info: str | Mapping[str, object] | None = None, *, writer: str | None = None) -> str:
    """The text stored in ``commit_extra_info``: a JSON object of the commit id, the writer if any, and what the user says.

    A text that is a JSON object is merged, any other text goes below ``extra_info``.

    >>> stored_extra_info("c1", {"run": 7}), stored_extra_info("c1", '{"run": 7}'), stored_extra_info("c1", "by hand")
    ('{"commit_id": "c1", "run": 7}', '{"commit_id": "c1", "run": 7}', '{"commit_id": "c1", "extra_info": "by hand"}')

    Raises:
        UsageError: ``extra_info`` has a ``commit_id`` of its own, or values that are not JSON.
    """
    given: Mapping[str, object] = {}
    if isinstance(extra_info, str):
        parsed = _json_object(extra_info)
        given = {"extra_info": extra_info} if parsed is None else parsed
    elif extra_info is not None:
        given = extra_info
    if given.get(COMMIT_ID_KEY, commit_id) != commit_id:
        raise UsageError(f"extra_info has a {COMMIT_ID_KEY!r} of its own; give it as the argument commit_id instead")
    try:
        return json.dumps({COMMIT_ID_KEY: commit_id} | ({WRITER_KEY: writer} if writer else {}) | dict(given), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"extra_info cannot be stored as JSON: {error}") from error


def commit_id_of(extra_info: str | None) -> str | None:
    """The commit id in a ``commit_extra_info`` text, None when there is none.

    >>> commit_id_of('{"commit_id": "c1", "run": 7}'), commit_id_of("by hand"), commit_id_of(None)
    ('c1', None, None)
    """
    return _text_in(extra_info, COMMIT_ID_KEY)


def writer_of(extra_info: str | None) -> str | None:
    """The writer in a ``commit_extra_info`` text, None when there is none."""
    return _text_in(extra_info, WRITER_KEY)


def search_text(commit_id: str) -> str:
    """What the stored text of a commit with this id surely contains."""
    return json.dumps(commit_id, ensure_ascii=False)


def _text_in(extra_info: str | None, key: str) -> str | None:
    found = (_json_object(extra_info) or {}).get(key) if extra_info else None
    return found if isinstance(found, str) else None


def _json_object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
