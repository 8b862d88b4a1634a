"""The comparison itself: nothing that differs passes for the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.property.histories.comparison import differences, remember
from tests.support.oracle import attached, sqlite_lake

SAME = "SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, NULL UNION ALL SELECT 2, NULL"


@pytest.mark.parametrize(
    ("by_library", "by_duckdb", "found"),
    [
        (SAME, SAME, []),
        (f"{SAME} LIMIT 2", SAME, [(-1, "2", None)]),
        (f"{SAME} UNION ALL SELECT 1, 'x'", SAME, [(1, "1", "x")]),
        ("SELECT -0.0::DOUBLE AS a", "SELECT 0.0::DOUBLE AS a", [(-1, "0.0"), (1, "-0.0")]),
        ("SELECT 'nan'::DOUBLE AS a", "SELECT 'nan'::DOUBLE AS a", []),
        ("SELECT '' AS a", "SELECT NULL::VARCHAR AS a", [(-1, None), (1, "")]),
        ("SELECT [NULL::INTEGER] AS a", "SELECT []::INTEGER[] AS a", [(-1, "[]"), (1, "[NULL]")]),
        ("SELECT ['a, b'] AS a", "SELECT ['a', 'b'] AS a", [(-1, "[a, b]"), (1, "['a, b']")]),
        ("SELECT TIMESTAMP_NS '2024-01-01 00:00:00.000000001' AS a", "SELECT TIMESTAMP_NS '2024-01-01' AS a", None),
    ],
)
def test_differences(tmp_path: Path, by_library: str, by_duckdb: str, found: list[tuple[object, ...]] | None) -> None:
    with attached(sqlite_lake(tmp_path)) as duck:
        remember(duck, "mine", by_library)
        remember(duck, "other", by_duckdb)
        seen = differences(duck, "mine", "other")
        assert len(seen) == 2 if found is None else seen == found
        for name in ("mine", "other"):
            duck.connection.execute(f"DROP TABLE temp.main.{name}")
