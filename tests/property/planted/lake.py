"""A sound lake with a little of everything, and ways to plant faults in copies of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import create_engine

from ducklake_core import DuckLake
from ducklake_core.maintenance.check.findings import CheckLevel, CheckResult
from tests.property.hostile_catalogs.spoiled import edit_typed
from tests.support.oracle import LakeAddress, attached


def build(address: LakeAddress) -> LakeAddress:
    """Tables t (deletes of both kinds, inlined rows), p (partitions), m (merged), f (an added file), n (NOT NULL), and a dropped one;
    s (sorted), d (defaults, a column of two names), e (NaN), and macros."""
    with attached(address) as duck:
        duck.run(
            "CREATE TABLE t(a INTEGER, b VARCHAR, x DOUBLE)",
            "INSERT INTO t SELECT i, 'v' || i, i / 2 FROM range(100) r(i)",
            "INSERT INTO t SELECT i, 'v' || i, i / 2 FROM range(100, 150) r(i)",
            "DELETE FROM t WHERE a < 20",
            "DELETE FROM t WHERE a = 25",
            "INSERT INTO t VALUES (200, 'w', NULL), (201, NULL, 1.5), (202, 'y', 2.5)",
            "DELETE FROM t WHERE a = 202",
            "CREATE TABLE p(k INTEGER, d DATE, v INTEGER)",
            "ALTER TABLE p SET PARTITIONED BY (k, year(d))",
            "INSERT INTO p SELECT i % 2, DATE '2023-06-01' + (i % 4 * 120)::INTEGER, i FROM range(40) r(i)",
            "CREATE TABLE m(a INTEGER)",
            "INSERT INTO m SELECT i FROM range(20) r(i)",
            "INSERT INTO m SELECT i FROM range(20, 40) r(i)",
            "CREATE TABLE n(a INTEGER)",
            "INSERT INTO n SELECT CASE WHEN i < 19 THEN i END FROM range(20) r(i)",
            "CREATE TABLE f(a BIGINT)",
            "CREATE TABLE gone AS SELECT i FROM range(20) r(i)",
            "DROP TABLE gone",
            "CREATE VIEW w AS SELECT 1 AS one",
            "CREATE TABLE s(a INTEGER, b VARCHAR)",
            "ALTER TABLE s SET SORTED BY (a DESC NULLS LAST, b)",
            "INSERT INTO s SELECT i, 'x' || i FROM range(20) r(i)",
            "CREATE TABLE d(a INTEGER)",
            "INSERT INTO d SELECT i FROM range(20) r(i)",
            "ALTER TABLE d ADD COLUMN c INTEGER DEFAULT 7",
            "ALTER TABLE d RENAME COLUMN c TO e",
            "CREATE TABLE e(a DOUBLE)",
            "INSERT INTO e SELECT CASE WHEN i = 3 THEN 'nan'::DOUBLE ELSE i END FROM range(20) r(i)",
            "CREATE MACRO mac(q) AS q + 1",
            "COMMENT ON TABLE t IS 'hello'",
            "COMMENT ON COLUMN t.a IS 'a column'",
        )
    foreign = Path(address.data_path) / "main" / "f" / "theirs.parquet"
    foreign.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": range(30)}), foreign)
    lake = DuckLake.connect(address.url)
    lake.table("f").add_data_files(str(foreign))
    lake.merge_adjacent_files("m")
    lake.close()
    return address


@dataclass
class Planted:
    """A copy of the lake."""

    address: LakeAddress
    names: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def copy(cls, template: LakeAddress, address: LakeAddress) -> Planted:
        """A catalog in a file beside copies of the files."""
        shutil.copy(*(one.url.partition(":///")[2] for one in (template, address)))
        shutil.copytree(template.data_path, address.data_path)
        lake = cls(address).edit(f"UPDATE ducklake_metadata SET value = '{address.data_path}' WHERE key = 'data_path'")
        for name, number in lake.query("SELECT table_name, table_id FROM ducklake_table"):
            lake.names[name] = number
            rows = lake.query(f"SELECT data_file_id, path FROM ducklake_data_file WHERE table_id = {number} ORDER BY 1")
            for place, (file, _) in enumerate(rows):
                lake.names[f"{name}{place}"] = file
        # Ids that were given out, and are of no file any more.
        lake.names["free"] = lake.query("SELECT min(data_file_id) FROM ducklake_files_scheduled_for_deletion")[0][0]
        (lake.names["del"],) = (row[0] for row in lake.query("SELECT delete_file_id FROM ducklake_delete_file"))
        (lake.names["inl"],) = (
            row[0] for row in lake.query(f"SELECT table_name FROM ducklake_inlined_data_tables WHERE table_id = {lake.names['t']}")
        )
        return lake

    def edit(self, *statements: str) -> Planted:
        """Run statements; ``{t}`` is the id of a table, ``{t0}`` of its first file, ``{del}`` of the delete file."""
        if self.address.backend == "duckdb":
            with self._file() as file:
                for statement in statements:
                    edit_typed(file, statement.format(**self.names))
            return self
        engine = create_engine(self.address.url)
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.format(**self.names))
        engine.dispose()
        return self

    def query(self, statement: str) -> list[Any]:
        """Rows of a query on the catalog itself."""
        if self.address.backend == "duckdb":
            with self._file() as file:
                return file.execute(statement.format(**self.names)).fetchall()
        engine = create_engine(self.address.url)
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(statement.format(**self.names)).fetchall()
        engine.dispose()
        return list(rows)

    def _file(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(self.address.url.partition(":///")[2])

    def path(self, name: str) -> Path:
        """The place of a data file by ``t0``, or of the delete file by ``del``."""
        if name == "del":
            ((path, table),) = self.query("SELECT path, 't' FROM ducklake_delete_file")
        else:
            ((path,),) = self.query(f"SELECT path FROM ducklake_data_file WHERE data_file_id = {self.names[name]}")
            table = name.rstrip("0123456789")
        return Path(self.address.data_path) / "main" / table / path

    def rewrite(self, name: str, change: Any) -> None:
        """Write a data file anew with other rows, and give the catalog its new size."""
        path = self.path(name)
        table = pq.read_table(path)
        pq.write_table(change(table), path)
        footer = pq.read_metadata(path)
        size = int.from_bytes(path.read_bytes()[-8:-4], "little")
        self.edit(
            f"UPDATE ducklake_data_file SET file_size_bytes = {path.stat().st_size}, footer_size = {size}, "
            f"record_count = {footer.num_rows} WHERE data_file_id = {self.names[name]}"
        )

    def check(self, level: CheckLevel = "rows", *, repair: bool = False) -> CheckResult:
        """Check it."""
        lake = DuckLake.connect(self.address.url)
        try:
            return lake.check(level=level, repair=repair)
        finally:
            lake.close()
