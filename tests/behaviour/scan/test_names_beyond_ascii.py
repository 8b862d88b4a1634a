"""Names that differ in other letters than ASCII's alone are different names, as in DuckDB, wherever a column is found by its name."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, col
from ducklake_core.errors import UsageError
from tests.support.oracle import LakeAddress, Oracle, attached

COLUMNS = '"Ä" INTEGER, "ä" INTEGER, "ß" INTEGER DEFAULT 5, "ss" INTEGER, s STRUCT("Ü" INTEGER, "ü" INTEGER)'
ROW = {"Ä": 1, "ä": 2, "ß": 3, "ss": 4, "s": {"Ü": 6, "ü": 7}}


def values(duck: Oracle) -> list[tuple[object, ...]]:
    return duck.rows('SELECT "Ä", "ä", "ß", ss, s."Ü", s."ü" FROM t ORDER BY ALL')


@pytest.mark.parametrize("limit", [0, 10], ids=["files", "inlined"])
def test_columns_are_distinguished(lake_address: LakeAddress, limit: int) -> None:
    # For MySQL these are names of one column, so that no table of inlined rows can have them.
    in_files = lake_address.backend == "mysql"
    with attached(lake_address, f"DATA_INLINING_ROW_LIMIT {0 if in_files else limit}") as duck:
        duck.run(f"CREATE TABLE t ({COLUMNS})", 'ALTER TABLE t SET PARTITIONED BY ("ä")')
        duck.run("INSERT INTO t VALUES (1, 2, 3, 4, {'Ü': 6, 'ü': 7}), (10, 20, 30, 40, {'Ü': 60, 'ü': 70})")
        lake = DuckLake.connect(lake_address.url)
        table = lake.table("t")
        assert table.scan(where='"ä" = 2').to_arrow().to_pylist() == [ROW]
        assert table.scan(columns=["ss", "ä"], where=(col("ß") == 3) & (col("s.ü") == 7)).to_arrow().to_pylist() == [{"ss": 4, "ä": 2}]

        # Missing columns are named in errors, and so are partitions, keys and fields of structs.
        written = lake.write("t", pa.table({"ss": [400], "ä": [200], "s": [{"ü": 700}]}), missing_columns="null")
        assert written.rows_inlined == (0 if in_files else 1)
        lake.write("t", pa.table({"ä": [2], "Ä": [100], "ss": [8]}), mode="upsert", on=["ä"], missing_columns="null")
        table.update({"ß": 'ss + "ä"'}, where='"ä" = 20')
        assert values(duck) == [(10, 20, 60, 40, 60, 70), (100, 2, 3, 8, 6, 7), (None, 200, 5, 400, None, 700)]
        assert duck.rows('SELECT "Ä" FROM t WHERE "ä" = 2') == [(100,)]
        table.delete(where='"ä" = 200')
        assert len(values(duck)) == 2


def test_tables_are_made_altered_and_sorted(lake: DuckLake, lake_address: LakeAddress) -> None:
    lake.write("t", pa.table({"Ä": [1, 2, 3], "ä": [3, 1, 2]}), inline=False)
    with lake.transaction() as tx:
        tx.set_sorted_by("t", ["ä"])
        tx.rename_column("t", "ä", "ö")
        tx.drop_column("t", "Ä")
    assert [key.expression for key in lake.table("t").sort_keys] == ['"ö"']
    with attached(lake_address) as duck:
        assert duck.rows("FROM t ORDER BY ALL") == [(1,), (2,), (3,)]


def test_queries_name_tables_views_and_macros(sqlite_address: LakeAddress) -> None:
    with attached(sqlite_address) as duck:
        duck.run('CREATE TABLE "Ärger" AS SELECT range AS "Ö" FROM range(3)', 'CREATE TABLE "ärger" AS SELECT 7 AS other')
        duck.run('CREATE VIEW "Übersicht" AS SELECT max("Ö") AS m FROM "Ärger"', 'CREATE MACRO "Öffne"(x) AS x + 1')
        query = 'SELECT count(*), any_value(m), "Öffne"(1) FROM "Ärger", "Übersicht"'
        expected = duck.rows(query)
    lake = DuckLake.connect(sqlite_address.url)
    for text, found in (
        (query, expected),
        ('SELECT sum(other) FROM "ärger"', [(7,)]),
        ("SELECT count(*) FROM query_table('Ärger')", [(3,)]),
        ('SELECT "Ö", rowid + 1 FROM "Ärger" WHERE "Ö" = 2', [(2, 3)]),
        ('SELECT *, rowid + 1 FROM "Ärger" WHERE "Ö" = 2', [(2, 3)]),
    ):
        assert [tuple(row.values()) for row in lake.sql(text).to_arrow().to_pylist()] == found, text
    with pytest.raises(UsageError, match="rowid"):
        lake.sql('SELECT "Ärger", rowid + 1 FROM "Ärger"').to_arrow()
    lake.close()
