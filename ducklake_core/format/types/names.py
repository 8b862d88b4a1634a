"""Names of schemas, tables and columns as users write them, and wildcard patterns (specification: Schemas)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ducklake_core.errors import UsageError
from ducklake_core.format.types.text import nearest, shown

DEFAULT_SCHEMA = "main"
# A part in double quotes, or any run of characters without dots and quotes.
_PART = r'"(?:[^"]|"")+"|[^".]+'
_PATH = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*", re.DOTALL)
_NAME = re.compile(f"(?:(?P<schema>(?:{_PART})(?:\\.(?:{_PART}))*)\\.)?(?P<table>{_PART})", re.DOTALL)

# Ends every part of a schema's path while it is compared: no name can have it.
_END = "\0"
_WILDCARDS = {"*": f"[^{_END}]*", "?": f"[^{_END}]"}
_ANY_DEPTH = f"(?:[^{_END}]+{_END})*"


def storable(name: str, value: object, *, nul: bool = False) -> str:
    """Return a string that a catalog can store. No database stores half of a surrogate pair, and PostgreSQL no NUL.

    >>> storable("name", "flights")
    'flights'

    Args:
        name: What the string is, for messages.
        value: What was given.
        nul: Whether it may contain NUL.

    Raises:
        UsageError: The value is not a string, or the catalog cannot store it.
    """
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a string, not {shown(value)}", parameter=name)
    if not nul and "\0" in value:
        raise UsageError(f"{name} is {shown(value)}, which contains a NUL character", parameter=name)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{name} is {shown(value)}, which contains half of a surrogate pair", parameter=name) from None
    return value


def split_name(name: str) -> tuple[str, str]:
    """Return the schema and table of ``table`` or ``schema.table``. Parts with dots or quotes are double-quoted.

    The schema is returned as a path with quotes, the table's name without quotes.

    >>> split_name("flights"), split_name("raw.flights"), split_name('raw."odd.na""me"')
    (('main', 'flights'), ('raw', 'flights'), ('raw', 'odd.na"me'))
    >>> split_name("sales.europe.orders"), split_name('"sales.europe"."orders"')
    (('sales.europe', 'orders'), ('"sales.europe"', 'orders'))

    Raises:
        UsageError: The string is not a name.
    """
    parts = split_name_parts(storable("the name of a table, view or macro", name))
    if parts is None:
        raise UsageError(
            f"cannot read the table name {name!r}. Write table or schema.table, with double quotes around parts that have dots or quotes",
            name=name,
        )
    schema, table = parts
    return (dotted(split_path(schema)) if schema else DEFAULT_SCHEMA), _unquoted(table)


def split_name_parts(name: str) -> tuple[str | None, str] | None:
    """Return schema, if any, and table as they are written, quotes included; None for a string that is not a name.

    >>> split_name_parts('raw."odd.name"'), split_name_parts("flights"), split_name_parts("a.b.c"), split_name_parts("a..c")
    (('raw', '"odd.name"'), (None, 'flights'), ('a.b', 'c'), None)
    """
    found = _NAME.fullmatch(name)
    return None if found is None else (found["schema"], found["table"])


def join_name(schema: str, table: str) -> str:
    """Return ``schema.table`` with quotes where necessary, the inverse of :func:`split_name`.

    >>> join_name("main", "flights"), join_name("raw", 'odd.na"me'), join_name("sales.europe", "orders")
    ('main.flights', 'raw."odd.na""me"', 'sales.europe.orders')
    """
    return f"{schema}.{_quoted(table)}"


def schema_path(text: str) -> str:
    """Return the normalized path of a schema. A string that is not a path is the name of one schema.

    >>> schema_path("sales.europe"), schema_path('"sales.europe"'), schema_path('"raw"'), schema_path('na"me')
    ('sales.europe', '"sales.europe"', 'raw', '"na""me"')
    """
    storable("the name of a schema", text)
    return dotted(split_path(text)) if _PATH.fullmatch(text) else dotted((text,))


def schemas_meant(text: str) -> tuple[str, str]:
    """Return the possible paths of a schema's name, in order. The first one that exists is used, as in DuckDB.

    ``a.b`` may be a schema in another one, or a top-level schema whose name has a dot.

    >>> schemas_meant("a.b"), schemas_meant("raw")
    (('a.b', '"a.b"'), ('raw', 'raw'))
    """
    return schema_path(text), dotted((text,))


def parent_schema(path: str) -> str | None:
    """Return the path of the schema that a schema is in, None for one at the top.

    >>> parent_schema("sales.europe.north"), parent_schema('"sales.europe"')
    ('sales.europe', None)
    """
    return dotted(split_path(path)[:-1]) or None


def split_path(name: str) -> tuple[str, ...]:
    """Return the parts of a column's name or a schema's path, such as ``s.z``. Parts with dots or quotes are double-quoted.

    >>> split_path("s.z"), split_path('s."odd.na""me"')
    (('s', 'z'), ('s', 'odd.na"me'))

    Raises:
        UsageError: The string is not a path.
    """
    storable("the name of a column or schema", name)
    if name and "." not in name and '"' not in name:
        return (name,)
    if not _PATH.fullmatch(name):
        raise UsageError(
            f"cannot read the name {name!r} of a column or schema. Put double quotes around parts that have dots or quotes", column=name
        )
    return tuple(map(_unquoted, raw_parts(name)))


def raw_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a dotted name as they are written, quotes included.

    >>> raw_parts('sales."x.y"')
    ('sales', '"x.y"')
    """
    return tuple(re.findall(_PART, name))


def dotted(parts: Sequence[str]) -> str:
    """Return the parts joined by dots, with quotes where necessary: the inverse of :func:`split_path`.

    >>> dotted(("s", "z")), dotted(("s", 'odd.na"me'))
    ('s.z', 's."odd.na""me"')
    """
    return ".".join(_quoted(part) for part in parts)


def quoted_path(parts: Sequence[str]) -> str:
    """Return a column, or a field of structs, as DuckDB's SQL names it, every part quoted.

    >>> print(quoted_path(("s", 'na"me')))
    "s"."na""me"
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def folded(name: str) -> str:
    """Return the same string for names that are equal in DuckDB, which ignores the case of ASCII letters only.

    >>> folded("Flights"), folded("ÄRGER")
    ('flights', 'Ärger')
    """
    # str.lower alone would also fold letters beyond ASCII, which DuckDB keeps apart.
    return name.lower() if name.isascii() else "".join(letter.lower() if letter.isascii() else letter for letter in name)


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if "." in part or '"' in part else part


@dataclass(frozen=True, slots=True)
class TablePattern:
    """A name of a table, or a pattern for many: ``table`` or ``schema.table``, where ``*`` matches any characters and ``?`` one character.

    Neither matches the dot between two names. ``**`` as a whole part matches any number of nested schemas, including none. A pattern
    without a dot applies to the schema ``main``. Wildcards in double quotes are ordinary characters. Patterns are case-insensitive.

    >>> pattern = TablePattern.parse("sales.order_*")
    >>> pattern.matches("Sales", "ORDER_LINES"), pattern.matches("sales", "orders"), pattern.matches("x.sales", "order_a")
    (True, False, False)
    >>> [TablePattern.parse(text).matches("sales.europe", "t") for text in ("*.*", "sales.*.*", "sales.**.t", "**.*")]
    [False, True, True, True]
    >>> [TablePattern.parse(text).matches(*name) for text in ("*", "*.*") for name in (("main", "t"), ("raw", "t"))]
    [True, False, True, True]
    >>> TablePattern.parse('main."a*"').matches("main", "ab"), TablePattern.parse('main."a*"').has_wildcards
    (False, False)

    Attributes:
        text: The pattern as written.
        has_wildcards: Whether it may match any number of tables, including none.
    """

    text: str
    has_wildcards: bool
    _schema: re.Pattern[str]
    _table: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Read a pattern.

        Raises:
            UsageError: The string is neither ``table`` nor ``schema.table``.
        """
        parts = split_name_parts(text)
        if parts is None:
            raise UsageError(
                f"cannot read the name {text!r}. Write table or schema.table, with double quotes around parts that have dots or quotes",
                name=text,
            )
        schema, table = parts
        schemas = raw_parts(schema or DEFAULT_SCHEMA)
        has_wildcards = any(_has_wildcards(part) for part in (*schemas, table))
        # A path is matched as its folded parts, each with _END behind it, so that no wildcard reaches into the next part.
        above = "".join(_ANY_DEPTH if part == "**" else _expression(part) + _END for part in schemas)
        return cls(text, has_wildcards, re.compile(above), re.compile(_expression(table), re.DOTALL))

    @property
    def name(self) -> tuple[str, str]:
        """Schema and table of a pattern without wildcards."""
        return split_name(self.text)

    def matches(self, schema: str, table: str) -> bool:
        """Return whether the pattern matches a table."""
        path = "".join(folded(part) + _END for part in split_path(schema))
        return self._schema.fullmatch(path) is not None and self._table.fullmatch(folded(table)) is not None


def _has_wildcards(part: str) -> bool:
    return not part.startswith('"') and any(sign in part for sign in _WILDCARDS)


def _expression(part: str) -> str:
    if part.startswith('"'):
        return re.escape(folded(part[1:-1].replace('""', '"')))
    return "".join(_WILDCARDS.get(letter) or re.escape(letter) for letter in folded(part))


def similar_entries(schema: str, name: str, entries: Iterable[tuple[str, str]]) -> str:
    """Return the part of a not-found message that suggests entries: this name in other schemas, or similar names, here if there are any.

    Args:
        schema: Schema of the missing entry.
        name: Name of the missing entry.
        entries: Schema and name of all entries.

    >>> similar_entries("main", "flihgts", [("main", "flights"), ("raw", "planes")]), similar_entries("main", "x", [("main", "t")])
    (" (did you mean 'main.flights'?)", '')
    >>> similar_entries("main", "planes", [("main", "flights"), ("raw", "planes")])
    " (did you mean 'raw.planes'?)"
    >>> similar_entries("rwa", "plans", [("raw", "planes")])
    " (did you mean 'raw.planes'?)"
    """
    known = list(entries)
    found = sorted(join_name(owner, entry) for owner, entry in known if folded(entry) == folded(name))[:3]
    if not found:
        everywhere = {entry: join_name(owner, entry) for owner, entry in known}
        here = {entry: join_name(owner, entry) for owner, entry in known if folded(owner) == folded(schema)}
        found = [here[one] for one in nearest(name, here)] or [everywhere[one] for one in nearest(name, everywhere)]
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""
