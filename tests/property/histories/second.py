"""Steps and maintenance by the second implementation, ducklakepy, which opens the lake for each and commits every part by itself."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from ducklakepy.expressions import col
from ducklakepy.schema import Column, Schema
from ducklakepy.types import parse_primitive_type

from tests.property.histories.actions import SecondUpkeep, Step

if TYPE_CHECKING:
    from ducklakepy import DuckLakeCatalog

_NAMES = {"BIGINT": "int64", "VARCHAR": "varchar", "DOUBLE": "float64", "DATE": "date"}
_SPAN = re.compile(r'"(\w+)" BETWEEN (-?\d+) AND (-?\d+)')
_NOW = dt.timedelta(0)


def commit(catalog: DuckLakeCatalog, step: Step, rows: pa.Table | None, values: dict[str, Any]) -> None:
    """Make a change of a table; ``values`` are those of an update."""
    table = catalog.load_table(step.table)
    arguments = step.arguments
    match step.call:
        case "append":
            # It takes no frame that lacks a column.
            whole = table.to_arrow().schema
            assert rows is not None
            arrays = [
                rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type) for field in whole
            ]
            table.append(pa.Table.from_arrays(arrays, schema=whole))
        case "delete":
            table.delete(_condition(arguments["where"]))
        case "update":
            table.update(_condition(arguments["where"]), values)
        case "add_column":
            with table.update_schema() as change:
                change.add_column(arguments["column"][0], parse_primitive_type(_NAMES[arguments["data_type"]]))
        case "drop_column":
            with table.update_schema() as change:
                change.drop_column(arguments["column"][0])
        case "rename_column":
            with table.update_schema() as change:
                change.rename_column(arguments["column"][0], arguments["new_name"])
        case "swap":
            table.rename(arguments["old"])
            columns = [Column(name=name, field_type=parse_primitive_type(kind)) for name, kind in (("a", "int64"), ("v", "varchar"))]
            catalog.create_table(step.table, schema=Schema(*columns))
        case _:
            raise AssertionError(step)


def _condition(text: str) -> Any:
    found = _SPAN.fullmatch(text)
    assert found is not None, text
    name, low, high = found.groups()
    return (col(name) >= int(low)) & (col(name) <= int(high))


def maintain(catalog: DuckLakeCatalog, action: SecondUpkeep, tables: list[str]) -> None:
    """Run maintenance on the whole lake."""
    match action.operation:
        case "flush":
            for name in tables:
                catalog.flush_inlined_data(name)
        case "merge":
            catalog.merge_adjacent_files()
        case "rewrite":
            catalog.rewrite_data_files(delete_threshold=0.1)
        case "expire":
            catalog.expire_snapshots(versions=list(action.versions))
            catalog.cleanup_old_files(older_than=_NOW, exclusive=True)
