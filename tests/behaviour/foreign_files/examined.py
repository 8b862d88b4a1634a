"""Adds a generated file to a lake and compares its rows and filters: this library, its SQL, DuckDB on the lake, and pyarrow on the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ducklake_core import DuckLake
from ducklake_core.errors import DuckLakeError
from tests.support.oracle import Oracle
from tests.support.scans import assert_same_rows


@dataclass
class Examined:
    """The outcome of a file.

    Attributes:
        rejected: Why it was not added; empty if it was.
        filters: Number of conditions.
        wrong: Wrong answers of this library, with the conditions.
        wrong_in_duckdb: Wrong answers of DuckDB on the lake.
    """

    rejected: str = ""
    filters: int = 0
    wrong: list[str] = field(default_factory=list)
    wrong_in_duckdb: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """Return the kind of outcome."""
        return "rejected" if self.rejected else "wrong" if self.wrong else "equal"


def examine(lake: DuckLake, duck: Oracle, name: str, path: Path, *, by_arrow: bool) -> Examined:
    """Add a file to a new table and compare all answers.

    Args:
        lake: The lake.
        duck: DuckDB with the lake attached.
        name: Name of the new table.
        path: The file.
        by_arrow: Whether the table has the types that Arrow has for the file, else those that DuckDB reports.
    """
    found = Examined()
    try:
        if by_arrow:
            lake.create_table(name, pq.read_schema(path))
        else:
            types = duck.rows(
                f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM read_parquet('{path}', hive_partitioning => false))"
            )
            lake.sql(f"CREATE TABLE {name} ({', '.join(f'{_quoted(column)} {kind}' for column, kind in types)})")
    except (DuckLakeError, duckdb.Error, pa.ArrowException, OSError) as error:
        found.rejected = f"no table: {error}"
        return found
    try:
        lake.add_data_files(name, path, allow_duplicates=True)
    except DuckLakeError as error:
        found.rejected = str(error)
        return found
    try:
        rows = lake.table(name).scan().to_arrow()
    except DuckLakeError as error:
        found.rejected = f"not read: {error}"
        return found
    _compare_with_arrow(found, rows, path)
    try:
        assert_same_rows(duck, rows, f"SELECT * FROM {name}")
    except AssertionError as error:
        found.wrong_in_duckdb.append(f"rows: {error}")
    except duckdb.Error as error:
        found.wrong_in_duckdb.append(f"rows: {str(error)[:200]}")
    _compare_filters(found, lake, duck, name, rows)
    return found


def _quoted(name: object) -> str:
    return '"' + str(name).replace('"', '""') + '"'


def _compare_with_arrow(found: Examined, rows: pa.Table, path: Path) -> None:
    try:
        expected = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
    except pa.ArrowException:
        # The Arrow types in the footer are not usable.
        return
    if rows.num_rows != expected.num_rows:
        found.wrong.append(f"{rows.num_rows} rows, Arrow reads {expected.num_rows}")
        return
    for column, mine in zip(rows.column_names, rows.columns, strict=True):
        others = expected.column(column)
        if pa.types.is_interval(mine.type):
            # Arrow reads intervals of DuckDB as bytes. DuckDB on the lake has the values.
            continue
        if pa.types.is_timestamp(mine.type) and mine.type.unit == "us" and getattr(others.type, "unit", "") == "ns":
            # DuckDB has no nanoseconds with a time zone.
            others = pc.floor_temporal(others, unit="microsecond")
        if _plain(mine) != _plain(others):
            found.wrong.append(f"column {column}: {str(_plain(mine)[:3])[:200]}, Arrow reads {str(_plain(others)[:3])[:200]}")


def _plain(values: Any) -> list[str]:
    """Return values in a form that does not depend on the types that hold them."""
    return [repr(_python(value)) for value in values]


def _python(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if isinstance(scalar, pa.ExtensionScalar):
        return _python(scalar.value)
    if pa.types.is_dictionary(kind):
        return _python(pa.scalar(scalar.as_py(), kind.value_type))
    if isinstance(scalar, pa.MapScalar):
        return [(_python(item["key"]), _python(item["value"])) for item in scalar.values] if scalar.values is not None else []
    if isinstance(scalar, pa.ListScalar):
        return [_python(item) for item in scalar.values]
    if pa.types.is_struct(kind):
        return [_python(scalar[place]) for place in range(kind.num_fields)]
    if pa.types.is_duration(kind):
        return scalar.value
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return scalar.value * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[kind.unit]
    if pa.types.is_date(kind):
        return scalar.value // (86_400_000 if pa.types.is_date64(kind) else 1)
    value = scalar.as_py()
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def _compare_filters(found: Examined, lake: DuckLake, duck: Oracle, name: str, rows: pa.Table) -> None:
    """Count rows by conditions, and compare with a table in memory, where nothing is pruned."""
    duck.connection.register("arrived", rows)
    try:
        types = duck.rows(f"SELECT column_name, column_type FROM (DESCRIBE {name})")
        held = ", ".join(f"CAST({_quoted(column)} AS {kind}) AS {_quoted(column)}" for column, kind in types)
        duck.connection.execute(f"CREATE TEMP TABLE held AS SELECT {held} FROM arrived")
    except duckdb.Error:
        # DuckDB does not read every Arrow type.
        return
    finally:
        duck.connection.unregister("arrived")
    try:
        conditions = ["true", *(one for column, kind in types for one in _conditions(duck, _quoted(column), str(kind)))]
        found.filters = len(conditions)
        table = lake.table(name)
        expected = _counts(duck.rows, "held", conditions)
        answers = {
            "scan": [_answer(lambda: table.scan(where=one).to_arrow().num_rows) for one in conditions],  # noqa: B023
            "sql": _counts(lambda query: [tuple(row.values()) for row in lake.sql(query).to_arrow().to_pylist()], name, conditions),
            "DuckDB": _counts(duck.rows, name, conditions),
        }
        for way, counts in answers.items():
            wrong = found.wrong_in_duckdb if way == "DuckDB" else found.wrong
            for condition, count, right in zip(conditions, counts, expected, strict=True):
                if count != right:
                    wrong.append(f"{way}: {condition}: {count} instead of {right}")
    finally:
        duck.connection.execute("DROP TABLE held")


def _counts(run: Callable[[str], list[Any]], table: str, conditions: list[str]) -> list[Any]:
    """Count rows by each condition with one query, or with one for each if that fails."""
    parts = [f"(SELECT count(*) FROM {table} WHERE {one})" for one in conditions]
    try:
        return list(run("SELECT " + ", ".join(f"{part} AS n{number}" for number, part in enumerate(parts)))[0])
    except (DuckLakeError, duckdb.Error):
        return [_answer(lambda: run(f"SELECT {part} AS n")[0][0]) for part in parts]  # noqa: B023


def _answer(count: Callable[[], Any]) -> Any:
    try:
        return count()
    except (DuckLakeError, duckdb.Error) as error:
        return f"{type(error).__name__}: {str(error)[:160]}"


def _conditions(duck: Oracle, column: str, kind: str) -> Iterator[str]:
    yield from (f"{column} IS NULL", f"{column} IS NOT NULL")
    if kind.startswith(("STRUCT", "MAP", "UNION")) or kind.endswith("]") or kind in ("JSON", "INTERVAL", "BIT"):
        return
    for value in _some_values(duck, column):
        literal = f"CAST('{value}' AS {kind})"
        yield from (f"{column} {operator} {literal}" for operator in ("=", "<", ">", "<=", ">="))


def _some_values(duck: Oracle, column: str) -> list[str]:
    """Return the least, the middle and the greatest value as strings."""
    (found,) = duck.rows(f"SELECT min({column})::VARCHAR, quantile_disc({column}, 0.5)::VARCHAR, max({column})::VARCHAR FROM held")
    return list(dict.fromkeys(str(value).replace("'", "''") for value in found if value is not None and "\0" not in str(value)))
