"""Catalog versions, and which tables and columns a catalog of an earlier one really has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, inspect

from ducklake_core.catalog.database.tables import PREFIX, metadata_tables

CATALOG_VERSION = "1.0"
EARLIER_VERSIONS = ("0.1", "0.2", "0.3-dev1", "0.3", "0.4-dev1", "0.4")
"""Versions that can be read, and migrated, but not written."""

_ADDED_LATER = frozenset(
    {"column_mapping", "name_mapping", "schema_versions", "macro", "macro_impl", "macro_parameters"}
    | {"sort_info", "sort_expression", "file_variant_stats"}
)
FORMER_NAMES = {"file_column_stats": "file_column_statistics"}
"""Metadata tables that had another name once."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The metadata tables of a catalog as they are. Found by looking, as development versions are not written down anywhere.

    Attributes:
        version: What the catalog says of itself.
        tables: Name without prefix and names of columns in order, for each table that is there.
    """

    version: str
    tables: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Names of columns by table."""
        return dict(self.tables)

    def has(self, table: str, column: str) -> bool:
        """Whether there is such a column."""
        return column in self.columns.get(table, ())

    def stored_name(self, table: str) -> str | None:
        """The name that a table of version 1.0 has here, None when there is none."""
        return next((name for name in (table, FORMER_NAMES.get(table)) if name in self.columns), None)

    def lost(self) -> list[str]:
        """Tables that every version has, but this catalog has not."""
        names = (name for name in metadata_tables(None) if name not in _ADDED_LATER)
        return [PREFIX + name for name in names if self.stored_name(name) is None]

    def differences(self) -> list[str]:
        """How the tables differ from those of version 1.0, whose order of columns counts."""
        wanted = {name: tuple(column.name for column in table.c) for name, table in metadata_tables(None).items()}
        missing = [f"{PREFIX}{name} is missing" for name in wanted if name not in self.columns]
        changed = [
            f"{PREFIX}{name} has the columns {', '.join(self.columns[name])}, not {', '.join(columns)}"
            for name, columns in wanted.items()
            if name in self.columns and self.columns[name] != columns
        ]
        return [*missing, *changed]


def read_layout(connection: Connection, schema: str | None, version: str) -> Layout:
    """Look at the metadata tables of a catalog."""
    names = [*metadata_tables(schema), *FORMER_NAMES.values()]
    found = inspect(connection).get_multi_columns(schema=schema, filter_names=[PREFIX + name for name in names])
    columns = {name.removeprefix(PREFIX): tuple(column["name"] for column in listed) for (_, name), listed in found.items() if listed}
    return Layout(version, tuple(sorted(columns.items())))


def readable(versions: Iterable[str] = (*EARLIER_VERSIONS, CATALOG_VERSION)) -> str:
    """The versions that can be read, for messages.

    >>> readable(("0.4", "1.0"))
    '0.4, 1.0'
    """
    return ", ".join(versions)
