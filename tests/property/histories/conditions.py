"""Random conditions on a table's columns, in SQL of DuckDB and of the library."""

from __future__ import annotations

from random import Random

from tests.property.histories.sketch import Column, TableSketch
from tests.property.histories.values import literal
from tests.support.oracle import quoted

_UNORDERED = ("struct", "list", "map", "json", "interval", "variant")


def condition(draw: Random, table: TableSketch, depth: int = 0) -> str:
    """A condition; often simple, sometimes a few joined by AND, OR and NOT. A span of the key, if the table has one."""
    if table.key is not None:
        low = draw.randint(-20, 40)
        return f"{quoted(table.key)} BETWEEN {low} AND {low + draw.choice((0, 2, 10, 60))}"
    if depth < 2 and draw.random() < 0.25:
        joined = draw.choice((" AND ", " OR ")).join(condition(draw, table, depth + 1) for _ in range(2))
        return f"NOT ({joined})" if draw.random() < 0.2 else f"({joined})"
    return _about(draw, draw.choice(table.columns))


def _about(draw: Random, column: Column) -> str:
    name, data_type = column.sql, column.type
    if column.kind == "struct" and draw.random() < 0.7:
        field, data_type = draw.choice(data_type.children)
        name = f"{name}.{quoted(field)}"
        if data_type.id in _UNORDERED:
            return f"{name} IS NOT NULL"
    elif column.kind in _UNORDERED or draw.random() < 0.12:
        return f"{name} IS {draw.choice(('', 'NOT '))}NULL"

    def value() -> str:
        return literal(draw, data_type)

    if data_type.id == "boolean" and draw.random() < 0.3:
        return draw.choice((name, f"NOT {name}"))
    match draw.randint(0, 6):
        case 6 if data_type.id in ("integer", "bigint"):
            return f"{name} % {draw.randint(2, 7)} = {draw.randint(0, 1)}"
        case 0:
            return f"{name} IN ({value()}, {value()}, {value()})"
        case 1:
            return f"{name} BETWEEN {value()} AND {value()}"
        case 2 if data_type.id == "varchar":
            return f"{name} LIKE '{draw.choice(('v%', 'v1%', '%', 'a%', '_', ''))}'"
        case _:
            return f"{name} {draw.choice(('=', '=', '<>', '<', '<=', '>', '>='))} {value()}"
