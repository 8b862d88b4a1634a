"""Damaged files: each one is rejected with an error of this library that names it, or read; none ends the process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from thrift.Thrift import TType

from ducklake_core import DuckLake
from ducklake_core.errors import CorruptFileError, DuckLakeError, UnsupportedFeatureError
from ducklake_core.storage.encryption.compact import Items, Struct
from tests.behaviour.foreign_files.added import put
from tests.support.lakes import lake_of_files
from tests.support.oracle import LakeAddress
from tests.support.parameters import slow
from tests.support.parquet_bytes import (
    CHUNK_METADATA,
    COLUMNS,
    CRYPTO,
    NAME,
    ROW_GROUPS,
    SCHEMA,
    change_footer,
    chunks_of,
    rename,
)  # fmt: skip

DATA = pa.table({"a": pa.array([1, 2, 3], pa.int32()), "b": ["x", "y", None]})


@pytest.mark.parametrize(
    ("kind", "seeds"), [("footer", 60), slow("footer", 10_000), ("pages", 30), slow("pages", 3000), slow("writers", 2000)]
)
def test_no_damage_ends_the_process(tmp_path: Path, kind: str, seeds: int) -> None:
    command = [sys.executable, "-m", "tests.behaviour.foreign_files.damage", str(tmp_path), kind, "0", str(seeds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit code {done.returncode} at seed {(tmp_path / 'seed').read_text()}\n{done.stderr[-3000:]}"
    found = json.loads(done.stdout)
    assert found["added"] + found["not added"] == found["read"] + found["not read"] == seeds
    assert min(found["added"], found["read"], found["not read"]) > 0


def without(number: int) -> Callable[[Struct], None]:
    return lambda tree: tree.structs(ROW_GROUPS)[0].structs(COLUMNS)[0].drop(number)


def encrypted_column(tree: Struct) -> None:
    tree.structs(ROW_GROUPS)[0].structs(COLUMNS)[0][CRYPTO] = (TType.STRUCT, Struct({1: (TType.STRUCT, Struct())}))


def encrypted_file(tree: Struct) -> None:
    tree[8] = (TType.STRUCT, Struct({1: (TType.STRUCT, Struct())}))


def fewer_columns(tree: Struct) -> None:
    columns = tree.structs(ROW_GROUPS)[0][COLUMNS][1]
    assert isinstance(columns, Items)
    columns.values.pop()


def in_another_file(tree: Struct) -> None:
    tree.structs(ROW_GROUPS)[0].structs(COLUMNS)[1][1] = (TType.STRING, b"other.parquet")


def chunk_number(number: int, value: int) -> Callable[[Struct], None]:
    return lambda tree: next(chunks_of(tree, 0)).update({number: (TType.I64, value)})


def node(number: int, value: int) -> Callable[[Struct], None]:
    return lambda tree: tree.structs(SCHEMA)[1].update({number: (TType.I32, value)})


DAMAGE: dict[str, tuple[Callable[[Struct], None], type[DuckLakeError], str]] = {
    "an encrypted column": (encrypted_column, UnsupportedFeatureError, "column 'a' of .* is encrypted"),
    "encrypted columns": (encrypted_file, UnsupportedFeatureError, "is encrypted"),
    "no metadata of a column": (without(CHUNK_METADATA), CorruptFileError, "column 'a' has no metadata"),
    "fewer columns": (fewer_columns, CorruptFileError, "1 columns, the schema has 2"),
    "another file": (in_another_file, UnsupportedFeatureError, "'b' .*in another file"),
    "fewer values": (chunk_number(5, 2), CorruptFileError, "2 values in 3 rows"),
    "beyond the end": (chunk_number(7, 1 << 40), CorruptFileError, "beyond the data"),
    "a negative size": (chunk_number(7, -1), CorruptFileError, "-1 bytes"),
    "another physical type": (chunk_number(1, 6), CorruptFileError, "another column where 'a'"),
    "an unknown physical type": (node(1, 9), CorruptFileError, "physical type 9"),
    "an unknown repetition": (node(3, 3), CorruptFileError, "repetition type 3"),
    "more children than nodes": (node(5, 7), CorruptFileError, "ends within its tree"),
    "no name": (lambda tree: tree.structs(SCHEMA)[1].drop(NAME), CorruptFileError, "no name"),
    "no schema": (lambda tree: tree.drop(SCHEMA), CorruptFileError, "footer"),
}  # fmt: skip


@pytest.fixture
def lake(sqlite_address: LakeAddress) -> DuckLake:
    created = lake_of_files(sqlite_address)
    created.create_table("t", DATA.schema)
    return created


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_footers_are_rejected(lake: DuckLake, tmp_path: Path, name: str) -> None:
    change, error, message = DAMAGE[name]
    path = change_footer(put(tmp_path / "f.parquet", DATA), change)
    with pytest.raises(error, match=message) as caught:
        lake.add_data_files("t", path)
    assert "f.parquet" in str(caught.value)
    assert lake.table("t").list_files() == []


@pytest.mark.parametrize("name", DAMAGE)
def test_footers_damaged_later_are_read_or_reported(lake: DuckLake, tmp_path: Path, name: str) -> None:
    # A filter reads the statistics of several row groups only.
    path = put(tmp_path / "f.parquet", pa.concat_tables([DATA, DATA]), row_group_size=len(DATA))
    lake.add_data_files("t", path)
    change_footer(path, DAMAGE[name][0])
    with pytest.raises(DuckLakeError, match=r"f\.parquet"):
        lake.table("t").scan(where="a = 2").to_arrow()
    assert [finding.code for finding in lake.check(level="footers").findings][:1] == ["footer-unreadable"]


def test_encrypted_footers_are_rejected(lake: DuckLake, tmp_path: Path) -> None:
    path = put(tmp_path / "f.parquet", DATA)
    path.write_bytes(path.read_bytes()[:-4] + b"PARE")
    with pytest.raises(UnsupportedFeatureError, match=r"f\.parquet is encrypted"):
        lake.add_data_files("t", path)


@pytest.mark.parametrize("length", [2**31 - 1, 2**32 - 1, 5_000])
def test_footers_longer_than_the_file(lake: DuckLake, tmp_path: Path, length: int) -> None:
    path = put(tmp_path / "f.parquet", DATA)
    path.write_bytes(path.read_bytes()[:-8] + length.to_bytes(4, "little") + b"PAR1")
    with pytest.raises(CorruptFileError, match=r"f\.parquet has \d+ bytes, but its footer has"):
        lake.add_data_files("t", path)


def test_footers_larger_than_the_first_read(lake: DuckLake, tmp_path: Path) -> None:
    schema = DATA.schema.with_metadata({"comment": "x" * 300_000})
    lake.add_data_files("t", put(tmp_path / "f.parquet", DATA.cast(schema)))
    assert lake.table("t").scan(where="a = 2").to_arrow().num_rows == 1


def test_names_that_are_not_utf_8(lake: DuckLake, tmp_path: Path) -> None:
    path = put(tmp_path / "f.parquet", DATA, store_schema=False)
    with pytest.raises(CorruptFileError, match=r"f\.parquet .*name of column .* is not UTF-8; rename it"):
        lake.add_data_files("t", rename(path, b"a", b"\xe9"))


def test_strings_that_are_not_utf_8(lake: DuckLake, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    data = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([b"x", b"\xe9t\xe9"])})

    def annotated(tree: Struct) -> None:
        tree.structs(SCHEMA)[2][6] = (TType.I32, 0)

    pq.write_table(data, path, store_schema=False)
    lake.add_data_files("t", change_footer(path, annotated))
    for condition in ({}, {"where": "b = 'x'"}, {"where": "a = 2"}, {"columns": ["b"]}):
        found: Any = condition
        with pytest.raises(CorruptFileError, match=r"f\.parquet of table main\.t: column 'b': .*not UTF-8"):
            lake.table("t").scan(**found).to_arrow()
    assert lake.table("t").scan(columns=["a"]).to_arrow().num_rows == 2
