"""Deletion of a transaction's files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ducklake_core.errors import StorageError
from ducklake_core.format.files.paths import write_id
from ducklake_core.staging import publish
from ducklake_core.staging.publish import StagedFiles
from ducklake_core.storage.filesystems import Storage

NAMES = ("data", "more", "delete", "other")


class Files:
    """Two data files and two delete files of one transaction, as they lie on disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.staged = StagedFiles(Storage())
        self.make(*NAMES)
        self.staged.add_data_files(map(self.path, NAMES[:2]), write_id())
        self.staged.add_delete_files(map(self.path, NAMES[2:]))

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def make(self, *names: str) -> None:
        for name in names:
            (self.directory / name).write_bytes(b"x")

    @property
    def left(self) -> set[str]:
        return {path.name for path in self.directory.iterdir()}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_transaction_that_failed_leaves_nothing(files: Files) -> None:
    files.staged.discard()
    assert files.left == set()


def test_a_failing_call_deletes_its_own_files_alone(files: Files) -> None:
    def call() -> None:
        with files.staged.discarding_on_error():
            files.make("new", "hidden")
            files.staged.add_data_files([files.path("new")], write_id())
            files.staged.add_delete_files([files.path("hidden")])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call()
    assert files.left == set(NAMES)
    # What is deleted is forgotten: a file that takes its name later is not this transaction's.
    files.make("new")
    files.staged.discard()
    assert files.left == {"new"}


def test_a_new_plan_keeps_data_files(files: Files) -> None:
    files.make("again")
    files.staged.add_rewritten(files.path("delete"), files.path("again"))
    files.staged.discard_delete_files()
    assert files.left == {"data", "more"}


@pytest.mark.parametrize(("slept", "set_by"), [(0, 0), (61, 0), (0, 61), (0, -7200)])
def test_files_are_verified_when_either_clock_shows_a_long_write(
    files: Files, monkeypatch: pytest.MonkeyPatch, slept: float, set_by: float
) -> None:
    files.staged.check_there()
    (files.directory / "data").unlink()
    monotonic, wall = time.monotonic(), time.time()
    monkeypatch.setattr(publish.time, "monotonic", lambda: monotonic + slept)
    monkeypatch.setattr(publish.time, "time", lambda: wall + set_by)
    if slept or set_by:
        with pytest.raises(StorageError, match=r"1 file of this transaction, such as .*data, disappeared"):
            files.staged.check_there()
    else:
        files.staged.check_there()


def test_a_new_plan_that_breaks_leaves_nothing(files: Files) -> None:
    def plan() -> None:
        with files.staged.discarding_all_on_error():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan()
    assert files.left == set()


def test_a_commit_keeps_what_its_snapshot_names(files: Files) -> None:
    """A delete file that was written again, and again, is named by what was staged first."""
    files.make("again", "last")
    files.staged.add_rewritten(files.path("delete"), files.path("again"))
    files.staged.add_rewritten(files.path("again"), files.path("last"))
    files.staged.discard_unnamed([files.path("data"), files.path("delete")])
    assert files.left == {"data", "last"}
