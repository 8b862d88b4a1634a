"""Filters on fields of variants over files in which the field is of one type, of others, of several, or missing: no row is lost.

Each lake is read as its catalog is, again without statistics of fields, and by DuckDB from a table that has no files at all.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.variants import Value, sql, variant_table

_FILES = "DATA_INLINING_ROW_LIMIT 0"
_PROFILES: tuple[tuple[str, ...], ...] = (
    ("INTEGER",), ("INTEGER", "missing"), ("TINYINT", "INTEGER", "BIGINT"), ("VARCHAR",), ("VARCHAR", "null"), ("DECIMAL",),
    ("DECIMAL", "DECIMAL4"), ("DECIMAL", "INTEGER"), ("DOUBLE",), ("DOUBLE", "missing"), ("FLOAT",), ("DATE",), ("TIMESTAMP", "DATE"),
    ("TIMESTAMPTZ",), ("BOOLEAN",), ("INTEGER", "VARCHAR"), ("INTEGER", "object"), ("missing",), ("null",), ("BLOB",),
)  # fmt: skip
_PATHS = ("v.a", "v['a']", "v.n.a", "v.l[1]", "v.A", "v.a.a")
_CASTS = ("INTEGER", "BIGINT", "TINYINT", "DOUBLE", "DECIMAL(9,2)", "VARCHAR", "DATE", "TIMESTAMP", "BOOLEAN")
_CONSTANTS = (
    "0", "1", "-3", "7", "2.5", "-2.50", "1e3", "'7'", "'k3'", "''", "'K'", "true", "DATE '2020-01-04'", "TIMESTAMP '2020-01-04 12:00:00'",
    "NULL", "9223372036854775807", "300", "'2020-01-04'", "'nan'::DOUBLE", "'inf'::DOUBLE",
)  # fmt: skip
_DAY = 18_262


def _leaf(dice: random.Random, kind: str) -> Value | None:
    number = dice.randint(-3, 9)
    match kind:
        case "missing":
            return None
        case "VARCHAR":
            return Value(kind, dice.choice([str(number), f"k{number}", "K", "", "é" * 300, "2020-01-04"]))
        case "DECIMAL":
            return Value(kind, (9, 2, number * 50))
        case "DECIMAL4":
            return Value("DECIMAL", (18, 4, number * 5000))
        case "DOUBLE" | "FLOAT":
            return Value(kind, dice.choice([number / 2, -0.0, float("nan"), float("inf"), float("-inf")]))
        case "DATE":
            return Value(kind, _DAY + number)
        case "TIMESTAMP" | "TIMESTAMPTZ":
            return Value(kind, (_DAY + number) * 86_400_000_000 + dice.choice([0, 43_200_000_000, 1]))
        case "BOOLEAN":
            return Value(kind, number > 3)
        case "BLOB":
            return Value(kind, bytes([number & 0xFF]))
        case "object":
            return Value(kind, {"a": Value("INTEGER", number)})
        case "null":
            return Value(kind)
        case _:
            return Value(kind, number)


def _rows(dice: random.Random, names: Sequence[str]) -> list[Value | None]:
    """Return rows of one file, whose fields have the types of a profile."""
    kinds = {name: dice.choice(_PROFILES) for name in ("a", "n", "l", "A", "root")}
    found: list[Value | None] = []
    for _ in range(dice.choice((1, 3, 12))):
        if dice.random() < 0.1:
            found.append(_leaf(dice, dice.choice(kinds["root"])))
            continue
        fields: dict[str, Value] = {}
        name = dice.choice(names)
        if (value := _leaf(dice, dice.choice(kinds[name]))) is not None:
            fields[name] = value
        if (value := _leaf(dice, dice.choice(kinds["n"]))) is not None:
            fields["n"] = Value("object", {"a": value})
        if dice.random() < 0.8:
            elements = [_leaf(dice, dice.choice(kinds["l"])) for _ in range(dice.randint(0, 2))]
            fields["l"] = Value("array", [one for one in elements if one is not None])
        found.append(Value("object", fields))
    return found


def _condition(dice: random.Random, depth: int = 0) -> str:
    if depth < 2 and dice.random() < 0.25:
        parts = [_condition(dice, depth + 1) for _ in range(2)]
        return dice.choice((f"({parts[0]} AND {parts[1]})", f"({parts[0]} OR {parts[1]})", f"NOT ({parts[0]})"))
    path = dice.choice(_PATHS)
    if dice.random() < 0.1:
        return f"{path} IS {dice.choice(('', 'NOT '))}NULL"
    cast = dice.choice(_CASTS)
    subject = dice.choice((path, f"{path}::{cast}", f"TRY_CAST({path} AS {cast})", f"TRY_CAST({path} AS {cast})"))
    if dice.random() < 0.15:
        return f"{subject} IN ({', '.join(dice.sample(_CONSTANTS[:4], 2))})"
    constant, operator = dice.choice(_CONSTANTS), dice.choice(("=", "<>", "<", "<=", ">", ">="))
    return f"{subject} {operator} {constant}" if dice.random() < 0.9 else f"{constant} {operator} {subject}"


def _by_library(lake: DuckLake, where: str) -> list[int] | DuckLakeError:
    try:
        return sorted(lake.table("t").scan(columns=["i"], where=where).to_arrow().column("i").to_pylist())
    except DuckLakeError as error:
        return error


def _by_duckdb(duck: Oracle, where: str) -> list[int] | duckdb.Error:
    try:
        return sorted(int(str(i)) for (i,) in duck.rows(f"SELECT i FROM plain WHERE {where}"))
    except duckdb.Error as error:
        return error


def _build(dice: random.Random, address: LakeAddress, duck: Oracle) -> None:
    """A file for each set of rows, written by either."""
    duck.run("CREATE TABLE t (i BIGINT, v VARIANT)", "CREATE TEMP TABLE plain (i BIGINT, v VARIANT)")
    lake, count = DuckLake.connect(address.url), 0
    for _ in range(dice.randint(2, 6)):
        of_duckdb = dice.random() < 0.5
        # DuckDB writes one of two fields whose names differ by case alone.
        rows = _rows(dice, ("a",) if of_duckdb else ("a", "a", "a", "A"))
        values = ", ".join(f"({count + number}, {sql(value)})" for number, value in enumerate(rows))
        if of_duckdb:
            duck.run(f"INSERT INTO t VALUES {values}")
        else:
            table = variant_table(rows)
            lake.table("t").append(table.set_column(0, "i", pa.array(range(count, count + len(rows)), pa.int64())))
        duck.run(f"INSERT INTO plain VALUES {values}")
        count += len(rows)
    lake.close()


def _forget_fields(address: LakeAddress) -> None:
    with closing(sqlite3.connect(address.url.removeprefix("sqlite:///"))) as catalog, catalog:
        for table in ("file_column_stats", "table_column_stats"):
            catalog.execute(f"UPDATE ducklake_{table} SET extra_stats = NULL")


def _compare(address: LakeAddress, seed: int, conditions: int) -> int:
    """Return the number of conditions that all readers answered."""
    dice, answered = random.Random(seed), 0
    drawn = [_condition(dice) for _ in range(conditions)]
    with attached(address, _FILES) as duck:
        _build(dice, address, duck)
        expected = [_by_duckdb(duck, where) for where in drawn]
    lake = DuckLake.connect(address.url)
    pruned = [_by_library(lake, where) for where in drawn]
    lake.close()
    _forget_fields(address)
    lake = DuckLake.connect(address.url)
    for where, mine, by_duckdb in zip(drawn, pruned, expected, strict=True):
        whole = _by_library(lake, where)
        if isinstance(whole, DuckLakeError):
            # What files hold that were left out need not be an error.
            continue
        assert mine == whole, (seed, where)
        if isinstance(by_duckdb, list):
            assert whole == by_duckdb, (seed, where)
            answered += 1
    lake.close()
    return answered


def test_no_row_is_lost(sqlite_address: LakeAddress) -> None:
    assert _compare(sqlite_address, 3, 60) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_no_row_is_lost_in_many(sqlite_address: LakeAddress, seed: int) -> None:
    _compare(sqlite_address, seed, 80)
