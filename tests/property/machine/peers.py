"""Who else works on the lake of the machine: DuckDB where it knows the version, else the second implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

import duckdb
import pyarrow as pa
from ducklakepy.expressions import col
from ducklakepy.schema import Column, Schema
from ducklakepy.types import parse_primitive_type
from hypothesis import note

from tests.property.machine.changes import Append, ByKey, Change, Define, Replace, statements
from tests.property.machine.model import Row, TableModel, frame
from tests.support.ducklakepy_lake import second_implementation
from tests.support.oracle import READS, LakeAddress, Oracle, attached

if TYPE_CHECKING:
    from ducklakepy import DuckLakeCatalog

Rows = list[tuple[object, ...]]
UPKEEP = ("flush_inlined_data", "merge_adjacent_files", "rewrite_data_files")


class Peer(Protocol):
    """Another writer, and a second reader."""

    def commit(self, change: Change, name: str, table: TableModel, *, in_parts: bool = False) -> None:
        """Make a change in one transaction, or in as many as it has parts."""

    def maintain(self, verb: str, can_be_flushed: Callable[[], bool]) -> None:
        """Carry out a verb of maintenance on the whole lake."""

    def swap(self, name: str, old: str, *, in_parts: bool) -> None:
        """Give the name of a table to a new one with the columns k and v."""

    def drop(self, name: str) -> None:
        """Drop a table."""

    def rows(self, name: str, at: int | None = None) -> Rows:
        """The rows of a table at a snapshot, sorted."""

    def row_ids(self, name: str) -> Rows | None:
        """Row ids with k, sorted; None when it does not tell."""

    def reads_alike(self, snapshot: int) -> bool:
        """Whether it is right about a snapshot."""

    def forget(self) -> None:
        """Let go of the catalog, which somebody is about to replace."""


def peer(address: LakeAddress, version: str) -> AbstractContextManager[Peer]:
    """DuckDB as soon as its extension reads the version."""
    return _duckdb(address) if version in READS else _second(address)


@contextmanager
def _duckdb(address: LakeAddress) -> Iterator[Peer]:
    with attached(address) as duck:
        yield DuckDBPeer(duck)


@contextmanager
def _second(address: LakeAddress) -> Iterator[Peer]:
    yield SecondPeer(address)


def _sorted(rows: Sequence[tuple[object, ...]]) -> Rows:
    return sorted(rows, key=repr)


class DuckDBPeer:
    """DuckDB with its extension."""

    def __init__(self, duck: Oracle) -> None:
        self.duck = duck

    def commit(self, change: Change, name: str, table: TableModel, *, in_parts: bool = False) -> None:
        texts = statements(change, name, table)
        note(f"DuckDB: {texts}")
        self.duck.run(*(texts if in_parts else ["BEGIN", *texts, "COMMIT"]))

    def maintain(self, verb: str, can_be_flushed: Callable[[], bool]) -> None:
        try:
            self.duck.run(f"CALL ducklake_{verb}('lake')")
        except duckdb.TransactionException as error:
            # DuckDB cannot rewrite files while rows are inlined that lack a column of today (docs/reference/differences.md).
            if "inlined-data aggregates" not in str(error):
                raise
            if can_be_flushed():
                note("it had to be flushed first")
                self.duck.run("CALL ducklake_flush_inlined_data('lake')", f"CALL ducklake_{verb}('lake')")

    def swap(self, name: str, old: str, *, in_parts: bool) -> None:
        texts = [f"ALTER TABLE {name} RENAME TO {old}", f"CREATE TABLE {name} (k BIGINT, v VARCHAR)"]
        self.duck.run(*(texts if in_parts else ["BEGIN", *texts, "COMMIT"]))

    def drop(self, name: str) -> None:
        self.duck.run(f"DROP TABLE {name}")

    def rows(self, name: str, at: int | None = None) -> Rows:
        return _sorted(self.duck.rows(f"SELECT * FROM {name}{'' if at is None else f' AT (VERSION => {at})'}"))

    def row_ids(self, name: str) -> Rows | None:
        return self.duck.rows(f"SELECT rowid, k FROM {name} ORDER BY rowid")

    def reads_alike(self, snapshot: int) -> bool:
        """A flush of DuckDB may leave a data file two delete files in the past: it then reads its rows twice."""
        live = f"begin_snapshot <= {snapshot} AND (end_snapshot IS NULL OR end_snapshot > {snapshot})"
        files = f"SELECT data_file_id FROM __ducklake_metadata_lake.ducklake_delete_file WHERE {live}"
        return not self.duck.value(f"SELECT count(*) FROM ({files} GROUP BY data_file_id HAVING count(*) > 1)")

    def forget(self) -> None:
        self.duck.attached.give_up()


class SecondPeer:
    """ducklakepy, which opens the lake for each thing that it does and commits every part by itself."""

    def __init__(self, address: LakeAddress) -> None:
        self.address = address

    def commit(self, change: Change, name: str, table: TableModel, *, in_parts: bool = False) -> None:
        note(f"the second implementation: {change}")
        with second_implementation(self.address) as catalog:
            self._commit(catalog, change, name, table)

    def _commit(self, catalog: DuckLakeCatalog, change: Change, name: str, table: TableModel) -> None:
        there = catalog.load_table(f"main.{name}")
        match change:
            case Append(rows=rows):
                self._append(catalog, name, rows, table)
            case Replace(how="update", low=low, high=high):
                # It sets constants: the longest text first, so that none is changed twice.
                for v in sorted({v for k, v, _ in table.rows if v is not None and low <= k < high}, key=len, reverse=True):
                    catalog.load_table(f"main.{name}").update((col("k") >= low) & (col("k") < high) & (col("v") == v), {"v": v + "!"})
            case Replace(low=low, high=high, rows=rows):
                there.delete((col("k") >= low) & (col("k") < high))
                self._append(catalog, name, rows, table)
            case ByKey(how="upsert", rows=rows):
                there.delete(col("k").isin([k for k, _, _ in rows]))
                self._append(catalog, name, rows, table)
            case ByKey(rows=rows):
                known = {k for k, _, _ in table.rows}
                for k, v, _ in rows:
                    if k in known:
                        catalog.load_table(f"main.{name}").update(col("k") == k, {"v": v})
                self._append(catalog, name, [row for row in rows if row[0] not in known], table)
            case Define(what="add n"):
                with there.update_schema() as form:
                    form.add_column("n", parse_primitive_type("int32"), default=7)
            case Define(what="drop n"):
                with there.update_schema() as form:
                    form.drop_column("n")
            case Define(what="partition"):
                there.set_partitioning("v")
            case Define():
                there.reset_partitioning()

    def _append(self, catalog: DuckLakeCatalog, name: str, rows: Sequence[Row], table: TableModel) -> None:
        if rows:
            plain = frame(rows)
            whole = plain.append_column("n", pa.array([7] * len(rows), pa.int32())) if table.has_n else plain
            catalog.load_table(f"main.{name}").append(whole)

    def maintain(self, verb: str, can_be_flushed: Callable[[], bool]) -> None:
        with second_implementation(self.address) as catalog:
            if verb == "flush_inlined_data":
                for name in catalog.list_tables("main"):
                    catalog.flush_inlined_data(name)
            else:
                getattr(catalog, verb)()

    def swap(self, name: str, old: str, *, in_parts: bool) -> None:
        with second_implementation(self.address) as catalog:
            catalog.load_table(f"main.{name}").rename(old)
            columns = [Column(name=c, field_type=parse_primitive_type(kind)) for c, kind in (("k", "int64"), ("v", "varchar"))]
            catalog.create_table(f"main.{name}", schema=Schema(*columns))

    def drop(self, name: str) -> None:
        with second_implementation(self.address) as catalog:
            catalog.drop_table(f"main.{name}")

    def rows(self, name: str, at: int | None = None) -> Rows:
        with second_implementation(self.address) as catalog:
            snapshot = {} if at is None else {"snapshot": catalog.snapshot_by_id(at)}
            found = catalog.load_table(f"main.{name}", **snapshot).to_arrow()
        return _sorted([tuple(row.values()) for row in found.to_pylist()])

    def row_ids(self, name: str) -> Rows | None:
        return None

    def reads_alike(self, snapshot: int) -> bool:
        return True

    def forget(self) -> None:
        """It holds nothing between two things that it does."""
