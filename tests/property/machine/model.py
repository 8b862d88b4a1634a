"""What a lake holds, in plain Python: rows as tuples, and what each change makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

Row = tuple[int, str | None, int | None]
"""k, v, and n, which is None where the table has no such column."""

DEFAULT = 7


@dataclass(frozen=True, kw_only=True)
class TableModel:
    """Rows of one table, as a sorted multiset, and whether it has the column ``n``."""

    rows: tuple[Row, ...] = ()
    has_n: bool = False

    def visible(self) -> list[tuple[object, ...]]:
        """The rows with the columns that there are."""
        return sorted((row if self.has_n else row[:2] for row in self.rows), key=repr)

    def having(self, rows: Iterable[Row]) -> TableModel:
        return replace(self, rows=tuple(sorted(rows, key=repr)))

    def append(self, rows: Iterable[Row]) -> TableModel:
        """More rows; a frame has no column n, so that they get its default."""
        return self.having((*self.rows, *((k, v, DEFAULT if self.has_n else None) for k, v, _ in rows)))

    def delete(self, chosen: Callable[[Row], bool]) -> TableModel:
        return self.having(row for row in self.rows if not chosen(row))

    def update(self, chosen: Callable[[Row], bool]) -> TableModel:
        """The text gets an exclamation mark, and stays NULL where it is."""
        return self.having((k, v if v is None else v + "!", n) if chosen((k, v, n)) else (k, v, n) for k, v, n in self.rows)

    def upsert(self, rows: Iterable[Row]) -> TableModel:
        rows = list(rows)
        keys = {k for k, _, _ in rows}
        return self.delete(lambda row: row[0] in keys).append(rows)

    def merge(self, rows: Iterable[Row]) -> TableModel:
        """Matched rows take the text of the source, others of the source are inserted."""
        source = {k: v for k, v, _ in rows}
        known = {k for k, _, _ in self.rows}
        matched = self.having((k, source.get(k, v), n) for k, v, n in self.rows)
        return matched.append((k, v, None) for k, v in source.items() if k not in known)

    def add_n(self) -> TableModel:
        return replace(self, has_n=True).having((k, v, DEFAULT) for k, v, _ in self.rows)

    def drop_n(self) -> TableModel:
        return replace(self, has_n=False).having((k, v, None) for k, v, _ in self.rows)


@dataclass(frozen=True, kw_only=True)
class LakeModel:
    """Tables by name."""

    tables: Mapping[str, TableModel] = field(default_factory=dict)

    def having(self, name: str, table: TableModel | None) -> LakeModel:
        others = {key: value for key, value in self.tables.items() if key != name}
        return replace(self, tables=others if table is None else {**others, name: table})


def between(low: int, high: int) -> Callable[[Row], bool]:
    """Whether low <= k < high."""
    return lambda row: low <= row[0] < high


def frame(rows: Iterable[Row]) -> pa.Table:
    """Rows without n, as a writer gives them."""
    rows = list(rows)
    return pa.table({"k": pa.array([k for k, _, _ in rows], pa.int64()), "v": pa.array([v for _, v, _ in rows], pa.string())})
