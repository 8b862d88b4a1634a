"""Regular expressions that RE2 and Java match alike: a small language, checked letter by letter."""

from __future__ import annotations

import re

from ducklake_core.view_sql.typed import Refused

_PIECE = re.compile(
    r"(?P<class>\[\^?[A-Za-z0-9_ .,:;@#%/+-]+\])|(?P<escape>\\[.dwsDWS\\()\[\]+*?|^$/-])|(?P<bound>\{\d{1,3}(?:,\d{0,3})?\})"
    r"|(?P<sign>[()|*+?^$.])|(?P<plain>[A-Za-z0-9_ ,:;@#%/=<>!'\"~&-])",
    re.ASCII,
)
_JAVA = {".": r"[^\n]", "$": r"\z", "^": r"\A", "\\d": "[0-9]", "\\w": "[0-9A-Za-z_]", "\\s": r"[\t\n\f\r ]", "\\D": "[^0-9]",
         "\\W": "[^0-9A-Za-z_]", "\\S": r"[^\t\n\f\r ]"}  # fmt: skip


def java_pattern(pattern: str) -> str:
    r"""The pattern as Java writes it.

    >>> java_pattern("^a.[0-9]+$")
    '\\Aa[^\\n][0-9]+\\z'

    Raises:
        Refused: Anything whose meaning may differ.
    """
    parts, position = [], 0
    while position < len(pattern):
        found = _PIECE.match(pattern, position)
        if found is None or (pattern.startswith("(?", position)):
            raise Refused(f"the regular expression {pattern!r} is not among those that both engines match alike")
        parts.append(_JAVA.get(found.group(), found.group()))
        position = found.end()
    if re.search(r"[*+?}]\+", pattern):
        raise Refused(f"the regular expression {pattern!r} repeats a repetition")
    try:
        re.compile(pattern)
    except re.error as problem:
        raise Refused(f"the regular expression {pattern!r} cannot be read") from problem
    return "".join(parts)
