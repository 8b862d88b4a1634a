"""Which DuckLake table an asset is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ducklake_core.errors import UsageError
from ducklake_core.format.names import DEFAULT_SCHEMA, join_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAddress:
    """A schema and a table name, both as written."""

    schema: str
    table: str

    @property
    def sql(self) -> str:
        """The name as :meth:`ducklake_core.DuckLake.table` reads it.

        >>> TableAddress(schema="main", table='we"ird.name').sql
        'main."we""ird.name"'
        """
        return join_name(self.schema, self.table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def table_address(key_path: Sequence[str], metadata: Mapping[str, Any], default_schema: str | None) -> TableAddress:
    """The table of an asset: ``table`` and ``schema`` metadata win; otherwise the last part of the asset key is the table,
    and the schema is the manager's, or else the second last part of the key, or else ``main``.

    >>> str(table_address(["sales", "orders"], {}, None)), str(table_address(["sales", "orders"], {"table": "o"}, "raw"))
    ('sales.orders', 'raw.o')
    """
    schema = _text(metadata, "schema") or default_schema or (key_path[-2] if len(key_path) > 1 else DEFAULT_SCHEMA)
    return TableAddress(schema=schema, table=_text(metadata, "table") or key_path[-1])


def _text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"metadata {key!r} must be a name, not {value!r}", metadata=key)
    return value
