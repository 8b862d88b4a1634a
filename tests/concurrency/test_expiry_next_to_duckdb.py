"""Expiry next to an open transaction of DuckDB, which commits as the snapshot after its base unless that snapshot exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import make_url

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.postgres import PostgresServer

_ROWS = 20
_NO_AGE = timedelta(0)
# Statements of DuckDB in a transaction, and changes of the library that are committed before the transaction ends.
_STATEMENTS = {
    "delete": "DELETE FROM t WHERE k BETWEEN 0 AND 14",
    "update": "UPDATE t SET k = k + 1 WHERE k BETWEEN 0 AND 14",
    "merge files": "CALL ducklake_merge_adjacent_files('lake')",
}
_CHANGES = ("delete", "update", "merge files")


@pytest.fixture
def address(postgres: PostgresServer, tmp_path: Path) -> LakeAddress:
    return postgres.lake(tmp_path)


@pytest.fixture
def lake(address: LakeAddress) -> Iterator[DuckLake]:
    """Two tables: t with 20 rows in two files, and another one."""
    made = DuckLake.create(address.url, data_path=address.data_path)
    made.set_option("data_inlining_row_limit", 0)
    for table in ("t", "other"):
        made.create_table(table, {"uid": "varchar", "k": "int64"})
    for first in (0, _ROWS // 2):
        numbers = range(first, first + _ROWS // 2)
        made.table("t").append(pa.table({"uid": [f"r{k}" for k in numbers], "k": list(numbers)}))
    yield made
    made.close()


def _begin(duck: Oracle, statement: str) -> int:
    """Begin a transaction, run a statement, and return the snapshot that the transaction reads."""
    duck.connection.execute("BEGIN")
    base = duck.connection.execute("FROM lake.current_snapshot()").fetchone()
    duck.connection.execute(statement)
    assert base is not None
    return int(base[0])


def _append_to_other(lake: DuckLake) -> None:
    lake.table("other").append(pa.table({"uid": ["o"], "k": [1]}))


def _change(lake: DuckLake, change: str) -> None:
    table = lake.table("t")
    if change == "delete":
        table.delete("k < 5")
    elif change == "update":
        table.update({"k": "k + 100"}, where="k < 5")
    else:
        lake.merge_adjacent_files("t")
    _append_to_other(lake)


@pytest.mark.parametrize("change", _CHANGES)
@pytest.mark.parametrize("statement", _STATEMENTS)
def test_duckdb_sees_conflicts_with_changes_before_an_expiry(address: LakeAddress, lake: DuckLake, statement: str, change: str) -> None:
    with attached(address) as duck:
        base = _begin(duck, _STATEMENTS[statement])
        _change(lake, change)
        result = lake.expire_snapshots(keep_last=1, min_age=_NO_AGE)
        assert result.snapshot_ids == tuple(range(base))
        assert [one.id for one in result.held] == list(range(base, lake.snapshot().id))
        with pytest.raises(duckdb.TransactionException, match="Transaction conflict"):
            duck.connection.execute("COMMIT")
        assert duck.value("SELECT count(DISTINCT uid) - count(*) FROM t") == 0
    assert lake.check(level="rows").is_sound
    assert [one.id for one in lake.expire_snapshots(keep_last=1, min_age=_NO_AGE).held] == []


def test_duckdb_commits_as_the_newest_snapshot_after_an_expiry(address: LakeAddress, lake: DuckLake) -> None:
    with attached(address) as duck:
        base = _begin(duck, _STATEMENTS["delete"])
        for _ in range(3):
            _append_to_other(lake)
        newest = lake.snapshot().id
        lake.expire_snapshots(keep_last=1, min_age=_NO_AGE)
        duck.connection.execute("COMMIT")
        assert [snapshot.id for snapshot in lake.snapshots()] == [*range(base, newest + 1), newest + 1]
        assert lake.snapshots()[-1].changes
        assert lake.table("t", at=newest).scan().to_arrow().num_rows == _ROWS
        assert lake.table("t").scan().to_arrow().num_rows == _ROWS - 15
    assert lake.check(level="rows").is_sound


def test_plan_and_result_name_the_transaction(address: LakeAddress, lake: DuckLake) -> None:
    with attached(address) as duck:
        base = _begin(duck, _STATEMENTS["delete"])
        _append_to_other(lake)
        _append_to_other(lake)
        planned = lake.expire_snapshots(keep_last=1, min_age=_NO_AGE, dry_run=True)
        lake.holds.add("audit", base)
        done = lake.expire_snapshots(keep_last=1, min_age=_NO_AGE)
        duck.connection.execute("ROLLBACK")
    for result in (planned, done):
        assert [one.id for one in result.held] == [base, base + 1]
        text = f"kept snapshot {base + 1} of .*: a transaction of another program \\(PostgreSQL process \\d+, open since .* UTC\\) needs it"
        assert any(re.match(text, line) for line in result.lines())
    assert "held by 'audit'; a transaction" in done.held[0].reason
    assert {step.outcome for step in done.steps if step.target in {f"snapshot {base}", f"snapshot {base + 1}"}} == {"skipped"}


def test_roles_without_privileges_see_transactions_of_others(postgres: PostgresServer, address: LakeAddress, lake: DuckLake) -> None:
    name = make_url(address.url).database
    with psycopg.connect(f"host={postgres.socket} user={postgres.user} dbname={name}", autocommit=True) as server:
        server.execute(f"CREATE ROLE keeper_{name} LOGIN")
        server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO keeper_{name}")
    url = make_url(address.url).set(username=f"keeper_{name}").render_as_string(hide_password=False)
    with attached(address) as duck, DuckLake.connect(url) as keeper:
        base = _begin(duck, _STATEMENTS["delete"])
        _append_to_other(lake)
        _append_to_other(lake)
        result = keeper.expire_snapshots(keep_last=1, min_age=_NO_AGE)
        duck.connection.execute("ROLLBACK")
    assert [one.id for one in result.held] == [base, base + 1]


def test_readers_that_began_after_the_newest_snapshot_keep_nothing(address: LakeAddress, lake: DuckLake) -> None:
    with attached(address) as duck:
        base = _begin(duck, "SELECT count(*) FROM t")
        result = lake.expire_snapshots(keep_last=1, min_age=_NO_AGE)
        duck.connection.execute("COMMIT")
    assert result.snapshot_ids == tuple(range(base))
    assert result.held == ()
