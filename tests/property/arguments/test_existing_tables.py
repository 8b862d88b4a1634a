"""Settings of a new table, given for an existing one: accepted when equal, rejected otherwise, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import NotFoundError, SchemaError, UsageError
from tests.support.oracle import LakeAddress, attached

ROWS = pa.table({"k": [1, 2], "b": ["x", "y"]})


@pytest.fixture
def lake(lake_address: LakeAddress) -> Iterator[DuckLake]:
    made = DuckLake.create(lake_address.url, data_path=lake_address.data_path)
    made.write("t", ROWS, partition_by=["bucket(4, k)"], comment="mine", inline=False)
    yield made
    made.close()


def test_the_same_is_fine(lake: DuckLake) -> None:
    lake.write("t", ROWS, partition_by=["BUCKET( 4, K )"], comment="mine")
    lake.write("t", ROWS, mode="overwrite", partition_by="bucket(4,k)")
    assert lake.table("t").scan().count() == 2


def test_other_keys_and_comments_raise(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("plain", ROWS)
    before, files = lake.snapshot().id, list(Path(lake_address.data_path).rglob("*.parquet"))
    for keys in (["k"], ["bucket(8, k)"], ["bucket(4, k)", "b"]):
        with pytest.raises(UsageError, match=r"main\.t is partitioned by bucket\(4, k\), not by .*set_partitioned_by"):
            lake.write("t", ROWS, partition_by=keys, inline=False)
    with pytest.raises(UsageError, match=r"main\.plain exists and is not partitioned, but partition_by is"):
        lake.write("plain", ROWS, partition_by="b")
    with pytest.raises(NotFoundError, match="nope"):
        lake.write("t", ROWS, partition_by="nope")
    with pytest.raises(UsageError, match=r"main\.t has another comment.*set_comment"):
        lake.write("t", ROWS, comment="yours")
    with pytest.raises(UsageError, match="comment"), lake.transaction() as tx:
        tx.write("t", ROWS, comment="yours")
    assert (lake.snapshot().id, list(Path(lake_address.data_path).rglob("*.parquet"))) == (before, files)


def test_changes_of_another_writer_count(lake: DuckLake, lake_address: LakeAddress) -> None:
    with attached(lake_address) as duck:
        duck.run("ALTER TABLE t SET PARTITIONED BY (b)", "COMMENT ON TABLE t IS 'by DuckDB'")
    lake.write("t", ROWS, partition_by=["b"], comment="by DuckDB")
    with pytest.raises(UsageError, match="is partitioned by b, not by"):
        lake.write("t", ROWS, partition_by=["bucket(4, k)"])


def test_a_column_that_the_same_write_adds(lake: DuckLake) -> None:
    wider = ROWS.append_column("z", pa.array([1, 2]))
    with pytest.raises(UsageError, match="not by z"):
        lake.write("t", wider, partition_by=["z"], schema_evolution="additive")
    assert list(lake.table("t").schema.names) == ["k", "b"]


def test_invalid_utf8_is_never_written(lake: DuckLake, lake_address: LakeAddress) -> None:
    """Arrow strings may hold invalid UTF-8; DuckDB does not read a file with it."""
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    columns = [broken, broken.dictionary_encode(), pa.StructArray.from_arrays([broken], ["x"]), pa.ListArray.from_arrays([0, 1], broken)]
    lake.create_table("strings", pa.schema([("b", pa.string())]))
    lake.create_table("structs", pa.schema([("b", pa.struct([("x", pa.string())]))]))
    lake.create_table("lists", pa.schema([("b", pa.list_(pa.string()))]))
    for name, column in zip(("strings", "strings", "structs", "lists"), columns, strict=True):
        for inline in (True, False):
            with pytest.raises(SchemaError, match=rf"cannot write to main\.{name}: column 'b' has values that are not strings"):
                lake.write(name, pa.table({"b": column}), inline=inline)
        assert lake.table(name).scan().count() == 0
    with attached(lake_address) as duck:
        assert duck.value("SELECT count(*) FROM strings") == 0
