"""Run the 22 queries of TPC-H on Spark over tables in which DuckDB changed 1 to 2 % of the rows, and over plain Parquet of the same rows.

Run with ``python -m benchmarks.bench_tpch``; ``BENCH_SCALE`` is the scale factor. Views are made once, as a user would, for both.
With numbers of queries after the command only these run.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from duckdb_extensions import import_extension

from benchmarks.bench_read import consume
from benchmarks.harness import Result, compare, report
from ducklake_core import DuckLake
from tests.support.oracle import Oracle, attached, sqlite_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALE = os.environ.get("BENCH_SCALE", "0.5")
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
BOUND = 1.2
CHANGES = (
    "DELETE FROM lineitem WHERE hash(l_orderkey, l_linenumber) % 100 = 0",
    "UPDATE lineitem SET l_comment = l_comment || '!' WHERE hash(l_orderkey, l_linenumber, 1) % 100 = 0",
    "DELETE FROM orders WHERE hash(o_orderkey) % 100 = 0",
    "UPDATE orders SET o_totalprice = o_totalprice + 1 WHERE hash(o_orderkey, 1) % 100 = 0",
    "DELETE FROM partsupp WHERE hash(ps_partkey, ps_suppkey) % 100 = 0",
    "UPDATE partsupp SET ps_availqty = ps_availqty + 1 WHERE hash(ps_partkey, ps_suppkey, 1) % 100 = 0",
    "DELETE FROM part WHERE hash(p_partkey) % 100 = 0",
    "UPDATE part SET p_size = p_size + 1 WHERE hash(p_partkey, 1) % 100 = 0",
    "DELETE FROM customer WHERE hash(c_custkey) % 100 = 0",
    "UPDATE customer SET c_acctbal = c_acctbal + 1 WHERE hash(c_custkey, 1) % 100 = 0",
    "UPDATE supplier SET s_acctbal = s_acctbal + 1 WHERE hash(s_suppkey) % 50 = 0",
)


def make(duck: Oracle, folder: str) -> tuple[list[str], dict[int, str]]:
    """The changed tables, and the same rows as plain Parquet; names of the tables, and the queries."""
    own = duck.connection
    import_extension("tpch", con=own)
    own.execute("LOAD tpch")
    own.execute(f"CALL dbgen(sf={SCALE}, catalog='memory')")
    names = [name for (name,) in own.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'memory'").fetchall()]
    for name in names:
        own.execute(f"CREATE TABLE lake.{name} AS FROM memory.{name}")
        own.execute(f"DROP TABLE memory.{name}")
    duck.run(*CHANGES)
    for name in names:
        own.execute(f"COPY lake.{name} TO '{folder}/{name}.parquet' (FORMAT parquet)")
    return names, dict(own.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())


def use(session: SparkSession, lake: DuckLake, names: list[str], folder: str, *, in_lake: bool) -> None:
    """Give the views of one side their names."""
    for name in names:
        frame = lake.table(name).to_spark(session) if in_lake else session.read.parquet(f"{folder}/{name}.parquet")
        frame.createOrReplaceTempView(f"{'lake' if in_lake else 'plain'}_{name}")


def run() -> list[Result]:
    """A result for each query."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from tests.support.spark import local_session

    session = local_session(memory="6g")
    wanted = [int(number) for number in sys.argv[1:]]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        address = sqlite_lake(Path(folder))
        with attached(address) as duck:
            names, queries = make(duck, folder)
        lake = DuckLake.connect(address.url)
        for in_lake in (False, True, True):
            began = time.perf_counter()
            use(session, lake, names, folder, in_lake=in_lake)
            print(json.dumps({"benchmark": "views", "in lake": in_lake, "seconds": round(time.perf_counter() - began, 3)}), flush=True)
        for number, query in queries.items():
            if wanted and number not in wanted:
                continue
            statements = {side: _renamed(query, names, side) for side in ("lake", "plain")}
            contenders = {side: lambda text=text: consume(session.sql(text)) for side, text in statements.items()}  # type: ignore[misc]
            result = compare(f"query {number}", contenders, baseline="plain", promised_ratio=BOUND, rounds=ROUNDS)
            summary = {"query": number, "ratio": round(result.ratio("lake"), 2), "seconds": round(result.median("lake"), 2)}
            print(json.dumps(summary), flush=True)
            results.append(result)
    session.stop()
    _print_all(results)
    return results


def _renamed(query: str, names: list[str], side: str) -> str:
    """The query over the views of one side: tables stand after FROM or a comma, columns never have these names."""
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(query, read="duckdb")
    for table in tree.find_all(exp.Table):
        if table.name.lower() in names:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias or table.name)))
            table.set("this", exp.to_identifier(f"{side}_{table.name}"))
    return tree.sql(dialect="spark")


def _print_all(results: list[Result]) -> None:
    lake_seconds, plain_seconds = (sum(result.median(side) for result in results) for side in ("lake", "plain"))
    ratios = [result.ratio("lake") for result in results]
    found = {
        "benchmark": "tpch",
        "scale": SCALE,
        "seconds": [round(lake_seconds, 2), round(plain_seconds, 2)],
        "ratio of sums": round(lake_seconds / plain_seconds, 2),
        "geometric mean": round(statistics.geometric_mean(ratios), 2),
        "worst": round(max(ratios), 2),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    report(*run())
