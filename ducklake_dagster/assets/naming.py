"""Map assets to names of DuckLake tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ducklake_core import DEFAULT_SCHEMA, dotted, join_name, schema_path
from ducklake_core.errors import UsageError

KEY_PREFIX = "{key_prefix}"
"""Stands in ``schema`` for the parts of the asset key before its last."""
MAPPING_KEY = "{mapping_key}"
"""Stands in ``table`` metadata of a mapped output for the key that the output is mapped by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAddress:
    """The path of a schema, as in ``sales.europe``, and the bare name of a table."""

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
    and the schema is the manager's, or else the second last part of the key, or else ``main``. ``{key_prefix}`` in a schema stands for
    all parts of the key before the last, each a schema in the one before.

    >>> str(table_address(["sales", "orders"], {}, None)), str(table_address(["sales", "orders"], {"table": "o"}, "raw"))
    ('sales.orders', 'raw.o')
    >>> [str(table_address(key, {}, "{key_prefix}")) for key in (["sales", "europe", "orders"], ["orders"])]
    ['sales.europe.orders', 'main.orders']
    """
    schema = _text(metadata, "schema") or default_schema or dotted(key_path[-2:-1]) or DEFAULT_SCHEMA
    if KEY_PREFIX in schema:
        schema = schema.replace(KEY_PREFIX, dotted(key_path[:-1]) or DEFAULT_SCHEMA)
    return TableAddress(schema=schema_path(schema), table=_text(metadata, "table") or key_path[-1])


def output_address(context: dg.OutputContext, metadata: Mapping[str, Any], default_schema: str | None) -> TableAddress:
    """The table of an output, also when it is asked for by the input that loads it.

    An output of an op has no asset key that could name a table, and ``result`` is the name of nearly all of them, so its metadata must
    name one. The outputs of one op that are mapped by a dynamic output differ by their key alone, which must be part of the name.

    Args:
        context: The output.
        metadata: The definition's.
        default_schema: The IO manager's ``schema``.

    Raises:
        UsageError: The output of an op without a table of its own.
    """
    if context.has_asset_key:
        return table_address(context.asset_key.path, metadata, default_schema)
    subject = f"{_step_of(context)}.{context.name}"
    table = _text(metadata, "table")
    key = _mapping_key(context)
    if table is None:
        wanted = f"part_{MAPPING_KEY}" if key else "..."
        raise UsageError(
            f"output {subject} belongs to no asset, so nothing says which table it is: set dg.Out(metadata={{'table': '{wanted}'}}) on "
            "its op, or give the op another io_manager_key if the output need not be in the lake",
            output=subject,
        )
    if key is None:
        return table_address([table], metadata, default_schema)
    if MAPPING_KEY not in table:
        raise UsageError(
            f"output {subject} is one of several that are mapped by a key, and all of them would be the table {table!r}: put "
            f"{MAPPING_KEY} into the name, as in 'table': '{table}_{MAPPING_KEY}'",
            output=subject,
            table=table,
        )
    return table_address([table], {**metadata, "table": table.replace(MAPPING_KEY, key)}, default_schema)


def refuse_other_names(run_time: Mapping[str, Any], definition: Mapping[str, Any], subject: str) -> None:
    """Refuse a table or schema that only the run names: inputs find the table by the definition, and would load another one.

    Raises:
        UsageError: Run-time metadata names another table or schema than the definition.
    """
    for key in ("table", "schema"):
        if key in run_time and run_time[key] != definition.get(key):
            raise UsageError(
                f"output {subject} sets {key!r} to {run_time[key]!r} while it runs, where inputs cannot see it and would load another "
                f"table: set {key!r} in the metadata of the definition",
                output=subject,
            )


def name_list(what: str, value: object) -> tuple[str, ...]:
    """Names, where a text is one of them.

    >>> name_list("tables", "a"), name_list("tables", ["a", "b"])
    (('a',), ('a', 'b'))

    Raises:
        UsageError: Something else.
    """
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, Sequence) or not all(isinstance(name, str) and name for name in found):
        raise UsageError(f"{what} must be a name or a list of names, not {value!r}", parameter=what)
    return tuple(found)


def _mapping_key(context: dg.OutputContext) -> str | None:
    """The key of a dynamic output, or of a step that is mapped over one, which Dagster calls ``step[key]``."""
    if context.mapping_key:
        return context.mapping_key
    _, bracket, key = _step_of(context).partition("[")
    return key.rstrip("]") if bracket else None


def _step_of(context: dg.OutputContext) -> str:
    try:
        return context.step_key
    except dg.DagsterInvariantViolationError:
        # A context made by hand, for a test.
        return "none"


def _text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"metadata {key!r} must be a name, not {value!r}", metadata=key)
    return value
