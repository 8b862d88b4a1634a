"""Files brought into a test's lake from elsewhere: by DuckDB, or by catalog rows as another writer makes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import text

from ducklake_core.catalog.database.bootstrap import open_catalog
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.url import parse_catalog_url
from tests.support.oracle import LakeAddress, Oracle
from tests.support.scans import OpenLake, assert_same_rows

FIELD_ID = "PARQUET:field_id"


def put(path: Path, data: pa.Table, **options: object) -> Path:
    """A Parquet file with its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, path, **options)  # type: ignore[arg-type]
    return path


def add(duck: Oracle, table: str, path: Path | str, options: str = "") -> None:
    """Let DuckDB add a file to a table."""
    escaped = str(path).replace("'", "''")
    duck.run(f"CALL ducklake_add_data_files('lake', '{table}', '{escaped}'{', ' + options if options else ''})")


def numbered(data: pa.Table, **ids: int | None) -> pa.Table:
    """The same columns with field ids; those without one lose their ids."""
    fields = [field.with_metadata({FIELD_ID: str(ids[field.name])} if ids.get(field.name) is not None else {}) for field in data.schema]
    return pa.table(data.columns, schema=pa.schema(fields))


def register(address: LakeAddress, table: str, path: Path | str, rows: int, *, is_relative: bool = False, size: int = 1000) -> int:
    """Name a file in the catalog, without a mapping and without statistics, as a careless writer would; its id."""
    database = Database(parse_catalog_url(address.url))
    open_catalog(database)
    tables = database.tables
    file, snapshot, entry = tables["data_file"], tables["snapshot"], tables["table"]
    with database.write() as connection:
        newest = connection.execute(snapshot.select().order_by(snapshot.c.snapshot_id.desc()).limit(1)).one()
        table_id = connection.execute(entry.select().where(entry.c.table_name == table)).one().table_id
        connection.execute(
            file.insert().values(
                data_file_id=newest.next_file_id,
                table_id=table_id,
                begin_snapshot=newest.snapshot_id,
                path=str(path),
                path_is_relative=is_relative,
                file_format="parquet",
                record_count=rows,
                file_size_bytes=Path(path).stat().st_size if Path(path).exists() else size,
                row_id_start=10_000 * newest.next_file_id,
            )
        )
        changed = snapshot.update().where(snapshot.c.snapshot_id == newest.snapshot_id)
        connection.execute(changed.values(next_file_id=newest.next_file_id + 1))
    database.close()
    return int(newest.next_file_id)


def change(address: LakeAddress, statement: str, **values: object) -> None:
    """Run one statement on the catalog, as a careless tool would."""
    database = Database(parse_catalog_url(address.url))
    open_catalog(database)
    with database.write() as connection:
        connection.execute(text(statement), values)
    database.close()


def check(duck: Oracle, lake: OpenLake, table: str = "t", at: int | None = None) -> None:
    """All columns, row ids and file names of a table are DuckDB's."""
    source = table if at is None else f"{table} AT (VERSION => {at})"
    columns = [str(row[0]) for row in duck.rows(f"SELECT column_name FROM (DESCRIBE SELECT * FROM {source})")]
    names = [*columns, "rowid", "filename"]
    own = lake.scan(table, at, columns=names).to_arrow()
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    assert_same_rows(duck, own, f"SELECT {quoted} FROM {source}")


def check_everywhere(duck: Oracle, lake: OpenLake, table: str = "t") -> None:
    """The same at every snapshot that has the table."""
    born = duck.value(f"SELECT min(begin_snapshot) FROM __ducklake_metadata_lake.ducklake_table WHERE table_name = '{table}'")
    versions = [version for version in lake.snapshots() if version >= born]
    assert versions
    for version in versions:
        check(duck, lake, table, version)
