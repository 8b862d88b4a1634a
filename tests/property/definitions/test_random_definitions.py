"""DuckDB reads and writes tables of every definition that this library accepts."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import duckdb
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError, UnsupportedFeatureError
from tests.property.definitions.generator import Definitions
from tests.support.oracle import Oracle, attached, quoted, sqlite_lake
from tests.support.parameters import slow

TABLES = 12
SEEDS = (1, 2)
MANY_SEEDS = range(100, 120)
CHANGING = ("now(", "uuid(", "random(")
"""Functions that return another value for every row or statement."""

NOT_COMPUTED = (
    r"the table is sorted by .+, which only a SQL engine can evaluate",
    r"its default .*RANDOM\(\).* cannot be evaluated: .* it needs a cast from float64 to u?int128",
)
"""Errors of inserts in process into a table that DuckDB writes to: this library has no such function or cast."""
MAX_NOT_COMPUTED = TABLES // 3


@pytest.mark.parametrize("seed", [*SEEDS, *(slow(seed) for seed in MANY_SEEDS)])
def test_duckdb_reads_and_writes_tables_of_accepted_definitions(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    accepted = {table: take(lake, Definitions(random, table).statements()) for table in (f"t{index}" for index in range(TABLES))}
    accepted = {table: statements for table, statements in accepted.items() if statements}
    assert len(accepted) > TABLES // 4
    problems = {table: insert_defaults(lake, table) for table in accepted}
    not_computed = {table: problem for table, problem in problems.items() if problem is not None}
    unexpected = {table: why for table, why in not_computed.items() if not any(re.search(known, why) for known in NOT_COMPUTED)}
    assert ({table: (*accepted[table], why) for table, why in unexpected.items()}, len(not_computed) > MAX_NOT_COMPUTED) == ({}, False)
    changing = {table: changing_columns(lake, table) for table in accepted}
    with attached(address) as duck:
        failed = {table: (*accepted[table], problem) for table in accepted if (problem := problem_of(duck, table))}
        assert failed == {}
        different = {
            table: (*accepted[table], found)
            for table in accepted
            if table not in not_computed and (found := differences(duck, table, changing[table]))
        }
    assert different == {}
    for table in accepted:
        assert len(lake.table(table).to_arrow()) == (2 if table in not_computed else 4)


def take(lake: DuckLake, statements: list[str]) -> list[str]:
    """Return the statements that this library accepts, none when it rejects the first."""
    accepted: list[str] = []
    for statement in statements:
        try:
            lake.sql(statement)
        except DuckLakeError:
            if not accepted:
                return []
        else:
            accepted.append(statement)
    return accepted


def insert_defaults(lake: DuckLake, table: str) -> str | None:
    """Insert a row that lacks all columns but the first, and return why this library does not compute the defaults or sort keys."""
    try:
        lake.sql(f"INSERT INTO {table} ({quoted(lake.table(table).schema.names[0])}) VALUES (1)")
    except UnsupportedFeatureError as problem:
        return problem.message
    return None


def changing_columns(lake: DuckLake, table: str) -> set[str]:
    """Return the columns whose defaults call a function that returns another value each time."""
    computed = [column for column in lake.table(table).schema if column.default is not None and column.default_is_expression]
    return {column.name for column in computed if any(function in str(column.default).lower() for function in CHANGING)}


def problem_of(duck: Oracle, table: str) -> str | None:
    """Return why DuckDB cannot write to or read a table, or None."""
    try:
        ((first, *_), *_) = duck.rows(f"SELECT column_name FROM (DESCRIBE {table})")
        duck.run(f"INSERT INTO {table} ({quoted(str(first))}) VALUES (1)", f"INSERT INTO {table} SELECT * FROM {table}")
        duck.rows(f"SELECT * FROM {table}")
    except duckdb.Error as problem:
        return str(problem)
    return None


def differences(duck: Oracle, table: str, changing: set[str]) -> dict[str, set[object]]:
    """Return the columns whose values differ between the row of this library and that of DuckDB, with the values.

    Both have the same defaults then. A value that changes is present in all rows, or in none.
    """
    names = [str(name) for (name,) in duck.rows(f"SELECT column_name FROM (DESCRIBE {table})")]
    rows = duck.rows(f"SELECT COLUMNS(*)::VARCHAR FROM {table}")
    assert len(rows) == 4
    values = {name: {row[index] for row in rows} for index, name in enumerate(names)}
    return {name: found for name, found in values.items() if len({value is None for value in found} if name in changing else found) > 1}
