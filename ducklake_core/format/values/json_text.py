"""Texts that are JSON."""

from __future__ import annotations

import json
import re

from ducklake_core.errors import UsageError

_NO_NUMBER = re.compile(r"[ \t\n\r]*-?(?:nan|inf(?:inity)?)[ \t\n\r]*", re.IGNORECASE)


def json_text(text: str) -> str:
    """The text, which is JSON.

    >>> json_text(' {"a": 1}')
    ' {"a": 1}'

    Raises:
        UsageError: It is not JSON, or nested too deep.
    """
    if _NO_NUMBER.fullmatch(text):
        return text
    try:
        # Numbers are not looked at: their digits may be as many as there are.
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"{text[:200]!r} cannot be read as JSON", type="json") from problem
    return text
