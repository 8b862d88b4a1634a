"""Files that a transaction has written: which of them are deleted, and when."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ducklake_core.errors import NotFoundError, StorageError
from ducklake_core.format.files.paths import beginning_of_write
from ducklake_core.storage.filesystems import Storage, printable

LONG_SECONDS = 60.0
"""Seconds after which a transaction asks the store for its files before it commits them: it costs next to nothing of so long a write."""
_ASKED_AT_ONCE = 16


class StagedFiles:
    """Every file that one transaction has written, and that no snapshot names before it commits.

    Four moments delete some of them: a call that fails (its own), a new plan (delete files, which it writes again), a transaction
    that surely failed (all), and a commit (those that its snapshot does not name).  Files that cannot be deleted stay as orphans.
    When the outcome of a commit is unknown, nothing is called and everything stays.

    Args:
        storage: Where the files are.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._data: list[str] = []
        self._deletes: list[str] = []
        self._rewritten: dict[str, str] = {}
        self._opened = time.monotonic()
        self._began = time.time()

    def check_there(self) -> None:
        """Ask the store for the files of a transaction that took long, before they are committed: a sweep may have deleted them.

        Raises:
            StorageError: One is not there any more.
        """
        # One clock stands still while the machine sleeps, the other may be set anew, or be that of another machine.
        if max(time.monotonic() - self._opened, abs(time.time() - self._began)) < LONG_SECONDS:
            return
        gone = self._missing([*self._data, *self._deletes])
        if gone:
            raise StorageError(
                f"{len(gone)} files of this transaction, such as {printable(gone[0])}, are not there any more, so nothing was committed: "
                "delete_orphaned_files takes what is older than the option delete_older_than, which must be longer than the longest write",
                paths=tuple(map(printable, gone)),
            )

    def check_added(self, paths: Sequence[str]) -> None:
        """Check that the store still has files of other writers that are to be added.

        Raises:
            NotFoundError: One was deleted.
        """
        missing = self._missing(paths)
        if missing:
            raise NotFoundError(
                f"{printable(missing[0])} was deleted while it was being added (one of {len(missing):,} such files), so nothing was "
                "committed: delete_orphaned_files or cleanup_old_files of another process took it for a file that nothing needs. Write "
                "the file again, and add it while no such operation runs",
                path=printable(missing[0]),
            )

    def _missing(self, paths: Sequence[str]) -> list[str]:
        with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="there") as pool:
            return [path for path, is_there in zip(paths, pool.map(self._is_there, paths), strict=True) if not is_there]

    def _is_there(self, path: str) -> bool:
        try:
            self._storage.size(path)
        except NotFoundError:
            return False
        return True

    def add_data_files(self, paths: Iterable[str], write_id: str) -> None:
        """Note data files of a write, which may have begun before the transaction; a new plan uses them again."""
        self._data += paths
        self._began = min(self._began, beginning_of_write(write_id))

    def add_delete_files(self, paths: Iterable[str]) -> None:
        """Note delete files; a new plan writes others."""
        self._deletes += paths

    def add_rewritten(self, path: str, new_path: str) -> None:
        """Note the delete file that takes the place of another one, because a commit expects another snapshot id."""
        self._rewritten[path] = new_path
        self._deletes.append(new_path)

    @contextmanager
    def discarding_on_error(self) -> Iterator[None]:
        """When the block fails, delete the files that were noted inside it, so that the transaction can continue without them."""
        data_files, delete_files = len(self._data), len(self._deletes)
        try:
            yield
        except BaseException:
            self._discard_after(data_files, delete_files)
            raise

    @contextmanager
    def discarding_all_on_error(self) -> Iterator[None]:
        """Delete all files when the block fails, with which the transaction fails."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Delete all files, after the transaction surely failed or turned out to be needless."""
        self._discard_after(0, 0)

    def discard_delete_files(self) -> None:
        """Delete all delete files, those that a failed commit has written again among them, before a new plan writes others."""
        self._discard_after(len(self._data), 0)
        self._rewritten = {}

    def discard_unnamed(self, named: Iterable[str]) -> None:
        """Delete the files that the snapshot does not name: data files whose rows were deleted again, and delete files written again.

        Args:
            named: Paths as they were staged; a delete file that was written again since stands for the newest one.
        """
        kept = {self._newest(path) for path in named}
        self._storage.discard([path for path in (*self._data, *self._deletes) if path not in kept])

    def _discard_after(self, data_files: int, delete_files: int) -> None:
        self._storage.discard([*self._data[data_files:], *self._deletes[delete_files:]])
        del self._data[data_files:]
        del self._deletes[delete_files:]

    def _newest(self, path: str) -> str:
        while path in self._rewritten:
            path = self._rewritten[path]
        return path
