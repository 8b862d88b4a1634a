"""Files that somebody else wrote become part of a table: the same catalog rows as the reference's for the same call, and the same rows."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CorruptFileError,
    DuckLakeError,
    NotFoundError,
    SchemaError,
    UnsupportedFeatureError,
    UsageError,
)
from tests.foreign.added import add, check_everywhere, numbered, put
from tests.support.catalog_dump import dump_catalog
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.scans import assert_same_rows, open_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = pa.table({"a": pa.array([1, 2, None], pa.int32()), "b": ["x", None, "z"]})
NESTED = pa.table(
    {
        "A": pa.array([1, 2], pa.int32()),
        "s": pa.array(
            [{"X": 1, "y": {"z": "q"}}, {"X": 2, "y": None}], pa.struct([("X", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
        ),
        "l": pa.array([[{"p": 1}], [None, {"p": 3}]], pa.list_(pa.struct([("p", pa.int32())]))),
        "m": pa.array([[("k", {"v": 1})], []], pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
        "ll": pa.array([[[1]], [[2, 3], None]], pa.list_(pa.list_(pa.int32()))),
    }
)
NESTED_COLUMNS = (
    "a INTEGER, s STRUCT(x INTEGER, y STRUCT(z VARCHAR)), l STRUCT(p INTEGER)[], m MAP(VARCHAR, STRUCT(v INTEGER)), ll INTEGER[][]"
)
TYPES = pa.table(
    {
        "i": pa.array([5, -3], pa.int16()),
        "u": pa.array([5, 250], pa.uint8()),
        "big": pa.array([2**32 - 1, 0], pa.uint32()),
        "f": pa.array([0.1, -2.5], pa.float32()),
        "dec": pa.array([Decimal("1.25"), Decimal("-3.50")], pa.decimal128(5, 2)),
        "ts": pa.array([1500, -1500], pa.timestamp("ms")),
        "tz": pa.array([1500, -1500], pa.timestamp("us", "UTC")),
        "d": pa.array([dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
        "t": pa.array([1, 86_399_999_999], pa.time64("us")),
        "o": pa.array([True, False]),
        "blob": pa.array([b"\x00a", b"\xff"]),
        "long": ["a" * 400, "b" * 400],
    }
)
TYPE_COLUMNS = """i INTEGER, u INTEGER, big BIGINT, f DOUBLE, dec DECIMAL(10,4), ts TIMESTAMP, tz TIMESTAMPTZ, d DATE, t TIME, o BOOLEAN,
    blob BLOB, long VARCHAR"""
G4 = A.append_column("g", pa.array([4, 4, 4], pa.int32()))


class Case:
    """Files, a table, and calls; each call is the paths and the options of the reference's function, which are ours too."""

    def __init__(self, ddl: str | tuple[str, ...], files: dict[str, pa.Table], *calls: tuple[str | list[str], dict[str, Any]]) -> None:
        self.ddl = (ddl,) if isinstance(ddl, str) else ddl
        self.files = files
        self.calls = calls


AB = "CREATE TABLE t (a INTEGER, b VARCHAR)"
ABG = "CREATE TABLE t (a INTEGER, b VARCHAR, g INTEGER)"
CASES = {
    "twice": Case(AB, {"f.parquet": A, "g.parquet": A}, ("f.parquet", {}), ("g.parquet", {})),
    "a pattern and other names": Case(AB, {"x/f.parquet": A, "x/g.parquet": A.rename_columns(["A", "b"])}, ("x/*.parquet", {})),
    "a list": Case(AB, {"g.parquet": A, "f.parquet": A}, (["g.parquet", "f.parquet"], {})),
    "other order of columns": Case(AB, {"f.parquet": A.select(["b", "a"])}, ("f.parquet", {})),
    "nested": Case(f"CREATE TABLE t ({NESTED_COLUMNS})", {"f.parquet": NESTED}, ("f.parquet", {})),
    "types": Case(f"CREATE TABLE t ({TYPE_COLUMNS})", {"f.parquet": TYPES}, ("f.parquet", {})),
    "extra": Case("CREATE TABLE t (s STRUCT(x INTEGER))", {"f.parquet": NESTED}, ("f.parquet", {"ignore_extra_columns": True})),
    "path": Case(
        ABG,
        {"g=1/f.parquet": A, "g=__HIVE_DEFAULT_PARTITION__/f.parquet": A},
        ("g=1/f.parquet", {}), ("g=*/*.parquet", {"hive_partitioning": True}),
    ),
    "path wins": Case(AB, {"a=7/f.parquet": A, "other=1/f.parquet": A}, ("a=7/f.parquet", {}), ("other=1/f.parquet", {})),
    "path off": Case(AB, {"a=7/f.parquet": A}, ("a=7/f.parquet", {"hive_partitioning": False})),
    "partitioned": Case(
        (ABG, "ALTER TABLE t SET PARTITIONED BY (g)"),
        {"g=1/f.parquet": A, "g=__HIVE_DEFAULT_PARTITION__/f.parquet": A},
        ("g=1/f.parquet", {}), ("g=__HIVE_DEFAULT_PARTITION__/f.parquet", {}),
    ),
    "year in the path": Case(
        ("CREATE TABLE t (a INTEGER, b VARCHAR, d DATE)", "ALTER TABLE t SET PARTITIONED BY (year(d))"),
        {"year=2020/f.parquet": A.append_column("d", pa.array([dt.date(2020, 1, 1), dt.date(2020, 12, 31), dt.date(2020, 5, 5)]))},
        ("year=2020/f.parquet", {}),
    ),
    "quotes and commas": Case(
        'CREATE TABLE t ("odd, na""me" INTEGER)',
        {"it's, here/f.parquet": A.select(["a"]).rename_columns(['odd, na"me'])},
        ("it's, here/f.parquet", {}),
    ),
}  # fmt: skip
COMPARED = (
    "column_mapping", "name_mapping", "data_file", "file_column_stats", "file_partition_value", "table_stats", "table_column_stats",
    "snapshot",
    "snapshot_changes",
)  # fmt: skip
# Columns of the case "types" whose bounds are other texts, each of which must really differ, and why.
OTHER_BOUNDS = {
    "f": "the reference writes a FLOAT's 0.1, which is below what a DOUBLE column reads",
    "dec": "as in written files we give all digits of the column",
    "o": "as in written files, 0 and 1",
    "blob": "as in written files, hexadecimal digits",
    "long": "as in written files, cut",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    created = lake_of_files(sqlite_address)
    created.set_option("data_inlining_row_limit", 0)
    return created


def prepared(address: LakeAddress, *statements: str) -> DuckLake:
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(*statements)
    return DuckLake.connect(address.url)


@pytest.mark.parametrize("name", CASES)
def test_the_catalog_is_the_reference_s(sqlite_address: LakeAddress, tmp_path: Path, folder: Path, name: str) -> None:
    compare_with_the_reference(sqlite_address, tmp_path, folder, name)


@pytest.mark.parametrize("name", ["nested", "path"])
def test_on_every_catalog_database(lake_address: LakeAddress, tmp_path: Path, folder: Path, name: str) -> None:
    compare_with_the_reference(lake_address, tmp_path, folder, name)


def compare_with_the_reference(lake_address: LakeAddress, tmp_path: Path, folder: Path, name: str) -> None:
    case = CASES[name]
    (tmp_path / "theirs").mkdir()
    theirs = sqlite_lake(tmp_path / "theirs")
    for relative, data in case.files.items():
        put(folder / relative, data)

    def whole(paths: str | list[str]) -> list[str]:
        return [str(folder / path) for path in ([paths] if isinstance(paths, str) else paths)]

    with attached(theirs, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(*case.ddl)
        for paths, options in case.calls:
            given = ", ".join(f"{key} => {value}" for key, value in options.items())
            texts = ", ".join("'" + path.replace("'", "''") + "'" for path in whole(paths))
            duck.run(f"CALL ducklake_add_data_files('lake', 't', [{texts}]{', ' if given else ''}{given})")
    lake = prepared(lake_address, *case.ddl)
    for paths, options in case.calls:
        given = whole(paths)
        lake.add_data_files("t", given if len(given) > 1 else given[0], allow_duplicates=True, **options)
    expected, found = dump_catalog(theirs), dump_catalog(lake_address)
    others = [place for place, column in enumerate(TYPES.column_names, 1) if column in OTHER_BOUNDS] if name == "types" else []
    for table in COMPARED:
        assert _rows(found, table, others) == _rows(expected, table, others), table
    for number in others:
        assert _bounds(found, number) != _bounds(expected, number)
    with attached(lake_address) as duck:
        check_everywhere(duck, open_lake(lake_address))
        assert duck.value("SELECT count(*) FROM t") > 0


def _rows(dump: dict[str, list[dict[str, Any]]], table: str, other_bounds: list[int]) -> list[dict[str, object]]:
    """Rows without some bounds; SQLite has no booleans."""
    rows = [{key: int(value) if isinstance(value, bool) else value for key, value in row.items()} for row in dump.get(table, [])]
    for row in rows:
        if row.get("column_id") in other_bounds and "min_value" in row:
            del row["min_value"], row["max_value"]
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def _bounds(dump: dict[str, list[dict[str, Any]]], number: int) -> list[tuple[str, str]]:
    return [(row["min_value"], row["max_value"]) for row in dump["file_column_stats"] if row["column_id"] == number]


def test_a_spark_output_directory(sqlite_address: LakeAddress, folder: Path, spark: SparkSession) -> None:
    frame = spark.range(0, 1000).selectExpr("id AS a", "concat('v', id) AS b", "cast(id % 3 AS int) AS g", "id % 2 AS h")
    frame.write.partitionBy("g", "h").parquet(f"{folder}/out")
    (folder / "out" / "_temporary").mkdir()
    (folder / "out" / "_temporary" / "half.parquet").write_bytes(b"PAR1")
    assert (folder / "out" / "_SUCCESS").exists()
    lake = prepared(sqlite_address, "CREATE TABLE t (a BIGINT, b VARCHAR, g INTEGER, h BIGINT)", "ALTER TABLE t SET PARTITIONED BY (h, g)")
    done = lake.table("t").add_data_files(folder / "out", hive_partitioning=True, spark=spark)
    assert (done.rows_added, done.files_added) == (1000, len(list((folder / "out").glob("g=*/h=*/*.parquet"))))
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*), sum(a), sum(g), sum(h), count(DISTINCT b) FROM t") == [(1000, 499500, 999, 500, 1000)]
        assert duck.rows("SELECT count(*) FROM t WHERE g = 1 AND h = 0") == [(166,)]
        check_everywhere(duck, open_lake(sqlite_address))
    assert lake.table("t").scan(where="g = 1 AND h = 0").plan().plan.pruning.files_kept < done.files_added / 2
    assert lake.table("t").scan(where="g = 2").to_spark(spark).count() == 333
    # The refusal of an executor is the same error.
    lake.create_table("u", pa.schema([("a", pa.int32()), ("b", pa.string()), ("g", pa.int32()), ("h", pa.int64())]))
    with pytest.raises(SchemaError, match="does not fit column 'a'"):
        lake.add_data_files("u", folder / "out", spark=spark, allow_duplicates=True)


def test_with_other_changes_in_one_transaction(sqlite_address: LakeAddress, folder: Path) -> None:
    lake = lake_of_files(sqlite_address)
    for name in "fgh":
        put(folder / f"{name}.parquet", A if name != "h" else A.rename_columns(["a", "B"]))
    with lake.transaction(message="all at once") as tx:
        tx.create_table("t", A.schema)
        tx.add_data_files("t", [folder / "f.parquet", folder / "f.parquet", folder / "g.parquet"])
        tx.append("t", A)
        tx.add_data_files("t", folder / "h.parquet")
        with pytest.raises(AlreadyExistsError, match="in this transaction"):
            tx.add_data_files("t", folder / "h.parquet")
        with pytest.raises(UnsupportedFeatureError, match="delete or overwrite first"):
            tx.delete("t", "a = 1")
    (written,) = tx.result.writes
    assert (written.rows_added, written.files_added) == (12, 4)
    assert lake.snapshot().id == 1
    assert len({file.mapping_id for file in lake.table("t").list_files()}) == 3
    with attached(sqlite_address) as duck:
        check_everywhere(duck, open_lake(sqlite_address))
        assert duck.rows("SELECT count(*), count(DISTINCT rowid) FROM t") == [(12, 12)]
    # A later call finds the mapping that fits, and rows can be changed like any.
    put(folder / "i.parquet", A)
    lake.add_data_files("t", folder / "i.parquet")
    lake.table("t").delete("a = 1")
    lake.table("t").overwrite(A.slice(0, 1), where="a = 2 OR a = 1")
    with attached(sqlite_address) as duck:
        assert duck.value("SELECT count(*) FROM __ducklake_metadata_lake.ducklake_column_mapping") == 2
        check_everywhere(duck, open_lake(sqlite_address))
        assert duck.rows("SELECT a, count(*) FROM t GROUP BY a ORDER BY a NULLS LAST") == [(1, 1), (None, 5)]


def test_a_transaction_that_fails_deletes_no_added_file(lake: DuckLake, folder: Path) -> None:
    path = put(folder / "f.parquet", A)
    lake.create_table("t", A.schema)

    def fail() -> None:
        with lake.transaction() as tx:
            tx.add_data_files("t", path)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert path.exists()
    assert lake.table("t").scan().count() == 0
    lake.add_data_files("t", path)
    assert lake.table("t").scan().count() == 3


def test_two_writers_at_once(lake: DuckLake, folder: Path) -> None:
    lake.create_table("t", A.schema)
    paths = [put(folder / f"{number}.parquet", A) for number in range(2)]
    with lake.transaction() as tx:
        tx.add_data_files("t", paths[0])
        lake.add_data_files("t", paths[1])
        lake.table("t").append(A)
    files = lake.table("t").list_files()
    assert sorted(file.row_id_start for file in files) == [0, 3, 6]
    assert lake.table_info("t").row_count == 9
    assert sorted(lake.table("t").scan(["rowid"]).to_arrow().column(0).to_pylist()) == list(range(9))


@pytest.mark.parametrize("inside", [False, True])
def test_two_writers_of_one_file(lake_address: LakeAddress, folder: Path, inside: bool) -> None:
    lake = lake_of_files(lake_address)
    lake.create_table("t", A.schema)
    path = put((Path(lake_address.data_path) / "main/t/x" if inside else folder) / "f.parquet", A)

    def add() -> None:
        with lake.transaction() as tx:
            tx.add_data_files("t", path)
            tx.append("t", A)
            lake.add_data_files("t", path)

    with pytest.raises(CommitConflictError, match=r"f\.parquet.*another transaction has added it"):
        add()
    assert lake.table("t").scan().count() == 3
    assert path.exists()
    assert len(list(Path(lake_address.data_path).rglob("ducklake-*.parquet"))) == 0


def test_a_file_belongs_to_one_table_once(lake: DuckLake, folder: Path) -> None:
    path = put(folder / "f.parquet", A)
    lake.create_table("t", A.schema)
    lake.create_table("u", A.schema)
    lake.add_data_files("t", path)
    snapshots = len(lake.snapshots())
    for name in ("t", "u"):
        with pytest.raises(AlreadyExistsError, match=r"data file of table main\.t"):
            lake.add_data_files(name, path)
    os.chdir(folder)
    with pytest.raises(AlreadyExistsError):
        lake.add_data_files("u", "../elsewhere/f.parquet")
    # Of the lake's own files, and of those whose rows are gone but which earlier snapshots show.
    lake.table("u").append(A)
    (own,) = lake.table("u").list_files()
    with pytest.raises(AlreadyExistsError, match=r"main\.u"):
        lake.add_data_files("t", own.path)
    lake.table("t").delete(None)
    with pytest.raises(AlreadyExistsError):
        lake.add_data_files("u", path)
    lake.expire_snapshots(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    with pytest.raises(AlreadyExistsError, match="scheduled for deletion"):
        lake.add_data_files("u", path)
    lake.cleanup_old_files(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    # It belonged to the lake, which has deleted it.
    assert not path.exists()
    assert len(lake.snapshots()) < snapshots + 2


def test_missing_columns_have_their_default(sqlite_address: LakeAddress, folder: Path) -> None:
    lake = prepared(
        sqlite_address,
        "CREATE TABLE t (a INTEGER, b VARCHAR, c INTEGER, s STRUCT(x INTEGER, w INTEGER))",
        "INSERT INTO t VALUES (7, 'b', 9, {'x': 1, 'w': 2})",
        "ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 5",
        "INSERT INTO t VALUES (8, 'b', 10, NULL, 50)",
    )
    struct = pa.array([{"x": 5}] * 3, pa.struct([("x", pa.int32())]))
    path = put(folder / "f.parquet", A.append_column("s", struct))
    with pytest.raises(SchemaError, match=r"'s\.w'.*allow_missing"):
        lake.add_data_files("t", path)
    lake.add_data_files("t", path, allow_missing=True)
    with attached(sqlite_address) as duck:
        check_everywhere(duck, open_lake(sqlite_address))
        for where in ("c IS NULL", "d = 5", "d < 6", "s.w IS NULL", "c > 8"):
            ours = lake.table("t").scan(["a", "c", "d"], where=where).to_arrow() if "." not in where else None
            if ours is not None:
                assert_same_rows(duck, ours, f"SELECT a, c, d FROM t WHERE {where}")
        assert duck.rows("SELECT count(*) FILTER (c IS NULL), min(d), max(d) FROM t") == [(3, 5, 50)]
        duck.run("INSERT INTO t VALUES (9, 'c', 11, NULL, 60)")
        assert duck.rows("SELECT count(*) FROM t WHERE c IS NULL") == [(3,)]
        assert duck.rows("SELECT count(*) FROM t WHERE d = 5") == [(4,)]


def test_bounds_prune_and_lose_nothing(sqlite_address: LakeAddress, folder: Path) -> None:
    lake = prepared(sqlite_address, "CREATE TABLE t (f DOUBLE, ts TIMESTAMP, s VARCHAR)")
    data = pa.table(
        {
            "f": pa.array([0.1, float("nan"), None], pa.float32()),
            "ts": pa.array([-1500, 1_700_000_000_123, None], pa.timestamp("ms")),
            "s": ["ä" * 300, "", None],
        }
    )
    put(folder / "1.parquet", data)
    put(folder / "2.parquet", data, write_statistics=False)
    put(folder / "3.parquet", data, row_group_size=1)
    lake.add_data_files("t", folder)
    with attached(sqlite_address) as duck:
        for where, count in (
            ("f > 0.1", 6), ("f = 0.10000000149011612", 3), ("f < 0.1", 0), ("ts < TIMESTAMP '1970-01-01'", 3),
            ("ts > TIMESTAMP '2023-11-14 22:13:20.122'", 3),
            ("s = ''", 3), ("s > 'ä'", 3), ("s IS NULL", 3),
        ):  # fmt: skip
            assert lake.table("t").scan(where=where).to_arrow().num_rows == count, where
        check_everywhere(duck, open_lake(sqlite_address))
    scan = lake.table("t").scan(where="ts > TIMESTAMP '2030-01-01'").plan()
    assert scan.plan.pruning.files_kept == 1


PARTITION_FILES = {
    "constant": (
        pa.table({"g": pa.array([4, 4], pa.int32()), "d": pa.array([dt.date(2020, 2, 1), dt.date(2020, 2, 28)])}),
        ["4", "2020", "2"],
    ),
    "null": (pa.table({"g": pa.array([None, None], pa.int32()), "d": pa.array([dt.date(1969, 12, 31)] * 2)}), [None, "1969", "12"]),
}


@pytest.mark.parametrize("name", PARTITION_FILES)
def test_partition_values_from_statistics(sqlite_address: LakeAddress, folder: Path, name: str) -> None:
    data, values = PARTITION_FILES[name]
    lake = prepared(sqlite_address, "CREATE TABLE t (g INTEGER, d DATE)", "ALTER TABLE t SET PARTITIONED BY (g, year(d), month(d))")
    lake.add_data_files("t", put(folder / "f.parquet", data))
    (file,) = lake.table("t").list_files()
    assert [value for _, value in sorted(file.partition_values)] == values
    lake.table("t").append(data)
    own = lake.table("t").list_files()[-1]
    assert own.partition_values == file.partition_values
    with attached(sqlite_address) as duck:
        check_everywhere(duck, open_lake(sqlite_address))


def test_buckets_are_computed_never_believed(sqlite_address: LakeAddress, folder: Path) -> None:
    lake = prepared(sqlite_address, "CREATE TABLE t (g INTEGER, a INTEGER)", "ALTER TABLE t SET PARTITIONED BY (bucket(4, g))")
    data = pa.table({"a": pa.array([1], pa.int32())})
    with pytest.raises(UsageError, match=r"which bucket\(4\) of 'g'"):
        lake.add_data_files(
            "t",
            put(
                folder / "bucket=3" / "f.parquet", data.append_column("g", pa.array([None], pa.int32())).slice(0, 1), write_statistics=False
            ),
        )
    for number in range(6):
        put(folder / f"g={number}" / "f.parquet", data)
    lake.add_data_files("t", str(folder / "g=*" / "*.parquet"))
    lake.table("t").append(pa.table({"g": pa.array(range(6), pa.int32()), "a": pa.array(range(6), pa.int32())}))
    with attached(sqlite_address) as duck:
        for number in range(6):
            assert duck.value(f"SELECT count(*) FROM t WHERE g = {number}") == 2
            assert lake.table("t").scan(where=f"g = {number}").to_arrow().num_rows == 2


def touch(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


REFUSALS: dict[str, tuple[str, Callable[[Path], Any], dict[str, Any], type[DuckLakeError], str]] = {
    "nothing there": (AB, lambda f: f / "none.parquet", {}, NotFoundError, "no files to add"),
    "an empty folder": (AB, lambda f: f, {}, NotFoundError, "no files to add"),
    "a pattern without files": (AB, lambda f: str(f / "*.parquet"), {}, NotFoundError, "no files"),
    "no path at all": (AB, lambda f: [], {}, UsageError, "at least one path"),
    "zero bytes": (AB, lambda f: touch(f / "f.parquet", b""), {}, CorruptFileError, "f.parquet"),
    "not Parquet": (AB, lambda f: touch(f / "f.parquet", b"a,b\n1,2\n" * 50), {}, CorruptFileError, "f.parquet"),
    "cut": (AB, lambda f: touch(f / "g.parquet", put(f / "f.parquet", A).read_bytes()[:-60]), {}, CorruptFileError, "g.parquet"),
    "other files in the folder": (AB, lambda f: touch(f / "x" / "notes.txt", b"hello").parent, {}, UsageError, "notes.txt"),
    "missing": (ABG, lambda f: put(f / "f.parquet", A), {}, SchemaError, r"table main\.t has column 'g'.*f\.parquet.*allow_missing"),
    "extra": ("CREATE TABLE t (a INTEGER)", lambda f: put(f / "f.parquet", A), {}, SchemaError, r"f\.parquet has column 'b'.*ignore_extra"),
    "extra nested": ("CREATE TABLE t (s STRUCT(x INTEGER))", lambda f: put(f / "f.parquet", NESTED.select(["s"])), {}, SchemaError,
        "'s.y'"),
    "wider": ("CREATE TABLE t (a SMALLINT, b VARCHAR)", lambda f: put(f / "f.parquet", A), {}, SchemaError, "'a'.*int32.*int16.*uint8"),
    "another kind": ("CREATE TABLE t (a INTEGER, b DATE)", lambda f: put(f / "f.parquet", A), {}, SchemaError, "varchar.*date"),
    "leaf for a struct": ("CREATE TABLE t (a STRUCT(x INTEGER), b VARCHAR)", lambda f: put(f / "f.parquet", A), {}, SchemaError, "struct"),
    "twice apart from case": (AB, lambda f: put(f / "f.parquet", pa.table({"a": [1], "A": [2], "b": ["x"]}).cast(
        pa.schema([("a", pa.int32()), ("A", pa.int32()), ("b", pa.string())]))), {}, SchemaError, "twice"),
    "NULL where there must be none": ("CREATE TABLE t (a INTEGER NOT NULL, b VARCHAR)", lambda f: put(f / "f.parquet", A), {}, SchemaError,
        "1 NULLs in column 'a'"),
    "NULLs not counted": ("CREATE TABLE t (a INTEGER NOT NULL, b VARCHAR)", lambda f: put(f / "f.parquet", A, write_statistics=False), {},
        SchemaError, "does not say how many"),
    "a path that is no number": (ABG, lambda f: put(f / "g=x" / "f.parquet", A), {}, SchemaError, "'x' to column 'g'"),
    "no path with keys": (AB, lambda f: put(f / "f.parquet", A), {"hive_partitioning": True}, UsageError, "key=value"),
    "row ids of a lake": (AB, lambda f: put(f / "f.parquet", numbered(A, a=2147483540)), {}, UnsupportedFeatureError, "row ids"),
    "hugeint": ("CREATE TABLE t (a HUGEINT, b VARCHAR)", lambda f: put(f / "f.parquet", A), {}, SchemaError, "int128"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(sqlite_address: LakeAddress, folder: Path, name: str) -> None:
    ddl, make, options, error, message = REFUSALS[name]
    lake = prepared(sqlite_address, ddl)
    before = lake.snapshot().id
    paths = make(folder)
    with pytest.raises(error, match=message):
        lake.add_data_files("t", paths, **options)
    assert lake.snapshot().id == before
    assert lake.table("t").list_files() == []


def test_rows_of_several_partitions_in_one_file(sqlite_address: LakeAddress, folder: Path) -> None:
    lake = prepared(sqlite_address, "CREATE TABLE t (d DATE)", "ALTER TABLE t SET PARTITIONED BY (year(d))")
    path = put(folder / "f.parquet", pa.table({"d": pa.array([dt.date(2020, 1, 1), dt.date(2021, 1, 1)])}))
    with pytest.raises(UsageError, match="several partitions"):
        lake.add_data_files("t", path)
    unknown = put(folder / "g.parquet", pa.table({"d": pa.array([dt.date(2020, 1, 1)])}), write_statistics=False)
    with pytest.raises(UsageError, match="does not say which year of 'd'"):
        lake.add_data_files("t", unknown)


def test_places_and_encrypted_lakes(tmp_path: Path, sqlite_address: LakeAddress, folder: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    with memory.open("/bucket/f.parquet", "wb") as sink:
        pq.write_table(A, sink)
    lake = prepared(sqlite_address, AB)
    with pytest.raises(UnsupportedFeatureError, match="allowed_paths"):
        lake.add_data_files("t", "memory://bucket/f.parquet")
    allowed = DuckLake.connect(sqlite_address.url, allowed_paths=["memory://bucket/"])
    with pytest.raises(NotFoundError):
        allowed.add_data_files("t", "memory://bucket/none/*.parquet")
    allowed.add_data_files("t", "memory://bucket/")
    with pytest.raises(AlreadyExistsError):
        allowed.add_data_files("t", "memory://bucket/*.parquet")
    assert [file.path for file in allowed.table("t").list_files()] == ["memory://bucket/f.parquet"]
    assert allowed.table("t").scan().to_arrow().num_rows == 3
    memory.rm("/bucket", recursive=True)
    encrypted = DuckLake.create(f"sqlite:///{tmp_path}/e.sqlite", data_path=f"{tmp_path}/e/", encrypted=True)
    encrypted.create_table("t", A.schema)
    with pytest.raises(UnsupportedFeatureError, match="the lake is encrypted"):
        encrypted.add_data_files("t", put(folder / "f.parquet", A))


def test_files_within_the_table_s_directory_and_a_relative_data_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lake = DuckLake.create(f"sqlite:///{tmp_path}/r.sqlite", data_path="files/")
    lake.create_table("t", A.schema)
    put(tmp_path / "files/main/t/x/f.parquet", A)
    put(tmp_path / "files/other/g.parquet", A)
    lake.add_data_files("t", "files/main/t/x/f.parquet")
    lake.add_data_files("t", "files/other/g.parquet")
    assert [(file.relative_path, file.path_is_relative) for file in lake.table("t").list_files()] == [
        ("x/f.parquet", True),
        (str(tmp_path / "files/other/g.parquet"), False),
    ]
    with pytest.raises(AlreadyExistsError):
        lake.add_data_files("t", tmp_path / "files/main/t/x")
    assert lake.table("t").scan().count() == 6


def test_files_without_rows_are_left_out(lake: DuckLake, folder: Path) -> None:
    lake.create_table("t", A.schema)
    before = lake.snapshot().id
    empty = put(folder / "0.parquet", A.slice(0, 0))
    assert not lake.add_data_files("t", empty).committed
    assert lake.snapshot().id == before
    put(folder / "1.parquet", A)
    done = lake.add_data_files("t", folder)
    assert (done.files_added, done.rows_added) == (1, 3)


def test_the_same_step_run_twice(lake: DuckLake, folder: Path) -> None:
    lake.create_table("t", A.schema)
    path = put(folder / "f.parquet", A)
    first = lake.table("t").add_data_files(path, commit_id="step-1")
    again = lake.table("t").add_data_files(path, commit_id="step-1")
    assert again.repeated
    assert again.snapshot.id == first.snapshot.id
    assert lake.table("t").scan().count() == 3


def test_where_the_reference_loses_rows(sqlite_address: LakeAddress, tmp_path: Path, folder: Path) -> None:
    """What docs/differences.md says of it, so that it is told when it changes."""
    (tmp_path / "theirs").mkdir()
    theirs = sqlite_lake(tmp_path / "theirs")
    narrow = put(folder / "narrow.parquet", pa.table({"f": pa.array([0.1, 0.05], pa.float32())}))
    lacking = put(folder / "lacking.parquet", A.select(["a"]))
    ddl = ("CREATE TABLE f (f DOUBLE)", "CREATE TABLE m (a INTEGER, c INTEGER)", "INSERT INTO m VALUES (1, 7)")
    strict = "CREATE TABLE n (a INTEGER NOT NULL, b VARCHAR)"
    with attached(theirs, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(*ddl, strict)
        add(duck, "f", narrow)
        add(duck, "m", lacking, "allow_missing => true")
        add(duck, "n", put(folder / "nulls.parquet", A))
        add(duck, "n", folder / "nulls.parquet")
        assert duck.rows("SELECT count(*) FROM f WHERE f > 0.1") == [(0,)]
        assert duck.rows("SELECT count(*) FROM m WHERE c IS NULL") == [(0,)]
        assert duck.rows("SELECT count(*) FROM n") == [(6,)]
    lake = prepared(sqlite_address, *ddl, strict)
    lake.add_data_files("f", narrow)
    lake.add_data_files("m", lacking, allow_missing=True)
    with pytest.raises(SchemaError, match="NOT NULL"):
        lake.add_data_files("n", folder / "nulls.parquet")
    with attached(sqlite_address) as duck:
        assert duck.rows("SELECT count(*) FROM m WHERE c IS NULL") == [(3,)]
        # It compares within the file before it converts, whatever the bounds are.
        assert duck.rows("SELECT count(*) FROM f WHERE f > 0.1") == [(0,)]
    assert lake.table("f").scan(where="f > 0.1").to_arrow().num_rows == 1
