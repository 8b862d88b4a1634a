"""The forms of every function that views translate to Spark's SQL."""

# ruff: noqa: E501 - lists of awkward values and forms

from __future__ import annotations

from tests.property.expressions.generator import CASTS, CHOICES, CONDITIONS, UNITS, Signature

_ONE_NUMBER = ("abs", "sign", "round", "floor", "ceil", "ceiling", "trunc", "sqrt")
_ONE_TEXT = ("upper", "ucase", "lower", "lcase", "trim", "ltrim", "rtrim", "md5")
_LENGTHS = ("length", "len", "char_length", "character_length", "array_length", "cardinality")
_PARTS = (
    "year", "month", "day", "quarter", "week", "dow", "isodow", "doy", "hour", "minute", "second",
    "dayofmonth", "weekofyear", "dayofweek", "weekday", "dayofyear",
)  # fmt: skip
_LISTS = ("list_contains", "array_contains", "list_has", "array_has")
_ELEMENTS = ("list_extract", "list_element", "array_extract", "struct_extract", "map_extract_value")

CALLS_OF_VIEWS: dict[str, list[Signature]] = {
    **{name: [(f"{name}({{0}})", ("number",), "number")] for name in _ONE_NUMBER},
    **{name: [(f"{name}({{0}})", ("text",), "text")] for name in _ONE_TEXT},
    **{name: [(f"{name}({{0}})", ("text",), "integer")] for name in _LENGTHS},
    **{name: [(f"{name}({{0}})", ("moment",), "integer")] for name in _PARTS},
    **{name: [(f"{name}({{0}}, {{1}})", ("text", "text"), "boolean")] for name in ("starts_with", "prefix", "ends_with", "suffix", "contains")},
    **{name: [(f"{name}({{0}}, {{1}})", ("text", "text"), "integer")] for name in ("strpos", "instr")},
    **{name: [(f"{name}(li, {{0}})", ("#",), "boolean")] for name in _LISTS},
    **{name: [(f"{name}(li, {{0}})", ("#",), "integer")] for name in _ELEMENTS},
    **{name: [(f"{name}({{0}}, {{1}}, {{2}})", ("text", "#", "#"), "text")] for name in ("substring", "substr")},
    **{name: [(f"{name}({{0}}, {{1}})", ("text", "#"), "text")] for name in ("left", "right", "repeat")},
    **{name: [(f"{name}({{0}}, {{1}}, {{2}})", ("text", "#", "quoted"), "text")] for name in ("lpad", "rpad")},
    **{name: [(f"{name}({{0}}, {{1}})", ("text", "pattern of letters"), "boolean")] for name in ("regexp_matches", "regexp_full_match")},
    **{name: [(f"{name}('{unit}', {{0}})", ("moment",), "integer") for unit in _PARTS[:11]] for name in ("date_part", "datepart")},
    **{name: [(f"{name}('{unit}', {{0}})", ("moment",), "instant") for unit in UNITS] for name in ("date_trunc", "datetrunc")},
    **{
        name: [(f"{name}('{unit}', {{0}}, {{1}})", ("moment", "moment"), "integer") for unit in ("day", "month", "year")]
        for name in ("date_diff", "datediff")
    },
    **{name: [(f"{name}({{0}}, {{1}})", ("any", "same"), "first")] for name in ("coalesce", "ifnull", "nullif", "greatest", "least")},
    "position": [("position({0} IN {1})", ("text", "text"), "integer")],
    "split_part": [("split_part({0}, {1}, {2})", ("text", "quoted", "#"), "text")],
    "replace": [("replace({0}, {1}, {2})", ("text", "text", "text"), "text")],
    "concat": [("concat({0}, {1})", ("any", "any"), "text")],
    "concat_ws": [("concat_ws({0}, {1}, {2})", ("quoted", "any", "text"), "text")],
    "mod": [("mod({0}, {1})", ("number", "number"), "number")],
    "isnan": [("isnan({0})", ("float",), "boolean")],
    "last_day": [("last_day({0})", ("moment",), "date")],
    "dayname": [("dayname({0})", ("moment",), "text")],
    "monthname": [("monthname({0})", ("moment",), "text")],
    "make_date": [("make_date({0}, {1}, {2})", ("#", "#", "#"), "date")],
    "strftime": [("strftime({0}, {1})", ("moment", "format"), "text")],
}  # fmt: skip
OPERATORS: list[Signature] = [
    *((f"({{0}} {operator} {{1}})", ("number", "number"), "number") for operator in ("+", "-", "*", "/", "//", "%")),
    ("(-{0})", ("number",), "number"), ("({0} + {1})", ("date", "integer"), "date"), ("({0} - {1})", ("date", "integer"), "date"),
    ("({0} - {1})", ("date", "date"), "integer"), ("({0} || {1})", ("text", "any"), "text"), ("({0} LIKE {1})", ("text", "pattern"), "boolean"),
    ("({0} ILIKE {1})", ("text", "pattern"), "boolean"),
    *((f"({{0}} {sign} INTERVAL {count} {unit})", ("moment",), "instant") for sign in "+-" for count in (1, 13) for unit in ("DAY", "MONTH", "YEAR", "HOUR", "SECOND")),
]  # fmt: skip
GROUPS = (
    [*OPERATORS, *(signature for signatures in CALLS_OF_VIEWS.values() for signature in signatures)],
    [signature for signature in CASTS if not signature[0].startswith("TRY_CAST")],
    CONDITIONS,
    CHOICES,
)
"""Functions of random expressions of views."""
