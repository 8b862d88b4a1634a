"""Statistics of the fields of variants: ``extra_stats`` of files and tables, and ``ducklake_file_variant_stats``.

A field has an entry when all its values are of one type, or missing; what has no entry is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.types.data_types import DataType
from ducklake_core.format.types.type_names import parse_leaf_type
from ducklake_core.format.values.value_text import from_text, order_key

Path: TypeAlias = tuple[str | None, ...]
_ROOT = "root"
_ELEMENT = "element"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldStatistics:
    """What is known of one field.

    Attributes:
        path: Names of fields from the variant down; None is the element of an array.
        type: Of all its values.
        entries: Values, and entries of rows that have none.
        null_count: The latter.
        min_value: Least value as statistics text; None when there is none, or it is not known.
        max_value: Likewise the greatest.
        contains_nan: For floats alone.
        column_size_bytes: Compressed bytes of the column of its own; 0 where it has none.
    """

    path: Path
    type: DataType
    entries: int | None
    null_count: int | None
    min_value: str | None = None
    max_value: str | None = None
    contains_nan: bool | None = None
    column_size_bytes: int = 0

    @property
    def value_count(self) -> int | None:
        """How many values there are."""
        return None if self.entries is None or self.null_count is None else self.entries - self.null_count


def path_text(path: Path) -> str:
    """A path as the catalog spells it.

    >>> path_text(()), path_text(("a", "b.c")), path_text((None, 'q"x'))
    ('root', '"a"."b.c"', 'element."q""x"')
    """
    return ".".join(_ELEMENT if name is None else '"' + name.replace('"', '""') + '"' for name in path) or _ROOT


def parse_path(text: str) -> Path:
    """The path that the catalog spells.

    >>> parse_path("root"), parse_path('"a"."b.c"'), parse_path('element."q""x"')
    ((), ('a', 'b.c'), (None, 'q"x'))

    Raises:
        ValueError: It is none.
    """
    if text == _ROOT:
        return ()
    found: list[str | None] = []
    rest = text
    while True:
        if rest.startswith(_ELEMENT):
            found.append(None)
            rest = rest[len(_ELEMENT) :]
        elif rest.startswith('"'):
            name, rest = _quoted(rest)
            found.append(name)
        else:
            raise ValueError(f"{text!r} is no path of a variant")
        if not rest:
            return tuple(found)
        if not rest.startswith("."):
            raise ValueError(f"{text!r} is no path of a variant")
        rest = rest[1:]


def _quoted(text: str) -> tuple[str, str]:
    """A quoted name, and what follows."""
    place = 1
    while True:
        place = text.find('"', place)
        if place < 0:
            raise ValueError(f"{text!r} is no path of a variant")
        if not text.startswith('""', place):
            return text[1:place].replace('""', '"'), text[place + 1 :]
        place += 2


def to_json(fields: Sequence[FieldStatistics]) -> str | None:
    """The text for the catalog; None for no field, which is how DuckDB says so."""
    return json.dumps([_entry(field) for field in fields], ensure_ascii=False, separators=(",", ":")) if fields else None


def _entry(field: FieldStatistics) -> dict[str, object]:
    found: dict[str, object | None] = {
        "field_name": path_text(field.path),
        "shredded_type": str(field.type),
        "null_count": field.null_count,
        "min": field.min_value,
        "max": field.max_value,
        "num_values": field.entries,
        "contains_nan": field.contains_nan,
        "column_size_bytes": field.column_size_bytes,
        # DuckDB says so of fields without a value too.
        "any_valid": True,
    }
    return {name: value for name, value in found.items() if value is not None}


def read_field_statistics(text: object) -> tuple[FieldStatistics, ...]:
    """The entries in a cell of the catalog; those that cannot be read are left out, and so are unknown."""
    if not isinstance(text, str):
        return ()
    try:
        held: Any = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    entries = [_read(entry) for entry in held] if isinstance(held, list) else []
    return tuple(entry for entry in entries if entry is not None)


def field_statistics(text: object, path: Path) -> FieldStatistics | None:
    """What a cell of the catalog says of one field, None for nothing."""
    return next((field for field in read_field_statistics(text) if field.path == path), None)


def _read(held: Any) -> FieldStatistics | None:
    try:
        path, found = parse_path(held["field_name"]), parse_leaf_type(held["shredded_type"])
        counts = [held.get("num_values"), held.get("null_count")]
        bounds = [held.get("min"), held.get("max")]
        nan, size = held.get("contains_nan"), held.get("column_size_bytes", 0)
    except (DuckLakeError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if not all(count is None or (isinstance(count, int) and count >= 0) for count in (*counts, size)):
        return None
    if not all(bound is None or isinstance(bound, str) for bound in bounds) or not (nan is None or isinstance(nan, bool)):
        return None
    return FieldStatistics(
        path=path, type=found, entries=counts[0], null_count=counts[1], min_value=bounds[0], max_value=bounds[1], contains_nan=nan,
        column_size_bytes=size or 0,
    )  # fmt: skip


def merged_field_statistics(parts: Iterable[Sequence[FieldStatistics]]) -> tuple[FieldStatistics, ...]:
    """What is known of all parts together: the fields that each of them knows, with one type."""
    merged: dict[Path, FieldStatistics] | None = None
    for part in parts:
        found = {field.path: field for field in part}
        if merged is None:
            merged = found
            continue
        pairs = [(before, found[path]) for path, before in merged.items() if path in found]
        merged = {before.path: _merged(before, new) for before, new in pairs if before.type == new.type}
    return tuple((merged or {}).values())


def _merged(one: FieldStatistics, other: FieldStatistics) -> FieldStatistics:
    """Bounds of both; a side without values has none to add."""
    sides = [side for side in (one, other) if side.value_count != 0]
    low = _extreme([side.min_value for side in sides], one.type, least=True)
    high = _extreme([side.max_value for side in sides], one.type, least=False)
    return replace(
        one,
        entries=None if one.entries is None or other.entries is None else one.entries + other.entries,
        null_count=None if one.null_count is None or other.null_count is None else one.null_count + other.null_count,
        min_value=low,
        max_value=high,
        contains_nan=None if None in (one.contains_nan, other.contains_nan) else bool(one.contains_nan or other.contains_nan),
        column_size_bytes=one.column_size_bytes + other.column_size_bytes,
    )


def _extreme(texts: Sequence[str | None], data_type: DataType, *, least: bool) -> str | None:
    known = [text for text in texts if text is not None]
    if len(known) < len(texts) or not known:
        return None
    try:
        return (min if least else max)(known, key=lambda text: order_key(from_text(text, data_type)))
    except (DuckLakeError, ValueError, ArithmeticError):
        return None
