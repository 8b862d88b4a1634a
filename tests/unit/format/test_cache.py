"""Caches: bounded by size, and values that live as long as the condition that they are derived from."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_core import DuckLake
from ducklake_core.format.cache import MAX_DERIVED, BoundedCache
from ducklake_core.format.expressions.predicates import ColumnReference, InList, Literal
from ducklake_core.format.expressions.ranges import sorted_keys
from ducklake_core.format.types.data_types import INT32, INT64
from tests.support.parameters import slow, spread

COLUMN = ColumnReference(column_id=1, path=("a",), type=INT32)
LONG = f"a IN ({', '.join(str(n) for n in range(3000))})"
BRANCHES = " OR ".join(f"(a = {n} AND b > {n})" for n in range(500))
RANGES = " OR ".join(f"a BETWEEN {10 * n} AND {10 * n + 3}" for n in range(500))


def in_list(*values: int) -> InList:
    return InList(operand=COLUMN, values=tuple(Literal(value=value, type=INT32) for value in values))


def literals() -> int:
    gc.collect()
    return sum(isinstance(one, Literal) for one in gc.get_objects())


@pytest.mark.parametrize(("where", "count"), spread([(LONG, 100), (BRANCHES, 100), (RANGES, 40), (f"NOT ({LONG})", 0)], 1))
@pytest.mark.parametrize("partition", [["bucket(4, a)"], slow([])])
def test_nothing_of_a_condition_outlives_its_scan(where: str, count: int, partition: list[str], tmp_path: Path) -> None:
    lake = DuckLake.create(f"sqlite:///{tmp_path}/lake.sqlite", data_path=f"{tmp_path}/files/")
    rows = pa.table({"a": pa.array(range(100), pa.int32()), "b": pa.array(range(1, 101), pa.int32())})
    lake.create_table("t", rows.schema, partition_by=partition)
    lake.write("t", rows)
    before = literals()
    assert lake.table("t").scan(where=where).to_arrow().num_rows == count
    assert literals() - before < 100
    lake.close()


def test_keys_are_sorted_once_for_each_condition_and_type() -> None:
    condition, same = in_list(2, 1), in_list(2, 1)
    keys = sorted_keys(condition, INT32)
    assert [list(found) for found in keys.values()] == [[1, 2]]
    assert sorted_keys(condition, INT32) is keys
    assert sorted_keys(condition, INT64) is not keys
    assert sorted_keys(same, INT32) is not keys
    assert condition == same
    assert repr(condition) == repr(in_list(2, 1))


def test_derived_values_are_bounded() -> None:
    condition, calls = in_list(1), list[int]()
    for other in [*range(MAX_DERIVED + 10), MAX_DERIVED, 0]:
        condition.derived.get_or_make(other, lambda other=other: calls.append(other) or other)  # type: ignore[misc]
    assert calls == [*range(MAX_DERIVED + 10), 0]


def test_derived_values_do_not_travel_to_executors() -> None:
    condition = in_list(*range(1000))
    plain = pickle.dumps(condition)
    sorted_keys(condition, INT32)
    copy = pickle.loads(pickle.dumps(condition))
    assert copy == condition
    assert not copy.derived
    assert len(pickle.dumps(condition)) == len(plain)


def test_least_recently_used_values_are_dropped() -> None:
    cache = BoundedCache[int, str](10, size_of=len)
    for number in range(5):
        cache[number] = "ab"
    assert cache.get(0) == "ab"
    cache[5] = "abcd"
    assert [cache.get(number) for number in range(6)] == ["ab", None, None, "ab", "ab", "abcd"]
    cache[0] = "abc"
    assert [cache.get(number) for number in range(6)] == ["abc", None, None, None, "ab", "abcd"]
    cache[6] = "x" * 11
    assert cache.get(6) is None
    cache.clear()
    assert cache.get(0) is None


def test_threads_share_a_cache() -> None:
    usual = sys.getswitchinterval()
    cache = BoundedCache[int, int](3)

    def read(step: int) -> bool:
        return all(cache.get_or_make(entry * step % 7, lambda entry=entry: entry * step % 7) == entry * step % 7 for entry in range(20_000))  # type: ignore[misc]

    try:
        sys.setswitchinterval(1e-6)
        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(read, range(1, 5)))
    finally:
        sys.setswitchinterval(usual)
    assert sum(cache.get(number) is not None for number in range(7)) == 3


def test_a_forked_child_starts_with_an_empty_cache_that_it_can_lock() -> None:
    cache = BoundedCache[str, int](3)
    cache["a"] = 1
    with cache._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if not child:
            found = cache.get("a")
            os._exit(0 if found is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.get("a") == 1
