"""Conditions of very many terms: planning, and reading one file of a million rows, against DuckDB.

Run with ``python -m tests.benchmarks.bench_conditions``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from ducklake_core import DuckLake
from tests.benchmarks.harness import Result, compare, report
from tests.support.oracle import attached, sqlite_lake

ROWS = int(os.environ.get("BENCH_ROWS", "1000000"))
TERMS = int(os.environ.get("BENCH_TERMS", "10000"))
# Branches that DuckDB still reads in seconds: it compares every row with every one of them.
BRANCHES = 100
CONDITIONS = {
    f"IN with {TERMS:,} values": f"a IN ({', '.join(str(3 * n) for n in range(TERMS))})",
    f"{TERMS:,} terms joined by AND": " AND ".join(f"a <> {3 * n}" for n in range(TERMS)),
    f"{TERMS // 2:,} branches of two terms": " OR ".join(f"(a = {3 * n} AND v > {n})" for n in range(TERMS // 2)),
    f"{TERMS:,} values": " OR ".join(f"a = {n}" for n in range(TERMS)),
    f"{TERMS:,} ranges": " OR ".join(f"(v >= {2 * n} AND v < {2 * n + 1})" for n in range(TERMS)),
    f"{TERMS:,} branches": " OR ".join(f"(a = {n} AND v > {n % 90})" for n in range(TERMS)),
    f"{BRANCHES} branches": " OR ".join(f"(a = {n} AND v > {n % 90})" for n in range(BRANCHES)),
}


def run() -> list[Result]:
    """Each condition planned and read, beside DuckDB where it takes seconds: of thousands of branches its plan alone takes minutes."""
    results: list[Result] = []
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        rows = pa.table({"a": random.integers(0, 1000, ROWS), "v": random.integers(0, 30_000, ROWS)})
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

                theirs = {} if len(where) > 10_000 else {"DuckDB": query}
                results.append(
                    compare(f"read, {name}", {"ours": read, **theirs}, baseline=[*theirs, "ours"][0], promised_ratio=3, rounds=3)
                )
                theirs = {} if "branches" in name and len(where) > 10_000 else {"DuckDB": explain}
                results.append(
                    compare(f"plan, {name}", {"ours": plan, **theirs}, baseline=[*theirs, "ours"][0], promised_ratio=5, rounds=3)
                )
    return results


if __name__ == "__main__":
    report(*run())
