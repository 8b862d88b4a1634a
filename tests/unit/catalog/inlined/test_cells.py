"""The cells of inlined rows: values alone, and nested in strings."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from sqlalchemy.dialects import sqlite

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.catalog.inlined import cells
from ducklake_core.catalog.inlined.cells import parse_nested
from ducklake_core.catalog.inlined.write import is_readable, nested_text
from ducklake_core.errors import SchemaError
from ducklake_core.format.types.data_types import (
    BOOLEAN,
    DATE,
    FLOAT64,
    INT32,
    INT128,
    TIMESTAMP,
    UINT128,
    UUID,
    VARCHAR,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
)

_STRINGS: dict[DataType, str] = {
    FLOAT64: "1.5|-0.0|0|+1|1e308|1e309|-1e-320|5e-324|inf|-inf|Infinity|nan|-nan|NaN|1_000| 1|1 |0.1|0.30000000000000004"
    "|123456789012345678901234567890|1E5|1e||.5|5.|0x10|true|false|\u0661",
    DATE: "2024-02-29|2023-02-29|0001-01-01|9999-12-31|10000-01-01|-0001-01-01|infinity|-infinity|2024-1-5|2024-01-05 BC|1969-12-31"
    "|2024-01-05 00:00:00|2024-01-05T10:00:00||20240105|2024/01/05| 2024-01-05",
    TIMESTAMP: "2024-02-29 01:02:03|2024-02-29 01:02:03.000001|2024-02-29 01:02:03.1|2024-02-29T01:02:03|2024-02-29|2024-02-29 01:02"
    "|0001-01-01 00:00:00|9999-12-31 23:59:59.999999|10000-01-01 00:00:00|infinity|-infinity|2024-01-05 00:00:00 (BC)"
    "|2024-02-29 24:00:00|2024-02-29 23:59:60|2024-02-29 01:02:03Z|2024-02-29 01:02:03+02|2024-02-29 01:02:03.1234567|"
    "|1677-09-21 00:12:43.145224|2024-02-29 1:02:03|2024-02-30 00:00:00|2024-02-29 01|294246-12-31 00:00:00",
    DecimalType(precision=5, scale=2): "1.25|-999.99|1000|999.995|1.255|1.250|1e2|1E-2|12e-1|+1.5| 1||.5|5.|nan|inf|true|0.00|-0|00012.5"
    "|1.2.3|1,5",
}


def _slowly(cell: Any, column: Field) -> object:
    abilities = abilities_of(sqlite.dialect())
    return cells.stored_array([cells._decoded(cell, column, abilities)], column, column)


@pytest.mark.parametrize("data_type", _STRINGS, ids=str)
def test_strings(data_type: DataType) -> None:
    column = Field(id=1, name="a", type=data_type)
    differences = []
    for text in _STRINGS[data_type].split("|"):
        quick = cells._plain_array([text, None], column)
        if quick is None:
            continue
        try:
            slow = repr(_slowly(text, column))
        except (SchemaError, ValueError) as error:
            slow = f"{type(error).__name__}: {error}"
        if repr(quick.slice(0, 1)).partition("\n")[2] != slow.partition("\n")[2]:
            differences.append((text, repr(quick), slow))
    assert differences == []
    assert cells._plain_array([_STRINGS[data_type].partition("|")[0]], column) is not None, "Arrow parses some"


def test_numbers_as_booleans() -> None:
    column = Field(id=1, name="a", type=BOOLEAN)
    for held in ([1, None, 0], [True, None, False]):
        parsed = cells._plain_array(held, column)
        assert parsed is not None
        assert parsed.to_pylist() == [True, None, False]
    assert cells._plain_array([1, 2], column) is None
    assert cells._plain_array([1, True], column) is None


_CELLS: list[list[Any]] = [
    [1, 2], [0, None], [None, None], [-1, 3], [127, 128], [2**31, 1], [2**53 + 1, 1.5], [2**63 - 1], [2**63], [-(2**63) - 1], [2**200],
    [1.0, 2.0], [1, 2.5], [float("nan"), None], [1e308, -1e308], ["a", None], ["", "é"], ["1", 2], [b"x", None], [b"\xff"], ["a", b"a"],
    ["\x00"], ["\ud800"], [{"a": 1}],
]  # fmt: skip


@pytest.mark.parametrize("data_type", sorted([*cells._PLAIN_NUMBERS, INT128, UINT128, UUID], key=str), ids=str)
def test_cells_of_any_type(data_type: DataType) -> None:
    """Cells of SQLite may hold anything, whatever the column's type is; truth values come from columns of that type alone."""
    column, abilities = Field(id=1, name="a", type=data_type), abilities_of(sqlite.dialect())
    for held in _CELLS:
        quick = cells._plain_array(held, column)
        if quick is None:
            continue
        slow = cells.stored_array([cells._decoded(cell, column, abilities) for cell in held], column, column)
        # Compared as strings, as NaN is not equal to itself.
        assert str(quick) == str(slow), held
        assert quick.type == slow.type
        quick.validate(full=True)


def test_nested_cells_are_read_as_by_duckdb() -> None:
    """Random values of random types: DuckDB reads those marked as readable, the library reads all."""
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
