"""Columns with names of virtual columns: every operation finds the same rows as in any other table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.planning.plan import VIRTUAL_COLUMNS
from tests.support.oracle import LakeAddress, attached
from tests.support.parameters import slow


def numbers(name: str, *rows: tuple[int | None, int]) -> pa.Table:
    return pa.table({name: pa.array([key for key, _ in rows], pa.int32()), "v": pa.array([value for _, value in rows], pa.int32())})


@pytest.mark.parametrize("limit", [slow(0), 10])
def test_every_operation(small: DuckLake, sqlite_address: LakeAddress, limit: int) -> None:
    small.set_option("data_inlining_row_limit", limit)
    with attached(sqlite_address) as duck:
        for name in VIRTUAL_COLUMNS:
            duck.run(f'CREATE TABLE "{name}" ("{name}" INTEGER, v INTEGER)')
            table = small.table(name)
            table.append(numbers(name, (1, 10), (2, 20), (3, 30), (None, 40)))
            first = small.snapshot().id
            table.upsert(numbers(name, (2, 21), (5, 51)), on=[name])
            table.upsert(numbers(name, (5, 51), (6, 61)), on=[name, "v"])
            merge = table.merge(numbers(name, (2, 22), (7, 71)), on=[name])
            merge.when_matched_update({"v": "s.v + 1"}).when_not_matched_insert("all").execute()
            table.update({name: f'"{name}" + 100'}, where=f'"{name}" = 1')
            table.delete(f'"{name}" = 3')
            table.overwrite(numbers(name, (6, 0)), where=f'"{name}" = 6')
            small.merge_adjacent_files()
            assert set(duck.rows(f'SELECT "{name}", v FROM "{name}"')) == {(101, 10), (2, 23), (5, 51), (6, 0), (7, 71), (None, 40)}
            table.restore(first)
            assert set(duck.rows(f'SELECT "{name}", v FROM "{name}"')) == {(1, 10), (2, 20), (3, 30), (None, 40)}
