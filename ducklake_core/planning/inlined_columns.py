"""The columns of a plan's inlined rows that follow those of the table, by name."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import pyarrow as pa

from ducklake_core.format.types.schema import Schema

InlinedColumn: TypeAlias = Literal["rowid", "snapshot_id", "inlined_table", "file_index"]
_ORDER: tuple[InlinedColumn, ...] = ("rowid", "snapshot_id", "inlined_table", "file_index")


def inlined_column(rows: pa.Table, read_schema: Schema, name: InlinedColumn) -> pa.ChunkedArray[Any]:
    """One of the columns that follow the table's own in ``ScanPlan.inlined``.

    They are found by place, because a table may have columns of the same names::

        | columns of read_schema | rowid | snapshot_id | inlined_table | file_index |

    Args:
        rows: The inlined rows.
        read_schema: The columns of the table that were read.
        name: Which; ``file_index`` is there once the planner has numbered the rows.
    """
    return rows.column(len(read_schema) + _ORDER.index(name))
