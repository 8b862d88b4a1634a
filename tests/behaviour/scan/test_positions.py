"""Positions of rows to delete: keys, late commits and predicates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.engines.arrow.positions import DeleteTarget, find_positions, key_set, rewrite_delete_file
from ducklake_core.errors import NotFoundError, SchemaError, UnsupportedFeatureError, UsageError
from ducklake_core.format.files.data_files import DeleteFile
from ducklake_core.format.types.data_types import FLOAT64, INT64, UUID, VARCHAR, Field, ListType
from ducklake_core.format.types.schema import Schema
from ducklake_core.storage.delete_files import read_delete_file
from tests.support.oracle import LakeAddress, attached
from tests.support.scans import STORAGE, open_lake


def column(name: str, data_type: object, number: int) -> Field:
    return Field(id=number, name=name, type=data_type)  # type: ignore[arg-type]


KEYS = Schema(columns=(column("n", INT64, 1), column("x", FLOAT64, 2), column("v", VARCHAR, 3), column("u", UUID, 4)))


def test_keys_are_compared_in_the_types_of_the_table() -> None:
    source = pa.table({"N": pa.array([1, 2], pa.int8()), "x": [0.0, float("nan")]})
    batch = pa.record_batch({"n": pa.array([1, 2, 2, 1, None]), "x": [-0.0, float("nan"), 1.0, None, 0.0]})
    assert key_set(source, ["n", "x"], KEYS).contains(batch).to_pylist() == [True, True, False, False, False]
    assert key_set(source, ["x"], KEYS).contains(batch.select(["x"])).to_pylist() == [True, True, False, False, True]


def test_uuid_keys() -> None:
    text = "b8888f6d-9c7f-4026-b8e2-722c695e2053"
    held = pa.array([bytes.fromhex(text.replace("-", "")), None], pa.binary(16)).cast(pa.uuid())
    keys = key_set(pa.table({"u": [text.upper()]}), ["u"], KEYS)
    assert keys.contains(pa.record_batch({"u": held})).to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("source", "on", "error", "message"),
    [
        (pa.table({"n": [1, None]}), ["n"], UsageError, "NULL"),
        (pa.table({"n": [1, 1], "v": ["a", "a"]}), ["n", "v"], UsageError, "more than once"),
        (pa.table({"v": ["a"]}), ["n"], SchemaError, "'n'"),
        (pa.table({"n": [1]}), ["nothing"], NotFoundError, "nothing"),
    ],
)
def test_invalid_keys_raise(source: pa.Table, on: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        key_set(source, on, KEYS)


def test_nested_keys_raise() -> None:
    schema = Schema(columns=(column("l", ListType(element=column("element", INT64, 2)), 1),))
    with pytest.raises(UnsupportedFeatureError, match="'l'"):
        key_set(pa.table({"l": [[1]]}), ["l"], schema)


def test_late_commit_rewrites_only_its_own_snapshot(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(
            "CREATE TABLE t AS SELECT i::INTEGER AS a FROM range(100) r(i)", "DELETE FROM t WHERE a < 10", "DELETE FROM t WHERE a < 20"
        )
    lake = open_lake(sqlite_address)
    plan = lake.scan("t", columns=["a"], where="a < 30").plan().plan
    directory = plan.tasks[0].file.path.rpartition("/")[0] + "/"
    target = DeleteTarget(directory=directory, data_path=sqlite_address.data_path, write_id="0198c1f20000000000c0ffee", assumed_snapshot=4)
    (staged,) = find_positions(plan, target, STORAGE).delete_files
    assert (staged.delete_count, staged.new_count, staged.min_snapshot, staged.assumed_snapshot) == (30, 10, 2, 4)
    moved = rewrite_delete_file(staged, 9, target, STORAGE)
    assert moved.path != staged.path
    assert moved.assumed_snapshot == 9
    file = DeleteFile(
        id=0, data_file_id=0, path=directory + moved.path, format="parquet", delete_count=30, file_size_bytes=0,
        footer_size=None, begin_snapshot=2
    )  # fmt: skip
    found = read_delete_file(STORAGE, file)
    assert found.positions.tolist() == list(range(30))
    assert found.snapshots is not None
    assert found.snapshots.tolist() == [2] * 10 + [3] * 10 + [9] * 10
    assert np.array_equal(found.visible_at(8), np.arange(20))
    with pytest.raises(UsageError):
        rewrite_delete_file(_first(staged), 9, target, STORAGE)


def _first(staged: object) -> object:
    from dataclasses import replace

    return replace(staged, assumed_snapshot=None)  # type: ignore[type-var]


def test_sql_only_predicates_need_spark(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t AS SELECT i AS a FROM range(10) r(i)")
    with pytest.raises(UnsupportedFeatureError, match=r"(?i)md5"):
        DuckLake.connect(sqlite_address.url).table("t").delete("md5(CAST(a AS VARCHAR)) = 'x'")
