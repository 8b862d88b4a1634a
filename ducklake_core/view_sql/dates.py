"""Functions of dates and timestamps; infinite ones have no parts."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ducklake_core.format.types.data_types import DATE, INT32, INT64, TIMESTAMP, VARCHAR, DataType
from ducklake_core.view_sql.casts import cast, finite, is_finite, string_text
from ducklake_core.view_sql.functions import Function
from ducklake_core.view_sql.typed import NULL_TYPE, Refused, Typed

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
_PARTS = {
    "year": "year({})", "month": "month({})", "day": "day({})", "quarter": "quarter({})", "week": "weekofyear({})",
    "dow": "(dayofweek({}) - 1)", "isodow": "(weekday({}) + 1)", "doy": "dayofyear({})",
    "hour": "hour({})", "minute": "minute({})", "second": "second({})",
}  # fmt: skip
_OTHER_NAMES = {
    "years": "year", "yr": "year", "y": "year", "months": "month", "mon": "month", "days": "day", "d": "day", "dayofmonth": "day",
    "quarters": "quarter", "weeks": "week", "w": "week", "weekofyear": "week", "dayofweek": "dow", "weekday": "dow", "dayofyear": "doy",
    "hours": "hour", "h": "hour", "minutes": "minute", "seconds": "second", "s": "second",
}  # fmt: skip
_OF_CLOCK = ("hour", "minute", "second")
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_INTERVALS = {
    "to_years": "YEAR", "to_months": "MONTH", "to_days": "DAY", "to_hours": "HOUR", "to_minutes": "MINUTE", "to_seconds": "SECOND",
    "to_weeks": "WEEK",
}  # fmt: skip
_UNITS = {"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "WEEK"}
_FORMATS = {"Y": "yyyy", "m": "MM", "d": "dd", "H": "HH", "M": "mm", "S": "ss"}


def _moment(part: Typed) -> Typed:
    if part.text is not None or part.type not in (DATE, TIMESTAMP):
        raise Refused(f"it calls a function of dates with {part.type}")
    return part


def _part(unit: str) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        (part,) = parts
        return date_part(unit, part)

    return function


def date_part(unit: str, part: Typed) -> Typed:
    """A number of the calendar or clock."""
    unit = _OTHER_NAMES.get(unit.lower(), unit.lower())
    if unit not in _PARTS:
        raise Refused(f"it takes the part {unit!r} of a date")
    moment = _moment(part)
    sql = cast(moment, TIMESTAMP).sql if unit in _OF_CLOCK and moment.type == DATE else moment.sql
    return _if_finite(moment, f"CAST({_PARTS[unit].format(sql)} AS BIGINT)", INT64)


def _if_finite(part: Typed, sql: str, data_type: DataType) -> Typed:
    return Typed(sql=f"CASE WHEN {is_finite(part.sql, part.type)} THEN {sql} END", type=data_type)


def _date_part(parts: Sequence[Typed]) -> Typed:
    if len(parts) != 2 or parts[0].text is None:
        raise Refused("it takes a part of a date that is no constant")
    return date_part(parts[0].text, parts[1])


def _date_trunc(parts: Sequence[Typed]) -> Typed:
    unit = parts[0].text if len(parts) == 2 else None
    unit = _OTHER_NAMES.get(unit.lower(), unit.lower()) if unit is not None else None
    if unit not in _TRUNCATED:
        raise Refused(f"it has date_trunc to {unit!r}")
    moment = _moment(parts[1])
    # trunc, not date_trunc: that one would go through the session's time zone.
    stamp = cast(moment, TIMESTAMP).sql
    if unit in _OF_CLOCK:
        sizes = {"hour": "minute({0}), second({0})", "minute": "0, second({0})", "second": "0, 0"}
        minutes, seconds = sizes[unit].format(stamp).split(", ")
        fraction = f"CAST(extract(SECOND FROM {stamp}) AS DECIMAL(8,6)) - CAST(second({stamp}) AS DECIMAL(8,0))"
        back = f"make_dt_interval(0, 0, {minutes}, CAST({seconds} AS DECIMAL(8,0)) + {fraction})"
        return Typed(sql=f"({finite(stamp, TIMESTAMP)} - {back})", type=TIMESTAMP)
    day = f"CAST({finite(moment.sql, moment.type)} AS DATE)"
    truncated = day if unit == "day" else f"trunc({day}, '{unit.upper()}')"
    return Typed(sql=f"CAST({truncated} AS TIMESTAMP_NTZ)", type=TIMESTAMP)


def _date_diff(parts: Sequence[Typed]) -> Typed:
    """How many boundaries of the unit lie between two dates."""
    unit = parts[0].text.lower() if len(parts) == 3 and parts[0].text is not None else None
    unit = _OTHER_NAMES.get(unit, unit) if unit else None
    first, second = (_checked_day(part) for part in parts[1:]) if unit else ("", "")
    if unit == "day":
        sql = f"datediff({second}, {first})"
    elif unit == "month":
        sql = f"((year({second}) - year({first})) * 12 + month({second}) - month({first}))"
    elif unit == "year":
        sql = f"(year({second}) - year({first}))"
    else:
        raise Refused(f"it has date_diff of {unit!r}")
    return Typed(sql=f"CAST({sql} AS BIGINT)", type=INT64)


def _checked_day(part: Typed) -> str:
    moment = _moment(part)
    return f"CAST({finite(moment.sql, moment.type)} AS DATE)"


def _last_day(parts: Sequence[Typed]) -> Typed:
    (part,) = parts
    return Typed(sql=f"last_day({_checked_day(part)})", type=DATE)


def _name_of(names: tuple[str, ...], number: str) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        (part,) = parts
        listed = ", ".join(f"'{name}'" for name in names)
        return _if_finite(_moment(part), f"element_at(array({listed}), {number.format(part.sql)})", VARCHAR)

    return function


def _make_date(parts: Sequence[Typed]) -> Typed:
    if len(parts) != 3 or any(part.text is not None for part in parts):
        raise Refused("it has make_date with other than three numbers")
    sides = []
    for part in parts:
        if part.type not in (INT32, INT64, NULL_TYPE):
            raise Refused(f"it has make_date with {part.type}")
        sides.append(cast(part, INT32).sql)
    return Typed(sql=f"make_date({', '.join(sides)})", type=DATE)


def _strftime(parts: Sequence[Typed]) -> Typed:
    """Four-digit years only, because Spark writes others in another form."""
    if len(parts) != 2 or parts[1].text is None:
        raise Refused("it has strftime with a format that is no constant")
    moment, pieces, rest = _moment(parts[0]), [], parts[1].text
    while rest:
        if rest[0] == "%":
            if rest[1:2] not in _FORMATS:
                raise Refused(f"it has strftime with %{rest[1:2]}")
            pieces.append(f"date_format({moment.sql}, '{_FORMATS[rest[1]]}')")
            rest = rest[2:]
        else:
            plain, _, after = rest.partition("%")
            pieces.append(string_text(plain))
            rest = f"%{after}" if len(plain) < len(rest) else ""
    text = f"concat({', '.join(pieces)})" if pieces else string_text("")
    failure = "CAST(raise_error('a year of the view is outside of what Spark and DuckDB write alike') AS STRING)"
    in_range = f"year({moment.sql}) BETWEEN 1 AND 9999"
    return Typed(sql=f"CASE WHEN {moment.sql} IS NULL THEN NULL WHEN {in_range} THEN {text} ELSE {failure} END", type=VARCHAR)


def interval_of(node: exp.Expression) -> str | None:
    """A constant interval of one unit as Spark SQL, None for what is no interval.

    Raises:
        Refused: An interval that is not of that form.
    """
    match node:
        case exp.Paren():
            return interval_of(node.this)
        case exp.Anonymous() if node.name.lower() in _INTERVALS and len(node.expressions) == 1:
            return _interval(_number_in(node.expressions[0]), _INTERVALS[node.name.lower()])
        case exp.Interval():
            text = f"{node.this.name if node.this else ''} {node.args['unit'].name if node.args.get('unit') else ''}"
            return _spelt(text)
        case exp.Cast() if node.to.this == exp.DataType.Type.INTERVAL and isinstance(node.this, exp.Literal):
            return _spelt(node.this.name)
        case _:
            return None


def _number_in(node: exp.Expression) -> int:
    """The whole number in ``CAST(trunc(CAST(1 AS DOUBLE)) AS INTEGER)``, which DuckDB makes of INTERVAL 1 DAY."""
    while not isinstance(node, exp.Literal):
        match node:
            case exp.Neg():
                return -_number_in(node.this)
            case exp.Paren() | exp.Cast():
                node = node.this
            case exp.Anonymous() if node.name.lower() == "trunc" and len(node.expressions) == 1:
                (node,) = node.expressions
            case _:
                raise Refused(f"it has an interval of {node.sql('duckdb')}")
    return _whole(node.name)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(f"it has an interval of {text!r}") from None


def _spelt(text: str) -> str:
    words = text.split()
    unit = words[1].upper().removesuffix("S") if len(words) == 2 else ""
    if unit not in _UNITS:
        raise Refused(f"it has the interval {text!r}; one number and one unit are understood")
    return _interval(_whole(words[0]), unit)


def _interval(number: int, unit: str) -> str:
    if abs(number) > 10**6:
        raise Refused(f"it has an interval of {number} {unit}")
    return f"INTERVAL '{number * 7}' DAY" if unit == "WEEK" else f"INTERVAL '{number}' {unit}"


def moved(part: Typed, operator: str, interval: str) -> Typed:
    """A date or timestamp plus or minus an interval: a timestamp."""
    moment = _moment(part)
    stamp = cast(moment, TIMESTAMP).sql if moment.type == DATE else finite(moment.sql, TIMESTAMP)
    return Typed(sql=f"({stamp} {operator} {interval})", type=TIMESTAMP)


DATE_FUNCTIONS: dict[str, Function] = {
    **{name: _part(name) for name in (*_PARTS, "dayofmonth", "weekofyear", "dayofweek", "weekday", "dayofyear")},
    "date_part": _date_part, "datepart": _date_part, "date_trunc": _date_trunc, "datetrunc": _date_trunc,
    "date_diff": _date_diff, "datediff": _date_diff, "last_day": _last_day,
    "dayname": _name_of(_DAYS, "dayofweek({})"), "monthname": _name_of(_MONTHS, "month({})"),
    "make_date": _make_date, "strftime": _strftime,
}  # fmt: skip
