"""Inlined rows of ducklake_core: DuckDB reads, extends and flushes them, and its own metadata would be the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sqlalchemy import String, cast, inspect, select

from ducklake_core import DuckLake
from ducklake_core.catalog.inlined.cells import stored_array
from ducklake_core.commit.actions import InsertInlined
from ducklake_core.commit.committer import Committer
from ducklake_core.commit.request import CommitRequest
from ducklake_core.errors import NotFoundError, SchemaError, UsageError
from ducklake_core.format.files.inlined_rows import inlined_rows_of
from ducklake_core.format.types.data_types import INT32, JSON, TIME_NS, Field, ListType, MapType, StructType
from ducklake_core.format.types.schema import Schema, with_ids
from ducklake_core.format.values.leaf_values import from_cast_text
from tests.behaviour.types.samples import TYPES, constant, rows_of, strings_of, table_strings
from tests.support.catalog_dump import dump_catalog, plain_inlined_name
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import new_address, on_all_catalogs


@pytest.fixture
def by_duckdb(lake_address: LakeAddress, tmp_path: Path, request: pytest.FixtureRequest) -> LakeAddress:
    """A place for a lake of DuckDB, on the same kind of database."""
    folder = tmp_path / "duckdb"
    folder.mkdir()
    return new_address(request, lake_address.backend, folder)


def numbers(*values: int | None) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int32())})


def stored_rows(lake: DuckLake) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of the tables of inlined rows, as the driver returns them."""
    tables = lake.database.tables
    found = {}
    with lake.database.read() as connection:
        for name in sorted(n for n in inspect(connection).get_table_names() if n.startswith("ducklake_inlined_data_1_")):
            columns = [column["name"] for column in inspect(connection).get_columns(name)]
            table = tables.inlined_data(name, columns[3:])
            # Python has no 24:00:00.
            as_string = [cast(column, String) if lake.settings().catalog_type == "postgresql" else column for column in table.c]
            found[plain_inlined_name(name)] = [tuple(row) for row in connection.execute(select(*as_string).order_by(table.c.row_id))]
    return found


PLAIN = {
    "n": ("INTEGER", ["1", "-5", "NULL"]),
    "s": ("VARCHAR", ["'it''s'", "''", "NULL"]),
    "f": ("DOUBLE", ["'nan'", "1.5", "'-inf'"]),
    "r": ("FLOAT", ["0.1", "NULL", "3"]),
    "b": ("BOOLEAN", ["true", "NULL", "false"]),
    "d": ("DECIMAL(10, 2)", ["-1.5", "0", "NULL"]),
    "day": ("DATE", ["'infinity'", "'0044-03-15 (BC)'", "'2024-02-29'"]),
    "tz": ("TIMESTAMPTZ", ["'1969-12-31 23:59:59.5+00'", "'infinity'", "NULL"]),
    "u": ("UUID", ["'550e8400-e29b-41d4-a716-446655440000'", "NULL", "NULL"]),
    "x": ("BLOB", ["'\\x00\\xFFab'::BLOB", "''::BLOB", "NULL"]),
    "l": ("VARCHAR[]", ["['a', 'x,y', NULL, '', 'it''s']", "[]", "NULL"]),
    "m": ("MAP(VARCHAR, INTEGER)", ["MAP {'k': 1, 'c=d': NULL}", "MAP {}", "NULL"]),
    "st": (
        "STRUCT(i INTEGER, t VARCHAR, d DECIMAL(9, 2), l INTEGER[])",
        ["{'i': 1, 't': 'x y', 'd': 1.5, 'l': [1, NULL]}", "NULL", "NULL"],
    ),
    "big": ("UBIGINT", ["18446744073709551615", "NULL", "0"]),
    "j": ("JSON", ["'{\"a\": [1]}'", "NULL", "'[]'"]),
    "clock": ("TIME", ["'24:00:00'", "NULL", "'00:00:00.5'"]),
}


@on_all_catalogs
def test_metadata_and_cells_equal_those_of_duckdb(lake: DuckLake, lake_address: LakeAddress, by_duckdb: LakeAddress) -> None:
    """Bounds, row ids, counters, names of tables, and every cell, batch after batch, with a file in between."""
    columns = ", ".join(f"{name} {sql}" for name, (sql, _) in PLAIN.items())
    rows = ["(" + ", ".join(values[i] for _, values in PLAIN.values()) + ")" for i in range(3)]
    with attached(by_duckdb) as duck:
        duck.run(f"CREATE TABLE t ({columns})")
        batches = [[0], [1, 2], [0, 1, 2] * 5, [2]]
        for batch in batches:
            duck.run(f"INSERT INTO t VALUES {', '.join(rows[i] for i in batch)}")
    source = DuckLake.connect(by_duckdb.url)
    content = source.table("t").scan(columns=[*PLAIN, "rowid"]).to_arrow().sort_by("rowid").drop_columns("rowid")
    lake.create_table("t", source.table("t").schema)
    start = 0
    for batch in batches:
        result = lake.table("t").append(content.slice(start, len(batch)))
        assert (result.rows_inlined, result.files_added) == ((0, 1) if len(batch) > 10 else (len(batch), 0))
        start += len(batch)
    # NaN equals nothing, its text does.
    assert str(stored_rows(lake)) == str(stored_rows(source))
    lake.close()
    source.close()
    expected = dump_catalog(by_duckdb)
    found = dump_catalog(lake_address, expected)
    # Statistics of the file are not the subject here.
    for name in expected.keys() - {"file_column_stats"}:
        assert found[name] == expected[name], name
    assert set(found) == set(expected)


@on_all_catalogs
def test_duckdb_reads_every_type(lake: DuckLake, lake_address: LakeAddress) -> None:
    """Every type as a column, in a list, as values of a map, and in structs; judged by what a bare DuckDB makes of the same constants."""
    types = tuple(t for t in TYPES if t != TIME_NS or lake_address.backend != "postgresql")
    columns: list[tuple[Field, str, list[str], list[object]]] = []
    for i, kind in enumerate(types):
        sql, strings = TYPES[kind], strings_of(kind, in_file=False)
        held = [from_cast_text(text, kind) for text in strings]
        constants = [constant(text, sql) for text in strings]
        leaf, pair = Field(name="x", type=kind), Field(name="key", type=INT32)
        inner = Field(name="y", type=StructType(fields=(Field(name="z", type=kind),)))
        columns.append((Field(name=f"c{i}", type=kind), sql, constants, held))
        in_map = ", ".join(f"{n}: {text}" for n, text in enumerate(constants))
        map_type, struct_type = MapType(key=pair, value=Field(name="value", type=kind)), StructType(fields=(leaf, inner))
        columns.append((Field(name=f"m{i}", type=map_type), f"MAP(INT, {sql})", [f"MAP {{{in_map}}}", "MAP {}"], [[*enumerate(held)], []]))
        columns.append(
            (
                Field(name=f"s{i}", type=struct_type),
                f"STRUCT(x {sql}, y STRUCT(z {sql}))",
                [f"{{'x': {text}, 'y': {{'z': {text}}}}}" for text in constants],
                [{"x": value, "y": {"z": value}} for value in held],
            )
        )
        if kind != JSON:
            lists = [f"[{', '.join(constants)}, NULL]", "[]"]
            columns.append(
                (Field(name=f"l{i}", type=ListType(element=Field(name="element", type=kind))), f"{sql}[]", lists, [[*held, None], []])
            )
    count = 1 + max(len(values) for _, _, _, values in columns)
    schema = with_ids(Schema(columns=tuple(field for field, _, _, _ in columns)))
    held_values = [[*values, *[None] * (count - len(values))] for _, _, _, values in columns]
    arrays = [stored_array(values, field, field) for field, values in zip(schema, held_values, strict=True)]
    rows = pa.Table.from_arrays(arrays, names=list(schema.names))
    bare = duckdb.connect()
    bare.execute("SET TimeZone = 'UTC'")
    bare.execute(f"CREATE TABLE t ({', '.join(f'{field.name} {sql}' for field, sql, _, _ in columns)})")
    bare.execute(f"INSERT INTO t VALUES {rows_of([constants for _, _, constants, _ in columns])}")
    as_string = ", ".join(f"CAST({field.name} AS VARCHAR)" for field, _, _, _ in columns)
    wanted = bare.execute(f"SELECT {as_string} FROM t ORDER BY rowid").fetchall()
    bare.close()

    lake.create_table("t", schema)
    with lake.reader() as reader:
        base = reader.latest_snapshot()
        state = reader.table("main", "t", base.id)
    # Not by append(), which takes no Arrow type for integers of 128 bits.
    insert = InsertInlined(table_id=state.id, schema=schema, rows=inlined_rows_of(rows, schema), inlined_table=state.inlined_tables[-1])
    Committer(lake.database).commit(CommitRequest(base=base, actions=(insert,), commit_id="c"))
    assert table_strings(lake.table("t").scan().to_arrow(), schema) == table_strings(rows, schema)
    with attached(lake_address) as duck:
        found = duck.rows(f"SELECT {as_string} FROM t ORDER BY rowid")
    for position, (field, sql, _, _) in enumerate(columns):
        # Of times with an offset the instant is kept, in UTC.
        if "TIMETZ" not in sql and "TIME WITH" not in sql:
            assert [row[position] for row in found] == [row[position] for row in wanted], (field.name, sql)


def test_duckdb_flushes_inlined_rows(lake: DuckLake, lake_address: LakeAddress) -> None:
    rows = pa.table(
        {"a": pa.array([1, None, 3], pa.int32()), "s": [{"x": "it's", "y": [1, None]}, None, {"x": None, "y": []}], "v": ["x", "\0", ""]}
    )
    lake.write("t", rows)
    lake.table("t").append(rows.slice(0, 1))
    lake.table("t").delete("a = 3")
    before = lake.table("t").scan().to_arrow()
    with attached(lake_address) as duck:
        duck.run("CALL ducklake_flush_inlined_data('lake')")
        assert len(duck.rows("FROM ducklake_list_files('lake', 't')")) == 1
        assert duck.rows("SELECT rowid, a, s.x FROM t ORDER BY rowid") == [(0, 1, "it's"), (1, None, None), (3, 1, "it's")]
        assert duck.rows("SELECT count(*) FROM t AT (VERSION => 2)") == [(4,)]
    assert lake.table("t").scan().to_arrow().equals(before)
    assert lake.table("t").append(rows.slice(1, 1)).rows_inlined == 1
    with attached(lake_address) as duck:
        assert duck.rows("SELECT max(rowid), count(*) FROM t") == [(4, 4)]


def test_tables_of_inlined_rows_are_made_when_they_are_needed(lake: DuckLake, lake_address: LakeAddress) -> None:
    """Also when columns changed while inlining was off: there DuckDB inserts into the old columns, and fails."""
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("t", numbers(1).schema)
    lake.set_option("data_inlining_row_limit", 10)
    made = lake.table("t").append(numbers(1))
    assert (made.snapshot.schema_version, made.snapshot.changes) == (2, "inlined_insert:1")
    assert lake.table("t").append(numbers(2)).snapshot.schema_version == 2
    lake.set_option("data_inlining_row_limit", 0)
    wider = pa.table({"a": pa.array(range(20), pa.int32()), "b": ["x"] * 20})
    lake.write("t", wider, schema_evolution="additive")
    lake.set_option("data_inlining_row_limit", 10)
    assert lake.table("t").append(wider.slice(0, 1)).snapshot.schema_version == 4
    assert list(stored_rows(lake)) == ["ducklake_inlined_data_1_2", "ducklake_inlined_data_1_4"]
    with attached(lake_address) as duck:
        duck.run("INSERT INTO t VALUES (7, 'duckdb')")
        assert duck.rows("SELECT rowid, a, b FROM t WHERE rowid NOT BETWEEN 2 AND 21 ORDER BY rowid") == [
            (0, 1, None), (1, 2, None), (22, 0, "x"), (23, 7, "duckdb"),
        ]  # fmt: skip


def test_changes_of_duckdb_between_base_and_commit(lake: DuckLake, lake_address: LakeAddress) -> None:
    """A new table of inlined rows, made by a rename, receives the rows; the one known from the base may have been flushed."""
    lake.write("t", numbers(1))
    with attached(lake_address) as duck, lake.transaction() as tx:
        tx.append("t", numbers(2))
        duck.run("ALTER TABLE t RENAME TO u", "CALL ducklake_flush_inlined_data('lake')")
    assert tx.result.snapshot is not None
    assert tx.result.snapshot.changes == "inlined_insert:1"
    with attached(lake_address) as duck:
        assert duck.rows("SELECT rowid, a FROM u ORDER BY rowid") == [(0, 1), (1, 2)]
    lake.set_option("data_inlining_row_limit", 0)
    lake.create_table("late", numbers(1).schema)
    lake.set_option("data_inlining_row_limit", 10)
    with attached(lake_address) as duck, lake.transaction() as tx:
        tx.append("late", numbers(1))
        duck.run("INSERT INTO late VALUES (2)")
    with attached(lake_address) as duck:
        assert duck.rows("SELECT a FROM late ORDER BY rowid") == [(2,), (1,)]


def test_one_transaction_with_files_rows_and_definitions(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.create_table("t", numbers(1).schema)
    with lake.transaction() as tx:
        tx.append("t", numbers(1, 2))
        tx.append("t", pa.table({"a": pa.array(range(100, 120), pa.int32())}))
        tx.append("t", numbers(3))
        tx.write("new", pa.table({"b": ["x"]}))
        tx.create_table("empty", numbers(1).schema)
    assert tx.result.snapshot is not None
    assert tx.result.snapshot.changes == (
        'created_table:"main"."empty",created_table:"main"."new",inserted_into_table:1,inlined_insert:1,inlined_insert:2'
    )
    assert [(write.rows_added, write.rows_inlined, write.files_added) for write in tx.result.writes] == [(23, 3, 1), (1, 1, 0)]
    with attached(lake_address) as duck:
        assert duck.rows("SELECT rowid, a FROM t WHERE a < 100 ORDER BY rowid") == [(20, 1), (21, 2), (22, 3)]
        assert duck.rows("FROM new") == [("x",)]
    with pytest.raises(NotFoundError), lake.transaction() as tx:  # noqa: PT012
        tx.append("t", numbers(9))
        tx.append("missing", numbers(9))
    assert lake.table("t").info().row_count == 23


def test_writes_within_the_limits_are_inlined(small: DuckLake) -> None:
    def stream(*lengths: int) -> pa.RecordBatchReader:
        schema = numbers(1).schema
        return pa.RecordBatchReader.from_batches(schema, (numbers(*range(n)).to_batches()[0] for n in lengths))

    small.create_table("t", numbers(1).schema)
    small.create_table("off", numbers(1).schema)
    small.set_option("data_inlining_row_limit", 3)
    small.set_option("data_inlining_row_limit", 0, table="off")
    table = small.table("t")
    assert table.append(numbers(1, 2, 3)).rows_inlined == 3
    assert table.append(numbers(1, 2, 3, 4)).rows_inlined == 0
    assert table.append(numbers(1).to_batches()[0]).rows_inlined == 1
    assert table.append(stream(2, 1)).rows_inlined == 3
    long = table.append(stream(2, 1, 1, 50))
    assert (long.rows_added, long.rows_inlined) == (54, 0)
    assert not table.append(numbers()).committed
    assert not table.append(stream()).committed
    assert small.table("off").append(numbers(1)).files_added == 1
    assert small.table("t").info().row_count == 3 + 4 + 1 + 3 + 54
    reserved = pa.table({"Row_ID": [1]})
    assert small.write("reserved", reserved).files_added == 1
    wide = pa.table({f"c{n}": pa.array([n], pa.int32()) for n in range(1700)})
    assert small.write("wide", wide).files_added == 1
    heavy = pa.table({"b": pa.array([b"x" * (17 * 2**20)])})
    assert small.write("heavy", heavy).files_added == 1


@on_all_catalogs
def test_values_that_belong_into_files(lake: DuckLake, lake_address: LakeAddress) -> None:
    """Values that DuckDB's parser would truncate or reject."""
    values: dict[str, pa.Array[Any]] = {
        "brackets": pa.array([[["]"]]]),
        "braces": pa.array([[{"x": "}"}]]),
        "nul": pa.array([["a\0b"]]),
        "names": pa.array([[{"x}": 1}]]),
        "json": pa.ListArray.from_arrays([0, 1], pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": [1, 2]}']))),
    }
    for name, array in values.items():
        assert lake.write(name, pa.table({"c": array})).files_added == 1, name
    assert lake.write("fine", pa.table({"c": pa.array([["]}"], ["it's", "\\", None]])})).rows_inlined == 2
    with attached(lake_address) as duck:
        assert duck.rows("FROM brackets") == [([["]"]],)]
        assert duck.rows("FROM fine") == [(["]}"],), (["it's", "\\", None],)]


@on_all_catalogs
def test_words_of_the_database_as_names(lake: DuckLake, lake_address: LakeAddress) -> None:
    names = ["nothing", "returning", "select", "Over", "window", "end"]
    lake.write("words", pa.table({name: [number] for number, name in enumerate(names)}))
    lake.table("words").update({"nothing": "7"})
    assert lake.table("words").scan().to_arrow().to_pylist() == [dict(zip(names, [7, 1, 2, 3, 4, 5], strict=True))]
    with attached(lake_address) as duck:
        assert duck.rows("FROM words") == [(7, 1, 2, 3, 4, 5)]


def test_inlined_writes_are_validated_like_files(small: DuckLake) -> None:
    small.write("t", numbers(1))
    with pytest.raises(SchemaError, match="column 'a'"):
        small.table("t").append(pa.table({"a": pa.array([2**40])}))
    with pytest.raises(SchemaError, match="NOT NULL"):
        small.create_table("n", pa.schema([pa.field("a", pa.int32(), nullable=False)])).append(numbers(None))
    with pytest.raises(UsageError, match="does not satisfy the condition of the overwrite"):
        small.table("t").overwrite(numbers(1, 7), where="a = 1")
    with pytest.raises(SchemaError, match="nanoseconds"):
        small.write("i", pa.table({"i": pa.array([pa.MonthDayNano([1, 2, 3])])}))
    assert small.table("t").scan().to_arrow()["a"].to_pylist() == [1]


def test_rows_after_a_new_default_keep_their_values(small: DuckLake, sqlite_address: LakeAddress) -> None:
    small.write("t", pa.table({"k": [1]}))
    small.table("t").add_column("z", "int32", default=3)
    small.table("t").set_default("z", 4)
    small.table("t").append(pa.table({"k": [2]}))
    small.table("t").drop_default("z")
    with attached(sqlite_address) as duck:
        assert duck.rows("FROM t ORDER BY k") == [(1, 3), (2, 4)]
    assert small.table("t").to_arrow().column("z").to_pylist() == [3, 4]
