"""Adding files next to other changes and other writers, and reads of them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import (
    AlreadyExistsError,
    CommitConflictError,
    NotFoundError,
    SchemaError,
    UnsupportedFeatureError,
)
from tests.behaviour.foreign_files.added import add, check_everywhere, put
from tests.behaviour.lake.adding.samples import AB, A, prepared
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.scans import assert_same_rows, open_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    # An executor raises the same error.
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


def test_rows_of_added_files_are_read_and_deleted_in_the_transaction(lake: DuckLake, folder: Path) -> None:
    """A scan that skips all committed files has read none of their column mappings, which the added file shares."""
    for first in (0, 100):
        put(folder / f"{first}.parquet", pa.table({"a": pa.array(range(first, first + 3), pa.int32())}))
    lake.create_table("t", {"a": "int32"})
    lake.add_data_files("t", folder / "0.parquet")
    with lake.transaction() as tx:
        tx.add_data_files("t", folder / "100.parquet")
        assert tx.table("t").scan(where="a > 100").to_arrow()["a"].to_pylist() == [101, 102]
        tx.delete("t", "a > 100")
    assert sorted(lake.table("t").to_arrow()["a"].to_pylist()) == [0, 1, 2, 100]


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


def test_a_file_belongs_to_one_table_once(lake: DuckLake, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(folder / "f.parquet", A)
    lake.create_table("t", A.schema)
    lake.create_table("u", A.schema)
    lake.add_data_files("t", path)
    snapshots = len(lake.snapshots())
    for name in ("t", "u"):
        with pytest.raises(AlreadyExistsError, match=r"data file of table main\.t"):
            lake.add_data_files(name, path)
    monkeypatch.chdir(folder)
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
    (kept,) = lake.cleanup_old_files(older_than=dt.timedelta(0), min_age=dt.timedelta(0)).kept
    assert kept.path == str(path)
    assert "allowed_paths" in kept.reason
    allowed = DuckLake.connect(lake.database.address.url.render_as_string(hide_password=False), allowed_paths=str(folder))
    allowed.cleanup_old_files(older_than=dt.timedelta(0), min_age=dt.timedelta(0))
    allowed.close()
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
            own = lake.table("t").scan(["a", "c", "d"], where=where).to_arrow() if "." not in where else None
            if own is not None:
                assert_same_rows(duck, own, f"SELECT a, c, d FROM t WHERE {where}")
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
    lake = DuckLake.create(f"sqlite:///{tmp_path}/r.sqlite", data_path="files/", relative_data_path=True)
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
    """docs/reference/differences.md describes this: the test fails when DuckDB changes it."""
    (tmp_path / "by_duckdb").mkdir()
    by_duckdb = sqlite_lake(tmp_path / "by_duckdb")
    narrow = put(folder / "narrow.parquet", pa.table({"f": pa.array([0.1, 0.05], pa.float32())}))
    lacking = put(folder / "lacking.parquet", A.select(["a"]))
    ddl = ("CREATE TABLE f (f DOUBLE)", "CREATE TABLE m (a INTEGER, c INTEGER)", "INSERT INTO m VALUES (1, 7)")
    strict = "CREATE TABLE n (a INTEGER NOT NULL, b VARCHAR)"
    with attached(by_duckdb, "DATA_INLINING_ROW_LIMIT 0") as duck:
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
