"""Functions of texts in scalar expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ducklake_core.engines.arrow.scalar_values import TypedArray, as_type, nulls
from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.types.data_types import BLOB, BOOLEAN, INT64, VARCHAR
from ducklake_core.format.values.text_rules import BLANKS

_LONGEST = 2**31
"""More letters than a text has."""


def joined(function: str, values: Sequence[TypedArray], rows: int) -> TypedArray:
    """``||``, which is NULL with a NULL, and ``concat``, which leaves NULLs out."""
    if function == "||" and all(value.type == BLOB and not value.is_null for value in values):
        blobs = [value.array.cast(pa.binary()) for value in values]
        return TypedArray(pc.binary_join_element_wise(*blobs, pa.scalar(b"", pa.binary()), null_handling="emit_null"), BLOB)
    texts = [as_type(value, VARCHAR, rows) for value in values]
    if function == "||":
        if any(value.is_null for value in values):
            return nulls(rows, VARCHAR)
    else:
        texts = [pc.fill_null(text, "") for text in texts]
    return TypedArray(pc.binary_join_element_wise(*texts, "", null_handling="emit_null"), VARCHAR)


def of_text(function: str, value: TypedArray) -> TypedArray:
    """A function of one text."""
    array = _only_text(value, function)
    match function:
        case "length":
            return TypedArray(pc.utf8_length(array).cast(pa.int64()), INT64)
        case "upper" | "lower":
            return TypedArray((pc.utf8_upper if function == "upper" else pc.utf8_lower)(array), VARCHAR)
        case _:
            trimming = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}
            return TypedArray(trimming[function](array, characters=BLANKS), VARCHAR)


def with_constants(function: str, values: Sequence[TypedArray]) -> TypedArray:
    """``replace`` and ``substring``, whose further arguments are constants."""
    subject = _only_text(values[0], function)
    if function == "replace":
        if values[1].text is None or values[2].text is None:
            raise UnsupportedFeatureError("replace() with texts that are no constants")
        found = subject if not values[1].text else pc.replace_substring(subject, pattern=values[1].text, replacement=values[2].text)
        return TypedArray(found, VARCHAR)
    start, length = values[1].constant, values[2].constant if len(values) > 2 else None
    sizes = [start, length] if len(values) > 2 else [start]
    if start is None or start < 1 or any(size is None or not 0 <= size < _LONGEST for size in sizes):
        raise UnsupportedFeatureError("substring() with a place that is no positive constant")
    return TypedArray(pc.utf8_slice_codeunits(subject, start - 1, None if length is None else start - 1 + length), VARCHAR)


def matching(function: str, value: TypedArray, pattern: TypedArray) -> TypedArray:
    """``LIKE`` without an escape character, and ``starts_with``; what is looked for is a constant."""
    subject = _only_text(value, function)
    if pattern.is_null:
        return TypedArray(pa.nulls(len(subject), pa.bool_()), BOOLEAN)
    if pattern.text is None:
        raise UnsupportedFeatureError(f"{function}() with a text that is no constant")
    if function == "starts_with":
        return TypedArray(pc.starts_with(subject, pattern.text), BOOLEAN)
    # Arrow takes a backslash for an escape character.
    return TypedArray(pc.match_like(subject, pattern.text.replace("\\", "\\\\")), BOOLEAN)


def _only_text(value: TypedArray, function: str) -> Any:
    if value.type != VARCHAR and not value.is_null:
        raise UnsupportedFeatureError(f"{function}() of {value.type}")
    return as_type(value, VARCHAR, len(value.array))
