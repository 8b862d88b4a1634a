"""Performing a history's actions on a lake, and comparing after each.

The expectation of a transaction of the library is made by DuckDB: each of its steps has SQL, which changes a temporary copy of the table
(its model). Where DuckDB works on the lake, the copy is what DuckDB reads before the transaction. Elsewhere the models of all tables are
kept. When another writer commits before the transaction does, there are two models, one for each order of the two, and the lake must show
one of them, or the other writer's change alone after a conflict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import duckdb
import pyarrow as pa

from ducklake_core import DuckLake, Transaction
from ducklake_core.errors import (
    AlreadyExistsError,
    CommitConflictError,
    DuckLakeError,
    NotFoundError,
    SchemaError,
    UnsupportedFeatureError,
    UsageError,
)
from ducklake_core.format.types.names import split_name
from ducklake_core.format.types.schema import to_arrow_schema
from tests.property.histories import second
from tests.property.histories.actions import FOLDER, Action, Change, Reattach, Restore, SecondUpkeep, Special, Sql, Step, Upkeep, script
from tests.property.histories.comparison import (
    columns_of,
    compare_listing,
    compare_table,
    differences,
    reads_twice,
    register,
    remember,
    tables_at,
)
from tests.property.histories.conditions import condition
from tests.property.histories.divergences import ReferenceBrokeError, reference_failure
from tests.property.histories.maintenance import keep_up
from tests.property.histories.operations import first_steps, next_in_transaction, next_step
from tests.property.histories.sketch import LakeSketch, TableSketch, look
from tests.support.backups import Backup
from tests.support.ducklakepy_lake import BACKENDS, compare_all, second_implementation
from tests.support.object_stores import ObjectStore
from tests.support.oracle import Attachment, LakeAddress, Oracle, attached, quoted
from tests.support.scans import Shown, counted, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["duckdb", "second", "alone"]
NOT_COMPARED = -1
LEFT_FOR_GOOD = frozenset({"orphaned-file", "foreign-file", "delete-files-of-the-past", "inlined-table-dead"})
LEFT: dict[Mode, frozenset[str]] = {
    "duckdb": LEFT_FOR_GOOD | {"table-bounds-narrow", "table-bounds-unknown", "inlined-delete-orphaned"},
    "second": frozenset({"inlined-table-dead"}),
    "alone": frozenset(),
}
"""Findings that a check may have: DuckDB leaves bounds too narrow, files of statements that failed, deletes of files that its expiry
forgets, and a second delete file in the past; other files lie next to those of the lake."""
_LAYOUT = ("set_partitioned_by", "reset_partitioned_by", "set_sorted_by", "reset_sorted_by", "set_comment")
"""Steps that change no row."""
_REJECTIONS = (SchemaError, UnsupportedFeatureError, UsageError, AlreadyExistsError, NotFoundError)


class _BrokenError(Exception):
    """An error of user code in the middle of a transaction."""


class _Memory(Attachment):
    """DuckDB with models alone: no lake is attached."""

    def connection(self) -> duckdb.DuckDBPyConnection:
        return self.own

    def give_up(self) -> None:
        """There is nothing to detach."""


Models = dict[str, str]
"""Temporary tables of DuckDB by the tables that they stand for."""


class Lake:
    """One lake on which the writers alternate.

    Args:
        address: The lake.
        options: Options with which DuckDB attaches it.
        mode: Who works on it.
        version: Its version when the library creates it.
        encrypted: Whether the library creates it encrypted.
        migrates: Whether it may migrate to the next version in the middle.
        store: Where its files are, if not in a local directory.
        session: Runs some of the maintenance.
    """

    def __init__(
        self,
        address: LakeAddress,
        options: str = "",
        *,
        mode: Mode = "duckdb",
        version: Literal["1.0", "1.1"] = "1.0",
        encrypted: bool = False,
        migrates: bool = False,
        store: ObjectStore | None = None,
        session: SparkSession | None = None,
    ) -> None:
        self.address, self.options, self.mode, self.version = address, options, mode, version
        self.encrypted, self.migrates, self.store, self.session = encrypted, migrates, store, session
        self.done: list[Action] = []
        self.outcomes: Counter[tuple[str, bool]] = Counter()
        self.rejections: Counter[str] = Counter()
        self.in_transaction = False
        self.draw = Random(7)
        self.has_buckets = False
        self.left = LEFT[mode]
        self.models: Models = {}
        self.past: Shown = {}
        self.library_reads: Shown = {}
        self.saved: tuple[Callable[[], None], Models, Shown] | None = None
        self._numbers = count()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self.mode == "duckdb":
            self._attach()
            self.library = self._connect()
            return self
        connection = duckdb.connect(config={"threads": 1})
        connection.execute("SET TimeZone = 'UTC'")
        self._stack.callback(connection.close)
        self.duck = Oracle(_Memory(connection, ""), self.address)
        self.library = DuckLake.create(
            self.address.url,
            data_path=self.address.data_path,
            version=self.version,
            encrypted=self.encrypted,
            storage_options=self._storage,
        )
        if self.mode == "second":
            self.library.set_option("data_inlining_row_limit", self.draw.choice((0, 5, 10)))
            self.library.set_option("write_deletion_vectors", self.draw.random() < 0.5)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            error.add_note(f"the history, for tests.property.histories.play.replay: {script(self.done)}")
        if self.in_transaction:
            self.duck.connection.execute("ROLLBACK")
        self.library.close()
        self._leave()

    @property
    def _storage(self) -> Any:
        return None if self.store is None else self.store.options

    def _connect(self) -> DuckLake:
        return DuckLake.connect(self.address.url, storage_options=self._storage)

    def _attach(self) -> None:
        before = None if self.store is None else self.store.know
        self.duck: Oracle = self._stack.enter_context(attached(self.address, self.options, before=before))

    def _leave(self) -> None:
        # A connection that an error has broken must not hide the error.
        with suppress(duckdb.Error):
            for (name,) in self.duck.rows("SELECT table_name FROM duckdb_tables() WHERE database_name = 'temp'"):
                self.duck.connection.execute(f"DROP TABLE temp.main.{quoted(str(name))}")
            self._stack.close()

    def go_alone(self, version: Literal["1.0", "1.1"]) -> None:
        """DuckDB, which does not know the version, leaves for good, and the lake is migrated."""
        self.models = {table.sql: self._copied(table.sql) for table in self.sketch().tables}
        self.past, known = shown(self.library), {finding.code for finding in self.library.check(level="rows").findings}
        own = self.duck.attached.own
        self.duck.attached.give_up()
        self.duck = Oracle(_Memory(own, ""), self.address)
        self.mode, self.left = "alone", frozenset(known | {"inlined-table-dead"})
        self._migrate(version)

    def sketch(self) -> LakeSketch:
        """The lake as it is now, within DuckDB's open transaction."""
        if self.mode == "duckdb":
            return look(self.duck)
        key = "a" if self.mode == "second" else None
        tables = []
        for name, relation in self.models.items():
            schema, table = split_name(name)
            tables.append(TableSketch(schema, table, tuple(columns_of(self.duck, relation)), written=name, key=key))
        return LakeSketch(tables=tuple(tables), schemas=("main",), views=())

    def named(self, name: str) -> TableSketch:
        return next(table for table in self.sketch().tables if table.sql == name)

    def altered(self, table: TableSketch, step: Step) -> TableSketch:
        """The table with the columns that a step leaves."""
        if not step.call.endswith(("_column", "_column_type")) and step.arguments.get("schema_evolution") is None:
            return table
        relation = self._named()
        columns = ", ".join(f"{column.sql} {column.type}" for column in table.columns)
        self.duck.connection.execute(f"CREATE TEMP TABLE {relation} ({columns})")
        try:
            self.duck.connection.execute(step.statements(relation)[0])
        except duckdb.Error:
            return table
        return replace(table, columns=tuple(columns_of(self.duck, relation)))

    def perform(self, action: Action) -> bool:
        """Do it; False when it was rejected, which is no matter."""
        self.done.append(action)
        self.has_buckets |= "bucket(" in repr(action)
        match action:
            case Sql(text=text):
                if "added_" in text and (self.store is not None or "ENCRYPTED" in self.options):
                    # DuckDB adds plain files to an encrypted lake, and reads the table never again.
                    return False
                done = self._run(text.replace(FOLDER, str(Path(self.address.data_path).parent)))
                self.outcomes[" ".join(text.split()[:2]).split("(")[0], done] += 1
                return done
            case _ if self.in_transaction:
                return True
            case Reattach(library=library):
                if self.mode == "duckdb":
                    self._leave()
                    self._attach()
                if library:
                    self.library.close()
                    self.library = self._connect()
            case Change(by=by, steps=steps):
                done = self._commit(action) if by == "library" else self._by_second(steps)
                self.outcomes[f"{by}: {', '.join(step.call for step in steps)}", done] += 1
                return done
            case Restore():
                self._restore(action)
            case Upkeep(operation=operation):
                if operation not in ("merge_adjacent_files", "rewrite_data_files", "flush_inlined_data"):
                    self.saved = None
                keep_up(self, action)
            case SecondUpkeep(operation=operation):
                self.library_reads = {}
                if operation == "expire":
                    self.saved = None
                with second_implementation(self.address) as catalog:
                    second.maintain(catalog, action, list(self.models))
            case Special(what=what):
                {"save": self._save, "put back": self._put_back, "migrate": self._migrate}[what]()
        return True

    # DuckDB

    def _run(self, statement: str) -> bool:
        if statement.startswith(("CALL ducklake_", "CHECKPOINT")):
            self.library_reads = {}
            if not statement.startswith(("CALL ducklake_merge", "CALL ducklake_rewrite", "CALL ducklake_flush")):
                self.saved = None
        try:
            self.duck.run(statement)
        except duckdb.Error as error:
            self.rejections[f"{statement[:80]}: {str(error)[:150]}"] += 1
            reference_failure(error, statement)
            # Some errors leave a transaction open that no statement began.
            with suppress(duckdb.TransactionException):
                self.duck.connection.execute("ROLLBACK")
            self.in_transaction = False
            return False
        self.in_transaction = {"BEGIN": True, "COMMIT": False, "ROLLBACK": False}.get(statement, self.in_transaction)
        return True

    # Models

    def _named(self) -> str:
        return f"model_{next(self._numbers)}"

    def _copied(self, table: str) -> str:
        """A model of a table as it is now, with its defaults and constraints."""
        relation, source = self._named(), self.models.get(table, table)
        self.duck.connection.execute(f"CREATE TEMP TABLE {relation} AS FROM {source}")
        index = ("temp", "main", source) if table in self.models else ("lake", *_parts(table))
        for name, default, nullable in self.duck.rows(
            "SELECT column_name, column_default, is_nullable FROM duckdb_columns() "
            "WHERE (database_name, schema_name, table_name) = (?, ?, ?)",
            index,
        ):
            start = f"ALTER TABLE {relation} ALTER {quoted(str(name))}"
            if default not in (None, "NULL"):
                self.duck.connection.execute(f"{start} SET DEFAULT {default}")
            if not nullable:
                self.duck.connection.execute(f"{start} SET NOT NULL")
        return relation

    def _refilled(self, table: str, rows: pa.Table) -> str:
        """A model of a table with other rows."""
        model = self._copied(table)
        register(self.duck, "rows", rows)
        self.duck.connection.execute(f"DELETE FROM {model}")
        cells = ", ".join(f"CAST({column.sql} AS {column.type})" for column in columns_of(self.duck, model))
        self.duck.connection.execute(f'INSERT INTO {model} SELECT {cells} FROM "rows"')
        return model

    def changed_meanwhile(self, table: str) -> None:
        """Take over what a transaction next to maintenance has made of a table, which was compared."""
        for name in self.models:
            if split_name(name) == split_name(table):
                self.models[name] = self._refilled(name, self.library.table(name).scan().to_arrow())

    def _apply(self, step: Step, models: Models, rows: str) -> None:
        """Make a step's change to the model of its table."""
        if step.call == "create_table":
            models[step.table] = self._named()
        relation = models[step.table]
        if step.call == "swap":
            # Out of sight of what else is done to the name.
            models[step.arguments["path"]], models[step.table] = relation, (relation := self._named())
            self.duck.connection.execute(step.statements(relation)[1].replace("CREATE", "CREATE TEMP"))
        elif step.call not in _LAYOUT:
            for statement in step.statements(relation, rows):
                self.duck.connection.execute(statement.replace("CREATE", "CREATE TEMP", 1))

    def _present(self, table: str) -> str:
        """A relation of DuckDB with the rows that the lake shows now."""
        if self.mode == "duckdb":
            return f"(FROM {table})"
        register(self.duck, "present", self.library.table(table).scan().to_arrow())
        return "present"

    def _differences(self, found: str, wanted: str) -> list[tuple[object, ...]]:
        # Doubles of inlined rows lose the sign of zero in tables that the second implementation makes in SQLite.
        return differences(self.duck, found, wanted, signed_zeros=self.mode != "second")

    # Transactions of the library

    def _commit(self, change: Change) -> bool:
        """Commit a transaction, and compare with each outcome that it may have."""
        tables = list(dict.fromkeys(step.table for step in change.steps if step.call != "create_table"))
        created = {step.table for step in change.steps if step.call == "create_table"}
        tables = [table for table in tables if table not in created]
        try:
            outcomes: list[Models] = [{table: self._copied(table) for table in tables} for _ in range(3 if change.meanwhile else 2)]
        except duckdb.Error as error:
            reference_failure(error, repr(change))
            return False
        mine, before = outcomes[:2]
        made: list[tuple[Step, str]] = []
        possible: list[Models] = [mine]
        try:
            with self.library.transaction() as tx:
                for step in change.steps:
                    rows = self._make(tx, step, mine, reads=change.reads)
                    if rows is not None:
                        made.append((step, rows))
                if change.meanwhile:
                    possible = self._meanwhile(change.meanwhile, made, outcomes)
                if change.breaks:
                    raise _BrokenError
        except _BrokenError:
            possible = [before]
        except CommitConflictError:
            if not change.meanwhile or {step.call for step in (*change.steps, *change.meanwhile)} == {"append"}:
                raise
            possible = [before]
        self._match(possible, change)
        if change.meanwhile and change.meanwhile[0].call == "swap":
            self._drop(change.meanwhile[0].arguments["path"])
        if self.draw.random() < 0.3:
            self.check()
        return bool(made)

    def _make(self, tx: Transaction, step: Step, models: Models, *, reads: bool) -> str | None:
        """Make one step in the transaction and on its model; the relation with its rows, or None when it was rejected."""
        incoming = f"incoming_{next(self._numbers)}"
        remember(self.duck, incoming, step.rows or "SELECT 1 AS nothing")
        rows = self._rows(tx, step, incoming) if step.rows else None
        try:
            _call(tx, step, rows, lambda sql, kind: self._value(sql, kind or self._type_of(step, models)))
        except _REJECTIONS as error:
            self.rejections[f"our {step.call}: {type(error).__name__} {str(error)[:150]}"] += 1
            if step.call == "set_not_null" and "NULL" in str(error):
                column = quoted(step.arguments["column"][0])
                assert self.duck.value(f"SELECT count(*) FROM {models[step.table]} WHERE {column} IS NULL"), error
            return None
        self._apply(step, models, incoming)
        if reads:
            seen, relation = tx.table(step.table), models[step.table]
            register(self.duck, "seen", seen.scan().to_arrow())
            assert self._differences("seen", relation) == [], f"rows in the transaction after {step.call}"
            assert seen.scan().count() == self.duck.value(f"SELECT count(*) FROM {relation}")
        return incoming

    def _rows(self, tx: Transaction, step: Step, incoming: str) -> pa.Table:
        rows = self.duck.arrow(f"FROM {incoming}")
        schema = to_arrow_schema(tx.table(step.table).schema)
        try:
            return rows.cast(pa.schema([schema.field(name) for name in rows.column_names]))
        except (KeyError, ValueError, pa.ArrowNotImplementedError):
            # A column more, NULLs for a column without, or a type that has no cast: the transaction decides.
            return rows

    def _value(self, sql: str, data_type: str) -> object:
        return self.duck.value(f"SELECT CAST({sql} AS {data_type})")

    def _type_of(self, step: Step, models: Models) -> str:
        return next(str(c.type) for c in columns_of(self.duck, models[step.table]) if c.name == step.arguments["column"][0])

    def _meanwhile(self, steps: Sequence[Step], made: list[tuple[Step, str]], outcomes: list[Models]) -> list[Models]:
        """Let the other writer commit; gives what the lake may show when the transaction is committed."""
        mine, before, after = outcomes
        possible = [mine, after]
        for step in steps:
            incoming = f"incoming_{next(self._numbers)}"
            remember(self.duck, incoming, step.rows or "SELECT 1 AS nothing")
            if self.mode == "duckdb":
                statements = step.statements(rows=f"(FROM temp.main.{incoming})")
                done = not [statement for statement in statements if not self._run(statement)]
            else:
                done = self._second_step(step, incoming)
            if not done:
                return [mine]
            for models in (mine, before, after):
                with suppress(KeyError, duckdb.Error):
                    self._apply(step, models, incoming)
            if step.call == "swap":
                return [before]
        try:
            for step, rows in made:
                self._apply(step, after, rows)
        except duckdb.Error:
            possible.remove(after)
        return possible

    def _match(self, possible: list[Models], change: Change) -> None:
        """One of the outcomes is what the lake shows."""
        found: list[object] = []
        for models in possible:
            found = [(table, diff) for table, relation in models.items() if (diff := self._differences(self._present(table), relation))]
            if not found:
                if self.mode != "duckdb":
                    self.models |= models
                return
        raise AssertionError(f"rows after {change}: {found}")

    def _drop(self, table: str) -> None:
        """The other writer drops a table whose name it has given away."""
        self.models.pop(table, None)
        if self.mode == "duckdb":
            self._run(f"DROP TABLE {table}")
        else:
            with second_implementation(self.address) as catalog:
                catalog.drop_table(table)

    # The second implementation

    def _by_second(self, steps: Sequence[Step]) -> bool:
        for step in steps:
            incoming = f"incoming_{next(self._numbers)}"
            remember(self.duck, incoming, step.rows or "SELECT 1 AS nothing")
            models = {step.table: self._copied(step.table)}
            if not self._second_step(step, incoming):
                return False
            self._apply(step, models, incoming)
            self._match([models], Change(tuple(steps), by="second"))
        return True

    def _second_step(self, step: Step, incoming: str) -> bool:
        rows = self.duck.arrow(f"FROM {incoming}") if step.rows else None
        types = {column.name: str(column.type) for table in self.sketch().tables if table.sql == step.table for column in table.columns}
        values = {name: self._value(sql, types[name]) for name, sql in step.arguments.get("values", {}).items()}
        new = step.arguments.get("new_name", "").lower()
        if new in {name.lower() for name in types}:
            return False
        with second_implementation(self.address) as catalog:
            second.commit(catalog, step, rows, values)
        return True

    def _migrate(self, version: Literal["1.0", "1.1"] = "1.1") -> None:
        before = shown(self.library)
        if self.address.backend not in BACKENDS or self.draw.random() < 0.5:
            self.library.migrate(version)
        else:
            with second_implementation(self.address, migrate=True):
                pass
        self.library.close()
        self.library = self._connect()
        self.saved = None
        assert self.library.info.version == version
        assert shown(self.library) == before

    # What else happens to a lake

    def can_restore(self, table: str, snapshot: int) -> bool:
        """Return True where the table had its present columns at a snapshot."""
        try:
            then, now = self.library.table(table, at=snapshot), self.library.table(table)
        except DuckLakeError:
            return False
        return (then.schema, then.state.id) == (now.schema, now.state.id)

    def _restore(self, action: Restore) -> None:
        if action.snapshot not in {snapshot.id for snapshot in self.library.snapshots()} or not self.can_restore(
            action.table, action.snapshot
        ):
            return
        model = self._refilled(action.table, self.library.table(action.table, at=action.snapshot).scan().to_arrow())
        try:
            self.library.table(action.table).restore(action.snapshot)
        except _REJECTIONS as error:
            self.rejections[f"our restore: {str(error)[:150]}"] += 1
            return
        self._match([{action.table: model}], Change((Step(action.table, "restore", (), {"at": action.snapshot}),)))

    def _save(self) -> None:
        self.duck.attached.give_up()
        self.saved = Backup(address=self.address).restore, dict(self.models), dict(self.past)

    def _put_back(self) -> None:
        """Put the saved catalog back: later commits are lost and their ids reused; the library keeps its object."""
        if self.saved is None:
            return
        restore, models, past = self.saved
        self.duck.attached.give_up()
        restore()
        self.models, self.past, self.library_reads = dict(models), dict(past), {}
        self.left |= {"orphaned-file"}

    # Comparisons

    def check(self) -> None:
        """Assert that a check of all rows finds only the known faults of other writers."""
        found = self.library.check(level="rows")
        assert set(found.by_code) <= self.left, str(found)
        # DuckDB leaves out files without a bucket.
        if self.mode == "duckdb" and not found.by_code and not self.has_buckets:
            for table in look(self.duck).tables:
                self._guarded(lambda table=table: self._filter_by_duckdb(table), f"{table.sql} filtered by DuckDB")

    def _filter_by_duckdb(self, table: TableSketch) -> None:
        """DuckDB prunes files by what the library has written about them, and loses no row by it."""
        where = condition(self.draw, table)
        remember(self.duck, "unfiltered", f"FROM {table.sql}")
        counts = [self.duck.value(f"SELECT count(*) FROM {source} WHERE {where}") for source in (table.sql, "temp.main.unfiltered")]
        assert counts[0] == counts[1], f"rows WHERE {where}"

    def compare_newest(self, draw: Random, conditions: int) -> None:
        """Every table as it is now, and one of them at an earlier snapshot, by id or by time."""
        if self.mode != "duckdb":
            self._compare_models(draw)
            return
        for table in look(self.duck).tables:
            self._compare(table, None, draw, conditions)
        past = draw.choice(self.library.snapshots())
        tables = tables_at(self.duck, past.id)
        if tables:
            at = past.id if draw.random() < 0.7 else past.time
            self._compare(draw.choice(tables), at, draw, conditions)

    def _compare_models(self, draw: Random) -> None:
        newest, ids = self.library.snapshot().id, {snapshot.id for snapshot in self.library.snapshots()}
        for table, relation in self.models.items():
            opened = self.library.table(table)
            rows = opened.scan(columns=[*opened.schema.names, "rowid"]).to_arrow()
            self.past[newest, table] = counted(rows)
            assert len(set(rows["rowid"].to_pylist())) == len(rows), f"row ids of {table}"
            register(self.duck, "present", rows.drop_columns(["rowid"]))
            assert self._differences("present", relation) == [], f"rows of {table}"
            assert opened.scan().count() == len(rows), f"count of {table}"
            if self.mode == "second":
                with second_implementation(self.address) as catalog:
                    register(self.duck, "by_second", catalog.load_table(table).to_arrow())
                assert self._differences("by_second", relation) == [], f"rows of {table} of the second implementation"
        self.past = {key: rows for key, rows in self.past.items() if key[0] in ids}
        if self.past:
            number, table = draw.choice(sorted(self.past))
            opened = self.library.table(table, at=number)
            rows = opened.scan(columns=[*opened.schema.names, "rowid"]).to_arrow()
            assert counted(rows) == self.past[number, table], f"rows of {table} at {number}"

    def compare_everything(self, draw: Random) -> None:
        """Every table at every snapshot that is left, and the lists."""
        if self.mode != "duckdb":
            after = shown(self.library)
            for (number, table), rows in self.past.items():
                assert after.get((number, table), rows) == rows, f"rows of {table} at {number}"
            compared, rejected = compare_all(self.library, self.address) if not self.encrypted else (1, {})
            assert compared
            assert self.mode == "alone" or not rejected, rejected
            self.check()
            return
        self._guarded(lambda: compare_listing(self.duck, self.library), "lists")
        for snapshot in self.library.snapshots():
            for table in tables_at(self.duck, snapshot.id):
                self._compare(table, snapshot.id, draw, 1)
        self.check()
        # A column that comes later shows its default, whatever ids were used in between.
        for table in look(self.duck).tables:
            if self._run(f"ALTER TABLE {table.sql} ADD COLUMN later INTEGER DEFAULT 77"):
                wanted = self.duck.value(f"SELECT count(*) FROM {table.sql} WHERE later = 77")
                found = self.library.table(table.sql).scan(columns=["later"]).to_arrow()["later"].to_pylist()
                assert found == [77] * int(str(wanted)), f"a later column of {table.sql}"

    def check_after_repair(self) -> None:
        """Assert that a repair leaves only findings that cannot be repaired."""
        self.library.check(level="rows", repair=True)
        assert set(self.library.check(level="rows").by_code) <= LEFT_FOR_GOOD | {"inlined-delete-orphaned"}

    def _compare(self, table: TableSketch, at: Any, draw: Random, conditions: int) -> None:
        if at is None or not reads_twice(self.duck, at):
            self._guarded(lambda: compare_table(self.duck, self.library, table, at, draw, conditions), f"{table.sql} at {at}")

    def _guarded(self, compare: Any, what: str) -> None:
        try:
            compare()
        except duckdb.Error as error:
            reference_failure(error, what, reading=True)
            self.rejections[f"read: {str(error)[:150]}"] += 1
        except Exception as error:
            error.add_note(what)
            raise


def _parts(table: str) -> tuple[str, str]:
    schema, name = split_name(table)
    return schema.strip('"').replace('""', '"'), name


def _call(tx: Transaction, step: Step, rows: pa.Table | None, value: Callable[[str, str], object]) -> None:
    """Make a step in a transaction of the library."""
    arguments = dict(step.arguments)
    for name in ("default", "value"):
        if name in arguments:
            arguments[name] = value(arguments[name], arguments.get("data_type", ""))
    if step.call == "merge":
        merge = tx.merge(step.table, rows, on=arguments["on"])
        merge = merge.when_matched_update("all") if arguments["matched"] == "UPDATE" else merge.when_matched_delete()
        merge.when_not_matched_insert("all").execute()
    else:
        getattr(tx, step.call)(step.table, *([] if rows is None else [rows]), **arguments)


def live(lake: Lake, seeds: Sequence[int], conditions: int = 1) -> None:
    """A random history, one step a seed (so that a part of the seeds is a history too), compared after each."""
    try:
        for action in first_steps(Random(len(seeds) and seeds[0]), lake.mode):
            lake.perform(action)
        go_on(lake, seeds, conditions)
        end(lake, compare=conditions != NOT_COMPARED)
    except ReferenceBrokeError as broke:
        lake.rejections[f"DuckDB broke: {broke}"] += 1


def go_on(lake: Lake, seeds: Sequence[int], conditions: int = 1) -> None:
    """More steps of a history."""
    for seed in seeds:
        draw = Random(seed)
        for action in next_in_transaction(draw, lake) if lake.in_transaction else next_step(draw, lake):
            lake.perform(action)
        if lake.in_transaction and draw.random() < 0.35:
            lake.perform(Sql(draw.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))))
        if not lake.in_transaction and conditions != NOT_COMPARED:
            lake.compare_newest(draw, conditions)


def replay(lake: Lake, actions: Iterable[Action], conditions: int = 2, *, each: bool = True) -> None:
    """Given actions, compared after each (or at the end only)."""
    try:
        for action in actions:
            lake.perform(action)
            if each and not lake.in_transaction:
                lake.compare_newest(lake.draw, conditions)
        end(lake)
    except ReferenceBrokeError:
        return


def end(lake: Lake, *, compare: bool = True) -> None:
    """Compare everything once more with caches empty, and after a repair."""
    if lake.in_transaction:
        lake.perform(Sql("COMMIT"))
    lake.perform(Reattach(library=True))
    if compare:
        lake.compare_everything(Random(len(lake.done)))
        lake.check_after_repair()
