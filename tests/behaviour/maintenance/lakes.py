"""Lakes with a history, two copies of one catalog, and what a catalog holds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import inspect, select

from ducklake_core.catalog.database.bootstrap import open_catalog
from ducklake_core.catalog.database.connections import Database
from ducklake_core.catalog.database.tables import CatalogTables
from ducklake_core.catalog.database.url import parse_catalog_url
from ducklake_core.format.state import LakeInfo
from ducklake_core.format.versions import V1_0
from ducklake_core.lake import DuckLake
from tests.support.oracle import LakeAddress, Oracle, attached, file_lake

FILES_ONLY = "DATA_INLINING_ROW_LIMIT 0"
NOW = timedelta(0)


def opened(address: LakeAddress) -> tuple[Database, LakeInfo]:
    database = Database(parse_catalog_url(address.url))
    return database, open_catalog(database)


def copy_of(address: LakeAddress, request: pytest.FixtureRequest, folder: Path) -> LakeAddress:
    """A second catalog with the same rows, over copies of the files. The first must have no open connection."""
    other_files = folder / "copy" / "files"
    shutil.copytree(address.data_path, other_files)
    if address.backend == "mysql":
        server = request.getfixturevalue("mysql")
        other = server.lake(folder / "copy")
        server.copy(address, other)
    elif address.backend != "postgresql":
        other = file_lake(address.backend, folder / "copy")
        shutil.copy(*(lake.url.removeprefix(f"{address.backend}:///") for lake in (address, other)))
    else:
        server = request.getfixturevalue("postgres")
        other = server.lake(folder / "copy")
        name, template = (a.attach.split("dbname=")[1].split()[0] for a in (other, address))
        with psycopg.connect(f"host={server.socket} user={server.user} dbname=postgres", autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name}")
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    database = Database(parse_catalog_url(other.url))
    with database.write() as connection:
        metadata = database.tables["metadata"]
        connection.execute(metadata.update().where(metadata.c.key == "data_path").values(value=other.data_path))
    database.close()
    return replace(other)


def catalog_rows(address: LakeAddress, *, without: frozenset[str] = frozenset()) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every metadata table, sorted, times of scheduling and other named columns left out; and all table names."""
    database = Database(parse_catalog_url(address.url))
    ignored = without | {"schedule_start"}
    with database.read() as connection:
        found = {}
        for name in CatalogTables(None, V1_0):
            columns = [column for column in database.tables[name].c if column.name not in ignored]
            found[name] = sorted((tuple(row) for row in connection.execute(select(*columns))), key=repr)
        found["tables"] = sorted((name,) for name in inspect(connection).get_table_names())
    found["metadata"] = [row for row in found["metadata"] if row[0] not in ("data_path", "created_by")]
    database.close()
    return found


def readings(address: LakeAddress, names: list[str] | None = None) -> dict[tuple[int, str], list[tuple[Any, ...]]]:
    """Rows that DuckDB reads from every table at every surviving snapshot, row ids included."""
    found = {}
    with attached(address) as duck:
        snapshots = [int(str(row[0])) for row in duck.rows("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")]
        for snapshot in snapshots:
            for name in tables_at(duck, snapshot):
                if names is not None and name not in names:
                    continue
                rows = duck.rows(f"SELECT rowid, * FROM {name} AT (VERSION => {snapshot})")
                found[snapshot, name] = sorted(rows, key=repr)
    return found


def tables_at(duck: Oracle, snapshot: int) -> list[str]:
    meta = "__ducklake_metadata_lake"
    query = (
        f"SELECT s.schema_name, t.table_name FROM {meta}.ducklake_table t JOIN {meta}.ducklake_schema s USING (schema_id) "
        f"WHERE t.begin_snapshot <= {snapshot} AND (t.end_snapshot IS NULL OR t.end_snapshot > {snapshot}) ORDER BY ALL"
    )
    return [".".join('"' + str(name).replace('"', '""') + '"' for name in row) for row in duck.rows(query)]


def files_on_disk(address: LakeAddress) -> set[str]:
    return {str(path.relative_to(address.data_path)) for path in Path(address.data_path).rglob("*.parquet")}


def write_history(address: LakeAddress) -> None:
    """About twenty snapshots with everything that expiry has to distinguish: deletes, drops, renames, views, tags, macros, inlined rows."""
    with attached(address, FILES_ONLY) as duck:
        duck.run(
            "CREATE TABLE kept (id INTEGER, name VARCHAR)",
            "INSERT INTO kept SELECT range, 'n' || range FROM range(100)",
            "INSERT INTO kept SELECT range + 100, 'm' || range FROM range(50)",
            "DELETE FROM kept WHERE id < 10",
            "DELETE FROM kept WHERE id BETWEEN 20 AND 29",
            "DELETE FROM kept WHERE id >= 100",
            "UPDATE kept SET name = 'changed' WHERE id = 50",
            'CREATE SCHEMA "we""ird, näme"',
            'CREATE TABLE "we""ird, näme"."t ä" (x INTEGER, y INTEGER)',
            'INSERT INTO "we""ird, näme"."t ä" SELECT range, range % 3 FROM range(30)',
            'ALTER TABLE "we""ird, näme"."t ä" SET PARTITIONED BY (y)',
            'INSERT INTO "we""ird, näme"."t ä" SELECT range, range % 3 FROM range(30)',
            'DELETE FROM "we""ird, näme"."t ä" WHERE x < 5',
            "CREATE VIEW v AS SELECT 1 AS one",
            "COMMENT ON TABLE kept IS 'first'",
            "COMMENT ON TABLE kept IS 'second'",
            "DROP VIEW v",
            "CREATE MACRO twice(a) AS a * 2",
            "DROP MACRO twice",
            'DROP TABLE "we""ird, näme"."t ä"',
            'DROP SCHEMA "we""ird, näme"',
            "ALTER TABLE kept RENAME TO kept_on",
            "ALTER TABLE kept_on ADD COLUMN z INTEGER DEFAULT 7",
            "INSERT INTO kept_on SELECT range, 'q', 1 FROM range(20)",
        )
    with attached(address) as duck:
        duck.run(
            "CREATE TABLE small (a INTEGER, b VARCHAR)",
            "INSERT INTO small VALUES (1, 'x'), (2, 'y')",
            "DELETE FROM small WHERE a = 1",
            "CREATE TABLE small_dropped (a INTEGER)",
            "INSERT INTO small_dropped VALUES (1)",
            "INSERT INTO small_dropped SELECT range FROM range(50)",
            "DELETE FROM small_dropped WHERE a = 20",
            "DROP TABLE small_dropped",
        )


def change_feeds(address: LakeAddress) -> dict[str, list[str]]:
    """The change feed of every table over all snapshots."""
    lake = DuckLake.connect(address.url)
    first, last = lake.snapshots()[0].id, lake.snapshot().id
    reported = {info.table: lake.table(info.table).changes(first, last).to_arrow().to_pylist() for info in lake.tables()}
    lake.close()
    return {name: sorted(map(repr, rows)) for name, rows in reported.items()}


def write_inlined(address: LakeAddress, options: str = "") -> None:
    """Inlined rows of every kind: versions of rows, partitions and sort orders that DuckDB's flush mistakes, deletes of rows of files."""
    with attached(address, options) as duck:
        duck.run(
            "CREATE TABLE t (id INTEGER NOT NULL, name VARCHAR, d DECIMAL(9, 2), ts TIMESTAMPTZ, tags VARCHAR[])",
            "INSERT INTO t VALUES (1, 'a', 9, '2024-01-01', ['x', NULL]), (2, 'b', 10, NULL, NULL), (3, NULL, -1, NULL, [])",
            "UPDATE t SET name = 'new' WHERE id = 1",
            "UPDATE t SET name = 'newer' WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
            "ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 7",
            "INSERT INTO t VALUES (4, 'd', 1, NULL, NULL, 1), (5, 'e', 2, NULL, NULL, NULL)",
            "ALTER TABLE t RENAME COLUMN d TO price",
            "ALTER TABLE t SET SORTED BY (price DESC, extra)",
            "INSERT INTO t VALUES (6, 'f', 9, NULL, NULL, 1), (7, 'g', 10, NULL, NULL, 2), (8, 'h', 100, NULL, NULL, 3)",
            "DELETE FROM t WHERE id IN (4, 7)",
            "CREATE TABLE p (id BIGINT, part VARCHAR)",
            "ALTER TABLE p SET PARTITIONED BY (part)",
            "INSERT INTO p VALUES (1, 'it''s'), (2, 'Zürich'), (3, NULL), (4, 'it''s'), (5, 'a/b\\c')",
            "DELETE FROM p WHERE id IN (1, 2, 5)",
            "ALTER TABLE p SET PARTITIONED BY (bucket(3, id))",
            "INSERT INTO p VALUES (6, 'x'), (7, 'y'), (8, 'x')",
            "UPDATE p SET part = 'z' WHERE id IN (3, 7)",
            "CREATE TABLE f (id INTEGER)",
            "INSERT INTO f SELECT range FROM range(60)",
            "DELETE FROM f WHERE id = 3",
            "DELETE FROM f WHERE id > 40",
            "DELETE FROM f WHERE id IN (5, 7)",
            "UPDATE f SET id = id + 1000 WHERE id = 9",
        )
