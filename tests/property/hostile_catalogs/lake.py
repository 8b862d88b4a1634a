"""A sound lake with a little of everything, ways to damage copies of it, and what its rows are."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import create_engine

from ducklake_core import DuckLake
from ducklake_core.maintenance.check.findings import CheckLevel, CheckResult
from tests.support.lakes import held_open
from tests.support.oracle import LakeAddress, Oracle, attached

Row = dict[str, Any]

FIRST, SECOND, INLINED = range(10), range(10, 20), range(20, 23)
DELETED = 3
ROWS: list[Row] = [
    {"a": None if n == 9 else n, "b": f"v{n:02}", "flag": n % 2 == 0, "x": n * 2, "day": 19_000 + n}
    for n in (*FIRST, *SECOND, *INLINED)
    if n != DELETED
]
FILTERS: dict[str, Callable[[Row], bool]] = {
    "a = 5": lambda row: row["a"] == 5,
    "a >= 12": lambda row: row["a"] is not None and row["a"] >= 12,
    "a < 2": lambda row: row["a"] is not None and row["a"] < 2,
    "a IN (4, 15, 21)": lambda row: row["a"] in (4, 15, 21),
    "a IS NULL": lambda row: row["a"] is None,
    "a IS NOT NULL": lambda row: row["a"] is not None,
    "NOT (a > 4)": lambda row: row["a"] is not None and row["a"] <= 4,
    "b = 'v07'": lambda row: row["b"] == "v07",
    "b LIKE 'v1%'": lambda row: row["b"].startswith("v1"),
    "flag": lambda row: row["flag"],
    "s.x > 30": lambda row: row["x"] > 30,
    "day = DATE '2022-01-12'": lambda row: row["day"] == 19_004,
}
_SELECT = (
    "i::INTEGER AS n, 'v' || lpad(i::VARCHAR, 2, '0') AS b, i % 2 = 0 AS flag, {'x': (i * 2)::INTEGER} AS s, "
    "DATE '1970-01-01' + (19000 + i)::INTEGER AS day"
)


def build(address: LakeAddress) -> LakeAddress:
    """Make the lake.

    Tables t (deletes of both kinds, inlined rows), p (partitions), m (merged), f (an added file), n (NOT NULL), a dropped one, s (sorted),
    d (defaults, a column of two names), e (NaN), a view, a macro, and r, whose rows are compared (two data files, a delete file,
    inlined rows).
    """
    with attached(address, "DATA_INLINING_ROW_LIMIT 5") as duck:
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
        build_read_table(duck)
    foreign = Path(address.data_path) / "main" / "f" / "foreign.parquet"
    foreign.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": range(30)}), foreign)
    with closing(DuckLake.connect(address.url)) as lake:
        lake.table("f").add_data_files(str(foreign))
        lake.merge_adjacent_files("m")
    return address


def build_read_table(duck: Oracle) -> None:
    """Table r."""
    duck.run("CREATE TABLE r(a INTEGER, b VARCHAR, flag BOOLEAN, s STRUCT(x INTEGER), day DATE)")
    for numbers in (FIRST, SECOND, INLINED):
        rows = f"SELECT {_SELECT} FROM range({numbers.start}, {numbers.stop}) i(i)"
        duck.run(f"INSERT INTO r SELECT CASE WHEN n <> 9 THEN n END, b, flag, s, day FROM ({rows})")
    duck.run("CALL lake.set_option('data_inlining_row_limit', 0, table_name => 'r')", f"DELETE FROM r WHERE a = {DELETED}")


@dataclass
class DamagedLake:
    """A lake whose catalog and files can be changed behind the library's back."""

    address: LakeAddress
    names: dict[str, Any] = field(default_factory=dict)
    """Ids by name, for statements: see ``catalogue.Damage``."""

    def moved_from(self, template: LakeAddress) -> DamagedLake:
        """Take copies of the template's files, and its names."""
        shutil.copytree(template.data_path, self.address.data_path)
        self.edit(f"UPDATE ducklake_metadata SET value = '{self.address.data_path}' WHERE key = 'data_path'")
        return self.look_up() if self.value("SELECT count(*) FROM ducklake_table WHERE table_name = 'r'") else self

    def look_up(self) -> DamagedLake:
        """Find the ids that statements name."""
        for name, number in self.query("SELECT table_name, table_id FROM ducklake_table"):
            self.names[name] = number
            files = self.query(f"SELECT data_file_id FROM ducklake_data_file WHERE table_id = {number} ORDER BY 1")
            self.names |= {f"{name}{index}": file for index, (file,) in enumerate(files)}
        for table, prefix in (("t", ""), ("r", "r")):
            of_table = f"WHERE table_id = {self.names[table]}"
            self.names[f"{prefix}del"] = self.value(f"SELECT delete_file_id FROM ducklake_delete_file {of_table}")
            ((self.names[f"{prefix}inl"], self.names["version"]),) = self.query(
                f"SELECT table_name, schema_version FROM ducklake_inlined_data_tables {of_table}"
            )
        # Ids that were given out, and are of no file any more.
        self.names["free"] = self.value("SELECT min(data_file_id) FROM ducklake_files_scheduled_for_deletion")
        self.names["begin"] = self.value(f"SELECT begin_snapshot FROM ducklake_table WHERE table_id = {self.names['r']}")
        self.names["last"] = self.value("SELECT max(snapshot_id) FROM ducklake_snapshot")
        return self

    def edit(self, *statements: str) -> DamagedLake:
        """Run statements on the catalog database itself."""
        statements = tuple(statement.format(**self.names) if self.names else statement for statement in statements)
        if self.address.backend == "duckdb":
            with self._file() as file:
                for statement in statements:
                    edit_typed(file, statement)
            return self
        engine = create_engine(self.address.url)
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()
        return self

    def query(self, query: str) -> list[Any]:
        """Rows of a query on the catalog database."""
        if self.address.backend == "duckdb":
            with self._file() as file:
                return file.execute(query).fetchall()
        engine = create_engine(self.address.url)
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(query).fetchall()
        engine.dispose()
        return list(rows)

    def value(self, query: str) -> Any:
        """The first value of a query on the catalog database."""
        return next(iter(self.query(query)), (None,))[0]

    def _file(self) -> duckdb.DuckDBPyConnection:
        return duckdb.connect(self.address.url.partition(":///")[2])

    def path(self, name: str) -> Path:
        """The place of a data file by ``t0``, or of the delete file of table t by ``del``."""
        table, number = ("t", self.names["del"]) if name == "del" else (name.rstrip("0123456789"), self.names[name])
        kind = "delete" if name == "del" else "data"
        path = self.value(f"SELECT path FROM ducklake_{kind}_file WHERE {kind}_file_id = {number}")
        return Path(self.address.data_path) / "main" / table / path

    def rewrite(self, name: str, change: Any) -> None:
        """Write a data file again with other rows, and give the catalog its new size."""
        path = self.path(name)
        pq.write_table(change(pq.read_table(path)), path)
        footer, size = pq.read_metadata(path), int.from_bytes(path.read_bytes()[-8:-4], "little")
        self.edit(
            f"UPDATE ducklake_data_file SET file_size_bytes = {path.stat().st_size}, footer_size = {size}, "
            f"record_count = {footer.num_rows} WHERE data_file_id = {self.names[name]}"
        )

    def check(self, level: CheckLevel = "rows", *, repair: bool = False) -> CheckResult:
        """Check it."""
        with closing(DuckLake.connect(self.address.url)) as lake:
            return lake.check(level=level, repair=repair)

    def rows(self, where: str | None = None) -> list[Row]:
        """Rows of table r, in the form of ``ROWS``."""
        with closing(DuckLake.connect(self.address.url)) as lake:
            return _plain(lake, where)

    def assert_right(self) -> None:
        """Every row of table r is there, and every filter gives those of them that it should."""
        assert self.rows() == ROWS
        with closing(DuckLake.connect(self.address.url)) as lake, held_open(lake):
            for where, holds in FILTERS.items():
                assert _plain(lake, where) == [row for row in ROWS if holds(row)], where


def _plain(lake: DuckLake, where: str | None) -> list[Row]:
    found = lake.table("r").scan(where=where).to_arrow().to_pylist()
    plain = [
        {"a": row["a"], "b": row["b"], "flag": row["flag"], "x": row["s"]["x"], "day": (row["day"].toordinal() - 719_163)} for row in found
    ]
    return sorted(plain, key=lambda row: str(row["b"]))


def file_copy(template: LakeAddress, address: LakeAddress) -> DamagedLake:
    """A copy of a lake whose catalog is a file."""
    shutil.copy(*(one.url.partition(":///")[2] for one in (template, address)))
    return DamagedLake(address).moved_from(template)


_CELL = re.compile(r"UPDATE (\S+) SET (\w+) = (?:'[^']*'|-?\d+)")


def edit_typed(file: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Run a statement; a column that cannot hold the value becomes VARCHAR first, as another program may have made it."""
    try:
        file.execute(statement)
    except duckdb.ConversionException:
        found = _CELL.match(statement)
        assert found is not None, statement
        table, column = found.groups()
        file.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET DATA TYPE VARCHAR")
        file.execute(statement)
