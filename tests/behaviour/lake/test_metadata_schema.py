"""Catalogs in any database schema: hostile names, and a search path that leads elsewhere."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import AlreadyExistsError, NotALakeError
from tests.support.oracle import LakeAddress, attached, file_lake
from tests.support.parameters import slow
from tests.support.postgres import PostgresServer

HOSTILE = 'La"k.e\'s %s; DROP SCHEMA "public" --ü'
with_schemas = pytest.mark.parametrize("lake_address", ["postgresql", slow("duckdb")], indirect=True)


def option(schema: str) -> str:
    quoted = schema.replace("'", "''")
    return f"METADATA_SCHEMA '{quoted}', DATA_INLINING_ROW_LIMIT 5"


@with_schemas
@pytest.mark.parametrize("schema", ["lakes", "UPPER case", "main.x"])
def test_duckdb_and_ducklake_core_write_in_any_metadata_schema(lake_address: LakeAddress, schema: str) -> None:
    address = lake_address
    lake = DuckLake.create(address.url, data_path=address.data_path, metadata_schema=schema)
    lake.write("t", pa.table({"a": [1, 2, 3]}))
    with attached(address, option(schema)) as duck:
        duck.run(
            "INSERT INTO t VALUES (4)",
            "DELETE FROM t WHERE a = 2",
            "CREATE TABLE u (s STRUCT(x INT)[])",
            "INSERT INTO u VALUES ([{'x': 1}])",
        )
        assert duck.rows("SELECT a FROM t ORDER BY a") == [(1,), (3,), (4,)]
    again = DuckLake.connect(f"{address.url}{'&' if '?' in address.url else '?'}metadata_schema={quote(schema)}")
    again.table("t").delete(where="a = 4")
    assert sorted(again.table("t").scan().to_arrow().column("a").to_pylist()) == [1, 3]
    assert again.table("u").scan().to_arrow().column("s").to_pylist() == [[{"x": 1}]]
    with pytest.raises(NotALakeError, match="no DuckLake catalog"):
        DuckLake.connect(address.url)
    for used in (lake, again):
        used.close()
    with attached(address, option(schema)) as duck:
        assert duck.rows("SELECT a FROM t ORDER BY a") == [(1,), (3,)]


@with_schemas
def test_a_lake_of_duckdb_in_a_metadata_schema(lake_address: LakeAddress) -> None:
    address = lake_address
    with attached(address, option("Lakes")) as duck:
        duck.run("CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1)", "CREATE TABLE u AS SELECT range AS a FROM range(20)")
        duck.run("DELETE FROM u WHERE a < 3")
    lake = DuckLake.connect(address.url, metadata_schema="Lakes")
    assert lake.table("t").scan().to_arrow().column("a").to_pylist() == [1]
    assert lake.table("u").scan().to_arrow().num_rows == 17
    assert {item.table: item.row_count for item in lake.tables()} == {"main.t": 1, "main.u": 17}
    with pytest.raises(AlreadyExistsError):
        DuckLake.create(address.url, data_path=address.data_path, metadata_schema="Lakes")
    lake.close()


@with_schemas
def test_a_hostile_schema_name(lake_address: LakeAddress, tmp_path: Path) -> None:
    address = lake_address
    other = DuckLake.create(address.url, data_path=address.data_path)
    other.write("kept", pa.table({"a": [7]}))
    lake = DuckLake.create(address.url, data_path=f"{tmp_path}/hostile/", metadata_schema=HOSTILE)
    lake.write("t", pa.table({"a": [1, 2, 3]}))
    lake.table("t").delete(where="a = 2")
    assert lake.table("t").scan(where="a > 1").to_arrow().column("a").to_pylist() == [3]
    assert other.table("kept").scan().to_arrow().column("a").to_pylist() == [7]
    assert [item.table for item in other.tables()] == ["main.kept"]
    for used in (lake, other):
        used.close()


def test_the_search_path_does_not_matter(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.lake(tmp_path)
    decoy = DuckLake.create(address.url, data_path=f"{tmp_path}/decoy/", metadata_schema="decoy")
    decoy.write("decoy", pa.table({"a": [0]}))
    decoy.close()
    name = address.url.split("@/")[1].split("?")[0]
    with psycopg.connect(f"host={postgres.socket} user={postgres.user} dbname={name}", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET search_path = decoy")
    with pytest.raises(NotALakeError, match="'public'"):
        DuckLake.connect(address.url)
    for schema in (None, "own"):
        lake = DuckLake.create(address.url, data_path=f"{tmp_path}/{schema}/", metadata_schema=schema)
        lake.write("t", pa.table({"a": [1, 2, 3]}))
        lake.table("t").delete(where="a = 2")
        lake.close()
        with attached(LakeAddress(address.url, address.attach, f"{tmp_path}/{schema}/", "postgresql"), option(schema or "public")) as duck:
            duck.run("DELETE FROM t WHERE a = 3", "INSERT INTO t VALUES (5)")
        lake = DuckLake.connect(address.url, metadata_schema=schema)
        assert [item.table for item in lake.tables()] == ["main.t"]
        assert sorted(lake.table("t").scan().to_arrow().column("a").to_pylist()) == [1, 5]
        lake.close()


def test_lakes_in_schemas_of_one_name_on_several_databases(postgres: PostgresServer, tmp_path: Path) -> None:
    lakes = [
        DuckLake.create(address.url, data_path=f"{tmp_path}/{address.backend}/", metadata_schema="lakes")
        for address in (postgres.lake(tmp_path), file_lake("duckdb", tmp_path), postgres.lake(tmp_path))
    ]
    for number, lake in enumerate(lakes):
        lake.write("t", pa.table({"a": [number]}))
        lake.write("t", pa.table({"a": [number + 10]}), mode="append")
    for number, lake in enumerate(lakes):
        assert sorted(lake.table("t").scan().to_arrow().column("a").to_pylist()) == [number, number + 10]
        lake.close()
