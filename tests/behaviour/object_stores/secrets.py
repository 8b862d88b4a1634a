"""Check that a store's credentials appear in no message, log or plan."""

from __future__ import annotations

from tests.support.object_stores import WRONG, ObjectStore

__all__ = ["WRONG", "assert_secretless", "chain"]


def assert_secretless(store: ObjectStore, *strings: object) -> None:
    for text in strings:
        shown = f"{text} {text!r}"
        assert [secret for secret in store.secrets if secret in shown] == []


def chain(error: BaseException) -> list[object]:
    seen: list[object] = []
    at: BaseException | None = error
    while at is not None:
        seen += [at, *at.args]
        at = at.__cause__ or at.__context__
    return seen
