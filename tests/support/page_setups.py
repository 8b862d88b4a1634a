"""Setup before the first line of code of a documentation page, by the name of the page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

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


def _views() -> Setup:
    lake = lake_with_flights()
    lake.create_schema("reports")
    lake.create_view("reports.daily", "SELECT day, count(*) AS n FROM main.flights GROUP BY day")
    lake.create_macro("is_late", {"minutes": "minutes > 15"})
    return Setup({"lake": lake}, {"at=42": f"at={lake.snapshot().id}"})


SETUPS: dict[str, Callable[[], Setup]] = {"reference/views.md": _views}
