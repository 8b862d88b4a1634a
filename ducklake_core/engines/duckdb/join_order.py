"""What DuckDB is told about tables that are joined, and what to do about filters of joins that it cannot give to a scan of Arrow data.

A join learns which keys its smaller side has, and DuckDB makes filters of them for the scan of the larger one: bounds, a list, and where
it expects at least as many rows on the larger side as the smaller one has, a Bloom filter. That one ends the query, as pyarrow has none
(issue 463 of duckdb-python). It comes when the first row is asked of the larger side, and so before the query has given any; then the
query is begun again in another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ducklake_core.engines.duckdb.relations import TableSource

_MOST_PLANNED_ROWS = 20_000_000
"""DuckDB makes five numbers for each of these rows, in two nanoseconds each; only proportions matter to the order of joins."""
Planned: TypeAlias = tuple[int | None, ...]


class FilterNotTakenError(Exception):
    """DuckDB has made a filter that no scan of Arrow data takes; ``told`` is what the user is told where there is no other way."""

    def __init__(self, told: BaseException) -> None:
        super().__init__(str(told))
        self.told = told


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to run a query.

    Attributes:
        planned: How many rows DuckDB is told that each table has, None for nothing.
        joins_filter: Whether joins make filters.
    """

    planned: Planned
    joins_filter: bool = True


def not_taken(problem: BaseException) -> bool:
    """Whether DuckDB says that a scan takes no such filter."""
    return "Pushdown Filter Type" in str(problem)


def ways(texts: Sequence[str], tables: Sequence[TableSource]) -> list[Way]:
    """The ways in which to try a query, in this order.

    Of two tables it is enough to know which is the larger one: Bloom filters are rare then, and other filters of joins are kept.

    Args:
        texts: The query, and the texts of views and macros.
        tables: What they may name.
    """
    return list(dict.fromkeys(_ways(texts, tables)))


def _ways(texts: Sequence[str], tables: Sequence[TableSource]) -> Iterator[Way]:
    nothing: Planned = (None,) * len(tables)
    # What is behind UNION ALL may be begun after the first rows were given.
    begins_at_once = not any("UNION" in text.upper() for text in texts)
    if sum(table.row_count is not None for table in tables) > 2:
        counts = _in_proportion(tables)
        if begins_at_once:
            yield Way(planned=counts)
        yield Way(planned=counts, joins_filter=False)
        return
    if begins_at_once:
        yield Way(planned=_ranks(tables))
    yield Way(planned=nothing)
    yield Way(planned=nothing, joins_filter=False)


def _in_proportion(tables: Sequence[TableSource]) -> Planned:
    """Row counts, in proportion where the largest is beyond what is worth it."""
    largest = max(table.row_count or 0 for table in tables)
    shrunk = max(largest / _MOST_PLANNED_ROWS, 1)
    return tuple(None if table.row_count is None else max(int(table.row_count / shrunk), 1) for table in tables)


def _ranks(tables: Sequence[TableSource]) -> Planned:
    """1 for the smallest table, 2 for the next larger one."""
    sizes = sorted({table.row_count for table in tables if table.row_count is not None})
    return tuple(None if table.row_count is None else sizes.index(table.row_count) + 1 for table in tables)
