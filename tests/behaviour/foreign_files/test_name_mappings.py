"""Files added with ducklake_add_data_files: found by name at every level, through renames, drops and additions."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from ducklake_core import DuckLake
from ducklake_core.errors import CatalogCorruptError, CorruptFileError, SchemaError, UnsupportedFeatureError
from ducklake_core.planning.planner import plan_scan
from tests.behaviour.foreign_files.added import add, change, check, check_everywhere, put
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.scans import assert_same_rows, open_lake
from tests.support.statements import noted_statements

FILES = "DATA_INLINING_ROW_LIMIT 0"

INNER = pa.struct([("X", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
NESTED = pa.table(
    {
        "A": pa.array([1, 2], pa.int32()),
        "s": pa.array([{"X": 1, "y": {"z": "q"}}, {"X": 2, "y": None}], INNER),
        "l": pa.array([[{"p": 1}], [None, {"p": 3}]], pa.list_(pa.struct([("p", pa.int32())]))),
        "m": pa.array([[("k", {"v": 1})], []], pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
        "ll": pa.array([[[1]], [[2, 3], None]], pa.list_(pa.list_(pa.int32()))),
    }
)
NESTED_COLUMNS = """a INTEGER, s STRUCT(x INTEGER, y STRUCT(z VARCHAR)), l STRUCT(p INTEGER)[], m MAP(VARCHAR, STRUCT(v INTEGER)),
    ll INTEGER[][]"""
REBUILT = NESTED.select(["ll", "m", "l", "s", "A"]).append_column("new", pa.array(["n", None]))


def make_nested(duck: Oracle, folder: Path) -> None:
    """A table whose files were added with different mappings, between changes of its columns and writes of its own."""
    duck.run(f"CREATE TABLE t ({NESTED_COLUMNS})")
    add(duck, "t", put(folder / "first.parquet", NESTED))
    duck.run(
        "INSERT INTO t VALUES (5, {'x': 5, 'y': NULL}, NULL, NULL, NULL)",
        "ALTER TABLE t RENAME COLUMN s.x TO renamed",
        "ALTER TABLE t ADD COLUMN s.n INTEGER DEFAULT 5",
        "ALTER TABLE t RENAME COLUMN a TO aa",
        "ALTER TABLE t ADD COLUMN m.value.w INTEGER",
        "ALTER TABLE t DROP COLUMN s.y",
        "ALTER TABLE t ADD COLUMN new VARCHAR DEFAULT 'older'",
    )
    second = REBUILT.drop_columns(["s", "m", "A"]).append_column("AA", pa.array([7, 8], pa.int16()))
    add(duck, "t", put(folder / "second.parquet", second), "allow_missing => true, ignore_extra_columns => true")
    duck.run(
        "DELETE FROM t WHERE aa IN (2, 8)",
        "ALTER TABLE t DROP COLUMN l",
        "ALTER TABLE t ADD COLUMN l INTEGER DEFAULT 7",
        "ALTER TABLE t ALTER aa TYPE BIGINT",
        "ALTER TABLE t RENAME TO u",
        "UPDATE u SET new = 'updated' WHERE aa = 1",
        "ALTER TABLE u RENAME TO t",
    )


def test_nested_columns_at_every_snapshot(lake_address: LakeAddress, tmp_path: Path) -> None:
    with attached(lake_address, FILES) as duck:
        make_nested(duck, tmp_path / "elsewhere")
    with attached(lake_address) as duck:
        lake = open_lake(lake_address)
        for version in lake.snapshots():
            name = duck.rows(
                "SELECT table_name FROM __ducklake_metadata_lake.ducklake_table "
                f"WHERE begin_snapshot <= {version} AND (end_snapshot IS NULL OR end_snapshot > {version})"
            )
            if name:
                check(duck, lake, str(name[0][0]), version)


def test_on_spark(lake_address: LakeAddress, tmp_path: Path, spark: SparkSession) -> None:
    with attached(lake_address, FILES) as duck:
        make_nested(duck, tmp_path / "elsewhere")
        duck.run("CREATE TABLE h (a INTEGER, year INTEGER, g VARCHAR)")
        for rel in ("year=2020/g=a%20b/f.parquet", "year=__HIVE_DEFAULT_PARTITION__/g=/f.parquet"):
            add(duck, "h", put(tmp_path / "hive" / rel, pa.table({"a": pa.array([1, 2], pa.int32())})))
    with attached(lake_address) as duck:
        lake = open_lake(lake_address)
        for name, version in (("t", None), ("t", 4), ("h", None)):
            plan = lake.scan(name, version).plan().plan
            obstacles = {task.native_obstacle for task in plan.tasks if task.file.mapping_id is not None and not task.file.delete_files}
            assert obstacles <= {"the file's columns are found by name"}
            assert not any(task.native for task in plan.tasks if task.file.mapping_id is not None)
            source = name if version is None else f"{name} AT (VERSION => {version})"
            assert_same_rows(duck, lake.scan(name, version).to_spark(spark).toArrow(), f"SELECT * FROM {source}")


HIVE_VALUES = {
    "VARCHAR": [
        "a%20b",
        "",
        "__HIVE_DEFAULT_PARTITION__",
        "null",
        "%4E%55%4C%4C",
        "a+b",
        "%zz",
        "a%2Fb",
        "ä b#c",
        "__hive_default_partition__",
    ],
    "INTEGER": ["2020", "", "NULL", "007", " 5", "+5", "1e2", "1_0", "1.5", "2.5", "-1.5", "0x10"],
    "DATE": ["2020-01-02", "2020-1-2", "__HIVE_DEFAULT_PARTITION__"],
    "TIMESTAMP": ["2020-01-02", "2020-01-02%2003%3A04%3A05", "2020-01-02T03%3A04%3A05", "2020-01-02 03:04:05.5"],
    "TIMESTAMPTZ": ["2020-01-02 03:04:05+02"],
    "BOOLEAN": ["true", "T", "1", "FALSE", "yes", "no"],
    "DOUBLE": ["1.5", "1e3", "nan", "-inf"],
    "DECIMAL(5,2)": ["1.5", "1.555", "-1.555", "7"],
    "BLOB": ["ab", "%5Cx41"],
    "UUID": ["b8888f6d-9c7f-4026-b8e2-722c695e2053"],
}


def test_values_in_paths(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    data = pa.table({"a": pa.array([1, 2], pa.int32())})
    names = {data_type: f"t{number}" for number, data_type in enumerate(HIVE_VALUES)}
    with attached(sqlite_address, FILES) as duck:
        for data_type, values in HIVE_VALUES.items():
            duck.run(f"CREATE TABLE {names[data_type]} (g {data_type}, a INTEGER)")
            for number, value in enumerate(values):
                add(duck, names[data_type], put(tmp_path / names[data_type] / str(number) / f"g={value}" / "f.parquet", data))
    with attached(sqlite_address) as duck:
        lake = open_lake(sqlite_address)
        for name in names.values():
            check(duck, lake, name)


def test_paths_with_partitions(lake_address: LakeAddress, tmp_path: Path) -> None:
    one = pa.table({"a": pa.array([1], pa.int32())})
    with attached(lake_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER, g VARCHAR, k INTEGER DEFAULT 3)")
        held = one.append_column("g", pa.array(["in the file"])).append_column("k", pa.array([9], pa.int32()))
        add(duck, "t", put(tmp_path / "1" / "g=first" / "g=second" / "f.parquet", one), "allow_missing => true")
        add(duck, "t", put(tmp_path / "2" / "g=path" / "f.parquet", held))
        add(duck, "t", put(tmp_path / "3" / "g=path" / "below" / "f.parquet", held), "hive_partitioning => false")
        add(duck, "t", put(tmp_path / "4" / "g=path" / "k=5" / "x=1" / "f.parquet", held), "ignore_extra_columns => true")
        duck.run("ALTER TABLE t SET PARTITIONED BY (g)")
        add(duck, "t", put(tmp_path / "5" / "g=o'clock" / "f.parquet", one), "allow_missing => true")
        duck.run(
            "ALTER TABLE t RENAME COLUMN g TO renamed",
            "ALTER TABLE t ALTER k TYPE BIGINT",
            "DELETE FROM t WHERE renamed = 'path' AND k = 5",
        )
        duck.run("ALTER TABLE t ADD COLUMN g INTEGER", "INSERT INTO t VALUES (8, 'own', 8, 8)")
    with attached(lake_address) as duck:
        lake = open_lake(lake_address)
        check_everywhere(duck, lake)
        for where in ("renamed = 'path'", "renamed > 'o'", "k = 3", "k IS NULL", "g IS NULL AND a = 1", "renamed LIKE 'f%'"):
            assert_same_rows(duck, lake.scan("t", where=where).to_arrow(), f"SELECT * FROM t WHERE {where}")


def test_one_statement_for_all_mappings(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER, b INTEGER)")
        for number in range(6):
            data = pa.table({"a": pa.array([number], pa.int32())})
            data = data.append_column("B" if number % 2 else "b", pa.array([number], pa.int32()))
            add(duck, "t", put(tmp_path / f"{number}.parquet", data))
    lake = open_lake(sqlite_address)
    with noted_statements() as statements, lake.reader() as reader:
        state = reader.table("main", "t", reader.latest_snapshot().id)
        plan = plan_scan(reader, state)
    assert sum("name_mapping" in statement for statement in statements) == 1
    assert len(plan.mappings) == len({task.file.mapping_id for task in plan.tasks}) < 6
    # They travel once, not with each file.
    assert len(pickle.dumps(plan.shape)) < 3000


@pytest.mark.parametrize(
    ("statement", "error", "text"),
    [
        ("DELETE FROM ducklake_column_mapping", CatalogCorruptError, "main.t"),
        ("UPDATE ducklake_column_mapping SET type = 'map_by_magic'", UnsupportedFeatureError, "map_by_magic"),
        ("UPDATE ducklake_name_mapping SET is_partition = 1", CorruptFileError, "a=..."),
    ],
)
def test_broken_mappings_are_named(sqlite_address: LakeAddress, tmp_path: Path, statement: str, error: type[Exception], text: str) -> None:
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER)")
        add(duck, "t", put(tmp_path / "f.parquet", pa.table({"a": pa.array([1], pa.int32())})))
    change(sqlite_address, statement)
    with pytest.raises(error, match=text):
        open_lake(sqlite_address).scan("t").to_arrow()


def test_rows_of_added_files_are_changed_and_upserted(lake_address: LakeAddress, tmp_path: Path) -> None:
    data = pa.table({"B": pa.array(["x", "y", "z"]), "a": pa.array([1, 2, 3], pa.int32())})
    with attached(lake_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER, b VARCHAR, g INTEGER)")
        add(duck, "t", put(tmp_path / "g=4" / "f.parquet", data))
        add(duck, "t", put(tmp_path / "g=5" / "f.parquet", data))
    lake = DuckLake.connect(lake_address.url)
    new = pa.table({"a": pa.array([2], pa.int32()), "b": ["new"], "g": pa.array([5], pa.int32())})
    lake.write("t", new, mode="upsert", on=["a", "g"])
    lake.write("t", new, mode="overwrite", where="g = 5 AND a = 2")
    lake.write("t", new.slice(0, 0), mode="overwrite", where="b = 'z'")
    lake.close()
    with attached(lake_address) as duck:
        assert duck.rows("SELECT a, b, g FROM t ORDER BY g, a") == [(1, "x", 4), (2, "y", 4), (1, "x", 5), (2, "new", 5)]
        check_everywhere(duck, open_lake(lake_address))


def test_a_value_that_does_not_fit_names_table_file_and_column(sqlite_address: LakeAddress, tmp_path: Path) -> None:
    with attached(sqlite_address, FILES) as duck:
        duck.run("CREATE TABLE t (a INTEGER)")
        add(duck, "t", put(tmp_path / "odd.parquet", pa.table({"a": pa.array([1], pa.int32())})))
    # Another client puts another file in its place.
    put(tmp_path / "odd.parquet", pa.table({"a": ["x"]}))
    with pytest.raises(SchemaError) as caught:
        open_lake(sqlite_address).scan("t").to_arrow()
    assert all(part in str(caught.value) for part in ("odd.parquet", "main.t", "'a'"))
