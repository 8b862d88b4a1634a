"""Try the same small assets with the IO managers of several libraries, and print what their tables hold afterwards.

Run with ``python -m benchmarks.compare_io_managers NAME``, where NAME is ``ducklake``, ``iceberg`` (needs dagster-iceberg), ``delta``
(dagster-delta) or ``duckdb`` (dagster-duckdb-pandas). The page "Which tool when" shows the results.
"""

# No `from __future__ import annotations`: Dagster reads the annotations of assets.

import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

DAYS = dg.DailyPartitionsDefinition("2026-03-01", end_date="2026-03-06")
LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c", "d"])
BOTH = dg.MultiPartitionsDefinition({"day": DAYS, "letter": LETTERS})
DATES = DAYS.get_partition_keys()
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True, kw_only=True)
class Library:
    """One library.

    Attributes:
        manager: Its IO manager.
        upserting: The IO manager for the upsert, where metadata of the asset does not choose it.
        read: Returns the rows of a table.
        metadata: Metadata of assets for ``append``, ``upsert`` and ``columns``, which takes new columns.
        as_pandas: Whether outputs are pandas DataFrames.
    """

    manager: Any
    read: Callable[[str], pa.Table]
    metadata: dict[str, dict[str, Any]]
    upserting: Any = None
    as_pandas: bool = False


def ducklake(home: Path) -> Library:
    """Return this library."""
    from ducklake_dagster import DuckLakeIOManager, DuckLakeResource, LocalStorage

    storage = LocalStorage(data_path=f"{home}/files/")
    lake = DuckLakeResource(catalog=f"sqlite:///{home}/lake.sqlite", storage=storage, create_if_missing=True)
    upsert = {"write_mode": "upsert", "upsert_keys": ["letter"]}
    return Library(
        manager=DuckLakeIOManager(lake=lake, schema="main"),
        read=lambda name: lake.connect().table(name).scan().to_arrow(),
        metadata={"append": {"write_mode": "append"}, "upsert": upsert, "columns": {"schema_evolution": "additive"}},
    )


def iceberg(home: Path) -> Library:
    """Return dagster-iceberg with a catalog in SQLite."""
    config, arrow = import_module("dagster_iceberg.config"), import_module("dagster_iceberg.io_manager.arrow")
    properties = {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}"}
    catalog = import_module("pyiceberg.catalog.sql").SqlCatalog("test", **properties)
    catalog.create_namespace_if_not_exists("main")
    options = {"join_cols": ["letter"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
    return Library(
        manager=arrow.PyArrowIcebergIOManager(name="test", config=config.IcebergCatalogConfig(properties=properties), namespace="main"),
        read=lambda name: catalog.load_table(f"main.{name}").scan().to_arrow(),
        metadata={
            "append": {"write_mode": "append"},
            "upsert": {"write_mode": "upsert", "upsert_options": options},
            "columns": {"schema_update_mode": "update"},
        },
    )


def delta(home: Path) -> Library:
    """Return dagster-delta."""
    library, tables = import_module("dagster_delta"), import_module("deltalake")
    how = {"root_uri": str(home), "storage_options": library.LocalConfig(), "schema": "main"}
    merge = library.MergeConfig(merge_type=library.MergeType.upsert, predicate="s.letter = t.letter", source_alias="s", target_alias="t")
    return Library(
        manager=library.DeltaLakePyarrowIOManager(**how),
        upserting=library.DeltaLakePyarrowIOManager(**how, mode="merge", merge_config=merge),
        read=lambda name: tables.DeltaTable(str(home / "main" / name)).to_pyarrow_dataset().to_table(),
        metadata={"append": {"mode": "append"}, "upsert": {}, "columns": {"schema_mode": "merge"}},
    )


def duckdb(home: Path) -> Library:
    """Return dagster-duckdb-pandas."""
    import duckdb as engine

    database = str(home / "data.duckdb")

    def read(name: str) -> pa.Table:
        # As Dagster opens it: DuckDB allows one configuration of a file in a process.
        with engine.connect(database, config={"custom_user_agent": "dagster"}) as connection:
            return connection.execute(f"SELECT * FROM main.{name}").fetch_arrow_table()

    manager = import_module("dagster_duckdb_pandas").DuckDBPandasIOManager(database=database, schema="main")
    return Library(manager=manager, read=read, metadata={"append": {}, "upsert": {}, "columns": {}}, as_pandas=True)


LIBRARIES = {"ducklake": ducklake, "iceberg": iceberg, "delta": delta, "duckdb": duckdb}


def rows(keys: Sequence[str], generation: int, **more: Any) -> pa.Table:
    """Return a row for each key of days, letters, or both."""
    parts = [key.split("|") for key in keys]
    days = [date.fromisoformat(part[0]) for part in parts if part[0].startswith("20")]
    letters = [part[-1] for part in parts if not part[-1].startswith("20")]
    columns = {"day": pa.array(days, pa.date32())} if days else {}
    columns |= {"letter": pa.array(letters, pa.string())} if letters or not days else {}
    return pa.table({**columns, "n": pa.array([generation] * len(keys), pa.int64()), **more})


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Runs of one table with one library."""

    library: Library
    table: str
    definition: dg.PartitionsDefinition[Any] | None = LETTERS
    expression: Any = "letter"
    metadata: dict[str, Any] | None = None
    manager: Any = None

    def run(self, frame: pa.Table, *keys: str) -> dg.ExecuteInProcessResult:
        """Materialize one partition, or those from the first key to the last one."""
        metadata = {**({"partition_expr": self.expression} if self.definition else {}), **(self.metadata or {})}
        how = {"name": self.table, "partitions_def": self.definition, "metadata": metadata}
        output = frame.to_pandas(date_as_object=False) if self.library.as_pandas else frame

        def build() -> Any:
            return output

        build.__annotations__["return"] = type(output)
        ends = ("start", "end") if len(keys) == 2 else ()
        return dg.materialize(
            [dg.asset(**how)(build)],
            resources={"io_manager": self.manager or self.library.manager},
            partition_key=keys[0] if len(keys) == 1 else None,
            tags={f"dagster/asset_partition_range_{side}": key for side, key in zip(ends, keys, strict=False)},
            run_config=QUIET,
        )

    def result(self) -> list[dict[str, Any]]:
        """Return the rows of the table."""
        return self.library.read(self.table).to_pylist()


def several_days(library: Library) -> object:
    """Replace two of five days in one run."""
    trial = Trial(library=library, table="days", definition=DAYS, expression="day")
    trial.run(rows(DATES, 1), DATES[0], DATES[-1])
    trial.run(rows(DATES[1:3], 2), DATES[1], DATES[2])
    return trial.result()


def several_static_keys(library: Library) -> object:
    """Replace two of four letters in one run."""
    trial = Trial(library=library, table="letters")
    for key in "abcd":
        trial.run(rows([key], 1), key)
    trial.run(rows(["a", "b"], 2), "a", "b")
    return trial.result()


def two_dimensions(library: Library) -> object:
    """Write two days of two letters in one run."""
    trial = Trial(library=library, table="grid", definition=BOTH, expression={"day": "day", "letter": "letter"})
    keys = [f"{day}|{letter}" for day in DATES[:2] for letter in "ab"]
    trial.run(rows(keys, 1), keys[0], keys[-1])
    return trial.result()


def empty_frame(library: Library) -> object:
    """Replace a letter by no rows."""
    trial = Trial(library=library, table="emptied")
    for key in "ab":
        trial.run(rows([key], 1), key)
    trial.run(rows([], 1), "a")
    return trial.result()


def failing_write(library: Library) -> object:
    """Replace a letter by a row of another type."""
    trial = Trial(library=library, table="failed")
    for key in "ab":
        trial.run(rows([key], 1), key)
    try:
        trial.run(pa.table({"letter": ["a"], "n": ["text"]}), "a")
    except Exception:  # noqa: BLE001 - each library raises its own
        return trial.result()
    return "no error"


def new_column(library: Library) -> object:
    """Write a second letter with a new column."""
    trial = Trial(library=library, table="wider", metadata=library.metadata["columns"])
    trial.run(rows(["a"], 1), "a")
    trial.run(rows(["b"], 1, x=pa.array([5])), "b")
    return trial.result()


def lacking_column(library: Library) -> object:
    """Write a second letter without a column."""
    trial = Trial(library=library, table="narrower", metadata=library.metadata["columns"])
    trial.run(rows(["a"], 1), "a")
    trial.run(pa.table({"letter": ["b"]}), "b")
    return trial.result()


def append(library: Library) -> object:
    """Append twice."""
    trial = Trial(library=library, table="appended", definition=None, metadata=library.metadata["append"])
    for _ in range(2):
        trial.run(rows(["a"], 1))
    return trial.result()


def upsert(library: Library) -> object:
    """Upsert two letters over two others."""
    metadata = library.metadata["upsert"]
    trial = Trial(library=library, table="upserted", definition=None, metadata=metadata, manager=library.upserting)
    trial.run(rows(["a", "b"], 1))
    trial.run(rows(["b", "c"], 2))
    return trial.result()


def metadata_keys(library: Library) -> object:
    """Return the keys of a materialization's metadata."""
    result = Trial(library=library, table="described", definition=None).run(rows(["a"], 1))
    return sorted(result.asset_materializations_for_node("described")[0].metadata)


def main() -> None:
    """Print the outcome of each trial, each in a folder of its own."""
    for trial in (
        several_days, several_static_keys, two_dimensions, empty_frame, failing_write, new_column, lacking_column, append, upsert,
        metadata_keys,
    ):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = trial(LIBRARIES[sys.argv[1]](Path(folder)))
            except Exception as error:  # noqa: BLE001 - each library raises its own
                cause: BaseException = error
                while cause.__cause__ is not None:
                    cause = cause.__cause__
                found = f"{type(cause).__name__}: {str(cause).splitlines()[0]}"
        print(f"{trial.__name__}: {found}")
    print(f"level of the root logger: {logging.getLevelName(logging.getLogger().level)}")


if __name__ == "__main__":
    main()
