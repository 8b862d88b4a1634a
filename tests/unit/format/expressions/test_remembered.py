"""What is derived from conditions is gone when they are."""

from __future__ import annotations

import gc
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.format.expressions import predicates as module
from ducklake_core.format.expressions.predicates import MOST, ColumnReference, InList, Literal, remembered
from ducklake_core.format.expressions.ranges import sorted_keys
from ducklake_core.format.types.data_types import INT32

COLUMN = ColumnReference(column_id=1, path=("a",), type=INT32)
LONG = f"a IN ({', '.join(str(n) for n in range(3000))})"
BRANCHES = " OR ".join(f"(a = {n} AND b > {n})" for n in range(500))
RANGES = " OR ".join(f"a BETWEEN {10 * n} AND {10 * n + 3}" for n in range(500))


def in_list(*values: int) -> InList:
    return InList(operand=COLUMN, values=tuple(Literal(value=value, type=INT32) for value in values))


def literals() -> int:
    gc.collect()
    return sum(isinstance(one, Literal) for one in gc.get_objects())


@pytest.mark.parametrize(("where", "count"), [(LONG, 100), (BRANCHES, 100), (RANGES, 40), (f"NOT ({LONG})", 0)])
@pytest.mark.parametrize("partition", [["bucket(4, a)"], []])
def test_nothing_of_a_condition_outlives_its_scan(where: str, count: int, partition: list[str], tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    rows = pa.table({"a": pa.array(range(100), pa.int32()), "b": pa.array(range(1, 101), pa.int32())})
    lake.create_table("t", rows.schema, partition_by=partition)
    lake.write("t", rows)
    before = literals()
    assert lake.table("t").scan(where=where).to_arrow().num_rows == count
    assert literals() - before < 100
    lake.close()


def test_derived_once_for_each_condition_and_type() -> None:
    calls: list[object] = []

    @remembered
    def derive(condition: InList, other: int) -> int:
        calls.append((id(condition), other))
        return len(condition.values) + other

    one, same = in_list(1, 2), in_list(1, 2)
    assert [derive(one, 1), derive(one, 1), derive(one, 2), derive(same, 1)] == [3, 3, 4, 3]
    assert calls == [(id(one), 1), (id(one), 2), (id(same), 1)]


def test_variants_are_bounded() -> None:
    calls: list[int] = []
    condition = in_list(1)
    derive = remembered(lambda _, other: calls.append(other))
    for other in [*range(MOST + 10), MOST, 0]:
        derive(condition, other)
    assert calls == [*range(MOST + 10), 0]


def test_threads_that_derive_more_than_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    usual = sys.getswitchinterval()
    condition, others = in_list(1), [in_list(value) for value in range(5)]
    derive = remembered(lambda _, other: other.values[0].value)

    def ask(step: int) -> bool:
        return all(derive(condition, others[place * step % 5]) == place * step % 5 for place in range(20_000))

    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(ask, range(1, 5)))
    finally:
        sys.setswitchinterval(usual)


def test_a_condition_at_the_place_of_another_is_its_own() -> None:
    for value in range(200):
        assert [list(keys) for keys in sorted_keys(in_list(value), INT32).values()] == [[value]]


def test_conditions_travel_to_executors() -> None:
    condition = in_list(3, 1)
    list(sorted_keys(condition, INT32))
    copy = pickle.loads(pickle.dumps(condition))
    assert copy == condition
    died = weakref.ref(copy)
    del copy
    assert died() is None
