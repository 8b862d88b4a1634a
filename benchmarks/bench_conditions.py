"""Conditions of many parts: planning, and reading one file of a million rows, compared with DuckDB.

Run with ``python -m benchmarks.bench_conditions``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import Result, compare, report
from ducklake_core import DuckLake
from tests.support.oracle import attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
TERMS = int(os.environ.get("BENCH_TERMS", "10000"))
PAIRS = 100
CONDITIONS = {
    f"IN with {TERMS:,} values": f"a IN ({', '.join(str(3 * n) for n in range(TERMS))})",
    f"{TERMS:,} terms joined by AND": " AND ".join(f"a <> {3 * n}" for n in range(TERMS)),
    f"{TERMS:,} values": " OR ".join(f"a = {n}" for n in range(TERMS)),
    f"{TERMS:,} ranges": " OR ".join(f"(v >= {2 * n} AND v < {2 * n + 1})" for n in range(TERMS)),
    f"{PAIRS} pairs of columns": " OR ".join(f"(a = {n} AND v > {n % 90})" for n in range(PAIRS)),
    f"{PAIRS} prefixes": " OR ".join(f"s LIKE 'a{n}%'" for n in range(PAIRS)),
}


def run() -> list[Result]:
    """Plan and read each condition; DuckDB does the same where it takes seconds."""
    results: list[Result] = []
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        numbers = random.integers(0, 1000, ROWS)
        rows = pa.table({"a": numbers, "v": random.integers(0, 30_000, ROWS), "s": [f"a{number}" for number in numbers]})
        with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
            duck.connection.register("made", rows)
            duck.run("CREATE TABLE t AS FROM made", *(f"CREATE TABLE other_{n} AS SELECT {n} AS a" for n in range(20)))
            lake = DuckLake.connect(address.url)
            for name, where in CONDITIONS.items():

                def plan(where: str = where) -> object:
                    return lake.table("t").scan(where=where).plan()

                def read(where: str = where) -> object:
                    return lake.table("t").scan(where=where).to_arrow()

                def explain(where: str = where) -> object:
                    return duck.rows(f"EXPLAIN SELECT count(*) FROM t WHERE {where}")

                def query(where: str = where) -> object:
                    return duck.rows(f"SELECT count(*) FROM t WHERE {where}")

                duckdb = {} if len(where) > 10_000 else {"DuckDB": query}
                results.append(
                    compare(
                        f"read, {name}",
                        {"ducklake_core": read, **duckdb},
                        baseline=[*duckdb, "ducklake_core"][0],
                        promised_ratio=3,
                        rounds=3,
                    )
                )
                results.append(
                    compare(f"plan, {name}", {"ducklake_core": plan, "DuckDB": explain}, baseline="DuckDB", promised_ratio=5, rounds=3)
                )
    return results


if __name__ == "__main__":
    report(*run())
