"""Files of other writers become part of a table: the same catalog rows as DuckDB's for the same call, and the same rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.behaviour.foreign_files.added import check_everywhere, put
from tests.behaviour.lake.adding.samples import AB, ABG, NESTED, NESTED_COLUMNS, A, prepared
from tests.support.catalog_dump import dump_catalog
from tests.support.oracle import LakeAddress, attached, sqlite_lake
from tests.support.parameters import spread
from tests.support.scans import open_lake

TYPES = pa.table(
    {
        "i": pa.array([5, -3], pa.int16()),
        "u": pa.array([5, 250], pa.uint8()),
        "big": pa.array([2**32 - 1, 0], pa.uint32()),
        "f": pa.array([0.1, -2.5], pa.float32()),
        "dec": pa.array([Decimal("1.25"), Decimal("-3.50")], pa.decimal128(5, 2)),
        "ts": pa.array([1500, -1500], pa.timestamp("ms")),
        "tz": pa.array([1500, -1500], pa.timestamp("us", "UTC")),
        "d": pa.array([dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
        "t": pa.array([1, 86_399_999_999], pa.time64("us")),
        "o": pa.array([True, False]),
        "blob": pa.array([b"\x00a", b"\xff"]),
        "long": ["a" * 400, "b" * 400],
    }
)
TYPE_COLUMNS = """i INTEGER, u INTEGER, big BIGINT, f DOUBLE, dec DECIMAL(10,4), ts TIMESTAMP, tz TIMESTAMPTZ, d DATE, t TIME, o BOOLEAN,
    blob BLOB, long VARCHAR"""
G4 = A.append_column("g", pa.array([4, 4, 4], pa.int32()))


class Case:
    """Files, a table, and calls; each call is the paths and the options of DuckDB's function."""

    def __init__(self, ddl: str | tuple[str, ...], files: dict[str, pa.Table], *calls: tuple[str | list[str], dict[str, Any]]) -> None:
        self.ddl = (ddl,) if isinstance(ddl, str) else ddl
        self.files = files
        self.calls = calls


CASES = {
    "twice": Case(AB, {"f.parquet": A, "g.parquet": A}, ("f.parquet", {}), ("g.parquet", {})),
    "a pattern and other names": Case(AB, {"x/f.parquet": A, "x/g.parquet": A.rename_columns(["A", "b"])}, ("x/*.parquet", {})),
    "a list": Case(AB, {"g.parquet": A, "f.parquet": A}, (["g.parquet", "f.parquet"], {})),
    "other order of columns": Case(AB, {"f.parquet": A.select(["b", "a"])}, ("f.parquet", {})),
    "nested": Case(f"CREATE TABLE t ({NESTED_COLUMNS})", {"f.parquet": NESTED}, ("f.parquet", {})),
    "types": Case(f"CREATE TABLE t ({TYPE_COLUMNS})", {"f.parquet": TYPES}, ("f.parquet", {})),
    "extra": Case("CREATE TABLE t (s STRUCT(x INTEGER))", {"f.parquet": NESTED}, ("f.parquet", {"ignore_extra_columns": True})),
    "path": Case(
        ABG,
        {"g=1/f.parquet": A, "g=__HIVE_DEFAULT_PARTITION__/f.parquet": A},
        ("g=1/f.parquet", {}), ("g=*/*.parquet", {"hive_partitioning": True}),
    ),
    "path wins": Case(AB, {"a=7/f.parquet": A, "other=1/f.parquet": A}, ("a=7/f.parquet", {}), ("other=1/f.parquet", {})),
    "path off": Case(AB, {"a=7/f.parquet": A}, ("a=7/f.parquet", {"hive_partitioning": False})),
    "partitioned": Case(
        (ABG, "ALTER TABLE t SET PARTITIONED BY (g)"),
        {"g=1/f.parquet": A, "g=__HIVE_DEFAULT_PARTITION__/f.parquet": A},
        ("g=1/f.parquet", {}), ("g=__HIVE_DEFAULT_PARTITION__/f.parquet", {}),
    ),
    "year in the path": Case(
        ("CREATE TABLE t (a INTEGER, b VARCHAR, d DATE)", "ALTER TABLE t SET PARTITIONED BY (year(d))"),
        {"year=2020/f.parquet": A.append_column("d", pa.array([dt.date(2020, 1, 1), dt.date(2020, 12, 31), dt.date(2020, 5, 5)]))},
        ("year=2020/f.parquet", {}),
    ),
    "quotes and commas": Case(
        'CREATE TABLE t ("odd, na""me" INTEGER)',
        {"it's, here/f.parquet": A.select(["a"]).rename_columns(['odd, na"me'])},
        ("it's, here/f.parquet", {}),
    ),
}  # fmt: skip
COMPARED = (
    "column_mapping", "name_mapping", "data_file", "file_column_stats", "file_partition_value", "table_stats", "table_column_stats",
    "snapshot",
    "snapshot_changes",
)  # fmt: skip
# Columns of the case "types" whose bounds are other strings, each of which must really differ, and why.
OTHER_BOUNDS = {
    "f": "DuckDB writes a FLOAT's 0.1, which is below what a DOUBLE column reads",
    "dec": "as in written files we give all digits of the column",
    "o": "as in written files, 0 and 1",
    "blob": "as in written files, hexadecimal digits",
    "long": "as in written files, cut",
}


@pytest.mark.parametrize("name", spread(CASES, 6))
def test_the_catalog_is_the_reference_s(sqlite_address: LakeAddress, tmp_path: Path, folder: Path, name: str) -> None:
    compare_with_the_reference(sqlite_address, tmp_path, folder, name)


@pytest.mark.parametrize("name", ["nested", "path"])
def test_on_every_catalog_database(lake_address: LakeAddress, tmp_path: Path, folder: Path, name: str) -> None:
    compare_with_the_reference(lake_address, tmp_path, folder, name)


def compare_with_the_reference(lake_address: LakeAddress, tmp_path: Path, folder: Path, name: str) -> None:
    case = CASES[name]
    (tmp_path / "by_duckdb").mkdir()
    by_duckdb = sqlite_lake(tmp_path / "by_duckdb")
    for relative, data in case.files.items():
        put(folder / relative, data)

    def whole(paths: str | list[str]) -> list[str]:
        return [str(folder / path) for path in ([paths] if isinstance(paths, str) else paths)]

    with attached(by_duckdb, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(*case.ddl)
        for paths, options in case.calls:
            given = ", ".join(f"{key} => {value}" for key, value in options.items())
            quoted = ", ".join("'" + path.replace("'", "''") + "'" for path in whole(paths))
            duck.run(f"CALL ducklake_add_data_files('lake', 't', [{quoted}]{', ' if given else ''}{given})")
    lake = prepared(lake_address, *case.ddl)
    for paths, options in case.calls:
        given = whole(paths)
        lake.add_data_files("t", given if len(given) > 1 else given[0], allow_duplicates=True, **options)
    expected = dump_catalog(by_duckdb)
    found = dump_catalog(lake_address, expected)
    others = [place for place, column in enumerate(TYPES.column_names, 1) if column in OTHER_BOUNDS] if name == "types" else []
    for table in COMPARED:
        assert _rows(found, table, others) == _rows(expected, table, others), table
    for number in others:
        assert _bounds(found, number) != _bounds(expected, number)
    with attached(lake_address) as duck:
        check_everywhere(duck, open_lake(lake_address))
        assert duck.value("SELECT count(*) FROM t") > 0


def _rows(dump: dict[str, list[dict[str, Any]]], table: str, other_bounds: list[int]) -> list[dict[str, object]]:
    """Rows without some bounds; SQLite has no booleans."""
    rows = [{key: int(value) if isinstance(value, bool) else value for key, value in row.items()} for row in dump.get(table, [])]
    for row in rows:
        if row.get("column_id") in other_bounds and "min_value" in row:
            del row["min_value"], row["max_value"]
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def _bounds(dump: dict[str, list[dict[str, Any]]], number: int) -> list[tuple[str, str]]:
    return [(row["min_value"], row["max_value"]) for row in dump["file_column_stats"] if row["column_id"] == number]
