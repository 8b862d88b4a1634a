"""One table of two million rows in each library's own way, and the calls that a user makes of it: what ``bench_peers`` compares.

``DuckLake``'s own three share nothing but the rows: each has a lake that DuckDB made. Delta's and Iceberg's libraries are left out where
they are not installed (extra ``bench``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, Oracle, attached, sqlite_lake

WRITE, APPEND, SELECT, UPSERT, DELETE = "write all rows", "append one row", "read 1,000 rows", "upsert 10,000 rows", "delete 0.1 %"
"""The calls; rows are numbered by ``id``, and ``k`` has 1,000 values. A delete takes one of them, another at each call."""

Rows: TypeAlias = Callable[[], pa.Table]
Calls: TypeAlias = Mapping[str, Callable[[], object]]


@contextmanager
def made_by_duckdb(folder: Path, rows: pa.Table) -> Iterator[tuple[LakeAddress, Oracle]]:
    """A lake whose tables ``t``, of the rows, and ``empty`` DuckDB made."""
    folder.mkdir()
    address = sqlite_lake(folder)
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.connection.register("made", rows)
        duck.run("CREATE TABLE t AS FROM made", "CREATE TABLE empty AS FROM made LIMIT 0")
    with attached(address) as duck:
        duck.connection.register("made", rows)
        yield address, duck


def core_calls(address: LakeAddress, rows: pa.Table, one: pa.Table, changed: Rows, value: Callable[[], int]) -> Calls:
    """As the README shows it."""
    lake, start = DuckLake.connect(address.url), rows.num_rows // 2
    return {
        WRITE: lambda: lake.table("empty").append(rows),
        APPEND: lambda: lake.table("t").append(one),
        SELECT: lambda: lake.table("t").scan(where=f"id >= {start} AND id < {start + 1000}").to_arrow(),
        UPSERT: lambda: lake.table("t").upsert(changed(), on=["id"]),
        DELETE: lambda: lake.table("t").delete(f"k = {value()}"),
    }


def ducklakepys(address: LakeAddress, rows: pa.Table, one: pa.Table, changed: Rows, value: Callable[[], int]) -> Calls:
    """With a table that is opened at each call, as in :func:`core_calls`."""
    from ducklakepy import DuckLakeCatalog
    from ducklakepy.expressions import col

    lake, start = DuckLakeCatalog("lake", url=address.url, data_path=address.data_path), rows.num_rows // 2
    wanted = (col("id") >= start) & (col("id") < start + 1000)
    return {
        WRITE: lambda: lake.load_table("main.empty").append(rows),
        APPEND: lambda: lake.load_table("main.t").append(one),
        SELECT: lambda: lake.load_table("main.t").scan(row_filter=wanted).to_arrow(),
        UPSERT: lambda: lake.load_table("main.t").upsert(changed(), on=["id"]),
        DELETE: lambda: lake.load_table("main.t").delete(col("k") == value()),
    }


def duckdbs(duck: Oracle, rows: pa.Table, one: pa.Table, changed: Rows, value: Callable[[], int]) -> Calls:
    """In SQL."""
    start = rows.num_rows // 2
    duck.connection.register("one", one)

    def upsert() -> None:
        duck.connection.register("source", changed())
        duck.run("MERGE INTO t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

    return {
        WRITE: lambda: duck.run("INSERT INTO empty FROM made"),
        APPEND: lambda: duck.run("INSERT INTO t FROM one"),
        SELECT: lambda: duck.arrow(f"SELECT * FROM t WHERE id >= {start} AND id < {start + 1000}"),
        UPSERT: upsert,
        DELETE: lambda: duck.run(f"DELETE FROM t WHERE k = {value()}"),
    }


def deltas(folder: Path, rows: pa.Table, one: pa.Table, changed: Rows, value: Callable[[], int]) -> Calls:
    """Delta tables on disk with delta-rs; conditions are its SQL's.

    Raises:
        ImportError: It is not installed.
    """
    import deltalake

    place, empty, start = str(folder / "delta"), str(folder / "empty"), rows.num_rows // 2
    deltalake.write_deltalake(place, rows)

    def select() -> pa.Table:
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(place))
        return pa.table(query.execute(f"SELECT * FROM t WHERE id >= {start} AND id < {start + 1000}").read_all())

    def upsert() -> object:
        merge = deltalake.DeltaTable(place).merge(changed(), "t.id = s.id", source_alias="s", target_alias="t")
        return merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return {
        WRITE: lambda: deltalake.write_deltalake(empty, rows, mode="append"),
        APPEND: lambda: deltalake.write_deltalake(place, one, mode="append"),
        SELECT: select,
        UPSERT: upsert,
        DELETE: lambda: deltalake.DeltaTable(place).delete(f"k = {value()}"),
    }


def icebergs(folder: Path, rows: pa.Table, one: pa.Table, value: Callable[[], int]) -> Calls:
    """Iceberg tables with pyiceberg and a catalog in SQLite; no upsert, which compares rows by a condition with a term for each.

    Raises:
        ImportError: It is not installed.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    (folder / "iceberg-rows").mkdir()
    catalog: Any = SqlCatalog("rows", uri=f"sqlite:///{folder}/iceberg-rows.sqlite", warehouse=f"file://{folder}/iceberg-rows")
    catalog.create_namespace("main")
    catalog.create_table("main.t", schema=rows.schema).append(rows)
    catalog.create_table("main.empty", schema=rows.schema)
    start = rows.num_rows // 2
    return {
        WRITE: lambda: catalog.load_table("main.empty").append(rows),
        APPEND: lambda: catalog.load_table("main.t").append(one),
        SELECT: lambda: catalog.load_table("main.t").scan(row_filter=f"id >= {start} and id < {start + 1000}").to_arrow(),
        DELETE: lambda: catalog.load_table("main.t").delete(f"k == {value()}"),
    }


def installed(calls: Callable[[], Calls]) -> Calls:
    """The calls of a library that may not be installed, then none."""
    try:
        return calls()
    except ImportError:
        return {}


def by_call(sides: Mapping[str, Calls]) -> dict[str, dict[str, Callable[[], object]]]:
    """The calls of all sides, by call."""
    found: dict[str, dict[str, Callable[[], object]]] = {}
    for name, calls in sides.items():
        for call, way in calls.items():
            found.setdefault(call, {})[name] = way
    return found
