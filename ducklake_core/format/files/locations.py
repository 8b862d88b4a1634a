"""Which files a lake may name: what is below its data path, or in the same kind of store, or allowed by the user.

Whoever can write to a catalog decides which files its readers open, with the readers' own rights. A path that leaves the data
path through ``..``, or for another kind of store, is therefore refused unless the user named the place.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence

from ducklake_core.errors import UnsupportedFeatureError, UsageError
from ducklake_core.format.files.azure_paths import NAMES, azure_path

_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "local": "file", **dict.fromkeys(NAMES[1:], NAMES[0])}
# Whoever may choose the host of these may make the reader ask any server.
_READ_ONLY = frozenset({"http", "https"})
_OF_MANY_SERVERS = frozenset({"http", "https", "ftp", "sftp", "ssh", "hdfs", "webhdfs", "smb"})


def canonical_protocol(protocol: str) -> str:
    """One name per store.

    >>> canonical_protocol("s3a"), canonical_protocol("abfss"), canonical_protocol("file")
    ('s3', 'abfs', 'file')
    """
    return _ALIASES.get(protocol, protocol)


def protocol_of(path: str) -> str:
    """The protocol of a path; plain paths are ``file``.

    >>> protocol_of("/lake/main/"), protocol_of("s3a://bucket/lake/"), protocol_of("simplecache::s3://bucket/x")
    ('file', 's3', 'simplecache')
    """
    # Most paths of a lake on a disk, and the quickest way to tell: long lists of them are asked for one by one.
    if path.startswith(("/", "file:")):
        return "file"
    found = re.match(r"([^:/\\]+)(?:::|://)", path)
    return canonical_protocol(found[1].lower()) if found else "file"


def is_relative_to_process(path: str) -> bool:
    """Return whether a path means another file in another working directory.

    >>> is_relative_to_process("lake/files/"), is_relative_to_process("/lake/files/"), is_relative_to_process("s3://lake/files/")
    (True, False, False)
    """
    return not path.startswith(("/", "file:")) and protocol_of(path) == "file" and not os.path.isabs(path)


_LOCAL_PREFIX = re.compile(r"^(?:file|local)://(?:localhost(?=/))?|^file:")


def local_part(path: str) -> str:
    """A path of protocol ``file`` as the operating system wants it.

    >>> local_part("file:///lake/a=1/"), local_part("lake/x"), local_part("file://localhost/x"), local_part("file:/x")
    ('/lake/a=1/', 'lake/x', '/x', '/x')
    """
    return path if path.startswith("/") else _LOCAL_PREFIX.sub("", path)


# A password may hold slashes that nobody escaped, so it reaches up to the last @ that a user name can claim.
_CREDENTIALS = re.compile(r"^([a-z0-9+.-]+://)[^/@:]*:[^@]*@", re.IGNORECASE)


def printable(path: str) -> str:
    """A path for messages: without user, password and query.

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
    """Refuse a path that the lake has no business to name.

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


def check_allowed(places: Sequence[str]) -> tuple[str, ...]:
    """The user's further places as a tuple.

    Raises:
        UsageError: One text instead of several, or an empty one, which would allow everything.
    """
    if isinstance(places, str):
        raise UsageError(f"allowed_paths must be a list of prefixes, not the text {places!r}")
    if not all(places):
        raise UsageError("allowed_paths holds an empty prefix")
    return tuple(places)


def _obstacle(path: str, data_path: str) -> str | None:
    if begins_with(path, data_path):
        return None
    if not _of_server(path, data_path):
        return "is in another kind of store than the data path"
    if _has_steps_up(path) and not is_below(path, data_path):
        return "leaves the data path"
    return None


def file_key(path: str) -> str:
    """One text for all spellings of a file's full path; paths of two files may, in odd cases, have one as well.

    So it is for asking whether a path may be the file of another, never for opening one. Object stores tell ``a//b`` from ``a/b``.

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
    """Whether two paths of a catalog may be of one file, when it is not known to which directory either is relative.

    >>> may_be_same("s3a://b/main/t/x", "t/x"), may_be_same("p=1/x", "p=2/x"), may_be_same("s3://b/x", "s3a://b/x")
    (True, False, True)
    """
    longer, shorter = sorted((_inside(path), _inside(other)), key=len, reverse=True)
    return longer == shorter or longer.endswith("/" + shorter)


def spellings(path: str) -> tuple[str, ...]:
    """A full path in every way that its protocol is written, itself first.

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
    """A file of an object store, as the store's package calls it, in the spelling of another path of its bucket.

    >>> spelled_like("s3a://b/x/", "b/x/y"), spelled_like("abfss://c@me.dfs.core.windows.net/x/", "c/x/y")
    ('s3a://b/x/y', 'abfss://c@me.dfs.core.windows.net/x/y')
    """
    scheme, inner = path.partition("://")[0], inner.lstrip("/")
    azure = azure_path(f"az://{inner}") if canonical_protocol(scheme.lower()) == NAMES[0] else None
    return azure.spelled_like(path) if azure else f"{scheme}://{inner}"


def _inside(path: str) -> str:
    """A path without its protocol and without empty parts and steps; relative ones stay relative.

    Steps up are not taken: what is above a relative path is not known.
    """
    azure = azure_path(path)
    plain = azure.inner if azure else local_part(path).partition("://")[2] or local_part(path)
    return "/".join(part for part in plain.split("/") if part not in ("", "."))


def _of_server(path: str, place: str) -> bool:
    """Whether a path is on the server of a place; without an account of its own it is, as all files are looked for in one account."""
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
    """Whether a path is a place and a rest without steps: almost every path of a lake is, so that nothing else is looked at.

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
    """Whether a path lies in a place once all steps are taken.

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
        # POSIX leaves open what two slashes at the beginning mean, so Python keeps them; to the systems that there are they are one.
        return re.sub(r"^//(?!/)", "/", os.path.abspath(local_part(path))) if os.sep == "/" else os.path.abspath(local_part(path))
    azure = azure_path(path) if protocol_of(path) == NAMES[0] else None
    return posixpath.normpath(f"/{azure.inner if azure else path.partition('://')[2]}")
