"""Time the jobs of `bench_iceberg` in one Spark session and print their seconds as JSON, with one list for each contender.

Run with ``python -m benchmarks.table_jobs ducklake|iceberg FOLDER ROWS ROUNDS`` in an environment that has the contender. Both use the same
settings. The session that measures this library also measures plain Parquet files, because it is of the same Spark version.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.harness import now

if TYPE_CHECKING:
    from ducklake_core import DuckLake

UPSERTED, APPENDED, APPENDS = 10_000, 1_000, 20
CORE, ICEBERG, PARQUET = "this library", "Iceberg", "Parquet files"
WRITE, READ, SELECT, UPSERT, DELETE, READ_CHANGED, APPEND, APPEND_LOCAL, MERGE = JOBS = (
    "write all rows",
    "aggregate all rows",
    "aggregate 1,000 adjacent rows",
    f"upsert {UPSERTED:,} rows, half of them new",
    "delete 0.1 %",
    "aggregate all rows after both",
    f"{APPENDS} appends of {APPENDED:,} computed rows",
    f"{APPENDS} appends of {APPENDED:,} local rows",
    "merge small files",
)
CHOSEN = "k BETWEEN 1000 AND 1999"
DELETED_GROUP = 7
DELETED = f"g = {DELETED_GROUP}"
COLUMNS = (
    "id AS k",
    "CAST(id % 1000 AS INT) AS g",
    "xxhash64(id) / 9e18D AS x",
    "CAST(id * 7 % 10007 AS DOUBLE) AS y",
    "concat('name ', id % 5000) AS s",
    "date_add(DATE'2024-01-01', CAST(id % 365 AS INT)) AS d",
    "timestamp_seconds(id + 1700000000) AS t",
    "id % 3 = 0 AS b",
)


class Files(Protocol):
    """Data of one contender by name."""

    def write(self, name: str, rows: DataFrame) -> object:
        """Create it with these rows."""

    def read(self, name: str) -> DataFrame:
        """Return all rows."""


class Tables(Files, Protocol):
    """Tables of one contender."""

    def select(self, name: str) -> DataFrame:
        """Return rows of a range of keys."""

    def upsert(self, name: str, rows: DataFrame) -> object:
        """Update the rows that have these keys, and insert the others."""

    def delete(self, name: str) -> object:
        """Delete one row of a thousand."""

    def append(self, name: str, rows: DataFrame) -> object:
        """Add rows."""

    def merge_files(self, name: str) -> object:
        """Rewrite small files as large ones."""


class DuckLakeTables:
    """Tables of this library, in a lake of a SQLite catalog."""

    def __init__(self, session: SparkSession, lake: DuckLake) -> None:
        self.session, self.lake = session, lake

    def write(self, name: str, rows: DataFrame) -> object:
        return self.lake.write(name, rows)

    def read(self, name: str) -> DataFrame:
        return self.lake.table(name).scan().to_spark(self.session)

    def select(self, name: str) -> DataFrame:
        return self.lake.table(name).scan(where=CHOSEN).to_spark(self.session)

    def upsert(self, name: str, rows: DataFrame) -> object:
        return self.lake.table(name).upsert(rows, on=["k"])

    def delete(self, name: str) -> object:
        return self.lake.table(name).delete(DELETED, spark=self.session)

    def append(self, name: str, rows: DataFrame) -> object:
        return self.lake.table(name).append(rows)

    def merge_files(self, name: str) -> object:
        return self.lake.merge_adjacent_files(name, spark=self.session)


class IcebergTables:
    """Tables of format version 2 in a catalog of directories; changes write delete files."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        session.sql("CREATE NAMESPACE IF NOT EXISTS lake.main")

    def write(self, name: str, rows: DataFrame) -> object:
        writer = rows.writeTo(f"lake.main.{name}").tableProperty("format-version", "2")
        writer = writer.tableProperty("write.parquet.compression-codec", "snappy")
        for change in ("delete", "update", "merge"):
            writer = writer.tableProperty(f"write.{change}.mode", "merge-on-read")
        return writer.create()

    def read(self, name: str) -> DataFrame:
        return self.session.table(f"lake.main.{name}")

    def select(self, name: str) -> DataFrame:
        return self.read(name).where(CHOSEN)

    def upsert(self, name: str, rows: DataFrame) -> object:
        rows.createOrReplaceTempView("changes")
        condition = "t.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        return self.session.sql(f"MERGE INTO lake.main.{name} t USING changes s ON {condition}")

    def delete(self, name: str) -> object:
        return self.session.sql(f"DELETE FROM lake.main.{name} WHERE {DELETED}")

    def append(self, name: str, rows: DataFrame) -> object:
        return rows.writeTo(f"lake.main.{name}").append()

    def merge_files(self, name: str) -> object:
        return self.session.sql(f"CALL lake.system.rewrite_data_files(table => 'main.{name}', strategy => 'binpack')")


class ParquetFiles:
    """Folders of files that Spark writes and reads."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session, self.folder = session, folder

    def write(self, name: str, rows: DataFrame) -> object:
        return rows.write.parquet(str(self.folder / name))

    def read(self, name: str) -> DataFrame:
        return self.session.read.parquet(str(self.folder / name))


def session_with(settings: dict[str, str]) -> SparkSession:
    """Return a session on two local cores with these settings, in addition to those that all contenders have."""
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "3g").config("spark.sql.shuffle.partitions", "4")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.driver.host", "127.0.0.1")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def iceberg_settings(folder: Path) -> dict[str, str]:
    """Return the settings of a session with an Iceberg catalog in a folder."""
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "warehouse"),
    }


def numbered(session: SparkSession, first: int, count: int, partitions: int) -> DataFrame:
    """Return rows with keys from ``first`` on."""
    return session.range(first, first + count, 1, partitions).selectExpr(*COLUMNS)


def local(session: SparkSession, first: int, count: int) -> DataFrame:
    """Return such rows as local data of the driver."""
    values = ", ".join(f"({number}L)" for number in range(first, first + count))
    return session.sql(f"SELECT * FROM VALUES {values} AS r(id)").selectExpr(*COLUMNS)


def aggregate(rows: DataFrame) -> int:
    """Compute one value of each of two columns, and return the number of rows."""
    (found,) = rows.agg(sf.sum("x"), sf.max("s"), sf.count("*")).collect()
    return int(found[2])


def aggregate_all(files: Files, name: str) -> int:
    """Aggregate all rows."""
    return aggregate(files.read(name))


def aggregate_chosen(tables: Tables, name: str) -> int:
    """Aggregate rows of a range of keys."""
    return aggregate(tables.select(name))


def append_often(tables: Tables, name: str, rows: DataFrame) -> None:
    """Append the same rows in commits of their own."""
    for _ in range(APPENDS):
        tables.append(name, rows)


class Stopwatch:
    """Seconds by job and contender."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def time(self, job: str, contender: str, call: Callable[..., Any], *arguments: object) -> Any:
        """Return the result of a call and keep its seconds."""
        started = now()
        result = call(*arguments)
        self.seconds[job][contender].append(now() - started)
        return result


def write_and_read(contenders: dict[str, Files], name: str, data: DataFrame, rows: int, watch: Stopwatch) -> None:
    """Time the jobs that plain files have too, for all contenders in this order."""
    for label, files in contenders.items():
        watch.time(WRITE, label, files.write, name, data)
    for label, files in contenders.items():
        assert watch.time(READ, label, aggregate_all, files, name) == rows


def change(label: str, tables: Tables, name: str, session: SparkSession, rows: int, watch: Stopwatch) -> None:
    """Time the other jobs, and check the rows that they leave."""
    assert watch.time(SELECT, label, aggregate_chosen, tables, name) == 1000
    watch.time(UPSERT, label, tables.upsert, name, numbered(session, rows - UPSERTED // 2, UPSERTED, 2))
    watch.time(DELETE, label, tables.delete, name)
    upserted = rows + UPSERTED // 2
    left = upserted - len(range(DELETED_GROUP, upserted, 1000))
    assert watch.time(READ_CHANGED, label, aggregate_all, tables, name) == left
    watch.time(APPEND, label, append_often, tables, name, numbered(session, 2 * rows, APPENDED, 1))
    watch.time(APPEND_LOCAL, label, append_often, tables, name, local(session, 3 * rows, APPENDED))
    watch.time(MERGE, label, tables.merge_files, name)
    assert aggregate_all(tables, name) == left + 2 * APPENDS * APPENDED


def run(contender: str, folder: Path, rows: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each job, each contender and each round."""
    session = session_with(iceberg_settings(folder) if contender == "iceberg" else {})
    source = folder.parent / "source"
    if not source.exists():
        numbered(session, 0, rows, 2).write.parquet(str(source))
    data = session.read.parquet(str(source))
    tables: Tables
    if contender == "iceberg":
        label, tables = ICEBERG, IcebergTables(session)
        contenders: dict[str, Files] = {label: tables}
    else:
        from ducklake_core import DuckLake

        lake = DuckLake.create(f"sqlite:///{folder}/lake.db", data_path=f"{folder}/files/")
        label, tables = CORE, DuckLakeTables(session, lake)
        contenders = {label: tables, PARQUET: ParquetFiles(session, folder)}
    watch = Stopwatch()
    for number in range(rounds):
        write_and_read(contenders, f"t{number}", data, rows, watch)
        change(label, tables, f"t{number}", session, rows, watch)
        contenders = dict(reversed(contenders.items()))
    session.stop()
    return watch.seconds


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
