"""Statements that define: schemas, tables, columns, partitions, order, views and comments."""

from __future__ import annotations

from random import Random

from duckdb.sqltypes import DuckDBPyType

from tests.property.histories.sketch import Column, LakeSketch, TableSketch
from tests.property.histories.values import column_type, constant
from tests.support.oracle import quoted

COLUMN_NAMES = ("a", "b", "c", "d", "key", "Val", "two words", "ü", "select", 'q"q', "e", "f", "g", "h")
TABLE_NAMES = ("t", "u", "v w", "Ä", "w")
SCHEMA_NAMES = ("main", "other", "Third one")
PROMOTIONS: dict[str, tuple[str, ...]] = {
    "tinyint": ("SMALLINT", "INTEGER", "BIGINT", "DOUBLE"),
    "smallint": ("INTEGER", "BIGINT", "FLOAT"),
    "integer": ("BIGINT", "HUGEINT", "DOUBLE"),
    "bigint": ("HUGEINT", "DOUBLE"),
    "utinyint": ("SMALLINT", "USMALLINT"),
    "uinteger": ("BIGINT", "UBIGINT"),
    "float": ("DOUBLE",),
    "date": ("TIMESTAMP",),
    # Not to TIMESTAMP_NS: it cannot hold all of them, and what it cannot hold is an error in every later read.
    "timestamp": ("TIMESTAMPTZ",),
    "timestamp_s": ("TIMESTAMP",),
    "timestamp_ms": ("TIMESTAMP",),
}


def create_table(draw: Random, lake: LakeSketch) -> list[str]:
    schema = draw.choice(lake.schemas)
    name = free_table_name(draw, lake, schema)
    if name is None or len(lake.tables) > 2:
        return []
    names = draw.sample(COLUMN_NAMES, draw.randint(1, 6))
    columns = []
    for column in names:
        data_type = column_type(draw)
        default = f" DEFAULT {constant(draw, data_type)}" if draw.random() < 0.1 and _may_default(data_type) else ""
        columns.append(f"{quoted(column)} {data_type}{default}")
    table = f"{quoted(schema)}.{quoted(name)}"
    return [f"CREATE TABLE {table} ({', '.join(columns)})"]


def create_table_as(draw: Random, lake: LakeSketch) -> list[str]:
    schema = draw.choice(lake.schemas)
    if not lake.tables or len(lake.tables) > 2:
        return []
    source = draw.choice(lake.tables)
    if draw.random() < 0.3:
        return [f"CREATE OR REPLACE TABLE {source.sql} AS SELECT *, {draw.randint(0, 9)} AS made FROM {source.sql} WHERE rowid % 3 <> 0"]
    name = free_table_name(draw, lake, schema)
    return [f"CREATE TABLE {quoted(schema)}.{quoted(name)} AS FROM {source.sql}"] if name else []


def create_schema(draw: Random, lake: LakeSketch) -> list[str]:
    free = [name for name in SCHEMA_NAMES if name not in lake.schemas]
    return [f"CREATE SCHEMA {quoted(draw.choice(free))}"] if free else []


def drop_table(draw: Random, lake: LakeSketch) -> list[str]:
    return [f"DROP TABLE {draw.choice(lake.tables).sql}"] if len(lake.tables) > 1 else []


def drop_schema(draw: Random, lake: LakeSketch) -> list[str]:
    others = [schema for schema in lake.schemas if schema != "main"]
    return [f"DROP SCHEMA {quoted(draw.choice(others))} CASCADE"] if others else []


def rename_table(draw: Random, lake: LakeSketch) -> list[str]:
    if not lake.tables:
        return []
    table = draw.choice(lake.tables)
    name = free_table_name(draw, lake, table.schema)
    return [f"ALTER TABLE {table.sql} RENAME TO {quoted(name)}"] if name else []


def create_view(draw: Random, lake: LakeSketch) -> list[str]:
    if not lake.tables:
        return []
    source = draw.choice(lake.tables)
    return [f"CREATE OR REPLACE VIEW {quoted(source.schema)}.view_{draw.randint(0, 1)} AS SELECT * FROM {source.sql}"]


def comment(draw: Random, table: TableSketch) -> list[str]:
    text = draw.choice(("'about it'", "'it''s'", "NULL"))
    if draw.random() < 0.5:
        return [f"COMMENT ON TABLE {table.sql} IS {text}"]
    return [f"COMMENT ON COLUMN {table.sql}.{draw.choice(table.columns).sql} IS {text}"]


def add_column(draw: Random, table: TableSketch) -> list[str]:
    free = [name for name in COLUMN_NAMES if name.lower() not in {column.name.lower() for column in table.columns}]
    if not free or len(table.columns) > 8:
        return []
    data_type = column_type(draw)
    default = f" DEFAULT {constant(draw, data_type)}" if draw.random() < 0.6 and _may_default(data_type) else ""
    return [f"ALTER TABLE {table.sql} ADD COLUMN {quoted(draw.choice(free))} {data_type}{default}"]


def drop_column(draw: Random, table: TableSketch) -> list[str]:
    return [f"ALTER TABLE {table.sql} DROP COLUMN {draw.choice(table.columns).sql}"] if len(table.columns) > 1 else []


def rename_column(draw: Random, table: TableSketch) -> list[str]:
    return [f"ALTER TABLE {table.sql} RENAME COLUMN {draw.choice(table.columns).sql} TO {quoted(draw.choice(COLUMN_NAMES))}"]


def promote(draw: Random, table: TableSketch) -> list[str]:
    able = [column for column in table.columns if column.kind in PROMOTIONS]
    if not able:
        return []
    column = draw.choice(able)
    return [f"ALTER TABLE {table.sql} ALTER {column.sql} TYPE {draw.choice(PROMOTIONS[column.kind])}"]


def widen_decimal(draw: Random, table: TableSketch) -> list[str]:
    able = table.of_kind("decimal")
    if not able:
        return []
    column = draw.choice(able)
    (_, precision), (_, scale) = column.type.children
    return [f"ALTER TABLE {table.sql} ALTER {column.sql} TYPE DECIMAL({min(38, precision + 6)},{min(scale + draw.randint(0, 3), 9)})"]


def alter_nested(draw: Random, table: TableSketch) -> list[str]:
    """Add, drop, rename or retype a field of a struct; structs in lists and maps are reached through their element."""
    reached = [found for column in table.columns for found in _structs(column)]
    if not reached:
        return []
    path, data_type = draw.choice(reached)
    start = f"ALTER TABLE {table.sql}"
    names = [name for name, _ in data_type.children]
    field = draw.choice(names)
    match draw.randint(0, 4):
        case 0 | 1:
            free = [name for name in ("x", "y", "z", "new", "n2") if name not in names]
            data = draw.choice(("INTEGER", "VARCHAR", "BIGINT"))
            default = f" DEFAULT {constant(draw, data)}" if draw.random() < 0.4 else ""
            return [f"{start} ADD COLUMN {path}.{quoted(draw.choice(free))} {data}{default}"]
        case 2 if len(names) > 1:
            return [f"{start} DROP COLUMN {path}.{quoted(field)}"]
        case 3:
            return [f"{start} RENAME COLUMN {path}.{quoted(field)} TO {quoted('r' + field)}"]
        case _:
            promoted = [(name, PROMOTIONS[child.id]) for name, child in data_type.children if child.id in ("integer", "tinyint")]
            if not promoted:
                return []
            field, targets = draw.choice(promoted)
            return [f"{start} ALTER {path}.{quoted(field)} TYPE {targets[0]}"]


def _structs(column: Column) -> list[tuple[str, DuckDBPyType]]:
    found = []
    path, data_type = column.sql, column.type
    while data_type.id in ("list", "map"):
        path += ".element" if data_type.id == "list" else ".value"
        data_type = data_type.children[-1][1]
    if data_type.id == "struct":
        found.append((path, data_type))
    return found


def set_default(draw: Random, table: TableSketch) -> list[str]:
    column = draw.choice(table.columns)
    start = f"ALTER TABLE {table.sql} ALTER {column.sql}"
    if draw.random() < 0.3 or not _may_default(str(column.type)):
        return [f"{start} DROP DEFAULT"]
    return [f"{start} SET DEFAULT {constant(draw, str(column.type))}"]


def not_null(draw: Random, table: TableSketch) -> list[str]:
    return [f"ALTER TABLE {table.sql} ALTER {draw.choice(table.columns).sql} {draw.choice(('SET', 'DROP'))} NOT NULL"]


def partition(draw: Random, table: TableSketch) -> list[str]:
    if draw.random() < 0.2:
        return [f"ALTER TABLE {table.sql} RESET PARTITIONED BY"]
    keys = [key for column in table.columns for key in _keys(draw, column)]
    if not keys:
        return []
    chosen = draw.sample(keys, min(len(keys), draw.randint(1, 2)))
    return [f"ALTER TABLE {table.sql} SET PARTITIONED BY ({', '.join(chosen)})"]


def _keys(draw: Random, column: Column) -> list[str]:
    match column.kind:
        case "struct" | "list" | "map" | "json" | "interval" | "blob" | "variant":
            return []
        case "date" | "timestamp" | "timestamp with time zone":
            parts = ("year", "month", "day") if column.kind == "date" else ("year", "month", "day", "hour")
            return [f"{draw.choice(parts)}({column.sql})", f"bucket({draw.randint(2, 4)}, {column.sql})"]
        case _:
            return [column.sql, f"bucket({draw.randint(2, 4)}, {column.sql})"]


def sort(draw: Random, table: TableSketch) -> list[str]:
    if draw.random() < 0.2:
        return [f"ALTER TABLE {table.sql} RESET SORTED BY"]
    return [f"ALTER TABLE {table.sql} SET SORTED BY ({draw.choice(table.columns).sql} {draw.choice(('ASC', 'DESC'))})"]


def free_table_name(draw: Random, lake: LakeSketch, schema: str) -> str | None:
    free = [name for name in TABLE_NAMES if f"{schema}.{name}".lower() not in lake.names]
    return draw.choice(free) if free else None


def _may_default(data_type: str) -> bool:
    return not any(mark in data_type for mark in ("STRUCT", "[", "MAP", "JSON", "INTERVAL", "BLOB", "VARIANT"))
