"""Paths of a lake: how levels are joined, and which paths a lake may name (specification: Paths)."""

from __future__ import annotations

import os
import posixpath
import re
import secrets
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.files.partitioning import PartitionSpec
from ducklake_core.format.types.names import folded, storable

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_WRITE_ID = re.compile(r"[0-9a-f]{24}", re.ASCII)
_FRACTION_BITS = 12
_MARK_BITS = 48
_last_ticks = 0
_lock = threading.Lock()
_FILE_NAME = re.compile(
    r"ducklake-([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-([0-9a-f]{12})(?:-delete)?\.(?:parquet|puffin)", re.ASCII
)
_WRITERS_NAME = re.compile(r"ducklake-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-delete)?\.(?:parquet|puffin)")
_OWN_NAME = re.compile(r"ducklake-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet")

# A catalog that could name any host under these protocols could make its readers send requests to any server. Names of buckets, in
# contrast, are resolved by the store that the reader is configured for.
_READ_ONLY = frozenset({"http", "https"})
_OF_MANY_SERVERS = frozenset({"http", "https", "ftp", "sftp", "ssh", "hdfs", "webhdfs", "smb"})
_LOCAL_PREFIX = re.compile(r"^(?:file|local)://(?:localhost(?=/))?|^file:")
# A password may contain slashes that are not escaped, so it extends to the last @ behind the colon.
_CREDENTIALS = re.compile(r"^([a-z0-9+.-]+://)[^/@:]*:[^@]*@", re.IGNORECASE)

NAMES = ("abfs", "abfss", "az", "azure")
"""Protocols under which fsspec, DuckDB and Hadoop know the store."""
_HOST = re.compile(r"([a-z0-9-]+)\.(?:blob|dfs)\.[a-z0-9.-]+", re.IGNORECASE)

_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "local": "file", **dict.fromkeys(NAMES[1:], NAMES[0])}


def join(base: str, path: str | None, is_relative: bool = True) -> str:
    """Return the full path of one level below another; a missing path is the level above itself, an absolute one replaces it.

    >>> join("s3://lake/data/", "main/"), join("/data/main/", "/elsewhere/t/", False), join("/data/", None)
    ('s3://lake/data/main/', '/elsewhere/t/', '/data/')

    Paths are joined unchanged, so ``base`` must have a trailing slash; a missing one is added.

    Args:
        base: Full path of the level above.
        path: Stored path of the level; None or empty for the level above itself.
        is_relative: Whether the stored path is relative to the level above.
    """
    if not path:
        return base
    if not is_relative:
        return path
    return as_directory(base) + path


def as_directory(path: str) -> str:
    """Return a directory's path with a trailing slash, which some lakes lack. An empty path stays empty.

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
    """Return the directory of a new schema or table: its name if every store supports it, otherwise its uuid.

    >>> directory_name("flights", "0198c1f2-0000-7000-8000-000000000000")
    'flights/'
    >>> directory_name("näme", "0198c1f2-0000-7000-8000-000000000000")
    '0198c1f2-0000-7000-8000-000000000000/'
    """
    return f"{name if _PLAIN_NAME.fullmatch(name) else object_uuid}/"


# Names of files are "ducklake-" and a UUID of version 7, whose digits are
#
#   tttttttt-tttt-7fff-vrrr-mmmmmmmmmmmm
#
#   t  milliseconds since 1970    f  fraction of the millisecond    v  variant with two random bits    r  12 random bits
#   m  mark of the write: the same for all files of one write
#
# Cleanup after a failed write finds its files by the mark, and passes over names that are older than the write (is_of_write).
def uuid7() -> str:
    """Return a new time-ordered identifier (RFC 9562, version 7), lower case with dashes."""
    return str(_uuid7(_ticks_now(), secrets.randbits(62)))


def _ticks_now() -> int:
    # Microseconds within the millisecond fill rand_a (RFC 9562, 6.2, method 3), so names made in turn sort in turn.
    return (time.time_ns() << _FRACTION_BITS) // 1_000_000


def _uuid7(ticks: int, low: int) -> uuid.UUID:
    milliseconds, fraction = divmod(ticks, 1 << _FRACTION_BITS)
    return uuid.UUID(int=(milliseconds & (2**48 - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | low)


def write_id() -> str:
    """Return a new identifier of one write, 24 hexadecimal digits: when it begins, in milliseconds, and its random mark, 12 digits each.

    The mark ends the names of all files of the write, and no file of it has a name from before its beginning.
    """
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(_MARK_BITS // 8)}"


def mark_of_write(write_id: str) -> str:
    """Return the mark that ends the names of a write's files.

    >>> mark_of_write("0198c1f20000000000c0ffee")
    '000000c0ffee'

    Raises:
        UsageError: The string is not an id of a write.
    """
    if not _WRITE_ID.fullmatch(write_id):
        raise UsageError(f"write id {write_id!r} is not made of 24 lower-case hexadecimal digits")
    return write_id[12:]


def beginning_of_write(write_id: str) -> float:
    """Return the time at which a write began, by the clock of its driver, in seconds since 1970."""
    return int(write_id[:12], 16) / 1000


def new_file_name(write_id: str) -> str:
    """Return the name of a new data file: ``ducklake-<uuid>.parquet``, the uuid a version 7 whose last 12 digits are the write's mark.

    >>> name = new_file_name("0198c1f20000000000c0ffee")
    >>> len(name), name.startswith("ducklake-"), name.endswith("-000000c0ffee.parquet")
    (53, True, True)

    Raises:
        UsageError: ``write_id`` is not one of :func:`write_id`.
    """
    return f"ducklake-{_marked_uuid(write_id)}.parquet"


def new_delete_file_name(write_id: str, kind: str = "parquet") -> str:
    """Return the name of a new delete file: ``ducklake-<uuid>-delete.parquet``, or ``.puffin``, marked like :func:`new_file_name`."""
    return f"ducklake-{_marked_uuid(write_id)}-delete.{kind}"


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


def is_of_write(path: str, write_id: str) -> bool:
    """Return whether a file may be one of a write, by its name: it carries the write's mark, and is not older than the write.

    DuckDB's names have the same form, with random digits instead of the mark, and so have those of earlier versions of this
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
    """Return the mark of the write that a file would be of by its name; None when the name is not one of DuckLake's writers.

    >>> mark_of_file("main/t/ducklake-0198c1f2-0000-7000-8000-000000c0ffee-delete.parquet"), mark_of_file("part-0.parquet")
    ('000000c0ffee', None)
    """
    found = _FILE_NAME.fullmatch(path.rpartition("/")[2])
    return None if found is None else found[3]


def file_name(path: str) -> str:
    """Return the last part of a path.

    >>> file_name("s3://bucket/lake/main/t/x.parquet"), file_name("x.parquet")
    ('x.parquet', 'x.parquet')
    """
    return path.rpartition("/")[2]


def has_writers_name(path: str) -> bool:
    """Return whether a file is called as DuckLake's writers call data files, delete files and deletion vectors.

    >>> has_writers_name("main/t/ducklake-0198c1f2-0000-7000-8000-000000000000-delete.parquet"), has_writers_name("part-0.parquet")
    (True, False)
    """
    return _WRITERS_NAME.fullmatch(file_name(path)) is not None


def has_own_name(path: str) -> bool:
    """Return whether a data file is called as DuckDB, or this library, calls the files that they write.

    >>> has_own_name("main/t/ducklake-0198c1f2-0000-7000-8000-000000000000.parquet"), has_own_name("main/t/part-0.parquet")
    (True, False)
    """
    return _OWN_NAME.fullmatch(file_name(path)) is not None


def partition_directory(spec: PartitionSpec, values: Sequence[str | None]) -> str:
    """Return the directories of a partition's files, with a trailing slash; values are strings of the keys, None for NULL.

    Transforms give their own name to the directory, with the column added where two keys would be called the same.
    Where even that is ambiguous there are no directories, as in DuckDB; readers never use them.

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
    """Return the path below ``base`` and True where it is inside, else the path as it is and False.

    >>> relative_to("/data/", "/data/main/t/x.parquet"), relative_to("/data/", "s3://b/x.parquet")
    (('main/t/x.parquet', True), ('s3://b/x.parquet', False))
    """
    base = base if base.endswith("/") or not base else f"{base}/"
    return (path[len(base) :], True) if is_inside(base, path) and len(path) > len(base) else (path, False)


def is_inside(base: str, path: str) -> bool:
    """Return whether a full path lies below a directory by its text alone; a path with ``.``, ``..`` or empty parts never does.

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


def moved_path(path: str, old: str, new: str) -> str:
    """Return the absolute path of a file after a data path was moved; a path elsewhere stays as it is.

    >>> moved_path("/old/main/t/x.parquet", "/old/", "/new/"), moved_path("/elsewhere/x.parquet", "/old/", "/new/")
    ('/new/main/t/x.parquet', '/elsewhere/x.parquet')
    >>> moved_path("s3a://b/old/x.parquet", "s3://b/old/", "/new/")
    '/new/x.parquet'

    Args:
        path: Absolute path.
        old: The former data path, with a trailing slash.
        new: The new data path, with a trailing slash.

    Raises:
        UnsupportedFeatureError: The path is below the former data path, but contains ``..`` or doubled slashes.
    """
    for base in spellings(old):
        rest, inside = relative_to(base, path)
        if inside:
            return new + rest
    if is_below(path, old):
        raise UnsupportedFeatureError(
            f"File {printable(path)} is below the data path {printable(old)}, but its path cannot be moved because it contains '..' or "
            "doubled slashes. Rewrite the file with lake.rewrite_data_files(), or add it under another path",
            path=printable(path),
        )
    return path


def canonical_protocol(protocol: str) -> str:
    """Return the canonical protocol of all spellings of a store's protocol.

    >>> canonical_protocol("s3a"), canonical_protocol("abfss"), canonical_protocol("file")
    ('s3', 'abfs', 'file')
    """
    return _ALIASES.get(protocol, protocol)


def protocol_of(path: str) -> str:
    """Return the protocol of a path; plain paths are ``file``.

    >>> protocol_of("/lake/main/"), protocol_of("s3a://bucket/lake/"), protocol_of("simplecache::s3://bucket/x")
    ('file', 's3', 'simplecache')
    """
    # The quickest test comes first: plans check long lists of paths one by one, and most lakes on a disk have only such paths.
    if path.startswith(("/", "file:")):
        return "file"
    # A chained path such as simplecache::s3://bucket/x has the protocol in front.
    found = re.match(r"([^:/\\]+)(?:::|://)", path)
    return canonical_protocol(found[1].lower()) if found else "file"


def is_relative_to_process(path: str) -> bool:
    """Return whether a path means another file in another working directory.

    >>> is_relative_to_process("lake/files/"), is_relative_to_process("/lake/files/"), is_relative_to_process("s3://lake/files/")
    (True, False, False)
    """
    return not path.startswith(("/", "file:")) and protocol_of(path) == "file" and not os.path.isabs(path)


def local_part(path: str) -> str:
    """Return a path of protocol ``file`` as the operating system wants it.

    >>> local_part("file:///lake/a=1/"), local_part("lake/x"), local_part("file://localhost/x"), local_part("file:/x")
    ('/lake/a=1/', 'lake/x', '/x', '/x')
    """
    return path if path.startswith("/") else _LOCAL_PREFIX.sub("", path)


def printable(path: str) -> str:
    """Return a path for messages: without user, password and query.

    >>> printable("s3://me:pw@bucket/a b?x=1"), printable("/data/é=1/f.parquet")
    ('s3://bucket/a b', '/data/é=1/f.parquet')
    """
    return without_credentials(path).partition("?")[0] if "://" in path else path


def without_credentials(path: str) -> str:
    """Return a path without the user and password in front of its host.

    >>> without_credentials("s3://KEY:SECRET@bucket/x"), without_credentials("/a/b")
    ('s3://bucket/x', '/a/b')
    """
    return _CREDENTIALS.sub(r"\1", path)


def check_new_data_path(path: str) -> None:
    """Reject a data path at which no lake can store files.

    Raises:
        UsageError: An object store without a bucket, a web address, which is read-only, or credentials within the path.
    """
    scheme, separator, rest = path.partition("://")
    if not separator or protocol_of(path) == "file":
        return
    azure = azure_path(path)
    if scheme.lower() in _READ_ONLY and azure is None:
        raise UsageError(
            f"data_path {printable(path)!r} is a web address, to which no files can be written: give a directory or an object "
            "store prefix such as s3://bucket/lake/"
        )
    if without_credentials(path) != path:
        raise UsageError(
            f"data_path {printable(path)!r} contains credentials, which every reader of the catalog could see: pass them in storage_options"
        )
    if not rest.strip("/"):
        raise UsageError(f"data_path {path!r} names no bucket or container: write {scheme}://bucket/lake/")


def check_location(path: str, data_path: str, allowed: Sequence[str] = (), *, what: str, **details: object) -> None:
    """Reject a path that a lake must not name.

    Args:
        path: Full path of a file or directory.
        data_path: The lake's data path.
        allowed: Further places that the user allows, as prefixes.
        what: What the path belongs to, for the message: "data file 7 of table main.t".
        details: Objects for the error.

    Raises:
        UnsupportedFeatureError: The path leaves the data path through ``..``, or is in another kind of store.
    """
    reason = _obstacle(path, data_path)
    if reason is not None and not any(is_below(path, place) for place in allowed):
        raise UnsupportedFeatureError(
            f"{what} is at {printable(path)}, which {reason} of the lake ({printable(data_path)}); if that is meant, connect with "
            "allowed_paths naming the place",
            path=printable(path),
            **details,
        )


def check_allowed(places: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None) -> tuple[str, ...]:
    """Return the user's further places as a tuple, empty for None.

    Raises:
        UsageError: An empty one, which would allow everything, or one that is not a string.
    """
    given = () if places is None else (places,) if isinstance(places, str | os.PathLike) else tuple(places)
    prefixes = tuple(os.fspath(one) if isinstance(one, os.PathLike) else one for one in given)
    if not all(storable("a prefix of allowed_paths", prefix) for prefix in prefixes):
        raise UsageError("allowed_paths holds an empty prefix", parameter="allowed_paths")
    return prefixes


def _obstacle(path: str, data_path: str) -> str | None:
    if begins_with(path, data_path):
        return None
    if not _of_server(path, data_path):
        return "is in another kind of store than the data path"
    if _has_steps_up(path) and not is_below(path, data_path):
        return "leaves the data path"
    return None


def file_key(path: str) -> str:
    """Return one string for all spellings of a file's full path; in rare cases, two files have the same.

    It shows whether two paths may be one file, and is never opened itself: object stores distinguish ``a//b`` and ``a/b``.

    >>> file_key("s3a://b/x/./y"), file_key("S3N://b//x/y") == file_key("s3://b/x/y"), file_key("/x/../y") == file_key("file:///y")
    ('s3:/b/x/y', True, True)
    >>> file_key("//x/y"), file_key("file:////x/y")
    ('file:/x/y', 'file:/x/y')
    >>> file_key("https://me.blob.core.windows.net/c/x?sig=y"), file_key("abfss://c@me.dfs.core.windows.net/x")
    ('abfs:/c/x', 'abfs:/c/x')
    """
    azure = azure_path(path)
    return f"{protocol_of(path)}:{_resolved(path)}" if azure is None else f"{NAMES[0]}:{_resolved(f'az://{azure.inner}')}"


def may_be_same(path: str, other: str) -> bool:
    """Return whether two paths of a catalog may be of one file, when it is not known to which directory either is relative.

    >>> may_be_same("s3a://b/main/t/x", "t/x"), may_be_same("p=1/x", "p=2/x"), may_be_same("s3://b/x", "s3a://b/x")
    (True, False, True)
    """
    longer, shorter = sorted((_inside(path), _inside(other)), key=len, reverse=True)
    return longer == shorter or longer.endswith("/" + shorter)


def spellings(path: str) -> tuple[str, ...]:
    """Return a full path in every way that its protocol is written, itself first.

    >>> spellings("s3a://b/x"), spellings("/x")
    (('s3a://b/x', 's3://b/x', 's3n://b/x'), ('/x', 'file:///x', 'file://localhost/x', 'file:/x', 'local:///x'))
    """
    protocol = protocol_of(path)
    if protocol == "file":
        plain = _resolved(path)
        found = [path, plain, *(f"{before}{plain}" for before in ("file://", "file://localhost", "file:", "local://"))]
    else:
        azure = azure_path(path)
        rests = [path.partition("://")[2], *([azure.inner] if azure else [])]
        names = [name for name in (protocol, *_ALIASES) if canonical_protocol(name) == protocol]
        found = [path, *(f"{name}://{rest}" for rest in rests for name in names)]
    return tuple(dict.fromkeys(found))


def spelled_like(path: str, inner: str) -> str:
    """Return a file of an object store, as the store's package calls it, in the spelling of another path of its bucket.

    >>> spelled_like("s3a://b/x/", "b/x/y"), spelled_like("abfss://c@me.dfs.core.windows.net/x/", "c/x/y")
    ('s3a://b/x/y', 'abfss://c@me.dfs.core.windows.net/x/y')
    """
    scheme, inner = path.partition("://")[0], inner.lstrip("/")
    azure = azure_path(f"az://{inner}") if canonical_protocol(scheme.lower()) == NAMES[0] else None
    return azure.spelled_like(path) if azure else f"{scheme}://{inner}"


def _inside(path: str) -> str:
    """Return a path without its protocol and without empty parts and steps; relative ones stay relative.

    Steps up are not taken: what is above a relative path is not known.
    """
    azure = azure_path(path)
    plain = azure.inner if azure else local_part(path).partition("://")[2] or local_part(path)
    return "/".join(part for part in plain.split("/") if part not in ("", "."))


def _of_server(path: str, place: str) -> bool:
    """Return whether a path is on the server of a directory; an Azure path without an account is on every one."""
    protocol, server = _server(path)
    return (protocol, server) == _server(place) or (protocol == NAMES[0] == _server(place)[0] and not server)


def _server(path: str) -> tuple[str, str]:
    protocol = protocol_of(path)
    if protocol == NAMES[0]:
        azure = azure_path(path)
        return protocol, azure.account if azure else ""
    host = path.partition("://")[2].partition("/")[0]
    return protocol, host.lower() if protocol in _OF_MANY_SERVERS else ""


def _has_steps_up(path: str) -> bool:
    return ".." in path and ".." in re.split(r"[/\\]", path)


def begins_with(path: str, place: str) -> bool:
    """Return whether a path is a directory and a rest without steps, which settles the check for almost every path of a lake.

    >>> begins_with("/lake/main/x", "/lake"), begins_with("s3://b/x", "s3://b/"), begins_with("s3a://b/x", "s3://b/")
    (True, True, False)
    >>> begins_with("/lake/../x", "/lake/"), begins_with("/lakes/x", "/lake"), begins_with("lake/x", "lake")
    (False, False, False)
    """
    base = place if place.endswith("/") else f"{place}/"
    return path.startswith(base) and (base.startswith("/") or "://" in place) and _has_no_steps(path, len(base) - 1)


def _has_no_steps(path: str, start: int = 0) -> bool:
    return path.find("/.", start) < 0 and path.find("//", start) < 0 and path.find("\\", start) < 0


def is_below(path: str, place: str) -> bool:
    """Return whether a path lies in a place once all steps are taken.

    >>> is_below("/lake/x/../y", "/lake/"), is_below("/lake/../etc/x", "/lake/"), is_below("/lakes/x", "/lake")
    (True, False, False)
    >>> is_below("s3a://b/x/y", "s3://b/x"), is_below("s3://b/x/../../c", "s3://b")
    (True, False)
    """
    if begins_with(path, place):
        return True
    inside, around = _resolved(path), _resolved(place)
    return _of_server(path, place) and (inside == around or inside.startswith(around.rstrip("/") + "/"))


def _resolved(path: str) -> str:
    if path.startswith("/") and os.sep == "/" and _has_no_steps(path) and not path.endswith("/"):
        return path
    if protocol_of(path) == "file":
        # POSIX leaves the meaning of two leading slashes open, so Python keeps both. On the systems that exist they mean one.
        return re.sub(r"^//(?!/)", "/", os.path.abspath(local_part(path))) if os.sep == "/" else os.path.abspath(local_part(path))
    azure = azure_path(path) if protocol_of(path) == NAMES[0] else None
    return posixpath.normpath(f"/{azure.inner if azure else path.partition('://')[2]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzurePath:
    """The parts of a path.

    Attributes:
        scheme: As it was written.
        host: The server that it names, such as ``account.dfs.core.windows.net``; empty when it names none.
        container: The container.
        inside: The rest, without a slash in front.
    """

    scheme: str
    host: str
    container: str
    inside: str

    @property
    def account(self) -> str:
        """The account in lower case; empty when the path names none."""
        return self.host.partition(".")[0].lower()

    @property
    def inner(self) -> str:
        """Container and rest, as adlfs calls a file."""
        return f"{self.container}/{self.inside}"

    def spelled_like(self, path: str) -> str:
        """Return this file in the spelling of another path of its container.

        >>> azure_path("abfs://c/d/x").spelled_like("az://me.blob.core.windows.net/c/d/")
        'az://me.blob.core.windows.net/c/d/x'
        """
        other = azure_path(path)
        if other is None or not other.host:
            return f"{path.partition('://')[0]}://{self.inner}"
        in_front = f"{other.container}@{other.host}" in path
        return f"{other.scheme}://{f'{self.container}@{other.host}' if in_front else f'{other.host}/{self.container}'}/{self.inside}"

    def for_hadoop(self, scheme: str) -> str:
        """Return the path as Hadoop's file system for Azure wants it; without a host where none is known.

        >>> azure_path("az://me.dfs.core.windows.net/c/x").for_hadoop("abfss")
        'abfss://c@me.dfs.core.windows.net/x'
        """
        return f"{scheme}://{self.container}@{self.host}/{self.inside}" if self.host else f"{scheme}://{self.inner}"


def azure_path(path: str) -> AzurePath | None:
    """Return the parts of a path of Azure's blob storage, None for any other path.

    >>> found = azure_path("abfss://c@me.dfs.core.windows.net/lake/x")
    >>> found.account, found.inner
    ('me', 'c/lake/x')
    >>> azure_path("https://me.blob.core.windows.net/c/x").inner, azure_path("az://c/x").account, azure_path("s3://b/x")
    ('c/x', '', None)
    """
    scheme, separator, rest = path.partition("://")
    if not separator:
        return None
    authority, _, inside = rest.partition("/")
    if scheme.lower() not in NAMES:
        if scheme.lower() not in ("http", "https") or not _HOST.fullmatch(authority):
            return None
        inside = inside.partition("?")[0]
    container, at, host = authority.partition("@")
    if not at and _HOST.fullmatch(authority):
        # No container has a dot in its name.
        host = authority
        container, _, inside = inside.partition("/")
    return AzurePath(scheme=scheme, host=host, container=container, inside=inside)
