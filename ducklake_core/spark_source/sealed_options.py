"""Notes that the planning of a write leaves for its end, on the driver's disk.

Spark plans a write in one Python process of the driver and ends it in another, and hands to the latter the very object that it also
ships to executors. So what they must not see - the address of the catalog - is left in a file, encrypted, and only the key
travels: the file alone is worth nothing, the key alone neither.

Whether a note is there also tells whether a commit has begun: whoever commits takes the note away first. Spark aborts a write
whose commit failed, even if nobody knows its outcome; without the note an abort deletes nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ducklake_core.errors import CommitError

_PREFIX = "ducklake-write-"
# None for the directory that the environment names.
_DIRECTORY: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedWriteOptions:
    """Where a note is, and the key to it.

    Attributes:
        path: The file, readable by its owner alone.
        key: Of its contents.
    """

    path: str
    key: bytes = field(repr=False)

    @classmethod
    def store(cls, contents: Mapping[str, str]) -> SealedWriteOptions:
        """Leave a note in the driver's directory for temporary files."""
        from ducklake_core.storage.encryption.modules import Cipher

        key = secrets.token_bytes(32)
        handle, path = tempfile.mkstemp(prefix=_PREFIX, dir=_DIRECTORY)
        with os.fdopen(handle, "wb") as file:
            file.write(Cipher(key).encrypt_module(json.dumps(dict(contents)).encode()))
        return cls(path=path, key=key)

    def claim(self) -> dict[str, str]:
        """Read the note and take it away; only one caller gets it.

        Raises:
            CommitError: It is gone: the write was committed or aborted before, or this is not the machine where it was planned.
        """
        from ducklake_core.storage.encryption.modules import Cipher

        mine = f"{self.path}.taken"
        try:
            # Of two callers only one can move it.
            Path(self.path).rename(mine)
        except OSError:
            raise CommitError(
                "this write cannot be committed: the note of its planning is gone from the driver's directory for temporary files; "
                "run the write again"
            ) from None
        sealed = Path(mine).read_bytes()
        Path(mine).unlink()
        contents: dict[str, str] = json.loads(Cipher(self.key).decrypt_module(memoryview(sealed), 0)[0])
        return contents

    def withdraw(self) -> bool:
        """Take the note away unread; False when no commit may be undone because one has begun, or the write was ended before."""
        try:
            Path(self.path).unlink()
        except OSError:
            return False
        return True
