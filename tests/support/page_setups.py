"""Setup before the first line of code of a documentation page, by the name of the page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ducklake_core import DuckLake

_URL = "sqlite:///lake.sqlite"


@dataclass
class Setup:
    """Names that a page uses, and strings of it to replace."""

    names: dict[str, object] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)


def flights(carriers: str = "UA AA UA B6 UA DL AA XX") -> pa.Table:
    count = len(carriers.split())
    days = [dt.date(2013, 1, 1) + dt.timedelta(days=number * 11) for number in range(count)]
    return pa.table(
        {
            "flight": pa.array(range(count), pa.int64()),
            "day": days,
            "ts": pa.array([dt.datetime.combine(day, dt.time(8)) for day in days], pa.timestamp("us")),
            "carrier": carriers.split(),
            "dest": ["JFK", "ORD"] * (count // 2),
            "delay": pa.array([number * 40 - 20 for number in range(count)], pa.int64()),
            "box": [{"a": number, "size": None} for number in range(count)],
        }
    )


def lake_with_flights(snapshots: int = 2) -> DuckLake:
    """A lake in the working directory with the tables flights and sales.orders, of at least so many snapshots."""
    lake = DuckLake.create(f"sqlite:///{Path.cwd()}/lake.sqlite", data_path=f"{Path.cwd()}/files/")
    lake.write("flights", flights())
    lake.create_schema("sales")
    lake.write("sales.orders", pa.table({"customer": [1, 2], "day": [dt.date(2026, 1, 1)] * 2, "region": ["eu", "us"]}))
    while (at := lake.snapshot().id) < snapshots:
        lake.set_option("data_inlining_row_limit", at % 2)
        lake.write("flights", flights("UA AA"))
    return lake


def _flights_table() -> Setup:
    lake = lake_with_flights()
    names = {"start": 1, "later": 2, "end": 2, "still_later": 3}
    moments = {name: dt.datetime(2013, 1, day, tzinfo=dt.UTC).replace(tzinfo=None) for name, day in names.items()}
    return Setup({"lake": lake, "table": lake.table("flights"), "date": dt.date, **moments})


def _adding_files() -> Setup:
    lake = lake_with_flights()
    lake.create_schema("raw")
    for path in ("archive/flights/2013/part-0.parquet", "mnt/a.parquet", "mnt/more/b.parquet"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(flights(), path)
    Path("archive/events/day=2026-01-01").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), "archive/events/day=2026-01-01/part-0.parquet")
    schema = pa.schema({"day": pa.date32(), "id": pa.int64()})
    return Setup({"lake": lake, "schema": schema}, {"s3://archive/": f"{Path.cwd()}/archive/", '"/mnt/': f'"{Path.cwd()}/mnt/'})


def _definitions() -> Setup:
    lake = DuckLake.create(_URL, data_path="files/", version="1.1")
    return Setup(
        {
            "lake": lake,
            "rows": pa.table({"id": [1]}),
            "january": pa.table({"id": [1], "carrier": ["XX"], "route": [{"start": "A"}]}),
            "february": pa.table({"id": [2], "carrier": ["YY"], "route": [{"start": "A"}]}),
        }
    )


def _maintenance() -> Setup:
    lake = lake_with_flights(6)
    for _ in range(2):
        lake.write("orders", pa.table({"customer": range(20), "day": [dt.date(2026, 1, 1)] * 20}))
    return Setup({"lake": lake})


def _opening() -> Setup:
    # The page's first line makes the lake, whose tables its other lines read.
    made = 'lake = DuckLake.create("sqlite:///lake.sqlite", data_path="files/")'
    opened = 'create=True, data_path="files/")'
    replaced = {made: "lake = lake_with_flights(7)", opened: f'create=True, data_path="{Path.cwd()}/files/")'}
    return Setup({"lake_with_flights": lake_with_flights}, replaced)


def _row_changes() -> Setup:
    lake = lake_with_flights(8)
    lake.create_table("late_flights", flights().schema)
    lake.table("flights").set_partitioned_by(["carrier", "month(day)"])
    march = flights().slice(0, 2).set_column(1, "day", pa.array([dt.date(2013, 3, 1)] * 2)).set_column(3, "carrier", pa.array(["UA", None]))
    names = {
        "lake": lake,
        "table": lake.table("flights"),
        "flights": lake.table("flights"),
        "new_rows": flights("UA DL").select(["flight", "delay"]).append_column("cancelled", pa.array([True, False])),
        "march": march,
        "new": flights("XX B6"),
        "datetime": dt.datetime,
        "date": dt.date,
        "UTC": dt.UTC,
    }
    return Setup(names, {"120": str(lake.snapshot().id)})


def _dagster() -> Setup:
    import dagster as dg

    import ducklake_dagster

    @dg.asset
    def orders() -> pa.Table:
        return pa.table({"id": [1]})

    public = {name: getattr(ducklake_dagster, name) for name in ducklake_dagster.__all__}
    lake = ducklake_dagster.DuckLakeResource(
        catalog=_URL, create_if_missing=True, storage=ducklake_dagster.LocalStorage(data_path="files/")
    )
    resources = {"io_manager": ducklake_dagster.DuckLakeIOManager(lake=lake), "lake": lake, "spark": dg.ResourceDefinition.none_resource()}
    names = {**public, "dg": dg, "pa": pa, "orders": orders, "resources": resources}
    return Setup(
        names, {"[...]": "[orders]", "{...}": "resources", "dg.Definitions(...)": "dg.Definitions(assets=[orders], resources=resources)"}
    )


def _reading() -> Setup:
    import duckdb
    import pandas as pd
    import polars as pl

    # pandas 2 has no such method.
    names = {"lake": lake_with_flights(), "pa": pa, "pl": pl, "duckdb": duckdb, "pd": pd}
    return Setup(names, {"pd.DataFrame.from_arrow(scan)": "scan.to_pandas()"})


def _views() -> Setup:
    lake = lake_with_flights()
    lake.create_schema("reports")
    lake.create_view("reports.daily", "SELECT day, count(*) AS n FROM main.flights GROUP BY day")
    lake.create_macro("is_late", {"minutes": "minutes > 15"})
    return Setup({"lake": lake}, {"at=42": f"at={lake.snapshot().id}"})


def _foreign_files() -> Setup:
    lake_with_flights().close()
    return Setup({"DuckLake": DuckLake, "url": _URL})


SETUPS: dict[str, Callable[[], Setup]] = {
    "how-to/adding-files.md": _adding_files,
    "how-to/dagster/assets.md": _dagster,
    "how-to/definitions.md": _definitions,
    "reference/filters.md": _flights_table,
    "concepts/foreign-files.md": _foreign_files,
    "operations/health.md": lambda: Setup({"lake": lake_with_flights()}),
    "how-to/maintenance.md": _maintenance,
    "how-to/opening.md": _opening,
    "how-to/reading.md": _reading,
    "how-to/row-changes.md": _row_changes,
    "reference/views.md": _views,
}

PAGES_OF_SPARK = (
    "tutorials/spark-job.md", "tutorials/streaming.md", "reference/spark.md", "how-to/change-feed.md", "reference/virtual-columns.md",
    "reference/types.md", "how-to/object-stores.md",
)  # fmt: skip
