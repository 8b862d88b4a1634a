"""Operations plan many tables with as many statements as few, and plan each table as if it were alone."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from ducklake_core import DuckLake, MaintenanceResult
from tests.support.oracle import LakeAddress, attached
from tests.support.statements import noted_statements

_ROWS = pa.table({"id": pa.array(range(20), pa.int64()), "part": pa.array([number % 2 for number in range(20)], pa.int64())})
OPERATIONS: dict[str, Callable[[DuckLake], MaintenanceResult]] = {
    "flush": lambda lake: lake.flush_inlined_data(dry_run=True),
    "merge": lambda lake: lake.merge_adjacent_files(dry_run=True),
    "rewrite": lambda lake: lake.rewrite_data_files(delete_threshold=0, dry_run=True),
    "checkpoint": lambda lake: lake.checkpoint(dry_run=True),
}

# What a checkpoint plans besides; no table is a step of these.
REMOVALS: tuple[Callable[[DuckLake], MaintenanceResult], ...] = (
    lambda lake: lake.cleanup_old_files(dry_run=True),
    lambda lake: lake.delete_orphaned_files(dry_run=True),
)


def add_tables(lake: DuckLake, first: int, last: int) -> None:
    """Tables with files to merge, of an earlier version of their columns too, deleted rows of every kind, partitions and inlined rows."""
    names = [f"t{number}" for number in range(first, last)]
    with lake.transaction() as tx:
        for number, name in enumerate(names):
            tx.create_table(name, _ROWS.schema, partition_by=["part"] if number % 2 else ())
    for _ in range(2):
        with lake.transaction() as tx:
            for name in names:
                tx.write(name, _ROWS, inline=False, missing_columns="null")
    for condition, limit in (("id = 1", 0), ("id = 3", 10)):
        lake.set_option("data_inlining_row_limit", limit)
        with lake.transaction() as tx:
            for name in names:
                tx.delete(name, condition)
    with lake.transaction() as tx:
        for name in names:
            tx.add_column(name, "late", "integer")
    for _ in range(2):
        with lake.transaction() as tx:
            for name in names:
                tx.write(name, _ROWS, inline=False, missing_columns="null")
    with lake.transaction() as tx:
        for name in names:
            tx.write(name, _ROWS.slice(0, 1), missing_columns="null")


def test_thirty_tables_take_as_many_statements_as_three(lake: DuckLake) -> None:
    numbers = []
    for first, last in ((0, 3), (3, 30)):
        add_tables(lake, first, last)
        for name, operation in OPERATIONS.items():
            operation(lake)
            with noted_statements() as statements:
                result = operation(lake)
            planned = {step.target for step in result.steps if step.outcome == "planned"}
            assert len(planned) == last, name
            assert result.failed_steps == (), name
            numbers.append((name, len(statements)))
    assert numbers[:4] == numbers[4:]
    of_operation = dict(numbers)
    with noted_statements() as of_removals:
        for operation in REMOVALS:
            operation(lake)
    apart = of_operation["merge"] + of_operation["rewrite"] + of_operation["flush"] + len(of_removals)
    assert of_operation["checkpoint"] < apart, "they share what they read"
    assert all(count < 30 for name, count in numbers if name != "checkpoint")


def test_a_table_is_planned_among_others_as_alone(lake: DuckLake, lake_address: LakeAddress) -> None:
    add_tables(lake, 0, 4)
    lake.set_option("auto_compact", False, table="t2")
    lake.set_option("target_file_size", "1MB", table="t3")
    lake.close()
    with attached(lake_address) as duck:
        duck.run(
            "CREATE TABLE d (id INTEGER, name VARCHAR)",
            "INSERT INTO d VALUES (1, 'x'), (2, 'y')",
            "UPDATE d SET name = 'z' WHERE id = 1",
            "INSERT INTO d SELECT range, 'f' FROM range(40)",
            "DELETE FROM d WHERE id = 7",
            "ALTER TABLE d SET PARTITIONED BY (name)",
            "ALTER TABLE d RENAME COLUMN name TO label",
            "INSERT INTO d SELECT range, 'f' FROM range(40)",
            "ALTER TABLE d SET SORTED BY (id)",
        )
    for name, operation in (
        ("flush", DuckLake.flush_inlined_data),
        ("merge", DuckLake.merge_adjacent_files),
        ("rewrite", lambda lake, **how: lake.rewrite_data_files(delete_threshold=0, **how)),
    ):
        together = operation(lake, dry_run=True).steps
        alone = [step for table in lake.tables() for step in operation(lake, tables=table.table, dry_run=True).steps]
        assert list(together) == alone, name


@pytest.mark.parametrize("damage", ["path = ''", "record_count = 'many'", "begin_snapshot = NULL"])
def test_a_table_whose_rows_cannot_be_read_stops_no_other(small: DuckLake, damage: str) -> None:
    add_tables(small, 0, 3)
    one, other = (small.table(name).state.id for name in ("t1", "t2"))
    with small.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE ducklake_data_file SET {damage} WHERE table_id = {one}")
        connection.exec_driver_sql(f"DELETE FROM ducklake_column WHERE table_id = {other}")
    for name, operation in OPERATIONS.items():
        steps = operation(small).steps
        failed = {step.target for step in steps if step.outcome == "failed" and step.target.startswith("main.")}
        assert failed == ({"main.t2"} if name == "flush" else {"main.t1", "main.t2"}), name
        assert "main.t0" in {step.target for step in steps if step.outcome == "planned"}, name
