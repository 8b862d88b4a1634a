"""Writer that uses DuckDB."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import duckdb

from tests.chaos.changes import PARTITIONS, ROW_TABLES, DuckDBChange, Insert, Term, frame, generated_rows, sql
from tests.chaos.lake import Run, duckdb_connection
from tests.chaos.ledger import Failure, Intent, Ledger, Plan, Success
from tests.chaos.library_writer import transfer_changes

EXTRA_INFO = "duckdb:"
"""Start of the extra information of DuckDB's commits; the name of the operation follows."""
_PAUSE = 0.2
_MAINTENANCE = {"flush": "ducklake_flush_inlined_data", "merge_files": "ducklake_merge_adjacent_files"}
_WEIGHTS = {"insert": 6.0, "insert_many": 2.0, "delete": 4.0, "update": 4.0, "transfer": 4.0, "flush": 1.5, "merge_files": 1.0}


def write_with_duckdb(run: Run, name: str, incarnation: int) -> None:
    """Run random statements until the run ends."""
    choose = random.Random(f"{run.seed}/{name}/{incarnation}")
    ledger = Ledger(run.folder, name)
    weights = dict(_WEIGHTS)
    if run.catalog == "sqlite":
        # When DuckDB's flush ends with "database is locked", its snapshot stays in the catalog and the files of the snapshot are deleted.
        del weights["flush"]
    connection = None
    number = 0
    while not run.ended:
        if connection is None:
            try:
                connection = duckdb_connection(run)
            except duckdb.Error:
                time.sleep(0.3)
                continue
        number += 1
        operation = f"{name}.{incarnation}.{number}"
        kind = choose.choices(list(weights), list(weights.values()))[0]
        ledger.append(Intent(operation=operation, kind=kind))
        start = time.time()
        try:
            if kind in _MAINTENANCE:
                connection.execute(f"CALL {_MAINTENANCE[kind]}('lake')")
            else:
                _change(connection, choose, ledger, operation, kind)
            ledger.append(Success(operation=operation, seconds=time.time() - start))
        except duckdb.Error as error:
            failure = Failure(
                operation=operation,
                seconds=time.time() - start,
                error=type(error).__name__,
                message=str(error)[:600],
                outcome_unknown=True,
            )
            ledger.append(failure)
            with suppress(duckdb.Error):
                connection.execute("ROLLBACK")
            if "onflict" not in str(error):
                connection.close()
                connection = None
        time.sleep(choose.random() * _PAUSE)


def _change(connection: duckdb.DuckDBPyConnection, choose: random.Random, ledger: Ledger, operation: str, kind: str) -> None:
    """Run one transaction. Append its changes and their base to the ledger before they are written."""
    connection.execute("BEGIN")
    connection.execute(f"CALL lake.set_commit_message('duckdb', 'chaos', extra_info => '{EXTRA_INFO}{operation}')")
    row = connection.execute("FROM lake.current_snapshot()").fetchone()
    assert row is not None
    base = row[0]
    table = choose.choice(ROW_TABLES)
    if kind in {"insert", "insert_many"}:
        rows = generated_rows(operation, choose.randint(1, 9) if kind == "insert" else choose.randint(50, 300))
        connection.register("new_rows", frame(rows))
        ledger.append(Plan(operation=operation, base=base, changes=[Insert(table, rows)]))
        connection.execute(f"INSERT INTO lake.{table} (uid, k, v, p, note) SELECT uid, k, v, p, note FROM new_rows")
    elif kind == "transfer":
        changes = transfer_changes(choose)
        ledger.append(Plan(operation=operation, base=base, changes=changes))
        for change in changes:
            assignments = ", ".join(f"{column} = {value}" for column, value in change.assignment.sql().items())
            connection.execute(f"UPDATE lake.{change.table} SET {assignments} WHERE {sql(change.condition)}")
    else:
        low = choose.randrange(10**6)
        by_partition = Term("p", "=", choose.randrange(PARTITIONS)), Term("k", "%", (7, choose.randrange(7)))
        condition = choose.choice((by_partition, (Term("k", ">=", low), Term("k", "<", low + 50000))))
        read = connection.execute(f"SELECT uid, v FROM lake.{table} WHERE {sql(condition)}").fetchall()
        deletes = kind == "delete"
        ledger.append(Plan(operation=operation, base=base, changes=[DuckDBChange(table, condition, read, deletes)]))
        statement = f"DELETE FROM lake.{table}" if deletes else f"UPDATE lake.{table} SET v = v + 7"
        connection.execute(f"{statement} WHERE {sql(condition)}")
    connection.execute("COMMIT")
