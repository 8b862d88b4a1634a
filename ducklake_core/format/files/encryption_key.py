"""The key of an encrypted file, as the catalog stores it (specification: Encryption)."""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, field

from ducklake_core.errors import CatalogCorruptError, UnsupportedFeatureError

KEY_BYTES = 16
"""Length of new keys, which is what DuckDB makes."""
_LENGTHS = (16, 24, 32)
_WRAPPED = "kek"


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key that travels with the file it opens, to executors too, and shows itself in no repr and no message.

    Attributes:
        base64_text: The key as in ``encryption_key`` of ``ducklake_data_file`` and ``ducklake_delete_file``.

    >>> EncryptionKey("AAECAwQFBgcICQoLDA0ODw==")
    EncryptionKey(***)
    >>> EncryptionKey("AAECAwQFBgcICQoLDA0ODw==").raw("f.parquet").hex()
    '000102030405060708090a0b0c0d0e0f'
    """

    base64_text: str = field(repr=False)

    @classmethod
    def random(cls) -> EncryptionKey:
        """A new key for the files of one write."""
        return cls(base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii"))

    def raw(self, where: str) -> bytes:
        """The key itself: 16, 24 or 32 bytes.

        Args:
            where: The file, for messages.

        Raises:
            CatalogCorruptError: The text is not the base64 of an AES key.
            UnsupportedFeatureError: The key is itself encrypted.
        """
        prefix, separator, _ = self.base64_text.partition(":")
        if separator and prefix.startswith(_WRAPPED):
            raise UnsupportedFeatureError(
                f"the encryption key of {where} is itself encrypted (KEY_ENCRYPTION_KEY), which is not supported", path=where
            )
        try:
            key = base64.b64decode(self.base64_text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) not in _LENGTHS:
            # Without the cause: it may quote the text.
            raise CatalogCorruptError(f"the encryption key of {where} in the catalog is not the base64 text of an AES key", path=where)
        return key

    def __repr__(self) -> str:
        return "EncryptionKey(***)"
