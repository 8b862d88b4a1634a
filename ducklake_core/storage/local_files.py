"""Files on local disk: what one is, and how one goes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.fs as pafs

from ducklake_core.format.files.locations import local_part


def is_no_path(path: str) -> bool:
    """Whether no file can be called like that, as the operating system has no bytes for it.

    >>> is_no_path("/lake/x"), is_no_path("/lake/x\\0y"), is_no_path("/lake/\\ud800")
    (False, True, True)
    """
    try:
        return b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        return True


def identity(path: str) -> tuple[int, int] | None:
    """What is the same for all paths of one file, whatever links and letters they are made of; None where there is no such file."""
    with suppress(OSError, ValueError):
        found = os.stat(local_part(path))
        return found.st_dev, found.st_ino
    return None


def opened(path: str) -> pa.NativeFile | None:
    """A file for random reads; None where that did not work, for whatever reason."""
    with suppress(OSError, ValueError):
        return pafs.LocalFileSystem().open_input_file(local_part(path))
    return None


def was_unlinked(path: str) -> bool:
    """Delete a file; False where that did not work, for whatever reason."""
    with suppress(OSError, ValueError):
        os.unlink(local_part(path))
        return True
    return False


def files_below(directory: str) -> Iterator[os.DirEntry[str]]:
    """All files below a directory, by names in each; none where it is not there. Links to directories are files."""
    pending = [directory]
    while pending:
        try:
            entries = sorted(os.scandir(pending.pop()), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            else:
                yield entry
