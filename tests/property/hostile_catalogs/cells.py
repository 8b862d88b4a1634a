"""A lake of version 1.1 with what only 1.1 has, and edits of its catalog: statements of any database, and cells that get any value.

SQLite takes every value in every cell. A typed database takes a value of another type in a column that has been given that type, as a
catalog has whose metadata tables another program made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ducklake_core import DuckLake
from ducklake_core.format.types.schema import VARIANT_STORAGE
from tests.support.ducklakepy_lake import new_lake
from tests.support.oracle import LakeAddress

TABLES = ("t", "x.y.t", '"x.y".t', "v")
INLINED = "{inlined}"
"""The table of inlined rows of ``t``, in statements."""


@dataclass(frozen=True)
class Cell:
    """Cells of a column that get a value, which is written as SQLite takes it."""

    table: str
    column: str
    value: str
    where: str = ""

    def __str__(self) -> str:
        """The statement of SQLite."""
        return f"UPDATE {self.table} SET {self.column} = {self.value}" + (f" WHERE {self.where}" if self.where else "")

    def typed(self, declared: str) -> Iterator[str]:
        """Statements of PostgreSQL, where the column has a type: that of the value first, if it is of another one."""
        wanted, value = _in_postgresql(self.value, declared)
        if wanted != declared:
            cells = f"{self.column}::text" if wanted in ("text", "bytea") else f"{self.column}::int"
            using = f"convert_to({cells}, 'UTF8')" if wanted == "bytea" else cells
            yield f"ALTER TABLE {self.table} ALTER COLUMN {self.column} TYPE {wanted} USING {using}"
        yield str(Cell(self.table, self.column, value, self.where))

    def in_duckdb(self, declared: str) -> Iterator[str]:
        """Statements of DuckDB, where the column has a type: that of the value first, if it is of another one."""
        wanted, value = _in_duckdb(self.value, declared)
        if wanted != declared:
            cells = f"CAST({self.column} AS VARCHAR)" if wanted in ("VARCHAR", "BLOB") else self.column
            using = f"CAST({cells} AS {wanted})"
            yield f"ALTER TABLE {self.table} ALTER COLUMN {self.column} SET DATA TYPE {wanted} USING {using}"
        yield str(Cell(self.table, self.column, value, self.where))


Edit = str | Cell


def _in_postgresql(value: str, declared: str) -> tuple[str, str]:
    """The type that holds a value, which is the column's own if it can be, and the value as it takes it."""
    number = value.lstrip("-")
    if value.startswith("x'"):
        return "bytea", rf"'\x{value[2:-1]}'"
    if declared == "character varying":
        return declared, f"'{value}'" if number[0].isdigit() else value
    if value.startswith("'"):
        return "text", value
    if "." in value:
        return "numeric", value
    if declared == "boolean" and number.isdigit():
        return ("boolean", f"'{value}'") if value in "01" else ("bigint", value)
    return declared, value


def _in_duckdb(value: str, declared: str) -> tuple[str, str]:
    """The type that holds a value, which is the column's own if it can be, and the value as DuckDB takes it."""
    if value.startswith("x'"):
        return "BLOB", "'{}'::BLOB".format(re.sub("(..)", r"\\x\1", value[2:-1]))
    if declared == "VARCHAR":
        return declared, value
    if value.startswith("'"):
        return "VARCHAR", value
    if "." in value:
        return "DOUBLE", value
    if declared in ("BOOLEAN", '"NULL"') and value.lstrip("-").isdigit() and value not in ("0", "1"):
        return "BIGINT", value
    return declared, value


_COUNTS = ("NULL", "0", "-1", "4611686018427387904", "'many'", "1.5", "x'00ff'", "1")
_FLAGS = ("NULL", "0", "1", "'maybe'", "-1", "7", "x'ff'", "0.5")
_STRINGS = ("NULL", "''", "7", "x'ff'")
_NUMBERS = ("NULL", "'x'", "-1", "x'00'", "1.5")
_SCHEMAS = "SELECT schema_id FROM ducklake_schema WHERE schema_name = "
_COPIED = ("view_column_tag", "table_column_stats", "file_column_stats", "inlined_data_tables", "metadata")


def _edits() -> Iterator[Edit]:
    for table in ("data_file", "delete_file"):
        yield from (Cell(f"ducklake_{table}", "row_group_count", value) for value in _COUNTS)
    for table in ("file_column_stats", "table_column_stats"):
        for flag in ("min_is_exact", "max_is_exact"):
            yield from (Cell(f"ducklake_{table}", flag, value) for value in _FLAGS if value != "1")
    for value in (*_NUMBERS, "77", "schema_id", "0", f"({_SCHEMAS}'y')"):
        for name in ("x", "y"):
            yield Cell("ducklake_schema", "parent_schema_id", value, f"schema_name = '{name}'")
    yield Cell("ducklake_schema", "end_snapshot", "9", "schema_name = 'x'")
    yield Cell("ducklake_schema", "schema_name", "NULL", "schema_name = 'y'")
    yield Cell("ducklake_schema", "schema_name", "'x.y'", "schema_name = 'y'")
    for column in ("view_id", "column_name", "begin_snapshot", "end_snapshot", "key", "value"):
        yield from (Cell("ducklake_view_column_tag", column, value) for value in (*_STRINGS, "-1", "99"))
    for table in _COPIED:
        yield f"INSERT INTO ducklake_{table} SELECT * FROM ducklake_{table}"
    for column in ("row_id", "begin_snapshot", "end_snapshot"):
        for value in ("'x'", "x'00'", "1.5", *(("NULL",) if column != "end_snapshot" else ())):
            yield Cell(INLINED, f"_ducklake_{column}", value)
        yield f"ALTER TABLE {INLINED} RENAME COLUMN _ducklake_{column} TO {column}"
    yield from (
        f"ALTER TABLE {INLINED} DROP COLUMN s",
        f"ALTER TABLE {INLINED} DROP COLUMN _ducklake_end_snapshot",
        f"DROP TABLE {INLINED}",
    )
    yield from (Cell(INLINED, "n", value) for value in ("0", "'x'", "x''"))
    yield from ("DROP TABLE ducklake_view_column_tag", "ALTER TABLE ducklake_schema DROP COLUMN parent_schema_id")
    for table, column in (("data_file", "row_group_count"), ("file_column_stats", "min_is_exact"), ("table_column_stats", "max_is_exact")):
        yield f"ALTER TABLE ducklake_{table} DROP COLUMN {column}"
    for value in ("''", "'1.10'", "'1.1 '", "1.1", "x'312e31'"):
        yield Cell("ducklake_metadata", "value", value, "key = 'version'")
    yield "INSERT INTO ducklake_metadata VALUES ('version', '1.0', NULL, NULL)"
    for column, values in {"footer_size": ("NULL", "0", "1", "99999999", "-5"), "delete_count": ("NULL", "0", "7", "-1")}.items():
        yield from (Cell("ducklake_delete_file", column, value) for value in values)
    yield from (Cell("ducklake_delete_file", "partial_max", value) for value in ("NULL", "'x'", "99"))
    yield from (Cell("ducklake_delete_file", "format", value) for value in ("'parquet'", "NULL", "'PUFFIN'", "'word'"))


EDITS = tuple(_edits())
TYPED_EDITS = tuple(
    edit for edit in EDITS if not (isinstance(edit, Cell) and edit.column == "_ducklake_end_snapshot" and edit.value == "1.5")
)
"""Those of a typed database, where 1.5 is a number, and a snapshot of the past."""


def build(address: LakeAddress) -> LakeAddress:
    """Four tables: a file with deletes of two snapshots in one vector and inlined rows; schemas in schemas; variants; a commented view."""
    lake = new_lake(address)
    for path in ("x", "x.y", '"x.y"'):
        lake.create_schema(path)
    lake.set_option("write_deletion_vectors", True)
    for name in TABLES[:3]:
        lake.create_table(name, {"a": "int64", "s": "varchar", "n": "null"})
        lake.write(name, rows(range(60)))
        lake.set_option("data_inlining_row_limit", 0)
        lake.table(name).delete("a % 2 = 1 AND a < 30")
        lake.table(name).delete("a % 2 = 1")
        lake.unset_option("data_inlining_row_limit")
        lake.write(name, rows(range(100, 103)))
    _add_variants(lake)
    lake.create_view("w", "SELECT a, s FROM t")
    lake.set_comment("w", "of a column", column="a")
    lake.close()
    return address


def _add_variants(lake: DuckLake) -> None:
    lake.create_table("v", {"a": "int64", "v": "variant"})
    schema = lake.table("v").scan().to_arrow().schema
    variants = pa.array([{"metadata": b"\x01\0\0", "value": b"\x0c\x07"}, None], VARIANT_STORAGE)
    lake.write("v", pa.Table.from_arrays([pa.array([1, 2], pa.int64()), variants], schema=schema))


def rows(numbers: range) -> pa.Table:
    """Rows of all tables but that of variants."""
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [f"s{n}" for n in numbers], "n": pa.nulls(len(numbers))})
