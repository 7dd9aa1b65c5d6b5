"""When disks are full, and the quiet hours, from sums."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from zkmigrate.cluster.placement.cluster import Broker, Cluster, LogDir
from zkmigrate.spark.forecast import ALL, Disk, Held, disks, hours
from zkmigrate.spark.jobs import partitions

AT = 1_790_000_000
GB = 10**9
CLUSTER = Cluster.of(
    [
        Broker(1, "", 90 * GB, dirs=(LogDir("/a", 60 * GB), LogDir("/b", 30 * GB))),
        Broker(2, "", 5 * GB),
        Broker(4, "", 0),
    ],
    [],
)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(AT + seconds, UTC)


def told(*held: Held) -> list[tuple[str, str, int | None, datetime | None, datetime | None]]:
    return [(one.broker, one.dir, one.free, one.full, one.full_kept) for one in disks(held, CLUSTER, AT)]


def test_each_disk_is_forecast_by_its_own_free_bytes_and_the_first_full_one_comes_first() -> None:
    assert told(Held("1", "/a", 7, GB, 0.0), Held("1", "/b", 8, GB, GB / 2)) == [
        ("1", "/b", 30 * GB, at(30), at(60)),
        ("1", "/a", 60 * GB, at(60), None),
    ]


def test_directories_that_the_cluster_names_otherwise_count_together() -> None:
    found = disks([Held("1", "/copy/a", 7, GB, 1.0), Held("1", "/b", 8, 2 * GB, 2.0)], CLUSTER, AT)
    assert found == [Disk("1", "", 15, 3 * GB, 90 * GB, at(30), None)]


def test_a_broker_with_one_directory_keeps_its_name() -> None:
    assert told(Held("2", "/copy", 7, 1.0 * GB, 0.5 * GB)) == [("2", "/copy", 5 * GB, at(5), at(10))]


@pytest.mark.parametrize("name", ["3", "kafka-1", "²"])
def test_free_bytes_that_nobody_told_are_not_guessed(name: str) -> None:
    assert told(Held(name, "/a", 7, 1.0, 1.0)) == [(name, "/a", None, None, None)]


def test_a_full_disk_is_full_now_and_one_that_does_not_grow_never() -> None:
    assert told(Held("4", "/a", 7, 1.0, 0.0), Held("2", "/a", 7, 0.0, 0.0)) == [
        ("4", "/a", 0, at(0), None),
        ("2", "/a", 5 * GB, None, None),
    ]


def test_a_disk_that_is_full_in_ten_years_is_not_forecast() -> None:
    ten_years = 3650 * 86_400
    [just] = disks([Held("2", "/a", 7, 5 * GB / ten_years * 1.001, 0.0)], CLUSTER, AT)
    [after] = disks([Held("2", "/a", 7, 5 * GB / ten_years * 0.999, 0.0)], CLUSTER, AT)
    assert just.full is not None
    assert just.full.year == 2036
    assert after.full is None


def test_hours_of_a_day_by_p95_the_quietest_first() -> None:
    """Three days of broker 1: an hour at rest, one busy once in a while, others always alike."""
    first, last = 24 * 1000 + 22, 24 * 1003 + 21
    usual = dict.fromkeys(range(first, last + 1), 3600.0)
    quiet = {number: 0.0 for number in usual if number % 24 == 4}
    busy = {24 * 1002 + 5: 36_000.0}
    found = hours({"2": {first: 7200.0}, "1": usual | quiet | busy}, first, last)
    assert [one.broker for one in found] == [ALL] * 24 + ["1"] * 24 + ["2"] * 24
    quietest, busiest = found[24], found[47]
    assert (quietest.hour, quietest.seen, quietest.mean, quietest.p95) == (4, 3, 0.0, 0.0)
    assert (busiest.hour, busiest.seen, busiest.mean, busiest.p95) == (5, 3, 4.0, 10.0)
    [shared] = [one for one in found if (one.broker, one.hour) == (ALL, 22)]
    assert (shared.mean, shared.p95) == (round(5 / 3, 3), 3.0)


def test_hours_in_which_nothing_was_written_are_not_told() -> None:
    assert hours({}, 1, 9) == []


@pytest.mark.parametrize(
    ("free", "full", "said"),
    [
        (5, None, "No disk is full within ten years at the day's rate."),
        (5, at(0), f"The first full disk is all of broker 1, on {at(0):%Y-%m-%d %H:%M:%S} UTC"),
        (None, None, "The cluster's file has no free bytes of 1."),
    ],
)
def test_the_forecast_in_words(free: int | None, full: datetime | None, said: str) -> None:
    [found] = partitions._forecast([Disk("1", "", 7, 1.0, free, full, None)], [])
    assert found.startswith(said)


def test_quiet_hours_are_told_where_the_whole_day_was_seen_and_hours_differ() -> None:
    written = {"1": {24 * 100 + hour: 3600.0 * hour for hour in range(24)}}
    quiet = hours(written, 24 * 100, 24 * 101 - 1)[:24]
    [found] = partitions._forecast([], quiet)
    assert found.startswith("The quietest hour begins at 00:00 UTC (0 B a second")
    assert "the busiest at 23:00 (23 B)" in found
    assert list(partitions._forecast([], quiet[:23])) == []
    alike = hours({"1": dict.fromkeys(range(2400, 2424), 7.0)}, 2400, 2423)[:24]
    assert list(partitions._forecast([], alike)) == []


def test_p95_leaves_out_the_highest_of_twenty() -> None:
    written = {24 * day: 3600.0 * (day - 99) for day in range(100, 120)}
    found = hours({"1": written}, 24 * 100, 24 * 119)
    assert [one.p95 for one in found if one.hour == 0] == [19.0, 19.0]
