"""Damage is said of a file only after it was read twice: a response of a store may be cut short, and look like a damaged file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ducklake_core.errors import CorruptFileError

Found = TypeVar("Found")


def read_twice(read: Callable[[], Found]) -> Found:
    """Call ``read``, and once more when it finds the file damaged.

    Raises:
        CorruptFileError: The file looks damaged both times.
    """
    try:
        return read()
    except CorruptFileError:
        return read()
