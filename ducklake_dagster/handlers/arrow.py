"""Assets as pyarrow tables: no JVM anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ducklake_core.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from ducklake_core import Table
    from ducklake_dagster.slice_predicate import SlicePredicate


class ArrowHandler:
    """pyarrow.Table."""

    name = "arrow"

    def accepts(self, frame_type: type) -> bool:
        """Whether the type is pyarrow's Table."""
        return any(kind.__module__ == "pyarrow.lib" and kind.__name__ == "Table" for kind in frame_type.__mro__)

    def keep_inside(self, frame: pa.Table, predicate: SlicePredicate) -> pa.Table:
        """Rows for which the predicate is true."""
        inside: pa.Table = frame.filter(predicate.to_arrow())
        return inside

    def refuse_outside(self, frame: pa.Table, predicate: SlicePredicate, subject: str) -> pa.Table:
        """The table itself.

        Raises:
            UsageError: A row lies outside the slice.
        """
        outside = frame.num_rows - self.keep_inside(frame, predicate).num_rows
        if outside:
            raise UsageError(outside_text(subject, f"{outside} of {frame.num_rows} rows"), asset=subject)
        return frame

    def load(self, table: Table, columns: tuple[str, ...] | None, where: str | None, _session: Callable[[], Any]) -> pa.Table:
        """All rows, in memory."""
        return table.scan(columns, where).to_arrow()

    def empty(self, _session: Callable[[], Any]) -> pa.Table:
        """A table without columns."""
        import pyarrow as pa

        return pa.table({})


def outside_text(subject: str, which: str) -> str:
    """Why rows outside the run's partitions are refused."""
    return (
        f"asset {subject} returned {which} outside the partitions of this run: filter them, or set out_of_slice to 'filter' "
        "to have them left out"
    )
