"""Writer that uses DuckDB."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from tests.chaos.changes import PARTITIONS, ROW_TABLES, STABLE_ROW_IDS, DuckDBChange, Insert, Term, frame, generated_rows, sql
from tests.chaos.lake import Run, duckdb_connection, remove_doubled_deletes
from tests.chaos.ledger import Failure, FlushBegan, FlushEnded, Intent, Ledger, Plan, RowIds, RowIdsAfter, RowIdsBefore, Success
from tests.chaos.library_writer import transfer_changes

EXTRA_INFO = "duckdb:"
"""Start of the extra information of DuckDB's commits; the name of the operation follows."""
_PAUSE = 0.2
_MAINTENANCE = {
    "flush": "ducklake_flush_inlined_data('lake')",
    "merge_files": "ducklake_merge_adjacent_files('lake')",
    "expire": "ducklake_expire_snapshots('lake', older_than => now())",
}
_WEIGHTS = {"insert": 6.0, "insert_many": 2.0, "delete": 4.0, "update": 4.0, "transfer": 4.0, "flush": 1.5, "merge_files": 1.0}


def write_with_duckdb(run: Run, name: str, incarnation: int) -> None:
    """Run random transactions until the run ends."""
    writer = DuckDBWriter(run, name, incarnation)
    while not run.ended:
        if not writer.connect() or not writer.end_flush():
            time.sleep(0.3)
            continue
        if writer.begin():
            writer.commit()
        time.sleep(writer.choose.random() * _PAUSE)


def end_last_flush(run: Run, name: str, incarnation: int) -> None:
    """Remove what the last flush of an ended writer doubled."""
    writer = DuckDBWriter(run, name, incarnation)
    while not writer.end_flush():
        time.sleep(0.3)


class DuckDBWriter:
    """One incarnation of a writer. It has at most one open transaction."""

    def __init__(self, run: Run, name: str, incarnation: int) -> None:
        self.run = run
        self.prefix = f"{name}.{incarnation}"
        self.choose = random.Random(f"{run.seed}/{name}/{incarnation}")
        self.ledger = Ledger(run.folder, name)
        self.weights = dict(_WEIGHTS)
        if run.catalog == "sqlite":
            # When DuckDB's flush ends with "database is locked", its snapshot stays in the catalog, and the files of the snapshot are
            # deleted.
            del self.weights["flush"]
        if not run.writers:
            self.weights["expire"] = 1.0
        self.count = 0
        self.connection: duckdb.DuckDBPyConnection | None = None
        self._operation = ""
        self._start = 0.0
        # An earlier incarnation may have been killed between a merge or flush and its note.
        self._merge: RowIdsBefore | None = None
        self._flush: FlushBegan | None = None
        for entry in self.ledger.entries():
            match entry:
                case FlushBegan():
                    self._flush = entry
                case FlushEnded():
                    self._flush = None
                case RowIdsBefore():
                    self._merge = entry
                case RowIdsAfter():
                    self._merge = None

    def connect(self) -> bool:
        """Connect unless connected. Return False if that fails."""
        if self.connection is None:
            with suppress(duckdb.Error):
                self.connection = duckdb_connection(self.run)
        return self.connection is not None

    def end_flush(self) -> bool:
        """After a flush, remove the deletes that it doubled. Return False if that fails.

        Next to writers of the library only: a run with DuckDB alone shows what DuckDB does.
        """
        if self._flush is None or not self.run.writers:
            return True
        try:
            doubled = remove_doubled_deletes(self.run)
        except (psycopg.Error, OSError):
            return False
        self.ledger.append(FlushEnded(operation=self._flush.operation, base=self._flush.base, doubled=doubled))
        self._flush = None
        return True

    def begin(self) -> bool:
        """Run a random transaction up to its COMMIT. Return False if it fails; the outcome is in the ledger then."""
        self.count += 1
        self._operation = f"{self.prefix}.{self.count}"
        kind = self.choose.choices(list(self.weights), list(self.weights.values()))[0]
        self.ledger.append(Intent(operation=self._operation, kind=kind))
        self._start = time.time()
        try:
            self._note_changed_row_ids()
            self._change(kind)
        except duckdb.Error as error:
            self._fail(error)
            return False
        return True

    def commit(self) -> None:
        """Commit, and append the outcome to the ledger."""
        assert self.connection is not None
        try:
            self.connection.execute("COMMIT")
            self._note_changed_row_ids()
        except duckdb.Error as error:
            self._fail(error)
        else:
            self.ledger.append(Success(operation=self._operation, seconds=time.time() - self._start))

    def _note_changed_row_ids(self) -> None:
        """After a merge, append the row ids that the files which it wrote give to rows that had others.

        DuckDB drops the row ids in files whose first row ids seem to follow each other.
        """
        if self._merge is None:
            return
        before = self._merge.row_ids
        files = {file for _, file in before.values()}
        changed = {
            row: row_id
            for row, (row_id, file) in self._row_ids().items()
            if row in before and row_id != before[row][0] and file not in files and _is_by_duckdb(file)
        }
        self.ledger.append(RowIdsAfter(operation=self._merge.operation, row_ids=changed))
        self._merge = None

    def _row_ids(self) -> RowIds:
        assert self.connection is not None
        return {
            (table, uid): (row_id, file)
            for table in STABLE_ROW_IDS
            for uid, row_id, file in self.connection.execute(f"SELECT uid, rowid, filename FROM lake.{table}").fetchall()
        }

    def _fail(self, error: duckdb.Error) -> None:
        failure = Failure(
            operation=self._operation,
            seconds=time.time() - self._start,
            error=type(error).__name__,
            message=str(error)[:600],
            outcome_unknown=True,
        )
        self.ledger.append(failure)
        assert self.connection is not None
        with suppress(duckdb.Error):
            self.connection.execute("ROLLBACK")
        if "onflict" not in str(error):
            self.connection.close()
            self.connection = None

    def _change(self, kind: str) -> None:
        """Begin a transaction and run its statements. Append its changes and their base to the ledger before they are written."""
        connection, choose, operation = self.connection, self.choose, self._operation
        assert connection is not None
        connection.execute("BEGIN")
        connection.execute(f"CALL lake.set_commit_message('duckdb', 'chaos', extra_info => '{EXTRA_INFO}{operation}')")
        if kind == "merge_files":
            self._merge = RowIdsBefore(operation=operation, row_ids=self._row_ids())
            self.ledger.append(self._merge)
        row = connection.execute("FROM lake.current_snapshot()").fetchone()
        assert row is not None
        base = row[0]
        if kind == "flush":
            self._flush = FlushBegan(operation=operation, base=base)
            self.ledger.append(self._flush)
        if kind in _MAINTENANCE:
            connection.execute(f"CALL {_MAINTENANCE[kind]}")
            return
        table = choose.choice(ROW_TABLES)
        if kind in {"insert", "insert_many"}:
            rows = generated_rows(operation, choose.randint(1, 9) if kind == "insert" else choose.randint(50, 300))
            connection.register("new_rows", frame(rows))
            self.ledger.append(Plan(operation=operation, base=base, changes=[Insert(table, rows)]))
            connection.execute(f"INSERT INTO lake.{table} (uid, k, v, p, note) SELECT uid, k, v, p, note FROM new_rows")
        elif kind == "transfer":
            changes = transfer_changes(choose)
            self.ledger.append(Plan(operation=operation, base=base, changes=changes))
            for change in changes:
                assignments = ", ".join(f"{column} = {value}" for column, value in change.assignment.sql().items())
                connection.execute(f"UPDATE lake.{change.table} SET {assignments} WHERE {sql(change.condition)}")
        else:
            low = choose.randrange(10**6)
            by_partition = Term("p", "=", choose.randrange(PARTITIONS)), Term("k", "%", (7, choose.randrange(7)))
            condition = choose.choice((by_partition, (Term("k", ">=", low), Term("k", "<", low + 50000))))
            read = connection.execute(f"SELECT uid, v FROM lake.{table} WHERE {sql(condition)}").fetchall()
            deletes = kind == "delete"
            self.ledger.append(Plan(operation=operation, base=base, changes=[DuckDBChange(table, condition, read, deletes)]))
            statement = f"DELETE FROM lake.{table}" if deletes else f"UPDATE lake.{table} SET v = v + 7"
            connection.execute(f"{statement} WHERE {sql(condition)}")


def _is_by_duckdb(file: str) -> bool:
    with suppress(pa.ArrowException, OSError):
        return "DuckDB" in (pq.read_metadata(file).created_by or "")
    return False
