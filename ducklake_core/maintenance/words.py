"""How plans speak of sizes."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size_text(size: int) -> str:
    """Bytes for people.

    >>> size_text(999), size_text(1536), size_text(3 * 1024**3)
    ('999 B', '1.5 KiB', '3.0 GiB')
    """
    if size < 1024:
        return f"{size} B"
    steps = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**steps:.1f} {_UNITS[steps - 1]}"
