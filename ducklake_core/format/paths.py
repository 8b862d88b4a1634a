"""Paths of a lake: how levels are joined, what directories and files are called (specification: Paths; ducklake_data_file)."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Sequence
from urllib.parse import quote

from ducklake_core.errors import UsageError
from ducklake_core.format.partitioning import PartitionSpec

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WRITE_ID = re.compile(r"[0-9a-f]{8}", re.ASCII)


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
    return base + path if not base or base.endswith("/") else f"{base}/{path}"


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
    return str(_uuid7(secrets.randbits(62)))


def _uuid7(low: int) -> uuid.UUID:
    # Microseconds within the millisecond fill rand_a (RFC 9562, 6.2, method 3), so names made in turn sort in turn.
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return uuid.UUID(int=(milliseconds & (2**48 - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | low)


def write_id() -> str:
    """A new mark of one write: eight hexadecimal digits, which end the names of all files of that write."""
    return secrets.token_hex(4)


def new_file_name(mark: str) -> str:
    """Name of a new data file: ``ducklake-<uuid>.parquet``, the uuid a version 7 whose last 8 digits are the write's mark.

    >>> name = new_file_name("00c0ffee")
    >>> len(name), name.startswith("ducklake-"), name.endswith("00c0ffee.parquet")
    (53, True, True)

    Raises:
        UsageError: ``mark`` is not one of :func:`write_id`.
    """
    return f"ducklake-{_marked_uuid(mark)}.parquet"


def new_delete_file_name(mark: str) -> str:
    """Name of a new delete file: ``ducklake-<uuid>-delete.parquet``, marked like :func:`new_file_name`."""
    return f"ducklake-{_marked_uuid(mark)}-delete.parquet"


def _marked_uuid(mark: str) -> uuid.UUID:
    if not _WRITE_ID.fullmatch(mark):
        raise UsageError(f"write id {mark!r} is not eight lower-case hexadecimal digits")
    return _uuid7(secrets.randbits(30) << 32 | int(mark, 16))


_FILE_NAME = re.compile(r"ducklake-[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{4}([0-9a-f]{8})(?:-delete)?\.parquet")


def write_id_of(path: str) -> str | None:
    """The mark that a file's name would carry if a write of ours made it; None for names of another form.

    The names of the reference have the same form, with random digits in this place.

    >>> write_id_of("main/t/day=1/" + new_file_name("00c0ffee")), write_id_of("part-0.parquet")
    ('00c0ffee', None)
    """
    found = _FILE_NAME.fullmatch(path.rpartition("/")[2])
    return found[1] if found else None


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
    """Whether a data file is called as the reference, or this library, calls the files that they write.

    >>> has_own_name("main/t/ducklake-0198c1f2-0000-7000-8000-000000000000.parquet"), has_own_name("main/t/part-0.parquet")
    (True, False)
    """
    return _OWN_NAME.fullmatch(file_name(path)) is not None


def partition_directory(spec: PartitionSpec, values: Sequence[str | None]) -> str:
    """Directories of a partition's files, with a trailing slash; values are texts of the keys, None for NULL.

    Transforms give their own name to the directory, with the column added where two keys would be called the same.
    Where even that is ambiguous there are no directories, as in the reference; readers never look at them.

    >>> from ducklake_core.format.partitioning import PartitionField
    >>> def key(column, transform="identity"): return PartitionField(column_id=1, column=column, transform=transform)
    >>> partition_directory(PartitionSpec(fields=(key("ts", "year"), key("A b"))), ("2013", "ä/z"))
    'year=2013/A%20b=%C3%A4%2Fz/'
    >>> partition_directory(PartitionSpec(fields=(key("a", "year"), key("b", "year"), key("c"))), ("1", None, ""))
    'year=1/year_b=__HIVE_DEFAULT_PARTITION__/c=/'
    """
    names: list[str] = []
    for field in spec.fields:
        name = field.column if field.transform == "identity" else field.transform
        folded = {n.casefold() for n in names}
        if name.casefold() in folded and field.transform != "identity":
            name = f"{field.transform}_{field.column}"
        if name.casefold() in folded:
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
    base = base if base.endswith("/") else f"{base}/"
    if not path.startswith(base):
        return False
    parts = re.split(r"[/\\]" if not _SCHEME.match(base) else "/", path[len(base) :])
    return all(part not in ("", ".", "..") for part in parts[:-1]) and parts[-1] not in (".", "..")
