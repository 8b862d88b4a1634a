"""Results of MySQL that are read as they are wanted, also several at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Connection, text

from ducklake_core import DuckLake
from tests.support.mysql import MySQLServer

NUMBERS = text("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT a.i * 1000 + b.i FROM n AS a, n AS b")
STREAMED = {"yield_per": 1000}


@pytest.fixture
def lake(mysql: MySQLServer, tmp_path: Path) -> Iterator[DuckLake]:
    address = mysql.lake(tmp_path)
    with closing(DuckLake.create(address.url, data_path=address.data_path)) as made:
        yield made


@pytest.fixture
def connection(lake: DuckLake) -> Iterator[Connection]:
    with lake.reader() as reader:
        yield reader.connection


def test_rows_are_not_held(connection: Connection) -> None:
    with connection.execute(NUMBERS, execution_options=STREAMED) as rows:
        assert rows.fetchone() is not None
        assert not rows.cursor._kept
        assert len(rows.fetchmany(5000)) == 5000
        # Another statement does not lose them.
        assert connection.execute(text("SELECT 7")).scalar_one() == 7
        assert len(rows.cursor._kept) > 700_000
        assert sum(1 for _ in rows) == 810_000 - 5001


def test_several_at_once(connection: Connection) -> None:
    streams = [iter(connection.execute(text(f"{NUMBERS} LIMIT 5000"), execution_options=STREAMED)) for _ in range(3)]
    assert [len(set(stream)) for stream in reversed(streams)] == [5000] * 3
    for _ in range(3):
        with connection.execute(NUMBERS, execution_options=STREAMED) as rows:
            rows.fetchone()
        assert connection.execute(text("SELECT 8")).scalar_one() == 8


def test_rows_in_the_catalog_are_flushed(lake: DuckLake) -> None:
    lake.write("t", pa.table({"n": range(40_000)}), inline=True)
    lake.table("t").delete("n % 2 = 1")
    lake.flush_inlined_data("t")
    assert lake.table("t").scan().to_arrow().column("n").to_pylist() == list(range(0, 40_000, 2))
    assert lake.table("t").changes(0).count() == 60_000
