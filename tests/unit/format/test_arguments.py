"""Checks of arguments return one form of several, and reject everything else with the parameter's name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from ducklake_core import col
from ducklake_core.errors import UsageError
from ducklake_core.format import arguments
from ducklake_core.format.types.names import storable

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
IN_TOKYO = datetime(2026, 1, 1, 21, tzinfo=timezone(timedelta(hours=9)))
CHECKS: list[tuple[Callable[[str, Any], Any], list[tuple[Any, Any]], list[Any]]] = [
    (storable, [("", ""), ("ä", "ä")], [None, 5, b"a", "a\0", "\ud800"]),
    (arguments.filled, [("a", "a")], ["", None, 5]),
    (arguments.flag, [(True, True), (False, False)], ["false", 0, None]),
    (arguments.names, [("ab", ("ab",)), (["a", "b"], ("a", "b")), ((), ())], [b"ab", {"ab": 1}, 1.5, [1.5], [None], None]),
    (arguments.paths, [("a/b", ("a/b",)), ([Path("a"), "b"], ("a", "b"))], ["", 5, [5], {"a": 1}]),
    (arguments.whole_number, [(5, 5), (-5, -5)], [True, 5.0, "5", 2**63, None]),
    (arguments.row_count, [(0, 0)], [-1, "1", True]),
    (arguments.whole_numbers, [(7, (7,)), ([1, 2], (1, 2))], ["7", [True], {7: 1}]),
    (arguments.seconds, [(0, 0), (1.5, 1.5)], [-1, "1", True, float("nan")]),
    (arguments.fraction, [(0, 0), (0.5, 0.5)], [2, -0.5, "0.5", True, float("nan")]),
    (arguments.option_value, [("1MB", "1MB"), (True, True), (7, 7), (0.5, 0.5)], [None, ["a"], 2**70, b"a"]),
    (arguments.mapping, [({"a": 1}, {"a": 1})], [[("a", 1)], {1: 2}, "a", None]),
    (arguments.names_by_key, [({"t": "ab", "u": ["a", "b"]}, {"t": ("ab",), "u": ("a", "b")})], [{"t": 1}, ["t"], {1: "a"}]),
    (arguments.time, [(IN_TOKYO, NOON)], [NOON.replace(tzinfo=None), NOON.date(), "soon"]),
    (arguments.snapshot, [(7, 7), (IN_TOKYO, NOON)], [True, "7", 7.0, NOON.replace(tzinfo=None), 2**70]),
    (arguments.age, [("7 days", timedelta(days=7)), (timedelta(0), timedelta(0))], [7, "soon", timedelta(days=-1), NOON, None]),
    (arguments.age_or_time, [(IN_TOKYO, NOON), ("1 hour", timedelta(hours=1))], [7, NOON.replace(tzinfo=None), True]),
    (arguments.condition, [("a > 5", "a > 5"), (col("a").is_null(), col("a").is_null())], [5, True, ["a"], b"a", "\ud800"]),
    (arguments.sql_condition, [("t.a = s.a", "t.a = s.a")], [col("a") > 5, 5]),
]


@pytest.mark.parametrize(("check", "right", "wrong"), CHECKS, ids=[check.__name__ for check, _, _ in CHECKS])
def test_right_values_are_returned_and_wrong_ones_raise(
    check: Callable[[str, Any], Any], right: list[tuple[Any, Any]], wrong: list[Any]
) -> None:
    for given, expected in right:
        found = check("parameter", given)
        assert (type(found), found) == (type(expected), expected)
    for given in wrong:
        with pytest.raises(UsageError) as caught:
            check("parameter", given)
        assert "parameter" in caught.value.message or "has no zone" in caught.value.message
    assert arguments.optional(check, "parameter", None) is None


def test_conditions_of_other_libraries_raise() -> None:
    import polars as pl

    with pytest.raises(UsageError, match=r"where is .*polars.*ducklake_core\.col"):
        arguments.condition("where", pl.col("a") > 5)


def test_choices_are_listed() -> None:
    assert arguments.choice("columns", "now", ("now", "then")) == "now"
    for wrong in ("never", 5, ["now"], None):
        with pytest.raises(UsageError, match="columns must be 'now' or 'then'"):
            arguments.choice("columns", wrong, ("now", "then"))


def test_commit_options_are_checked_by_name_and_type() -> None:
    arguments.check_commit({"author": "me", "message": None, "extra_info": {"run": 7}, "commit_id": "c-1"})
    for wrong in ({"author": 5}, {"message": "a\0"}, {"extra_info": 5}, {"extra_info": {1: 2}}, {"commit_id": ""}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            arguments.check_commit(wrong)
    with pytest.raises(UsageError, match=r"Unexpected argument 'aut'\. Commit options are author, message, extra_info and commit_id"):
        arguments.check_commit({"aut": "me"})
    with pytest.raises(UsageError, match=r"Unexpected argument 'commit_id'\. Commit options are author, message and extra_info"):
        arguments.check_commit({"commit_id": "c-1"}, arguments.COMMIT_MESSAGE)
