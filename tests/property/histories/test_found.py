"""Defects found by random histories, each in its shortest form."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.property.histories.actions import Action, Sql
from tests.property.histories.comparison import compare_condition, compare_table
from tests.property.histories.play import Lake, replay
from tests.property.histories.sketch import look
from tests.support.oracle import LakeAddress


@dataclass(frozen=True)
class Found:
    """Actions, and conditions to compare on every table at the end."""

    actions: tuple[Action, ...]
    conditions: tuple[str, ...] = ()
    limit: int = field(default=10)


FOUND: dict[str, Found] = {
    "a condition that no row can decide": Found(
        actions=(
            Sql("CREATE TABLE t (a INTEGER)"),
            Sql("INSERT INTO t VALUES (1), (NULL)"),
            Sql("INSERT INTO t SELECT i FROM range(20) r(i)"),
        ),
        conditions=("a = NULL::INTEGER", "1 = 2", "1 = 1"),
    )
}


@pytest.mark.parametrize("name", FOUND)
def test_found(lake_address: LakeAddress, name: str) -> None:
    case = FOUND[name]
    with Lake(lake_address, f"DATA_INLINING_ROW_LIMIT {case.limit}") as lake:
        replay(lake, case.actions)
        assert not lake.rejections
        for table in look(lake.duck).tables:
            compare_table(lake.duck, lake.library, table, None, lake.draw, 0)
            for where in case.conditions:
                compare_condition(lake.duck, lake.library.table(table.sql), where, lake.draw)
