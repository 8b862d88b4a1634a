"""Files of a transaction: those of a failed call are deleted at once, and a long transaction verifies that its files are still there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ducklake_core.errors import StorageError
from ducklake_core.format.files.paths import write_id
from ducklake_core.staging import publish
from ducklake_core.staging.publish import StagedFiles
from ducklake_core.storage.filesystems import Storage


@pytest.mark.parametrize(("slept", "set_by"), [(0, 0), (61, 0), (0, 61), (0, -7200)])
def test_files_are_verified_when_either_clock_shows_a_long_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slept: float, set_by: float
) -> None:
    data, staged = tmp_path / "data", StagedFiles(Storage())
    data.write_bytes(b"x")
    staged.add_data_files([str(data)], write_id())
    staged.check_there()
    data.unlink()
    monotonic, wall = time.monotonic(), time.time()
    monkeypatch.setattr(publish.time, "monotonic", lambda: monotonic + slept)
    monkeypatch.setattr(publish.time, "time", lambda: wall + set_by)
    if slept or set_by:
        with pytest.raises(StorageError, match=r"1 file of this transaction, such as .*data, disappeared"):
            staged.check_there()
    else:
        staged.check_there()


def test_a_failing_call_deletes_its_own_files_alone(tmp_path: Path) -> None:
    kept, new, staged = tmp_path / "kept", tmp_path / "new", StagedFiles(Storage())

    def call() -> None:
        with staged.discarding_on_error():
            new.write_bytes(b"x")
            staged.add_data_files([str(new)], write_id())
            raise KeyboardInterrupt

    kept.write_bytes(b"x")
    staged.add_delete_files([str(kept)])
    with pytest.raises(KeyboardInterrupt):
        call()
    assert list(tmp_path.iterdir()) == [kept]
    # What is deleted is forgotten: a file that takes its name later is not this transaction's.
    new.write_bytes(b"x")
    staged.discard()
    assert list(tmp_path.iterdir()) == [new]
