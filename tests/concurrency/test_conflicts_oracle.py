"""The table of conflict rules against DuckDB on PostgreSQL: every pair of definitions, each first and each second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ducklake_core import DuckLake
from ducklake_core.commit.conflicts import RULES
from tests.support.oracle import LakeAddress, attached
from tests.support.postgres import PostgresServer

SETUP = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.t (a INTEGER)",
    "INSERT INTO s.t VALUES (1)",
    "CREATE VIEW s.v AS SELECT 1 AS a",
    "CREATE MACRO s.m(x) AS x",
)
# Statement, and what it is in the terms of the rules.
STATEMENTS: dict[str, tuple[str, frozenset[str]]] = {
    "create schema": ("CREATE SCHEMA n", frozenset({"create_schema"})),
    "drop schema": ("DROP SCHEMA s CASCADE", frozenset({"drop_schema", "drop_table", "drop_view", "drop_macro"})),
    "create table": ("CREATE TABLE s.n (a INTEGER)", frozenset({"create_table"})),
    "create view": ("CREATE VIEW s.n AS SELECT 1 AS a", frozenset({"create_view"})),
    "rename table": ("ALTER TABLE s.t RENAME TO n", frozenset({"rename_table"})),
    "rename view": ("ALTER VIEW s.v RENAME TO n", frozenset({"rename_view"})),
    "add column": ("ALTER TABLE s.t ADD COLUMN b INTEGER", frozenset({"alter_table"})),
    "comment on table": ("COMMENT ON TABLE s.t IS 'c'", frozenset({"alter_table"})),
    "set not null": ("ALTER TABLE s.t ALTER a SET NOT NULL", frozenset({"alter_table", "set_not_null"})),
    "comment on view": ("COMMENT ON VIEW s.v IS 'c'", frozenset({"alter_view"})),
    "drop table": ("DROP TABLE s.t", frozenset({"drop_table"})),
    "drop view": ("DROP VIEW s.v", frozenset({"drop_view"})),
    "drop macro": ("DROP MACRO s.m", frozenset({"drop_macro"})),
    "create macro": ("CREATE MACRO s.m2(x) AS x", frozenset({"create_scalar_macro"})),
    "insert": ("INSERT INTO s.t VALUES (NULL)", frozenset({"insert"})),
}
# DuckDB's check goes by ids and names of one kind each; few of the pairs are in the fast set.
FEW = {
    ("rename table", "drop table"), ("add column", "add column"), ("set not null", "insert"), ("insert", "add column"),
    ("create view", "create table"), ("drop schema", "create view"), ("create macro", "create macro"),
}  # fmt: skip
PAIRS = [
    pytest.param(own, other, marks=() if (own, other) in FEW else pytest.mark.slow, id=f"{own} after {other}")
    for own in STATEMENTS
    for other in STATEMENTS
    if (own, other) != ("drop schema", "create macro")
]


@pytest.fixture(scope="module")
def template(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> LakeAddress:
    """A lake to copy."""
    address = postgres.lake(tmp_path_factory.mktemp("template"))
    with attached(address) as duck:
        duck.run(*SETUP)
    return address


def forbidden(own: str, changes: str) -> bool:
    """Return True where DuckDB's rules, as the library's table has them, forbid a pair."""
    others = {entry.partition(":")[0] for entry in changes.split(",")}
    return any(rule.own in STATEMENTS[own][1] and rule.other in others and not rule.stricter for rule in RULES)


@pytest.mark.parametrize(("own", "other"), PAIRS)
def test_the_reference_has_these_rules(template: LakeAddress, postgres: PostgresServer, tmp_path: Path, own: str, other: str) -> None:
    address = replace(postgres.lake(tmp_path, template), data_path=template.data_path)
    conflict: Any = None
    with attached(address) as first, attached(address) as second:
        second.run("BEGIN", STATEMENTS[own][0])
        first.run(STATEMENTS[other][0])
        try:
            second.run("COMMIT")
        except duckdb.Error as error:
            conflict = str(error)
    changes = next(snapshot.changes for snapshot in DuckLake.connect(address.url).snapshots() if snapshot.id == 6)
    assert (conflict is not None) == forbidden(own, changes), (changes, conflict)
    assert conflict is None or "Transaction conflict" in conflict


def test_a_macro_in_no_schema(template: LakeAddress, postgres: PostgresServer, tmp_path: Path) -> None:
    """Case of a stricter rule: DuckDB commits both, and can then no longer load the lake."""
    address = replace(postgres.lake(tmp_path, template), data_path=template.data_path)

    def both() -> None:
        with attached(address) as first, attached(address) as second:
            second.run("BEGIN", STATEMENTS["drop schema"][0])
            first.run(STATEMENTS["create macro"][0])
            second.run("COMMIT")
            second.rows("FROM s.t")

    with pytest.raises(duckdb.Error, match="could not find schema"):
        both()
