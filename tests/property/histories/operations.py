"""The operations of a history: how each is drawn, with its SQL and its call of the library, and how often it comes up."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb
from duckdb.sqltypes import DuckDBPyType

from tests.property.histories.actions import FOLDER, ROWS, TABLE, Action, Change, Reattach, Restore, SecondUpkeep, Special, Sql, Step
from tests.property.histories.conditions import condition
from tests.property.histories.maintenance import draw_upkeep
from tests.property.histories.sketch import Column, LakeSketch, TableSketch
from tests.property.histories.values import NARROW, column_type, constant, literal
from tests.support.oracle import quoted

if TYPE_CHECKING:
    from tests.property.histories.play import Lake

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
OPTIONS: dict[str, tuple[str, ...]] = {
    "data_inlining_row_limit": ("0", "3", "10", "40"),
    "target_file_size": ("'10KB'", "'1MB'", "'512MB'"),
    "parquet_compression": ("'zstd'", "'snappy'", "'uncompressed'", "'gzip'"),
    "parquet_version": ("1", "2"),
    "parquet_row_group_size": ("2048", "122880"),
    "hive_file_pattern": ("true", "false"),
    "per_thread_output": ("true", "false"),
    "sort_on_insert": ("true", "false"),
    "write_deletion_vectors": ("true", "false"),
}
_INSERT = f"INSERT INTO {TABLE} BY NAME SELECT * FROM {ROWS}"


# Rows


def few_rows(draw: Random, columns: tuple[Column, ...]) -> str:
    """Return a SELECT of a handful of rows: below the inlining limit."""
    count = draw.randint(1, 5)
    return " UNION ALL ".join("SELECT " + ", ".join(f"{literal(draw, c.type)} AS {c.sql}" for c in columns) for _ in range(count))


def many_rows(draw: Random, columns: tuple[Column, ...]) -> str:
    """Return a SELECT of more rows than are inlined: a few values a column, each with its own rhythm."""
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


def _keyed_rows(draw: Random, table: TableSketch, keys: list[Column]) -> str:
    names = ", ".join(key.sql for key in keys)
    given = " AND ".join(f"{key.sql} IS NOT NULL" for key in keys)
    return f"SELECT DISTINCT ON ({names}) * FROM ({some_rows(draw, table.columns)}) WHERE {given}"


def append(draw: Random, table: TableSketch) -> Step | None:
    columns = table.columns
    if len(columns) > 1 and draw.random() < 0.15:
        columns = tuple(draw.sample(columns, draw.randint(1, len(columns) - 1)))
    arguments = {"missing_columns": "null"} if columns != table.columns and draw.random() < 0.8 else {}
    return Step(table.sql, "append", (_INSERT,), arguments, some_rows(draw, columns))


def delete(draw: Random, table: TableSketch) -> Step | None:
    where = condition(draw, table)
    return Step(table.sql, "delete", (f"DELETE FROM {TABLE} WHERE {where}",), {"where": where})


def update(draw: Random, table: TableSketch) -> Step | None:
    others = table.others
    if not others:
        return None
    changed = draw.sample(others, min(len(others), draw.randint(1, 2)))
    values = {column.name: literal(draw, column.type) for column in changed}
    where = condition(draw, table)
    pairs = ", ".join(f"{quoted(name)} = {value}" for name, value in values.items())
    return Step(table.sql, "update", (f"UPDATE {TABLE} SET {pairs} WHERE {where}",), {"values": values, "where": where})


def overwrite(draw: Random, table: TableSketch) -> Step | None:
    rows = some_rows(draw, table.columns)
    if draw.random() < 0.2 and table.key is None:
        return Step(table.sql, "overwrite", (f"DELETE FROM {TABLE}", _INSERT), rows=rows)
    where = condition(draw, table)
    sql = (f"DELETE FROM {TABLE} WHERE {where}", _INSERT)
    return Step(table.sql, "overwrite", sql, {"where": where}, f"SELECT * FROM ({rows}) WHERE {where}")


def upsert(draw: Random, table: TableSketch) -> Step | None:
    keys = table.of_kind("integer", "bigint", "varchar", "date", "timestamp", "decimal", "boolean")
    if not keys:
        return None
    chosen = draw.sample(keys, min(len(keys), draw.randint(1, 2)))
    names = ", ".join(key.sql for key in chosen)
    sql = (f"DELETE FROM {TABLE} WHERE ({names}) IN (SELECT ({names}) FROM {ROWS})", _INSERT)
    return Step(table.sql, "upsert", sql, {"on": [key.name for key in chosen]}, _keyed_rows(draw, table, chosen))


def merge(draw: Random, table: TableSketch) -> Step | None:
    keys = table.of_kind("integer", "bigint", "varchar", "date", "boolean")
    if not keys:
        return None
    key, action = draw.choice(keys), draw.choice(("UPDATE", "DELETE"))
    names, values = (", ".join(f"{prefix}{column.sql}" for column in table.columns) for prefix in ("", "source."))
    clauses = f"WHEN MATCHED THEN {action} WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
    sql = f"MERGE INTO {TABLE} AS target USING {ROWS} AS source ON (target.{key.sql} = source.{key.sql}) {clauses}"
    return Step(table.sql, "merge", (sql,), {"on": [key.name], "matched": action}, _keyed_rows(draw, table, [key]))


def widen(draw: Random, table: TableSketch) -> Step | None:
    """Append rows with a column more."""
    number = draw.randint(0, 99)
    if len(table.columns) > 8 or any(column.name == f"more{number}" for column in table.columns):
        return None
    rows = f"SELECT *, 'w' || {number} AS more{number} FROM ({some_rows(draw, table.columns)})"
    sql = (f"ALTER TABLE {TABLE} ADD COLUMN more{number} VARCHAR", _INSERT)
    return Step(table.sql, "append", sql, {"schema_evolution": "additive"}, rows)


# Rows, by DuckDB alone: by position, from the table itself, from files that it did not write


def delete_by_row_id(draw: Random, table: TableSketch) -> Step | None:
    return Step(table.sql, "", (f"DELETE FROM {TABLE} WHERE {_positions(draw)}",))


def update_by_row_id(draw: Random, table: TableSketch) -> Step | None:
    column = draw.choice(table.columns)
    return Step(table.sql, "", (f"UPDATE {TABLE} SET {column.sql} = {literal(draw, column.type)} WHERE {_positions(draw)}",))


def _positions(draw: Random) -> str:
    return draw.choice(
        (
            f"rowid % {draw.randint(2, 7)} = {draw.randint(0, 1)}",
            f"rowid IN (SELECT rowid FROM {TABLE} ORDER BY rowid LIMIT {draw.randint(1, 4)} OFFSET {draw.randint(0, 20)})",
            f"rowid >= {draw.randint(0, 60)}",
        )
    )


def insert_from_itself(draw: Random, table: TableSketch) -> Step | None:
    return Step(table.sql, "", (f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE {condition(draw, table)} LIMIT 40",))


def truncate(draw: Random, table: TableSketch) -> Step | None:
    return Step(table.sql, "", (draw.choice((f"TRUNCATE {TABLE}", f"DELETE FROM {TABLE}")),))


def add_file(draw: Random, table: TableSketch) -> Step | None:
    """A file from elsewhere, without field ids; some of the table's columns may be missing in it."""
    path = f"'{FOLDER}/added_{draw.randint(0, 10**9)}.parquet'"
    columns = table.columns if draw.random() < 0.6 else tuple(draw.sample(table.columns, draw.randint(1, len(table.columns))))
    copied = f"COPY ({some_rows(draw, columns)}) TO {path} (FORMAT parquet)"
    added = f"CALL ducklake_add_data_files('lake', {_text(table.name)}, {path}, schema => {_text(table.schema)}, allow_missing => true)"
    return Step(table.sql, "", (copied, added))


# Columns


def add_column(draw: Random, table: TableSketch) -> Step | None:
    free = [name for name in COLUMN_NAMES if name.lower() not in {column.name.lower() for column in table.columns}]
    if not free or len(table.columns) > 8:
        return None
    name = draw.choice(free)
    data_type = column_type(draw, NARROW if table.key else ())
    arguments: dict[str, Any] = {"column": (name,), "data_type": data_type}
    if draw.random() < 0.6 and _may_default(data_type) and not table.key:
        arguments["default"] = constant(draw, data_type)
    default = f" DEFAULT {arguments['default']}" if "default" in arguments else ""
    return Step(table.sql, "add_column", (f"ALTER TABLE {TABLE} ADD COLUMN {quoted(name)} {data_type}{default}",), arguments)


def drop_column(draw: Random, table: TableSketch) -> Step | None:
    if len(table.others) < 2:
        return None
    column = draw.choice(table.others)
    return Step(table.sql, "drop_column", (f"ALTER TABLE {TABLE} DROP COLUMN {column.sql}",), {"column": (column.name,)})


def rename_column(draw: Random, table: TableSketch) -> Step | None:
    if not table.others:
        return None
    column, name = draw.choice(table.others), draw.choice(COLUMN_NAMES)
    sql = f"ALTER TABLE {TABLE} RENAME COLUMN {column.sql} TO {quoted(name)}"
    return Step(table.sql, "rename_column", (sql,), {"column": (column.name,), "new_name": name})


def promote(draw: Random, table: TableSketch) -> Step | None:
    able = [column for column in table.columns if column.kind in PROMOTIONS]
    if not able:
        return None
    column = draw.choice(able)
    return _retyped(table, column, draw.choice(PROMOTIONS[column.kind]))


def widen_decimal(draw: Random, table: TableSketch) -> Step | None:
    able = table.of_kind("decimal")
    if not able:
        return None
    column = draw.choice(able)
    (_, precision), (_, scale) = column.type.children
    return _retyped(table, column, f"DECIMAL({min(38, precision + 6)},{min(scale + draw.randint(0, 3), 9)})")


def _retyped(table: TableSketch, column: Column, data_type: str) -> Step:
    sql = f"ALTER TABLE {TABLE} ALTER {column.sql} TYPE {data_type}"
    return Step(table.sql, "set_column_type", (sql,), {"column": (column.name,), "data_type": data_type})


def alter_nested(draw: Random, table: TableSketch) -> Step | None:
    """Add, drop, rename or retype a field of a struct; structs in lists and maps are reached through their element."""
    reached = [found for column in table.columns for found in _structs(column)]
    if not reached:
        return None
    path, data_type = draw.choice(reached)
    start, written = f"ALTER TABLE {TABLE}", ".".join(map(quoted, path))
    names = [name for name, _ in data_type.children]
    field = draw.choice(names)
    there, arguments = f"{written}.{quoted(field)}", {"column": (*path, field)}
    match draw.randint(0, 4):
        case 0 | 1:
            new = draw.choice([name for name in ("x", "y", "z", "new", "n2") if name not in names])
            kind = draw.choice(("INTEGER", "VARCHAR", "BIGINT"))
            # DuckDB loses quotes of inlined structs.
            default = {"default": constant(draw, kind)} if kind != "VARCHAR" and draw.random() < 0.4 else {}
            sql = f"{start} ADD COLUMN {written}.{quoted(new)} {kind}" + (f" DEFAULT {default['default']}" if default else "")
            return Step(table.sql, "add_column", (sql,), {"column": (*path, new), "data_type": kind, **default})
        case 2 if len(names) > 1:
            return Step(table.sql, "drop_column", (f"{start} DROP COLUMN {there}",), arguments)
        case 3:
            sql = f"{start} RENAME COLUMN {there} TO {quoted('r' + field)}"
            return Step(table.sql, "rename_column", (sql,), {**arguments, "new_name": f"r{field}"})
        case _:
            promoted = [(name, PROMOTIONS[child.id]) for name, child in data_type.children if child.id in ("integer", "tinyint")]
            if not promoted:
                return None
            field, targets = draw.choice(promoted)
            sql = f"{start} ALTER {written}.{quoted(field)} TYPE {targets[0]}"
            return Step(table.sql, "set_column_type", (sql,), {"column": (*path, field), "data_type": targets[0]})


def _structs(column: Column) -> list[tuple[tuple[str, ...], DuckDBPyType]]:
    path, data_type = (column.name,), column.type
    while data_type.id in ("list", "map"):
        path = (*path, "element" if data_type.id == "list" else "value")
        data_type = data_type.children[-1][1]
    return [(path, data_type)] if data_type.id == "struct" else []


def set_default(draw: Random, table: TableSketch) -> Step | None:
    column = draw.choice(table.columns)
    start = f"ALTER TABLE {TABLE} ALTER {column.sql}"
    if draw.random() < 0.3 or not _may_default(str(column.type)):
        return Step(table.sql, "drop_default", (f"{start} DROP DEFAULT",), {"column": (column.name,)})
    value = constant(draw, str(column.type))
    return Step(table.sql, "set_default", (f"{start} SET DEFAULT {value}",), {"column": (column.name,), "value": value})


def not_null(draw: Random, table: TableSketch) -> Step | None:
    column, action = draw.choice(table.columns), draw.choice(("SET", "DROP"))
    sql = f"ALTER TABLE {TABLE} ALTER {column.sql} {action} NOT NULL"
    return Step(table.sql, f"{action.lower()}_not_null", (sql,), {"column": (column.name,)})


def partition(draw: Random, table: TableSketch) -> Step | None:
    keys = [key for column in table.columns for key in _keys(draw, column)]
    if draw.random() < 0.2 or not keys:
        return Step(table.sql, "reset_partitioned_by", (f"ALTER TABLE {TABLE} RESET PARTITIONED BY",))
    chosen = draw.sample(keys, min(len(keys), draw.randint(1, 2)))
    return Step(table.sql, "set_partitioned_by", (f"ALTER TABLE {TABLE} SET PARTITIONED BY ({', '.join(chosen)})",), {"keys": chosen})


def _keys(draw: Random, column: Column) -> list[str]:
    match column.kind:
        case "struct" | "list" | "map" | "json" | "interval" | "blob" | "variant":
            return []
        case "date" | "timestamp" | "timestamp with time zone":
            parts = ("year", "month", "day") if column.kind == "date" else ("year", "month", "day", "hour")
            return [f"{draw.choice(parts)}({column.sql})", f"bucket({draw.randint(2, 4)}, {column.sql})"]
        case "integer" | "bigint" if draw.random() < 0.8:
            # Some rows count up, and each would have a file of its own.
            return [f"bucket({draw.randint(2, 4)}, {column.sql})"]
        case _:
            return [column.sql, f"bucket({draw.randint(2, 4)}, {column.sql})"]


def sort(draw: Random, table: TableSketch) -> Step | None:
    if draw.random() < 0.2:
        return Step(table.sql, "reset_sorted_by", (f"ALTER TABLE {TABLE} RESET SORTED BY",))
    key = f"{draw.choice(table.columns).sql} {draw.choice(('ASC', 'DESC'))}"
    return Step(table.sql, "set_sorted_by", (f"ALTER TABLE {TABLE} SET SORTED BY ({key})",), {"keys": [key]})


def comment(draw: Random, table: TableSketch) -> Step | None:
    text = draw.choice(("about it", "it's", None))
    written = "NULL" if text is None else _text(text)
    if draw.random() < 0.5:
        return Step(table.sql, "set_comment", (f"COMMENT ON TABLE {TABLE} IS {written}",), {"text": text})
    column = draw.choice(table.columns)
    return Step(
        table.sql, "set_comment", (f"COMMENT ON COLUMN {TABLE}.{column.sql} IS {written}",), {"text": text, "column": (column.name,)}
    )


def _may_default(data_type: str) -> bool:
    return not any(mark in data_type for mark in ("STRUCT", "[", "MAP", "JSON", "INTERVAL", "BLOB", "VARIANT"))


# Tables, by DuckDB


def create_table(draw: Random, lake: LakeSketch) -> list[Action]:
    schema = draw.choice(lake.schemas)
    name = free_table_name(draw, lake, schema)
    if name is None or len(lake.tables) > 2:
        return []
    columns = []
    for column in draw.sample(COLUMN_NAMES, draw.randint(1, 6)):
        data_type = column_type(draw)
        default = f" DEFAULT {constant(draw, data_type)}" if draw.random() < 0.1 and _may_default(data_type) else ""
        columns.append(f"{quoted(column)} {data_type}{default}")
    return [Sql(f"CREATE TABLE {quoted(schema)}.{quoted(name)} ({', '.join(columns)})")]


def create_table_as(draw: Random, lake: LakeSketch) -> list[Action]:
    schema = draw.choice(lake.schemas)
    if not lake.tables or len(lake.tables) > 2:
        return []
    source = draw.choice(lake.tables)
    if draw.random() < 0.3:
        made = f"SELECT *, {draw.randint(0, 9)} AS made FROM {source.sql} WHERE rowid % 3 <> 0"
        return [Sql(f"CREATE OR REPLACE TABLE {source.sql} AS {made}")]
    name = free_table_name(draw, lake, schema)
    return [Sql(f"CREATE TABLE {quoted(schema)}.{quoted(name)} AS FROM {source.sql}")] if name else []


def create_schema(draw: Random, lake: LakeSketch) -> list[Action]:
    free = [name for name in SCHEMA_NAMES if name not in lake.schemas]
    return [Sql(f"CREATE SCHEMA {quoted(draw.choice(free))}")] if free else []


def drop_table(draw: Random, lake: LakeSketch) -> list[Action]:
    return [Sql(f"DROP TABLE {draw.choice(lake.tables).sql}")] if len(lake.tables) > 1 else []


def drop_schema(draw: Random, lake: LakeSketch) -> list[Action]:
    others = [schema for schema in lake.schemas if schema != "main"]
    return [Sql(f"DROP SCHEMA {quoted(draw.choice(others))} CASCADE")] if others else []


def rename_table(draw: Random, lake: LakeSketch) -> list[Action]:
    if not lake.tables:
        return []
    table = draw.choice(lake.tables)
    name = free_table_name(draw, lake, table.schema)
    return [Sql(f"ALTER TABLE {table.sql} RENAME TO {quoted(name)}")] if name else []


def create_view(draw: Random, lake: LakeSketch) -> list[Action]:
    if not lake.tables:
        return []
    source = draw.choice(lake.tables)
    return [Sql(f"CREATE OR REPLACE VIEW {quoted(source.schema)}.view_{draw.randint(0, 1)} AS SELECT * FROM {source.sql}")]


def free_table_name(draw: Random, lake: LakeSketch, schema: str) -> str | None:
    free = [name for name in TABLE_NAMES if f"{schema}.{name}".lower() not in lake.names]
    return draw.choice(free) if free else None


# Maintenance and options, by DuckDB


def _scope(draw: Random, lake: LakeSketch) -> tuple[str, ...]:
    """No arguments, or those that name one table."""
    if not lake.tables or draw.random() < 0.6:
        return ()
    table = draw.choice(lake.tables)
    return (_text(table.name), f"schema => {_text(table.schema)}")


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _call(function: str, *arguments: str) -> list[Action]:
    return [Sql(f"CALL {function}({', '.join((_text('lake'), *arguments))})")]


def merge_files(draw: Random, lake: LakeSketch) -> list[Action]:
    return _call("ducklake_merge_adjacent_files", *_scope(draw, lake))


def rewrite_files(draw: Random, lake: LakeSketch) -> list[Action]:
    return _call("ducklake_rewrite_data_files", *_scope(draw, lake), f"delete_threshold => {draw.choice(('0.0', '0.2', '0.95'))}")


def flush(draw: Random, lake: LakeSketch) -> list[Action]:
    if not lake.tables or draw.random() < 0.6:
        return _call("ducklake_flush_inlined_data")
    table = draw.choice(lake.tables)
    return _call("ducklake_flush_inlined_data", f"schema_name => {_text(table.schema)}", f"table_name => {_text(table.name)}")


def set_option(draw: Random, lake: LakeSketch) -> list[Action]:
    name, scope = draw.choice(tuple(OPTIONS)), ""
    if lake.tables and draw.random() < 0.5:
        table = draw.choice(lake.tables)
        scope = f", schema => {_text(table.schema)}, table_name => {_text(table.name)}"
    return [Sql(f"CALL lake.set_option('{name}', {draw.choice(OPTIONS[name])}{scope})"), Reattach()]


def expire(draw: Random, lake: Lake) -> list[Action]:
    chosen = some_snapshots(draw, lake)
    return _call("ducklake_expire_snapshots", f"versions => {chosen}") if chosen else []


def some_snapshots(draw: Random, lake: Lake) -> list[int]:
    ids = [snapshot.id for snapshot in lake.library.snapshots()][:-1]
    return sorted(draw.sample(ids, draw.randint(1, max(1, len(ids) // 3)))) if len(ids) > 2 else []


def clean_up(draw: Random, _: Lake) -> list[Action]:
    calls = _call("ducklake_cleanup_old_files", "cleanup_all => true")
    return calls if draw.random() < 0.7 else [*calls, *_call("ducklake_delete_orphaned_files", "cleanup_all => true")]


# What the library does, and what else can happen


def our_table(draw: Random, lake: Lake) -> list[Action]:
    """A table of the library, partitioned and sorted at times."""
    sketch = lake.sketch()
    schema = draw.choice(sketch.schemas)
    name = free_table_name(draw, sketch, schema)
    if name is None or len(sketch.tables) > 2:
        return []
    if sketch.tables and lake.mode != "second":
        columns = {c.name: str(c.type) for c in draw.choice(sketch.tables).columns}
    else:
        columns = {name: column_type(draw) for name in draw.sample(COLUMN_NAMES, draw.randint(1, 6))}
    return created(draw, f"{quoted(schema)}.{quoted(name)}", columns)


def created(draw: Random, name: str, columns: dict[str, str]) -> list[Action]:
    written = ", ".join(f"{quoted(column)} {data_type}" for column, data_type in columns.items())
    sketch = TableSketch("", "", tuple(Column(column, duckdb.sqltype(kind)) for column, kind in columns.items()), written=name)
    steps = [Step(name, "create_table", (f"CREATE TABLE {TABLE} ({written})",), {"schema": columns})]
    steps += [step for make in (partition, sort) if draw.random() < 0.5 and (step := make(draw, sketch))]
    return [Change((*steps, Step(name, "append", (_INSERT,), rows=some_rows(draw, sketch.columns))))]


def our_change(draw: Random, lake: Lake) -> list[Action]:
    """One transaction of the library: mostly one step, or several on several tables; the other writer may commit in the middle."""
    tables = {table.sql: table for table in lake.sketch().tables}
    if not tables:
        return []
    first, meanwhile, steps = draw.choice(list(tables)), (), []
    is_alone = lake.mode == "alone" or draw.random() < 0.7
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5))):
        table = first if draw.random() < 0.7 or not is_alone else draw.choice(list(tables))
        if step := _drawn(draw, tables[table], BY_LIBRARY):
            steps.append(step)
            # The next one is drawn for the columns that this one leaves.
            tables[table] = lake.altered(tables[table], step)
    if not is_alone and steps and (other := _drawn(draw, lake.named(first), MEANWHILE)):
        meanwhile = (other,)
    breaks = not meanwhile and draw.random() < 0.1
    return [Change(tuple(steps), reads=draw.random() < 0.5, breaks=breaks, meanwhile=meanwhile)] if steps else []


def swap(draw: Random, table: TableSketch) -> Step | None:
    """Give the name of a table to a new one with other columns."""
    old = f"old_{draw.randint(0, 10**6)}"
    sql = (f"ALTER TABLE {TABLE} RENAME TO {old}", f"CREATE TABLE {TABLE} (a BIGINT, v VARCHAR)")
    return Step(table.sql, "swap", sql, {"old": old, "path": f"{table.schema if table.written else quoted(table.schema)}.{old}"})


def second_change(draw: Random, lake: Lake) -> list[Action]:
    step = _drawn(draw, draw.choice(lake.sketch().tables), NARROW_OPERATIONS)
    return [Change((step,), by="second")] if step else []


def second_upkeep(draw: Random, lake: Lake) -> list[Action]:
    operation = draw.choice(("flush", "merge", "rewrite", "expire"))
    versions = tuple(some_snapshots(draw, lake)) if operation == "expire" else ()
    return [SecondUpkeep(operation, versions)] if versions or operation != "expire" else []


def restore(draw: Random, lake: Lake) -> list[Action]:
    tables = [table for table in lake.sketch().tables if not table.of_kind("variant")]
    if not tables:
        return []
    name, snapshot = draw.choice(tables).sql, draw.choice(lake.library.snapshots()).id
    return [Restore(name, snapshot)] if lake.can_restore(name, snapshot) else []


def special(draw: Random, lake: Lake) -> list[Action]:
    if lake.mode != "duckdb" and lake.library.info.version == "1.0" and lake.migrates:
        return [Special("migrate")]
    return [Special("put back" if lake.saved and draw.random() < 0.6 else "save")]


def reattach(draw: Random, _: Lake) -> list[Action]:
    return [Reattach(library=draw.random() < 0.3)]


def begin(_: Random, __: Lake) -> list[Action]:
    return [Sql("BEGIN")]


Drawn = dict[Callable[[Random, TableSketch], "Step | None"], int]
# Weights: row changes are most frequent; every operation occurs in a few hundred steps.
BOTH: Drawn = {
    append: 26,
    delete: 7,
    update: 7,
    merge: 5,
    add_column: 5,
    drop_column: 2,
    rename_column: 3,
    promote: 4,
    widen_decimal: 1,
    alter_nested: 5,
    set_default: 2,
    not_null: 1,
    partition: 5,
    sort: 2,
    comment: 1,
}
DUCKDB: Drawn = {**BOTH, insert_from_itself: 3, delete_by_row_id: 5, update_by_row_id: 5, truncate: 1, add_file: 3}
BY_LIBRARY: Drawn = {**BOTH, append: 14, delete: 10, update: 10, overwrite: 9, upsert: 9, widen: 2}
NARROW_OPERATIONS: Drawn = {append: 12, delete: 6, update: 6, add_column: 3, drop_column: 1, rename_column: 1}
"""Operations of the second implementation, and types that it reads."""
WITHOUT_ROWS = (delete, update, add_column, drop_column, rename_column, partition, sort)
"""Steps that write no rows of DuckDB, whose variants Arrow does not take."""
MEANWHILE: Drawn = {append: 4, delete: 2, update: 2, swap: 1}
TABLES: dict[Callable[[Random, LakeSketch], list[Action]], int] = {
    create_table: 3,
    create_table_as: 1,
    create_schema: 2,
    drop_table: 1,
    drop_schema: 1,
    rename_table: 2,
    create_view: 1,
}
DUCKDB_UPKEEP: dict[Callable[[Random, LakeSketch], list[Action]], int] = {merge_files: 4, rewrite_files: 4, flush: 5, set_option: 5}
ANY: dict[Callable[[Random, Lake], list[Action]], int] = {
    expire: 3,
    clean_up: 2,
    our_table: 1,
    our_change: 20,
    draw_upkeep: 20,
    restore: 2,
    special: 2,
    reattach: 2,
    begin: 5,
}
SECOND: dict[Callable[[Random, Lake], list[Action]], int] = {
    our_change: 26,
    second_change: 24,
    draw_upkeep: 8,
    second_upkeep: 6,
    restore: 2,
    special: 6,
    reattach: 1,
}
ALONE: dict[Callable[[Random, Lake], list[Action]], int] = {our_table: 3, our_change: 60, draw_upkeep: 40, restore: 4, special: 10}


def _pick(draw: Random, weights: dict[Any, int]) -> Any:
    return draw.choices(list(weights), list(weights.values()))[0]


def _drawn(draw: Random, table: TableSketch, weights: Drawn) -> Step | None:
    if weights is BY_LIBRARY and table.of_kind("variant"):
        weights = {step: weight for step, weight in weights.items() if step in WITHOUT_ROWS}
    if table.key is not None and weights is not MEANWHILE:
        weights = NARROW_OPERATIONS | ({overwrite: 4, upsert: 4, merge: 3} if weights is BY_LIBRARY else {})
    step: Step | None = _pick(draw, weights)(draw, table)
    return step


def first_steps(draw: Random, mode: str) -> list[Action]:
    """A table with something in it, so that no history is about nothing."""
    if mode == "duckdb":
        if draw.random() < 0.15:
            return [Sql(text) for text in VARIANTS]
        return create_table(draw, LakeSketch(tables=(), schemas=("main",), views=()))
    if mode == "second":
        return created(draw, "main.t", {"a": "BIGINT", "s": "VARCHAR"})
    return created(draw, '"main"."t"', {name: column_type(draw) for name in draw.sample(COLUMN_NAMES, 5)})


VARIANTS = (
    "CREATE TABLE t (k INTEGER, v VARIANT)",
    "INSERT INTO t SELECT i, CASE i % 3 WHEN 0 THEN i::VARIANT WHEN 1 THEN {'a': i, 'b': 'x' || i}::VARIANT END FROM range(40) r(i)",
    "INSERT INTO t VALUES (50, 'text'::VARIANT), (51, [1, 2]::VARIANT), (52, NULL)",
)
"""A table with a column of variants, in files with shredded fields, and inlined."""


def next_step(draw: Random, lake: Lake) -> list[Action]:
    """Actions that belong together; may be none when what was drawn does not fit the lake."""
    if lake.mode != "duckdb":
        return _pick(draw, SECOND if lake.mode == "second" else ALONE)(draw, lake)  # type: ignore[no-any-return]
    sketch = lake.sketch()
    if not sketch.tables:
        return create_table(draw, sketch)
    kind = _pick(draw, {**DUCKDB, **TABLES, **DUCKDB_UPKEEP, **ANY})
    if kind in ANY:
        return kind(draw, lake)  # type: ignore[no-any-return]
    return _by_duckdb(draw, kind, sketch)


def next_in_transaction(draw: Random, lake: Lake) -> list[Action]:
    """The next statement of DuckDB's open transaction."""
    sketch = lake.sketch()
    if not sketch.tables:
        return [Sql("COMMIT")]
    # DuckDB writes the columns of a table twice when one transaction alters and renames it, and can never load the lake again.
    kind = _pick(draw, {**DUCKDB, **{kind: n for kind, n in TABLES.items() if kind is not rename_table}})
    # DuckDB's instance is lost when a transaction resets partition keys and writes rows afterwards (docs/reference/differences.md).
    return [action for action in _by_duckdb(draw, kind, sketch) if not str(getattr(action, "text", "")).endswith("RESET PARTITIONED BY")]


def _by_duckdb(draw: Random, kind: Any, sketch: LakeSketch) -> list[Action]:
    if kind in DUCKDB:
        step = kind(draw, draw.choice(sketch.tables))
        return [Sql(statement) for statement in step.statements()] if step else []
    return kind(draw, sketch)  # type: ignore[no-any-return]
