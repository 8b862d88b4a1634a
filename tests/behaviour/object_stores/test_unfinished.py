"""Uploads to S3 that a killed process never finished: the orphan sweep aborts those that are old enough, below the data path alone."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from ducklake_core.errors import UsageError
from ducklake_core.format.files.paths import new_file_name, write_id
from ducklake_core.storage.limited_s3 import LimitedS3FileSystem
from ducklake_core.storage.unfinished import abort_upload, sweep, unfinished_uploads
from tests.behaviour.object_stores.work import found, numbered, table_of
from tests.support.object_stores import s3_store
from tests.support.oracle import LakeAddress
from tests.support.s3 import S3Server

_NOW = timedelta(0)
KILLED = """
import os, sys
from tests.support.s3 import S3Server
sink = S3Server(endpoint=sys.argv[1], root=None).storage(default_block_size=5 * 2**20).open_output(sys.argv[2])
sink.write(bytes(12 * 2**20))
os._exit(9)
"""


def begin(s3: S3Server, *paths: str) -> None:
    filesystem, _ = s3.storage().filesystem("s3://lake/")
    for path in paths:
        bucket, key, _ = filesystem.split_path(path)
        filesystem.call_s3("create_multipart_upload", Bucket=bucket, Key=key)


def paths_below(s3: S3Server, prefix: str) -> list[str]:
    return sorted(upload.path for upload in unfinished_uploads(s3.storage(), prefix))


def test_of_a_killed_process(sqlite_address: LakeAddress, s3: S3Server) -> None:
    address = s3_store(s3).lake(sqlite_address, "killed", "s3a")
    lake = s3_store(s3).create(address)
    lake.write("t", table_of(numbered(0, 10)))
    path, sibling = (f"{base}main/t/{new_file_name(write_id())}" for base in (address.data_path, "s3://lake/killed2/"))
    died = subprocess.run([sys.executable, "-c", KILLED, s3.endpoint, path], check=False, timeout=240)
    assert died.returncode == 9
    begin(s3, path, sibling, f"{address.data_path}x/notes.txt", f"{address.data_path}x/mine.parquet")
    before = set(lake.storage.list(address.data_path))
    plan = lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW, dry_run=True)
    assert [upload.path for upload in plan.uploads] == [path, path]
    assert (plan.files, plan.uploads_unknown) == ((), None)
    assert f"would abort the upload of {path}" in str(plan)
    assert not lake.delete_orphaned_files(older_than=timedelta(hours=2)).uploads
    with pytest.raises(UsageError):
        lake.delete_orphaned_files(older_than=timedelta(minutes=1))
    assert len(paths_below(s3, address.data_path)) == 4
    done = lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW)
    assert (done.uploads, done.failed) == (plan.uploads, ())
    assert f"aborted the upload of {path}" in str(done)
    assert paths_below(s3, address.data_path) == [f"{address.data_path}x/mine.parquet", f"{address.data_path}x/notes.txt"]
    assert abort_upload(lake.storage, plan.uploads[0]) is None
    assert len(lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW, every_parquet=True).uploads) == 1
    assert paths_below(s3, "s3://lake/killed2") == [sibling]
    assert (set(lake.storage.list(address.data_path)), found(lake)) == (before, numbered(0, 10))
    lake.close()


def test_a_store_without_upload_listings(sqlite_address: LakeAddress, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or does not let them be aborted: files are swept all the same."""
    lake = s3_store(s3).create(s3_store(s3).lake(sqlite_address, "untold"))
    path = f"{lake.info.data_path}main/t/{new_file_name(write_id())}"
    begin(s3, path)
    real, rejected = LimitedS3FileSystem.call_s3, "list_multipart_uploads"

    def call(self: Any, method: str, *given: Any, **named: Any) -> Any:
        if method == rejected:
            raise PermissionError(f"{method} is not allowed")
        return real(self, method, *given, **named)

    monkeypatch.setattr(LimitedS3FileSystem, "call_s3", call)
    for _ in range(2):
        with lake.storage.open_output(path) as sink:
            sink.write(b"x")
        done = lake.delete_orphaned_files(older_than=_NOW, min_age=_NOW)
        assert [file.path for file in done.files] == [path]
        if rejected == "list_multipart_uploads":
            assert "is not allowed" in str(done.uploads_unknown)
            assert "unfinished uploads could not be listed" in str(done)
            assert not done.uploads
        else:
            assert done.uploads_unknown is None
            assert [(left.path, "is not allowed" in left.reason) for left in done.failed] == [(path, True)]
        rejected = "abort_multipart_upload"
    lake.close()


def test_many(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one answer holds; and those of one write, which sweeping after it failed aborts."""
    mark = write_id()
    mine = sorted(f"s3://lake/many/{new_file_name(mark)}" for _ in range(7))
    other = f"s3://lake/many/{new_file_name(write_id())}"
    begin(s3, *mine, other)
    real = LimitedS3FileSystem.call_s3

    def call(self: Any, method: str, *given: Any, **named: Any) -> Any:
        return real(self, method, *given, **({"MaxUploads": 3} | named if method == "list_multipart_uploads" else named))

    monkeypatch.setattr(LimitedS3FileSystem, "call_s3", call)
    assert paths_below(s3, "s3://lake/many/") == sorted([*mine, other])
    kept = mine[0].rpartition("/")[2]
    sweep(s3.storage(), "s3://lake/many/", mark, keep=frozenset([kept]))
    assert paths_below(s3, "s3://lake/many/") == [other]


def test_where_there_are_none(sqlite_address: LakeAddress, s3: S3Server) -> None:
    assert list(unfinished_uploads(s3.storage(), "s3://lake/nothing/here/")) == []
    assert list(unfinished_uploads(s3.storage(), sqlite_address.data_path)) == []
