"""The text of nested values: what we write DuckDB reads, where we say so, and we read all of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb

from ducklake_core.catalog.inlined.cells import parse_nested
from ducklake_core.catalog.inlined.write import is_readable, nested_text
from ducklake_core.format.types.data_types import INT32, VARCHAR, DataType, Field, ListType, MapType, StructType


def test_nested_text_is_read_by_the_reference_and_by_us() -> None:
    """Random values of random types: whatever is called readable, DuckDB reads; we read all of it."""
    dice = random.Random(20260101)
    letters = "ab'\\\"[]{}(),:= \nNüCAST::null"

    def field(data_type: DataType, name: str = "x") -> Field:
        return Field(name=name, type=data_type)

    def structure(inner: DataType) -> DataType:
        return StructType(fields=(field(inner), field(VARCHAR, "y'\\ {z"), field(INT32, "n")))

    containers: list[Callable[[DataType], DataType]] = [
        lambda inner: ListType(element=field(inner)),
        lambda inner: MapType(key=field(INT32), value=field(inner)),
        structure,
    ]

    def value(data_type: DataType) -> Any:
        if dice.random() < 0.1:
            return None
        match data_type:
            case ListType(element=element):
                return [value(element.type) for _ in range(dice.randint(0, 3))]
            case MapType(value=item):
                return [(key, value(item.type)) for key in range(dice.randint(0, 3))]
            case StructType(fields=fields):
                return {member.name: value(member.type) for member in fields}
            case _:
                return dice.randint(0, 9) if data_type == INT32 else "".join(dice.choice(letters) for _ in range(dice.randint(0, 6)))

    def sql(data_type: DataType) -> str:
        match data_type:
            case ListType(element=element):
                return f"{sql(element.type)}[]"
            case MapType(value=item):
                return f"MAP(INT, {sql(item.type)})"
            case StructType(fields=fields):
                members = (f'"{member.name}" {sql(member.type)}' for member in fields)
                return f"STRUCT({', '.join(members)})"
            case _:
                return "INT" if data_type == INT32 else "VARCHAR"

    def plain(found: Any) -> Any:
        if isinstance(found, list):
            return {k: plain(v) for k, v in found} if found and isinstance(found[0], tuple) else [plain(item) for item in found]
        return {k: plain(v) for k, v in found.items()} or [] if isinstance(found, dict) else found

    duck = duckdb.connect()
    readable = 0
    for _ in range(3000):
        data_type: DataType = VARCHAR
        for _ in range(dice.randint(1, 3)):
            data_type = dice.choice(containers)(data_type)
        held = value(data_type)
        if held is None:
            continue
        text = nested_text(held, data_type)
        assert parse_nested(text, data_type) == held, text
        if is_readable(held, data_type):
            readable += 1
            (found,) = duck.execute(f"SELECT CAST(? AS {sql(data_type)})", [text]).fetchone() or (None,)
            assert plain(found) == plain(held), text
    assert readable > 1000
    duck.close()
