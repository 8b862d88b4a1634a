"""Which files the catalog names, and by which mappings a table finds columns: what adding files and sweeping ask first."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import closing

from sqlalchemy import select

from ducklake_core.catalog.reading.complete import complete_rows
from ducklake_core.catalog.reading.mappings import name_mappings
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.format.files.locations import file_key
from ducklake_core.format.files.name_mapping import NameMapping
from ducklake_core.format.files.paths import file_name, join

_AT_ONCE = 10_000


def named_already(reader: CatalogReader, paths: Collection[str]) -> tuple[str, str] | None:
    """The first of the full paths that belongs to the lake, and how: a data file of any snapshot, or one that cleanup is to delete.

    The names of all data files stream by once, whatever the number of paths.
    """
    wanted = {file_key(path): path for path in paths}
    # Most files are ruled out by their last part, before their directory is looked up.
    names = {file_name(path) for path in paths}
    for rows in (_data_files(reader, names), _scheduled(reader, names)):
        # Stopped half way, a stream would keep a server's cursor open.
        with closing(rows):
            found = next(((wanted[key], how) for path, how in rows if (key := file_key(path)) in wanted), None)
        if found is not None:
            return found
    return None


def named_files(reader: CatalogReader, paths: Collection[str]) -> frozenset[str]:
    """Those of some paths that the catalog names: as data file or delete file of any snapshot, or for cleanup to delete.

    Paths are compared by their last part, which is unique for files of DuckLake's writers. The names of all files stream by once.
    """
    wanted = {file_name(path): path for path in paths}
    found: set[str] = set()
    for table in ("data_file", "delete_file", "files_scheduled_for_deletion"):
        rows = complete_rows(reader.connection, select(reader.catalog[table].c.path), "names of files", at_once=_AT_ONCE)
        # A broken row may name no file, or none by a text.
        names = (file_name(row.path) for row in rows if isinstance(row.path, str))
        found.update(path for name in names if (path := wanted.get(name)) is not None)
    return frozenset(found)


def _data_files(reader: CatalogReader, names: set[str]) -> Generator[tuple[str, str]]:
    # Before the names stream by: a DuckDB file has one cursor.
    directories = _tables(reader)
    file = reader.catalog["data_file"]
    query = select(file.c.path, file.c.path_is_relative, file.c.table_id)
    with reader.connection.execute(query.execution_options(yield_per=_AT_ONCE)) as rows:
        for row in rows:
            if file_name(row.path) in names:
                directory, table = directories.get(row.table_id, ("", f"with id {row.table_id}"))
                yield join(directory, row.path, bool(row.path_is_relative)), f"a data file of table {table}"


def _scheduled(reader: CatalogReader, names: set[str]) -> Generator[tuple[str, str]]:
    scheduled = reader.catalog["files_scheduled_for_deletion"]
    query = select(scheduled.c.path, scheduled.c.path_is_relative)
    with reader.connection.execute(query.execution_options(yield_per=_AT_ONCE)) as rows:
        for row in rows:
            if file_name(row.path) in names:
                yield join(reader.info.data_path, row.path, bool(row.path_is_relative)), "scheduled for deletion"


def _tables(reader: CatalogReader) -> dict[int, tuple[str, str]]:
    """Directory and name of every table there ever was; a later row of one table has the same directory."""
    table, schema = reader.catalog["table"], reader.catalog["schema"]
    names = {row.schema_id: row.schema_name for row in reader.connection.execute(select(reader.catalog.schemas))}
    schemas = {
        row.schema_id: (join(reader.info.data_path, row.path, bool(row.path_is_relative)), names.get(row.schema_id, row.schema_name))
        for row in reader.connection.execute(select(schema))
    }
    found: dict[int, tuple[str, str]] = {}
    for row in reader.connection.execute(select(table)):
        base, name = schemas.get(row.schema_id, (reader.info.data_path, str(row.schema_id)))
        found[row.table_id] = join(base, row.path, bool(row.path_is_relative)), f"{name}.{row.table_name}"
    return found


def mappings_of_table(reader: CatalogReader, table_id: int, table: str) -> tuple[NameMapping, ...]:
    """All mappings that files of a table carry or carried.

    Args:
        reader: An open read transaction.
        table_id: The table.
        table: ``schema.table`` for messages.
    """
    mapping = reader.catalog["column_mapping"]
    ids = reader.connection.execute(select(mapping.c.mapping_id).where(mapping.c.table_id == table_id)).scalars().all()
    return name_mappings(reader, ids, table)
