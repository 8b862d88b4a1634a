"""Writers of a MySQL catalog in processes of their own: nothing lost, nothing doubled, and no table of inlined rows left over."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.concurrency.test_many_writers import append_together
from tests.support.mysql import MySQLServer
from tests.support.oracle import LakeAddress
from tests.support.parameters import slow

COLUMNS = pa.schema([("writer", pa.int64()), ("number", pa.int64())])


@pytest.fixture
def address(mysql: MySQLServer, tmp_path: Any) -> LakeAddress:
    return mysql.lake(tmp_path)


def define_together(url: str, writer: int, tables: int, ready: Any, done: Any) -> None:
    """Tables of one process, made, filled and altered one after another, while others do the same."""
    lake = DuckLake.connect(url)
    ready.wait()
    try:
        for number in range(tables):
            name = f"t_{writer}_{number}"
            with lake.transaction() as tx:
                tx.create_table(name, COLUMNS)
                tx.append(name, pa.table({"writer": [writer], "number": [number]}, schema=COLUMNS))
            lake.table(name).add_column("later", "varchar", default="x")
            lake.table(name).append(pa.table({"writer": [writer], "number": [-1], "later": ["y"]}))
        done.put(None)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
        done.put(repr(error))


def run_together(target: Any, given: list[tuple[Any, ...]]) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(len(given)), context.Queue()
    running = [context.Process(target=target, args=(*arguments, ready, done)) for arguments in given]
    for process in running:
        process.start()
    found = [done.get(timeout=240) for _ in given]
    for process in running:
        process.join()
    return found


@pytest.mark.parametrize(("writers", "rows"), [(3, 8), slow(8, 50)])
def test_appends(address: LakeAddress, writers: int, rows: int) -> None:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.create_table("t", COLUMNS)
    found = run_together(append_together, [(address.url, range(number, number + 1), rows, 0.0) for number in range(writers)])
    assert sorted(found) == [(writer, rows, None) for writer in range(writers)]
    table = lake.table("t").scan(columns=["writer", "number", "rowid"]).to_arrow()
    expected = sorted((writer, number) for writer in range(writers) for number in range(rows))
    assert sorted(zip(table["writer"].to_pylist(), table["number"].to_pylist(), strict=True)) == expected
    assert sorted(table["rowid"].to_pylist()) == list(range(len(expected)))
    assert [snapshot.id for snapshot in lake.snapshots()] == list(range(len(expected) + 2))
    lake.close()


@pytest.mark.slow
def test_definitions(mysql: MySQLServer, address: LakeAddress) -> None:
    lake = DuckLake.create(address.url, data_path=address.data_path)
    assert run_together(define_together, [(address.url, writer, 4) for writer in range(4)]) == [None] * 4
    for writer in range(4):
        for number in range(4):
            rows = lake.table(f"t_{writer}_{number}").scan().to_arrow().to_pylist()
            expected = [{"writer": writer, "number": number, "later": "x"}, {"writer": writer, "number": -1, "later": "y"}]
            assert sorted(rows, key=lambda row: -row["number"]) == expected
    lake.expire_snapshots(versions=[one.id for one in lake.snapshots()[:-1]], min_age="0 days")
    name = address.attach.partition("db=")[2].split()[0]
    registered = {row[0] for row in mysql.rows("SELECT table_name FROM ducklake_inlined_data_tables", name)}
    assert mysql.inlined_tables(name) == registered
    assert lake.check().findings == ()
    lake.close()
