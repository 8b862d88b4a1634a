"""Writes a stream that is larger than the memory it may take, in a process of its own; prints how much the process grew, in MB."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ducklake_core import DuckLake

BATCHES = 60
ROWS = 262_144
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.float64())])
"""6 MB a batch, 380 MB in all."""


class OneBatchAtATime:
    """A library's stream: nothing but ``__arrow_c_stream__``."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(SCHEMA, batches()).__arrow_c_stream__(requested_schema)


def batches() -> Iterator[pa.RecordBatch]:
    for number in range(BATCHES):
        start = number * ROWS
        k = np.arange(start, start + ROWS)
        yield pa.RecordBatch.from_arrays([pa.array(k), pa.array(k % 1000), pa.array((k % 7).astype(float))], schema=SCHEMA)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(url: str, data_path: str, operation: str) -> None:
    lake = DuckLake.create(url, data_path=data_path)
    lake.create_table("t", {"k": "int64", "v": "int32", "w": "float64"})
    # All that is loaded on first use is there before memory is counted.
    lake.table("t").append(next(batches()).slice(0, 100_000))
    before = peak()
    rows = OneBatchAtATime() if operation == "overwrite" else pa.RecordBatchReader.from_batches(SCHEMA, batches())
    if operation == "create_table_as":
        lake.create_table_as("t", rows, or_replace=True)
    else:
        lake.write("t", rows, mode=operation)
    print(peak() - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
