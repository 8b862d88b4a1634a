"""Empty tables, schemas, files, deletes, strings and values. DuckDB reads them on 1.0, the second implementation on 1.1."""

from __future__ import annotations

import datetime as dt
import json
import struct
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import text

from ducklake_core import DuckLake
from ducklake_core.errors import CorruptFileError, DuckLakeError
from ducklake_core.storage.delete_files import process_memory, write_delete_file
from ducklake_core.storage.deletion_vectors import encode_container, encode_deletion_vector
from ducklake_core.storage.filesystems import Storage
from tests.support.ducklakepy_lake import faults, rows_of, second_implementation, sorted_rows, stored
from tests.support.oracle import READS, LakeAddress, attached
from tests.support.parameters import on_postgresql, spread

Version = Literal["1.0", "1.1"]
Rows = list[tuple[object, ...]]
NOW: Any = {"older_than": dt.timedelta(0), "min_age": dt.timedelta(0)}

pytestmark = pytest.mark.parametrize("version", ["1.0", "1.1"])


def _lake(address: LakeAddress, version: Version, limit: int = 0) -> DuckLake:
    lake = DuckLake.create(address.url, data_path=address.data_path, version=version)
    lake.set_option("data_inlining_row_limit", limit)
    return lake


def _edit(lake: DuckLake, *statements: str) -> None:
    with lake.database.write() as connection:
        for statement in statements:
            connection.execute(text(statement))


def _read(lake: DuckLake, address: LakeAddress, name: str = "t") -> Rows:
    """Rows of a newly opened lake, and of the second implementation, except 1.1 in MySQL, which has none."""
    with DuckLake.connect(address.url) as again:
        own = sorted_rows(again.table(name).scan().to_arrow())
        assert again.table(name).scan().count() == len(own)
    if lake.info.version in READS:
        with attached(address) as duck:
            assert sorted(duck.rows(f"SELECT * FROM {name}"), key=repr) == own
    elif address.backend != "mysql":
        with second_implementation(address) as catalog:
            assert rows_of(catalog, name if "." in name else f"main.{name}") == own
    return own


def _maintain(lake: DuckLake) -> None:
    """Run every operation. None may fail for a table."""
    for done in (lake.flush_inlined_data(), lake.merge_adjacent_files(), lake.rewrite_data_files(delete_threshold=0.0)):
        assert done.failed_steps == ()
    lake.expire_snapshots(**NOW)
    lake.cleanup_old_files(**NOW)
    assert faults(lake) == []


@pytest.mark.parametrize("limit", [0, 10])
def test_tables_without_rows(lake_address: LakeAddress, version: Version, limit: int) -> None:
    lake = _lake(lake_address, version, limit)
    for name in ("void", "hollow") if version == "1.0" else ("void", "void.inner", "hollow"):
        lake.create_schema(name)
    name = "hollow.t" if version == "1.0" else "void.inner.t"
    lake.create_table(name, {"a": "int64"})
    for column in ("b", "c", "d"):
        lake.table(name).add_column(column, "varchar")
    rows = pa.table({"a": pa.array([], pa.int64()), **{column: pa.array([], pa.string()) for column in "bcd"}})
    snapshots = len(lake.snapshots())
    lake.write(name, rows)
    lake.write(name, rows, mode="overwrite")
    lake.write(name, rows, mode="upsert", on=["a"])
    lake.table(name).delete("a > 0")
    lake.table(name).update({"b": "'x'"}, where="a > 0")
    assert len(lake.snapshots()) == snapshots
    assert _read(lake, lake_address, name) == []
    assert [(one.table, one.row_count) for one in lake.tables()] == [(name, 0)]
    _maintain(lake)
    assert _read(lake, lake_address, name) == []
    lake.write(name, pa.table({"a": [1], "b": ["x"], "c": [None], "d": [""]}))
    assert _read(lake, lake_address, name) == [(1, "x", None, "")]
    lake.table(name).delete("true")
    assert _read(lake, lake_address, name) == []
    _maintain(lake)
    for schema in ("hollow", "void"):
        lake.drop_schema(schema, cascade=True)
    assert [schema.name for schema in lake.schemas()] == ["main"]
    lake.drop_schema("main")
    assert lake.schemas() == []
    assert (lake.tables(), faults(lake)) == ([], [])


@pytest.mark.slow
def test_files_without_rows(lake_address: LakeAddress, version: Version) -> None:
    """Writers of other projects make a table with one, DuckDB adds them, and they have no row group."""
    lake = _lake(lake_address, version)
    lake.write("t", pa.table({"a": [1, 2, 3], "s": ["x", "y", None]}))
    fields = [
        pa.field(name, kind, metadata={"PARQUET:field_id": str(number)}) for number, (name, kind) in enumerate(_KINDS.items(), start=1)
    ]
    (folder,) = {path.parent for path in Path(lake_address.data_path).rglob("*.parquet")}
    for number in (1000, 1001):
        pq.write_table(pa.Table.from_pylist([], pa.schema(fields)), folder / f"{number}.parquet")
        groups = {"row_group_count": 0} if version == "1.1" else {}
        with lake.database.write() as connection:
            of_files = lake.database.tables["data_file"]
            (known,) = connection.execute(of_files.select().where(of_files.c.record_count == 3)).mappings()
            size = (folder / f"{number}.parquet").stat().st_size
            empty = {"data_file_id": number, "path": f"{number}.parquet", "record_count": 0, "file_size_bytes": size, "footer_size": None}
            connection.execute(of_files.insert().values({**known, **empty, "row_id_start": 3, **groups}))
    everything: Rows = [(1, "x"), (2, "y"), (3, None)]
    assert _read(lake, lake_address) == everything
    again = DuckLake.connect(lake_address.url)
    table = again.table("t")
    assert [table.scan(where=where).count() for where in ("a >= 2", "s IS NULL", "a IS NOT NULL", "s <> 'x'", "true")] == [2, 1, 3, 1, 3]
    table.delete("a = 2")
    table.update({"s": "'changed'"}, where="a = 3")
    again.write("t", pa.table({"a": [3, 4], "s": ["three", "four"]}), mode="upsert", on=["a"])
    wanted: Rows = [(1, "x"), (3, "three"), (4, "four")]
    assert _read(again, lake_address) == wanted
    _maintain(again)
    assert _read(again, lake_address) == wanted
    assert 0 not in [count for (count,) in stored(again, "data_file", "record_count")]


_KINDS = {"a": pa.int64(), "s": pa.string()}


def _container(blobs: list[tuple[int | None, np.ndarray]], name: str = "") -> bytes:
    """A Puffin file with these vectors, each of a snapshot or of none."""
    content, described = bytearray(b"PFA1"), []
    for snapshot, positions in blobs:
        vector = encode_deletion_vector(positions)
        properties = {"cardinality": str(len(positions)), "referenced-data-file": name} | (
            {} if snapshot is None else {"ducklake-snapshot-id": str(snapshot)}
        )
        described.append({"type": "deletion-vector-v1", "offset": len(content), "length": len(vector), "properties": properties})
        content += vector
    payload = json.dumps({"blobs": described}).encode()
    return bytes(content) + b"PFA1" + payload + struct.pack("<iI", len(payload), 0) + b"PFA1"


def _deleted(lake: DuckLake, form: str, content: bytes | None, deletes: int) -> Path:
    """Another content for the delete file of a table whose fifth row is deleted."""
    lake.set_option("write_deletion_vectors", form == "puffin")
    lake.write("t", pa.table({"a": list(range(20))}))
    lake.table("t").delete("a = 5")
    (data,) = [path for path in Path(lake.info.data_path).rglob("*.parquet") if "delete" not in path.name]
    (file,) = [path for path in Path(lake.info.data_path).rglob("*") if path.is_file() and path != data]
    if content is None:
        file.unlink()
        write_delete_file(Storage(), str(file), str(data), np.empty(0, np.int64), as_vector=form == "puffin")
    else:
        file.write_bytes(content)
    size = file.stat().st_size
    _edit(lake, f"UPDATE ducklake_delete_file SET delete_count = {deletes}, file_size_bytes = {size}, footer_size = NULL")
    return file


@pytest.mark.parametrize("form", ["parquet", "puffin"])
def test_delete_files_without_deletes(lake_address: LakeAddress, version: Version, form: str) -> None:
    lake = _lake(lake_address, version)
    _deleted(lake, form, None, 0)
    assert _read(lake, lake_address) == sorted([(a,) for a in range(20)], key=repr)
    again = DuckLake.connect(lake_address.url)
    again.table("t").delete("a < 3")
    assert _read(again, lake_address) == sorted([(a,) for a in range(3, 20)], key=repr)
    _maintain(again)
    assert _read(again, lake_address) == sorted([(a,) for a in range(3, 20)], key=repr)


def test_vectors_without_deletes_in_one_file(sqlite_address: LakeAddress, version: Version) -> None:
    """The first snapshot of a file may have deleted nothing; a file without any vector is rejected by both libraries."""
    nothing, some = np.empty(0, np.int64), np.array([1, 2], np.int64)
    lake = _lake(sqlite_address, version)
    file = _deleted(lake, "puffin", _container([(2, nothing), (3, some)]), 2)
    snapshot = lake.snapshots()[-1].id
    (data,) = map(str, Path(sqlite_address.data_path).rglob("*.parquet"))

    def rewrite(content: bytes) -> None:
        file.write_bytes(content)
        process_memory.clear()

    if version == "1.1":
        rewrite(_container([(snapshot - 1, nothing), (snapshot, some)], data))
        assert _read(lake, sqlite_address) == sorted([(a,) for a in range(20) if a not in (1, 2)], key=repr)
        rewrite(_container([(snapshot, nothing)], data))
        _edit(lake, "UPDATE ducklake_delete_file SET delete_count = 0")
        assert len(_read(lake, sqlite_address)) == 20
    for content in (_container([]), encode_container(nothing, nothing, "a.parquet")[0], b""):
        rewrite(content)
        with pytest.raises(CorruptFileError):
            DuckLake.connect(sqlite_address.url).table("t").scan().to_arrow()
        if version == "1.1":
            with second_implementation(sqlite_address) as catalog, pytest.raises(Exception, match=r"deletion vector|Puffin|puffin"):
                rows_of(catalog, "main.t")


@pytest.mark.slow
def test_empty_strings(lake_address: LakeAddress, version: Version) -> None:
    """Empty strings differ from NULL: defaults, partition values, comments, names of authors."""
    lake = _lake(lake_address, version)
    with lake.transaction(author="", message="", extra_info="") as tx:
        tx.create_table("t", {"a": "int64", "s": "varchar"}, partition_by=["s"])
        tx.set_comment("t", "")
        tx.set_comment("t", "", column="a")
    assert (lake.snapshots()[-1].author, lake.snapshots()[-1].message) == ("", "")
    lake.write("t", pa.table({"a": [1, 2, 3], "s": ["", None, "x"]}))
    lake.table("t").add_column("d", "varchar", default="")
    lake.write("t", pa.table({"a": [4]}), missing_columns="null")
    assert _read(lake, lake_address) == sorted([(1, "", ""), (2, None, ""), (3, "x", ""), (4, None, "")], key=repr)
    table = lake.table("t")
    assert [table.scan(where=where).count() for where in ("s = ''", "s IS NULL", "s > ''", "d = ''", "d IS NULL")] == [1, 2, 1, 4, 0]
    assert sorted(stored(lake, "file_partition_value", "partition_value"), key=repr) == sorted([("",), (None,), (None,), ("x",)], key=repr)
    table.overwrite(pa.table({"a": [9], "s": [""], "d": [None]}), partitions=[{"s": ""}])
    assert _read(lake, lake_address)[-1] == (9, "", None)
    lake.create_view("v", "SELECT a FROM t")
    for aliases in ("NULL", "''"):
        _edit(lake, f"UPDATE ducklake_view SET column_aliases = {aliases}")
        assert DuckLake.connect(lake_address.url).view("v").to_reader().read_all().num_rows == 4
    _edit(
        lake,
        "UPDATE ducklake_snapshot_changes SET changes_made = '' WHERE snapshot_id = 1",
        "UPDATE ducklake_snapshot_changes SET changes_made = NULL WHERE snapshot_id = 2",
        "INSERT INTO ducklake_tag VALUES (1, 1, NULL, 'owner', ''), (1, 1, NULL, '', 'x')",
        # DuckDB 1.5 does not attach a lake with other tags of columns than comments.
        *(["INSERT INTO ducklake_column_tag VALUES (1, 1, 1, NULL, 'pii', ''), (1, 1, 1, NULL, '', NULL)"] if version == "1.1" else []),
        f"UPDATE ducklake_snapshot SET next_catalog_id = 100, next_file_id = 100 WHERE snapshot_id = {lake.snapshot().id}",
        "INSERT INTO ducklake_partition_info VALUES (77, 1, 1, 2)",
        "INSERT INTO ducklake_sort_info VALUES (78, 1, 1, NULL)",
        "INSERT INTO ducklake_column_mapping VALUES (79, 1, 'map_by_name')",
    )
    again = DuckLake.connect(lake_address.url)
    assert [snapshot.changes for snapshot in again.snapshots()[1:3]] == ["", ""]
    assert len(_read(again, lake_address)) == 4
    again.write("t", pa.table({"a": [5], "s": ["y"], "d": ["z"]}))
    assert len(_read(again, lake_address)) == 5
    assert again.table("t").changes(1, again.snapshot().id).to_arrow().num_rows > 0
    _maintain(again)
    assert len(_read(again, lake_address)) == 5


@pytest.mark.parametrize("value", spread(["''", "' '", "'x'"], 1))
def test_empty_options(sqlite_address: LakeAddress, version: Version, value: str) -> None:
    """An option of DuckDB is used, or rejected by its name; reading needs none of them."""
    lake = _lake(sqlite_address, version)
    lake.write("t", pa.table({"a": [1]}))
    for key in ("parquet_compression", "data_inlining_row_limit", "target_file_size", "write_deletion_vectors", "parquet_row_group_size"):
        _edit(lake, "DELETE FROM ducklake_metadata WHERE scope = 'table'")
        _edit(lake, f"INSERT INTO ducklake_metadata VALUES ('{key}', {value}, 'table', 1)")
        again = DuckLake.connect(sqlite_address.url)
        assert again.table("t").scan().count() >= 1
        before = again.table("t").scan().count()
        try:
            again.write("t", pa.table({"a": list(range(50))}))
        except DuckLakeError as error:
            assert key in str(error)
        else:
            assert again.table("t").scan().count() == before + 50


@on_postgresql
@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 100])
def test_empty_values(lake_address: LakeAddress, version: Version, limit: int) -> None:
    lake = _lake(lake_address, version, limit)
    lake.create_table(
        "t", {"a": "int64", "s": "varchar", "b": "blob", "l": "list<varchar>", "m": "map<varchar, int64>", "n": "struct<x: list<int64>>"}
    )
    kinds = lake.table("t").scan().to_arrow().schema
    rows: list[dict[str, Any]] = [
        {"a": 1, "s": "", "b": b"", "l": [], "m": [], "n": {"x": []}},
        {"a": 2, "s": None, "b": None, "l": None, "m": None, "n": None},
        {"a": 3, "s": " ", "b": b" ", "l": [""], "m": [("", None)], "n": {"x": None}},
        {"a": 4, "s": "", "b": b"", "l": [None], "m": [("", 0)], "n": {"x": [None]}},
    ]
    lake.write("t", pa.Table.from_pylist(rows, kinds))
    wanted = [tuple(row.values()) for row in rows]
    for _ in range(2):
        found = DuckLake.connect(lake_address.url).table("t").scan().to_arrow().sort_by("a")
        assert [tuple(row.values()) for row in found.to_pylist()] == wanted
        if version in READS:
            with attached(lake_address) as duck:
                assert duck.rows("SELECT a, s, b, l, n FROM t ORDER BY a") == [(*row[:4], row[5]) for row in wanted]
                assert duck.rows("SELECT cardinality(m) FROM t ORDER BY a") == [(0,), (None,), (1,), (1,)]
        elif lake_address.backend != "mysql":
            with second_implementation(lake_address) as catalog:
                assert [tuple(row.values()) for row in catalog.load_table("main.t").to_arrow().sort_by("a").to_pylist()] == wanted
        table = lake.table("t")
        assert [table.scan(where=where).count() for where in ("s = ''", "s IS NULL", "b = ''::BLOB", "l IS NULL", "n IS NULL")] == [
            2,
            1,
            2,
            1,
            1,
        ]
        lake.flush_inlined_data()


def test_names_without_letters(sqlite_address: LakeAddress, version: Version) -> None:
    """Empty names are rejected; a catalog that has one is listed, and its other tables are read."""
    lake = _lake(sqlite_address, version)
    lake.write("t", pa.table({"a": [1]}))
    for make in (
        lambda: lake.create_schema(""),
        lambda: lake.create_table('""', {"a": "int64"}),
        lambda: lake.create_table("u", {"": "int64"}),
        lambda: lake.table("t").rename_column("a", ""),
        lambda: lake.table("t").add_column("", "int64"),
        lambda: lake.create_view('""', "SELECT 1 AS a"),
    ):
        with pytest.raises(DuckLakeError):
            make()
    assert [table.table for table in lake.tables()] == ["main.t"]
    lake.write("other", pa.table({"a": [2]}))
    _edit(lake, "UPDATE ducklake_table SET table_name = '' WHERE table_name = 'other'")
    again = DuckLake.connect(sqlite_address.url)
    assert again.table("t").scan().count() == 1
    assert len(again.tables()) == 2
    assert again.check().findings is not None
