"""Partition values of files, against what the statistics of their columns tell of the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.files.locations import printable
from ducklake_core.format.files.partitioning import EPOCH_TRANSFORMS, PartitionField, PartitionSpec, parse_transform
from ducklake_core.format.files.statistics import BOUND_BYTES
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.data_types import FLOATS, TIMESTAMPTZ, Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.format.values.value_text import from_text, to_cast_text
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, TableFacts


class PartitionValues:
    """The values of every file's partition keys.

    Args:
        facts: The catalog.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._keys: dict[int, list[CatalogRow]] = defaultdict(list)
        for row in facts.every.rows("partition_column"):
            self._keys[row.partition_id].append(row)
        self._values: dict[int, dict[int, str | None]] = defaultdict(dict)
        for row in facts.every.rows("file_partition_value"):
            self._values[row.data_file_id][row.partition_key_index] = row.partition_value

    def check(self, table: TableFacts, data: CatalogRow, statistics: Mapping[int, tuple[CatalogRow, Field]]) -> None:
        """Report the keys of a file of which the statistics say another value.

        Args:
            table: Its table.
            data: The file.
            statistics: Usable statistics of its columns by id, with the column as it was then.
        """
        for key in self._keys.get(data.partition_id, ()) if data.partition_id is not None else ():
            values = self._values.get(data.data_file_id, {})
            if key.partition_key_index in values and key.column_id in statistics:
                self._one(table, data, key, values[key.partition_key_index], *statistics[key.column_id])

    def _one(self, table: TableFacts, data: CatalogRow, key: CatalogRow, value: str | None, row: CatalogRow, leaf: Field) -> None:
        try:
            expected = expected_values(key.transform, leaf, row)
        except (DuckLakeError, ValueError, ArithmeticError, pa.ArrowException):
            return
        if expected is not None and value not in expected:
            wanted = " or ".join(map(repr, sorted(expected, key=str)))
            what = f"data file {data.data_file_id} is in {key.transform} of {leaf.name!r} {value!r}, its statistics say {wanted}"
            path = printable(self._facts.path_of(data))
            self._facts.report("partition-values-wrong", what, table=table, path=path, data_file_id=data.data_file_id, column_id=leaf.id)


def expected_values(transform: str, leaf: Field, row: CatalogRow) -> set[str | None] | None:
    """Values that a partition key can have by the statistics of its column; None when they do not tell."""
    name, buckets = parse_transform(transform)
    # DuckDB takes parts of the calendar in the zone of its session.
    if leaf.type in FLOATS or (name in ("year", "month", "day", "hour") and leaf.type == TIMESTAMPTZ):
        return None
    if row.value_count == 0 and row.null_count:
        return {None}
    if not row.value_count or row.min_value is None or row.max_value is None or len(row.min_value.encode()) >= BOUND_BYTES - 8:
        return None
    if row.null_count:
        # NULL and a value in one file: no single value is right, but which is wrong is not known.
        return set()
    low, high = (transformed(name, buckets, leaf, text) for text in (row.min_value, row.max_value))
    if row.min_value == row.max_value or name == "year" or name in EPOCH_TRANSFORMS:
        return {low} if low == high else set()
    return set() if name == "identity" else None


def transformed(name: str, buckets: int | None, leaf: Field, text: str) -> str | None:
    """The value of a partition key for a value as statistics have it."""
    column = replace(leaf, nullable=True, name="c")
    key = PartitionField(column_id=leaf.id, column="c", transform=name, buckets=buckets)  # type: ignore[arg-type]
    value = constant_array(to_cast_text(from_text(text, leaf.type), leaf.type), column, 1)
    batch = pa.RecordBatch.from_arrays([value], names=["c"])
    found = partition_arrays(PartitionSpec(fields=(key,)), Schema(columns=(column,)), batch)[0][0].as_py()
    return found if found is None else str(found)
