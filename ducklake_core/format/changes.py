"""Encode and parse ``ducklake_snapshot_changes.changes_made`` (specification: ducklake_snapshot_changes).

A text is a list of ``kind:value`` entries, divided by commas, in a fixed order of kinds.  Values are ids, or quoted names for
what was created.  DuckDB rejects a snapshot with a kind that it does not know, so only the kinds below
are ever written; readers keep what they do not know as :attr:`Changes.unknown` and let the commit rules decide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache

from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.types.names import dotted, quoted_path, split_path

COMMIT_ID_KEY = "commit_id"
WRITER_KEY = "commit_writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualifiedName:
    """Schema (its path, as in ``sales.europe``) and name of a created table, view or macro."""

    schema: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of one snapshot: ids of schemas, tables, views and macros, or names of what it created.

    Attributes:
        created_schema: Paths of created schemas.
        created_table: Names of created tables; a renamed table appears here under its new name, and nowhere else.
        created_view: Names of created or renamed views.
        inserted_into_table: Tables that got data files.
        deleted_from_table: Tables that lost rows of data files.
        altered_table: Tables whose columns, partitioning, sorting or comment changed.
        inlined_insert: Tables that got inlined rows.
        inlined_delete: Tables that lost inlined rows, or rows of files through the catalog.
        inline_flush: Tables whose inlined rows moved to files.
        merge_adjacent: Tables whose files were merged; a snapshot with this changes no rows of the table.
        rewrite_delete: Tables whose files were written again without their deleted rows, or whose delete files a flush replaced.
        unknown: Entries of kinds that this library does not know, unchanged.
    """

    dropped_schema: tuple[int, ...] = ()
    dropped_table: tuple[int, ...] = ()
    dropped_view: tuple[int, ...] = ()
    created_schema: tuple[str, ...] = ()
    created_table: tuple[QualifiedName, ...] = ()
    created_view: tuple[QualifiedName, ...] = ()
    created_scalar_macro: tuple[QualifiedName, ...] = ()
    created_table_macro: tuple[QualifiedName, ...] = ()
    dropped_scalar_macro: tuple[int, ...] = ()
    dropped_table_macro: tuple[int, ...] = ()
    inserted_into_table: tuple[int, ...] = ()
    deleted_from_table: tuple[int, ...] = ()
    altered_table: tuple[int, ...] = ()
    altered_view: tuple[int, ...] = ()
    inlined_insert: tuple[int, ...] = ()
    inlined_delete: tuple[int, ...] = ()
    inline_flush: tuple[int, ...] = ()
    merge_adjacent: tuple[int, ...] = ()
    rewrite_delete: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def touched_ids(self) -> frozenset[int]:
        """The ids of all schemas, tables, views and macros that existed before and were changed or dropped."""
        return frozenset(value for kind in _KINDS for value in getattr(self, kind) if isinstance(value, int))

    def listing(self, words: Collection[str] = ()) -> dict[str, list[str]]:
        """Return the same as strings by the keys of DuckDB's ``snapshots()`` function, kinds without entries left out.

        Names that are not plain are quoted.

        Args:
            words: Words to quote too; DuckDB quotes the words of its SQL. Default: none.

        >>> Changes(created_table=(QualifiedName(schema="main", name="t"),), inline_flush=(4,)).listing()
        {'tables_created': ['main.t'], 'flushed_inlined': ['4']}
        """
        found: dict[str, list[str]] = {}
        for kind, key in _LISTED_AS.items():
            values = getattr(self, kind)
            if values:
                found[key] = [_plain_name(value, words) if isinstance(value, QualifiedName) else _shown(kind, value) for value in values]
        return found


# The order of the fields above is the order in which DuckDB writes the kinds.
_KINDS = tuple(field.name for field in fields(Changes) if field.name != "unknown")
_SCHEMA_KINDS = frozenset({"created_schema"})
_NAME_KINDS = frozenset({"created_table", "created_view", "created_scalar_macro", "created_table_macro"})
_LISTED_AS = {
    "created_schema": "schemas_created",
    "dropped_schema": "schemas_dropped",
    "created_table": "tables_created",
    "dropped_table": "tables_dropped",
    "altered_table": "tables_altered",
    "inserted_into_table": "tables_inserted_into",
    "deleted_from_table": "tables_deleted_from",
    "created_view": "views_created",
    "dropped_view": "views_dropped",
    "altered_view": "views_altered",
    "created_scalar_macro": "scalar_macros_created",
    "dropped_scalar_macro": "scalar_macros_dropped",
    "created_table_macro": "table_macros_created",
    "dropped_table_macro": "table_macros_dropped",
    "inlined_insert": "inlined_insert",
    "inlined_delete": "inlined_delete",
    "inline_flush": "flushed_inlined",
    "merge_adjacent": "merge_adjacent",
    "rewrite_delete": "rewrite_delete",
    "unknown": "unknown",
}
_PLAIN = re.compile("[a-z_][a-z0-9_]*", re.ASCII)
# Spellings that earlier versions of DuckDB's extension wrote.
_ALIASES = {"compacted_table": "merge_adjacent", "flushed_inlined": "inline_flush"}


def encode_changes(changes: Changes) -> str:
    """Return the text of changes, in DuckDB's order, ids ascending and each once.

    >>> created = (QualifiedName(schema="main", name='we"ird, name'),)
    >>> encode_changes(Changes(created_table=created, inserted_into_table=(4, 2, 4)))
    'created_table:"main"."we""ird, name",inserted_into_table:2,inserted_into_table:4'
    >>> encode_changes(Changes(created_schema=("sales.europe", '"sales.europe"')))
    'created_schema:"sales.europe",created_schema:"sales"."europe"'

    Unknown entries are not written.
    """
    entries: list[str] = []
    for kind in _KINDS:
        if kind == "created_view":
            continue  # written together with the tables
        if kind == "created_table":
            entries.extend(_created_relations(changes))
        elif kind in _NAME_KINDS:
            entries.extend(f"{kind}:{_quoted_name(name)}" for name in _sorted_names(getattr(changes, kind)))
        elif kind in _SCHEMA_KINDS:
            entries.extend(f"{kind}:{quoted_path(split_path(name))}" for name in sorted(set(changes.created_schema), key=str.lower))
        else:
            entries.extend(f"{kind}:{number}" for number in sorted(set(getattr(changes, kind))))
    return ",".join(entries)


def parse_changes(text: str | None) -> Changes:
    """Parse a text of changes; kinds are read without regard to case, and old spellings of kinds are understood.

    >>> parsed = parse_changes('Created_Table:"main"."a,b",compacted_table:7,new_kind:1')
    >>> parsed.created_table, parsed.merge_adjacent, parsed.unknown
    ((QualifiedName(schema='main', name='a,b'),), (7,), ('new_kind:1',))

    Args:
        text: The text; None and an empty text mean that nothing is recorded.

    Raises:
        CatalogCorruptError: Text that is not a list of entries, or a known kind with a value of the wrong form.
    """
    text = text or ""
    # Most commits record one of a few changes, such as rows inserted into the same table. Long strings hardly ever repeat.
    return _parse_again(text) if len(text) <= _SHORT else _parse(text)


_SHORT = 200


def _parse(text: str) -> Changes:
    found: dict[str, list[object]] = {}
    for kind, value in _entries(text):
        folded = kind.lower()
        known = _ALIASES.get(folded, folded)
        if known in _KINDS:
            found.setdefault(known, []).append(_parse_value(known, value))
        else:
            found.setdefault("unknown", []).append(f"{kind}:{value}")
    # The values under each kind have the type of its field: _parse_value goes by kind.
    return Changes(**{kind: tuple(values) for kind, values in found.items()})  # type: ignore[arg-type]


_parse_again = lru_cache(maxsize=4096)(_parse)


# DuckDB sorts the tables and views of a snapshot together, by schema and name.
def _created_relations(changes: Changes) -> Iterable[str]:
    relations = [("created_table", name) for name in changes.created_table] + [("created_view", name) for name in changes.created_view]
    return (f"{kind}:{_quoted_name(name)}" for kind, name in sorted(set(relations), key=lambda pair: _name_key(pair[1])))


def _sorted_names(names: Iterable[QualifiedName]) -> list[QualifiedName]:
    return sorted(set(names), key=_name_key)


def _name_key(name: QualifiedName) -> tuple[str, str]:
    return name.schema.lower(), name.name.lower()


def _shown(kind: str, value: object) -> str:
    """Return an id or a word as a string, and the path of a schema as DuckDB shows it: without quotes when it is at the top."""
    parts = split_path(str(value)) if kind in _SCHEMA_KINDS else ()
    return parts[0] if len(parts) == 1 else str(value)


def _plain_name(name: QualifiedName, words: Collection[str]) -> str:
    def shown(part: str) -> str:
        return part if _PLAIN.fullmatch(part.lower()) and part.lower() not in words else quoted_path((part,))

    is_plain = _PLAIN.fullmatch(name.name) and name.name not in words
    return ".".join((*map(shown, split_path(name.schema)), name.name if is_plain else quoted_path((name.name,))))


def _quoted_name(name: QualifiedName) -> str:
    return quoted_path((*split_path(name.schema), name.name))


# One entry with the comma behind it. Quoted names may contain commas and colons, so the text cannot be split at them.
_ENTRY = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*:\s*((?:"(?:[^"]|"")*"|[^",])*)(?:,|$)', re.ASCII)


def _entries(text: str) -> Iterable[tuple[str, str]]:
    position = 0
    while position < len(text):
        found = _ENTRY.match(text, position)
        if not found:
            raise CatalogCorruptError(f"cannot read changes_made from {text[position : position + 80]!r} on", changes=text)
        yield found[1], found[2].strip()
        position = found.end()


_MAX_DIGITS = 19
_SHORTEST_NAME = 2
_NAME = re.compile(r'"((?:[^"]|"")*)"')


def _parse_value(kind: str, value: str) -> object:
    if kind not in _NAME_KINDS | _SCHEMA_KINDS:
        # Python rejects integers of thousands of digits, and ids are 64-bit numbers.
        if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
            return int(value)
        raise CatalogCorruptError(f"changes_made has {value[:80]!r} as id of {kind}", changes=value)
    parts = tuple(part.replace('""', '"') for part in _NAME.findall(value))
    if quoted_path(parts) == value and all(parts) and len(parts) >= (1 if kind in _SCHEMA_KINDS else _SHORTEST_NAME):
        return dotted(parts) if kind in _SCHEMA_KINDS else QualifiedName(schema=dotted(parts[:-1]), name=parts[-1])
    raise CatalogCorruptError(f"changes_made has {value!r} as name of {kind}", changes=value)


def commit_id_of(extra_info: str | None) -> str | None:
    """Return the commit id in a ``commit_extra_info`` string, None when there is none.

    >>> commit_id_of('{"commit_id": "c1", "run": 7}'), commit_id_of("by hand"), commit_id_of(None)
    ('c1', None, None)
    """
    return _text_in(extra_info, COMMIT_ID_KEY)


def writer_of(extra_info: str | None) -> str | None:
    """Return the writer in a ``commit_extra_info`` string, None when there is none."""
    return _text_in(extra_info, WRITER_KEY)


def _text_in(extra_info: str | None, key: str) -> str | None:
    found = (json_object(extra_info) or {}).get(key) if extra_info else None
    return found if isinstance(found, str) else None


def json_object(text: str) -> dict[str, object] | None:
    """Return the JSON object in a ``commit_extra_info`` string, None when it contains none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # Any client may have written it: what is not JSON was not written by this library.
        return None
    return value if isinstance(value, dict) else None
