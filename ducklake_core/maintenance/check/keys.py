"""Checks of how tables are written: partition keys, sort orders and defaults of columns."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import sqlglot
from sqlglot.errors import SqlglotError

from ducklake_core.errors import CatalogCorruptError, DuckLakeError, UnsupportedFeatureError, UsageError
from ducklake_core.format.evolution.defaults import with_default
from ducklake_core.format.files.partitioning import PartitionField, PartitionSpec, parse_transform
from ducklake_core.format.layout.sorting import SortKey, sort_orders
from ducklake_core.format.layout.transforms import check_spec
from ducklake_core.format.types.data_types import Field
from ducklake_core.format.types.schema import Schema
from ducklake_core.format.types.type_names import NO_DEFAULT, ColumnRow
from ducklake_core.format.values.arrow_cast import constant_array
from ducklake_core.maintenance.check.facts import CatalogRow, Facts, TableFacts, is_live

_DEFAULT_TYPES = (None, "", "literal", "expression")


def check_keys(facts: Facts) -> None:
    """Those of all tables that are there at the newest snapshot."""
    _partition_keys(facts)
    _sort_orders(facts)
    _defaults(facts)


def _schema(facts: Facts, table: TableFacts) -> Schema | None:
    try:
        return table.schema_at(facts.newest)
    except (CatalogCorruptError, UnsupportedFeatureError):
        return None


def _partition_keys(facts: Facts) -> None:
    keys: dict[int, list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("partition_column"):
        keys[row.partition_id].append(row)
    live: dict[int, list[int]] = defaultdict(list)
    for row in facts.every.rows("partition_info"):
        table = facts.table_of(row)
        if table is None:
            continue
        own = sorted(keys[row.partition_id], key=lambda key: key.partition_key_index)
        if [key.partition_key_index for key in own] != list(range(len(own))):
            places = ", ".join(str(key.partition_key_index) for key in own)
            facts.report("partition-key-invalid", f"partition keys {row.partition_id} have the places {places}", table=table)
        elif is_live(row, facts.newest) and table.is_live:
            live[table.id].append(row.partition_id)
            _keys_of(facts, table, row.partition_id, own)
    for table_id, ids in live.items():
        if len(ids) > 1:
            what = f"partition keys {', '.join(map(str, ids))} are live at once"
            facts.report("partition-key-invalid", what, table=facts.tables[table_id])


def _keys_of(facts: Facts, table: TableFacts, number: int, own: list[CatalogRow]) -> None:
    """Whether rows can be written by the keys that are in force; keys of no column and no transform are found elsewhere."""
    schema = _schema(facts, table)
    if schema is None or not own or any(key.column_id not in table.column_ids for key in own):
        return
    names = {column.id: column.name for column in schema}
    gone = [key.column_id for key in own if key.column_id not in names]
    try:
        if gone:
            facts.report("partition-key-invalid", f"partition keys {number} name column {gone[0]}, which was dropped", table=table)
            return
        parsed = [(key, *parse_transform(key.transform)) for key in own]
    except DuckLakeError:
        return
    fields = tuple(
        PartitionField(column_id=key.column_id, column=names[key.column_id], transform=name, buckets=count) for key, name, count in parsed
    )
    try:
        check_spec(PartitionSpec(id=number, fields=fields), schema)
    except DuckLakeError as error:
        facts.report("partition-key-invalid", f"partition keys {number}: {error.message}", table=table)


def _sort_orders(facts: Facts) -> None:
    keys: dict[tuple[int, int], list[CatalogRow]] = defaultdict(list)
    for row in facts.every.rows("sort_expression"):
        keys[row.table_id, row.sort_id].append(row)
    live: dict[int, list[int]] = defaultdict(list)
    for row in facts.every.rows("sort_info"):
        table = facts.table_of(row)
        if row.begin_snapshot is None or not is_live(row, facts.newest):
            continue
        if table is None or not table.is_live:
            facts.report("sort-order-invalid", f"sort order {row.sort_id} is of table {row.table_id}, which is not there", table=table)
            continue
        live[table.id].append(row.sort_id)
        schema = _schema(facts, table)
        own = sorted(keys[table.id, row.sort_id], key=lambda key: key.sort_key_index or 0)
        if schema is not None:
            try:
                sort_orders([_sort_key(key) for key in own], schema, table.name)
            except UnsupportedFeatureError as error:
                facts.report("sort-order-invalid", error.message, table=table)
    for table_id, ids in live.items():
        if len(ids) > 1:
            what = f"sort orders {', '.join(map(str, ids))} are live at once"
            facts.report("sort-order-invalid", what, table=facts.tables[table_id])


def _sort_key(row: CatalogRow) -> SortKey:
    return SortKey(
        expression=row.expression or "", direction=row.sort_direction or "", null_order=row.null_order or "", dialect=row.dialect or ""
    )


def _defaults(facts: Facts) -> None:
    for table in facts.tables.values():
        schema = _schema(facts, table) if table.is_live else None
        fields = {} if schema is None else {leaf.id: leaf for leaf in schema.leaves()}
        for row in table.columns_at(facts.newest) if fields else ():
            says = _wrong_default(row, fields.get(row.column_id))
            if says is not None:
                facts.report("default-invalid", f"column {row.column_name!r} has {says}", table=table, column_id=row.column_id)


def _wrong_default(row: ColumnRow, leaf: Field | None) -> str | None:
    if row.default_value_type not in _DEFAULT_TYPES:
        return f"a default of the type {row.default_value_type!r}"
    if leaf is None:
        return None
    if row.initial_default is not None and not _is_value(row.initial_default, leaf):
        return f"the value {row.initial_default!r} in rows of files that lack it, which is none of type {leaf.type}"
    if row.default_value in (None, NO_DEFAULT):
        return None
    if row.default_value_type == "expression":
        return None if _is_expression(row.default_value or "") else f"the default {row.default_value!r}, which is no expression"
    return None if _is_default(row.default_value or "", leaf) else f"the default {row.default_value!r}, which is none of type {leaf.type}"


def _is_value(text: str, leaf: Field) -> bool:
    try:
        constant_array(text, leaf, 1)
    except UnsupportedFeatureError:
        # Nobody can tell.
        return True
    except (DuckLakeError, ValueError, ArithmeticError, pa.ArrowException):
        return False
    return True


def _is_default(text: str, leaf: Field) -> bool:
    """Whether values of the type can be read from a text, which is stored as it was written."""
    try:
        with_default(leaf, text)
    except UnsupportedFeatureError:
        return True
    except UsageError:
        return False
    return True


def _is_expression(text: str) -> bool:
    try:
        return len(sqlglot.parse(text, read="duckdb")) == 1
    except SqlglotError:
        return False
