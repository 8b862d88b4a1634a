"""Checks of what surrounds tables: holds, running writes, paths, comments, views and macros."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

from ducklake_core.catalog.reading.holds import HOLD_PREFIX, Hold, parse_hold
from ducklake_core.catalog.reading.running_writes import WRITE_PREFIX, parse_running_write
from ducklake_core.catalog.reading.views import COLUMN_ALIASES
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, is_live
from ducklake_core.maintenance.check.macros import check_macros

_COMMENTS = {"tag": ("object_id", "key"), "column_tag": ("table_id", "column_id", "key")}
_OWN_ROWS: tuple[tuple[str, Callable[[str, str], object], str], ...] = (
    (HOLD_PREFIX, parse_hold, "hold-invalid"),
    (WRITE_PREFIX, parse_running_write, "running-write-invalid"),
)


def check_objects(facts: Facts) -> None:
    """Everything about them, but names and lifetimes."""
    _own_rows(facts)
    _paths(facts)
    _comments(facts)
    _views(facts)
    check_macros(facts)


def _own_rows(facts: Facts) -> None:
    for row in facts.every.rows("metadata"):
        for prefix, parse, code in _OWN_ROWS:
            if row.key.startswith(prefix):
                try:
                    parse(row.key, row.value)
                except CatalogCorruptError as error:
                    facts.report(code, error.message)
    _holds_of_nothing(facts)


def _holds_of_nothing(facts: Facts) -> None:
    """Holds that count and whose snapshot is gone. Once a hold has ended our own expiry takes its snapshot."""
    held: list[Hold] = []
    for row in facts.every.rows("metadata"):
        if row.key.startswith(HOLD_PREFIX):
            with suppress(CatalogCorruptError):
                held.append(parse_hold(row.key, row.value))
    there = set(facts.snapshot_ids)
    gone = [hold for hold in held if hold.snapshot_id not in there]
    now = facts.now() if gone else None
    for hold in gone:
        if now is not None and not hold.is_over(now):
            why = "was never committed" if hold.snapshot_id > facts.newest else "is not there any more"
            facts.report("hold-of-no-snapshot", f"the hold {hold.name!r} keeps nothing: snapshot {hold.snapshot_id} {why}")


def _paths(facts: Facts) -> None:
    for name in ("schema", "table"):
        for row in facts.every.rows(name):
            missing = [cell for cell in ("path", "path_is_relative") if getattr(row, cell) is None]
            if missing and is_live(row, facts.newest):
                table = facts.tables.get(row.table_id) if name == "table" else None
                facts.report("cell-missing", f"ducklake_{name} ({row._fields[0]} {row[0]}): no {' and no '.join(missing)}", table=table)


def _comments(facts: Facts) -> None:
    for name, key in _COMMENTS.items():
        live = (row for row in facts.every.rows(name) if row.begin_snapshot is not None and is_live(row, facts.newest))
        for one, number in Counter(tuple(getattr(row, cell) for cell in key) for row in live).items():
            if number > 1:
                what = ", ".join(f"{cell} {value!r}" for cell, value in zip(key, one, strict=True))
                facts.report("comment-twice", f"ducklake_{name} has {number} live rows of {what}")


def _views(facts: Facts) -> None:
    for row in _live(facts, "view"):
        if row.column_aliases and not COLUMN_ALIASES.fullmatch(row.column_aliases):
            facts.report("view-invalid", f"view {row.view_name!r} has the column names {row.column_aliases!r}")


def _live(facts: Facts, name: str) -> Iterable[CatalogRow]:
    return [row for row in facts.every.rows(name) if row.begin_snapshot is not None and is_live(row, facts.newest)]
