"""Data files in a real S3 server: written, read, listed and deleted through fsspec, with credentials that show nowhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_core.engines.arrow.write_state import WriteState
from ducklake_core.engines.arrow.writer import write_table
from ducklake_core.errors import DuckLakeError, NotFoundError, StorageError
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec
from ducklake_core.format.types.schema import from_arrow_schema, with_ids
from ducklake_core.storage import uploads
from ducklake_core.storage.filesystems import Storage
from ducklake_core.storage.parquet_files import read_footer
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


def test_rejected_credentials_are_not_shown(s3: S3Server) -> None:
    wrong = s3.storage("a-wrong-secret-key")
    state = WriteState(table="main.t", directory="s3://lake/x/", schema=with_ids(from_arrow_schema(TABLE.schema)), storage=wrong)
    with pytest.raises(DuckLakeError) as caught:
        write_table(TABLE, state)
    assert "s3://lake/x/" in str(caught.value)
    with pytest.raises(StorageError, match="cannot list s3://lake/x/"):
        list(wrong.list("s3://lake/x/"))
    assert "a-wrong-secret-key" not in repr(caught.value) + str(caught.value)


def test_files_are_listed_page_by_page_over_all_directories(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is requested after the files of the one before are deleted, so that only one page is held."""
    monkeypatch.setattr(uploads, "_S3_PAGE_KEYS", 3)
    storage = s3.storage()
    made = {f"s3://lake/paged/{'ab'[number % 2]}/{number}.parquet": number for number in range(8)} | {"s3://lake/paged/top.parquet": 8}
    for path, size in made.items():
        with storage.open_output(path) as output:
            output.write(b"x" * size)
    with storage.open_output("s3://lake/paged-other/0.parquet") as output:
        output.write(b"x")
    filesystem, _ = storage.filesystem("s3://lake/")
    pages: list[str] = []
    original = type(filesystem).call_s3

    def counted(self: Any, method: str, *args: Any, **options: Any) -> Any:
        pages.append(method)
        return original(self, method, *args, **options)

    monkeypatch.setattr(type(filesystem), "call_s3", counted)
    files = storage.list("s3://lake/paged/")
    first = [next(files) for _ in range(3)]
    assert pages == ["list_objects_v2"]
    found = [*first, *files]
    assert {file.path: file.size for file in found} == made
    assert len(found) == len(made)
    assert all(file.modified is not None for file in found)
    assert pages == ["list_objects_v2"] * 3
    assert list(storage.list("s3://lake/nothing/")) == []
    with pytest.raises(StorageError, match="bucket or container does not exist"):
        list(storage.list("s3://no-such-bucket/nothing/"))


@pytest.mark.parametrize("token", [None, "same"])
def test_a_listing_without_continuation_token_raises(s3: S3Server, monkeypatch: pytest.MonkeyPatch, token: str | None) -> None:
    storage = s3.storage()
    filesystem, _ = storage.filesystem("s3://lake/")
    page = {"Contents": [], "IsTruncated": True, "NextContinuationToken": token}
    monkeypatch.setattr(type(filesystem), "call_s3", lambda *_args, **_options: page)
    with pytest.raises(StorageError, match="no token to continue the listing"):
        list(storage.list("s3://lake/paged/"))


def test_a_directory_that_cannot_be_listed_is_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store packages leave such directories out by default."""
    storage = Storage()
    filesystem, _ = storage.filesystem("memory://a/")
    filesystem.pipe({"/a/b/1": b"1", "/a/c/2": b"22"})
    assert sorted(file.size for file in storage.list("memory://a/")) == [1, 2]
    assert list(storage.list("memory://nothing/")) == []
    real = type(filesystem).ls

    def denied(self: Any, path: str, **options: Any) -> Any:
        if path.endswith("c"):
            raise PermissionError(path)
        return real(self, path, **options)

    monkeypatch.setattr(type(filesystem), "ls", denied)
    with pytest.raises(StorageError, match="cannot list memory://a/"):
        list(storage.list("memory://a/"))
    for path in ("/a/b/1", "/a/c/2"):
        filesystem.rm_file(path)
