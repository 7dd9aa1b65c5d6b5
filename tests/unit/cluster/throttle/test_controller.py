"""The rate follows the load, within its bounds, without swinging, and says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.cluster.throttle.controller import decide
from zkmigrate.errors import UsageError
from zkmigrate.kafka.rates import (
    Decision,
    Moving,
    Overrides,
    Rate,
    Role,
    Sample,
    Settings,
    State,
    amount,
)

M = 1_000_000
SETTINGS = Settings(floor=5 * M, cap=Rate(100 * M, 100 * M))
MOVING = (Moving("orders", 3, 1, (2,), left=1000 * M),)
IDLE = Sample(0.0, 0.0, Rate(0, 0))
NOTHING = State()


def at(leader: int, follower: int = 0) -> State:
    """Broker 1 has this rate."""
    return State({1: Rate(leader, follower or leader), 2: Rate(leader, follower or leader)})


def used(by_others: float, **more: Any) -> Sample:
    return Sample(by_others, by_others, Rate(0, 0), **more)


def why(decision: Decision, broker: int, role: Role = Role.LEADER) -> str:
    [found] = [one.text for one in decision.reasons if (one.broker, one.role) == (broker, role)]
    return found


rates = st.builds(Rate, st.integers(0, 300 * M), st.integers(0, 300 * M))
maybe = st.none() | st.floats(0, 3)
samples = st.builds(
    Sample,
    st.floats(0, 2e8),
    st.floats(0, 2e8),
    st.none() | rates,
    maybe,
    st.none() | st.floats(0, 90),
    st.none() | st.floats(0, 90),
)
partitions = st.lists(
    st.builds(
        Moving,
        st.just("t"),
        st.integers(0, 9),
        st.integers(1, 4),
        st.lists(st.integers(1, 4), unique=True, min_size=1).map(tuple),
        st.integers(0, 10**12),
        st.floats(0, 2e8),
        st.dictionaries(st.integers(1, 4), st.integers(0, 1000)),
    )
)
chosen = st.builds(
    Settings,
    st.integers(1000, 10 * M),
    st.just(Rate(100 * M, 120 * M)),
    st.just({3: Rate(50 * M, 20 * M)}),
    threshold=st.floats(0, 0.2),
    keep_ticks=st.integers(0, 2),
    await_limit_ms=st.just(30.0),
    latency_limit_ms=st.just(30.0),
    raise_to_end=st.booleans(),
    end_within_s=st.sampled_from([60.0, 86_400.0]),
)
states = st.builds(
    State,
    st.dictionaries(st.integers(1, 5), rates),
    st.dictionaries(st.integers(1, 5), st.integers(0, 3)),
    st.dictionaries(st.integers(1, 5), st.integers(0, 5)),
)
overrides = st.builds(
    Overrides,
    st.none() | st.integers(0, 500 * M),
    st.dictionaries(st.integers(1, 5), st.integers(0, 500 * M)),
)
measured = st.dictionaries(st.integers(1, 4), samples)


@given(partitions, measured, chosen, states, overrides)
def test_t8_a_rate_is_never_under_the_floor_and_never_above_the_ceiling(
    moving: list[Moving],
    seen: dict[int, Sample],
    settings: Settings,
    before: State,
    wished: Overrides,
) -> None:
    found = decide(moving, seen, settings, before, wished)
    involved = {b for one in moving for b in (one.leader, *one.adding)} | set(before.rates)
    assert set(found.rates) == involved
    for broker, rate in found.rates.items():
        for role in Role:
            assert settings.floor <= rate.of(role) <= settings.ceiling(broker, role)
    assert {(one.broker, one.role) for one in found.reasons} == {(b, r) for b in involved for r in Role}
    assert found.state.rates == found.rates
    assert set(found.changed) == {b for b in involved if found.rates[b] != before.rates.get(b)}


@given(partitions, measured, chosen, states, st.floats(0, 2e8), st.floats(0, 2), st.floats(0, 60))
def test_more_load_never_gives_a_higher_rate(
    moving: list[Moving],
    seen: dict[int, Sample],
    settings: Settings,
    before: State,
    traffic: float,
    busy: float,
    slower_ms: float,
) -> None:
    def loaded(one: Sample) -> Sample:
        return replace(
            one,
            sent=one.sent + traffic,
            received=one.received + traffic,
            busy=None if one.busy is None else one.busy + busy,
            await_ms=None if one.await_ms is None else one.await_ms + slower_ms,
            latency_ms=None if one.latency_ms is None else one.latency_ms + slower_ms,
        )

    light = decide(moving, seen, settings, before).rates
    heavy = decide(moving, {b: loaded(one) for b, one in seen.items()}, settings, before).rates
    for broker, rate in heavy.items():
        assert rate.leader <= light[broker].leader
        assert rate.follower <= light[broker].follower


@given(partitions, measured, chosen, states)
def test_the_same_figures_give_the_same_decision(
    moving: list[Moving], seen: dict[int, Sample], settings: Settings, before: State
) -> None:
    assert decide(moving, seen, settings, before) == decide(moving, seen, settings, before)


Host = Callable[[int, int], Sample]
"""What a host shows at a tick under a rate."""


def closed_loop(host: Host, ticks: int, settings: Settings = SETTINGS) -> list[int]:
    """The rate of broker 1 at each tick; the next sample depends on it."""
    state, found = NOTHING, list[int]()
    rate = 0
    for tick in range(ticks):
        decision = decide(MOVING, {1: host(tick, rate), 2: IDLE}, settings, state)
        state, rate = decision.state, decision.rates[1].leader
        found.append(rate)
    return found


def turns(found: list[int]) -> int:
    """How often the rate changed its direction."""
    moves = [b - a for a, b in pairwise(found) if a != b]
    return sum((a > 0) != (b > 0) for a, b in pairwise(moves))


def network(others: Callable[[int], float], *, copied: bool) -> Host:
    def host(tick: int, rate: int) -> Sample:
        own = min(rate, 100 * M - others(tick))
        return Sample(others(tick) + own, 0.0, Rate(int(own), 0) if copied else None)

    return host


def disk(others: Callable[[int], float]) -> Host:
    """A disk that 80 MB/s keep busy, besides what others take of it."""
    return lambda tick, rate: Sample(0.0, 0.0, Rate(rate, 0), busy=min(1.0, others(tick) + rate / (80 * M)))


def canary(others: Callable[[int], float]) -> Host:
    """A client that waits longer the more is copied."""
    return lambda tick, rate: Sample(
        0.0, 0.0, Rate(rate, 0), latency_ms=10 * others(tick) + 20 * rate / (100 * M)
    )


LISTENING = replace(SETTINGS, latency_limit_ms=15.0)
HOSTS: Mapping[str, tuple[Callable[[Callable[[int], float]], Host], float]] = {
    "network": (lambda load: network(load, copied=True), 30.0 * M),
    "network, own share unknown": (lambda load: network(load, copied=False), 30.0 * M),
    "disk": (disk, 0.3),
    "canary": (canary, 0.3),
}


@pytest.mark.parametrize("name", HOSTS)
def test_under_constant_load_the_rate_comes_to_rest(name: str) -> None:
    host, load = HOSTS[name]
    found = closed_loop(host(lambda _: load), 60, LISTENING)
    assert len(set(found[-30:])) == 1
    assert SETTINGS.floor < found[-1] < 90 * M


@pytest.mark.parametrize("name", HOSTS)
def test_t1_a_load_that_doubles_and_halves_moves_the_rate_once_each_way(name: str) -> None:
    host, load = HOSTS[name]
    found = closed_loop(host(lambda tick: 2 * load if 40 <= tick < 80 else load), 120, LISTENING)
    calm, loaded, again = found[20:40], found[60:80], found[100:]
    assert len(set(calm)) == len(set(loaded)) == len(set(again)) == 1
    assert loaded[0] < calm[0]
    assert again[0] > loaded[0]
    assert turns(found[30:]) == 1, found


def test_it_leaves_clients_their_share_of_the_network() -> None:
    found = closed_loop(network(lambda _: 60.0 * M, copied=True), 40)
    assert found[-1] == 36 * M, "90 % of what others leave"


def test_t1_more_traffic_lowers_the_rate_at_the_next_tick_and_less_raises_it() -> None:
    before = at(30 * M)
    assert decide(MOVING, {1: used(80 * M), 2: IDLE}, SETTINGS, before).rates[1].leader == 18 * M
    up = decide(MOVING, {1: used(20 * M), 2: IDLE}, SETTINGS, before)
    assert up.rates[1].leader == 37_500_000, "a rise is a step of at most 25 %"
    assert why(up, 1) == "other traffic uses 20 MB/s of 100 MB/s"


def test_t8_a_change_below_the_threshold_is_not_sent() -> None:
    found = decide(MOVING, {1: used(69 * M), 2: used(69 * M)}, SETTINGS, at(30 * M))
    assert found.rates == {1: Rate(30 * M, 30 * M), 2: Rate(30 * M, 30 * M)}
    assert found.changed == ()
    assert why(found, 1).endswith("a change below 10% is not sent")


def test_t8_without_figures_the_rate_is_kept_and_then_the_floor_holds_until_they_come_back() -> None:
    settings = replace(SETTINGS, keep_ticks=2)
    state, found = at(30 * M), []
    for seen in ({2: IDLE}, {2: IDLE}, {2: IDLE}, {1: IDLE, 2: IDLE}, {2: IDLE}):
        decision = decide(MOVING, seen, settings, state)
        state = decision.state
        found.append((decision.rates[1].leader, why(decision, 1)))
    assert found == [
        (30 * M, "no load figures for 1 tick: the rate does not change"),
        (30 * M, "no load figures for 2 ticks: the rate does not change"),
        (5 * M, "no load figures for 3 ticks: the rate is the floor"),
        (6_250_000, "other traffic uses 0 B/s of 100 MB/s"),
        (6_250_000, "no load figures for 1 tick: the rate does not change"),
    ]


def test_a_broker_never_seen_begins_at_the_floor() -> None:
    assert decide(MOVING, {}, SETTINGS, NOTHING).rates[1] == Rate(5 * M, 5 * M)


def test_an_override_of_a_broker_wins_over_one_for_all_and_both_over_the_load() -> None:
    wished = Overrides(20 * M, {2: 40 * M})
    found = decide(MOVING, {1: used(90 * M)}, SETTINGS, at(30 * M), wished)
    assert found.rates == {1: Rate(20 * M, 20 * M), 2: Rate(40 * M, 40 * M)}
    assert why(found, 2) == "an operator set 40 MB/s"


@pytest.mark.parametrize(
    ("wish", "rate", "told"),
    [
        (1 * M, 5 * M, "an operator set 1 MB/s; the floor limits the rate to 5 MB/s"),
        (95 * M, 90 * M, "an operator set 95 MB/s; the ceiling limits the rate to 90 MB/s"),
    ],
)
def test_an_override_stays_within_the_bounds_and_says_so(wish: int, rate: int, told: str) -> None:
    found = decide(MOVING, {1: IDLE}, SETTINGS, NOTHING, Overrides(wish))
    assert found.rates[1] == Rate(rate, rate)
    assert why(found, 1) == told


@pytest.mark.parametrize(
    ("load", "told"),
    [
        ({"busy": 0.99}, "its disk is busy 99% of the time (limit 90%), so the rate is lowered"),
        ({"await_ms": 25.0}, "a disk request takes 25 ms (limit 20 ms), so the rate is lowered"),
        ({"latency_ms": 50.0}, "the canary's p99 is 50 ms (limit 40 ms), so the rate is lowered"),
        (
            {"latency_ms": float("inf")},
            "the canary's p99 is too long to measure (limit 40 ms), so the rate is lowered",
        ),
    ],
    ids=["busy", "await", "latency", "no answer"],
)
def test_t7_a_disk_or_client_above_its_limit_lowers_the_rates_of_that_broker_alone(
    load: dict[str, float], told: str
) -> None:
    settings = replace(SETTINGS, await_limit_ms=20.0, latency_limit_ms=40.0)
    found = decide(MOVING, {1: used(0, **load), 2: used(0)}, settings, at(30 * M))
    assert found.rates[1].leader == found.rates[1].follower
    assert 15 * M <= found.rates[1].leader <= 27 * M
    assert found.rates[2].leader > 30 * M
    assert why(found, 1) == told


def test_a_far_too_slow_disk_halves_the_rate_at_most() -> None:
    settings = replace(SETTINGS, await_limit_ms=1.0)
    found = decide(MOVING, {1: used(0, await_ms=500.0), 2: IDLE}, settings, at(30 * M))
    assert found.rates[1].leader == 15 * M


def test_a_slow_down_is_sent_though_it_is_below_the_threshold() -> None:
    settings = replace(SETTINGS, threshold=0.2)
    found = decide(MOVING, {1: used(0, busy=0.91), 2: IDLE}, settings, at(30 * M))
    assert found.rates[1].leader == 27 * M


def test_near_a_limit_the_rate_does_not_rise() -> None:
    found = decide(MOVING, {1: used(0, busy=0.8), 2: IDLE}, SETTINGS, at(30 * M))
    assert found.rates[1].leader == 30 * M
    assert "so the rate does not rise" in why(found, 1)


def test_t10_a_slow_client_first_slows_the_moves_down_and_pauses_them_second() -> None:
    settings = replace(SETTINGS, latency_limit_ms=40.0)
    state, found = at(40 * M), []
    for latency in (50.0, 50.0, 50.0, 39.0, None, 31.0):
        seen = {1: used(0, latency_ms=latency), 2: used(0, latency_ms=1.0)}
        decision = decide(MOVING, seen, settings, state)
        found.append((decision.rates[1].leader, decision.pause))
        state = decision.state
    assert [rate for rate, _ in found[:3]] == [32 * M, 25_600_000, 20_480_000]
    assert [pause for _, pause in found] == [False, False, True, True, True, False]
    assert decision.pauses == ()


def test_a_pause_names_the_broker_and_outlives_missing_figures() -> None:
    settings = replace(SETTINGS, latency_limit_ms=40.0)
    found = decide((), {}, settings, State({}, {}, {1: 3}, {}, paused=True))
    assert found.pause
    assert found.pauses == (
        "broker 1: the canary's p99 was above its limit at 3 ticks, with the rate lowered",
    )


def sending(rate: int) -> State:
    """Broker 1 may send this; what the others receive is no limit."""
    return State({b: Rate(rate if b == 1 else 80 * M, 80 * M) for b in (1, 2, 4)})


def produced(rate: int, copies: tuple[int, ...] = (2,), followers: int = 0) -> tuple[Moving, ...]:
    return (Moving("orders", 3, 1, copies, left=3600 * M, produced=rate, followers=followers),)


def test_t9_a_rate_that_can_never_finish_is_named_before_it_is_set_with_the_one_that_would() -> None:
    settings = replace(SETTINGS, end_within_s=3600.0)
    found = decide(produced(30 * M), {1: used(80 * M), 2: IDLE, 4: IDLE}, settings, sending(20 * M))
    [one] = found.endless
    assert (one.broker, one.role, one.rate) == (1, Role.LEADER, 18 * M)
    assert one.words() == (
        "broker 1 as leader: 18 MB/s can never finish, because clients produce 30 MB/s to the moving "
        "partitions; 31 MB/s would finish in 1.0 h"
    )
    assert found.rates[1].leader == 18 * M, "it is only said"


def test_a_leader_sends_what_is_produced_once_for_each_copy() -> None:
    found = decide(produced(30 * M, (2, 4)), {1: used(45 * M), 2: IDLE, 4: IDLE}, SETTINGS, sending(50 * M))
    assert [(one.broker, one.role, one.produced) for one in found.endless] == [(1, Role.LEADER, 60e6)]
    assert not decide(
        produced(30 * M, (2,)), {1: used(45 * M), 2: IDLE, 4: IDLE}, SETTINGS, sending(50 * M)
    ).endless


def test_followers_in_sync_are_counted_in_the_rate_of_their_leader_alone() -> None:
    """Kafka's own words: both in-sync and out-of-sync replicas are accounted for."""
    load = {1: used(45 * M), 2: IDLE, 4: IDLE}
    state = State({b: Rate(50 * M, 40 * M) for b in (1, 2, 4)})
    found = decide(produced(30 * M, (2,), followers=1), load, SETTINGS, state)
    assert found.rates[2].follower < 60 * M
    assert [(one.broker, one.role, one.produced) for one in found.endless] == [(1, Role.LEADER, 60e6)]


def test_the_rate_is_raised_step_by_step_until_it_ends_where_that_is_asked_for() -> None:
    settings = replace(SETTINGS, end_within_s=3600.0, raise_to_end=True)
    state, found = sending(20 * M), []
    for _ in range(4):
        decision = decide(produced(30 * M), {1: used(80 * M), 2: IDLE, 4: IDLE}, settings, state)
        found.append((decision.rates[1].leader, len(decision.endless)))
        state = decision.state
    assert found == [(25 * M, 1), (31 * M + 1, 0), (31 * M + 1, 0), (31 * M + 1, 0)]
    assert "raised, because 31 MB/s would end in time" in why(decision, 1)


def test_a_rate_is_not_raised_while_its_disk_is_too_slow() -> None:
    settings = replace(SETTINGS, raise_to_end=True)
    found = decide(produced(30 * M), {1: used(80 * M, busy=0.95), 2: IDLE}, settings, sending(30 * M))
    assert found.rates[1].leader < 20 * M
    assert found.endless


def test_more_than_the_ceiling_is_never_given_to_end() -> None:
    settings = replace(SETTINGS, raise_to_end=True)
    found = decide(produced(95 * M), {1: used(0), 2: used(0)}, settings, at(80 * M))
    assert found.rates[1].leader == 90 * M
    assert found.endless[0].words().endswith("would finish in 24.0 h, but it is above the ceiling")


def test_a_small_raise_that_makes_a_rate_end_is_sent() -> None:
    settings = replace(SETTINGS, raise_to_end=True)
    found = decide(produced(30 * M), {1: used(80 * M), 2: IDLE, 4: IDLE}, settings, sending(30 * M))
    assert found.rates[1].leader > 30 * M
    assert not found.endless


@pytest.mark.parametrize("raised", [False, True])
def test_a_replica_that_falls_behind_is_said_and_where_asked_for_its_rate_is_raised(raised: bool) -> None:
    settings = replace(SETTINGS, raise_to_end=raised)
    before = replace(at(30 * M), lags={("orders", 3, 2): 100})
    moving = (replace(MOVING[0], lags={2: 250}),)
    found = decide(moving, {1: IDLE, 2: used(67 * M)}, settings, before)
    assert found.rates[2].follower == (37_500_000 if raised else 30 * M)
    assert "its replica of orders-3 falls behind: 100 messages, now 250" in why(found, 2, Role.FOLLOWER)
    assert "falls behind" not in why(found, 1)
    assert found.state.lags == {("orders", 3, 2): 250}


STEPPED = replace(SETTINGS, steps=tuple(5 * M * 5**n // 4**n for n in range(14)))
"""5, 6.25, 7.8125, 9.765625 MB/s and so on, to 90.9."""


@pytest.mark.parametrize(
    ("before", "others", "rate"),
    [
        (6_250_000, 0.0, 7_812_500),  # rises to the next step
        (6_000_000, 0.0, 6_250_000),  # from between two steps
        (6_000_000, 92.9 * M, 6_000_000),  # 6.39 MB/s would be free: no step is within reach
        (6_250_000, 93.5 * M, 6_250_000),  # 5.85: less than a tenth below
        (7_812_500, 92.5 * M, 6_250_000),  # 6.75: down to the step below
        (7_812_500, 99.0 * M, 5 * M),
    ],
)
def test_computed_rates_take_steps(before: int, others: float, rate: int) -> None:
    found = decide(MOVING, {1: used(others), 2: used(others)}, STEPPED, at(before))
    assert found.rates[1].leader == rate


def test_a_rise_above_a_step_that_reaches_no_other_is_no_fall() -> None:
    far = replace(SETTINGS, steps=(5 * M, 50 * M))
    found = decide(MOVING, {1: used(60 * M), 2: used(60 * M)}, far, at(30 * M))
    assert found.rates[1].leader == 30 * M


def test_a_rate_that_is_raised_to_end_takes_the_step_that_ends() -> None:
    moving = (Moving("orders", 3, 1, (2,), left=100 * M, produced=9.0 * M),)
    stepped = replace(STEPPED, raise_to_end=True, end_within_s=1000.0)
    found = decide(moving, {1: used(93 * M), 2: used(93 * M)}, stepped, at(9_000_000))
    assert found.rates[1].leader == 9_765_625
    assert not found.endless
    low = decide(moving, {1: used(93 * M), 2: used(93 * M)}, STEPPED, at(9_000_000))
    assert [one.role for one in low.endless] == [Role.LEADER, Role.FOLLOWER]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"steps": (6 * M,)}, "Needed: steps that begin with the floor"),
        ({"floor": 999}, "floor 999. Needed: 1000 bytes per second or more"),
        ({"percent": Rate(90, 101)}, "percent (90, 101). Needed: 1 to 100"),
        ({"threshold": 1.0}, "threshold 1.0"),
        ({"threshold": 0.25}, "no increase is ever sent"),
        ({"threshold": float("nan")}, "not a finite number"),
        ({"keep_ticks": -1}, "keep_ticks -1"),
        ({"pause_ticks": 1}, "slowing down comes before pausing"),
        ({"end_within_s": 0.0}, "end_within_s 0.0"),
        ({"busy_limit": 0.0}, "busy_limit 0.0"),
        ({"await_limit_ms": -1.0}, "await_limit_ms -1.0"),
        ({"floor": 91 * M}, "every broker may get at most 90 MB/s as leader. Needed: the floor of 91 MB/s"),
        ({"caps": {7: Rate(100 * M, M)}}, "broker 7 may get at most 900 kB/s as follower. Needed: the floor"),
    ],
)  # fmt: skip
def test_impossible_settings_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        replace(SETTINGS, **wrong)
    assert told in str(refused.value)
    assert "Next: " in str(refused.value)


def test_rates_are_told_with_their_unit() -> None:
    assert [amount(n) for n in (12, 1500, 12_500_000, 2e9)] == ["12 B/s", "1.5 kB/s", "12.5 MB/s", "2 GB/s"]
