"""Any number of statements with the same columns as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select, union_all

# SQLite allows 500 terms in a compound SELECT, but terms may be compound themselves.
TERMS = 200
"""Statements that one UNION ALL joins."""


def all_of(queries: Sequence[Select[Any]]) -> Select[Any]:
    """One statement for the rows of any number (but none) of statements with the same columns."""
    level = list(queries)
    while len(level) > 1:
        parts = (union_all(*level[start : start + TERMS]).subquery() for start in range(0, len(level), TERMS))
        level = [select(part) for part in parts]
    return level[0]
