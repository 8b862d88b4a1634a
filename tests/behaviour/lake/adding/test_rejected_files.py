"""Files that cannot be added, and their errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_core.errors import (
    CorruptFileError,
    DuckLakeError,
    NotFoundError,
    SchemaError,
    UnsupportedFeatureError,
    UsageError,
)
from tests.behaviour.foreign_files.added import numbered, put
from tests.behaviour.lake.adding.samples import AB, ABG, NESTED, A, prepared
from tests.support.oracle import LakeAddress


def touch(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


REJECTED: dict[str, tuple[str, Callable[[Path], Any], dict[str, Any], type[DuckLakeError], str]] = {
    "nothing there": (AB, lambda f: f / "none.parquet", {}, NotFoundError, "No file to add"),
    "an empty folder": (AB, lambda f: f, {}, NotFoundError, "No file to add"),
    "a pattern without files": (AB, lambda f: str(f / "*.parquet"), {}, NotFoundError, "No file to add"),
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
    "hugeint": ("CREATE TABLE t (a HUGEINT, b VARCHAR)", lambda f: put(f / "f.parquet", A), {}, UnsupportedFeatureError,
        "int128.*no Parquet"),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_files_that_cannot_be_added_raise(sqlite_address: LakeAddress, folder: Path, name: str) -> None:
    ddl, make, options, error, message = REJECTED[name]
    lake = prepared(sqlite_address, ddl)
    before = lake.snapshot().id
    paths = make(folder)
    with pytest.raises(error, match=message):
        lake.add_data_files("t", paths, **options)
    assert lake.snapshot().id == before
    assert lake.table("t").list_files() == []
