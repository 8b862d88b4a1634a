"""Work that threads do ahead: results in order, bounded, errors in their turn, an end when nobody wants more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ducklake_core.engines.arrow.work import in_order


def piece(number: int, begun: list[int], seconds: float = 0) -> Callable[[], list[int]]:
    def work() -> list[int]:
        begun.append(number)
        time.sleep(seconds)
        if number == 5:
            raise ValueError(f"piece {number}")
        return [number, number]

    return work


@pytest.mark.parametrize("workers", [0, 1, 2, 8])
def test_results_come_in_the_order_of_the_pieces(workers: int) -> None:
    begun: list[int] = []
    found = list(in_order((piece(number, begun, seconds=0.01 * (3 - number)) for number in range(4)), workers))
    assert found == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sorted(begun) == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_comes_in_its_turn(workers: int) -> None:
    found: list[int] = []
    with pytest.raises(ValueError, match="piece 5"):
        found.extend(in_order((piece(number, []) for number in range(9)), workers))
    assert list(in_order((piece(number, []) for number in range(5)), workers)) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_no_more_pieces_are_begun_than_have_room() -> None:
    begun: list[int] = []
    results = in_order((piece(number, begun) for number in range(100) if number != 5), 2)
    assert begun == []
    assert next(results) == 0
    assert begun == [0]
    assert [next(results) for _ in range(2)] == [0, 1]
    time.sleep(0.05)
    assert len(begun) <= 4
    results.close()
    assert len(begun) <= 4
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ducklake-reader")]
