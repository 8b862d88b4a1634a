"""Queries over stored columns have the types and values that the same queries have over DuckDB's own tables."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import UnsupportedFeatureError
from tests.support.oracle import attached, sqlite_lake
from tests.support.parameters import slow

LEAVES = {
    "TINYINT": "1", "SMALLINT": "2", "INTEGER": "3", "BIGINT": "4", "HUGEINT": "5", "UTINYINT": "5", "USMALLINT": "6", "UINTEGER": "7",
    "UBIGINT": "18446744073709551615", "UHUGEINT": "6", "FLOAT": "1.5", "DOUBLE": "2.5", "DECIMAL(4,1)": "1.5", "DECIMAL(9,2)": "1.25",
    "DECIMAL(18,3)": "2.5", "DECIMAL(38,0)": "9" * 38, "BOOLEAN": "true", "VARCHAR": "'x'", "BLOB": r"'\xAA'::BLOB",
    "DATE": "DATE '2020-01-01'", "TIME": "TIME '01:02:03.123456'", "TIMETZ": "'01:02:03+00'::TIMETZ",
    "TIMESTAMP": "TIMESTAMP '2020-01-01 01:02:03.123456'", "TIMESTAMPTZ": "'2020-01-01 01:02:03+02'::TIMESTAMPTZ",
    "TIMESTAMP_S": "'2020-01-01 01:02:03'::TIMESTAMP_S", "TIMESTAMP_MS": "'2020-01-01 01:02:03.123'::TIMESTAMP_MS",
    "TIMESTAMP_NS": "'2020-01-01 01:02:03.123456789'::TIMESTAMP_NS",
    "INTERVAL": "INTERVAL '1 year 2 days 3 seconds'", "UUID": "'00000000-0000-0000-0000-000000000001'::UUID", "JSON": "'[1]'::JSON",
    "GEOMETRY": "'POINT (1 2)'::GEOMETRY", "VARIANT": "5::INTEGER::VARIANT",
}  # fmt: skip
NOT_NESTED = ("VARIANT",)
"""DuckDB writes no lists or structs of these."""
NO_KEYS = ("VARIANT", "GEOMETRY")


def kinds() -> dict[str, str]:
    """Return a value of every type, as a column of its own and inside lists, structs and maps."""
    found = dict(LEAVES)
    for kind, value in LEAVES.items():
        if kind not in NOT_NESTED:
            found |= {f"{kind}[]": f"[{value}]", f"STRUCT(x {kind})": f"{{'x': {value}}}", f"MAP(INTEGER, {kind})": f"MAP {{1: {value}}}"}
        if kind not in NO_KEYS:
            found[f"MAP({kind}, INTEGER)"] = f"MAP {{{value}: 1}}"
    found["STRUCT(l TIMETZ[], m MAP(INTEGER, TIMETZ[]))"] = "{'l': ['01:02:03+00'::TIMETZ], 'm': MAP {1: ['01:02:03+00'::TIMETZ]}}"
    return found


def queries(names: list[str]) -> dict[str, str]:
    def each(form: str) -> str:
        return ", ".join(f"{form.format(name)} AS {name}" for name in names)

    return {
        "table": "FROM t",
        "filter": "SELECT * FROM t WHERE c0 = 1",
        "union": "FROM t UNION ALL FROM t",
        "lists": f"SELECT {each('[{}]')} FROM t",
        "coalesce": f"SELECT {each('coalesce({0}, {0})')} FROM t",
        "aggregates": f"SELECT {each('max({})')} FROM t",
        "view": "FROM v",
        "join": "SELECT y.* FROM (SELECT 5 AS k) AS x LEFT JOIN t AS y ON x.k = y.c0",
    }


@pytest.mark.parametrize("limit", [slow(0), 100], ids=["files", "inlined"])
@pytest.mark.parametrize("forms", [("filter", "lists", "view"), slow(("table", "union", "coalesce", "aggregates", "join"))], ids=",".join)
def test_queries_over_stored_columns_have_the_types_of_duckdb(tmp_path: Path, limit: int, forms: tuple[str, ...]) -> None:
    values = kinds()
    names = [f"c{place}" for place in range(len(values))]
    definition = ", ".join(f"{name} {kind}" for name, kind in zip(names, values, strict=True))
    strings = "SELECT " + ", ".join(f"{name}::VARCHAR AS {name}" for name in names) + " FROM ({}) ORDER BY ALL"
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", limit)
    duck = duckdb.connect()
    for statement in (
        f"CREATE TABLE t ({definition})",
        f"INSERT INTO t VALUES ({', '.join(values.values())})",
        "INSERT INTO t (c0) VALUES (NULL)",
        "CREATE VIEW v AS SELECT * FROM t",
    ):
        lake.sql(statement)
        duck.execute(statement)

    def found(query: str) -> tuple[list[str], list[tuple[str | None, ...]]]:
        rows = lake.sql(strings.format(query)).to_arrow().to_pylist()
        return lake.sql(f"DESCRIBE {query}").to_arrow()["column_type"].to_pylist(), [tuple(row.values()) for row in rows]

    def wanted(query: str) -> tuple[list[str], list[tuple[str | None, ...]]]:
        described = duck.execute(f"SELECT column_type FROM (DESCRIBE {query})").fetchall()
        return [kind for (kind,) in described], duck.execute(strings.format(query)).fetchall()

    for form in forms:
        query = queries(names)[form]
        assert found(query) == wanted(query), form
    lake.sql("CREATE TABLE made AS FROM v")
    lake.sql("INSERT INTO made FROM v")
    assert found("FROM made") == wanted("FROM t UNION ALL FROM t")
    lake.close()
    with attached(address) as other:
        stored = [kind for (kind,) in other.rows("SELECT column_type FROM (DESCRIBE made)")]
    assert stored == wanted("FROM t")[0]


@pytest.mark.parametrize("kind", ["MAP(UUID, INTEGER)", "STRUCT(x UUID)[]", "MAP(INTEGER, STRUCT(x UUID[]))"])
def test_files_in_which_all_lists_and_maps_of_uuids_are_null_are_read(tmp_path: Path, kind: str) -> None:
    address = sqlite_lake(tmp_path)
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    with attached(address) as duck:
        duck.run(f"CREATE TABLE t (a INTEGER, c {kind})", "INSERT INTO t VALUES (1, NULL)")
    lake.sql("INSERT INTO t VALUES (2, NULL)")
    assert sorted(lake.table("t").to_arrow()["a"].to_pylist()) == [1, 2]
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID(int=1).bytes], pa.binary(16)))
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pa.StructArray.from_arrays([ids], ["x"]))
    lake.write("made", pa.table({"a": [1, 2], "c": pa.nulls(2, lists.type)}))
    lake.write("made", pa.table({"a": [3], "c": lists}))
    assert sorted(lake.table("made").to_arrow()["a"].to_pylist()) == [1, 2, 3]
    lake.close()


def test_computed_times_with_a_zone_are_in_utc_as_stored_ones(lake: DuckLake) -> None:
    lake.sql("CREATE TABLE t (c TIMETZ)")
    lake.sql("INSERT INTO t VALUES ('12:00:00+02')")
    stored = lake.sql("SELECT c, [c] AS l FROM t UNION ALL SELECT c, [c] FROM t").to_arrow().slice(1)
    computed = lake.sql("SELECT '12:00:00+02'::TIMETZ AS c, ['23:00:00+13'::TIMETZ] AS l").to_arrow()
    assert computed.equals(stored), computed
    for query in ("CAST('12:00:00+02' AS TIME  WITH TIME ZONE)", "(['12:00:00+02'::TIMETZ]::TIMETZ[1])[1]", "c::TIMETZ"):
        assert lake.sql(f"SELECT {query} AS c FROM t").to_arrow().equals(stored.select(["c"])), query
    (now,) = lake.sql("SELECT current_time AS c, now()::TIMETZ AS d", timezone="Asia/Tokyo").to_arrow().to_pylist()
    assert now["c"] == now["d"]
    # The members of row(...) have no names.
    unnamed = lake.sql(f"SELECT row('12:00:00+02'::TIMETZ, {2**128 - 1}::UHUGEINT) AS c FROM t").to_arrow()["c"].combine_chunks()
    assert [unnamed.field(place).to_pylist() for place in range(2)] == [[time(10)], [Decimal(2**128 - 1)]]
    with pytest.raises(UnsupportedFeatureError, match="Cast the members"):
        lake.sql("SELECT union_value(a := '12:00:00+02'::TIMETZ) AS c").to_arrow()


# DuckDB fails for bytes that are no UTF-8.
PARTITIONED = [kind for kind in LEAVES if kind not in ("BLOB", "GEOMETRY", "VARIANT")]


@pytest.mark.parametrize("kind", [kind if kind == "INTERVAL" else slow(kind) for kind in PARTITIONED])
def test_partition_values_are_those_of_duckdb(tmp_path: Path, kind: str) -> None:
    address, value = sqlite_lake(tmp_path), LEAVES[kind]
    lake = DuckLake.create(address.url, data_path=address.data_path)
    lake.set_option("data_inlining_row_limit", 0)
    lake.sql(f"CREATE TABLE t (id INTEGER, p {kind}) PARTITIONED BY (p)")
    insert, query = f"INSERT INTO t VALUES (1, {value}), (2, NULL)", f"SELECT id FROM t WHERE p = {value}"
    lake.sql(insert)
    with attached(address) as duck:
        duck.run(insert)
        values = "SELECT partition_value, count(*) FROM __ducklake_metadata_lake.ducklake_file_partition_value GROUP BY ALL"
        assert sorted(count for _, count in duck.rows(values)) == [2, 2]
        assert [(row["id"],) for row in lake.sql(query).to_arrow().to_pylist()] == duck.rows(query) == [(1,), (1,)]
    lake.close()
