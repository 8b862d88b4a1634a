"""Bounds of slices, against sets of rows."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ducklake_dagster.partitions.predicates import ANYWHERE, ColumnConstraint, SliceBounds, SlicePredicate, read_bounds, slice_bounds

REGIONS = ("asia", "eu", "us")
START = date(2026, 1, 1)
ROWS = frozenset((day, region) for day in range(8) for region in REGIONS)
Rows = frozenset[tuple[int, str]]


def days(*intervals: tuple[int, int]) -> ColumnConstraint:
    bounds = tuple((START + timedelta(low), START + timedelta(high)) for low, high in intervals)
    return ColumnConstraint(column="Day", type_name="date", intervals=bounds)


def regions(*values: str) -> ColumnConstraint:
    return ColumnConstraint(column="region", type_name="varchar", values=values)


def bounds(*boxes: tuple[ColumnConstraint, ...]) -> SliceBounds:
    return slice_bounds(SlicePredicate(boxes=boxes))


@st.composite
def slices(draw: st.DrawFn) -> tuple[SliceBounds, Rows]:
    """Boxes of one kind, and their rows."""
    if draw(st.integers(0, 5)) == 0:
        return ANYWHERE, ROWS
    by_day, by_region = draw(st.sampled_from([(True, False), (False, True), (True, True)]))
    boxes, rows = [], set[tuple[int, str]]()
    for _ in range(draw(st.integers(1, 2 if by_day and by_region else 1))):
        points = sorted(draw(st.sets(st.integers(0, 7), min_size=1)))
        some = sorted(draw(st.sets(st.sampled_from(REGIONS), min_size=1)))
        boxes.append((*([days(*((point, point + 1) for point in points))] if by_day else []), *([regions(*some)] if by_region else [])))
        rows |= {row for row in ROWS if (not by_day or row[0] in points) and (not by_region or row[1] in some)}
    return bounds(*boxes), frozenset(rows)


@given(slices(), slices(), slices())
def test_no_row_is_missed(one: tuple[SliceBounds, Rows], two: tuple[SliceBounds, Rows], three: tuple[SliceBounds, Rows]) -> None:
    """Writers are found wherever one of their rows is left."""
    stored = read_bounds(json.loads(json.dumps(one[0].union(two[0]).to_json())))
    rows = one[1] | two[1]
    if rows & three[1]:
        assert stored.meets(three[0])
        assert three[0].meets(stored)
    left = stored.without(three[0])
    for row in rows - three[1]:
        assert left is not None
        assert left.meets(bounds((days((row[0], row[0] + 1)), regions(row[1]))))
    assert (left is None) or three[0] is not ANYWHERE


def test_slices_of_one_column_are_separated_exactly() -> None:
    written = bounds((days((0, 3)),)).union(bounds((days((5, 6)),)))
    assert [written.meets(bounds((days((day, day + 1)),))) for day in range(7)] == [True, True, True, False, False, True, False]
    left = written.without(bounds((days((1, 2), (5, 6)),)))
    assert left is not None
    assert left.to_json() == {"day": {"type": "date", "in": [["2026-01-01", "2026-01-02"], ["2026-01-03", "2026-01-04"]]}}
    assert left.without(bounds((days((0, 9)),))) is None
    assert not bounds((regions("eu"),)).meets(bounds((regions("us", "asia"),)))
    assert bounds((regions("eu"), days((0, 1)))).meets(bounds((days((0, 2)),)))


def test_intervals_of_whole_numbers_are_compared_as_numbers() -> None:
    def seconds(low: int, high: int) -> SliceBounds:
        return bounds((ColumnConstraint(column="at", type_name="int64", intervals=((low, high),)),))

    written = seconds(999_999_000, 1_000_001_000)
    assert written.meets(seconds(1_000_000_000, 1_000_000_001)), "the numbers have more digits from 2001-09-09 on"
    assert not written.meets(seconds(1_000_001_000, 1_000_002_000))
    assert written.meets(bounds((ColumnConstraint(column="at", type_name="int64", values=(1_000_000_000,)),)))
    left = written.without(seconds(999_999_500, 1_000_001_000))
    assert left is not None
    assert left.to_json() == {"at": {"type": "int64", "in": [[999_999_000, 999_999_500]]}}
    earlier = read_bounds({"at": {"type": "int64", "in": [["999999000", "1000001000"]]}})
    assert earlier.to_json() == written.to_json()
    assert seconds(-86_400, 0).union(seconds(0, 86_400)).to_json() == {"at": {"type": "int64", "in": [[-86_400, 86_400]]}}


def test_large_slices_have_short_descriptions() -> None:
    many = bounds((days(*((2 * day, 2 * day + 1) for day in range(60))),))
    assert many.to_json() == {"day": {"type": "date", "in": [["2026-01-01", "2026-04-30"]]}}
    assert many.without(many) is not None, "the days are unknown"
    assert bounds((regions(*map(str, range(60))),)).to_json() == {}


def test_other_types_of_a_column_may_be_anywhere() -> None:
    moments_of_a_day = (datetime.fromisoformat("2027-01-01"), datetime.fromisoformat("2027-01-02"))
    moments = ColumnConstraint(column="day", type_name="timestamp", intervals=(moments_of_a_day,))
    day, moment = bounds((days((0, 1)),)), bounds((moments,))
    assert day.meets(moment)
    assert day.union(moment).to_json() == {}
    left = day.without(moment)
    assert left is not None
    assert left.to_json() == day.to_json()


@pytest.mark.parametrize(
    "stored",
    [None, 3, [], "x", {"day": 3}, {"day": {}}, {"day": {"type": "date", "in": [["a"]]}}, {"day": {"type": "date", "in": [[1, 2]]}},
     {"day": {"type": "date", "of": [None]}}, {"day": {"in": [["a", "b"]]}}],
)  # fmt: skip
def test_unknown_descriptions_may_be_anywhere(stored: object) -> None:
    assert read_bounds(stored).columns == {}
