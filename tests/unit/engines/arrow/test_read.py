"""The work unit of a scan, on Parquet files made by hand: parts, damage, and files that contradict the catalog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.engines.arrow import decoding, file_reader
from ducklake_core.engines.arrow.read import read_task
from ducklake_core.errors import CorruptFileError, NotFoundError, SchemaError, StorageError
from ducklake_core.format.expressions.conditions import bind
from ducklake_core.format.files.data_files import ROW_ID_FIELD_ID, SNAPSHOT_ID_FIELD_ID, DataFile
from ducklake_core.format.types.data_types import BOOLEAN, INT32, INT64, VARCHAR, Field, ListType
from ducklake_core.format.types.schema import Schema
from ducklake_core.lake import DuckLake
from ducklake_core.planning.plan import ColumnLifetime, FileTask, ScanProjection
from ducklake_core.storage.filesystems import Storage

A = Field(id=1, name="a", type=INT32)
B = Field(id=2, name="b", type=VARCHAR)
STORAGE = Storage()


def write(path: Path, *columns: tuple[str, pa.Array, int | None], row_group_size: int = 1000) -> DataFile:
    fields = [
        pa.field(name, array.type, metadata=None if number is None else {"PARQUET:field_id": str(number)})
        for name, array, number in columns
    ]
    table = pa.table([array for _, array, _ in columns], pa.schema(fields))
    pq.write_table(table, path, row_group_size=row_group_size)
    return DataFile(
        id=7, table_id=1, directory=f"{path.parent}/", relative_path=path.name, record_count=len(table), file_size_bytes=1,
        footer_size=None, row_id_start=100, begin_snapshot=5,
    )  # fmt: skip


def shape(*columns: Field, where: str | None = None, virtual: tuple[str, ...] = ()) -> ScanProjection:
    schema = Schema(columns=columns)
    lives = tuple(ColumnLifetime(column_id=column.id) for column in columns)
    predicate = None if where is None else bind(where, schema)
    return ScanProjection(
        table="main.t", snapshot_id=9, schema=schema, read_schema=schema, virtual=virtual, predicate=predicate, column_lifetimes=lives
    )  # fmt: skip


def rows(task: FileTask, wanted: ScanProjection) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for batch in read_task(task, wanted, STORAGE) for row in batch.to_pylist()]


def integers(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def test_parts_of_a_file_hold_every_row_once(tmp_path: Path) -> None:
    file = replace(write(tmp_path / "a.parquet", ("a", integers(*range(100)), 1), row_group_size=7), inlined_deletes=(3, 50))
    wanted = shape(A, virtual=("rowid",))
    found = [row for part in ((0, 10), (10, 11), (11, 55), (55, 10**18)) for row in rows(FileTask(file=file, rows=part), wanted)]
    assert found == [(i, i + 100) for i in range(100) if i not in (3, 50)]


@pytest.mark.parametrize("where", ["a >= 40 AND a < 45", "a IN (3, 95)", "a IS NULL", "a < 0"])
def test_skipped_row_groups_do_not_move_positions(tmp_path: Path, where: str) -> None:
    values = [*range(50), None, *range(51, 100)]
    file = write(tmp_path / "a.parquet", ("a", integers(*values), 1), row_group_size=7)
    found = rows(FileTask(file=file), shape(A, where=where, virtual=("file_row_number",)))
    expected = {"a >= 40 AND a < 45": range(40, 45), "a IN (3, 95)": (3, 95), "a IS NULL": (50,), "a < 0": ()}[where]
    assert found == [(values[i], i) for i in expected]


def test_columns_are_found_by_id_not_by_name(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", ("x", pa.array(["n"]), 9), ("a", pa.array(["s"]), 2), ("b", integers(1), 1))
    assert rows(FileTask(file=file), shape(A, B)) == [(1, "s")]


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", ("a", integers(1), 1), ("a", pa.array(["s"]), 2))
    assert rows(FileTask(file=file), shape(B, A)) == [("s", 1)]


def test_without_ids_columns_are_taken_by_position(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", ("b", integers(2), 1), ("a", pa.array(["s"]), None))
    assert rows(FileTask(file=file), shape(A, B, Field(id=3, name="c", type=INT64, initial_default="8"))) == [(2, "s", 8)]


def test_rows_of_later_snapshots_stay_hidden(tmp_path: Path) -> None:
    stamps = pa.array([5, 6, 7], pa.int64())
    ids = pa.array([30, 10, 20], pa.int64())
    file = write(tmp_path / "a.parquet", ("a", integers(1, 2, 3), 1), ("r", ids, ROW_ID_FIELD_ID), ("s", stamps, SNAPSHOT_ID_FIELD_ID))
    wanted = shape(A, virtual=("rowid", "snapshot_id"))
    assert rows(FileTask(file=file, snapshot_filter=6), wanted) == [(1, 30, 5), (2, 10, 6)]
    assert rows(FileTask(file=file), wanted) == [(1, 30, 5), (2, 10, 6), (3, 20, 7)]


def test_missing_system_columns_are_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", ("a", integers(1), 1))
    with pytest.raises(CorruptFileError, match="snapshot id"):
        rows(FileTask(file=file, snapshot_filter=6), shape(A))
    with pytest.raises(CorruptFileError, match="row ids"):
        rows(FileTask(file=replace(file, row_id_start=None)), shape(A, virtual=("rowid",)))
    assert rows(FileTask(file=replace(file, row_id_start=None)), shape(A)) == [(1,)]


@pytest.mark.parametrize("most", [0, 500, 1 << 30])
@pytest.mark.parametrize("batch_rows", [7, 64, 1000])
def test_columns_are_decoded_in_two_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, batch_rows: int) -> None:
    monkeypatch.setattr(file_reader, "_HELD_BYTES", most)
    monkeypatch.setattr(decoding, "BATCH_ROWS", batch_rows)
    strings = pa.array([f"{number}" * (number % 5) for number in range(1000)])
    file = write(tmp_path / "a.parquet", ("a", integers(*range(1000)), 1), ("b", strings, 2), row_group_size=300)
    task = FileTask(file=replace(file, inlined_deletes=(0, 3, 640, 641, 999)))
    for where, wanted in (
        ("a >= 0", range(1000)),
        ("a >= 290 AND a < 310 OR a = 650", [*range(290, 310), 650]),
        ("a IN (1, 2, 3, 299, 998)", [1, 2, 3, 299, 998]),
        ("a < 0", []),
    ):
        found = rows(task, replace(shape(A, B, where=where, virtual=("file_row_number",)), schema=Schema(columns=(B,))))
        assert found == [(strings[number].as_py(), number) for number in wanted if number not in (0, 3, 640, 641, 999)], where


def test_few_rows_wait_for_the_second_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "_HELD_BYTES", 1000)
    monkeypatch.setattr(decoding, "BATCH_ROWS", 100)
    file = write(tmp_path / "a.parquet", ("a", integers(*range(1000)), 1), ("b", pa.array(["text"] * 1000), 2))
    decoded, batches = decoding.decoded, list[list[str]]()

    def noting(*given: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        for batch in decoded(*given, **how):
            batches.append(batch.schema.names)
            yield batch

    monkeypatch.setattr(file_reader, "decoded", noting)
    found = read_task(FileTask(file=file), shape(A, B, where="a >= 0"), STORAGE, threads=False)
    assert next(found).num_rows == 100
    assert batches == [["a"], ["b"]]
    assert sum(batch.num_rows for batch in found) == 900


def test_nothing_is_decoded_behind_the_last_wanted_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "BATCH_ROWS", 100)
    file = write(tmp_path / "a.parquet", ("a", integers(*range(1000)), 1), ("b", pa.array(["text"] * 1000), 2), row_group_size=500)
    decoded, counts = decoding.decoded, list[int]()

    def noting(*given: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        for batch in decoded(*given, **how):
            counts.extend([batch.num_rows] * (batch.schema.names == ["b"]))
            yield batch

    monkeypatch.setattr(file_reader, "decoded", noting)
    wanted = [504, 505, 649]
    assert [number for number, _ in rows(FileTask(file=file), shape(A, B, where="a IN (504, 505, 649)"))] == wanted
    assert counts == [75, 75]


@pytest.mark.parametrize(("columns", "where"), [((A, B), None), ((A, B), "a >= 90 AND a < 260"), ((B,), None)])
def test_rows_that_the_footer_does_not_count(tmp_path: Path, columns: tuple[Field, ...], where: str | None) -> None:
    path = tmp_path / "a.parquet"
    strings = pa.array([f"{number}" for number in range(300)])
    file = replace(write(path, ("a", integers(*range(300)), 1), ("b", strings, 2), row_group_size=100), inlined_deletes=(250,))
    content, found = path.read_bytes(), tuple[int, ...]()
    # 100 as it stands for the rows of the first row group, among others, becomes 120.
    for offset in [offset for offset in range(len(content)) if content[offset : offset + 2] == b"\xc8\x01"]:
        path.write_bytes(content[:offset] + b"\xf0\x01" + content[offset + 2 :])
        try:
            footer = pq.read_metadata(path)
        except (OSError, pa.ArrowInvalid):
            continue
        found = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
        if found == (120, 100, 100):
            break
    assert found == (120, 100, 100)
    with pytest.raises(CorruptFileError, match=r"rows, but its footer counts|100 values in 120 rows"):
        rows(FileTask(file=file), shape(*columns, where=where))


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    file = write(path, ("a", integers(1), 1), ("spoiled", integers(2), 2))
    path.write_bytes(path.read_bytes().replace(b"spoiled", b"\xff" * 7))
    with pytest.raises(CorruptFileError, match="not UTF-8"):
        rows(FileTask(file=file), shape(A))


def test_damage_raises_an_error_of_the_library(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    file = write(path, ("a", pa.array(range(10_000), pa.int32()), 1))
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 5000 + content[5004:])
    with pytest.raises(StorageError, match=r"a\.parquet"):
        rows(FileTask(file=file), shape(A))
    path.write_bytes(content[:200])
    with pytest.raises(CorruptFileError, match="is not a Parquet file, or is truncated"):
        rows(FileTask(file=file), shape(A))
    path.unlink()
    with pytest.raises(NotFoundError, match=r"a\.parquet"):
        rows(FileTask(file=file), shape(A))


def test_values_that_do_not_fit_are_named(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", ("a", pa.array(["one"]), 1))
    with pytest.raises(SchemaError, match="'a'"):
        rows(FileTask(file=file), shape(A))
    with pytest.raises(SchemaError, match="'a'"):
        rows(FileTask(file=file), shape(replace(A, type=ListType(element=Field(id=2, name="element", type=BOOLEAN)))))


@pytest.mark.slow
def test_time_grows_with_the_columns_and_not_with_their_square(tmp_path: Path) -> None:
    def seconds(columns: int) -> float:
        names = [f"c{number}" for number in range(columns)]
        with DuckLake.create(f"sqlite:///{tmp_path}/{columns}.sqlite", data_path=f"{tmp_path}/{columns}/") as lake:
            lake.write("t", pa.table([pa.array([1])] * columns, names=names), inline=False)
            best = float("inf")
            for _ in range(3):
                started = time.process_time()
                assert lake.table("t").scan().to_arrow().num_columns == columns
                best = min(best, time.process_time() - started)
            return best

    assert seconds(6000) < 16 * seconds(750)
