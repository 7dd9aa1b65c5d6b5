"""Quiet hours of a week, from counts per minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.spark.quiet_windows import MINUTES_OF_A_WEEK, Hour, hours

MONDAY = 1_794_787_200 // 60
"""2026-11-16 00:00 UTC, in minutes."""


def by_name(found: list[Hour]) -> dict[str, Hour]:
    return {hour.name: hour for hour in found}


def test_the_hour_with_the_fewest_writes_comes_first() -> None:
    week = range(MONDAY, MONDAY + MINUTES_OF_A_WEEK)
    counts = {minute: 60 for minute in week if (minute - MONDAY) // 60 != 27}  # Tuesday 03:00
    counts[MONDAY + 27 * 60 + 5] = 6
    found = hours(counts, week[0], week[-1], 60)
    assert (found[0].name, found[0].expected, found[0].worst, found[0].minute) == ("Tue 03:00", 0.1, 6, 0)
    assert (found[0].none, found[0].seen) == (59 / 60, 60)
    assert len(found) == 168
    assert by_name(found)["Sun 23:00"].expected == 60


def test_a_window_takes_parts_of_minutes_in_proportion() -> None:
    counts = {MONDAY: 60, MONDAY + 1: 120}
    (found,) = hours(counts, MONDAY, MONDAY + 1, 90)
    assert (found.expected, found.seen, found.minute) == (60 + 60, 1, 0)
    (short,) = hours(counts, MONDAY, MONDAY + 1, 15)
    assert (short.expected, short.worst, short.seen) == ((15 + 30) / 2, 30, 2)


def test_weeks_are_averaged_and_the_worst_is_kept() -> None:
    counts = {MONDAY: 10, MONDAY + MINUTES_OF_A_WEEK: 30}
    found = by_name(hours(counts, MONDAY, MONDAY + MINUTES_OF_A_WEEK + 59, 60))["Mon 00:00"]
    assert (found.expected, found.worst, found.seen) == (40 / 120, 30, 120)


@pytest.mark.parametrize(("first", "last"), [(5, 4), (5, 5), (5, 6)])
def test_nothing_is_told_of_less_than_a_window(first: int, last: int) -> None:
    assert hours({}, first, last, 181) == []


@given(
    counts=st.dictionaries(st.integers(0, 400), st.integers(1, 50)),
    first=st.integers(0, 200),
    more=st.integers(0, 200),
    window_s=st.integers(1, 900),
    step_s=st.sampled_from([1, 20, 60]),
)
def test_as_counted_one_by_one(
    counts: dict[int, int], first: int, more: int, window_s: int, step_s: int
) -> None:
    last = first + more
    found = hours(counts, first, last, window_s, step_s)
    every = []
    for start in range(first * step_s, (last + 1) * step_s - window_s + 1, step_s):
        seconds = range(start, start + window_s)
        every.append(sum(counts.get(s // step_s, 0) / step_s for s in seconds))
    assert sum(hour.seen for hour in found) == len(every)
    if every:
        assert max(hour.worst for hour in found) == pytest.approx(max(every))
        assert sum(hour.expected * hour.seen for hour in found) == pytest.approx(sum(every))
