"""How long copies take: the estimate before a run and while it goes on, against what real brokers took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zkmigrate.cluster.reassign.estimate import SPAN_S, Copies, Throughput, batches, busiest
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.cluster.reassign.section import Pace
from zkmigrate.runbook.model.step import Way

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "recorded" / "copies.jsonl").read_text().splitlines()
]
"""Moves of one broker's partitions to another broker. looks: seconds since the first move was sent, how many
moves were done, and the bytes left. took: until the run saw the last replica in sync."""
NEAR = 0.25


def named(case: dict[str, Any]) -> str:
    return f"{case['kafka']}-{case['partitions']}-{case['bytes']}-{case['throttle']}"


@pytest.fixture(params=RECORDED, ids=named)
def recorded(request: pytest.FixtureRequest) -> dict[str, Any]:
    case: dict[str, Any] = request.param
    return case


def copies(case: dict[str, Any], done: int = 0, left: int | None = None) -> Copies:
    """What is still to be made of a recorded case."""
    count = case["partitions"]
    moves = tuple(Move("a", n, (2, 1), (1, 3), case["bytes"] // count, 2) for n in range(done, count))
    how = Pace(throttle_bytes_s=case["throttle"])
    if left is None:
        return Copies.before(moves, how)
    return Copies(moves, how, Way.FORWARD, how.throttle_bytes_s, left, case["bytes"] - left)


def test_x15_the_time_told_before_is_near_what_real_brokers_took(recorded: dict[str, Any]) -> None:
    """Only the throttle was told: 60 short moves "1 s or more" that took 16 s, and 30 s that took 38 s."""
    assert copies(recorded).seconds == pytest.approx(recorded["took"], rel=NEAR)


def test_x15_each_look_tells_the_end_of_the_run(recorded: dict[str, Any]) -> None:
    """The first minute told the throttle alone, whatever came."""
    seen, told = Throughput(), []
    for at, done, left in recorded["looks"]:
        seen = seen.with_reading(1e9 + at, left)
        told.append(at + seen.seconds(1e9 + at, left, copies(recorded, done, left).seconds))
    assert told == [pytest.approx(recorded["took"], rel=NEAR)] * len(told)
    assert seen.measured


def test_what_clients_write_makes_copies_longer() -> None:
    moves = [Move("a", n, (2, 1), (1, 3), 100_000_000, 2) for n in range(10)]
    how = Pace(throttle_bytes_s=10_000_000, per_broker=10)
    alone = Copies.before(moves, how).seconds
    assert Copies.before(moves, how, written_s=4_500_000).seconds == pytest.approx(2 * alone, rel=0.02)
    waves = how.model_copy(update={"in_flight": 1})
    some = Copies.before(moves, waves, written_s=4_500_000).seconds
    assert alone < some < 1.5 * alone, (
        "those that wait or are done burden the throttle for a part of the time"
    )


def test_the_busiest_broker_and_role_decide() -> None:
    moves = (Move("a", 0, (1,), (3, 4), 5000, 1), Move("a", 1, (2,), (3,), 4000, 2))
    assert busiest(moves) == 10_000, "broker 1 sends two copies of 5,000 bytes"
    assert busiest(()) == 0
    apart = (Move("a", 0, (1, 2), (3, 2), 5000, 1), Move("a", 1, (1, 4), (5, 4), 5000, 4))
    assert busiest(apart) == 5000, "brokers 3 and 5 receive one copy each"
    assert busiest(apart, Way.BACK) == 10_000, "broker 1 receives both"


def test_the_caps_tell_how_often_moves_are_sent() -> None:
    moves = [Move("a", n, (n % 2,), (5,), 1, n % 2) for n in range(12)]
    assert batches(moves, Pace(throttle_bytes_s=1000)) == 3, "broker 5 takes five at once"
    assert batches(moves, Pace(throttle_bytes_s=1000, per_broker=12, in_flight=2)) == 6
    assert batches((), Pace(throttle_bytes_s=1000)) == 0
    assert Copies.before((), Pace(throttle_bytes_s=1000)).seconds == 0


def after(*looks: tuple[float, int]) -> Throughput:
    copying = Throughput()
    for at, left in looks:
        copying = copying.with_reading(at, left)
    return copying


def test_a_steady_throughput_tells_when_it_ends() -> None:
    """Whatever was expected, the looks decide after some minutes."""
    copying = Throughput()
    for second in range(0, 4000, 2):
        left = 10_000 - 2 * second
        copying = copying.with_reading(1e9 + second, left)
        assert len(copying.looks) <= SPAN_S / 10 + 2
        if second == 1200:
            assert copying.seconds(1e9 + second, left, left / 4) == pytest.approx(left / 2, rel=0.02)
            assert copying.seconds(1e9 + second, left, left) == pytest.approx(left / 2, rel=0.02)


def test_only_the_last_minutes_count() -> None:
    slow = [(float(t), 100_000 - t) for t in range(0, 4000, 10)]
    fast = [(float(t), 96_000 - 10 * (t - 4000)) for t in range(4000, 5910, 10)]
    copying = after(*slow, *fast)
    assert copying.seconds(5900.0, 77_000, 77_000) == pytest.approx(7_700, rel=0.02)


def test_a_pause_runs_down_and_a_standstill_does_not() -> None:
    copying = after((0.0, 1000), (2.0, 900), (12.0, 800))
    now = copying.seconds(12.0, 800, 82.0)
    assert copying.seconds(20.0, 800, 82.0) == pytest.approx(now - 8)
    assert copying.seconds(200.0, 800, 82.0) > 5 * now


def test_the_first_bytes_are_no_throughput() -> None:
    """The first answers pass a throttle whole."""
    assert after((0.0, 1000), (2.0, 100)).seconds(2.0, 100, 52.0) == pytest.approx(52.0)


def test_bytes_that_became_more_and_a_clock_set_back_begin_anew() -> None:
    assert after((0, 100), (70, 50), (80, 60)).looks == ((80, 60),)
    assert after((0, 100), (60, 70), (70, 50), (80, 60)).looks == ((60, 70), (80, 60))
    assert after((0, 100), (70, 50), (80, 160)).looks == ((80, 160),)
    assert after((1000, 100), (1070, 50), (500, 40)).looks == ((500, 40),)
    assert after((0, 100)).seconds(0.0, 100, 33.0) == pytest.approx(33.0), "nothing was seen to be copied"
