"""Names of tables with wildcards, as verbs about many tables take them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ducklake_core.errors import UsageError
from ducklake_core.format.types.names import DEFAULT_SCHEMA, folded, raw_parts, split_name, split_name_parts, split_path

# Ends every part of a schema's path while it is compared: no name can have it.
_END = "\0"
_WILDCARDS = {"*": f"[^{_END}]*", "?": f"[^{_END}]"}
_ANY_DEPTH = f"(?:[^{_END}]+{_END})*"


@dataclass(frozen=True, slots=True)
class TablePattern:
    """One or many tables: ``table`` or ``schema.table`` with ``*`` for any letters and ``?`` for one, in any part.

    Neither stands for the dot between two names; ``**`` as a whole part stands for any number of schemas inside each other, none too. A
    pattern without a dot is about the schema ``main``, as names are. Within double quotes the signs are themselves. ASCII letters match in
    either case.

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
        text: As it was written.
        has_wildcards: Whether it may match any number of tables, none of them too.
    """

    text: str
    has_wildcards: bool
    _schema: re.Pattern[str]
    _table: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> TablePattern:
        """Read a pattern.

        Raises:
            UsageError: Neither ``table`` nor ``schema.table``.
        """
        parts = split_name_parts(text)
        if parts is None:
            raise UsageError(f"cannot read the name {text!r}: write table or schema.table, with double quotes around odd parts", name=text)
        schema, table = parts
        schemas = raw_parts(schema or DEFAULT_SCHEMA)
        has_wildcards = any(_has_wildcards(part) for part in (*schemas, table))
        above = "".join(_ANY_DEPTH if part == "**" else _expression(part) + _END for part in schemas)
        return cls(text, has_wildcards, re.compile(above), re.compile(_expression(table), re.DOTALL))

    @property
    def name(self) -> tuple[str, str]:
        """Schema and table of a pattern without wildcards."""
        return split_name(self.text)

    def matches(self, schema: str, table: str) -> bool:
        """Whether a table is one of those."""
        path = "".join(folded(part) + _END for part in split_path(schema))
        return self._schema.fullmatch(path) is not None and self._table.fullmatch(folded(table)) is not None


def _has_wildcards(part: str) -> bool:
    return not part.startswith('"') and any(sign in part for sign in _WILDCARDS)


def _expression(part: str) -> str:
    if part.startswith('"'):
        return re.escape(folded(part[1:-1].replace('""', '"')))
    return "".join(_WILDCARDS.get(letter) or re.escape(letter) for letter in folded(part))
