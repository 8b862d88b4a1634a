"""Statements and commits that change rows."""

from __future__ import annotations

from random import Random

from tests.property.histories.actions import FOLDER, Action, Sql, Write
from tests.property.histories.conditions import condition
from tests.property.histories.definitions import free_table_name
from tests.property.histories.sketch import Column, LakeSketch, TableSketch
from tests.property.histories.values import literal
from tests.support.oracle import quoted


def few_rows(draw: Random, columns: tuple[Column, ...]) -> str:
    """A SELECT of a handful of rows: below the inlining limit."""
    count = draw.randint(1, 5)
    return " UNION ALL ".join("SELECT " + ", ".join(f"{literal(draw, c.type)} AS {c.sql}" for c in columns) for _ in range(count))


def many_rows(draw: Random, columns: tuple[Column, ...]) -> str:
    """A SELECT of more rows than are inlined: a few values a column, each with its own rhythm."""
    count = draw.choice((11, 25, 60, 300))
    picks = []
    for column in columns:
        if column.kind in ("integer", "bigint") and draw.random() < 0.5:
            picks.append(f"({draw.randint(-10, 300)} + i)::{column.type} AS {column.sql}")
            continue
        step = draw.randint(1, 4)
        cases = " ".join(f"WHEN {n} THEN {literal(draw, column.type)}" for n in range(step - 1))
        value = literal(draw, column.type)
        picks.append(f"{f'CASE i % {step} {cases} ELSE {value} END' if cases else value} AS {column.sql}")
    return f"SELECT {', '.join(picks)} FROM range({count}) r(i)"


def some_rows(draw: Random, columns: tuple[Column, ...]) -> str:
    return few_rows(draw, columns) if draw.random() < 0.5 else many_rows(draw, columns)


def insert(draw: Random, table: TableSketch) -> list[str]:
    columns = table.columns
    if len(columns) > 1 and draw.random() < 0.15:
        columns = tuple(draw.sample(columns, draw.randint(1, len(columns) - 1)))
    return [f"INSERT INTO {table.sql} BY NAME {some_rows(draw, columns)}"]


def insert_from_itself(draw: Random, table: TableSketch) -> list[str]:
    return [f"INSERT INTO {table.sql} SELECT * FROM {table.sql} WHERE {condition(draw, table)} LIMIT 40"]


def add_file(draw: Random, table: TableSketch) -> list[str]:
    """A file from elsewhere, without field ids; some of the table's columns may be missing in it."""
    path = f"'{FOLDER}/added_{draw.randint(0, 10**9)}.parquet'"
    columns = table.columns if draw.random() < 0.6 else tuple(draw.sample(table.columns, draw.randint(1, len(table.columns))))
    name, schema = (text.replace("'", "''") for text in (table.name, table.schema))
    return [
        f"COPY ({some_rows(draw, columns)}) TO {path} (FORMAT parquet)",
        f"CALL ducklake_add_data_files('lake', '{name}', {path}, schema => '{schema}', allow_missing => true)",
    ]


def _chosen(draw: Random, table: TableSketch) -> str:
    """Which rows a statement touches: by position, by value, or nearly all."""
    match draw.randint(0, 5):
        case 0:
            return f"rowid % {draw.randint(2, 7)} = {draw.randint(0, 1)}"
        case 1:
            return f"rowid IN (SELECT rowid FROM {table.sql} ORDER BY rowid LIMIT {draw.randint(1, 4)} OFFSET {draw.randint(0, 20)})"
        case 2:
            return f"rowid >= {draw.randint(0, 60)}"
        case _:
            return condition(draw, table)


def delete(draw: Random, table: TableSketch) -> list[str]:
    return [f"DELETE FROM {table.sql} WHERE {_chosen(draw, table)}"]


def update(draw: Random, table: TableSketch) -> list[str]:
    changed = draw.sample(table.columns, min(len(table.columns), draw.randint(1, 2)))
    pairs = ", ".join(f"{column.sql} = {literal(draw, column.type)}" for column in changed)
    return [f"UPDATE {table.sql} SET {pairs} WHERE {_chosen(draw, table)}"]


def merge(draw: Random, table: TableSketch) -> list[str]:
    keys = table.of_kind("integer", "bigint", "varchar", "date", "boolean")
    if not keys:
        return []
    key = draw.choice(keys).sql
    action = draw.choice(("UPDATE", "DELETE"))
    source = f"SELECT DISTINCT ON ({key}) * FROM ({some_rows(draw, table.columns)}) WHERE {key} IS NOT NULL"
    return [f"MERGE INTO {table.sql} USING ({source}) AS s USING ({key}) WHEN MATCHED THEN {action} WHEN NOT MATCHED THEN INSERT"]


def truncate(draw: Random, table: TableSketch) -> list[str]:
    return [draw.choice((f"TRUNCATE {table.sql}", f"DELETE FROM {table.sql}"))]


def our_append(draw: Random, table: TableSketch) -> list[Action]:
    return [Write("append", table.sql, some_rows(draw, table.columns))]


def our_overwrite(draw: Random, table: TableSketch) -> list[Action]:
    if draw.random() < 0.2:
        return [Write("overwrite", table.sql, some_rows(draw, table.columns))]
    where = condition(draw, table)
    return [Write("overwrite", table.sql, f"SELECT * FROM ({some_rows(draw, table.columns)}) WHERE {where}", where=where)]


def our_upsert(draw: Random, table: TableSketch) -> list[Action]:
    keys = table.of_kind("integer", "bigint", "varchar", "date", "timestamp", "decimal", "boolean")
    if not keys:
        return []
    chosen = draw.sample(keys, min(len(keys), draw.randint(1, 2)))
    names = ", ".join(key.sql for key in chosen)
    given = " AND ".join(f"{key.sql} IS NOT NULL" for key in chosen)
    rows = f"SELECT DISTINCT ON ({names}) * FROM ({some_rows(draw, table.columns)}) WHERE {given}"
    return [Write("upsert", table.sql, rows, on=tuple(key.name for key in chosen))]


def our_delete(draw: Random, table: TableSketch) -> list[Action]:
    return [Write("delete", table.sql, where=condition(draw, table))]


def our_widening(draw: Random, table: TableSketch) -> list[Action]:
    if len(table.columns) > 8:
        return []
    number = draw.randint(0, 99)
    if any(column.name == f"more{number}" for column in table.columns):
        return []
    return [Write("widen", table.sql, f"SELECT *, 'w' || {number} AS more{number} FROM ({some_rows(draw, table.columns)})")]


def our_table(draw: Random, lake: LakeSketch) -> list[Action]:
    schema = draw.choice(lake.schemas)
    name = free_table_name(draw, lake, schema)
    if name is None or not lake.tables or len(lake.tables) > 2:
        return []
    like = draw.choice(lake.tables)
    keys = [c for c in like.of_kind("integer", "varchar", "bigint") if c.name.isidentifier()]
    spec = (draw.choice((keys[0].name, f"bucket(3, {keys[0].name})")),) if keys and draw.random() < 0.5 else ()
    return [Write("create", f"{quoted(schema)}.{quoted(name)}", some_rows(draw, like.columns), partition_by=spec)]


def as_actions(statements: list[str]) -> list[Action]:
    return [Sql(statement) for statement in statements]
