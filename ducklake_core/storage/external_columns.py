"""The columns of a Parquet file that somebody else wrote, from its footer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core.format.types.arrow_types import ArrowType
from ducklake_core.format.types.data_types import (
    BLOB,
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    GEOMETRY,
    INT32,
    INT64,
    INTERVAL,
    JSON,
    PRIMITIVES,
    TIME,
    TIME_NS,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_NS,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
)

Unit: TypeAlias = Literal["ms", "us", "ns"]
_UNITS: dict[str, Unit] = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_PHYSICAL: dict[str, DataType] = {
    "BOOLEAN": BOOLEAN, "INT32": INT32, "INT64": INT64, "INT96": TIMESTAMP, "FLOAT": FLOAT32, "DOUBLE": FLOAT64,
    "BYTE_ARRAY": BLOB, "FIXED_LEN_BYTE_ARRAY": BLOB,
}  # fmt: skip
_LOCAL_TIMESTAMPS: dict[Unit, DataType] = {"ms": TIMESTAMP_MS, "us": TIMESTAMP, "ns": TIMESTAMP_NS}
_ANNOTATED: dict[str, DataType] = {
    "STRING": VARCHAR, "ENUM": VARCHAR, "JSON": JSON, "UUID": UUID, "DATE": DATE, "INTERVAL": INTERVAL, "GEOMETRY": GEOMETRY,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLeaf:
    """One leaf column as a file describes it.

    Attributes:
        position: Its number among all leaf columns.
        type: The type that DuckDB takes it for.
        unit: Unit of its times and timestamps.
        has_bounds: Whether the statistics of such columns can be read as values.
        never_null: Whether NULL cannot be in it.
    """

    position: int
    type: DataType
    unit: Unit | None = None
    has_bounds: bool = True
    never_null: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignColumn:
    """A column, or a node within one, of a file.

    Attributes:
        name: Its name; ``list``, ``key`` and ``value`` within lists and maps, whatever the file calls them.
        kind: Whether it is a leaf or what is made of its children.
        field_id: The Parquet field id, None where it has none.
        leaf: What is known of a leaf.
        children: Nodes below it.
    """

    name: str
    kind: Literal["leaf", "struct", "list", "map"]
    field_id: int | None = None
    leaf: ForeignLeaf | None = None
    children: tuple[ForeignColumn, ...] = ()


def external_columns(metadata: pq.FileMetaData) -> tuple[ForeignColumn, ...]:
    """All columns of a file, in its order."""
    leaves = (_leaf(metadata.schema.column(number), number) for number in range(metadata.num_columns))
    return tuple(_column(field, field.name, leaves) for field in metadata.schema.to_arrow_schema())


def _column(field: pa.Field[ArrowType], name: str, leaves: Iterator[ForeignLeaf]) -> ForeignColumn:
    """A node and its leaves, which come in the order of the tree."""
    arrow = field.type
    field_id = (field.metadata or {}).get(b"PARQUET:field_id")
    number = None if field_id is None else int(field_id)
    if pa.types.is_struct(arrow):
        children = tuple(_column(child, child.name, leaves) for child in arrow.fields)
        return ForeignColumn(name=name, kind="struct", field_id=number, children=children)
    if pa.types.is_map(arrow):
        key, value = _column(arrow.key_field, "key", leaves), _column(arrow.item_field, "value", leaves)
        return ForeignColumn(name=name, kind="map", field_id=number, children=(key, value))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return ForeignColumn(name=name, kind="list", field_id=number, children=(_column(arrow.value_field, "list", leaves),))
    return ForeignColumn(name=name, kind="leaf", field_id=number, leaf=next(leaves))


def _leaf(column: pq.ColumnSchema, position: int) -> ForeignLeaf:
    annotation = column.logical_type
    facts = json.loads(annotation.to_json())
    never_null = column.max_definition_level == 0
    kind = annotation.type
    data_type: DataType
    if kind == "TIMESTAMP":
        unit = _UNITS[facts["timeUnit"]]
        if facts.get("is_from_converted_type"):
            # Without a word on zones, as in files of old writers, DuckDB takes them for local ones.
            data_type = TIMESTAMP
        else:
            data_type = TIMESTAMPTZ if facts["isAdjustedToUTC"] else _LOCAL_TIMESTAMPS[unit]
        return ForeignLeaf(position=position, type=data_type, unit=unit, never_null=never_null)
    if kind == "TIME":
        unit = _UNITS[facts["timeUnit"]]
        return ForeignLeaf(position=position, type=TIME_NS if unit == "ns" else TIME, unit=unit, never_null=never_null)
    if kind == "DECIMAL":
        data_type = DecimalType(precision=facts["precision"], scale=facts["scale"])
    elif kind == "INT":
        data_type = PRIMITIVES[f"{'' if facts['isSigned'] else 'u'}int{facts['bitWidth']}"]
    else:
        data_type = _ANNOTATED.get(kind, _PHYSICAL[column.physical_type])
    has_bounds = column.physical_type != "INT96" and kind not in ("INTERVAL", "FLOAT16")
    return ForeignLeaf(position=position, type=data_type, has_bounds=has_bounds, never_null=never_null)
