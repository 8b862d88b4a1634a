"""How plans speak of sizes."""

from __future__ import annotations

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def format_bytes(size: int) -> str:
    """Bytes for people.

    >>> format_bytes(999), format_bytes(1536), format_bytes(3 * 1024**3)
    ('999 B', '1.5 KiB', '3.0 GiB')
    """
    if size < 1024:
        return f"{size} B"
    steps = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**steps:.1f} {_UNITS[steps - 1]}"
