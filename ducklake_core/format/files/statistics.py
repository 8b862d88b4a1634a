"""File statistics: bounds cut as DuckDB cuts them, and the check of what writers report (specification: Statistics)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ducklake_core.errors import CorruptFileError, SchemaError
from ducklake_core.format.files.data_files import ColumnStatistics, WrittenFile
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.types.data_types import BLOB, FLOATS, JSON, VARCHAR, DataType, Field, StructType
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.values.value_text import from_text, order_key

BOUND_BYTES = 256
"""Longest string or blob that is kept whole as a bound."""

COMPARED_AS_TEXT = frozenset({"varchar", "json", "blob", "uuid", "interval"})
"""Types whose table-wide bounds DuckDB compares as texts."""

_SURROGATES = range(0xD800, 0xE000)
_PART_OF_BYTE = re.compile(r"\\x?[0-9A-Fa-f]?$")
# "[" and "~" are followed by a backslash and DEL, which the text of a blob does not have.
_LAST_SMALL_CHARACTER = re.compile(r"((?:\\x..|[^\\])*)([ -Z\]-}])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of one column in one file; fields as in :class:`~ducklake_core.format.files.data_files.ColumnStatistics`."""

    min_value: str | None
    max_value: str | None
    exact_min: str | None = None
    exact_max: str | None = None


def truncate_bounds(minimum: str | None, maximum: str | None, data_type: DataType) -> Bounds:
    """The bounds to store for a file, from the full texts of its least and greatest value.

    Long strings and blobs become a prefix for the minimum and a greater string for the maximum; where no greater one
    can be made there are no bounds at all.  A bound with a NUL character is left out.  Where something is left out or
    cut, ``exact_min`` and ``exact_max`` hold bounds in full length (without NUL, which PostgreSQL cannot store).

    >>> truncate_bounds("a", "b", VARCHAR)
    Bounds(min_value='a', max_value='b', exact_min=None, exact_max=None)
    >>> cut = truncate_bounds("é" * 200, "a" * 255 + "é", VARCHAR)
    >>> len(cut.min_value), cut.max_value == "a" * 254 + "b", len(cut.exact_min), len(cut.exact_max)
    (128, True, 200, 256)
    """
    if minimum is None or maximum is None or data_type not in (VARCHAR, JSON, BLOB):
        return Bounds(min_value=minimum, max_value=maximum)
    low: str | None
    if data_type == BLOB:
        low, high = _cut_blob(minimum), _greater_blob(maximum)
    else:
        low, high = _cut_text(minimum), _greater_text(maximum)
    if high is None:
        low = None
    low, high = (bound if bound is None or "\0" not in bound else None for bound in (low, high))
    if (low, high) == (minimum, maximum):
        return Bounds(min_value=low, max_value=high)
    # U+0001 is the least that is greater than NUL, so what it ends is an upper bound of all that had NUL there.
    exact_max = maximum if "\0" not in maximum else maximum.partition("\0")[0] + "\x01"
    return Bounds(min_value=low, max_value=high, exact_min=minimum.partition("\0")[0], exact_max=exact_max)


def shortened_minimum(text: str, data_type: DataType) -> str:
    """Return a lower bound of at most 256 bytes (512 characters for blobs) for the minimum of a table.

    >>> shortened_minimum("a" * 300, VARCHAR) == "a" * 256, shortened_minimum("a", VARCHAR)
    (True, 'a')
    """
    if data_type == BLOB:
        return _cut_blob_text(text)
    return _cut_text(text) if data_type in (VARCHAR, JSON) else text


def shortened_maximum(text: str, data_type: DataType) -> str | None:
    """Return an upper bound of about 256 bytes (512 characters for blobs) for the maximum of a table, or None where there is none.

    It is the bound that a file has, or else one with a greater character that is not ASCII: most strings without ASCII have one.

    >>> shortened_maximum("a" * 300, VARCHAR) == "a" * 255 + "b", shortened_maximum("é" * 200, VARCHAR) == "é" * 127 + "ê"
    (True, True)
    """
    if data_type == BLOB:
        return _greater_blob_text(text)
    if data_type not in (VARCHAR, JSON):
        return text
    greater = _greater_text(text)
    kept = _cut_text(text).rstrip("\U0010ffff")
    if greater is not None or not kept:
        return greater
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(following if following != _SURROGATES.start else _SURROGATES.stop)


def _cut_blob_text(text: str) -> str:
    r"""Return the start of a blob's text, hexadecimal or with bytes as ``\xFF``, without a part of such a byte at the end."""
    return text if len(text) <= 2 * BOUND_BYTES else _PART_OF_BYTE.sub("", text[: 2 * BOUND_BYTES])


def _greater_blob_text(text: str) -> str | None:
    r"""Return a text that is greater in the order of texts, which DuckDB merges the bounds of blobs by, and still the text of a blob.

    >>> _greater_blob_text("FF" * 300) == "F" * 511 + "G", _greater_blob_text("a[" + r"\xFF" * 300), _greater_blob_text(r"\xFF" * 300)
    (True, 'b', None)
    """
    cut = _cut_blob_text(text)
    if cut == text:
        return text
    found = _LAST_SMALL_CHARACTER.match(cut)
    return None if found is None else found[1] + chr(ord(found[2]) + 1)


def _cut_text(text: str) -> str:
    # Cutting within a character leaves an incomplete end, which "ignore" drops.
    return text.encode()[:BOUND_BYTES].decode(errors="ignore")


def _greater_text(text: str) -> str | None:
    cut = _cut_text(text)
    if len(cut) == len(text):
        return text
    # Only ASCII is incremented, and never to DEL or beyond, so that the text stays valid UTF-8.
    place = next((i for i in range(len(cut) - 1, -1, -1) if ord(cut[i]) < 0x7F), None)
    return None if place is None else cut[:place] + chr(ord(cut[place]) + 1)


def _cut_blob(text: str) -> str:
    return text[: 2 * BOUND_BYTES]


def _greater_blob(text: str) -> str | None:
    cut = bytes.fromhex(_cut_blob(text))
    if 2 * len(cut) == len(text):
        return text
    kept = cut.rstrip(b"\xff")
    return (kept[:-1] + bytes([kept[-1] + 1])).hex().upper() if kept else None


def verify_written_file(file: WrittenFile, schema: Schema, partition_spec: PartitionSpec | None = None) -> None:
    """Check what a writer reports before it becomes catalog rows, because wrong statistics lose rows without a trace.

    Args:
        file: The report.
        schema: The columns that the file was written with.
        partition_spec: The keys it was written with, None for none.

    Raises:
        CorruptFileError: A leaf without statistics, or with statistics that contradict the row count, the type or each
            other; a size that cannot be; partition values that are not one per key.
    """
    keys = len(partition_spec.fields) if partition_spec is not None else 0
    if len(file.partition_values) != keys:
        raise _fault(file, f"it has {len(file.partition_values)} partition values for {keys} keys")
    if file.record_count < 0 or not 0 < file.footer_size < file.file_size_bytes:
        raise _fault(file, f"{file.record_count} rows, {file.file_size_bytes} bytes, footer of {file.footer_size} bytes")
    by_id = {statistics.column_id: statistics for statistics in file.statistics}
    leaves = dict(_leaves(schema))
    if set(by_id) != {leaf.id for leaf in leaves} or len(by_id) != len(file.statistics):
        raise _fault(file, f"statistics are for columns {sorted(s.column_id for s in file.statistics)}, not for the leaves of the table")
    for leaf, one_per_row in leaves.items():
        _verify_column(file, leaf, by_id[leaf.id], one_per_row=one_per_row)


def _leaves(schema: Schema) -> Iterator[tuple[Field, bool]]:
    for column in schema:
        yield from _leaves_below(column, one_per_row=True)


def _leaves_below(field: Field, *, one_per_row: bool) -> Iterator[tuple[Field, bool]]:
    if field.is_leaf:
        yield field, one_per_row
    for child in field.children:
        yield from _leaves_below(child, one_per_row=one_per_row and isinstance(field.type, StructType))


def _verify_column(file: WrittenFile, leaf: Field, found: ColumnStatistics, *, one_per_row: bool) -> None:
    name, values, nulls = leaf.name, found.value_count, found.null_count
    if values is not None and nulls is not None and one_per_row and values + nulls != file.record_count:
        raise _fault(file, f"column {name!r} has {values} values and {nulls} NULLs in {file.record_count} rows")
    if min(values or 0, nulls or 0, found.column_size_bytes) < 0:
        raise _fault(file, f"column {name!r} has a negative count or size")
    if values == 0 and (found.min_value, found.max_value) != (None, None):
        raise _fault(file, f"column {name!r} has bounds but no values")
    if (found.contains_nan is not None) != (leaf.type in FLOATS):
        raise _fault(file, f"column {name!r} of type {leaf.type} has contains_nan {found.contains_nan}")
    if found.min_value is not None and found.max_value is not None:
        _verify_bounds(file, leaf, found.min_value, found.max_value)


def _verify_bounds(file: WrittenFile, leaf: Field, minimum: str, maximum: str) -> None:
    try:
        low, high = (order_key(from_text(text, leaf.type)) for text in (minimum, maximum))
    except SchemaError as error:
        raise _fault(file, f"bounds of column {leaf.name!r} are no values of type {leaf.type}: {error.message}") from error
    if low > high:
        raise _fault(file, f"column {leaf.name!r} has minimum {minimum!r} above maximum {maximum!r}")


def _fault(file: WrittenFile, reason: str) -> CorruptFileError:
    return CorruptFileError(f"the report on written file {file.path!r} cannot be right: {reason}", path=file.path)
