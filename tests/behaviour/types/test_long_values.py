"""Long strings and blobs: short bounds that enclose them, and clear errors where a database does not take a value."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import make_url

from ducklake_core import DuckLake
from ducklake_core.catalog.database import sqlite_catalog
from ducklake_core.errors import CatalogError, DuckLakeError
from ducklake_core.format.files.statistics import shortened_maximum, shortened_minimum
from ducklake_core.format.types.data_types import BLOB, JSON, VARCHAR
from tests.support.mysql import MySQLServer
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow

CHARACTERS = "a~\x7f\x80é߿ࠀ퟿\uffff🦆\U0010fffe\U0010ffff"
BYTES = b"a~\x7f\x00\xff\\'["


def _long_strings(chance: random.Random) -> Iterator[str]:
    for _ in range(3_000):
        alphabet = chance.sample(CHARACTERS, chance.randint(1, 3))
        yield "".join(chance.choices(alphabet, k=chance.randint(60, 600)))


def test_short_bounds_of_strings_enclose_them() -> None:
    for text in _long_strings(random.Random(3401)):
        for kind in (VARCHAR, JSON):
            low, high = shortened_minimum(text, kind), shortened_maximum(text, kind)
            assert low <= text
            assert len(low.encode()) <= 256
            if high is None:
                assert set(text[:64]) == {"\U0010ffff"}
            else:
                assert high >= text
                assert len(high.encode()) <= 257


def _as_duckdb(blob: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in "\\'\"" else f"\\x{byte:02X}" for byte in blob)


@pytest.mark.parametrize("spell", [lambda blob: blob.hex().upper(), _as_duckdb], ids=["hexadecimal", "duckdb"])
def test_short_bounds_of_blobs_enclose_them_and_are_blobs(spell: Callable[[bytes], str]) -> None:
    chance = random.Random(3402)
    with duckdb.connect() as duck:
        for _ in range(300):
            blob = bytes(chance.choices(BYTES, k=chance.randint(100, 900)))
            text = spell(blob)
            low, high = shortened_minimum(text, BLOB), shortened_maximum(text, BLOB)
            assert high is not None
            assert low <= text <= high
            assert max(len(low), len(high)) <= 512
            written = text.encode() if text == blob.hex().upper() else blob
            (enclosed,) = duck.execute("SELECT ? BETWEEN ?::VARCHAR::BLOB AND ?::VARCHAR::BLOB", [written, low, high]).fetchone() or (
                False,
            )
            assert enclosed


@pytest.mark.parametrize("character", ["x", slow("~"), slow("\x7f"), slow("é"), "\U0010ffff"])
@pytest.mark.parametrize("duckdb_first", [False, True])
def test_rows_with_long_values_are_found(small: DuckLake, sqlite_address: LakeAddress, character: str, duckdb_first: bool) -> None:
    """Both libraries alternate with inlined rows and files: DuckDB finds each row by its value, and the minimum and maximum."""
    small.create_table("t", {"s": "varchar", "b": "blob"})
    wanted: list[str] = []
    for number, size in enumerate((3_000, 100, 3_000, 257, 256, 3_000)):
        text = chr(ord("c") - number % 3) + character * size + str(number)
        wanted.append(text)
        with_duckdb, inlined = (number % 2 == 0) is duckdb_first, number % 3 != 1
        if with_duckdb:
            with attached(sqlite_address, f"DATA_INLINING_ROW_LIMIT {10 if inlined else 0}") as duck:
                duck.connection.execute("INSERT INTO t VALUES (?, ?)", [text, text.encode()])
        else:
            small.table("t").append(pa.table({"s": [text], "b": [text.encode()]}), inline=inlined)
            assert _longest_bound(sqlite_address) <= 512
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT min(s), max(s), min(b), max(b) FROM t") == [
            (min(wanted), max(wanted), min(wanted).encode(), max(wanted).encode())
        ]
        for text in wanted:
            assert duck.rows("SELECT s FROM t WHERE s = ? AND b = ?", [text, text.encode()]) == [(text,)]
    assert [small.table("t").scan(where=f"s = '{text}'").count() for text in wanted] == [1] * len(wanted)
    assert not small.check(level="footers").findings
    assert not small.check(level="rows").findings


def _longest_bound(address: LakeAddress) -> int:
    with sqlite3.connect(address.url.removeprefix("sqlite:///")) as connection:
        (found,) = connection.execute(
            "SELECT max(max(length(coalesce(min_value, '')), length(coalesce(max_value, '')))) FROM ducklake_table_column_stats"
        )
    return int(found[0])


PACKET = 1 << 20


@pytest.fixture
def short_packets(mysql: MySQLServer) -> Iterator[MySQLServer]:
    """A server that accepts statements of 1 MiB."""
    ((before,),) = mysql.rows("SELECT @@global.max_allowed_packet")
    mysql.run(f"SET GLOBAL max_allowed_packet = {PACKET}")
    yield mysql
    mysql.run(f"SET GLOBAL max_allowed_packet = {before}")


def test_long_values_in_files_need_no_long_statement(short_packets: MySQLServer, tmp_path: Any) -> None:
    address = short_packets.lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    long = "y" * (PACKET + 1)
    for number in range(2):
        lake.write("t", pa.table({"n": [number], "s": [long], "b": [long.encode()]}))
    assert lake.table("t").scan(["s"]).to_arrow().column("s").to_pylist() == [long, long]


# Longer than the limit with its escapes only.
LONG = "\\" * (PACKET * 2 // 3)
QUERY = f"SELECT '{LONG}' AS x"
CALLS: dict[str, tuple[Callable[[DuckLake], object], str]] = {
    "default": (lambda lake: lake.sql(f"CREATE TABLE q (i INTEGER, s VARCHAR DEFAULT '{LONG}')"), f"of column 's' has {len(LONG):,}"),
    "view": (lambda lake: lake.sql(f"CREATE VIEW v AS {QUERY}"), f"sql of view 'v' has {len(QUERY):,}"),
    "message": (
        lambda lake: lake.write("u", pa.table({"n": [1]}), message=LONG),
        f"commit_message of snapshot changes has {len(LONG):,}",
    ),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_a_value_that_the_server_rejects_is_named_at_once(short_packets: MySQLServer, tmp_path: Any, call: str) -> None:
    address = short_packets.lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    run, named = CALLS[call]
    with pytest.raises(CatalogError, match="max_allowed_packet of the server is 1,048,576 bytes") as caught:
        run(lake)
    assert type(caught.value) is CatalogError
    assert not caught.value.retriable
    assert f"{named} bytes; nothing was changed" in caught.value.message
    assert [snapshot.id for snapshot in lake.snapshots()] == [0]
    lake.write("after", pa.table({"n": [1]}))


def test_a_value_that_sqlite_rejects_is_named(sqlite_address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = sqlite_catalog._opened

    def limited(path: str) -> sqlite_catalog.FileConnection:
        connection = opened(path)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        return connection

    monkeypatch.setattr(sqlite_catalog, "_opened", limited)
    lake = DuckLake.create(sqlite_address.url, data_path=sqlite_address.data_path)
    with pytest.raises(DuckLakeError, match="the value of column 's' in row 1 has 1,000,001 bytes; nothing was changed") as caught:
        lake.write("t", pa.table({"n": [1, 2], "s": ["", "x" * 1_000_001]}), inline=True)
    assert not caught.value.retriable


def _wide(columns: int, kind: pa.DataType, value: Callable[[int], object]) -> pa.Table:
    return pa.table({f"c{number}": pa.array([value(number), None], kind) for number in range(columns)})


def _random_string(number: int, letters: int = 200) -> str:
    return "".join(random.Random(number).choices("0123456789abcdef", k=letters))


WIDE: dict[str, tuple[pa.Table, bool]] = {
    "numbers": (_wide(900, pa.int64(), lambda number: 2**60 + number), True),
    "many numbers": (_wide(1100, pa.int64(), lambda number: 2**60 + number), False),
    "strings": (_wide(330, pa.string(), _random_string), True),
    "many strings": (_wide(600, pa.string(), _random_string), False),
    "short strings": (_wide(900, pa.string(), str), True),
    "times": (_wide(600, pa.timestamp("us"), lambda number: number), False),
    "mixed": (pa.concat_tables([_wide(800, pa.string(), str)]).append_column("n", pa.array([1, 2], pa.int64())), True),
}


@pytest.mark.parametrize("shape", list(WIDE))
def test_rows_that_do_not_fit_into_a_page_of_postgresql_go_to_files(postgres: Any, tmp_path: Any, shape: str) -> None:
    data, is_inlined = WIDE[shape]
    address = postgres.lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    written = lake.write("t", data)
    assert (written.files_added == 0) is is_inlined
    assert lake.table("t").scan().to_arrow().equals(data)
    lake.close()


def test_a_value_that_postgresql_rejects_is_named(postgres: Any, tmp_path: Any) -> None:
    """An index of the operator's own takes values up to a length: PostgreSQL reports SQLSTATE 54000."""
    address = postgres.lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    with psycopg.connect(make_url(address.url).set(drivername="postgresql").render_as_string()) as connection:
        connection.execute("CREATE INDEX views_by_text ON ducklake_view (sql)")
    query = f"SELECT '{_random_string(1, 20_000)}' AS x"
    with pytest.raises(CatalogError, match=r"A statement or a value is longer than the catalog .* accepts \(index row") as caught:
        lake.sql(f"CREATE VIEW v AS {query}")
    assert type(caught.value) is CatalogError
    assert not caught.value.retriable
    assert caught.value.details["sqlstate"] == "54000"
    assert f"sql of view 'v' has {len(query):,} bytes; nothing was changed" in caught.value.message
    assert [snapshot.id for snapshot in lake.snapshots()] == [0]
    lake.sql("CREATE VIEW v AS SELECT 1 AS x")
    lake.close()
