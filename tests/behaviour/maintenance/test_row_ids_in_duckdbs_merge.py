"""DuckDB merges files of this library without changing row ids.

DuckDB 1.5.5 drops embedded row ids when the ``row_id_start`` of the merged files follow each other without a gap: it takes row ids for
consecutive then. Files of this library that embed row ids therefore have no ``row_id_start``.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from tests.support.oracle import LakeAddress, Oracle, attached

Change = Callable[[DuckLake], object]


def _rows(*numbers: int) -> pa.Table:
    return pa.table({"i": list(numbers), "v": [0] * len(numbers)})


def _row_ids(duck: Oracle) -> list[tuple[object, ...]]:
    return duck.rows("SELECT rowid, i, v FROM lake.t ORDER BY i")


def _update(lake: DuckLake) -> None:
    lake.table("t").update({"v": "v + 1"}, where="i < 3")


def _updates(lake: DuckLake) -> None:
    for low in (0, 2, 4):
        lake.table("t").update({"v": "v + 1"}, where=f"i >= {low} AND i < {low + 2}")


def _merge(lake: DuckLake) -> None:
    lake.table("t").upsert(pa.table({"i": [1, 77], "v": [5, 5]}), on="i", inline=False)


def _update_then_append(lake: DuckLake) -> None:
    _update(lake)
    lake.table("t").append(_rows(10, 11), inline=False)


def _flush_of_updated_rows(lake: DuckLake) -> None:
    lake.unset_option("data_inlining_row_limit")
    lake.table("t").update({"v": "v + 1"}, where="i IN (1, 4)")
    lake.flush_inlined_data()


def _flush_then_file(lake: DuckLake) -> None:
    _flush_of_updated_rows(lake)
    lake.table("t").append(_rows(20, 21, 22), inline=False)


def _two_flushes(lake: DuckLake) -> None:
    """The second file has row ids from 3 on, where the first one with two rows from 1 on seems to end."""
    lake.unset_option("data_inlining_row_limit")
    for rows in ("(1, 4)", "(3, 5)"):
        lake.table("t").update({"v": "v + 1"}, where=f"i IN {rows}")
        lake.flush_inlined_data()


def _flush_of_new_rows(lake: DuckLake) -> None:
    lake.unset_option("data_inlining_row_limit")
    for number in (30, 31, 32):
        lake.table("t").append(_rows(number))
    lake.flush_inlined_data()


@pytest.mark.parametrize(
    "change", [_update, _updates, _merge, _update_then_append, _flush_of_updated_rows, _flush_then_file, _two_flushes, _flush_of_new_rows]
)
def test_duckdb_keeps_row_ids_when_it_merges(small: DuckLake, sqlite_address: LakeAddress, change: Change) -> None:
    small.set_option("data_inlining_row_limit", 0)
    small.write("t", _rows(0, 1, 2), inline=False)
    small.table("t").append(_rows(3, 4, 5), inline=False)
    change(small)
    # Files with deletes are not merged by DuckDB, so rows that were updated must be deleted from their files for good.
    small.rewrite_data_files(delete_threshold=0)
    small.close()
    with attached(sqlite_address) as duck:
        before = _row_ids(duck)
        assert len({row_id for row_id, *_ in before}) == len(before)
        duck.run("CALL ducklake_merge_adjacent_files('lake')")
        assert _row_ids(duck) == before
        duck.run("UPDATE lake.t SET v = v + 100")
        assert [(row_id, i, v + 100) for row_id, i, v in before] == _row_ids(duck)  # type: ignore[operator]
