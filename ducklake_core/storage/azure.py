"""Options for fsspec's Azure package (adlfs): which account a path means, and which parts of its options are secret."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from ducklake_core.errors import UnsupportedFeatureError
from ducklake_core.format.files.azure_paths import AzurePath
from ducklake_core.format.files.locations import printable

_SECRET_PART = re.compile(r"(?:AccountKey|SharedAccessSignature|(?<![a-z])sig)=([^;&]+)", re.IGNORECASE)


def with_account(options: Mapping[str, Any], path: AzurePath) -> dict[str, Any]:
    """Options with the account that the path names, where neither they nor the environment name one."""
    named = ("account_name", "connection_string")
    known = any(options.get(name) or os.environ.get(f"AZURE_STORAGE_{name.upper()}") for name in named)
    return {**options} if known or not path.account else {**options, "account_name": path.account}


def check_account(filesystem: Any, path: AzurePath, full_path: str) -> None:
    """Refuse to look for a file of one account in another, where a file of that name may be as well.

    Raises:
        UnsupportedFeatureError: The path names an account that is not the file system's.
    """
    mine = getattr(filesystem.service_client, "account_name", None)
    if path.account and mine and path.account != mine.lower():
        raise UnsupportedFeatureError(
            f"{printable(full_path)} is in the account {path.account}, but the storage options are for the account {mine}; connect with "
            "options of its own account",
            path=printable(full_path),
        )


def secret_parts(text: str) -> Iterator[str]:
    """Secrets within a connection string or a signature, as errors may show them without the rest.

    >>> list(secret_parts("AccountName=me;AccountKey=a2V5LWtleQ==;")), list(secret_parts("?sv=1&sig=a%2Fb"))
    (['a2V5LWtleQ=='], ['a%2Fb', 'a/b'])
    """
    for found in _SECRET_PART.findall(text):
        yield found
        yield from secret_parts(found)
        if unquote(found) != found:
            yield unquote(found)
