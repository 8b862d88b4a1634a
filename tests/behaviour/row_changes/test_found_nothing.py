"""Calls of a transaction that find nothing to do are planned again after other commits, like those that find rows.

One rule is tested for every operation and every concurrent change: the block has the same result as when it is run
after the other change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.errors import CommitConflictError
from ducklake_core.merge_builder import Merge
from ducklake_core.transaction import Transaction
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import new_address, slow, spread

Operation = Callable[[Transaction, str, int], object]
Change = Callable[[DuckLake, LakeAddress, str], object]

COLUMNS = pa.schema([("i", pa.int64()), ("v", pa.int64())])
NO_ROWS = COLUMNS.empty_table()


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.table({"i": [i for i, _ in pairs], "v": [v for _, v in pairs]}, schema=COLUMNS)


def merge(tx: Transaction, name: str, *pairs: tuple[int, int]) -> Merge[None]:
    return tx.merge(name, rows(*pairs), on=["i"])


def by_duckdb(address: LakeAddress, *statements: str) -> None:
    with attached(address) as duck:
        duck.run(*statements)


OPERATIONS: dict[str, Operation] = {
    "delete": lambda tx, name, _: tx.delete(name, "i = 7"),
    "delete all": lambda tx, name, _: tx.delete(name, None),
    "update": lambda tx, name, _: tx.update(name, {"v": "v + 100"}, where="i = 7"),
    "merge, matched update": lambda tx, name, _: merge(tx, name, (7, 700)).when_matched_update({"v": "s.v"}).execute(),
    "merge, matched delete": lambda tx, name, _: merge(tx, name, (7, 700)).when_matched_delete().execute(),
    "merge, by source": lambda tx, name, _: merge(tx, name, (1, 0)).when_not_matched_by_source_update({"v": -1}, where="t.i = 7").execute(),
    "merge, insert": lambda tx, name, _: (
        merge(tx, name, (1, 10), (7, 70)).when_matched_update({"v": "s.v"}, where="t.v < 0").when_not_matched_insert("all").execute()
    ),
    "overwrite where": lambda tx, name, _: tx.overwrite(name, NO_ROWS, where="i = 7", concurrent_appends="replace"),
    "overwrite partition": lambda tx, name, _: tx.overwrite(name, NO_ROWS, partitions=[{"i": 7}], concurrent_appends="replace"),
    "overwrite all": lambda tx, name, _: tx.overwrite(name, NO_ROWS, concurrent_appends="replace"),
    "upsert": lambda tx, name, _: tx.upsert(name, rows((7, 700)), on=["i"]),
    "restore": lambda tx, name, start: tx.restore(name, at=start),
    "delete, then append": lambda tx, name, _: (tx.delete(name, "i = 7"), tx.append(name, rows((8, 8)))),
    "append, then delete": lambda tx, name, _: (tx.append(name, rows((7, 77))), tx.delete(name, "i = 7")),
}
CHANGES: dict[str, Change] = {
    "append few": lambda lake, _, name: lake.table(name).append(rows((7, 7)), inline=True),
    "update": lambda lake, _, name: lake.table(name).update({"i": 7}, where="i = 3"),
    "delete": lambda lake, _, name: lake.table(name).delete("i = 1"),
}
MORE_CHANGES: dict[str, Change] = {
    "nothing": lambda *_: None,
    "append": lambda lake, _, name: lake.table(name).append(rows((7, 7)), inline=False),
    "delete few": lambda lake, _, name: lake.table(name).delete("i = 4"),
    "append other rows": lambda lake, _, name: lake.table(name).append(rows((9, 9))),
    "overwrite": lambda lake, _, name: lake.table(name).overwrite(rows((7, 7))),
    "upsert": lambda lake, _, name: lake.table(name).upsert(rows((7, 7)), on=["i"]),
    "merge files": lambda lake, _, name: lake.merge_adjacent_files(name),
    "twice": lambda lake, _, name: [lake.table(name).append(rows((7, v))) for v in (7, 8)],
    "insert by DuckDB": lambda _, address, name: by_duckdb(address, f'INSERT INTO "{name}" VALUES (7, 7)'),
    "update by DuckDB": lambda _, address, name: by_duckdb(address, f'UPDATE "{name}" SET i = 7 WHERE i >= 3'),
    "flush by DuckDB": lambda _, address, name: by_duckdb(address, f"CALL ducklake_flush_inlined_data('lake', table_name => '{name}')"),
}
DEFINITIONS: dict[str, Change] = {
    "drop": lambda lake, _, name: lake.drop_table(name),
    "add column": lambda lake, _, name: lake.table(name).add_column("w", "int64", default=7),
}


@pytest.fixture(params=["sqlite", slow("postgresql")])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> LakeAddress:
    return new_address(request, request.param, tmp_path)


@pytest.fixture
def lake(address: LakeAddress) -> Iterator[DuckLake]:
    made = DuckLake.create(address.url, data_path=address.data_path)
    made.create_table("other", COLUMNS)
    yield made
    made.close()


def make(lake: DuckLake, name: str) -> int:
    """A table with rows in two files and one in the catalog, and the snapshot that has them."""
    lake.create_table(name, COLUMNS, partition_by=["i"] if "partition" in name else [])
    table = lake.table(name)
    table.append(rows((1, 1), (2, 2)), inline=False)
    table.append(rows((3, 3)), inline=False)
    return table.append(rows((4, 4)), inline=True).snapshot.id


def found(lake: DuckLake, name: str) -> list[dict[str, object]]:
    return sorted(lake.table(name).scan().to_arrow().to_pylist(), key=lambda row: (row["i"], row["v"]))


def afterwards(lake: DuckLake, address: LakeAddress, name: str, operation: Operation, change: Change) -> list[dict[str, object]]:
    start = make(lake, name)
    change(lake, address, name)
    with lake.transaction() as tx:
        operation(tx, name, start)
    return found(lake, name)


def meanwhile(
    lake: DuckLake, address: LakeAddress, name: str, operation: Operation, change: Change, *, with_append: bool
) -> list[dict[str, object]]:
    start = make(lake, name)
    with lake.transaction() as tx:
        if with_append:
            tx.append("other", rows((1, 1)))
        operation(tx, name, start)
        change(lake, address, name)
    return found(lake, name)


def check(lake: DuckLake, address: LakeAddress, operation: str, changes: dict[str, Change]) -> None:
    for number, (label, change) in enumerate(changes.items()):
        expected = afterwards(lake, address, f"{operation} {number}", OPERATIONS[operation], change)
        for with_append in (True, False):
            name = f"{operation} {number} {with_append}"
            assert meanwhile(lake, address, name, OPERATIONS[operation], change, with_append=with_append) == expected, (label, with_append)


@pytest.mark.parametrize("operation", spread(OPERATIONS, 2))
def test_as_if_begun_afterwards(lake: DuckLake, address: LakeAddress, operation: str) -> None:
    check(lake, address, operation, CHANGES)


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_as_if_begun_after_less_common_changes(lake: DuckLake, address: LakeAddress, operation: str) -> None:
    check(lake, address, operation, MORE_CHANGES)


@pytest.mark.parametrize("change", DEFINITIONS)
@pytest.mark.parametrize("operation", ["delete", "update", "merge, matched update", "overwrite where", "upsert"])
def test_another_definition_is_a_conflict(lake: DuckLake, address: LakeAddress, operation: str, change: str) -> None:
    with pytest.raises(CommitConflictError):
        meanwhile(lake, address, "t", OPERATIONS[operation], DEFINITIONS[change], with_append=True)
    assert found(lake, "other") == []


def test_an_alteration_that_changes_nothing_at_first(lake: DuckLake) -> None:
    """The comment that a transaction sets is there after its commit, also where it was there when it began."""
    make(lake, "t")
    lake.set_comment("t", "own")
    for with_append in (True, False):
        with lake.transaction() as tx:
            if with_append:
                tx.append("other", rows((1, 1)))
            tx.set_comment("t", "own")
            lake.set_comment("t", "duckdb")
        assert lake.table_info("t").comment == "own"


def test_a_call_that_finds_nothing_plans_once(lake: DuckLake) -> None:
    """A call that finds nothing on the newest snapshot is done, however many writers continue."""
    make(lake, "t")
    before = lake.snapshot().id
    with lake.transaction() as tx:
        tx.delete("t", "i = 7")
        lake.table("t").append(rows((9, 9)))
    assert tx.result.snapshot is None
    assert lake.snapshot().id == before + 1


@pytest.mark.parametrize("kind", ["delete", "update"])
def test_nothing_found_after_a_conflict_reports_the_newest_snapshot(small: DuckLake, kind: str) -> None:
    """Planned again after a conflict, a change that matches no row states the snapshot at which that holds."""
    small.write("t", pa.table({"x": list(range(100))}), inline=False)
    with small.transaction() as tx:
        if kind == "delete":
            tx.delete("t", "x = 1")
        else:
            tx.update("t", {"x": "x + 1000"}, where="x = 1")
        small.table("t").delete("x = 1")
        small.write("other", pa.table({"y": [1]}))
    (written,) = tx.result.writes
    assert not written.committed
    assert written.snapshot.id == small.snapshot().id
    assert small.table("t", at=written.snapshot.id).scan(where="x = 1").count() == 0
