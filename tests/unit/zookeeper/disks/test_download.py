"""The token bucket of `collect`, and the line that says how long it will take, by a clock that is given."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.zookeeper.disks.download import Bucket, Progress


class Given:
    """A clock that goes on only when somebody waits or it is told to."""

    def __init__(self) -> None:
        self.time = 100.0
        self.paused: list[float] = []

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.time += seconds


def test_after_the_burst_each_read_waits_for_what_it_costs() -> None:
    clock = Given()
    bucket = Bucket(1000, 500, clock)
    for _ in range(4):
        bucket.take(500)
    assert clock.paused == [0.5, 0.5, 0.5]
    clock.time += 0.25
    bucket.take(500)
    assert clock.paused[3:] == [0.25]


def test_a_rest_earns_no_more_than_the_burst() -> None:
    clock = Given()
    bucket = Bucket(1000, 500, clock)
    clock.time += 3600
    bucket.take(500)
    bucket.take(100)
    assert clock.paused == [0.1]


def test_what_was_not_read_is_given_back() -> None:
    clock = Given()
    bucket = Bucket(1000, 500, clock)
    bucket.take(500)
    bucket.give_back(400)
    bucket.take(400)
    assert clock.paused == []
    bucket.give_back(10_000)
    bucket.take(600)
    assert clock.paused == [0.1]


def test_without_a_rate_nobody_waits() -> None:
    clock = Given()
    bucket = Bucket(0, 500, clock)
    bucket.take(1 << 40)
    assert clock.paused == []


def test_a_pause_that_is_cut_short_is_made_up_for() -> None:
    class Short(Given):
        def pause(self, seconds: float) -> None:
            super().pause(seconds / 2)

    clock = Short()
    bucket = Bucket(1000, 0, clock)
    bucket.take(1000)
    bucket.take(1000)
    assert clock.paused == [0.5, 0.75]


@given(
    rate=st.integers(1, 10_000),
    burst=st.integers(0, 5_000),
    steps=st.lists(st.tuples(st.integers(0, 8_000), st.floats(0, 5)), min_size=1, max_size=30),
)
def test_no_stretch_of_time_has_more_than_the_burst_and_what_the_rate_earns(
    rate: int, burst: int, steps: list[tuple[int, float]]
) -> None:
    clock = Given()
    bucket = Bucket(rate, burst, clock)
    begun: list[tuple[float, int]] = []
    for count, rest in steps:
        clock.time += rest
        bucket.take(count)
        begun.append((clock.time, count))
    for first in range(len(begun)):
        read = 0
        for at, count in begun[first:]:
            read += count
            # Its first read may have been earned before the stretch began.
            allowed = max(burst, begun[first][1]) + (at - begun[first][0]) * rate
            assert read <= allowed * (1 + 1e-9) + 1e-3
    assert all(earlier[0] <= later[0] for earlier, later in pairwise(begun))


def test_progress_counts_what_is_left_from_what_came() -> None:
    clock = Given()
    lines: list[str] = []
    progress = Progress(clock, lines.append)
    progress.plan("zk1 log.1", 6_000_000)
    progress.plan("zk1 log.9", 2_000_000)
    with progress.reading("zk1 log.1"):
        progress.read(1_000_000)
        assert lines == []
        clock.time += 4
        progress.read(1_000_000)
        clock.time += 1
        progress.read(1_000_000)
    clock.time += 5
    with progress.reading("zk1 log.9"):  # the rest of the first was padding
        progress.read(1_000_000)
    assert lines == [
        "2.0 MB of at most 8.0 MB read, at most 12 s left; now zk1 log.1",
        "4.0 MB of at most 5.0 MB read, at most 2 s left; now zk1 log.9",
    ]
