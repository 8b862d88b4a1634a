"""Column types of the metadata tables: the same Python values from every catalog database."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Boolean, DateTime, String, Uuid
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine
from typing_extensions import override

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.errors import CatalogCorruptError

_TIME_TEXT = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})[ T](?P<clock>\d{2}:\d{2}(?::\d{2})?)(?:\.(?P<fraction>\d{1,9}))?"
    r"\s*(?:(?P<utc>Z|UTC)|(?P<sign>[+-])(?P<hours>\d{2})(?::?(?P<minutes>\d{2}))?(?::?\d{2})?)?",
    re.IGNORECASE | re.ASCII,
)
_TRUTH = {"1": True, "true": True, "t": True, "0": False, "false": False, "f": False}


def time_to_text(value: datetime) -> str:
    """UTC text of a point in time, as DuckDB stores it where the database has no such type.

    >>> time_to_text(datetime(2024, 7, 1, 20, 0, 0, 120000, tzinfo=UTC)), time_to_text(datetime(2024, 7, 1, tzinfo=UTC))
    ('2024-07-01 20:00:00.12+00', '2024-07-01 00:00:00+00')
    """
    at = value.astimezone(UTC)
    fraction = f".{at.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{at:%Y-%m-%d %H:%M:%S}{fraction}+00"


@lru_cache(maxsize=256)
def time_from_text(text: str) -> datetime:
    """The point in time of any text form that DuckDB reads; without a zone it is UTC.

    >>> time_from_text("2024-07-01T20:00:00Z").isoformat(), time_from_text("2024-07-01 22:00:00.5+02").isoformat()
    ('2024-07-01T20:00:00+00:00', '2024-07-01T20:00:00.500000+00:00')

    Raises:
        CatalogCorruptError: Not a time.
    """
    found = _TIME_TEXT.fullmatch(text.strip())
    if found is None:
        raise CatalogCorruptError(f"the catalog holds {text!r} where a time is expected", text=text)
    micros = int((found["fraction"] or "0").ljust(6, "0")[:6])
    offset = timedelta(hours=int(found["hours"] or 0), minutes=int(found["minutes"] or 0))
    try:
        at = datetime.fromisoformat(f"{found['day']} {found['clock']}").replace(microsecond=micros)
        return at.replace(tzinfo=timezone(-offset if found["sign"] == "-" else offset)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CatalogCorruptError(f"the catalog holds {text!r} where a time is expected: {error}", text=text) from error


class CatalogBoolean(TypeDecorator[bool]):
    """BOOLEAN; 0 and 1 where DuckDB declares it BIGINT."""

    impl = Boolean
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(BigInteger() if abilities_of(dialect).boolean_as_integer else Boolean())

    @override
    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        # What is written may be what was read, past the conversion of results, in a column of another type.
        known = _truth(value)
        return int(known) if known is not None and abilities_of(dialect).boolean_as_integer else known

    @override
    def process_result_value(self, value: Any, _dialect: Dialect) -> bool | None:
        return _truth(value)


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and value in (0, 1):
        return value == 1
    # Cells of SQLite may hold anything, whatever the column's type is.
    found = _TRUTH.get(str(value).strip().lower())
    if found is None:
        raise CatalogCorruptError(f"the catalog holds {value!r} where true or false is expected", text=str(value))
    return found


class CatalogUuid(TypeDecorator[str]):
    """UUID as lower-case dashed text."""

    impl = String
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(String() if abilities_of(dialect).uuid_as_text else Uuid(as_uuid=False, native_uuid=True))

    @override
    def process_bind_param(self, value: str | UUID | None, _dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    @override
    def process_result_value(self, value: Any, _dialect: Dialect) -> str | None:
        return None if value is None else str(value)


class CatalogTimestamp(TypeDecorator[datetime]):
    """TIMESTAMPTZ as an aware datetime in UTC. Where it is stored as text, never compare or order by it in SQL."""

    impl = DateTime
    cache_ok = True

    @override
    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(String() if abilities_of(dialect).timestamp_as_text else DateTime(timezone=True))

    @override
    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        at = value.replace(tzinfo=UTC) if value.tzinfo is None else value
        return time_to_text(at) if abilities_of(dialect).timestamp_as_text else at

    @override
    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return time_from_text(str(value)) if abilities_of(dialect).timestamp_as_text else value.astimezone(UTC)

    @override
    def result_processor(self, dialect: Dialect, coltype: Any) -> Callable[[Any], Any] | None:
        own = self.impl_instance.result_processor(dialect, coltype)
        # Asking for each cell what the database is like takes longer than the rest, and a lake may have very many snapshots.
        return _in_utc if own is None and not abilities_of(dialect).timestamp_as_text else super().result_processor(dialect, coltype)


def _in_utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)
