"""The token bucket, by a clock that is given."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.token_bucket import TokenBucket


class Clock:
    """Only a pause takes time, or ``part`` of it. paused: the pauses."""

    def __init__(self, part: float = 1.0) -> None:
        self.time = 100.0
        self.part = part
        self.paused: list[float] = []

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.time += self.part * seconds

    def bucket(self, rate: float, burst: float) -> TokenBucket:
        return TokenBucket(rate, burst, lambda: self.time, self.pause)


def test_after_the_burst_each_take_waits_for_what_it_costs() -> None:
    clock = Clock()
    bucket = clock.bucket(1000, 500)
    for _ in range(4):
        bucket.take(500)
    assert clock.paused == [0.5, 0.5, 0.5]
    clock.time += 0.25
    bucket.take(500)
    assert clock.paused[3:] == [0.25]


def test_a_rest_earns_no_more_than_the_burst() -> None:
    clock = Clock()
    bucket = clock.bucket(1000, 500)
    clock.time += 3600
    bucket.take(500)
    bucket.take(100)
    assert clock.paused == [0.1]


def test_what_was_not_used_is_given_back() -> None:
    clock = Clock()
    bucket = clock.bucket(1000, 500)
    bucket.take(500)
    bucket.give_back(400)
    bucket.take(400)
    assert clock.paused == []
    bucket.give_back(10_000)
    bucket.take(600)
    assert clock.paused == [0.1]


def test_without_a_rate_nobody_waits() -> None:
    clock = Clock()
    bucket = clock.bucket(0, 500)
    bucket.take(1 << 40)
    assert (clock.paused, bucket.wait_s) == ([], 0.0)


def test_a_pause_that_is_cut_short_is_made_up_for() -> None:
    clock = Clock(part=0.5)
    bucket = clock.bucket(1000, 0)
    bucket.take(1000)
    bucket.take(1000)
    assert clock.paused == [1.0, 1.5]


def test_one_larger_than_the_bucket_passes_and_the_next_waits() -> None:
    clock = Clock()
    bucket = clock.bucket(10, 10)
    bucket.spend(1000)
    assert (bucket.wait_s, clock.paused) == (99.0, [])
    clock.time += 98
    assert bucket.wait_s == pytest.approx(1.0)
    clock.time += 1
    assert bucket.wait_s == 0.0


@given(
    rate=st.integers(1, 10_000),
    burst=st.integers(0, 5_000),
    steps=st.lists(st.tuples(st.integers(0, 8_000), st.floats(0, 5), st.booleans()), min_size=1, max_size=30),
)
def test_no_stretch_of_time_has_more_than_the_burst_and_what_the_rate_earns(
    rate: int, burst: int, steps: list[tuple[int, float, bool]]
) -> None:
    """A take waits until it is earned. What is spent without waiting is earned afterwards."""
    clock = Clock()
    bucket = clock.bucket(rate, burst)
    begun: list[tuple[float, int]] = []
    for count, rest, waits in steps:
        clock.time += rest
        if waits:
            bucket.take(count)
        elif not bucket.wait_s:
            bucket.spend(count)
        else:
            continue
        begun.append((clock.time, count))
    for first in range(len(begun)):
        taken = 0
        for at, count in begun[first:]:
            taken += count
            # The first may have been earned before the stretch began, the last may be earned after it.
            allowed = max(burst, begun[first][1]) + (at - begun[first][0]) * rate + count
            assert taken <= allowed * (1 + 1e-9) + 1e-3
    assert all(earlier[0] <= later[0] for earlier, later in pairwise(begun))
