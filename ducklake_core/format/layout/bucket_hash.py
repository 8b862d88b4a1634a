"""The bucket transform's hash: 32-bit murmur3 as DuckDB computes it (specification: Partitioning)."""

from __future__ import annotations

import struct
from decimal import Decimal

import mmh3
import numpy as np
import numpy.typing as npt

from ducklake_core.format.expressions.comparison import infinity_of
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOATS,
    SIGNED_INTEGERS,
    TIME,
    TIMESTAMP_MS,
    TIMESTAMP_S,
    TIMESTAMPS,
    DataType,
    DecimalType,
)
from ducklake_core.format.values.leaf_values import to_cast_text

MASK = 0x7FFFFFFF


def bucket_of(value: object, data_type: DataType, buckets: int) -> int:
    """The bucket of one value, by 32-bit murmur3 as DuckDB hashes it.

    >>> from ducklake_core.format.types.data_types import INT32, VARCHAR
    >>> [bucket_of(v, INT32, 3) for v in (1,)], [bucket_of(v, INT32, 4) for v in (1, 2, 3)], bucket_of(7, INT32, 5)
    ([2], [0, 0, 3], 4)
    >>> bucket_of("200", VARCHAR, 2**31) == 395818824
    True
    """
    return (mmh3.hash(hashed_bytes(value, data_type), 0, signed=False) & MASK) % buckets


def hashed_bytes(value: object, data_type: DataType) -> bytes:
    """The bytes that the bucket transform hashes: 8 bytes of numbers and times, text and blobs as they are, the text of all else.

    >>> from ducklake_core.format.types.data_types import INT32, FLOAT64, UINT8, DecimalType
    >>> hashed_bytes(1, INT32).hex(), hashed_bytes(-0.0, FLOAT64) == bytes(8), hashed_bytes(200, UINT8)
    ('0100000000000000', True, b'200')
    >>> hashed_bytes(Decimal("14.20"), DecimalType(precision=38, scale=2))
    b'14.20'
    >>> hashed_bytes(Decimal("1.5"), DecimalType(precision=4, scale=2))[:2]
    b'\\x96\\x00'
    """
    if isinstance(data_type, DecimalType) and data_type.precision <= 18:
        assert isinstance(value, Decimal)
        return struct.pack("<q", int(value.scaleb(data_type.scale)))
    if data_type in FLOATS:
        assert isinstance(value, int | float)
        return struct.pack("<d", float(value) + 0.0)
    if data_type in TIMESTAMPS:
        assert isinstance(value, int)
        finite = abs(value) < infinity_of(data_type)
        unit = 1_000_000 if data_type == TIMESTAMP_S else 1000 if data_type == TIMESTAMP_MS else 1
        return struct.pack("<q", value // unit if finite else value)
    if hashed_as_int64(data_type):
        assert isinstance(value, int)
        return struct.pack("<q", value)
    if isinstance(value, bytes):
        return value
    return to_cast_text(value, data_type).encode()


def hashed_as_int64(data_type: DataType) -> bool:
    """Whether values are hashed as 8 bytes in their own Python form."""
    return data_type in (BOOLEAN, DATE, TIME) or data_type in SIGNED_INTEGERS[:4]


def murmur3_of_int64(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """32-bit murmur3 with seed 0 of many 8-byte little-endian numbers.

    >>> murmur3_of_int64(np.array([0, 200])).tolist()
    [1669671676, 845973527]
    """
    words = np.ascontiguousarray(numbers, dtype="<i8").view("<u4").reshape(-1, 2)
    state = np.zeros(len(words), dtype=np.uint32)
    with np.errstate(over="ignore"):
        for column in range(2):
            block = words[:, column] * np.uint32(0xCC9E2D51)
            block = (block << np.uint32(15)) | (block >> np.uint32(17))
            state ^= block * np.uint32(0x1B873593)
            state = (state << np.uint32(13)) | (state >> np.uint32(19))
            state = state * np.uint32(5) + np.uint32(0xE6546B64)
        state ^= np.uint32(8)
        state ^= state >> np.uint32(16)
        state = state * np.uint32(0x85EBCA6B)
        state ^= state >> np.uint32(13)
        state = state * np.uint32(0xC2B2AE35)
        return state ^ (state >> np.uint32(16))
