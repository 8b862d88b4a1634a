"""Old values of columns whose type was changed: every change that DuckDB allows, in files and inlined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from ducklake_core.errors import DuckLakeError
from ducklake_core.format.evolution.reconciliation import promotes
from ducklake_core.format.types.data_types import GEOMETRY, VARIANT, DecimalType
from tests.behaviour.types.samples import constant, strings_of, table_strings
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.scans import OpenLake, open_lake
from tests.unit.format.samples import SQL_TYPES

_FLOATS = ("FLOAT", "DOUBLE")
_DECIMALS = ("DECIMAL(18,3)", "DECIMAL(38,10)", "DECIMAL(38,0)")
PROMOTIONS: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT", *_FLOATS, *_DECIMALS),
    "SMALLINT": ("INTEGER", "BIGINT", "HUGEINT", *_FLOATS, *_DECIMALS),
    "INTEGER": ("BIGINT", "HUGEINT", *_FLOATS, *_DECIMALS),
    "BIGINT": ("HUGEINT", *_FLOATS, *_DECIMALS[1:]),
    "HUGEINT": (*_FLOATS, *_DECIMALS[1:]),
    "UTINYINT": ("SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", *_FLOATS, *_DECIMALS),
    "USMALLINT": ("INTEGER", "BIGINT", "HUGEINT", "UINTEGER", "UBIGINT", "UHUGEINT", *_FLOATS, *_DECIMALS),
    "UINTEGER": ("BIGINT", "HUGEINT", "UBIGINT", "UHUGEINT", *_FLOATS, *_DECIMALS),
    "UBIGINT": ("HUGEINT", "UHUGEINT", *_FLOATS, *_DECIMALS[1:]),
    "UHUGEINT": (*_FLOATS, *_DECIMALS[1:]),
    "FLOAT": ("DOUBLE",),
    "DATE": ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ"),
    "TIMESTAMP": ("TIMESTAMP_NS", "TIMESTAMPTZ"),
    "TIMESTAMP_S": ("TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_NS"),
    "TIMESTAMP_MS": ("TIMESTAMP", "TIMESTAMP_NS"),
    "DECIMAL(4,2)": (*_FLOATS, *_DECIMALS),
    "DECIMAL(2,2)": (*_FLOATS, "DECIMAL(4,2)", *_DECIMALS),
    "DECIMAL(18,3)": (*_FLOATS, *_DECIMALS[1:]),
    "DECIMAL(38,10)": (*_FLOATS, "DECIMAL(38,0)"),
    "DECIMAL(38,0)": _FLOATS,
}
_TYPES = {sql: data_type for data_type, sql in SQL_TYPES.items()}
_ZONES_UNKNOWN = ("TIME", "TIMETZ")
_HUGE = ("HUGEINT", "UHUGEINT")
_JSON_STRINGS = ["1", '{"a": 1}', '"x"', "null"]


def promotions(*, in_file: bool) -> Iterator[tuple[str, str]]:
    for old in SQL_TYPES.values():
        for new in (*PROMOTIONS.get(old, ()), *(() if old == "JSON" else ("JSON",))):
            # DuckDB has huge integers in files as DOUBLE, and shows the digits of that.
            if not (in_file and old in _HUGE and new not in _FLOATS):
                yield old, new


def convertible(duck: Oracle, old: str, new: str, *, in_file: bool) -> list[str]:
    """Samples that DuckDB can cast."""
    samples = _JSON_STRINGS if (old, new) == ("VARCHAR", "JSON") else strings_of(_TYPES[old], in_file=in_file)
    return [text for text in samples if _casts(duck, f"SELECT CAST({constant(text, old)} AS {new})")]


def _casts(duck: Oracle, query: str) -> bool:
    try:
        duck.value(query)
    except duckdb.ConversionException:
        return False
    return True


def shown(lake: OpenLake, table: str) -> list[Any]:
    scan = lake.scan(table)
    return table_strings(scan.to_arrow(), scan.plan().plan.schema)["c"]


def check(address: LakeAddress, *, in_file: bool) -> None:
    pairs = list(promotions(in_file=in_file))
    with attached(address, f"DATA_INLINING_ROW_LIMIT {0 if in_file else 1000}") as duck:
        samples = [convertible(duck, old, new, in_file=in_file) for old, new in pairs]
        assert all(samples)
        wanted = [
            [duck.value(f"SELECT CAST(CAST({constant(text, old)} AS {new}) AS VARCHAR)") for text in strings]
            for (old, new), strings in zip(pairs, samples, strict=True)
        ]
        duck.run("BEGIN", *(f"CREATE TABLE t{n} (c {old})" for n, (old, _) in enumerate(pairs)), "COMMIT", "BEGIN")
        for n, (old, _) in enumerate(pairs):
            duck.run(f"INSERT INTO t{n} VALUES {', '.join(f'({constant(text, old)})' for text in (*samples[n], None))}")
        duck.run("COMMIT", "BEGIN", *(f"ALTER TABLE t{n} ALTER c TYPE {new}" for n, (_, new) in enumerate(pairs)), "COMMIT")
    lake = open_lake(address)
    for n, (old, new) in enumerate(pairs):
        if old in _ZONES_UNKNOWN:
            with pytest.raises(DuckLakeError, match="'c' was a time and is json now"):
                shown(lake, f"t{n}")
            continue
        assert shown(lake, f"t{n}") == [*wanted[n], None], (old, new)


def test_files(sqlite_address: LakeAddress) -> None:
    check(sqlite_address, in_file=True)


@pytest.mark.slow
def test_inlined(lake_address: LakeAddress) -> None:
    check(lake_address, in_file=False)


def test_special_floats_as_json(sqlite_address: LakeAddress) -> None:
    special = ["nan", "inf", "-inf", "-0.0", "1e21", "1e20", "1e-6", "1.5e-7", "1.5e300", "123456789012345678901234.0", "100"]
    with attached(sqlite_address) as duck:
        duck.run("CREATE TABLE t (c DOUBLE)", f"INSERT INTO t VALUES {', '.join(f'({text!r})' for text in special)}")
        duck.run("ALTER TABLE t ALTER c TYPE JSON")
        assert shown(open_lake(sqlite_address), "t") == [duck.value(f"SELECT CAST({text!r}::DOUBLE::JSON AS VARCHAR)") for text in special]


def test_old_bounds_hide_no_row(sqlite_address: LakeAddress) -> None:
    """Statistics and partition values keep the strings of the old type."""
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE t (i INTEGER, d DECIMAL(38,10), f DOUBLE)", "ALTER TABLE t SET PARTITIONED BY (f)")
        duck.run("INSERT INTO t VALUES (5, 0.5, 1e16), (7, 0.7, 1e16), (10, 0.1, 1e16)")
        duck.run("ALTER TABLE t ALTER i TYPE JSON", "ALTER TABLE t ALTER d TYPE DECIMAL(38,0)", "ALTER TABLE t ALTER f TYPE JSON")
    lake = open_lake(sqlite_address)
    for where, rows in (("i = '7'", 1), ("i > '6'", 1), ("d = 1", 2), ("d = 0", 1), ("f = '10000000000000000.0'", 3), ("f = '1e16'", 0)):
        assert lake.scan("t", where=where).to_arrow().num_rows == rows, where


@pytest.mark.slow
def test_promotions_equal_those_of_duckdb(sqlite_address: LakeAddress) -> None:
    """ALTER allows exactly what DuckDB allows, for every pair of types."""
    types = {**_TYPES, **{f"DECIMAL({p},{s})": DecimalType(precision=p, scale=s) for p, s in ((3, 0), (5, 1), (9, 9), (18, 0), (38, 38))}}
    types |= {"VARIANT": VARIANT, "GEOMETRY": GEOMETRY}
    wrong: list[tuple[str, str, bool]] = []
    with attached(sqlite_address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run(f"CREATE TABLE t ({', '.join(f'c{n} {sql}' for n, sql in enumerate(types))})")
        for n, (old, old_type) in enumerate(types.items()):
            for new, new_type in types.items():
                if old_type == new_type:
                    continue
                duck.run("BEGIN")
                try:
                    duck.run(f"ALTER TABLE t ALTER c{n} TYPE {new}")
                    allowed = True
                except duckdb.CatalogException as error:
                    assert "only widening type promotions" in str(error)
                    allowed = False
                duck.run("ROLLBACK")
                # Old files would have to be read as variants, or variants and geometries as JSON, which is not supported.
                rejected = new == "VARIANT" or old in ("VARIANT", "GEOMETRY")
                if promotes(old_type, new_type) != (allowed and not rejected):
                    wrong.append((old, new, allowed))
    assert not wrong
