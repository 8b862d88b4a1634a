"""Data files in a real S3 server: written, read, listed and deleted through fsspec, with credentials that show nowhere."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.engines.arrow.write import write_table
from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.errors import DuckLakeError, NotFoundError
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.types.arrow_types import from_arrow_schema
from ducklake_core.format.types.schema import with_ids
from ducklake_core.storage.parquet_footer import read_footer
from tests.support.s3 import S3Server

TABLE = pa.table({"k": ["ä/1", "b", "ä/1"], "v": pa.array([1, 2, 3])})


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_files_of_a_partitioned_table(s3: S3Server, scheme: str) -> None:
    storage = s3.storage()
    spec = PartitionSpec(id=1, fields=(PartitionField(column="k", column_id=1, transform="identity"),))
    directory = f"{scheme}://lake/{scheme}/main/t/"
    state = WriteState(
        table="main.t", directory=directory, schema=with_ids(from_arrow_schema(TABLE.schema)), partition_spec=spec, storage=storage
    )
    files = write_table(TABLE, state)
    assert {file.path.rpartition("/")[0]: file.record_count for file in files} == {"k=%C3%A4%2F1": 2, "k=b": 1}
    assert {f.path: f.size for f in storage.list(directory)} == {directory + file.path: file.file_size_bytes for file in files}
    for file in files:
        path = directory + file.path
        footer = read_footer(storage, path)
        assert (footer.record_count, footer.footer_size) == (file.record_count, file.footer_size)
        with storage.open_input(path) as source:
            assert set(pq.ParquetFile(source).read().column("k").to_pylist()) == {file.partition_values[0]}
    result = storage.delete([*(directory + file.path for file in files), f"{directory}nothing"])
    assert (len(result.deleted), result.missing, result.failed) == (2, (f"{directory}nothing",), ())
    assert list(storage.list(directory)) == []
    with pytest.raises(NotFoundError):
        storage.open_input(directory + files[0].path)


def test_refused_credentials_are_not_shown(s3: S3Server) -> None:
    wrong = s3.storage("a-wrong-secret-key")
    state = WriteState(table="main.t", directory="s3://lake/x/", schema=with_ids(from_arrow_schema(TABLE.schema)), storage=wrong)
    with pytest.raises(DuckLakeError) as caught:
        write_table(TABLE, state)
    assert "s3://lake/x/" in str(caught.value)
    assert "a-wrong-secret-key" not in repr(caught.value) + str(caught.value)
