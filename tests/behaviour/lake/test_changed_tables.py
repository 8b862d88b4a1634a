"""Rows that differ between two snapshots after changes of DuckDB, also where its change log does not report them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from ducklake_core import ChangedTable, DuckLake
from ducklake_core.catalog import changed
from ducklake_core.errors import NotFoundError
from tests.support.oracle import LakeAddress, Oracle, attached
from tests.support.parameters import spread
from tests.support.statements import noted_statements

MAKE = ("CREATE TABLE t (day DATE, n INTEGER)", "ALTER TABLE t SET PARTITIONED BY (day)")
FEW = "INSERT INTO t VALUES (DATE '2026-01-01', 1), (DATE '2026-01-02', 2), (DATE '2026-01-03', 3)"
MANY = "INSERT INTO t SELECT DATE '2026-01-01' + (i // 20)::INTEGER, i FROM range(60) r(i)"
FLUSH = "CALL ducklake_flush_inlined_data('lake')"


class Watch:
    """A lake that DuckDB writes, seen from tick to tick."""

    def __init__(self, lake: DuckLake, duck: Oracle) -> None:
        self.lake, self.duck, self.at = lake, duck, lake.snapshot().id

    def after(self, *statements: str) -> dict[str, ChangedTable]:
        self.duck.run(*statements)
        changes = self.lake.changed_tables(self.at, tables={"t": ["day"]})
        self.at = changes.until
        return {table.name: table for table in changes.tables}

    def days(self, *statements: str) -> list[str]:
        """Days that rows may have changed in."""
        table = self.after(*statements).get("main.t")
        if table is None:
            return []
        assert table.unknown is None
        found: set[str] = set()
        for rows in table.rows:
            (known,) = rows.ranges
            assert isinstance(known.low, int)
            assert isinstance(known.high, int)
            found |= {(date(1970, 1, 1) + timedelta(days=day)).isoformat() for day in range(known.low, known.high + 1)}
        return sorted(found)


@pytest.fixture
def watched(lake: DuckLake, lake_address: LakeAddress) -> Any:
    with attached(lake_address) as duck:
        duck.run(*MAKE)
        yield Watch(lake, duck)


def test_an_update_of_an_inlined_row_keeps_its_row_id(watched: Watch) -> None:
    assert watched.days(FEW) == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert watched.days("UPDATE t SET n = 20 WHERE n = 2") == ["2026-01-02"]
    assert watched.days("UPDATE t SET day = DATE '2026-01-05' WHERE n = 20") == ["2026-01-02", "2026-01-05"]
    assert watched.days() == []


def test_a_second_delete_replaces_the_delete_file(watched: Watch) -> None:
    watched.duck.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    watched.after(MANY)
    assert watched.days("DELETE FROM t WHERE n = 3") == ["2026-01-01"]
    assert watched.days("DELETE FROM t WHERE n = 4") == ["2026-01-01"]
    assert watched.days("DELETE FROM t WHERE n = 21") == ["2026-01-02"]
    assert watched.days("DELETE FROM t WHERE n >= 40") == ["2026-01-03"]


def test_inserts_that_were_flushed_or_merged_are_reported(watched: Watch) -> None:
    assert watched.days(FEW, FLUSH) == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert watched.days(MANY, "INSERT INTO t SELECT DATE '2026-01-03', i FROM range(20) r(i)", "CALL ducklake_merge_adjacent_files('lake')")
    assert watched.days("INSERT INTO t VALUES (DATE '2026-01-04', 1)", "DELETE FROM t WHERE n = 1 AND day < DATE '2026-01-02'", FLUSH)[
        -1
    ] == ("2026-01-04")


def test_maintenance_that_moves_rows_is_no_change(watched: Watch) -> None:
    watched.after(FEW, MANY)
    # A flush of inlined deletes is logged as a delete, and as a flush only when inlined rows were flushed too.
    for statements in (
        ["DELETE FROM t WHERE n = 3"],
        [FLUSH],
        ["DELETE FROM t WHERE n = 22"],
        [FLUSH],
        ["DELETE FROM t WHERE n BETWEEN 41 AND 55"],
        ["CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)"],
        ["INSERT INTO t SELECT DATE '2026-01-07', i FROM range(20) r(i)", "INSERT INTO t SELECT DATE '2026-01-07', i FROM range(20) r(i)"],
        ["CALL ducklake_merge_adjacent_files('lake')"],
    ):
        found = watched.after(*statements).get("main.t")
        assert bool(found and found.rows) == (not statements[0].startswith("CALL")), statements
        assert found is None or found.unknown is None


def test_rewritten_after_deletes_that_only_the_catalog_knew(watched: Watch) -> None:
    watched.after(MANY)
    rewrite = "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)"
    assert "2026-01-02" in watched.days("DELETE FROM t WHERE n IN (21, 22)", rewrite)
    assert (
        watched.days(MANY.replace("01-01", "01-05"), "DELETE FROM t WHERE day = DATE '2026-01-05' AND n < 5", rewrite)[-1] == "2026-01-07"
    )


def test_rows_deleted_and_flushed_in_one_commit_leave_no_trace(watched: Watch) -> None:
    watched.after(FEW)
    found = watched.after("BEGIN", "DELETE FROM t WHERE n = 1", FLUSH, "COMMIT")["main.t"]
    assert found.unknown is not None
    assert "no trace" in found.unknown


def test_a_table_swapped_in_by_name(watched: Watch) -> None:
    watched.after(FEW, "CREATE TABLE u AS SELECT DATE '2026-02-01' AS day, 7 AS n")
    found = watched.after("BEGIN", "ALTER TABLE t RENAME TO t_old", "ALTER TABLE u RENAME TO t", "COMMIT")["main.t"]
    assert found.change == "replaced"
    assert {rows.change for rows in found.rows} == {"added", "removed"}
    assert sum(rows.row_count for rows in found.rows if rows.change == "removed") == 3
    assert sum(rows.row_count for rows in found.rows if rows.change == "added") == 1
    assert {rows.snapshots for rows in found.rows} == {(watched.at,)}


def test_a_dropped_table(watched: Watch) -> None:
    watched.after(FEW, MANY)
    found = watched.after("DROP TABLE t")["main.t"]
    assert found.change == "dropped"
    assert sum(rows.row_count for rows in found.rows) == 63
    assert {rows.change for rows in found.rows} == {"removed"}


def test_expired_commits_are_named_and_leave_nothing_out(watched: Watch) -> None:
    watched.after(FEW, MANY)
    at = watched.at
    watched.duck.run(
        "DELETE FROM t WHERE day = DATE '2026-01-01'", "INSERT INTO t VALUES (DATE '2026-01-09', 9)", "CREATE TABLE other (i INTEGER)"
    )
    watched.duck.run(f"CALL ducklake_expire_snapshots('lake', versions => [{', '.join(map(str, range(1, at + 2)))}])")
    changes = watched.lake.changed_tables(at, tables={"t": ["day"]})
    assert changes.before is None
    assert changes.expired == ((at + 1, at + 1),)
    (found,) = changes.tables
    assert found.unknown is not None
    assert f"snapshot {at + 1}" in found.unknown


def test_a_cursor_that_was_expired_alone_loses_nothing(watched: Watch) -> None:
    watched.after(FEW, MANY)
    at = watched.at
    watched.duck.run("INSERT INTO t SELECT DATE '2026-01-09', i FROM range(20) r(i)")
    watched.duck.run(f"CALL ducklake_expire_snapshots('lake', versions => [{', '.join(map(str, range(1, at + 1)))}])")
    assert watched.days() == ["2026-01-09"]


def test_a_delete_that_duckdb_had_to_repeat(watched: Watch) -> None:
    """Its file keeps the snapshot of the first attempt, which may have been reported already; only its id shows that it is new."""
    watched.duck.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    watched.after(MANY, "DELETE FROM t WHERE n = 3")
    watched.duck.run("CREATE TABLE other (i INTEGER)")
    watched.at = watched.lake.snapshot().id
    watched.duck.run("DELETE FROM t WHERE n = 4")
    with watched.lake.database.write() as connection:
        connection.execute(text("UPDATE ducklake_delete_file SET partial_max = partial_max - 1"))
    assert watched.days() == ["2026-01-01"]


def test_a_past_range_is_reported_after_its_files_were_replaced(watched: Watch) -> None:
    watched.after(MANY)
    at = watched.at
    watched.duck.run("DELETE FROM t WHERE n IN (21, 22)")
    until = watched.lake.snapshot().id
    watched.duck.run(
        "INSERT INTO t SELECT DATE '2026-01-07', i FROM range(20) r(i)",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)",
    )
    (found,) = watched.lake.changed_tables(at, until, tables={"t": ["day"]}).tables
    assert found.rows
    assert all(at < rows.first_snapshot <= rows.last_snapshot <= until for rows in found.rows)


def test_a_past_range_that_ends_with_a_file_that_was_rewritten_later(watched: Watch) -> None:
    watched.after(MANY)
    at = watched.at
    watched.duck.run("DELETE FROM t WHERE n = 21", MANY)
    until = watched.lake.snapshot().id
    watched.duck.run("DELETE FROM t WHERE n < 50", "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.01)")
    (found,) = watched.lake.changed_tables(at, until).tables
    assert {rows.change for rows in found.rows} == {"added", "removed"}


def test_deletes_of_a_past_range_are_reported_after_later_deletes_of_the_same_file(small: DuckLake) -> None:
    small.write("t", [{"n": n} for n in range(9)], inline=False)
    small.set_option("data_inlining_row_limit", 0)
    deletes = []
    for n in (3, 5, 7):
        small.table("t").delete(f"n = {n}")
        deletes.append(small.snapshot().id)
    for at in deletes:
        (found,) = small.changed_tables(at - 1, at).tables
        assert [(rows.change, rows.snapshots) for rows in found.rows] == [("removed", (at,))]
        assert found.other_snapshots == ()
    (found,) = small.changed_tables(deletes[0] - 1, deletes[1]).tables
    assert [rows.snapshots for rows in found.rows] == [tuple(deletes[:2])]


def test_a_change_of_rows_in_files_and_in_the_catalog_is_known(small: DuckLake) -> None:
    small.write("t", [{"n": n, "m": 0} for n in range(30)], inline=False)
    small.set_option("data_inlining_row_limit", 5)
    table = small.table("t")
    table.append([{"n": 100, "m": 0}, {"n": 101, "m": 0}])
    for change in (lambda: table.delete("n < 10 OR n = 100"), lambda: table.update({"m": "1"}, where="n > 20")):
        at = small.snapshot().id
        change()
        (found,) = small.changed_tables(at).tables
        assert found.unknown is None
        assert {rows.snapshots for rows in found.rows} == {(at + 1,)}


def test_an_unreadable_change_log_counts_as_a_change(watched: Watch) -> None:
    watched.after(FEW)
    watched.duck.run("INSERT INTO t VALUES (DATE '2026-01-08', 8)")
    with watched.lake.database.write() as connection:
        connection.execute(
            text("UPDATE ducklake_snapshot_changes SET changes_made = 'a kind of \"its own' WHERE snapshot_id > :at"), {"at": watched.at}
        )
    (found,) = watched.after().values()
    assert [rows.snapshots for rows in found.rows] == [()]


def test_no_such_range(small: DuckLake) -> None:
    assert small.changed_tables(0).tables == ()
    assert small.changed_tables(77) == small.changed_tables(77, tables={"t": []})
    assert small.changed_tables(77).before is None
    with pytest.raises(NotFoundError, match="Snapshot 5 does not exist"):
        small.changed_tables(0, 5)


def test_all_tables_when_none_is_named(watched: Watch) -> None:
    watched.duck.run("CREATE SCHEMA s", "CREATE TABLE s.u AS SELECT 1 AS i", FEW)
    assert [(table.name, table.change) for table in watched.lake.changed_tables(0).tables] == [("main.t", "created"), ("s.u", "created")]


def test_names_are_read_of_changed_tables_only(small: DuckLake) -> None:
    for name in ("a", "b", "c", "d", "e"):
        small.write(name, [{"n": 1}], inline=False)
    at = small.snapshot().id
    small.write("b", [{"n": 2}], inline=False)
    small.rename_table("c", "f")
    small.drop_table("d")
    ids = small.changed_tables(at)
    assert [(table.name, table.change) for table in ids.tables] == [
        ("main.b", "changed"),
        ("main.c", "dropped"),
        ("main.d", "dropped"),
        ("main.f", "created"),
    ]
    with small.reader() as reader:
        found = changed.named_tables(reader, at, ids.until, renamed_or={small.table("b").state.id})
    assert sorted(one.name for one in found) == ["b", "c", "d", "f"]


def test_changes_are_unknown_if_the_log_of_their_commit_does_not_name_the_table(small: DuckLake) -> None:
    for name in ("a", "b"):
        small.write(name, [{"n": 1}], inline=False)
    at = small.snapshot().id
    with small.transaction() as tx:
        tx.append("a", [{"n": 2}], inline=False)
        tx.append("a", [{"n": 3}], inline=True)
    (known,) = small.changed_tables(at).tables
    assert known.unknown is None
    with small.database.write() as connection:
        log = f"inserted_into_table:{small.table('b').state.id}"
        connection.execute(
            text("UPDATE ducklake_snapshot_changes SET changes_made = :log WHERE snapshot_id = :at"), {"log": log, "at": at + 1}
        )
    for wanted in (None, {"a": ["n"], "b": ["n"]}):
        (found,) = small.changed_tables(at, tables=wanted).tables
        assert (found.name, found.unknown) == ("main.a", "a commit changed files of the table, but its log does not name the table")


def test_names_in_other_letters_and_columns_of_other_types(watched: Watch) -> None:
    watched.duck.run('CREATE TABLE "Odd.Name" ("Key" VARCHAR, "At" TIMESTAMPTZ, i BIGINT)')
    watched.duck.run("""INSERT INTO "Odd.Name" VALUES ('é''', TIMESTAMPTZ '2026-01-01 00:00:00+00', 5), (NULL, NULL, NULL)""")
    (found,) = watched.lake.changed_tables(watched.at, tables={'main."odd.NAME"': ["KEY", "at", "I", "missing"]}).tables
    ranges = {tuple((known.low, known.has_values) for known in rows.ranges) for rows in found.rows}
    assert ranges == {
        (("é'", True), (1767225600000000, True), (5, True), (None, True)),
        ((None, False), (None, False), (None, False), (None, True)),
    }


def _statements(action: Callable[[], object]) -> int:
    with noted_statements() as found:
        action()
    return len(found)


@pytest.mark.parametrize("tables", spread([1, 20], 1))
def test_the_number_of_statements_is_fixed(small: DuckLake, tables: int) -> None:
    import pyarrow as pa

    names = [f"t{number}" for number in range(tables)]
    for name in names:
        small.write(name, pa.table({"day": pa.array([date(2026, 1, 1)], pa.date32()), "n": [1]}), partition_by=["day"])
    at = small.snapshot().id

    def commit(count: int) -> None:
        for number in range(count):
            rows = pa.table({"day": pa.array([date(2026, 1, 1 + number % 28)], pa.date32()), "n": [number]})
            small.write(names[number % tables], rows, inline=number % 2 == 0)
            small.table(names[number % tables]).delete(f"n = {number} AND day = DATE '2026-01-01'")

    wanted = {name: ["day"] for name in names}
    commit(10)
    few = _statements(lambda: small.changed_tables(at, tables=wanted))
    commit(90)
    assert _statements(lambda: small.changed_tables(at, tables=wanted)) == few
    assert few <= 24
