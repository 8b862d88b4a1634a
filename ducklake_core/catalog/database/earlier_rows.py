"""Translates rows of earlier catalog versions to version 1.0, in SQL (specification: Migrations).

Readers select it in place of the stored rows, and the migration stores it: both say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    String,
    Table,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    or_,
    select,
    union,
    union_all,
)

NAN_COUNT = "nan_count"
"""Column of bounds in version 0.1 as it was specified."""
SCHEMA_SNAPSHOT = "schema_snapshot"
"""Column of ``inlined_data_tables`` in version 0.1 as it was specified, in place of ``schema_version``."""
_DIGITS = "0123456789"
_PARTIAL_MAX = "partial_max:"


def newest_snapshot(partial_file_info: ColumnElement[str]) -> ColumnElement[int]:
    """``partial_max`` of a data file, from the text that said so before 0.4.

    ``partial_max:N`` says it outright (flushed files); ``snapshot:rows|snapshot:rows`` counts the rows of the file up to and
    including each snapshot (merged files), so that the last snapshot is the newest. DuckDB's own migration understands
    only the first form, and forgets which rows of merged files are of which snapshot.
    """
    last_count = func.rtrim(func.rtrim(partial_file_info, _DIGITS), ":")
    upto = case((partial_file_info.like(f"{_PARTIAL_MAX}%"), partial_file_info), else_=last_count)
    # What trimming the digits leaves is a prefix that holds a separator, so it occurs once.
    return cast(func.replace(upto, func.rtrim(upto, _DIGITS), ""), BigInteger)


def partition_column_id(stored: Mapping[str, Table]) -> ColumnElement[int]:
    """The id of a partition key's column in version 0.1, whose ``column_id`` is the column's place among the top-level columns.

    The place counts the columns that the table had when it got the partition keys. DuckDB's migration counts those of the
    newest snapshot, which are others once a column was dropped.
    """
    key, info, column = stored["partition_column"], stored["partition_info"], stored["column"]
    place = func.row_number().over(partition_by=info.c.partition_id, order_by=(column.c.column_order, column.c.column_id))
    placed = (
        select(info.c.partition_id, column.c.column_id, (place - 1).label("place"))
        .join(column, and_(column.c.table_id == info.c.table_id, column.c.parent_column.is_(None)))
        .where(column.c.begin_snapshot <= info.c.begin_snapshot)
        .where(or_(column.c.end_snapshot.is_(None), column.c.end_snapshot > info.c.begin_snapshot))
        .subquery("placed")
    )
    found = select(placed.c.column_id).where(placed.c.partition_id == key.c.partition_id, placed.c.place == key.c.column_id)
    return found.correlate(key).scalar_subquery()


def contains_nan(stored: Table) -> ColumnElement[bool]:
    """Whether there is NaN in a file, where bounds have their number too."""
    return or_(func.coalesce(stored.c.contains_nan, false()), func.coalesce(cast(stored.c[NAN_COUNT], BigInteger), 0) > 0)


def schema_version_of(stored: Mapping[str, Table]) -> ColumnElement[int]:
    """The schema version of a table of inlined rows that is known by the snapshot which made it; the table's name ends with the version.

    A number that ends the name is the version itself: some writers kept it under the name of the snapshot.
    """
    registered, snapshot = stored["inlined_data_tables"], stored["snapshot"]
    number = cast(registered.c[SCHEMA_SNAPSHOT], BigInteger)
    found = select(snapshot.c.schema_version).where(snapshot.c.snapshot_id == number).correlate(registered).scalar_subquery()
    named = literal("ducklake_inlined_data_") + cast(registered.c.table_id, String) + "_" + cast(number, String)
    return case((registered.c.table_name == named, number), else_=func.coalesce(found, number))


def table_schema_versions(stored: Mapping[str, Table]) -> Select[Any]:
    """Rows of ``schema_versions`` for each table, from rows for the whole lake: the versions of the lake during the table's life.

    Also for versions whose snapshots have expired, which DuckDB's migration leaves out: without them it takes files of
    different columns for alike, and cannot compact them.
    """
    table = stored["table"]
    lake = union_all(*_lake_schema_versions(stored)).subquery("lake")
    is_live = and_(
        table.c.begin_snapshot <= lake.c.begin_snapshot, or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > lake.c.begin_snapshot)
    )
    return select(lake.c.begin_snapshot, lake.c.schema_version, table.c.table_id).join_from(lake, table, is_live)


def _lake_schema_versions(stored: Mapping[str, Table]) -> tuple[Select[Any], Select[Any]]:
    """The versions that are known, and those before the second known one, counted back: each change of columns made one."""
    known = _known_schema_versions(stored)
    first, oldest = select(func.min(known.c.begin_snapshot)).scalar_subquery(), select(func.min(known.c.schema_version)).scalar_subquery()
    changes = union(
        *(select(stored[name].c.begin_snapshot.label("at")) for name in ("schema", "table", "column", "partition_info")),
        select(stored["column"].c.end_snapshot),
    ).subquery("changes")
    later = func.row_number().over(order_by=changes.c.at.desc()) - 1
    return (
        select(known.c.begin_snapshot, known.c.schema_version).where(known.c.begin_snapshot > first),
        select(changes.c.at, oldest - later).where(changes.c.at <= first),
    )


def _known_schema_versions(stored: Mapping[str, Table]) -> FromClause:
    versions, snapshot = stored.get("schema_versions"), stored["snapshot"]
    if versions is None:
        begun = func.min(snapshot.c.snapshot_id).label("begin_snapshot")
        return select(begun, snapshot.c.schema_version).group_by(snapshot.c.schema_version).subquery("known")
    rows = select(versions.c.begin_snapshot, versions.c.schema_version)
    if "table_id" in versions.c:
        rows = rows.where(versions.c.table_id.is_(None))
    return rows.subquery("known")
