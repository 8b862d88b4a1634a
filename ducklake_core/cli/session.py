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

from ducklake_core.errors import UsageError
from ducklake_core.format.types.message_text import shown
from ducklake_core.lake import DuckLake, load_lake

FOUND, USAGE, FAILED, TRY_AGAIN, INTERRUPTED = 1, 2, 3, 4, 130
"""Exit codes: something was found or a part of the work failed; the call is wrong; an error; an error that may pass by itself; Ctrl-C."""


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
        """Open the lake.

        Raises:
            UsageError: Nothing says which, or options that cannot be read.
        """
        if not self.url:
            raise UsageError("no lake: give --lake, or set DUCKLAKE_URL, to the address of its catalog (or its name in ducklake.toml)")
        if re.fullmatch(r"[\w-]+", self.url):
            return load_lake(self.url)
        return DuckLake.connect(
            self.url,
            data_path=self.data_path,
            override_data_path=self.data_path is not None,
            metadata_schema=self.metadata_schema,
            storage_options=self._storage_options(),
            allowed_paths=self.allowed_paths,
            read_only=read_only,
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
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{shown(text)} is neither the id of a snapshot nor a time (2026-01-31 12:00:00+00:00)") from None
    if found.tzinfo is None:
        raise UsageError(f"the time {text} has no zone: write {text}+00:00 for UTC")
    return found


def exit_with(code: int, ok: Any = True) -> None:
    """End the command with a code unless all went well."""
    if not ok:
        raise typer.Exit(code)
