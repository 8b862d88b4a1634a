"""How every command opens its lake, and the codes that it ends with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import typer

from ducklake_core.errors import NotFoundError, UsageError
from ducklake_core.format.types.message_text import shown
from ducklake_core.lake import DuckLake
from ducklake_core.staging.lake_files import LakeSpec, find_lake

FOUND, USAGE, FAILED, TRY_AGAIN, INTERRUPTED = 1, 2, 3, 4, 130
"""Exit codes: something was found or a part of the work failed; the call is wrong; an error; an error that may pass by itself; Ctrl-C."""

_NAME = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"\s*|(?P<plain>(?:[^",][^,]*)?))(?P<comma>,|\Z)', re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class LakeOptions:
    """What the command line and the environment say of the lake. Its repr shows nothing, as all of it may be secret.

    Attributes:
        url: Address of the catalog, or the name of a lake in ``ducklake.toml``.
        storage_options: JSON text: fsspec options by protocol.
    """

    url: str | None = None
    data_path: str | None = None
    metadata_schema: str | None = None
    storage_options: str | None = None
    allowed_paths: tuple[str, ...] = field(default=())

    def connect(self, *, read_only: bool) -> DuckLake:
        """Open the lake; what the command line and its own variables say wins over ``ducklake.toml``.

        Args:
            read_only: Whether nothing is to be changed; a lake whose settings say so is opened like that in any case.

        Raises:
            UsageError: Nothing says which, no lake of that name is known, or options that cannot be read.
        """
        if not self.url:
            raise UsageError("no lake: give --lake, or set DUCKLAKE_URL, to the address of its catalog (or its name in ducklake.toml)")
        is_name = re.fullmatch(r"[\w-]+", self.url) is not None
        try:
            known = find_lake(self.url) if is_name else LakeSpec(name=self.url, catalog=self.url)
        except NotFoundError as error:
            raise UsageError(error.message, **error.details) from error
        return DuckLake.connect(
            known.catalog,
            data_path=known.data_path if self.data_path is None else self.data_path,
            override_data_path=known.override_data_path or self.data_path is not None,
            metadata_schema=known.metadata_schema if self.metadata_schema is None else self.metadata_schema,
            storage_options={**known.storage_options, **self._storage_options()},
            allowed_paths=(*known.allowed_paths, *self.allowed_paths),
            read_only=known.read_only or read_only,
        )

    def _storage_options(self) -> dict[str, dict[str, object]]:
        if not self.storage_options:
            return {}
        try:
            found = json.loads(self.storage_options)
        except ValueError:
            # Not the text, nor the error that holds it: secrets.
            raise UsageError("DUCKLAKE_STORAGE_OPTIONS is not JSON") from None
        if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
            raise UsageError('DUCKLAKE_STORAGE_OPTIONS must be options by protocol: {"s3": {"key": "..."}}')
        return found


@contextmanager
def opened(context: typer.Context, *, read_only: bool = True) -> Iterator[DuckLake]:
    """The lake that the command is about, closed at the end."""
    options: LakeOptions = context.find_root().obj
    lake = options.connect(read_only=read_only)
    try:
        yield lake
    finally:
        lake.close()


def snapshot_at(text: str | None) -> int | datetime | None:
    """A snapshot as people write it: its id, or a time with a zone.

    >>> snapshot_at("7"), snapshot_at(None), snapshot_at("2026-01-01 12:00:00+00:00").isoformat()
    (7, None, '2026-01-01T12:00:00+00:00')

    Raises:
        UsageError: Neither.
    """
    if text is None:
        return None
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    return time_with_zone(text, "the id of a snapshot")


def time_with_zone(text: str, otherwise: str) -> datetime:
    """A point in time.

    Args:
        otherwise: What might be meant instead, for the error.

    Raises:
        UsageError: It is none, or has no zone.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{shown(text)} is neither {otherwise} nor a time (2026-01-31 12:00:00+00:00)") from None
    if found.tzinfo is None:
        raise UsageError(f"the time {text} has no zone: write {found.isoformat(sep=' ')}+00:00 for UTC")
    return found


def column_names(text: str) -> list[str]:
    """Names separated by commas; one with a comma, a blank at an end or a quote at its beginning stands in double quotes, quotes doubled.

    >>> column_names('a, b c'), column_names('"a, b","c""d"')
    (['a', 'b c'], ['a, b', 'c"d'])

    Raises:
        UsageError: A quote that does not end.
    """
    names: list[str] = []
    place = 0
    while (found := _NAME.match(text, place)) is not None:
        quoted = found["quoted"]
        names.append(found["plain"].rstrip() if quoted is None else quoted.replace('""', '"'))
        if not found["comma"]:
            return names
        place = found.end()
    raise UsageError(f"cannot read the names {shown(text)}: a name in double quotes ends at a comma, and has its own quotes doubled")


def exit_with(code: int, ok: Any = True) -> None:
    """End the command with a code unless all went well."""
    if not ok:
        raise typer.Exit(code)
