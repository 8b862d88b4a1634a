"""Column types, and values of them in SQL: ordinary ones and edge cases."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import duckdb
from duckdb.sqltypes import DuckDBPyType

SCALARS = (
    *("INTEGER", "VARCHAR", "BIGINT", "DOUBLE", "DATE", "TIMESTAMP", "DECIMAL(9,2)", "BOOLEAN"),
    *("TINYINT", "SMALLINT", "UTINYINT", "UINTEGER", "UBIGINT", "HUGEINT", "FLOAT", "DECIMAL(18,3)", "DECIMAL(38,5)"),
    *("TIME", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ", "UUID", "BLOB", "JSON", "INTERVAL"),
)
# DuckDB inlines structs as SQL that it cannot read back for other types, and loses quotes and backslashes of strings.
_IN_STRUCTS = ("INTEGER", "VARCHAR", "BIGINT", "BOOLEAN", "DECIMAL(9,2)")
_IN_CONTAINERS = (*_IN_STRUCTS, "DOUBLE", "DATE", "TIMESTAMP")
_PLAIN_STRINGS = ("", "a", "b", "null", "Zürich", "x y")
_STRINGS = (*_PLAIN_STRINGS, "it's", "a\\b", '{"x": 1}', "[1]", "a,b", " lead", "line\nbreak", "𝄞", "z" * 300, "%", "=")

NULL_SHARE = 0.12


NARROW = ("BIGINT", "VARCHAR", "DOUBLE", "DATE")
"""Types that the second implementation reads and writes as DuckDB does."""


def column_type(draw: Random, among: tuple[str, ...] = ()) -> str:
    """A type for a new column: mostly a common scalar, or one of those given."""
    if among:
        return draw.choice(among)
    if draw.random() < 0.2:
        return container_type(draw)
    return draw.choice(SCALARS[:8]) if draw.random() < 0.6 else draw.choice(SCALARS)


def container_type(draw: Random, depth: int = 0) -> str:
    shape = draw.choice(("struct", "list", "map"))
    if shape == "struct":
        names = ("x", "y", "z")[: draw.randint(1, 3)]
        return "STRUCT(" + ", ".join(f"{name} {_child_type(draw, depth, _IN_STRUCTS)}" for name in names) + ")"
    if shape == "list":
        return _child_type(draw, depth, _IN_CONTAINERS) + "[]"
    return f"MAP({draw.choice(('VARCHAR', 'INTEGER'))}, {_child_type(draw, depth, _IN_CONTAINERS)})"


def _child_type(draw: Random, depth: int, leaves: tuple[str, ...]) -> str:
    if depth < 2 and draw.random() < 0.25:
        # Below a struct the whole string is the struct's.
        return container_type(draw, depth + 1) if leaves is _IN_CONTAINERS else draw.choice(leaves) + "[]"
    return draw.choice(leaves)


def literal(draw: Random, data_type: DuckDBPyType, *, nested: bool = False) -> str:
    """An expression of exactly that type."""
    if draw.random() < NULL_SHARE:
        return f"NULL::{data_type}"
    match data_type.id:
        case "struct":
            return "{" + ", ".join(f"{_text(name)}: {literal(draw, child, nested=True)}" for name, child in data_type.children) + "}"
        case "list":
            element = data_type.children[0][1]
            return f"[{', '.join(literal(draw, element, nested=True) for _ in range(draw.choice((0, 1, 2, 3))))}]::{data_type}"
        case "map":
            (_, key), (_, value) = data_type.children
            keys = ["1", "2", "-7"] if key.id == "integer" else [_text(text) for text in ("k", "other", "k k")]
            entries = ", ".join(f"{key}: {literal(draw, value, nested=True)}" for key in keys[: draw.choice((0, 1, 2, 3))])
            return f"MAP {{{entries}}}::{data_type}"
        case "decimal":
            (_, precision), (_, scale) = data_type.children
            size = 10 ** (precision if draw.random() < 0.2 else min(precision, 4)) - 1
            return f"'{_shifted(draw.randint(-size, size), scale)}'::{data_type}"
    if str(data_type) == "JSON":
        return draw.choice(("'{\"a\": 1}'", "'null'", "'[1, 2]'", "'\"t\"'")) + "::JSON"
    if data_type.id == "varchar":
        return (
            _text(draw.choice(_PLAIN_STRINGS if nested else _STRINGS) if draw.random() < 0.5 else f"v{draw.randint(0, 30)}") + "::VARCHAR"
        )
    return _SCALARS[data_type.id](draw).replace("$", str(data_type))


def constant(draw: Random, data_type: str) -> str:
    """A bare constant, as defaults of added columns have to be."""
    return literal(draw, duckdb.sqltype(data_type)).split("::")[0].strip("()")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _shifted(number: int, scale: int) -> str:
    digits = f"{abs(number):0{scale + 1}d}"
    return ("-" if number < 0 else "") + (digits[:-scale] + "." + digits[-scale:] if scale else digits)


def _integer(low: int, high: int) -> Callable[[Random], str]:
    def choose(draw: Random) -> str:
        return f"({draw.choice((low, high)) if draw.random() < 0.08 else draw.randint(max(low, -20), min(high, 40))})::$"

    return choose


def _one(*values: str) -> Callable[[Random], str]:
    return lambda draw: f"'{draw.choice(values)}'::$"


def _moment(*corners: str) -> Callable[[Random], str]:
    def choose(draw: Random) -> str:
        if draw.random() < 0.15:
            return f"'{draw.choice(corners)}'::$"
        return f"'2024-0{draw.randint(1, 3)}-{draw.randint(10, 28)} {draw.randint(10, 23)}:30:{draw.randint(10, 59)}'::$"

    return choose


_SCALARS: dict[str, Callable[[Random], str]] = {
    "boolean": lambda draw: draw.choice(("true", "false")),
    "tinyint": _integer(-128, 127),
    "smallint": _integer(-(2**15), 2**15 - 1),
    "integer": _integer(-(2**31), 2**31 - 1),
    "bigint": _integer(-(2**63), 2**63 - 1),
    # Files of DuckDB hold HUGEINT as DOUBLE, so only what a double can hold comes back.
    "hugeint": _integer(-(2**70), 2**70),
    "utinyint": _integer(0, 255),
    "usmallint": _integer(0, 2**16 - 1),
    "uinteger": _integer(0, 2**32 - 1),
    "ubigint": _integer(0, 2**64 - 1),
    "float": _one("0.5", "-0.0", "1.25", "nan", "inf", "-inf", "3.4028235e38", "-7"),
    "double": _one("0.5", "-0.0", "0.1", "nan", "inf", "-inf", "1e300", "-7", "12345678901.5"),
    # No infinite ones: DuckDB's delta encoding of such leaps is one that Arrow cannot decode (an error, no wrong rows).
    "date": _moment("0044-03-15 (BC)", "9999-12-31", "1582-10-10"),
    "timestamp": _moment("0044-03-15 (BC) 10:00:00", "infinity", "1969-12-31 23:59:59.999999", "2024-01-31 00:00:00.000001"),
    "timestamp_s": _moment("1969-12-31 23:59:59", "0044-03-15 (BC) 10:00:00"),
    "timestamp_ms": _moment("1969-12-31 23:59:59.999", "0044-03-15 (BC) 10:00:00"),
    "timestamp_ns": _moment("1969-12-31 23:59:59.999999999", "2024-01-31 00:00:00.000000001"),
    "timestamp with time zone": _moment("1969-12-31 23:59:59.999999+00", "2024-02-01 00:00:00+05:30", "infinity"),
    "time": _one("00:00:00", "10:20:30.000001", "23:59:59.999999", "24:00:00"),
    "uuid": _one("b8888f6d-9c7f-4026-b8e2-722c695e2053", "00000000-0000-0000-0000-000000000000", "ffffffff-0000-4000-8000-000000000000"),
    "blob": lambda draw: draw.choice(("'\\xAA\\x00'::BLOB", "''::BLOB", "'abc'::BLOB", "'\\x27'::BLOB")),
    # No column has this type unless a history begins with one.
    "variant": lambda draw: draw.choice(("7", "'text'", "{'a': 1, 'b': [1, NULL]}", "{'a': 'x'}", "DATE '2024-01-31'", "[2.5]")) + "::$",
    "interval": _one("1 month 2 days", "03:00:00.5", "00:00:03", "0 days"),
}
