"""Which rows of a batch are in a partition, by one of its keys."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.evaluate import column_of
from ducklake_core.format.expressions.scalars import KeyValue
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.layout.transforms import partition_arrays
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema


def has_key_value(wanted: KeyValue, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Whether the key of each row has the wanted value; never NULL."""
    field = Field(id=wanted.column.column_id, name=wanted.column.path[0], type=wanted.column.type)
    rows = pa.RecordBatch.from_arrays([column_of(wanted.column, batch)], names=[field.name])
    (texts,) = partition_arrays(PartitionSpec(fields=(wanted.key,)), Schema(columns=(field,)), rows)
    return texts.is_null() if wanted.text is None else pc.fill_null(pc.equal(texts, pa.scalar(wanted.text)), False)
