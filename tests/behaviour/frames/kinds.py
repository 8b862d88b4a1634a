"""The same rows as every kind of frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import nanoarrow
import pandas as pd
import polars as pl
import pyarrow as pa

from ducklake_core.format.types.data_types import (  # fmt: skip
    DATE,
    INT128,
    INTEGERS,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMP_MS,
    TIMESTAMP_S,
    TIMESTAMPTZ,
    UINT128,
    DataType,
)


class OldPandas(pd.DataFrame):  # type: ignore[misc]
    """A pandas DataFrame as it was before it gave Arrow streams."""

    @property
    def __arrow_c_stream__(self) -> Any:
        raise AttributeError("__arrow_c_stream__")


class Batch:
    """Rows of a library that knows the protocol for arrays only."""

    def __init__(self, table: pa.Table) -> None:
        self._batch = pa.Table.to_batches(table.combine_chunks())[0]

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


class Stream:
    """Rows of a library that knows the protocol for streams only, once."""

    def __init__(self, table: pa.Table) -> None:
        self._reader: pa.RecordBatchReader | None = table.to_reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        reader, self._reader = self._reader, None
        if reader is None:
            raise ValueError("the stream was read already")
        return reader.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of frame.

    Attributes:
        name: For messages.
        make: The frame of an Arrow table.
        lacks: Types with samples that the library cannot hold.
        no_null: Types that have no NULL.
    """

    name: str
    make: Callable[[pa.Table], Any]
    lacks: tuple[DataType, ...] = ()
    no_null: tuple[DataType, ...] = ()

    def __str__(self) -> str:
        return self.name


def _dicts(table: pa.Table) -> list[dict[str, object]]:
    """DuckDB gives its largest integers as decimals; Python has integers for them."""

    def plain(value: object) -> object:
        return int(value) if isinstance(value, Decimal) and value.as_tuple().exponent == 0 else value

    return [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]


# 24:00:00 is NULL in polars.
# Of dates and times Python has those of the years 1 to 9999; pandas keeps larger decimals than Arrow's as objects.
_OF_PANDAS = (DATE, TIME, INT128, UINT128)
_OF_PYTHON = (DATE, TIME, TIMESTAMP, TIMESTAMP_S, TIMESTAMP_MS, TIMESTAMPTZ)

KINDS = (
    Kind(name="pyarrow Table", make=lambda table: table),
    Kind(name="pyarrow RecordBatch", make=lambda table: table.combine_chunks().to_batches()[0]),
    Kind(name="pyarrow RecordBatchReader", make=pa.Table.to_reader),
    Kind(name="array protocol", make=Batch),
    Kind(name="stream protocol", make=Stream),
    Kind(name="nanoarrow", make=nanoarrow.ArrayStream),
    Kind(name="polars DataFrame", make=pl.from_arrow, lacks=(INTERVAL, TIME)),
    Kind(name="pandas DataFrame of Arrow types", make=lambda table: table.to_pandas(types_mapper=pd.ArrowDtype)),
    Kind(name="pandas DataFrame", make=pa.Table.to_pandas, lacks=_OF_PANDAS, no_null=INTEGERS),
    Kind(name="old pandas DataFrame", make=lambda table: OldPandas(table.to_pandas()), lacks=_OF_PANDAS, no_null=INTEGERS),
    Kind(name="DuckDB relation", make=lambda table: duckdb.connect().from_arrow(table)),
    Kind(name="list of dicts", make=_dicts, lacks=_OF_PYTHON),
)
