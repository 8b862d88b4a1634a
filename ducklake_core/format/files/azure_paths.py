"""How paths of Azure's blob storage are spelled by fsspec, by DuckDB, by Hadoop, and by Azure itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAMES = ("abfs", "abfss", "az", "azure")
"""Protocols under which fsspec, DuckDB and Hadoop know the store."""
_HOST = re.compile(r"([a-z0-9-]+)\.(?:blob|dfs)\.[a-z0-9.-]+", re.IGNORECASE)


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
        """This file in the spelling of another path of its container.

        >>> azure_path("abfs://c/d/x").spelled_like("az://me.blob.core.windows.net/c/d/")
        'az://me.blob.core.windows.net/c/d/x'
        """
        other = azure_path(path)
        if other is None or not other.host:
            return f"{path.partition('://')[0]}://{self.inner}"
        in_front = f"{other.container}@{other.host}" in path
        return f"{other.scheme}://{f'{self.container}@{other.host}' if in_front else f'{other.host}/{self.container}'}/{self.inside}"

    def for_hadoop(self, scheme: str) -> str:
        """The path as Hadoop's file system for Azure wants it; without a host where none is known.

        >>> azure_path("az://me.dfs.core.windows.net/c/x").for_hadoop("abfss")
        'abfss://c@me.dfs.core.windows.net/x'
        """
        return f"{scheme}://{self.container}@{self.host}/{self.inside}" if self.host else f"{scheme}://{self.inner}"


def azure_path(path: str) -> AzurePath | None:
    """The parts of a path of Azure's blob storage, None for any other path.

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
