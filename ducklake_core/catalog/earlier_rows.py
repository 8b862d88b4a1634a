"""What rows of earlier catalog versions mean in terms of version 1.0, as SQL (specification: Migrations).

Readers select it in place of the stored rows, and the migration stores it: both say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, FromClause, Select, Table, and_, case, cast, func, or_, select

_DIGITS = "0123456789"
_PARTIAL_MAX = "partial_max:"


def newest_snapshot(partial_file_info: ColumnElement[str]) -> ColumnElement[int]:
    """``partial_max`` of a data file, from the text that said so before 0.4.

    ``partial_max:N`` says it outright (flushed files); ``snapshot:rows|snapshot:rows`` counts the rows of the file up to and
    including each snapshot (merged files), so that the last snapshot is the newest. The reference's own migration understands
    only the first form, and forgets which rows of merged files are of which snapshot.
    """
    last_count = func.rtrim(func.rtrim(partial_file_info, _DIGITS), ":")
    upto = case((partial_file_info.like(f"{_PARTIAL_MAX}%"), partial_file_info), else_=last_count)
    # What trimming the digits leaves is a prefix that holds a separator, so it occurs once.
    return cast(func.replace(upto, func.rtrim(upto, _DIGITS), ""), BigInteger)


def partition_column_id(stored: Mapping[str, Table]) -> ColumnElement[int]:
    """The id of a partition key's column in version 0.1, whose ``column_id`` is the column's place among the top-level columns.

    The place counts the columns that the table had when it got the partition keys. The reference's migration counts those of the
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


def table_schema_versions(stored: Mapping[str, Table]) -> tuple[Select[Any], ...]:
    """Rows of ``schema_versions`` for each table (to be united), from rows that were for the whole lake, or from the snapshots before 0.3.

    Every table gets the versions of the lake during its life, as in the reference's migration, and one for its beginning where the
    snapshot of it has expired: without that the reference cannot compact the table's files.
    """
    table, inlined = stored["table"], stored["inlined_data_tables"]
    lake = _lake_schema_versions(stored)
    is_live = and_(
        table.c.begin_snapshot <= lake.c.begin_snapshot, or_(table.c.end_snapshot.is_(None), table.c.end_snapshot > lake.c.begin_snapshot)
    )
    for_each = select(lake.c.begin_snapshot, lake.c.schema_version, table.c.table_id).join_from(lake, table, is_live)
    born = select(table.c.table_id, func.min(table.c.begin_snapshot).label("begin_snapshot")).group_by(table.c.table_id).subquery("born")
    first = select(func.min(lake.c.begin_snapshot)).scalar_subquery()
    oldest = select(func.min(lake.c.schema_version)).scalar_subquery()
    registered = (
        select(func.min(inlined.c.schema_version))
        .where(inlined.c.table_id == born.c.table_id, inlined.c.schema_version < oldest)
        .correlate(born)
        .scalar_subquery()
    )
    beginnings = select(born.c.begin_snapshot, func.coalesce(registered, oldest - 1), born.c.table_id).where(born.c.begin_snapshot < first)
    return for_each, beginnings


def _lake_schema_versions(stored: Mapping[str, Table]) -> FromClause:
    versions, snapshot = stored.get("schema_versions"), stored["snapshot"]
    if versions is None:
        begun = func.min(snapshot.c.snapshot_id).label("begin_snapshot")
        return select(begun, snapshot.c.schema_version).group_by(snapshot.c.schema_version).subquery("lake_versions")
    rows = select(versions.c.begin_snapshot, versions.c.schema_version)
    if "table_id" in versions.c:
        rows = rows.where(versions.c.table_id.is_(None))
    return rows.subquery("lake_versions")
