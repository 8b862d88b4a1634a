"""Paths of a lake: how levels are joined, what directories and files are called (specification: Paths; ducklake_data_file)."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
import uuid
from collections.abc import Sequence
from urllib.parse import quote

from ducklake_core.errors import UsageError
from ducklake_core.format.files.locations import begins_with, is_relative_to_process
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.types.names import folded

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WRITE_ID = re.compile(r"[0-9a-f]{24}", re.ASCII)


def join(base: str, path: str | None, is_relative: bool = True) -> str:
    """The full path of one level below another; a missing path is the level above itself, an absolute one starts anew.

    >>> join("s3://lake/data/", "main/"), join("/data/main/", "/elsewhere/t/", False), join("/data/", None)
    ('s3://lake/data/main/', '/elsewhere/t/', '/data/')

    Paths are joined as they stand, so ``base`` carries its trailing slash; one is added where a lake lacks it.
    """
    if not path:
        return base
    if not is_relative:
        return path
    return as_directory(base) + path


def as_directory(path: str) -> str:
    """A directory's path with a trailing slash, which some lakes lack; an empty one stays so.

    >>> as_directory("s3://lake/data/t"), as_directory("/lake/t/"), as_directory("")
    ('s3://lake/data/t/', '/lake/t/', '')
    """
    return path if not path or path.endswith("/") else f"{path}/"


def absolute_directory(path: str) -> str:
    """Return a directory's path with a trailing slash, and absolute where it is relative to the working directory.

    >>> absolute_directory("/lake/files"), absolute_directory("s3://lake/files")
    ('/lake/files/', 's3://lake/files/')
    """
    return as_directory(os.path.abspath(path) if is_relative_to_process(path) else path)


def directory_name(name: str, object_uuid: str) -> str:
    """The directory of a new schema or table: its name when that is safe in any store, else its uuid.

    >>> directory_name("flights", "0198c1f2-0000-7000-8000-000000000000")
    'flights/'
    >>> directory_name("näme", "0198c1f2-0000-7000-8000-000000000000")
    '0198c1f2-0000-7000-8000-000000000000/'
    """
    return f"{name if _PLAIN_NAME.fullmatch(name) else object_uuid}/"


def uuid7() -> str:
    """A new time-ordered identifier (RFC 9562, version 7), lower case with dashes."""
    return str(_uuid7(_ticks_now(), secrets.randbits(62)))


def _ticks_now() -> int:
    # Microseconds within the millisecond fill rand_a (RFC 9562, 6.2, method 3), so names made in turn sort in turn.
    return (time.time_ns() << _FRACTION_BITS) // 1_000_000


def _uuid7(ticks: int, low: int) -> uuid.UUID:
    milliseconds, fraction = divmod(ticks, 1 << _FRACTION_BITS)
    return uuid.UUID(int=(milliseconds & (2**48 - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | low)


_FRACTION_BITS = 12
_MARK_BITS = 48


def write_id() -> str:
    """A new identifier of one write, 24 hexadecimal digits: when it begins, in milliseconds, and its random mark, 12 digits each.

    The mark ends the names of all files of the write, and no file of it has a name from before its beginning.
    """
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(_MARK_BITS // 8)}"


def mark_of_write(write_id: str) -> str:
    """The mark that ends the names of a write's files.

    >>> mark_of_write("0198c1f20000000000c0ffee")
    '000000c0ffee'

    Raises:
        UsageError: It is no identifier of a write.
    """
    if not _WRITE_ID.fullmatch(write_id):
        raise UsageError(f"write id {write_id!r} is not made of 24 lower-case hexadecimal digits")
    return write_id[12:]


def beginning_of_write(write_id: str) -> float:
    """When a write began, by the clock of its driver: seconds since 1970."""
    return int(write_id[:12], 16) / 1000


def new_file_name(write_id: str) -> str:
    """Name of a new data file: ``ducklake-<uuid>.parquet``, the uuid a version 7 whose last 12 digits are the write's mark.

    >>> name = new_file_name("0198c1f20000000000c0ffee")
    >>> len(name), name.startswith("ducklake-"), name.endswith("-000000c0ffee.parquet")
    (53, True, True)

    Raises:
        UsageError: ``write_id`` is not one of :func:`write_id`.
    """
    return f"ducklake-{_marked_uuid(write_id)}.parquet"


def new_delete_file_name(write_id: str, kind: str = "parquet") -> str:
    """Name of a new delete file: ``ducklake-<uuid>-delete.parquet``, or ``.puffin``, marked like :func:`new_file_name`."""
    return f"ducklake-{_marked_uuid(write_id)}-delete.{kind}"


_last_ticks = 0
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock  # noqa: PLW0603 - a thread of the parent may have held it when this child was forked
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def _marked_uuid(write_id: str) -> uuid.UUID:
    mark = int(mark_of_write(write_id), 16)
    global _last_ticks  # noqa: PLW0603 - two names of one process never share their time, as few random bits are left
    began = int(write_id[:12], 16) << _FRACTION_BITS
    with _lock:
        _last_ticks = ticks = max(_ticks_now(), _last_ticks + 1)
    if ticks < began:
        # This machine's clock is behind that of the driver. Names from before the write's beginning would not be swept.
        ticks = began + secrets.randbits(24)
    return _uuid7(ticks, secrets.randbits(62 - _MARK_BITS) << _MARK_BITS | mark)


_FILE_NAME = re.compile(
    r"ducklake-([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-([0-9a-f]{12})(?:-delete)?\.(?:parquet|puffin)", re.ASCII
)


def is_of_write(path: str, write_id: str) -> bool:
    """Whether a file may be one of a write, by its name: it carries the write's mark, and is not older than the write.

    DuckDB's names have the same form with random digits in the place of the mark, and so have those of earlier versions of this
    library, whose marks were of 8 digits.

    >>> write = "0198c1f20000000000c0ffee"
    >>> is_of_write("main/t/day=1/" + new_file_name(write), write), is_of_write("part-0.parquet", write)
    (True, False)
    >>> is_of_write("ducklake-0198c1f1-ffff-7000-8000-000000c0ffee.parquet", write)
    False
    """
    found = _FILE_NAME.fullmatch(path.rpartition("/")[2])
    return found is not None and found[3] == mark_of_write(write_id) and int(found[1] + found[2], 16) >= int(write_id[:12], 16)


def mark_of_file(path: str) -> str | None:
    """The mark of the write that a file would be of by its name; None when it is not called as DuckLake's writers call theirs.

    >>> mark_of_file("main/t/ducklake-0198c1f2-0000-7000-8000-000000c0ffee-delete.parquet"), mark_of_file("part-0.parquet")
    ('000000c0ffee', None)
    """
    found = _FILE_NAME.fullmatch(path.rpartition("/")[2])
    return None if found is None else found[3]


def file_name(path: str) -> str:
    """The last part of a path.

    >>> file_name("s3://bucket/lake/main/t/x.parquet"), file_name("x.parquet")
    ('x.parquet', 'x.parquet')
    """
    return path.rpartition("/")[2]


_WRITERS_NAME = re.compile(r"ducklake-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-delete)?\.(?:parquet|puffin)")


def has_writers_name(path: str) -> bool:
    """Whether a file is called as DuckLake's writers call data files, delete files and deletion vectors.

    >>> has_writers_name("main/t/ducklake-0198c1f2-0000-7000-8000-000000000000-delete.parquet"), has_writers_name("part-0.parquet")
    (True, False)
    """
    return _WRITERS_NAME.fullmatch(file_name(path)) is not None


_OWN_NAME = re.compile(r"ducklake-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet")


def has_own_name(path: str) -> bool:
    """Whether a data file is called as DuckDB, or this library, calls the files that they write.

    >>> has_own_name("main/t/ducklake-0198c1f2-0000-7000-8000-000000000000.parquet"), has_own_name("main/t/part-0.parquet")
    (True, False)
    """
    return _OWN_NAME.fullmatch(file_name(path)) is not None


def partition_directory(spec: PartitionSpec, values: Sequence[str | None]) -> str:
    """Directories of a partition's files, with a trailing slash; values are texts of the keys, None for NULL.

    Transforms give their own name to the directory, with the column added where two keys would be called the same.
    Where even that is ambiguous there are no directories, as in DuckDB; readers never look at them.

    >>> from ducklake_core.format.files.partitioning import PartitionField
    >>> def key(column, transform="identity"): return PartitionField(column_id=1, column=column, transform=transform)
    >>> partition_directory(PartitionSpec(fields=(key("ts", "year"), key("A b"))), ("2013", "ä/z"))
    'year=2013/A%20b=%C3%A4%2Fz/'
    >>> partition_directory(PartitionSpec(fields=(key("a", "year"), key("b", "year"), key("c"))), ("1", None, ""))
    'year=1/year_b=__HIVE_DEFAULT_PARTITION__/c=/'
    """
    names: list[str] = []
    for field in spec.fields:
        name = field.column if field.transform == "identity" else field.transform
        taken = {folded(n) for n in names}
        if folded(name) in taken and field.transform != "identity":
            name = f"{field.transform}_{field.column}"
        if folded(name) in taken:
            return ""
        names.append(name)
    pairs = zip(names, values, strict=True)
    return "".join(f"{_percent(name)}={NULL_DIRECTORY if value is None else _percent(value)}/" for name, value in pairs)


def _percent(text: str) -> str:
    return quote(text, safe="")


def relative_to(base: str, path: str) -> tuple[str, bool]:
    """The path below ``base`` and True where it is inside, else the path as it is and False.

    >>> relative_to("/data/", "/data/main/t/x.parquet"), relative_to("/data/", "s3://b/x.parquet")
    (('main/t/x.parquet', True), ('s3://b/x.parquet', False))
    """
    base = base if base.endswith("/") or not base else f"{base}/"
    return (path[len(base) :], True) if is_inside(base, path) and len(path) > len(base) else (path, False)


def is_inside(base: str, path: str) -> bool:
    """Whether a full path lies below a directory by its text alone; a path with ``.``, ``..`` or empty parts never does.

    >>> is_inside("/data/", "/data/main/x"), is_inside("/data/", "/data/../etc/x"), is_inside("/data", "/database/x")
    (True, False, False)
    """
    if begins_with(path, base):
        return True
    base = base if base.endswith("/") else f"{base}/"
    if not path.startswith(base):
        return False
    parts = re.split(r"[/\\]" if not _SCHEME.match(base) else "/", path[len(base) :])
    return all(part not in ("", ".", "..") for part in parts[:-1]) and parts[-1] not in (".", "..")
