"""One output is one commit that changes exactly its partitions: every kind of partitions, selection, write mode and situation."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest

from ducklake_dagster import DuckLakeResource
from tests.support.connect import run_tests
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import pairwise, slow, spread

BERLIN = ZoneInfo("Europe/Berlin")
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
Row = tuple[Any, ...]
Run = Callable[..., dg.ExecuteInProcessResult]


@dataclass(frozen=True)
class Kind:
    """A partitions definition, the columns that its keys are about, and the values of a row that belongs to a key."""

    definition: dg.PartitionsDefinition[str] | None
    expr: Any
    columns: dict[str, pa.DataType]
    values: Callable[[str], Row]
    keys: Sequence[str]
    single: str
    ends: tuple[str, str]
    chosen: Sequence[str]


DAYS = dg.DailyPartitionsDefinition("2026-03-27", timezone="Europe/Berlin", end_date="2026-04-01")
HOURS = dg.HourlyPartitionsDefinition("2026-10-25-00:00", timezone="Europe/Berlin", end_date="2026-10-25-06:00")
REGIONS = ["eu", "o'us", 'we"ird']
DAY_KEYS = DAYS.get_partition_keys()
HOUR_KEYS = HOURS.get_partition_keys()


def instant(key: str) -> datetime:
    return HOURS.time_window_for_partition_key(key).start.astimezone(UTC)


def day_and_region(key: str) -> Row:
    day, region = key.split("|")
    return date.fromisoformat(day), region


KINDS = {
    "unpartitioned": Kind(None, None, {}, lambda key: (), ["all"], "all", ("all", "all"), ["all"]),
    "static": Kind(
        dg.StaticPartitionsDefinition(REGIONS),
        "region",
        {"region": pa.string()},
        lambda key: (key,),
        REGIONS,
        "o'us",
        ("eu", "o'us"),
        ["eu", "o'us"],
    ),
    "daily": Kind(
        DAYS,
        "Day",
        {"day": pa.date32()},
        lambda key: (date.fromisoformat(key),),
        DAY_KEYS,
        "2026-03-29",
        ("2026-03-28", "2026-03-30"),
        DAY_KEYS[1:4],
    ),
    "hourly": Kind(
        HOURS,
        "at",
        {"at": pa.timestamp("us", tz="UTC")},
        lambda key: (instant(key),),
        HOUR_KEYS,
        HOUR_KEYS[3],
        (HOUR_KEYS[1], HOUR_KEYS[3]),
        HOUR_KEYS[1:4],
    ),
    "multi": Kind(
        dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(REGIONS)}),
        {"day": "day", "region": "region"},
        {"day": pa.date32(), "region": pa.string()},
        day_and_region,
        [f"{day}|{region}" for day, region in itertools.product(DAY_KEYS, REGIONS)],
        "2026-03-29|o'us",
        ("2026-03-28|eu", "2026-03-29|o'us"),
        [f"{day}|{region}" for day, region in itertools.product(DAY_KEYS[1:3], REGIONS[:2])],
    ),
    "dynamic": Kind(
        dg.DynamicPartitionsDefinition(name="customers"),
        "customer",
        {"customer": pa.string()},
        lambda key: (key,),
        ["a", "b", "c", "d"],
        "b",
        ("b", "c"),
        ["b", "c"],
    ),
}


def rows_for(kind: Kind, keys: Sequence[str], generation: int) -> list[Row]:
    """Two rows for each key: one id is the same in every generation, the other is new."""
    found = []
    for key in keys:
        number = kind.keys.index(key) * 100
        found += [(number, *kind.values(key), generation), (number + generation, *kind.values(key), generation)]
    return found


def frame(kind: Kind, rows: Sequence[Row], *, amount: pa.DataType | None = None, note: bool = False) -> pa.Table:
    fields = [("id", pa.int64()), *kind.columns.items(), ("amount", amount or pa.int32())]
    columns = [pa.array([row[index] for row in rows], kind_type) for index, (_, kind_type) in enumerate(fields)]
    table = pa.table(columns, names=[name for name, _ in fields])
    return table.append_column("note", pa.array(["new"] * len(rows), pa.string())) if note else table


def expected(kind: Kind, old: Sequence[Row], new: Sequence[Row], chosen: Sequence[str], mode: str) -> list[Row]:
    """The plain model of the three write modes."""
    mine = {kind.values(key) for key in chosen}
    match mode:
        case "overwrite":
            kept = [row for row in old if row[1:-1] not in mine]
        case "upsert":
            ids = {row[0] for row in new}
            kept = [row for row in old if row[0] not in ids]
        case _:
            kept = list(old)
    return sorted([*kept, *new])


class Bench:
    """The lake, and an asset whose frame the test chooses."""

    def __init__(self, run: Run, resource: DuckLakeResource, kind: Kind, mode: str, convert: Callable[[pa.Table], Any]) -> None:
        self.run_assets, self.resource, self.kind, self.mode, self.convert = run, resource, kind, mode, convert

    def asset(self, rows: Any, mode: str) -> dg.AssetsDefinition:
        metadata: dict[str, Any] = {
            "partition_expr": self.kind.expr,
            "write_mode": mode,
            "upsert_keys": ["ID"],
            "schema_evolution": "additive",
        }

        @dg.asset(name="things", partitions_def=self.kind.definition, metadata={k: v for k, v in metadata.items() if v is not None})
        def things() -> Any:
            return rows

        return things

    def write(self, table: pa.Table, selection: str, **how: Any) -> dg.ExecuteInProcessResult:
        return self.materialize(self.asset(self.convert(table), self.mode), selection, **how)

    def materialize(self, asset: dg.AssetsDefinition, selection: str, **how: Any) -> dg.ExecuteInProcessResult:
        if self.kind.definition is None:
            return self.run_assets([asset], **how)
        if selection == "single":
            return self.run_assets([asset], partition_key=self.kind.single, **how)
        start, end = self.kind.ends if selection == "several" else (self.kind.keys[0], self.kind.keys[-1])
        return self.run_assets([asset], tags={RANGE_START: start, RANGE_END: end}, **how)

    def chosen(self, selection: str) -> Sequence[str]:
        return [self.kind.single] if selection == "single" else self.kind.chosen

    def seed(self) -> list[Row]:
        """Write the rows that are there before the run, as Arrow."""
        rows = rows_for(self.kind, self.kind.keys, 1)
        self.materialize(self.asset(frame(self.kind, rows), "overwrite"), "every")
        return rows

    def rows(self) -> list[Row]:
        names = ["id", *self.kind.columns, "amount"]
        table = self.resource.connect().table("things").scan(names).to_arrow()
        return sorted(tuple(row[name] for name in names) for row in table.to_pylist())

    def newest(self) -> int:
        return self.resource.connect().snapshot().id


def spark_frame(request: pytest.FixtureRequest, kind: str) -> Callable[[pa.Table], Any]:
    """Frames of the classic session, or of the Connect server that the environment names."""
    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

    session = request.getfixturevalue("spark") if kind == "classic" else SparkSession.builder.getOrCreate()

    def make(rows: pa.Table) -> Any:
        # Connect infers nothing from an Arrow table without rows.
        return session.createDataFrame(rows) if rows.num_rows else session.createDataFrame([], from_arrow_schema(rows.schema))

    return make


@pytest.fixture
def bench(
    request: pytest.FixtureRequest,
    run: Run,
    lake_resource: DuckLakeResource,
    instance: dg.DagsterInstance,
    frames: str,
    kind: str,
    mode: str,
) -> Bench:
    instance.add_dynamic_partitions("customers", list(KINDS["dynamic"].keys))
    convert = FRAMES[frames] if frames in FRAMES else spark_frame(request, frames)
    return Bench(run, lake_resource, KINDS[kind], mode, convert)


def pandas_frame(rows: pa.Table) -> Any:
    import pandas as pd

    # A pandas column without values has no useful type.
    return rows.to_pandas(types_mapper=pd.ArrowDtype) if not rows.num_rows else rows.to_pandas()


FRAMES: dict[str, Callable[[pa.Table], Any]] = {"arrow": lambda rows: rows, "pandas": pandas_frame, "polars": pl.DataFrame}
OTHER_FRAMES = ["pandas", "polars", "classic", "connect"]
# Connect's frames and classic ones do not go together in one process.
CONNECT = "SPARK_REMOTE" in os.environ


SITUATIONS = ["first write", "rerun", "empty frame", "new column", "wider type", "outside rejected", "outside filtered"]


def cells() -> list[Any]:
    """Every two of frames, partitions, selection, mode and situation meet in a cell; those of Connect run in a process of their own."""
    modes = ["overwrite", "append", "upsert"]
    factors = (["arrow", *OTHER_FRAMES], KINDS, ["single", "several"], modes, SITUATIONS)
    found = pairwise(*factors, allowed=lambda _frames, kind, selection, *_: (kind, selection) != ("unpartitioned", "several"))
    if CONNECT:
        return [slow(*cell) for cell in found if cell[0] == "connect"]
    return [*spread([cell for cell in found if cell[0] in FRAMES], 12), *(slow(*cell) for cell in found if cell[0] == "classic")]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_cells_of_connect_frames(connect: str) -> None:
    """The cells of Connect, in a process that has no other Spark."""
    run_tests(__file__, "test_cells[", connect)


@pytest.mark.parametrize(("frames", "kind", "selection", "mode", "situation"), cells())
def test_cells(bench: Bench, frames: str, selection: str, mode: str, situation: str, sqlite_address: LakeAddress) -> None:
    del frames
    chosen = bench.chosen(selection)
    old = bench.seed() if situation != "first write" else []
    before = bench.newest() if old else bench.resource.connect().snapshot().id
    new = rows_for(bench.kind, chosen, 2)
    outside = [row for row in rows_for(bench.kind, bench.kind.keys, 3) if row[1:-1] not in {bench.kind.values(key) for key in chosen}][:1]
    match situation:
        case "first write":
            result = bench.write(frame(bench.kind, new), selection)
        case "rerun":
            bench.write(frame(bench.kind, new), selection)
            old, before = expected(bench.kind, old, new, chosen, mode), bench.newest()
            new = rows_for(bench.kind, chosen, 5)
            result = bench.write(frame(bench.kind, new), selection)
        case "empty frame":
            new = []
            result = bench.write(frame(bench.kind, new), selection)
        case "new column":
            result = bench.write(frame(bench.kind, new, note=True), selection)
        case "wider type":
            new = [(*row[:-1], 2**40) for row in new]
            result = bench.write(frame(bench.kind, new, amount=pa.int64()), selection)
        case "outside rejected":
            if outside:
                result = bench.write(frame(bench.kind, [*new, *outside]), selection, raise_on_error=False)
                assert not result.success
                assert bench.rows() == sorted(old)
                assert bench.newest() == before
                return
            result = bench.write(frame(bench.kind, new), selection)
        case _:
            result = bench.write(frame(bench.kind, [*new, *outside]), selection, io={"out_of_slice": "filter"})

    rows = expected(bench.kind, old, new, chosen, mode)
    changed = bool(new) or mode == "overwrite"
    assert bench.rows() == rows
    assert bench.newest() == before + changed
    metadata = result.get_asset_materialization_events()[0].materialization.metadata
    assert metadata["dagster/row_count"].value == len(rows)
    assert len(result.get_asset_materialization_events()) == len(chosen)
    with attached(sqlite_address) as duck:
        names = ", ".join(f'"{name}"' for name in ["id", *bench.kind.columns, "amount"])
        assert sorted(duck.rows(f"SELECT {names} FROM lake.things")) == rows
        if situation == "new column":
            assert duck.value("SELECT count(note) FROM lake.things") == len(new)
