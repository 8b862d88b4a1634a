"""The live files of a table out of rows that were read for many tables at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, select

from ducklake_core.catalog.database.abilities import abilities_of
from ducklake_core.catalog.reading.file_rows import HeldRows, data_file_of
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.catalog.reading.table_rows import Among, this_table
from ducklake_core.catalog.reading.visibility import committed_at, live_or_unknown
from ducklake_core.format.files.data_files import DataFile
from ducklake_core.format.state import TableState


def held_files(reader: CatalogReader, table: TableState) -> Iterator[DataFile]:
    """Files that are live at ``table.snapshot_id``, by id, each with what deletes rows of it."""
    catalog, at = reader.catalog, table.snapshot_id
    any_cell = abilities_of(reader.connection.dialect).has_untyped_cells

    def live(source: Table, *more: ColumnElement[Any]) -> Callable[[Among], Select[Any]]:
        return lambda among: select(source, *more).where(among(source.c.table_id), live_or_unknown(source, at, any_cell=any_cell))

    def values(among: Among) -> Select[Any]:
        value = catalog["file_partition_value"]
        return select(value).where(among(value.c.table_id)).order_by(value.c.data_file_id, value.c.partition_key_index)

    def positions(table_id: int, _name: str) -> Select[Any]:
        source = catalog.inlined_delete(table_id)
        columns = (source.c.file_id.label("data_file_id"), source.c.row_id)
        return select(this_table(table_id), *columns).where(source.c.begin_snapshot <= at).distinct()

    deletes = live(catalog["delete_file"], committed_at(catalog, catalog["delete_file"]))
    rows = {"deletes": sorted(reader.rows_of_table(("delete files", at), deletes, table.id), key=_delete_file_id)}
    if table.partition_specs:
        rows["partition_values"] = list(reader.rows_of_table(("partition values",), values, table.id))
    found = reader.rows_of_inlined(("deletes", at), positions, table)
    rows["inlined_deletes"] = sorted(found, key=lambda row: (str(row.data_file_id), str(row.row_id).zfill(19)))
    held = HeldRows(rows)
    for row in sorted(reader.rows_of_table(("data files", at), live(catalog["data_file"]), table.id), key=lambda row: row.data_file_id):
        yield data_file_of(row, table, held, reader.info.encrypted)


def _delete_file_id(row: Any) -> int:
    return int(row.delete_file_id)
