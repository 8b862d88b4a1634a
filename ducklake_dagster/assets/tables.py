"""Map assets to DuckLake tables, and their descriptions to comments of these tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_core import DEFAULT_SCHEMA, dotted, folded, join_name, schema_path, split_name
from ducklake_core.errors import UsageError
from ducklake_dagster.assets.settings import plain_metadata

if TYPE_CHECKING:
    from ducklake_core import DuckLake, Schema, Table


_MAX_SHOWN = 5

KEY_PREFIX = "{key_prefix}"
"""Placeholder in ``schema`` for the asset key without its last part."""
MAPPING_KEY = "{mapping_key}"
"""Placeholder in ``table`` metadata of a mapped output for its mapping key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetTable:
    """An asset and its table.

    Attributes:
        key: Asset key.
        address: Table.
        partitions_def: None for an unpartitioned asset.
        partition_expr: The asset's metadata of that name.
        declared: Columns that the definition declares, None when it declares none.
    """

    key: dg.AssetKey
    address: TableAddress
    partitions_def: dg.PartitionsDefinition[str] | None
    partition_expr: object
    declared: dg.TableSchema | None = None


def asset_tables(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec], schema: str | None) -> Sequence[AssetTable]:
    """Return the tables of assets, named as the IO manager names them.

    Args:
        assets: Definitions or specs; a definition of several assets counts with all of them.
        schema: The ``schema`` setting of the IO manager.

    Raises:
        UsageError: ``assets`` is not a list of definitions and specs.
    """
    return [_asset_table(spec, schema) for spec in asset_specs(assets)]


def asset_specs(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.AssetSpec]:
    """Return the specs of assets; a definition of several assets has several.

    Raises:
        UsageError: ``assets`` is not a list of definitions and specs.
    """
    return [spec for asset in listed_assets(assets) for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset])]


def listed_assets(assets: object) -> list[Any]:
    """Return definitions and specs as a list.

    Raises:
        UsageError: ``assets`` is not a list, for instance a single definition.
    """
    # AssetSpec is a named tuple, so a single spec is iterable too.
    found = list(assets) if isinstance(assets, Iterable) and not isinstance(assets, dg.AssetSpec) else [None]
    if not all(isinstance(one, (dg.AssetSpec, dg.AssetsDefinition)) for one in found):
        raise UsageError(f"assets must be a list of asset definitions and specs, not {assets!r}", parameter="assets")
    return found


def _asset_table(spec: dg.AssetSpec, schema: str | None) -> AssetTable:
    metadata: dict[str, Any] = plain_metadata(spec.metadata)
    return AssetTable(
        key=spec.key,
        address=table_address(spec.key.path, metadata, schema),
        partitions_def=spec.partitions_def,
        partition_expr=metadata.get("partition_expr"),
        declared=declared if isinstance(declared := metadata.get("dagster/column_schema"), dg.TableSchema) else None,
    )


def other_schemas_text(lake: DuckLake, tables: Iterable[AssetTable]) -> str:
    """Return a hint about assets whose table exists only in another schema; empty when there are none.

    Args:
        lake: The lake, whose table names are read.
        tables: Assets.
    """
    known: dict[str, list[str]] = {}
    # Iterating over a lake yields table names, with one statement for all of them.
    for name in lake:
        known.setdefault(folded(split_name(name)[1]), []).append(name)
    faults = []
    for table in tables:
        found = known.get(folded(table.address.table), [])
        if found and folded(table.address.sql) not in map(folded, found):
            faults.append(f"asset {table.key.to_user_string()} is read from {table.address}, but the lake has {', '.join(found)}")
    more = [f"and {len(faults) - _MAX_SHOWN} more"] if len(faults) > _MAX_SHOWN else []
    return f"{'; '.join([*faults[:_MAX_SHOWN], *more])}. Set schema= to the schema of the IO manager" if faults else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment on a table, or on one of its columns."""

    text: str
    column: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableComments:
    """Descriptions of a table and of its columns. Without a description, the catalog's comment stays unchanged.

    Attributes:
        table: Description of the table; None without one.
        columns: Descriptions of columns, by name.
    """

    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def differing_from(self, table: Table | None, frame: Schema) -> list[Comment]:
        """Return the comments that the catalog does not have yet.

        Args:
            table: The table before the write, None for a new one.
            frame: Columns that the write may add.
        """
        found = [Comment(text=self.table)] if self.table and (table is None or table.comment != self.table) else []
        present = {folded(name): text for name, text in table.column_comments.items()} if table is not None else {}
        for name, text in self.columns.items():
            # Use the spelling of the table. A column that only the frame has is added by this commit.
            column = (table.schema.find(name) if table is not None else None) or frame.find(name)
            if column is not None and present.get(folded(name)) != text:
                found.append(Comment(text=text, column=(column.name,)))
        return found


def table_comments(context: dg.OutputContext, metadata: Mapping[str, Any]) -> TableComments:
    """Return the descriptions in an asset's definition: its own, and those of ``dagster/column_schema`` in its metadata.

    Args:
        context: The output.
        metadata: Metadata of the output's definition.
    """
    if not context.has_asset_key:
        return TableComments()
    schema = metadata.get("dagster/column_schema")
    columns = schema.columns if isinstance(schema, dg.TableSchema) else []
    described = {column.name: column.description for column in columns if column.description}
    spec = spec_of(context)
    return TableComments(table=spec.description or None if spec is not None else None, columns=described)


def spec_of(context: dg.OutputContext) -> dg.AssetSpec | None:
    """Return the spec of an output's asset; None for an output of an op, and in a context that a test builds."""
    try:
        return context.asset_spec if context.has_asset_key else None
    except dg.DagsterInvariantViolationError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAddress:
    """The path of a schema, such as ``sales.europe``, and the unquoted name of a table."""

    schema: str
    table: str

    @property
    def sql(self) -> str:
        """Return the name as :meth:`ducklake_core.DuckLake.table` reads it.

        >>> TableAddress(schema="main", table='we"ird.name').sql
        'main."we""ird.name"'
        """
        return join_name(self.schema, self.table)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def table_address(key_path: Sequence[str], metadata: Mapping[str, Any], default_schema: str | None) -> TableAddress:
    """Return the table of an asset.

    ``table`` and ``schema`` metadata are used first. Otherwise the last part of the asset key is the table. The schema is the setting of
    the IO manager, or the second last part of the key, or ``main``. ``{key_prefix}`` in a schema is replaced by all parts of the key
    before the last, as nested schemas.

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
    """Return the table of an output, for the output itself or for the input that loads it.

    An output of an op has no asset key, and nearly all of them are named ``result``, so its metadata must contain the table. Outputs that
    are mapped by a dynamic output differ only by their mapping key, which must be part of the table's name.

    Args:
        context: The output.
        metadata: Metadata of the output's definition.
        default_schema: The ``schema`` setting of the IO manager.

    Raises:
        UsageError: The output belongs to an op and its metadata has no table, or no distinct one.
    """
    if context.has_asset_key:
        return table_address(context.asset_key.path, metadata, default_schema)
    subject = f"{_step_of(context)}.{context.name}"
    table = _text(metadata, "table")
    key = _mapping_key(context)
    if table is None:
        wanted = f"part_{MAPPING_KEY}" if key else "..."
        raise UsageError(
            f"output {subject} belongs to an op, so it has no asset key that names its table. Set dg.Out(metadata={{'table': '{wanted}'}}) "
            "on the op, or use another io_manager_key if the output does not belong in the lake",
            output=subject,
        )
    if key is None:
        return table_address([table], metadata, default_schema)
    if MAPPING_KEY not in table:
        raise UsageError(
            f"output {subject} is one of several mapped outputs, and all of them would be written to table {table!r}. Add {MAPPING_KEY} to "
            f"the name, as in 'table': '{table}_{MAPPING_KEY}'",
            output=subject,
            table=table,
        )
    return table_address([table], {**metadata, "table": table.replace(MAPPING_KEY, key)}, default_schema)


def reject_other_names(run_time: Mapping[str, Any], definition: Mapping[str, Any], subject: str) -> None:
    """Reject a table or schema that is only in run-time metadata: inputs find the table by the definition and would load another one.

    Raises:
        UsageError: Run-time metadata names another table or schema than the definition.
    """
    for key in ("table", "schema"):
        if key in run_time and run_time[key] != definition.get(key):
            raise UsageError(
                f"output {subject} sets {key!r} to {run_time[key]!r} at run time, but inputs read only the definition and would load "
                f"another table. Set {key!r} in the metadata of the definition",
                output=subject,
            )


def _mapping_key(context: dg.OutputContext) -> str | None:
    """Return the key of a dynamic output, or of a step that is mapped over one, which Dagster calls ``step[key]``."""
    if context.mapping_key:
        return context.mapping_key
    _, bracket, key = _step_of(context).partition("[")
    return key.rstrip("]") if bracket else None


def _step_of(context: dg.OutputContext) -> str:
    try:
        return context.step_key
    except dg.DagsterInvariantViolationError:
        # A context that a test builds.
        return "none"


def _text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"metadata {key!r} must be a name, not {value!r}", metadata=key)
    return value
