"""Frames that lack columns of the table: an error under strict, NULL or the default where allowed, and upserts keep what they lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import SchemaError, UsageError
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
COLUMNS = {"k": "int64", "a": "varchar", "b": "float64", "c": "int32"}
DEFAULT = 7
LACKS = r"The data lacks columns 'a', 'b' of main\.t, .* missing_columns='null'"


def new_lake(address: LakeAddress, **how: Any) -> DuckLake:
    """A lake with a table whose column c has a default."""
    lake = DuckLake.create(address.url, data_path=address.data_path, **how)
    lake.create_table("t", COLUMNS)
    lake.table("t").set_default("c", DEFAULT)
    return lake


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    return new_lake(sqlite_address)


def rows(lake: DuckLake, *columns: str) -> list[tuple[Any, ...]]:
    found = lake.table("t").scan(list(columns) or None).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def frame(*keys: int, **values: Any) -> list[Row]:
    return [{"k": key, **values} for key in keys]


def test_under_strict_every_way_of_writing_names_the_columns_and_the_option(lake: DuckLake) -> None:
    table = lake.table("t")
    table.append(frame(1, a="x", b=1.0))
    assert rows(lake) == [(1, "x", 1.0, DEFAULT)]
    before = lake.snapshot().id
    ways: list[Callable[[], object]] = [
        lambda: lake.write("t", frame(2)),
        lambda: table.append(frame(2)),
        lambda: table.append(pa.table({"k": [2]}).to_reader()),
        lambda: table.overwrite(frame(2)),
        lambda: table.overwrite(frame(1), where="k = 1"),
        lambda: table.upsert(frame(1), on="k"),
        lambda: table.append(frame(2), schema_evolution="additive", missing_columns="error"),
        lambda: table.merge(frame(1), on="k").when_matched_update().when_not_matched_insert().execute(),
    ]
    for way in ways:
        with pytest.raises(SchemaError, match=LACKS) as caught:
            way()
        assert caught.value.details["columns"] == ("a", "b")
    with lake.transaction() as tx:
        for call in (lambda: tx.append("t", frame(2)), lambda: tx.overwrite("t", frame(2)), lambda: tx.upsert("t", frame(1), on=["k"])):
            with pytest.raises(SchemaError, match=LACKS):
                call()
    assert lake.snapshot().id == before
    for wrong in ({"missing_columns": "NULL"}, {"schema_evolution": "add"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            table.append(frame(2), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [{"missing_columns": "null"}, {"schema_evolution": "additive"}])
@pytest.mark.parametrize("inline", [True, False])
def test_new_rows_get_null_or_the_default_where_that_is_allowed(lake: DuckLake, how: Any, inline: bool) -> None:
    table = lake.table("t")
    table.append(frame(1), inline=inline, **how)
    table.overwrite(frame(1, a="x"), where="k = 1", inline=inline, **how)
    table.upsert(frame(2, b=2.0), on="k", inline=inline, **how)
    assert rows(lake) == [(1, "x", None, DEFAULT), (2, None, 2.0, DEFAULT)]


@pytest.mark.parametrize("how", [{"missing_columns": "null"}, {"schema_evolution": "additive"}])
@pytest.mark.parametrize("inlined", [True, False])
@pytest.mark.parametrize("inline", [None, False])
def test_matched_rows_of_an_upsert_keep_what_the_frame_lacks(lake: DuckLake, how: Any, inlined: bool, inline: bool | None) -> None:
    table = lake.table("t")
    table.append([{"k": 1, "a": "x", "b": 1.0, "c": 1}, {"k": 2, "a": "y", "b": 2.0, "c": 2}], inline=inlined)
    before = dict(rows(lake, "k", "rowid"))
    done = table.upsert([{"K": 1, "a": "new"}, {"K": 3, "a": "z"}], on="k", inline=inline, **how)
    assert (done.rows_updated, done.rows_added, done.rows_deleted) == (1, 1, 0)
    assert done.rows_inlined == (2 if inline is None else 0)
    assert rows(lake) == [(1, "new", 1.0, 1), (2, "y", 2.0, 2), (3, "z", None, DEFAULT)]
    assert {key: row_id for key, row_id in rows(lake, "k", "rowid") if key in before} == before
    # A frame that has the keys alone changes no row that is there.
    done = table.upsert(frame(1, 4), on="k", **how)
    assert (done.rows_updated, done.rows_added) == (0, 1)
    # Of a column with a default that the frame lacks, matched rows keep the value, under strict too.
    table.upsert(frame(1, a="last", b=0.0), on="k")
    assert rows(lake)[0] == (1, "last", 0.0, 1)


def test_new_columns_come_with_a_partial_upsert(lake: DuckLake) -> None:
    table = lake.table("t")
    table.append(frame(1, a="x", b=1.0))
    table.upsert([{"k": 1, "n": "new"}], on="k", schema_evolution="additive")
    assert rows(lake) == [(1, "x", 1.0, DEFAULT, "new")]


def test_keys_of_partial_upserts_are_checked(lake: DuckLake) -> None:
    table = lake.table("t")
    table.append(frame(1, 1, a="x", b=1.0))
    for keys, message in (((2, 2), r"key \(k = 2\) occurs more than once"), ((None,), "is NULL in 1 row of the data")):
        with pytest.raises(UsageError, match=message):
            table.upsert([{"k": key} for key in keys], on="k", missing_columns="null")
    with pytest.raises(SchemaError, match="no column 'k', which is part of the key"):
        table.upsert([{"a": "x"}], on="k", missing_columns="null")
    # Rows of the table that share a key are all updated: it is undefined whose values would be kept.
    assert table.upsert(frame(1, a="y"), on="k", missing_columns="null").rows_updated == 2
    assert rows(lake) == [(1, "y", 1.0, DEFAULT)] * 2


def test_fields_of_structs_follow_the_same_rule(lake: DuckLake) -> None:
    lake.create_table("s", {"k": "int64", "s": "struct(x int32, y int32)", "l": "struct(z int32, w int32)[]"})
    part = pa.table({"k": [1], "s": [{"x": 1}], "l": [[{"w": 2}]]})
    with pytest.raises(SchemaError, match=r"lacks columns 's\.y', 'l\.element\.z' of main\.s"):
        lake.write("s", part)
    lake.write("s", part, missing_columns="null")
    lake.write("s", part.set_column(0, "k", pa.array([2])), schema_evolution="additive")
    given = {"s": {"x": 1, "y": None}, "l": [{"z": None, "w": 2}]}
    assert lake.table("s").scan().to_arrow().to_pylist() == [{"k": 1, **given}, {"k": 2, **given}]


def test_not_null_columns_stay_errors(lake: DuckLake) -> None:
    lake.table("t").set_not_null("a")
    for how in ({}, {"missing_columns": "null"}, {"schema_evolution": "additive"}):
        with pytest.raises(SchemaError, match=r"'a' .*NOT NULL"):
            lake.table("t").upsert(frame(1, b=1.0), on="k", **how)  # type: ignore[arg-type]


def test_sql_keeps_its_own_rule(lake: DuckLake) -> None:
    lake.sql("INSERT INTO t (k) VALUES (1)")
    lake.sql("INSERT INTO t BY NAME SELECT 2 AS k, 'x' AS a")
    lake.sql("MERGE INTO t USING (SELECT 3 AS k) AS s ON t.k = s.k WHEN NOT MATCHED THEN INSERT BY NAME")
    assert sorted(rows(lake), key=lambda row: row[0]) == [(1, None, None, DEFAULT), (2, "x", None, DEFAULT), (3, None, None, DEFAULT)]


def test_merges_insert_null_where_values_are_named_or_it_is_allowed(lake: DuckLake) -> None:
    table = lake.table("t")
    table.merge(frame(1), on="k").when_not_matched_insert({"k": "s.k"}).execute()
    table.merge(frame(2), on="k", missing_columns="null").when_not_matched_insert().execute()
    table.merge(frame(1, a="x"), on="k").when_matched_update().execute()
    assert sorted(rows(lake), key=lambda row: row[0]) == [(1, "x", None, DEFAULT), (2, None, None, DEFAULT)]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_on_every_catalog(lake_address: LakeAddress, version: str) -> None:
    lake = new_lake(lake_address, version=version)
    lake.table("t").append(frame(1, 2, a="x", b=1.0))
    lake.table("t").append(frame(*range(3, 40), a="y", b=2.0))
    lake.table("t").upsert([{"k": 1, "b": 5.0}, {"k": 39, "b": 6.0}, {"k": 99, "b": 7.0}], on="k", missing_columns="null")
    wanted = [(1, "x", 5.0, DEFAULT), (39, "y", 6.0, DEFAULT), (99, None, 7.0, DEFAULT)]
    assert [row for row in sorted(rows(lake), key=lambda row: row[0]) if row[0] in (1, 39, 99)] == wanted
    if version == "1.0":
        with attached(lake_address) as duck:
            assert duck.rows("FROM t WHERE k IN (1, 39, 99) ORDER BY k") == wanted
            assert duck.value("SELECT count(*) FROM t") == 40


@pytest.mark.parametrize("seed", [1, 2, 3, *(slow(seed) for seed in range(4, 60))])
def test_random_partial_frames_against_a_model(lake: DuckLake, sqlite_address: LakeAddress, seed: int) -> None:
    """Each write either follows the rule, or raises and changes nothing; DuckDB reads the same rows in the end."""
    random, model = Random(seed), list[Row]()
    lake.set_option("data_inlining_row_limit", random.choice([0, 3, 10]))
    for _ in range(10):
        columns = ["k", *(name for name in "abc" if random.random() < 0.6)]
        keys = random.sample(range(12), random.choice([0, 1, 3, 6]))
        data = [{name: _value(random, name, key) for name in columns} for key in keys]
        table = pa.Table.from_pylist(data, schema=pa.schema([(name, _TYPES[name]) for name in columns]))
        how: Any = {"schema_evolution": random.choice(["strict", "additive"]), "missing_columns": random.choice([None, "null", "error"])}
        mode, before = random.choice(["append", "overwrite", "upsert"]), lake.snapshot().id
        lacking = [name for name in "ab" if name not in columns]
        rejects = how["missing_columns"] == "error" or (how["missing_columns"] is None and how["schema_evolution"] == "strict")
        more: Any = {"upsert": {"on": ["k"]}, "overwrite": {"where": "k >= 0"}}.get(mode, {})
        if lacking and rejects and data:
            with pytest.raises(SchemaError, match="lacks"):
                lake.write("t", table, mode=mode, **how, **more)  # type: ignore[call-overload]
            assert lake.snapshot().id == before
        else:
            lake.write("t", table, mode=mode, **how, **more)
            model = _after(model, data, mode, columns)
        assert rows_by_name(lake) == _sorted(model)
    with attached(sqlite_address) as duck:
        found = duck.connection.execute("SELECT k, a, b, c FROM t").fetchall()
    assert sorted(map(repr, found)) == sorted(repr(tuple(row[name] for name in COLUMNS)) for row in model)


_TYPES = {"k": pa.int64(), "a": pa.string(), "b": pa.float64(), "c": pa.int32()}


def _value(random: Random, name: str, key: int) -> Any:
    if name == "k":
        return key
    return random.choice([None, {"a": f"t{random.randrange(9)}", "b": random.randrange(9) / 2, "c": random.randrange(9)}[name]])


def _after(model: Sequence[Row], data: Sequence[Row], mode: str, columns: Sequence[str]) -> list[Row]:
    new = [{"k": None, "a": None, "b": None, "c": DEFAULT, **row} for row in data]
    if mode == "append":
        return [*model, *new]
    if mode == "overwrite":
        return new
    given = {row["k"]: row for row in data}
    if set(columns) == set(COLUMNS):
        return [*(row for row in model if row["k"] not in given), *new]
    known = {row["k"] for row in model}
    return [*({**row, **given.get(row["k"], {})} for row in model), *(row for row in new if row["k"] not in known)]


def _sorted(found: Sequence[Row]) -> list[str]:
    return sorted(repr(tuple(row[name] for name in COLUMNS)) for row in found)


def rows_by_name(lake: DuckLake) -> list[str]:
    return _sorted(lake.table("t").scan().to_arrow().to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize("inlined", [True, False])
def test_of_spark(lake: DuckLake, spark: SparkSession, inlined: bool) -> None:
    table = lake.table("t")
    table.append([{"k": 1, "a": "x", "b": 1.0, "c": 1}, {"k": 2, "a": "y", "b": 2.0, "c": 2}], inline=inlined)
    part = spark.createDataFrame([(1, "new"), (3, "z")], "k int, A string")
    with pytest.raises(SchemaError, match=r"lacks column 'b' of main\.t"):
        table.append(part)
    with pytest.raises(SchemaError, match=r"lacks column 'b' of main\.t"):
        table.upsert(part, on="k")
    done = table.upsert(part, on="k", missing_columns="null")
    assert (done.rows_updated, done.rows_added, done.rows_deleted) == (1, 1, 0)
    assert rows(lake) == [(1, "new", 1.0, 1), (2, "y", 2.0, 2), (3, "z", None, DEFAULT)]
    with pytest.raises(UsageError, match=r"key \(k = 1\) occurs more than once"):
        table.upsert(spark.createDataFrame([(1,), (1,)], "k int"), on="k", missing_columns="null")
    table.upsert(spark.createDataFrame([(2, "n")], "k int, new string"), on="k", schema_evolution="additive")
    assert rows(lake)[1] == (2, "y", 2.0, 2, "n")
    names = {file.path for file in lake.table("t").list_files()} | {d.path for f in lake.table("t").list_files() for d in f.delete_files}
    kept = {file.path for file in lake.storage.list(lake.table("t").state.path)}
    assert names <= kept
    assert len(kept - names) <= 2, "only files that ended are left"
