"""DuckDB reads and writes tables of every definition that this library accepts."""

from __future__ import annotations

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
CHANGING = ("now()", "uuid()", "random()")


@pytest.mark.parametrize("seed", [*SEEDS, *(slow(seed) for seed in MANY_SEEDS)])
def test_duckdb_reads_and_writes_tables_of_accepted_definitions(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    accepted = {table: take(lake, Definitions(random, table).statements()) for table in (f"t{place}" for place in range(TABLES))}
    accepted = {table: statements for table, statements in accepted.items() if statements}
    assert accepted
    inserted = {table for table in accepted if insert_defaults(lake, table)}
    with attached(address) as duck:
        failed = {table: problem for table in accepted if (problem := problem_of(duck, table))}
        different = {table: accepted[table] for table in inserted.difference(failed) if not same_defaults(duck, table, accepted[table])}
    broken = {table: (*accepted[table], why) for table, why in failed.items() if not fails_too(tmp_path / table, table, accepted[table])}
    assert (broken, different) == ({}, {})
    for table in set(accepted).difference(failed):
        assert len(lake.table(table).to_arrow()) == (4 if table in inserted else 2)


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


def insert_defaults(lake: DuckLake, table: str) -> bool:
    """Insert a row that lacks all columns but the first, and return whether this library computes the defaults."""
    try:
        lake.sql(f"INSERT INTO {table} ({quoted(lake.table(table).schema.names[0])}) VALUES (1)")
    except UnsupportedFeatureError:
        return False
    return True


def problem_of(duck: Oracle, table: str) -> str | None:
    """Return why DuckDB cannot write to or read a table, or None."""
    try:
        ((first, *_), *_) = duck.rows(f"SELECT column_name FROM (DESCRIBE {table})")
        duck.run(f"INSERT INTO {table} ({quoted(str(first))}) VALUES (1)", f"INSERT INTO {table} SELECT * FROM {table}")
        duck.rows(f"SELECT * FROM {table}")
    except duckdb.Error as problem:
        return str(problem)
    return None


def same_defaults(duck: Oracle, table: str, statements: list[str]) -> bool:
    """Return whether all rows of a table are the same in DuckDB, which has the same defaults as this library then."""
    if any(function in statement for statement in statements for function in CHANGING):
        return True
    rows = duck.rows(f"SELECT COLUMNS(*)::VARCHAR FROM {table}")
    return len(rows) == 4 and len(set(rows)) == 1


def fails_too(folder: Path, table: str, statements: list[str]) -> bool:
    """Return whether DuckDB accepts the statements for a table of its own, and cannot write to it either."""
    folder.mkdir()
    with attached(sqlite_lake(folder)) as duck:
        try:
            duck.run(*statements)
        except duckdb.Error:
            return False
        return problem_of(duck, table) is not None
