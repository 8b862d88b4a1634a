"""Names of tables as users write them (specification: Schemas)."""

from __future__ import annotations

import re

from ducklake_core.errors import UsageError

DEFAULT_SCHEMA = "main"
_PART = r'"(?:[^"]|"")+"|[^".]+'
_NAME = re.compile(f"(?:(?P<schema>{_PART})\\.)?(?P<table>{_PART})", re.DOTALL)


def split_name(name: str) -> tuple[str, str]:
    """Schema and table of ``table`` or ``schema.table``; a part with dots or quotes is double-quoted, quotes doubled.

    >>> split_name("flights"), split_name("raw.flights"), split_name('raw."odd.na""me"')
    (('main', 'flights'), ('raw', 'flights'), ('raw', 'odd.na"me'))

    Raises:
        UsageError: Anything else.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise UsageError(
            f"cannot read the table name {name!r}: write table or schema.table, with double quotes around odd parts", name=name
        )
    return (_unquoted(found["schema"]) if found["schema"] else DEFAULT_SCHEMA), _unquoted(found["table"])


def join_name(schema: str, table: str) -> str:
    """The text that :func:`split_name` reads back.

    >>> join_name("main", "flights"), join_name("raw", 'odd.na"me')
    ('main.flights', 'raw."odd.na""me"')
    """
    return f"{_quoted(schema)}.{_quoted(table)}"


def folded(name: str) -> str:
    """The same text for names that the reference finds equal: only ASCII letters lose their case.

    >>> folded("Flights"), folded("ÄRGER")
    ('flights', 'Ärger')
    """
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if re.search(r'[".]', part) else part
