"""Names of tables as users write them (specification: Schemas).

A schema may be inside another one, so that a schema's name is a path: ``sales.europe``. Everywhere in the library ``schema_name`` is that
path as a text in which odd parts are quoted: ``"sales.europe"`` is one schema, ``sales.europe`` is one in another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ducklake_core.errors import UsageError

DEFAULT_SCHEMA = "main"
_PART = r'"(?:[^"]|"")+"|[^".]+'
_PATH = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*", re.DOTALL)
_NAME = re.compile(f"(?:(?P<schema>(?:{_PART})(?:\\.(?:{_PART}))*)\\.)?(?P<table>{_PART})", re.DOTALL)


def split_name(name: str) -> tuple[str, str]:
    """Schema and table of ``table`` or ``schema.table``; a part with dots or quotes is double-quoted, quotes doubled.

    The schema stays a path with its quotes, the table's name loses them.

    >>> split_name("flights"), split_name("raw.flights"), split_name('raw."odd.na""me"')
    (('main', 'flights'), ('raw', 'flights'), ('raw', 'odd.na"me'))
    >>> split_name("sales.europe.orders"), split_name('"sales.europe"."orders"')
    (('sales.europe', 'orders'), ('"sales.europe"', 'orders'))

    Raises:
        UsageError: Anything else.
    """
    parts = split_name_parts(name)
    if parts is None:
        raise UsageError(
            f"cannot read the table name {name!r}: write table or schema.table, with double quotes around odd parts", name=name
        )
    schema, table = parts
    return (dotted(split_path(schema)) if schema else DEFAULT_SCHEMA), _unquoted(table)


def split_name_parts(name: str) -> tuple[str | None, str] | None:
    """Schema, if any, and table as they are written, quotes included; None for a text that is no name.

    >>> split_name_parts('raw."odd.name"'), split_name_parts("flights"), split_name_parts("a.b.c"), split_name_parts("a..c")
    (('raw', '"odd.name"'), (None, 'flights'), ('a.b', 'c'), None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found["schema"], found["table"])


def join_name(schema: str, table: str) -> str:
    """The text that :func:`split_name` reads back, of a schema's path and a table's bare name.

    >>> join_name("main", "flights"), join_name("raw", 'odd.na"me'), join_name("sales.europe", "orders")
    ('main.flights', 'raw."odd.na""me"', 'sales.europe.orders')
    """
    return f"{schema}.{_quoted(table)}"


def schema_path(text: str) -> str:
    """The path of a schema that somebody names, as the library writes it; a text that is no path is the name of one schema.

    >>> schema_path("sales.europe"), schema_path('"sales.europe"'), schema_path('"raw"'), schema_path('na"me')
    ('sales.europe', '"sales.europe"', 'raw', '"na""me"')
    """
    return dotted(split_path(text)) if _PATH.fullmatch(text) else dotted((text,))


def schemas_meant(text: str) -> tuple[str, str]:
    """The paths that an argument which names a schema may mean, the first that is there counts, as DuckDB finds it: the path ``a.b``, or
    else one schema at the top whose whole name is ``a.b``.

    >>> schemas_meant("a.b"), schemas_meant("raw")
    (('a.b', '"a.b"'), ('raw', 'raw'))
    """
    return schema_path(text), dotted((text,))


def parent_schema(path: str) -> str | None:
    """The path of the schema that a schema is in, None for one at the top.

    >>> parent_schema("sales.europe.north"), parent_schema('"sales.europe"')
    ('sales.europe', None)
    """
    return dotted(split_path(path)[:-1]) or None


def split_path(name: str) -> tuple[str, ...]:
    """The parts of a column's name or of a schema's path: ``s.z``, a part with dots or quotes double-quoted, quotes doubled.

    >>> split_path("s.z"), split_path('s."odd.na""me"')
    (('s', 'z'), ('s', 'odd.na"me'))

    Raises:
        UsageError: Text that cannot be read.
    """
    if name and "." not in name and '"' not in name:
        return (name,)
    if not _PATH.fullmatch(name):
        raise UsageError(
            f"cannot read the name {name!r} of a column or schema: put double quotes around parts with dots or quotes", column=name
        )
    return tuple(map(_unquoted, raw_parts(name)))


def raw_parts(name: str) -> tuple[str, ...]:
    """The parts of a dotted name as they are written, quotes included.

    >>> raw_parts('sales."x.y"')
    ('sales', '"x.y"')
    """
    return tuple(re.findall(_PART, name))


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
    return '"' + part.replace('"', '""') + '"' if "." in part or '"' in part else part
