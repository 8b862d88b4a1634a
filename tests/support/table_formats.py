"""Stand-ins for deltalake and pyiceberg, which are not installed: objects over real Parquet files that lie and are called as those
libraries write them, with the results of the libraries' objects."""

from __future__ import annotations

import datetime as dt
import types
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ducklake_core import DuckLake


def rows(key: str) -> pa.Table:
    moments = [dt.datetime(2026, 1, 1, 8, tzinfo=dt.UTC), None, dt.datetime(2026, 1, 3, 8, 0, 0, 123, tzinfo=dt.UTC), None]
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "day": [dt.date(2026, 1, 1), dt.date(2026, 1, 2), None, dt.date(2026, 2, 1)],
            key: ["eu", "new york", None, "eu"],
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.50"), None, Decimal("-3.25"), Decimal("9.99")], pa.decimal128(9, 2)),
        }
    )


class DeltaTable:
    """A table by region and day, whose columns are in the directories only."""

    deleted = False
    mapping = "none"

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def write(self) -> DeltaTable:
        for number, row in enumerate(_single(rows("region"))):
            (region,), (day,) = row["region"].to_pylist(), row["day"].to_pylist()
            values = ["__HIVE_DEFAULT_PARTITION__" if value is None else str(value).replace(" ", "%20") for value in (region, day)]
            folder = self.path / f"region={values[0]}" / f"day={values[1]}"
            folder.mkdir(parents=True)
            pq.write_table(row.drop_columns(["region", "day"]), folder / f"part-0000{number}.snappy.parquet")
        return self

    def _rows(self) -> pa.Table:
        keys = ds.partitioning(pa.schema({"region": pa.string(), "day": pa.date32()}), flavor="hive")
        return ds.dataset(self.path, partitioning=keys).to_table()

    def scan(self, predicate: str | None = None) -> pa.RecordBatchReader:
        found = self._rows()
        if predicate is not None:
            assert predicate == "day >= '2026-02-01'"
            found = found.filter(pc.field("day") >= dt.date(2026, 2, 1))
        # DataFusion returns string views.
        key = found.schema.get_field_index("region")
        return found.set_column(key, "region", found["region"].cast(pa.string_view())).to_reader()

    def metadata(self) -> SimpleNamespace:
        return SimpleNamespace(partition_columns=["region", "day"], configuration={"delta.columnMapping.mode": self.mapping})

    def deletion_vectors(self) -> pa.RecordBatchReader:
        vectors = {"filepath": self.file_uris()[:1], "selection_vector": [[False]]}
        return pa.table(vectors).slice(0, int(self.deleted)).to_reader()

    def schema(self) -> SimpleNamespace:
        return SimpleNamespace(to_arrow=lambda: self._rows().schema)

    def file_uris(self) -> list[str]:
        return [str(path) for path in sorted(self.path.rglob("*.parquet"))]

    def count(self) -> int:
        return self._rows().num_rows


class IcebergSchema:
    """Columns and their field ids."""

    def __init__(self, columns: dict[str, int]) -> None:
        self._columns = columns
        self.column_names = list(columns)

    def find_field(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(field_id=self._columns[name])

    def as_arrow(self) -> pa.Schema:
        held = rows("city").schema
        return pa.schema(
            [
                pa.field(name, pa.large_string() if pa.types.is_string(held.field(name).type) else held.field(name).type)
                for name in held.names
            ]
        )


class IcebergTable:
    """A table by city and the month of day, whose columns are in the files too; directories have a blank as ``+``."""

    metadata = io = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.delete_files: set[str] = set()
        self.earlier: list[IcebergSchema] = []

    def write(self) -> IcebergTable:
        for number, row in enumerate(_single(rows("city"))):
            (city,), (day,) = row["city"].to_pylist(), row["day"].to_pylist()
            month = "null" if day is None else f"{day:%Y-%m}"
            folder = self.path / "data" / f"city={'null' if city is None else city.replace(' ', '+')}" / f"day_month={month}"
            folder.mkdir(parents=True)
            pq.write_table(row, folder / f"00000-{number}.parquet")
        return self

    def schema(self) -> IcebergSchema:
        return IcebergSchema({name: number for number, name in enumerate(rows("city").column_names, 1)})

    projection = schema

    def schemas(self) -> dict[int, IcebergSchema]:
        return dict(enumerate([*self.earlier, self.schema()]))

    def scan(self) -> IcebergTable:
        return self

    def plan_files(self) -> list[SimpleNamespace]:
        files = sorted((self.path / "data").rglob("*.parquet"))
        return [SimpleNamespace(file=SimpleNamespace(file_path=f"file://{file}"), delete_files=self.delete_files) for file in files]

    def count(self) -> int:
        return len(self.plan_files())


class ArrowScan:
    def __init__(self, metadata: object, io: object, projected_schema: IcebergSchema, row_filter: object) -> None:
        pass

    def to_record_batches(self, tasks: list[SimpleNamespace]) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            yield from pq.ParquetFile(task.file.file_path.removeprefix("file://")).iter_batches()


def modules(trips: IcebergTable) -> dict[str, types.ModuleType]:
    """Return the modules to import, by name."""
    contents: dict[str, dict[str, object]] = {
        "deltalake": {"DeltaTable": DeltaTable},
        "pyiceberg": {},
        "pyiceberg.catalog": {"load_catalog": lambda name, **properties: SimpleNamespace(load_table=lambda table: trips)},
        "pyiceberg.expressions": {"AlwaysTrue": object},
        "pyiceberg.io": {},
        "pyiceberg.io.pyarrow": {"ArrowScan": ArrowScan},
    }
    made = {}
    for name, inside in contents.items():
        made[name] = types.ModuleType(name)
        made[name].__dict__.update(inside)
    return made


def _single(table: pa.Table) -> Iterator[pa.Table]:
    return (table.slice(number, 1) for number in range(table.num_rows))


class OldTables:
    """A table of each format in a folder, and a lake next to them."""

    def __init__(self, folder: Path) -> None:
        self.orders = DeltaTable(f"{folder}/delta/orders").write()
        self.trips = IcebergTable(folder / "warehouse").write()
        self.lake = DuckLake.create(f"sqlite:///{folder}/other.sqlite", data_path=f"{folder}/files/")
