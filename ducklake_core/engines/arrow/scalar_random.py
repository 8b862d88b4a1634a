"""Functions that give every row a value of its own."""

from __future__ import annotations

import os
import time

import numpy as np
import pyarrow as pa

from ducklake_core.engines.arrow.scalar_values import TypedArray
from ducklake_core.format.types.data_types import FLOAT64, UUID
from ducklake_core.format.values.leaf_cast import cast_leaf

FUNCTIONS = frozenset({"uuid", "uuidv7", "random"})


def random_values(function: str, rows: int) -> TypedArray:
    """Values of ``uuid()`` (version 4), ``uuidv7()`` or ``random()`` (from 0 to below 1).

    >>> values = random_values("uuid", 3).array
    >>> len(set(values.to_pylist()))
    3
    """
    if function == "random":
        whole = np.frombuffer(os.urandom(8 * rows), np.uint64) >> np.uint64(11)
        return TypedArray(pa.array(whole * 2.0**-53), FLOAT64)
    ids = np.frombuffer(bytearray(os.urandom(16 * rows)), np.uint8).reshape(rows, 16)
    if function == "uuidv7":
        ids[:, :6] = np.frombuffer((time.time_ns() // 1_000_000).to_bytes(6, "big"), np.uint8)
    ids[:, 6] = (ids[:, 6] & 0x0F) | (0x70 if function == "uuidv7" else 0x40)
    ids[:, 8] = (ids[:, 8] & 0x3F) | 0x80
    binary = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(ids.tobytes())])
    return TypedArray(cast_leaf(binary, UUID, physical=False), UUID)
