"""Partition specifications as values (specification: Partitioning; ducklake_partition_info, ducklake_partition_column)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ducklake_core.errors import UnsupportedFeatureError, UsageError

TransformName: TypeAlias = Literal[
    "identity", "year", "month", "day", "hour", "bucket", "epoch_year", "epoch_month", "epoch_day", "epoch_hour"
]
CALENDAR_PARTS = ("year", "month", "day", "hour")
"""Transforms to one part of a date, from the year down."""
EPOCH_TRANSFORMS = ("epoch_year", "epoch_month", "epoch_day", "epoch_hour")
"""Transforms to whole units since 1970-01-01 in UTC, rounded down (from version 1.1 on)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionField:
    """One partition key.

    Attributes:
        column_id: Id of the top-level column that the key is computed from.
        column: Name of that column.
        transform: ``identity``, ``year``, ``month``, ``day``, ``hour`` (calendar parts, in UTC for timestamptz), ``bucket``, or
            one of :data:`EPOCH_TRANSFORMS`.
        buckets: Number of buckets, for ``bucket`` only.
    """

    column_id: int
    column: str
    transform: TransformName
    buckets: int | None = None

    @property
    def text(self) -> str:
        """The transform as stored in ducklake_partition_column: ``identity``, ``year``, ..., ``bucket(4)``."""
        return self.transform if self.buckets is None else f"bucket({self.buckets})"

    @property
    def expression(self) -> str:
        """The key as a user writes it in ``partition_by``: ``carrier``, ``month(day)``, ``bucket(8, id)``.

        >>> PartitionField(column_id=1, column="month(day)", transform="identity").expression
        '"month(day)"'
        """
        plain = self._expression_of(self.column)
        if parse_partition_expression(plain) == (self.column, self.transform, self.buckets):
            return plain
        # A column may have a name that reads like a transform, such as ``month(day)``.
        return self._expression_of('"' + self.column.replace('"', '""') + '"')

    def _expression_of(self, column: str) -> str:
        match self.transform:
            case "identity":
                return column
            case "bucket":
                return f"bucket({self.buckets}, {column})"
            case transform:
                return f"{transform}({column})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSpec:
    """The partition keys of a table, in order. ``id`` is ``partition_id``, 0 while none has been assigned."""

    id: int = 0
    fields: tuple[PartitionField, ...]


# At most 18 digits: longer numbers need not fit 64 bits.
_TRANSFORM = re.compile(r"(?P<name>[a-z_]+)(?:\((?P<buckets>\d{1,18})\))?", re.ASCII)


def parse_transform(text: str) -> tuple[TransformName, int | None]:
    """Return the transform name and bucket count from the catalog's text.

    >>> parse_transform("month"), parse_transform("bucket(16)")
    (('month', None), ('bucket', 16))

    Raises:
        UnsupportedFeatureError: A transform that this library does not know.
    """
    found = _TRANSFORM.fullmatch(text.strip().lower())
    name = found["name"] if found else text
    match name:
        case "identity" | "year" | "month" | "day" | "hour" | "epoch_year" | "epoch_month" | "epoch_day" | "epoch_hour":
            return name, None
        case "bucket" if found and found["buckets"]:
            return "bucket", int(found["buckets"])
        case _:
            raise UnsupportedFeatureError(f"partition transform {text!r} is not supported", transform=text)


_USER_TRANSFORM = re.compile(
    r"\s*(?P<name>(?:epoch_)?(?:year|month|day|hour)|bucket)\s*\(\s*(?:(?P<buckets>[0-9]{1,18})\s*,)?\s*(?P<column>.+?)\s*\)\s*",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r'"(?:[^"]|"")+"')


def parse_partition_expression(text: str) -> tuple[str, TransformName, int | None]:
    """Return column, transform and bucket count of what a user writes in ``partition_by``.

    >>> parse_partition_expression("carrier"), parse_partition_expression("month(day)"), parse_partition_expression("bucket(8, id)")
    (('carrier', 'identity', None), ('day', 'month', None), ('id', 'bucket', 8))

    Names may be in double quotes, as in SQL:

    >>> parse_partition_expression('"year"'), parse_partition_expression('year("a, b")')
    (('year', 'identity', None), ('a, b', 'year', None))

    Raises:
        UsageError: A bucket has no count, or another transform has one.
    """
    found = _USER_TRANSFORM.fullmatch(text)
    if not found:
        # A string that is not a transform is the name of a column as it stands, with any brackets and dots.
        return _unquoted(text), "identity", None
    name, buckets = found["name"].lower(), found["buckets"]
    if (name == "bucket") != (buckets is not None):
        raise UsageError(f"cannot read the partition key {text!r}. Write a column, bucket(n, column), or month(column), year, day or hour")
    transform, count = parse_transform(f"{name}({buckets})" if buckets else name)
    return _unquoted(found["column"]), transform, count


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if _QUOTED.fullmatch(name) else name
