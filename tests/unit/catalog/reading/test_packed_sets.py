"""Pruning on PostgreSQL from one read of the statistics equals that of plain statements."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ducklake_core.catalog.database.abilities import Abilities, abilities_of
from ducklake_core.catalog.reading import files
from ducklake_core.catalog.reading.reader import CatalogReader
from ducklake_core.errors import CatalogCorruptError
from ducklake_core.format.expressions.conditions import bind
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import PostgresServer
from tests.unit.catalog.catalog_access import database_of, reading

CONDITIONS = [
    *("a = 35", "a >= 20 AND a < 40", "a > 500", "a >= 0", "a IS NULL", "b IS NULL", "b IS NOT NULL", "b = 7", "FALSE", "a + 1 = 5"),
    *("a < 10 OR s = 'c5'", "(a < 10 AND s < 'b') OR (a > 60 AND s >= 'h3')", "a = 5 OR b = 3 OR s = 'e1'", "k = 1", "k = 1 AND a > 50"),
    *("k = 2 OR a < 15", "a < 90 AND (s < 'c' OR s > 'g') AND (b IS NULL OR a > 70)", "a IN (1, 11, 88)", "s LIKE 'd%' OR a = 71"),
]
MANY_GROUPS = " AND ".join(f"(a < {n} OR s > '{chr(98 + n % 5)}')" for n in range(40, 60))
MANY_PARTS = " OR ".join(f"(a = {n * 9} AND s > 'b' AND k < 3)" for n in range(18))
Found = tuple[list[tuple[int, dict[int, dict[str, object]]]], dict[str, object]]


@pytest.fixture(autouse=True)
def _every_file_in_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FEW_FILES", 0)


@pytest.fixture(scope="module")
def template(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """Files with and without partition values, of before and after a column, one of them deleted and one with few statistics."""
    address = postgres.lake(tmp_path_factory.mktemp("packed"), keep=True)
    rows = "SELECT {0} * 10 + r, chr((97 + {0})::INT) || r, {0} % 3 FROM range(10) n(r)"
    with attached(address, "DATA_INLINING_ROW_LIMIT 0") as duck:
        duck.run("CREATE TABLE other AS SELECT 35 AS a, 'c5' AS s", "CREATE TABLE t (a INT, s VARCHAR, k INT)")
        duck.run(*(f"INSERT INTO t {rows.format(number)}" for number in range(4)), "ALTER TABLE t ADD COLUMN b INT")
        duck.run("ALTER TABLE t SET PARTITIONED BY (k)", *(f"INSERT INTO t {_with_b(rows, number)}" for number in range(4, 9)))
        duck.run("DELETE FROM t WHERE a BETWEEN 20 AND 29", "DELETE FROM t WHERE a = 41")
    database = database_of(address)
    stats = database.tables["file_column_stats"]
    with database.write() as connection:
        partial = sa.select(sa.func.max(stats.c.data_file_id)).scalar_subquery()
        connection.execute(stats.delete().where(stats.c.data_file_id == partial, stats.c.column_id == 1))
        connection.execute(stats.update().where(stats.c.data_file_id == 3, stats.c.column_id == 1).values(min_value="x"))
    database.close()
    return address


@pytest.fixture
def address(postgres: PostgresServer, template: LakeAddress, tmp_path: Path) -> LakeAddress:
    """A copy of the catalog, which a test may change."""
    return postgres.lake(tmp_path, template)


def _with_b(rows: str, number: int) -> str:
    return rows.format(number).replace(" FROM", f", {number} FROM")


def found(reader: CatalogReader, condition: str, statistics_for: frozenset[int] = frozenset()) -> Found:
    """Files and the statistics that come with them, and how many were left out."""
    state = reader.table("main", "t", reader.latest_snapshot().id)
    read = files.data_files(reader, state, bind(condition, state.schema), statistics_for)
    kept = [(file.id, {column: asdict(one) for column, one in known.items()}) for file, known in read]
    return kept, asdict(read.counts)


def without_packing(dialect: Any) -> Abilities:
    """The abilities of a database that packs nothing."""
    return replace(abilities_of(dialect), packs_rows=False)


def test_packed_and_plain_statements_agree(address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    conditions = [*CONDITIONS, MANY_GROUPS, MANY_PARTS]
    columns = (frozenset[int](), frozenset({1, 2, 3, 4, 99}))
    with reading(address) as reader:
        packed = [found(reader, condition, wanted) for condition in conditions for wanted in columns]
        monkeypatch.setattr(files, "abilities_of", without_packing)
        plain = [found(reader, condition, wanted) for condition in conditions for wanted in columns]
        for index, (packed_files, plain_files) in enumerate(zip(packed, plain, strict=True)):
            assert packed_files == plain_files, conditions[index // len(columns)]
    assert {len(kept) for kept, _ in packed} >= {0, 1, 2, 8}


def test_statistics_are_read_once(address: LakeAddress) -> None:
    scans = "SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE relname IN ('ducklake_file_column_stats', 'ducklake_data_file')"
    with reading(address) as reader:
        connection = reader.connection
        connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
        state = reader.table("main", "t", reader.latest_snapshot().id)
        before = dict(connection.execute(sa.text(scans)).all())
        kept = list(files.data_files(reader, state, bind("a = 35 AND s > 'a'", state.schema), frozenset({1, 2, 3})))
        after = dict(connection.execute(sa.text(scans)).all())
    assert [sorted(known) for _, known in kept] == [[1, 2, 3], [2, 3]]
    assert after["ducklake_file_column_stats"] - before["ducklake_file_column_stats"] == 1


def test_a_file_without_an_id_raises(address: LakeAddress) -> None:
    database = database_of(address)
    with database.write() as connection:
        connection.execute(sa.text("ALTER TABLE ducklake_data_file DROP CONSTRAINT ducklake_data_file_pkey"))
        connection.execute(sa.text("ALTER TABLE ducklake_data_file ALTER data_file_id DROP NOT NULL"))
        connection.execute(sa.text("UPDATE ducklake_data_file SET data_file_id = NULL WHERE data_file_id = 5"))
    database.close()
    with reading(address) as reader, pytest.raises(CatalogCorruptError, match="has no id"):
        found(reader, "a = 35")


def test_statistics_behind_a_view_have_no_positions(address: LakeAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    database = database_of(address)
    with database.write() as connection:
        connection.execute(sa.text("ALTER TABLE ducklake_file_column_stats RENAME TO kept_elsewhere"))
        connection.execute(sa.text("CREATE VIEW ducklake_file_column_stats AS SELECT * FROM kept_elsewhere"))
    database.close()
    with reading(address) as reader:
        packed = [found(reader, condition, frozenset({1, 2})) for condition in CONDITIONS]
        monkeypatch.setattr(files, "abilities_of", without_packing)
        assert packed == [found(reader, condition, frozenset({1, 2})) for condition in CONDITIONS]


@pytest.mark.parametrize("number", [-1, 1 << 48])
def test_statistics_of_files_beyond_the_index_are_ignored(address: LakeAddress, number: int) -> None:
    database = database_of(address)
    stats = database.tables["file_column_stats"]
    with reading(address) as reader:
        before = found(reader, "a = 35")
    with database.write() as connection:
        connection.execute(stats.insert().values(data_file_id=number, table_id=2, column_id=1, min_value="0", max_value="1"))
    database.close()
    with reading(address) as reader:
        assert found(reader, "a = 35") == before
