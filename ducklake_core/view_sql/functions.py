"""Scalar functions by DuckDB's names: those whose every value was found equal in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ducklake_core.format.types.data_types import (
    BOOLEAN,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT8,
    INT32,
    INT64,
    SIGNED_INTEGERS,
    VARCHAR,
    VARIANT,
    DataType,
    DecimalType,
    ListType,
    MapType,
)
from ducklake_core.format.values.text_rules import BLANKS
from ducklake_core.view_sql.casts import cast, string_text
from ducklake_core.view_sql.letter_case import lower_sql, upper_sql
from ducklake_core.view_sql.operators import EMPTY_TEXT, arithmetic, as_text, compared_type
from ducklake_core.view_sql.regexes import java_pattern
from ducklake_core.view_sql.typed import NULL_TYPE, Refused, Typed, common_type, is_number, spark_name

Function: TypeAlias = Callable[[Sequence[Typed]], Typed]


def _text(part: Typed) -> str:
    if part.type != VARCHAR:
        raise Refused(f"it calls a function of texts with {part.type}")
    return cast(part, VARCHAR).sql


def _whole(part: Typed, least: int) -> int:
    """A constant whole number that is not below a bound."""
    if part.integer is None or part.integer < least:
        raise Refused(f"a function takes other than a constant whole number from {least} on")
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


def _of_texts(template: str, data_type: DataType, count: int = 2) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        _count(parts, count)
        return Typed(sql=template.format(*(_text(part) for part in parts)), type=data_type)

    return function


def _count(parts: Sequence[Typed], *allowed: int) -> None:
    if len(parts) not in allowed:
        raise Refused(f"a function has {len(parts)} arguments")


def _substring(parts: Sequence[Typed]) -> Typed:
    _count(parts, 2, 3)
    numbers = [_whole(parts[1], 1), *(_whole(part, 0) for part in parts[2:])]
    return Typed(sql=f"substring({_text(parts[0])}, {', '.join(map(str, numbers))})", type=VARCHAR)


def _side(name: str) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        _count(parts, 2)
        return Typed(sql=f"{name}({_text(parts[0])}, {_whole(parts[1], 0)})", type=VARCHAR)

    return function


def _padded(name: str) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        _count(parts, 3)
        if not parts[2].text:
            raise Refused(f"it has {name} with other than a constant filling")
        return Typed(sql=f"{name}({_text(parts[0])}, {_whole(parts[1], 0)}, {parts[2].sql})", type=VARCHAR)

    return function


def _split_part(parts: Sequence[Typed]) -> Typed:
    _count(parts, 3)
    if not parts[1].text:
        raise Refused("it has split_part with other than a constant separator")
    return Typed(sql=f"split_part({_text(parts[0])}, {parts[1].sql}, {_whole(parts[2], 1)})", type=VARCHAR)


def _replaced(parts: Sequence[Typed]) -> Typed:
    _count(parts, 3)
    return Typed(sql=f"replace({', '.join(_text(part) for part in parts)})", type=VARCHAR)


def _concat(parts: Sequence[Typed]) -> Typed:
    """NULLs are left out."""
    return Typed(sql=f"concat({', '.join(f'coalesce({as_text(part).sql}, {EMPTY_TEXT})' for part in parts)})", type=VARCHAR)


def _concat_ws(parts: Sequence[Typed]) -> Typed:
    if len(parts) < 2 or parts[0].text is None:
        raise Refused("it has concat_ws with other than a constant separator")
    return Typed(sql=f"concat_ws({', '.join(as_text(part).sql for part in parts)})", type=VARCHAR)


def _matches(*, whole: bool) -> Function:
    def function(parts: Sequence[Typed]) -> Typed:
        _count(parts, 2)
        if parts[1].text is None:
            raise Refused("it has a regular expression that is no constant")
        pattern = java_pattern(parts[1].text)
        if whole:
            pattern = rf"\A(?:{pattern})\z"
        return Typed(sql=f"({_text(parts[0])} RLIKE {string_text(pattern)})", type=BOOLEAN)

    return function


def _number(part: Typed) -> Typed:
    if part.text is not None or not is_number(part.type) or part.type == NULL_TYPE:
        raise Refused(f"it calls a function of numbers with {part.type}")
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
    """Spark's functions answer in 64 bits; doubles from 2**52 on are whole already."""
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
    """Half away from zero; doubles by way of a multiple, as DuckDB does it."""
    _count(parts, 1, 2)
    digits = _whole(parts[1], 0) if len(parts) == 2 else 0
    part = _number(parts[0])
    if part.type in SIGNED_INTEGERS:
        return cast(part, part.type)
    if isinstance(part.type, DecimalType):
        result = DecimalType(precision=part.type.precision, scale=min(digits, part.type.scale))
        return Typed(sql=f"CAST(round({part.sql}, {result.scale}) AS {spark_name(result)})", type=result)
    if part.type == FLOAT32 and digits:
        raise Refused("it rounds a float32 to digits")
    if digits > 15:
        raise Refused("it rounds to more than 15 digits")
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
        raise Refused(f"it calls isnan with {part.type}")
    return Typed(sql=f"CASE WHEN {part.sql} IS NULL THEN NULL ELSE isnan({part.sql}) END", type=BOOLEAN)


def _modulo(parts: Sequence[Typed]) -> Typed:
    _count(parts, 2)
    return arithmetic("%", parts[0], parts[1])


def coalesce(parts: Sequence[Typed]) -> Typed:
    """The first that is not NULL."""
    kind = common_type(parts)
    return Typed(sql=f"coalesce({', '.join(_unified(part, kind) for part in parts)})", type=_settled(kind))


def choice(conditions: Sequence[str], results: Sequence[Typed], otherwise: Typed) -> Typed:
    """CASE; DuckDB looks at ELSE first when it chooses the type."""
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
    except Refused:
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
    _count(parts, 2)
    kind = compared_type(tuple(parts))
    first, second = (cast(part, kind).sql for part in parts)
    own = cast(parts[0], parts[0].type)
    name = spark_name(own.type)
    return Typed(sql=f"CASE WHEN {first} = {second} THEN CAST(NULL AS {name}) ELSE {own.sql} END", type=_settled(own.type))


def element(subject: Typed, index: Typed) -> Typed:
    """``list[i]`` with a constant place, ``map[key]``, ``struct['name']``."""
    kind = subject.type
    if isinstance(kind, ListType):
        if index.integer is None or not -(2**31) < index.integer < 2**31:
            raise Refused("it takes an element of a list by other than a constant number")
        found = "NULL" if index.integer == 0 else f"try_element_at({subject.sql}, {index.integer})"
        if index.integer == 0:
            raise Refused("it takes element 0 of a list")
        return Typed(sql=found, type=kind.element.type)
    if isinstance(kind, MapType):
        key = cast(index, kind.key.type)
        if kind.key.type != VARCHAR and kind.key.type not in SIGNED_INTEGERS:
            raise Refused(f"it takes an element of {kind}")
        return Typed(sql=f"try_element_at({subject.sql}, {key.sql})", type=kind.value.type)
    if index.text is not None:
        return field(subject, index.text)
    if kind == VARIANT:
        raise Refused("it takes an element of a variant, which only DuckDB does")
    raise Refused(f"it takes a part of {kind} with brackets")


def field(subject: Typed, name: str) -> Typed:
    """A field of a struct."""
    from ducklake_core.catalog.reading.visibility import same_name
    from ducklake_core.format.types.data_types import StructType

    if subject.type == VARIANT:
        raise Refused(f"it takes the part {name!r} of a variant, which only DuckDB does")
    fields = subject.type.fields if isinstance(subject.type, StructType) else ()
    found = [own for own in fields if same_name(own.name, name)]
    if len(found) != 1 or len([own for own in fields if own.name.casefold() == name.casefold()]) != 1:
        raise Refused(f"a value of type {subject.type} has no field {name!r}")
    # Braces stand for tables in the text that Spark's session is given.
    quoted = "`" + found[0].name.replace("`", "``").replace("{", "{{").replace("}", "}}") + "`"
    return Typed(sql=f"{subject.sql}.{quoted}", type=found[0].type)


def _element(parts: Sequence[Typed]) -> Typed:
    _count(parts, 2)
    return element(parts[0], parts[1])


def _length(parts: Sequence[Typed]) -> Typed:
    (part,) = parts
    if isinstance(part.type, ListType | MapType):
        return Typed(sql=f"CASE WHEN {part.sql} IS NULL THEN NULL ELSE CAST(size({part.sql}) AS BIGINT) END", type=INT64)
    return Typed(sql=f"CAST(char_length({_text(part)}) AS BIGINT)", type=INT64)


def _contains(parts: Sequence[Typed]) -> Typed:
    _count(parts, 2)
    if not isinstance(parts[0].type, ListType):
        return Typed(sql=f"contains({_text(parts[0])}, {_text(parts[1])})", type=BOOLEAN)
    kind, wanted = parts[0].type.element.type, parts[1]
    if wanted.constant is None or kind in FLOATS or kind != compared_type((Typed(sql="", type=kind), wanted)):
        raise Refused(f"it looks for {wanted.type} in {parts[0].type}")
    sql = f"coalesce(array_contains({parts[0].sql}, {cast(wanted, kind).sql}), FALSE)"
    return Typed(sql=f"CASE WHEN {parts[0].sql} IS NULL THEN NULL ELSE {sql} END", type=BOOLEAN)


_BLANKS = string_text(BLANKS)
FUNCTIONS: dict[str, Function] = {
    "upper": _in_case(upper_sql), "ucase": _in_case(upper_sql), "lower": _in_case(lower_sql), "lcase": _in_case(lower_sql),
    "trim": _of_text(f"trim(BOTH {_BLANKS} FROM {{}})", VARCHAR), "ltrim": _of_text(f"trim(LEADING {_BLANKS} FROM {{}})", VARCHAR),
    "rtrim": _of_text(f"trim(TRAILING {_BLANKS} FROM {{}})", VARCHAR),
    "md5": _of_text("md5({})", VARCHAR),
    "length": _length, "len": _length, "char_length": _length, "character_length": _length, "array_length": _length, "cardinality": _length,
    "starts_with": _of_texts("startswith({}, {})", BOOLEAN), "prefix": _of_texts("startswith({}, {})", BOOLEAN),
    "ends_with": _of_texts("endswith({}, {})", BOOLEAN), "suffix": _of_texts("endswith({}, {})", BOOLEAN),
    "contains": _contains, "list_contains": _contains, "array_contains": _contains, "list_has": _contains, "array_has": _contains,
    "strpos": _of_texts("CAST(instr({}, {}) AS BIGINT)", INT64), "instr": _of_texts("CAST(instr({}, {}) AS BIGINT)", INT64),
    "position": _of_texts("CAST(instr({}, {}) AS BIGINT)", INT64),
    "substring": _substring, "substr": _substring, "left": _side("left"), "right": _side("right"), "repeat": _side("repeat"),
    "lpad": _padded("lpad"), "rpad": _padded("rpad"), "split_part": _split_part, "replace": _replaced,
    "concat": _concat, "concat_ws": _concat_ws, "regexp_matches": _matches(whole=False), "regexp_full_match": _matches(whole=True),
    "abs": _absolute, "sign": _sign, "round": _round, "floor": _rounding("floor"), "ceil": _rounding("ceil"), "ceiling": _rounding("ceil"),
    "trunc": _rounding("trunc"), "sqrt": _square_root, "mod": _modulo, "isnan": _is_nan,
    "coalesce": coalesce, "ifnull": coalesce, "nullif": _null_if, "greatest": _extreme("greatest"), "least": _extreme("least"),
    "list_extract": _element, "list_element": _element, "array_extract": _element, "struct_extract": _element,
    "map_extract_value": _element,
}  # fmt: skip
