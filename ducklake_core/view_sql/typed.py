"""Expressions of DuckDB as Spark SQL, with the types that DuckDB gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ducklake_core.format.expressions.predicates import Literal
from ducklake_core.format.expressions.syntax import QuotedText
from ducklake_core.format.types import data_types
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    DIGITS,
    FLOATS,
    INTEGERS,
    SIGNED_INTEGERS,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
    PrimitiveType,
)

NULL_TYPE = PrimitiveType(name="null")
"""Type of NULL without a type; a result column of it is an int32, as in DuckDB."""

_SPARK_NAMES = {
    "boolean": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "int128": "DECIMAL(38,0)",
    "uint8": "SMALLINT", "uint16": "INT", "uint32": "BIGINT", "uint64": "DECIMAL(20,0)", "float32": "FLOAT", "float64": "DOUBLE",
    "date": "DATE", "timestamp": "TIMESTAMP_NTZ", "timestamp_s": "TIMESTAMP_NTZ", "timestamp_ms": "TIMESTAMP_NTZ",
    "timestamp_ns": "TIMESTAMP_NTZ", "timestamptz": "TIMESTAMP", "varchar": "STRING", "json": "STRING", "uuid": "STRING",
    "blob": "BINARY", "null": "INT",
}  # fmt: skip
COMPARABLE = (*DIGITS, *FLOATS, BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ, VARCHAR, UUID, NULL_TYPE)
"""Types, in addition to decimals, whose order and equality are the same in both engines."""


class Rejected(Exception):  # noqa: N818
    """Raised with the reason why a query cannot be translated; the caller adds the name of the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """An expression.

    Attributes:
        sql: Spark SQL; safe to be put next to any operator.
        type: DuckDB's type, children without ids.
        constant: What a bare constant spells: it takes the type of what it stands next to.
    """

    sql: str
    type: DataType
    constant: QuotedText | Literal | None = None

    @property
    def integer(self) -> int | None:
        """The value of a bare whole number."""
        value = self.constant.value if isinstance(self.constant, Literal) and self.type in INTEGERS else None
        return value if isinstance(value, int) else None

    @property
    def text(self) -> str | None:
        """The value of a bare quoted string."""
        return self.constant.text if isinstance(self.constant, QuotedText) else None


def spark_name(data_type: DataType) -> str:
    """Return the type as Spark SQL spells it in a cast.

    Raises:
        Rejected: Nothing is cast to that type.
    """
    if isinstance(data_type, DecimalType):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    name = _SPARK_NAMES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None
    if name is None:
        raise Rejected(f"it casts to {data_type}")
    return name


def is_number(data_type: DataType) -> bool:
    """Return whether arithmetic is translated for the type; NULL counts."""
    return data_type in SIGNED_INTEGERS or data_type in FLOATS or isinstance(data_type, DecimalType) or data_type == NULL_TYPE


def is_comparable(data_type: DataType) -> bool:
    """Return whether values can be compared, grouped and sorted alike in both engines."""
    return isinstance(data_type, DecimalType) or data_type in COMPARABLE


def as_decimal(data_type: DataType) -> DecimalType:
    """Return the decimal that an integer becomes next to a decimal."""
    found = data_types.as_decimal(data_type)
    if found is None:
        raise Rejected(f"it combines {data_type} with a decimal")
    return found


def common_type(parts: Sequence[Typed]) -> DataType:
    """Return the type that DuckDB gives alternatives and sides of a comparison.

    Raises:
        Rejected: Types that are not brought together here.
    """
    so_far = parts[0]
    for part in parts[1:]:
        data_type = _common_of(so_far, part)
        # A constant takes the type of what it stands next to only while everything so far is a constant of the same type.
        keeps = so_far.type == data_type and part.type == data_type
        so_far = Typed(sql="", type=data_type, constant=so_far.constant if keeps and part.constant is not None else None)
    return so_far.type


def _common_of(left: Typed, right: Typed) -> DataType:
    first, second = left.type, right.type
    if first == second:
        return first
    if NULL_TYPE in (first, second):
        return second if first == NULL_TYPE else first
    for own, other in ((left, right), (right, left)):
        if own.text is not None and other.text is None:
            return other.type
        if own.integer is not None and other.integer is None and other.type in INTEGERS and fits(own.integer, other.type):
            return other.type
    return data_types.common_number(first, second) or _common_time(first, second) or _no_common(first, second)


def _common_time(first: DataType, second: DataType) -> DataType | None:
    return TIMESTAMP if {str(first), str(second)} == {"date", "timestamp"} else None


def _no_common(first: DataType, second: DataType) -> DataType:
    raise Rejected(f"it combines {first} with {second}")


def fits(value: int, data_type: DataType) -> bool:
    """Return whether a whole number is a value of an integer type."""
    from ducklake_core.format.expressions.comparison import integer_range

    low, high = integer_range(data_type)
    return low <= value <= high
