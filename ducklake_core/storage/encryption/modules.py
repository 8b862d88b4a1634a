"""Modules, the units of encryption: a length, a nonce, the ciphertext and its tag."""

from __future__ import annotations

import os
from typing import TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Bytes: TypeAlias = bytes | bytearray | memoryview
_LENGTH = 4
_NONCE = 12
_TAG = 16


class BadModuleError(ValueError):
    """Bytes are not a module made with this key."""


class Cipher:
    """AES-GCM with one key and no associated data.

    >>> cipher = Cipher(bytes(16))
    >>> module = cipher.encrypt_module(b"page")
    >>> len(module), cipher.decrypt_module(memoryview(b"ab" + module + b"c"), 2)
    (36, (b'page', 38))
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def encrypt_module(self, plain: Bytes) -> bytes:
        """Return the plain bytes as one module, under a nonce of its own."""
        nonce = os.urandom(_NONCE)
        sealed = self._cipher.encrypt(nonce, plain, None)
        return b"".join(((_NONCE + len(sealed)).to_bytes(_LENGTH, "little"), nonce, sealed))

    def decrypt_module(self, data: memoryview, start: int) -> tuple[bytes, int]:
        """Decrypt the module at a place; the plain bytes, and the place after it.

        Raises:
            BadModuleError: It is cut, was made with another key, or was changed.
        """
        begin = start + _LENGTH
        end = begin + int.from_bytes(data[start:begin], "little")
        if begin + _NONCE + _TAG > end or end > len(data):
            raise BadModuleError(f"the module at byte {start} is cut")
        try:
            return self._cipher.decrypt(data[begin : begin + _NONCE], data[begin + _NONCE : end], None), end
        except InvalidTag:
            raise BadModuleError(f"the module at byte {start} was changed, or encrypted with another key") from None
