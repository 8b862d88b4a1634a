"""Paths, listings, deletes and messages of the storage package."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsspec
import pytest

from ducklake_core.errors import NotFoundError, StorageError, UnsupportedFeatureError
from ducklake_core.format.files.paths import file_key
from ducklake_core.storage.filesystems import Storage, StorageOptions, printable, protocol_of

SECRET = "wJalrXUtnFEMI/K7MDENG"
OPTIONS = StorageOptions(by_protocol={"s3a": {"key": "AKIAEXAMPLE", "secret": SECRET, "client_kwargs": {"token": "tok-en-value"}}})


def test_secrets_are_in_no_text() -> None:
    for text in (repr(OPTIONS), str(OPTIONS), repr(Storage(options=OPTIONS))):
        assert SECRET not in text
        assert "tok-en-value" not in text
        assert "secret" in text
    assert OPTIONS.for_protocol("s3")["secret"] == SECRET


def test_storage_survives_pickling() -> None:
    storage = Storage(options=OPTIONS)
    assert pickle.loads(pickle.dumps(storage)) == storage


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_local_files_live_and_die(tmp_path: Path, prefix: str) -> None:
    storage = Storage()
    path = f'{prefix}{tmp_path}/a=1%20ä/we"ird.parquet'
    with storage.open_output(path) as output:
        output.write(b"hello")
    assert storage.exists(path)
    assert storage.size(path) == 5
    with storage.open_input(path) as source:
        assert source.read() == b"hello"
    (found,) = storage.list(f"{prefix}{tmp_path}/")
    assert (found.path, found.size) == (f'{tmp_path}/a=1%20ä/we"ird.parquet', 5)
    assert found.modified is not None
    assert abs(found.modified - datetime.now(UTC)) < timedelta(minutes=5)
    result = storage.delete([path, path, f"{tmp_path}/never"])
    assert result.deleted == (path,)
    assert result.missing == (path, f"{tmp_path}/never")
    assert result.failed == ()
    assert not storage.exists(path)


def test_files_of_this_machine_by_any_url(tmp_path: Path) -> None:
    file = tmp_path / "x"
    for path in (f"file://localhost{file}", f"file:{file}", f"local://{file}", f"/{file}", f"file:///{file}"):
        file.write_bytes(b"hello")
        assert file_key(path) == file_key(str(file))
        assert (Storage().size(path), Storage().identity(path)) == (5, Storage().identity(str(file)))
        assert Storage().delete([path]).deleted == (path,)
        assert not file.exists()
    assert Storage().identity(str(file)) is None


@pytest.mark.parametrize("odd", ["a\0b", "\ud800"])
def test_invalid_file_names(tmp_path: Path, odd: str) -> None:
    path, other = f"{tmp_path}/{odd}", tmp_path / "other"
    other.touch()
    done = Storage().delete([path, str(other), f"{tmp_path}/"])
    assert (done.deleted, [failed for failed, _ in done.failed]) == ((str(other),), [path, f"{tmp_path}/"])
    with pytest.raises(StorageError):
        Storage().size(path)
    with pytest.raises(StorageError):
        Storage().open_input(path)


def test_other_stores_go_through_fsspec() -> None:
    storage = Storage()
    path = "memory://lake-test/main/t/x.parquet"
    with storage.open_output(path) as output:
        output.write(b"12345678")
    try:
        assert storage.size(path) == 8
        with storage.open_input(path) as source:
            source.seek(6)
            assert source.read() == b"78"
        assert [(f.path, f.size) for f in storage.list("memory://lake-test/")] == [(path, 8)]
        assert list(storage.list("memory://lake-nowhere/")) == []
        assert storage.delete([path, "memory://lake-test/none"]).missing == ("memory://lake-test/none",)
        assert not storage.exists(path)
    finally:
        fsspec.filesystem("memory").store.clear()


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"nothing\.parquet"):
        Storage().open_input(f"{tmp_path}/nothing.parquet")
    with pytest.raises(NotFoundError, match=r"nothing\.parquet"):
        Storage().size(f"{tmp_path}/nothing.parquet")
    assert list(Storage().list(f"{tmp_path}/no-such-directory/")) == []


def test_one_failure_does_not_stop_the_other_deletes(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    result = Storage().delete([f"{tmp_path}/directory", f"{tmp_path}/file"])
    assert result.deleted == (f"{tmp_path}/file",)
    ((path, reason),) = result.failed
    assert path == f"{tmp_path}/directory"
    assert "cannot delete" in reason


def test_many_deletes_are_reported_in_the_order_of_their_paths(tmp_path: Path) -> None:
    every = [f"{tmp_path}/{number}" for number in range(300)]
    for path in every[::3]:
        Path(path).touch()
    for path in every[1::3]:
        Path(path).mkdir()
    done = Storage().delete(every)
    assert (done.deleted, done.missing) == (tuple(every[::3]), tuple(every[2::3]))
    assert tuple(path for path, _ in done.failed) == tuple(every[1::3])
    assert Storage().delete([]).deleted == ()


def test_store_errors_carry_no_secret(tmp_path: Path) -> None:
    storage = Storage(options=OPTIONS)
    with pytest.raises(StorageError) as caught, storage.reporting("write", f"s3://me:{SECRET}@bucket/x"):
        raise OSError(f"signature of {SECRET} is wrong")
    error: BaseException | None = caught.value
    assert "cannot write s3://bucket/x" in str(error)
    while error is not None:
        assert SECRET not in f"{error!r} {error}"
        error = error.__cause__
    assert caught.value.__suppress_context__
    blocked = tmp_path / "a-file"
    blocked.write_bytes(b"")
    with pytest.raises(StorageError, match="cannot create"):
        storage.open_output(f"{blocked}/x.parquet")


def test_programming_errors_are_not_storage_errors() -> None:
    with pytest.raises(KeyError), Storage().reporting("write", "/x"):
        raise KeyError("a bug")


def test_unknown_protocols_raise() -> None:
    with pytest.raises(UnsupportedFeatureError, match="nosuch"):
        Storage().filesystem("nosuch://bucket/x")


def test_paths_for_people_and_for_stores() -> None:
    assert printable("https://h/x?sig=abc") == "https://h/x"
    assert protocol_of("abfss://c@a.dfs.core.windows.net/x") == "abfs"
