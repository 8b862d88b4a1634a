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
"""Stands in ``schema`` for the parts of the asset key before its last."""
MAPPING_KEY = "{mapping_key}"
"""Stands in ``table`` metadata of a mapped output for the key that the output is mapped by."""


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
        schema: The IO manager's ``schema``.

    Raises:
        UsageError: ``assets`` is no list of definitions and specs.
    """
    return [_asset_table(spec, schema) for spec in asset_specs(assets)]


def asset_specs(assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> list[dg.AssetSpec]:
    """Return the specs of assets; a definition of several assets has several.

    Raises:
        UsageError: ``assets`` is no list of definitions and specs.
    """
    return [spec for asset in listed_assets(assets) for spec in (asset.specs if isinstance(asset, dg.AssetsDefinition) else [asset])]


def listed_assets(assets: object) -> list[Any]:
    """Return definitions and specs as a list.

    Raises:
        UsageError: ``assets`` is no list of these, for instance a single one.
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
    """Return a hint about assets whose table is missing while another schema has one of that name; empty when there are none.

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
    return f"{'; '.join([*faults[:_MAX_SHOWN], *more])}: give schema= as the IO manager has it" if faults else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment on a table, or on one of its columns."""

    text: str
    column: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableComments:
    """Descriptions of a table and of its columns. Without a description, the catalog's comment stays unchanged.

    Attributes:
        table: Description of the table, None for none.
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
            # The table's spelling wins; a column that only the frame has is added by this commit.
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
    """Return the spec of an output's asset; None for an output of an op, and in a context made by hand."""
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

    ``table`` and ``schema`` metadata win. Otherwise the last part of the asset key is the table, and the schema is the manager's, or else
    the second last part of the key, or else ``main``. ``{key_prefix}`` in a schema stands for all parts of the key before the last, each
    a schema inside the one before.

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

    An output of an op has no asset key that could name a table, and ``result`` is the name of nearly all of them, so its metadata must
    name one. The outputs of one op that are mapped by a dynamic output differ by their key alone, which must be part of the name.

    Args:
        context: The output.
        metadata: Metadata of the output's definition.
        default_schema: The IO manager's ``schema``.

    Raises:
        UsageError: The output belongs to an op and names no table of its own.
    """
    if context.has_asset_key:
        return table_address(context.asset_key.path, metadata, default_schema)
    subject = f"{_step_of(context)}.{context.name}"
    table = _text(metadata, "table")
    key = _mapping_key(context)
    if table is None:
        wanted = f"part_{MAPPING_KEY}" if key else "..."
        raise UsageError(
            f"output {subject} belongs to no asset, so its table is unknown: set dg.Out(metadata={{'table': '{wanted}'}}) on "
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


def reject_other_names(run_time: Mapping[str, Any], definition: Mapping[str, Any], subject: str) -> None:
    """Reject a table or schema that only run-time metadata names: inputs find the table by the definition, and would load another one.

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
        # A context made by hand, for a test.
        return "none"


def _text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"metadata {key!r} must be a name, not {value!r}", metadata=key)
    return value
