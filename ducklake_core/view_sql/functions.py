"""Functions that Spark computes exactly as DuckDB does: scalars, aggregates, windows, dates."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from sqlglot import exp

from ducklake_core.format.expressions.sql import string_text
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    DIGITS,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT8,
    INT32,
    INT64,
    INT128,
    SIGNED_INTEGERS,
    TIMESTAMP,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    ListType,
    MapType,
)
from ducklake_core.format.values.value_text import BLANKS
from ducklake_core.view_sql.operators import EMPTY_TEXT, arithmetic, as_text, cast, compared_type, condition, finite, is_finite
from ducklake_core.view_sql.typed import NULL_TYPE, Rejected, Typed, common_type, is_comparable, is_number, spark_name

Function: TypeAlias = Callable[[Sequence[Typed]], Typed]
_BLANKS = string_text(BLANKS)

Call: TypeAlias = Callable[[str], str]
"""Completes one call of an aggregate with its FILTER or OVER."""
Aggregate: TypeAlias = Callable[[Sequence[Typed], str, Call], Typed]
"""Makes a value of arguments, ``DISTINCT `` or nothing, and what completes each call."""
RANKS: dict[str, tuple[str, DataType]] = {
    "row_number": ("CAST({} AS BIGINT)", INT64), "rank": ("CAST({} AS BIGINT)", INT64), "dense_rank": ("CAST({} AS BIGINT)", INT64),
    "percent_rank": ("{}", FLOAT64), "cume_dist": ("{}", FLOAT64), "ntile": ("CAST({} AS BIGINT)", INT64),
}  # fmt: skip
"""Window functions that number rows: what is made of Spark's answer, and its type."""
NEIGHBOURS = ("lag", "lead", "first_value", "last_value", "first", "last", "nth_value")
"""Window functions that take a value from another row."""

_LONGEST_REPEATED = 200

# Pieces of a regular expression that DuckDB (RE2) and Java match alike. Anything else is rejected.
_PIECE = re.compile(
    r"(?P<class>\[\^?[A-Za-z0-9_ .,:;@#%/+-]+\])|(?P<escape>\\[.dwsDWS\\()\[\]+*?|^$/-])|(?P<bound>\{\d{1,3}(?:,\d{0,3})?\})"
    r"|(?P<sign>[()|*+?^$.])|(?P<plain>[A-Za-z0-9_ ,:;@#%/=<>!'\"~&-])",
    re.ASCII,
)
# RE2's meaning in Java's spelling: anchors match at the ends of the text only, and classes of characters are ASCII.
_JAVA = {".": r"[^\n]", "$": r"\z", "^": r"\A", "\\d": "[0-9]", "\\w": "[0-9A-Za-z_]", "\\s": r"[\t\n\f\r ]", "\\D": "[^0-9]",
         "\\W": "[^0-9A-Za-z_]", "\\S": r"[^\t\n\f\r ]"}  # fmt: skip

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


def _aggregate_count(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
    if not parts:
        return Typed(sql=call("count(*)"), type=INT64)
    (part,) = parts
    if distinct:
        _same_order(part)
    return Typed(sql=call(f"count({distinct}{part.sql})"), type=INT64)


def _sum(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
    (part,) = parts
    kind = _sum_type(part)
    summand = cast(part, INT32) if part.type == BOOLEAN else part
    return Typed(sql=call(f"sum({distinct}{cast(summand, kind).sql})"), type=kind)


def _sum_type(part: Typed) -> DataType:
    if part.text is None and (part.type in DIGITS or part.type in (BOOLEAN, NULL_TYPE)):
        # DuckDB sums integers as HUGEINT.
        return INT128
    if isinstance(part.type, DecimalType):
        return DecimalType(precision=38, scale=part.type.scale)
    if part.type in FLOATS:
        return FLOAT64
    raise Rejected(f"it sums values of type {part.type}")


def _average(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
    """Return the exact sum divided as doubles, as DuckDB does it; Spark's own average would add doubles."""
    (part,) = parts
    if part.text is not None or not (is_number(part.type) or part.type in DIGITS) or part.type == NULL_TYPE:
        raise Rejected(f"it takes the average of values of type {part.type}")
    if part.type in FLOATS:
        return Typed(sql=call(f"avg({distinct}{cast(part, FLOAT64).sql})"), type=FLOAT64)
    scale, counted = 0, cast(part, INT128).sql if part.type in DIGITS else part.sql
    if isinstance(part.type, DecimalType):
        scale = part.type.scale
        if part.type.precision + scale + 2 > 38:
            return _average_of_many_digits(part, part.type, distinct, call)
        counted = f"CAST({part.sql} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS DECIMAL(38,0))"
    total, number = call(f"sum({distinct}{counted})"), call(f"count({distinct}{part.sql})")
    return Typed(sql=f"(CAST({total} AS DOUBLE) / nullif(CAST({number} AS DOUBLE) * 1E{scale}D, 0D))", type=FLOAT64)


def _average_of_many_digits(part: Typed, kind: DecimalType, distinct: str, call: Call) -> Typed:
    """Return the average where the digits leave no room to be shifted: those of the sum become a whole number as a string."""
    total = call(f"sum({distinct}{cast(part, DecimalType(precision=38, scale=kind.scale)).sql})")
    number = call(f"count({distinct}{part.sql})")
    # Spark writes small decimals of more than six digits behind the point with an exponent.
    if kind.scale <= 6:
        digits, divisor = f"CAST(replace(CAST({total} AS STRING), '.', '') AS DOUBLE)", f" * 1E{kind.scale}D"
    else:
        digits, divisor = f"CAST({total} AS DOUBLE)", ""
    return Typed(sql=f"({digits} / nullif(CAST({number} AS DOUBLE){divisor}, 0D))", type=FLOAT64)


def _spread(name: str) -> Aggregate:
    """Return a variance or deviation, up to rounding: engines add in other orders. A result that is not finite is an error in DuckDB."""

    def aggregate(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
        (part,) = parts
        if part.text is not None or not (is_number(part.type) or part.type in DIGITS) or part.type == NULL_TYPE:
            raise Rejected(f"it takes the deviation of values of type {part.type}")
        found = call(f"{name}({distinct}{cast(part, FLOAT64).sql})")
        if part.type not in FLOATS:
            return Typed(sql=found, type=FLOAT64)
        error = f"raise_error('{name.upper()} is out of range!')"
        return Typed(
            sql=f"CASE WHEN abs({found}) >= CAST('Infinity' AS DOUBLE) THEN CAST({error} AS DOUBLE) ELSE {found} END", type=FLOAT64
        )

    return aggregate


def _aggregate_extreme(name: str) -> Aggregate:
    def aggregate(parts: Sequence[Typed], _distinct: str, call: Call) -> Typed:
        (part,) = parts
        _same_order(part)
        return Typed(sql=call(f"{name}({part.sql})"), type=INT32 if part.type == NULL_TYPE else part.type)

    return aggregate


def _same_order(part: Typed) -> None:
    if not is_comparable(part.type):
        raise Rejected(f"it compares values of type {part.type}")


def _truth(name: str) -> Aggregate:
    def aggregate(parts: Sequence[Typed], _distinct: str, call: Call) -> Typed:
        (part,) = parts
        return Typed(sql=call(f"{name}({condition(part).sql})"), type=BOOLEAN)

    return aggregate


def _count_if(parts: Sequence[Typed], distinct: str, call: Call) -> Typed:
    """Return a sum of ones, which is NULL without rows."""
    (part,) = parts
    if distinct:
        raise Rejected("it has count_if with DISTINCT")
    counted = f"CASE WHEN {condition(part).sql} THEN CAST(1 AS DECIMAL(38,0)) ELSE CAST(0 AS DECIMAL(38,0)) END"
    return Typed(sql=call(f"sum({counted})"), type=INT128)


AGGREGATES: dict[str, Aggregate] = {
    "count": _aggregate_count, "count_star": _aggregate_count, "sum": _sum, "avg": _average, "mean": _average,
    "min": _aggregate_extreme("min"), "max": _aggregate_extreme("max"),
    "stddev": _spread("stddev_samp"), "stddev_samp": _spread("stddev_samp"), "stddev_pop": _spread("stddev_pop"),
    "variance": _spread("var_samp"), "var_samp": _spread("var_samp"), "var_pop": _spread("var_pop"),
    "bool_and": _truth("bool_and"), "bool_or": _truth("bool_or"), "count_if": _count_if, "countif": _count_if,
}  # fmt: skip


def _moment(part: Typed) -> Typed:
    if part.text is not None or part.type not in (DATE, TIMESTAMP):
        raise Rejected(f"it calls a function of dates with {part.type}")
    return part


def _part(unit: str) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        (part,) = parts
        return date_part(unit, part)

    return function


def date_part(unit: str, part: Typed) -> Typed:
    """Return a number of the calendar or clock."""
    unit = _OTHER_NAMES.get(unit.lower(), unit.lower())
    if unit not in _PARTS:
        raise Rejected(f"it takes the part {unit!r} of a date")
    moment = _moment(part)
    sql = cast(moment, TIMESTAMP).sql if unit in _OF_CLOCK and moment.type == DATE else moment.sql
    return _if_finite(moment, f"CAST({_PARTS[unit].format(sql)} AS BIGINT)", INT64)


def _if_finite(part: Typed, sql: str, data_type: DataType) -> Typed:
    return Typed(sql=f"CASE WHEN {is_finite(part.sql, part.type)} THEN {sql} END", type=data_type)


def _date_part(parts: Sequence[Typed]) -> Typed:
    if len(parts) != 2 or parts[0].text is None:
        raise Rejected("it takes a part of a date that is not constant")
    return date_part(parts[0].text, parts[1])


def _date_trunc(parts: Sequence[Typed]) -> Typed:
    unit = parts[0].text if len(parts) == 2 else None
    unit = _OTHER_NAMES.get(unit.lower(), unit.lower()) if unit is not None else None
    if unit not in _TRUNCATED:
        raise Rejected(f"it has date_trunc to {unit!r}")
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
    """Return the number of boundaries of a unit between two dates."""
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
        raise Rejected(f"it has date_diff of {unit!r}")
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
        raise Rejected("it has make_date without exactly three numbers")
    sides = []
    for part in parts:
        if part.type not in (INT32, INT64, NULL_TYPE):
            raise Rejected(f"it has make_date with {part.type}")
        sides.append(cast(part, INT32).sql)
    return Typed(sql=f"make_date({', '.join(sides)})", type=DATE)


def _strftime(parts: Sequence[Typed]) -> Typed:
    """Format a timestamp; years without four digits are an error, because Spark writes them in another form."""
    if len(parts) != 2 or parts[1].text is None:
        raise Rejected("it has strftime with a format that is not constant")
    moment, pieces, rest = _moment(parts[0]), [], parts[1].text
    while rest:
        if rest[0] == "%":
            if rest[1:2] not in _FORMATS:
                raise Rejected(f"it has strftime with %{rest[1:2]}")
            pieces.append(f"date_format({moment.sql}, '{_FORMATS[rest[1]]}')")
            rest = rest[2:]
        else:
            plain, _, after = rest.partition("%")
            pieces.append(string_text(plain))
            rest = f"%{after}" if len(plain) < len(rest) else ""
    text = f"concat({', '.join(pieces)})" if pieces else string_text("")
    failure = "CAST(raise_error('Spark and DuckDB format a year of the view differently') AS STRING)"
    in_range = f"year({moment.sql}) BETWEEN 1 AND 9999"
    return Typed(sql=f"CASE WHEN {moment.sql} IS NULL THEN NULL WHEN {in_range} THEN {text} ELSE {failure} END", type=VARCHAR)


def interval_of(node: exp.Expression) -> str | None:
    """Return a constant interval of one unit as Spark SQL, None for other values.

    Raises:
        Rejected: An interval that is not of that form.
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
    """Return the whole number in ``CAST(trunc(CAST(1 AS DOUBLE)) AS INTEGER)``, which DuckDB makes of INTERVAL 1 DAY."""
    while not isinstance(node, exp.Literal):
        match node:
            case exp.Neg():
                return -_number_in(node.this)
            case exp.Paren() | exp.Cast():
                node = node.this
            case exp.Anonymous() if node.name.lower() == "trunc" and len(node.expressions) == 1:
                (node,) = node.expressions
            case _:
                raise Rejected(f"it has an interval of {node.sql('duckdb')}")
    return _whole_days(node.name)


def _whole_days(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Rejected(f"it has an interval of {text!r}") from None


def _spelt(text: str) -> str:
    words = text.split()
    unit = words[1].upper().removesuffix("S") if len(words) == 2 else ""
    if unit not in _UNITS:
        raise Rejected(f"it has interval {text!r}; only one number with one unit is supported")
    return _interval(_whole_days(words[0]), unit)


def _interval(number: int, unit: str) -> str:
    if abs(number) > 10**6:
        raise Rejected(f"it has an interval of {number} {unit}")
    return f"INTERVAL '{number * 7}' DAY" if unit == "WEEK" else f"INTERVAL '{number}' {unit}"


def moved(part: Typed, operator: str, interval: str) -> Typed:
    """Return a date or timestamp plus or minus an interval: a timestamp."""
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


_CAPITALS, _SMALL = "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}\N{GREEK CAPITAL LETTER SIGMA}", "i\N{GREEK SMALL LETTER SIGMA}"


def lower_sql(text: str) -> str:
    """Return a string in lower case. Java writes the dotted capital I as two characters, and another sigma at the end of a word."""
    return f"lower(translate({text}, {string_text(_CAPITALS)}, {string_text(_SMALL)}))"


def upper_sql(text: str) -> str:
    """Return a string in upper case, letter by letter where Java makes several letters of one."""
    if len(text) > _LONGEST_REPEATED:
        # Calls within calls must not make the query grow without bounds.
        return f"element_at(transform(array({text}), whole -> {_upper('whole')}), 1)"
    return _upper(text)


def _upper(text: str) -> str:
    letters = _letters_of_several()
    known, capitals = string_text("".join(letters)), string_text("".join(letters.values()))
    letter = f"CASE WHEN instr({known}, letter) > 0 THEN translate(letter, {known}, {capitals}) ELSE upper(letter) END"
    apart = f"array_join(transform(split({text}, ''), letter -> {letter}), '')"
    return f"CASE WHEN char_length(upper({text})) <> char_length({text}) THEN {apart} ELSE upper({text}) END"


def _letters_of_several() -> dict[str, str]:
    """Return letters with several capitals in Java, by the one letter that DuckDB makes of each: a capital, or the letter itself.

    >>> [_letters_of_several()[letter] for letter in "ßᾳŉ"]
    ['ẞ', 'ᾼ', 'ŉ']
    """
    letters = (chr(code) for code in range(sys.maxunicode) if not 0xD800 <= code < 0xE000)
    several = [letter for letter in letters if len(letter.upper()) > 1]
    return {letter: letter.title() if len(letter.title()) == 1 else letter for letter in several} | {"ß": "ẞ"}


def _text(part: Typed) -> str:
    if part.type != VARCHAR:
        raise Rejected(f"it calls a function of strings with {part.type}")
    return cast(part, VARCHAR).sql


def _whole(part: Typed, least: int) -> int:
    """Return a constant whole number that is not below a bound."""
    if part.integer is None or part.integer < least:
        raise Rejected(f"a function has an argument that is not a constant integer of at least {least}")
    return part.integer


def _of_text(template: str, data_type: DataType) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        (part,) = parts
        return Typed(sql=template.format(_text(part)), type=data_type)

    return function


def _in_case(change: Callable[[str], str]) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        (part,) = parts
        return Typed(sql=change(_text(part)), type=VARCHAR)

    return function


def _of_strings(template: str, data_type: DataType, count: int = 2) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        _check_count(parts, count)
        return Typed(sql=template.format(*(_text(part) for part in parts)), type=data_type)

    return function


def _check_count(parts: Sequence[Typed], *allowed: int) -> None:
    if len(parts) not in allowed:
        raise Rejected(f"a function has {len(parts)} arguments")


def _substring(parts: Sequence[Typed]) -> Typed:
    _check_count(parts, 2, 3)
    numbers = [_whole(parts[1], 1), *(_whole(part, 0) for part in parts[2:])]
    return Typed(sql=f"substring({_text(parts[0])}, {', '.join(map(str, numbers))})", type=VARCHAR)


def _side(name: str) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        _check_count(parts, 2)
        return Typed(sql=f"{name}({_text(parts[0])}, {_whole(parts[1], 0)})", type=VARCHAR)

    return function


def _padded(name: str) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        _check_count(parts, 3)
        if not parts[2].text:
            raise Rejected(f"it has {name} with a padding that is not constant")
        return Typed(sql=f"{name}({_text(parts[0])}, {_whole(parts[1], 0)}, {parts[2].sql})", type=VARCHAR)

    return function


def _split_part(parts: Sequence[Typed]) -> Typed:
    _check_count(parts, 3)
    if not parts[1].text:
        raise Rejected("it has split_part with a separator that is not constant")
    return Typed(sql=f"split_part({_text(parts[0])}, {parts[1].sql}, {_whole(parts[2], 1)})", type=VARCHAR)


def _replaced(parts: Sequence[Typed]) -> Typed:
    _check_count(parts, 3)
    return Typed(sql=f"replace({', '.join(_text(part) for part in parts)})", type=VARCHAR)


def _concat(parts: Sequence[Typed]) -> Typed:
    """Concatenate the arguments, leaving out NULL."""
    return Typed(sql=f"concat({', '.join(f'coalesce({as_text(part).sql}, {EMPTY_TEXT})' for part in parts)})", type=VARCHAR)


def _concat_ws(parts: Sequence[Typed]) -> Typed:
    if len(parts) < 2 or parts[0].text is None:
        raise Rejected("it has concat_ws with a separator that is not constant")
    return Typed(sql=f"concat_ws({', '.join(as_text(part).sql for part in parts)})", type=VARCHAR)


def _matches(*, whole: bool) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        _check_count(parts, 2)
        if parts[1].text is None:
            raise Rejected("it has a regular expression that is not constant")
        pattern = java_pattern(parts[1].text)
        if whole:
            pattern = rf"\A(?:{pattern})\z"
        return Typed(sql=f"({_text(parts[0])} RLIKE {string_text(pattern)})", type=BOOLEAN)

    return function


def _number(part: Typed) -> Typed:
    if part.text is not None or not is_number(part.type) or part.type == NULL_TYPE:
        raise Rejected(f"it calls a function of numbers with {part.type}")
    return part


def _absolute(parts: Sequence[Typed]) -> Typed:
    (part,) = parts
    return Typed(sql=f"abs({_number(part).sql})", type=part.type)


def _sign(parts: Sequence[Typed]) -> Typed:
    (part,) = parts
    sql = _number(part).sql
    nan = f"WHEN isnan({sql}) THEN 0 " if part.type in FLOATS else ""
    return Typed(sql=f"CAST(CASE {nan}WHEN {sql} > 0 THEN 1 WHEN {sql} < 0 THEN -1 WHEN {sql} = 0 THEN 0 END AS TINYINT)", type=INT8)


def _whole_double(sql: str, function: str) -> str:
    """Return a rounded double: Spark's functions answer in 64 bits, and doubles from 2**52 on are whole already."""
    # A zero keeps the sign of what it comes from.
    whole = f"CASE WHEN {function}({sql}) = 0 THEN {sql} * 0D ELSE CAST({function}({sql}) AS DOUBLE) END"
    return f"CASE WHEN abs({sql}) < 4503599627370496D THEN {whole} ELSE {sql} END"


def _rounding(function: str) -> Function:
    def rounded(parts: Sequence[Typed]) -> Typed:
        (part,) = parts
        sql = _number(part).sql
        if part.type in SIGNED_INTEGERS:
            return cast(part, part.type if function == "trunc" else FLOAT64)
        if isinstance(part.type, DecimalType):
            result = DecimalType(precision=part.type.precision, scale=0)
            sql = f"CASE WHEN {sql} < 0 THEN ceil({sql}) ELSE floor({sql}) END" if function == "trunc" else f"{function}({sql})"
            return Typed(sql=f"CAST({sql} AS {spark_name(result)})", type=result)
        double = cast(part, FLOAT64).sql
        if function == "trunc":
            sql = f"CASE WHEN {double} < 0D THEN {_whole_double(double, 'ceil')} ELSE {_whole_double(double, 'floor')} END"
        else:
            sql = _whole_double(double, function)
        return Typed(sql=f"CAST({sql} AS {spark_name(part.type)})", type=part.type)

    return rounded


def _round(parts: Sequence[Typed]) -> Typed:
    """Round half away from zero; doubles are scaled to a multiple first, as in DuckDB."""
    _check_count(parts, 1, 2)
    digits = _whole(parts[1], 0) if len(parts) == 2 else 0
    part = _number(parts[0])
    if part.type in SIGNED_INTEGERS:
        return cast(part, part.type)
    if isinstance(part.type, DecimalType):
        result = DecimalType(precision=part.type.precision, scale=min(digits, part.type.scale))
        return Typed(sql=f"CAST(round({part.sql}, {result.scale}) AS {spark_name(result)})", type=result)
    if part.type == FLOAT32 and digits:
        raise Rejected("it rounds a float32 to digits")
    if digits > 15:
        raise Rejected("it rounds to more than 15 digits")
    double = cast(part, FLOAT64).sql
    scaled = f"({double} * 1E{digits}D)"
    whole = f"CASE WHEN round({scaled}, 0) = 0D THEN {scaled} * 0D ELSE round({scaled}, 0) END"
    rounded = f"(CASE WHEN abs({scaled}) < 4503599627370496D THEN {whole} ELSE {scaled} END / 1E{digits}D)"
    sql = f"CASE WHEN abs({double}) < 1E290D THEN {rounded} ELSE {double} END"
    return Typed(sql=f"CAST({sql} AS {spark_name(part.type)})", type=part.type)


def _square_root(parts: Sequence[Typed]) -> Typed:
    (part,) = parts
    sql = cast(_number(part), FLOAT64).sql
    failure = "CAST(raise_error('cannot take the square root of a negative number') AS DOUBLE)"
    return Typed(sql=f"CASE WHEN {sql} < 0D THEN {failure} ELSE sqrt({sql}) END", type=FLOAT64)


def _is_nan(parts: Sequence[Typed]) -> Typed:
    (part,) = parts
    if part.type not in FLOATS:
        raise Rejected(f"it calls isnan with {part.type}")
    # Spark's isnan is false for NULL.
    return Typed(sql=f"CASE WHEN {part.sql} IS NULL THEN NULL ELSE isnan({part.sql}) END", type=BOOLEAN)


def _modulo(parts: Sequence[Typed]) -> Typed:
    _check_count(parts, 2)
    return arithmetic("%", parts[0], parts[1])


def coalesce(parts: Sequence[Typed]) -> Typed:
    """Return the first that is not NULL."""
    kind = common_type(parts)
    return Typed(sql=f"coalesce({', '.join(_unified(part, kind) for part in parts)})", type=_settled(kind))


def choice(conditions: Sequence[str], results: Sequence[Typed], otherwise: Typed) -> Typed:
    """Return CASE with the type that DuckDB chooses, beginning with ELSE.

    Args:
        conditions: Conditions in Spark SQL, in order.
        results: The value for each condition.
        otherwise: The value when no condition is true.
    """
    kind = common_type((otherwise, *results))
    branches = " ".join(f"WHEN {test} THEN {_unified(result, kind)}" for test, result in zip(conditions, results, strict=True))
    return Typed(sql=f"CASE {branches} ELSE {_unified(otherwise, kind)} END", type=_settled(kind))


def _unified(part: Typed, kind: DataType) -> str:
    if part.type == NULL_TYPE and not _castable(kind):
        return "NULL"
    return cast(part, kind).sql


def _castable(kind: DataType) -> bool:
    try:
        spark_name(kind)
    except Rejected:
        return False
    return True


def _settled(kind: DataType) -> DataType:
    return INT32 if kind == NULL_TYPE else kind


def _extreme(name: str) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        kind = compared_type(tuple(parts))
        sides = [cast(part, kind).sql for part in parts]
        return Typed(sql=sides[0] if len(sides) == 1 else f"{name}({', '.join(sides)})", type=_settled(kind))

    return function


def _null_if(parts: Sequence[Typed]) -> Typed:
    _check_count(parts, 2)
    kind = compared_type(tuple(parts))
    first, second = (cast(part, kind).sql for part in parts)
    own = cast(parts[0], parts[0].type)
    name = spark_name(own.type)
    return Typed(sql=f"CASE WHEN {first} = {second} THEN CAST(NULL AS {name}) ELSE {own.sql} END", type=_settled(own.type))


def element(subject: Typed, index: Typed) -> Typed:
    """Return ``list[i]`` with a constant position, ``map[key]`` or ``struct['name']``."""
    kind = subject.type
    if isinstance(kind, ListType):
        if index.integer is None or not -(2**31) < index.integer < 2**31:
            raise Rejected("it takes an element of a list with an index that is not constant")
        found = "NULL" if index.integer == 0 else f"try_element_at({subject.sql}, {index.integer})"
        if index.integer == 0:
            raise Rejected("it takes element 0 of a list")
        return Typed(sql=found, type=kind.element.type)
    if isinstance(kind, MapType):
        key = cast(index, kind.key.type)
        if kind.key.type != VARCHAR and kind.key.type not in SIGNED_INTEGERS:
            raise Rejected(f"it takes an element of {kind}")
        return Typed(sql=f"try_element_at({subject.sql}, {key.sql})", type=kind.value.type)
    if index.text is not None:
        return field(subject, index.text)
    if kind == VARIANT:
        raise Rejected("it takes an element of a variant, which only DuckDB supports")
    raise Rejected(f"it takes a part of {kind} with brackets")


def field(subject: Typed, name: str) -> Typed:
    """Return a field of a struct."""
    from ducklake_core.catalog.reading.visibility import same_name
    from ducklake_core.format.types.data_types import StructType

    if subject.type == VARIANT:
        raise Rejected(f"it takes the part {name!r} of a variant, which only DuckDB supports")
    fields = subject.type.fields if isinstance(subject.type, StructType) else ()
    found = [own for own in fields if same_name(own.name, name)]
    if len(found) != 1 or len([own for own in fields if own.name.casefold() == name.casefold()]) != 1:
        raise Rejected(f"a value of type {subject.type} has no field {name!r}")
    # Braces stand for tables in the text that Spark's session is given.
    quoted = "`" + found[0].name.replace("`", "``").replace("{", "{{").replace("}", "}}") + "`"
    return Typed(sql=f"{subject.sql}.{quoted}", type=found[0].type)


def _element(parts: Sequence[Typed]) -> Typed:
    _check_count(parts, 2)
    return element(parts[0], parts[1])


def _length(parts: Sequence[Typed]) -> Typed:
    (part,) = parts
    if isinstance(part.type, ListType | MapType):
        # The size of NULL depends on a setting of Spark.
        return Typed(sql=f"CASE WHEN {part.sql} IS NULL THEN NULL ELSE CAST(size({part.sql}) AS BIGINT) END", type=INT64)
    return Typed(sql=f"CAST(char_length({_text(part)}) AS BIGINT)", type=INT64)


def _contains(parts: Sequence[Typed]) -> Typed:
    _check_count(parts, 2)
    if not isinstance(parts[0].type, ListType):
        return Typed(sql=f"contains({_text(parts[0])}, {_text(parts[1])})", type=BOOLEAN)
    kind, wanted = parts[0].type.element.type, parts[1]
    if wanted.constant is None or kind in FLOATS or kind != compared_type((Typed(sql="", type=kind), wanted)):
        raise Rejected(f"it searches {parts[0].type} for {wanted.type}")
    sql = f"coalesce(array_contains({parts[0].sql}, {cast(wanted, kind).sql}), FALSE)"
    return Typed(sql=f"CASE WHEN {parts[0].sql} IS NULL THEN NULL ELSE {sql} END", type=BOOLEAN)


FUNCTIONS: dict[str, Function] = {
    "upper": _in_case(upper_sql), "ucase": _in_case(upper_sql), "lower": _in_case(lower_sql), "lcase": _in_case(lower_sql),
    "trim": _of_text(f"trim(BOTH {_BLANKS} FROM {{}})", VARCHAR), "ltrim": _of_text(f"trim(LEADING {_BLANKS} FROM {{}})", VARCHAR),
    "rtrim": _of_text(f"trim(TRAILING {_BLANKS} FROM {{}})", VARCHAR),
    "md5": _of_text("md5({})", VARCHAR),
    "length": _length, "len": _length, "char_length": _length, "character_length": _length, "array_length": _length, "cardinality": _length,
    "starts_with": _of_strings("startswith({}, {})", BOOLEAN), "prefix": _of_strings("startswith({}, {})", BOOLEAN),
    "ends_with": _of_strings("endswith({}, {})", BOOLEAN), "suffix": _of_strings("endswith({}, {})", BOOLEAN),
    "contains": _contains, "list_contains": _contains, "array_contains": _contains, "list_has": _contains, "array_has": _contains,
    "strpos": _of_strings("CAST(instr({}, {}) AS BIGINT)", INT64), "instr": _of_strings("CAST(instr({}, {}) AS BIGINT)", INT64),
    "position": _of_strings("CAST(instr({}, {}) AS BIGINT)", INT64),
    "substring": _substring, "substr": _substring, "left": _side("left"), "right": _side("right"), "repeat": _side("repeat"),
    "lpad": _padded("lpad"), "rpad": _padded("rpad"), "split_part": _split_part, "replace": _replaced,
    "concat": _concat, "concat_ws": _concat_ws, "regexp_matches": _matches(whole=False), "regexp_full_match": _matches(whole=True),
    "abs": _absolute, "sign": _sign, "round": _round, "floor": _rounding("floor"), "ceil": _rounding("ceil"), "ceiling": _rounding("ceil"),
    "trunc": _rounding("trunc"), "sqrt": _square_root, "mod": _modulo, "isnan": _is_nan,
    "coalesce": coalesce, "ifnull": coalesce, "nullif": _null_if, "greatest": _extreme("greatest"), "least": _extreme("least"),
    "list_extract": _element, "list_element": _element, "array_extract": _element, "struct_extract": _element,
    "map_extract_value": _element,
}  # fmt: skip


def java_pattern(pattern: str) -> str:
    r"""Return the pattern as Java writes it.

    >>> java_pattern("^a.[0-9]+$")
    '\\Aa[^\\n][0-9]+\\z'

    Raises:
        Rejected: Anything whose meaning may differ.
    """
    parts, position = [], 0
    while position < len(pattern):
        found = _PIECE.match(pattern, position)
        if found is None or (pattern.startswith("(?", position)):
            raise Rejected(f"regular expression {pattern!r} may match differently in Spark and DuckDB")
        parts.append(_JAVA.get(found.group(), found.group()))
        position = found.end()
    if re.search(r"[*+?}]\+", pattern):
        raise Rejected(f"the regular expression {pattern!r} repeats a repetition")
    try:
        re.compile(pattern)
    except re.error as problem:
        raise Rejected(f"regular expression {pattern!r} cannot be parsed") from problem
    return "".join(parts)
