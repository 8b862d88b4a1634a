"""The proleptic Gregorian calendar without the limits of ``datetime``: any year, as DuckDB counts them (year 0 is 1 BC)."""

from __future__ import annotations

_DAYS_IN_ERA = 146_097
_EPOCH_SHIFT = 719_468


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date.

    >>> days_from_civil(1970, 1, 1), days_from_civil(2000, 3, 1), days_from_civil(-43, 3, 15)
    (0, 11017, -735160)
    """
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * _DAYS_IN_ERA + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _EPOCH_SHIFT


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a date given in days since 1970-01-01.

    >>> civil_from_days(0), civil_from_days(11017), civil_from_days(-735160)
    ((1970, 1, 1), (2000, 3, 1), (-43, 3, 15))
    """
    era, day_of_era = divmod(days + _EPOCH_SHIFT, _DAYS_IN_ERA)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted_month + 2) // 5 + 1


def is_date(year: int, month: int, day: int) -> bool:
    """Whether the calendar has such a day.

    >>> is_date(2020, 2, 29), is_date(2021, 2, 29)
    (True, False)
    """
    return 1 <= month <= 12 and 1 <= day <= 31 and civil_from_days(days_from_civil(year, month, day)) == (year, month, day)
