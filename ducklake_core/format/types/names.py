"""Names of tables as users write them (specification: Schemas)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ducklake_core.errors import UsageError

DEFAULT_SCHEMA = "main"
_PART = r'"(?:[^"]|"")+"|[^".]+'
_PATH = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*", re.DOTALL)
_NAME = re.compile(f"(?:(?P<schema>{_PART})\\.)?(?P<table>{_PART})", re.DOTALL)


def split_name(name: str) -> tuple[str, str]:
    """Schema and table of ``table`` or ``schema.table``; a part with dots or quotes is double-quoted, quotes doubled.

    >>> split_name("flights"), split_name("raw.flights"), split_name('raw."odd.na""me"')
    (('main', 'flights'), ('raw', 'flights'), ('raw', 'odd.na"me'))

    Raises:
        UsageError: Anything else.
    """
    parts = split_name_parts(name)
    if parts is None:
        raise UsageError(
            f"cannot read the table name {name!r}: write table or schema.table, with double quotes around odd parts", name=name
        )
    schema, table = parts
    return (_unquoted(schema) if schema else DEFAULT_SCHEMA), _unquoted(table)


def split_name_parts(name: str) -> tuple[str | None, str] | None:
    """Schema, if any, and table as they are written, quotes included; None for a text that is no name.

    >>> split_name_parts('raw."odd.name"'), split_name_parts("flights"), split_name_parts("a.b.c")
    (('raw', '"odd.name"'), (None, 'flights'), None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found["schema"], found["table"])


def join_name(schema: str, table: str) -> str:
    """The text that :func:`split_name` reads back.

    >>> join_name("main", "flights"), join_name("raw", 'odd.na"me')
    ('main.flights', 'raw."odd.na""me"')
    """
    return f"{_quoted(schema)}.{_quoted(table)}"


def split_path(name: str) -> tuple[str, ...]:
    """The parts of a column's name: ``s.z``, a part with dots or quotes double-quoted, quotes doubled.

    >>> split_path("s.z"), split_path('s."odd.na""me"')
    (('s', 'z'), ('s', 'odd.na"me'))

    Raises:
        UsageError: Text that cannot be read.
    """
    if not _PATH.fullmatch(name):
        raise UsageError(f"cannot read the column name {name!r}: put double quotes around parts with dots or quotes", column=name)
    return tuple(_unquoted(part) for part in re.findall(_PART, name))


def dotted(parts: Sequence[str]) -> str:
    """The text that :func:`split_path` reads back.

    >>> dotted(("s", "z")), dotted(("s", 'odd.na"me'))
    ('s.z', 's."odd.na""me"')
    """
    return ".".join(_quoted(part) for part in parts)


def quoted_path(parts: Sequence[str]) -> str:
    """A column, or a field of structs, as DuckDB's SQL names it, every part quoted.

    >>> print(quoted_path(("s", 'na"me')))
    "s"."na""me"
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def folded(name: str) -> str:
    """The same text for names that DuckDB finds equal: only ASCII letters lose their case.

    >>> folded("Flights"), folded("ÄRGER")
    ('flights', 'Ärger')
    """
    return name.lower() if name.isascii() else "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if re.search(r'[".]', part) else part
