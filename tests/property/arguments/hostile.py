"""Invalid argument values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa


def deep(depth: int = 3000) -> Any:
    """A list in a list in a list."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def deep_mapping(depth: int = 3000) -> Any:
    """A mapping in a mapping."""
    found: Any = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def circle() -> Any:
    """A mapping that holds itself twice."""
    found: dict[str, Any] = {}
    found["a"] = found["b"] = found
    return found


VALUES: dict[str, Any] = {
    "None": None,
    "True": True,
    "zero": 0,
    "minus one": -1,
    "huge": 2**70,
    "beyond text": 10**5000,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "half": 0.5,
    "decimal NaN": Decimal("NaN"),
    "signalling": Decimal("sNaN"),
    "complex": 1j,
    "bytes": b"ab\xff",
    "empty": "",
    "space": " ",
    "dot": ".",
    "quote": '"',
    "two letters": "ab",
    "NUL": "a\0b",
    "surrogate": "a\ud800b",
    "long": "x" * 100_000,
    "letters": "ä\u0301\u3000\U0001f986",
    "line": "a\nb;--",
    "parentheses": "(" * 3000 + "1" + ")" * 3000,
    "nested type": "STRUCT(a " * 2000 + "INT" + ")" * 2000,
    "list type": "INT" + "[]" * 3000,
    "calls": "lower(" * 3000 + "b" + ")" * 3000,
    "nots": "NOT " * 3000 + "true",
    "ands": " AND ".join(["id = 1"] * 3000),
    "json": '{"a":' * 3000 + "1" + "}" * 3000,
    "digits": "9" * 6000,
    "dotted": ".".join("a" * 3000),
    "sql": "SELECT 1",
    "injected": "'; DROP TABLE t; --",
    "naive": dt.datetime(2020, 1, 1),  # noqa: DTZ001
    "first": dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
    "last": dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-14))),
    "day": dt.date(2020, 1, 1),
    "span": dt.timedelta(days=1),
    "longest span": dt.timedelta.max,
    "back": dt.timedelta.min,
    "list": [],
    "tuple": (),
    "mapping": {},
    "set": set(),
    "names": ["id", "b"],
    "twice": ["id", "id"],
    "None in list": [None],
    "numbers in list": [1, 2.5],
    "surrogates in list": ["\ud800"],
    "NUL in list": ["\0"],
    "empty text in list": [""],
    "mapping of numbers": {1: 2},
    "mapping of None": {None: None},
    "mapping of text": {"b": "x"},
    "mapping of huge": {"b": 10**5000},
    "mapping of NaN": {"b": float("nan")},
    "mapping of surrogate": {"b": "\ud800"},
    "surrogate key": {"\ud800": 1},
    "mapping of deep": {"b": deep()},
    "deep": deep(),
    "deep mapping": deep_mapping(),
    "circle": circle(),
    "frozen": MappingProxyType({"b": "id"}),
    "object": object(),
    "class": dict,
    # What a function that is given raises itself is for its caller, so this one takes anything.
    "function": repr,
    "module": dt,
    "generator": (n for n in "ab"),
    "no columns": pa.table({}),
    "no rows": pa.table({"id": pa.array([], pa.int32())}),
    "same names": pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]),
    "odd names": pa.table({"": [1], "\0": [2]}),
    "all NULL": pa.table({"id": pa.nulls(3), "zz": pa.nulls(3)}),
    "half typed": pa.table({"id": pa.array([[None]])}),
    "other types": pa.table({"id": ["x"], "b": [1]}),
    "unions": pa.table({"id": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])}),
    "far times": pa.table({"day": pa.array([2**62], pa.timestamp("s"))}),
    "month spans": pa.table({"v": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}),
    "dictionary": pa.table({"b": pa.array(["x"]).dictionary_encode()}),
    "no text": pa.table({"b": pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])}),
    "schema": pa.schema([]),
    "schema of one": pa.schema([("a", pa.null())]),
    "array": pa.array([1]),
    "type": pa.int8(),
    "odd type": pa.dictionary(pa.int8(), pa.string()),
    "batch": pa.record_batch({"id": pa.array([1], pa.int32())}),
}
