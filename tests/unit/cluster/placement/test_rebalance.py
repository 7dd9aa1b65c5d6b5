"""rebalance and scale: the rows R3 to R9, R13, R15, R17, S1 and S2, and the rules that no plan breaks."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from bench import placement, placement_peer
from tests.examples import seeds
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Plan, Refused
from zkmigrate.cluster.placement.rebalance import LEVEL, SWEEP, harmonic_mean, offload_targets, rebalance
from zkmigrate.cluster.placement.request import GIB, MIB, Balance, Rebalance
from zkmigrate.cluster.placement.statistics import lower_bound

CLUSTERS = 400
"""How many random clusters the property is tried on here; ``bench.placement --clusters`` tries more."""


def made(
    seed: int, *, brokers: int = 6, partitions: int = 40, racks: int = 3, rf: int = 2, new: int = 0
) -> Cluster:
    """A skewed cluster: sizes from 0.2 to 40 GiB, different racks in a set where there are enough."""
    chance = random.Random(seed)
    ids = range(1001, 1001 + brokers)
    rack = {broker: f"r{broker % racks}" if racks else "" for broker in range(1001, 1001 + brokers + new)}
    share = {broker: chance.choice((1, 1, 2, 4)) for broker in ids}
    used = dict.fromkeys(ids, 0)
    found = []
    for number in range(partitions):
        size = int(chance.lognormvariate(1, 1.2) * GIB)
        replicas: list[int] = []
        while len(replicas) < rf:
            free = [one for one in ids if one not in replicas]
            apart = [one for one in free if rack[one] not in {rack[other] for other in replicas}]
            among = apart or free
            replicas.append(chance.choices(among, [share[one] for one in among])[0])
        for one in replicas:
            used[one] += size
        rate = round(chance.lognormvariate(0, 1) * 1e6, 1)
        found.append(Partition(f"t{number % 5}", number, tuple(replicas), size, rate))
    disk = int(max(used.values()) * chance.choice((1.02, 1.2, 1.6)))
    old = [Broker(one, rack[one], disk - used[one]) for one in ids]
    return Cluster.of(
        [*old, *(Broker(ids.stop + n, rack[ids.stop + n], disk, True) for n in range(new))], found
    )


def planned(cluster: Cluster, request: Rebalance) -> Plan:
    plan = rebalance(cluster, request)
    assert isinstance(plan, Plan), plan
    return plan


def free_after(plan: Plan) -> dict[int, int]:
    free = {broker.id: broker.free for broker in plan.cluster.brokers.values()}
    for move in plan.moves:
        for broker in move.added:
            free[broker] -= move.size
        for broker in move.dropped:
            free[broker] += move.size
    return free


def spread(plan: Plan) -> tuple[int, float]:
    free = free_after(plan).values()
    return max(free) - min(free), statistics.pstdev(free)


def flat(free: dict[int, int], sizes: dict[int, list[int]], new: tuple[int, ...] = ()) -> Cluster:
    """Brokers with so many free GiB, each alone with partitions of so many GiB."""
    partitions = [
        Partition("t", broker * 100 + number, (broker,), size * GIB)
        for broker, held in sizes.items()
        for number, size in enumerate(held)
    ]
    return Cluster.of([Broker(one, "", gib * GIB, one in new) for one, gib in free.items()], partitions)


def given_and_taken(plan: Plan) -> tuple[set[int], set[int]]:
    return (
        {broker for move in plan.moves for broker in move.dropped},
        {broker for move in plan.moves for broker in move.added},
    )


# --- the rules of every plan


def asked(seed: int) -> tuple[Cluster, Rebalance]:
    """A cluster and a request of a seed."""
    chance = random.Random(seed)
    scale = chance.random() < 0.3
    cluster = made(
        seed,
        brokers=chance.randint(3, 9),
        partitions=chance.randint(1, 40),
        racks=chance.choice((0, 2, 3, 4)),
        rf=chance.randint(1, 3),
        new=chance.randint(1, 3) if scale else chance.choice((0, 0, 1)),
    )
    request = Rebalance(
        scale=scale,
        storage_threshold=chance.choice((0.0, 0.2, 0.4)),
        storage_threshold_gb=chance.choice((0, 0, 0, 50)),
        tolerance=chance.choice((0.0, 0.0, 0.1, 0.5)),
        partition_limit=chance.choice((1, 3, 30)),
        partition_size_threshold=chance.choice((0, 512, 4096)),
        locality_scoped=chance.random() < 0.3,
        balance=chance.choice((Balance.STORAGE, Balance.STORAGE, Balance.RATE, Balance.BOTH)),
        effort=chance.choice((0, 1)),
        any_broker=not scale and chance.random() < 0.5,
    )
    return cluster, request


def broken_rules(seed: int) -> list[str]:
    """What the plan of a seed breaks, told from its moves alone."""
    cluster, request = asked(seed)
    plan = planned(cluster, request)
    rack = {broker.id: broker.rack or str(broker.id) for broker in cluster.brokers.values()}
    sources = set(offload_targets(cluster, tuple(cluster.brokers), request))
    mean = Fraction(sum(broker.free for broker in cluster.brokers.values()), len(cluster.brokers))
    end = free_after(plan)
    found = []
    for move in plan.moves:
        before, after = cluster.by_name[move.name].replicas, move.after
        checks = {
            "not the set before": move.before != before,
            "nothing changes": before == after,
            "a broker twice": len(set(after)) != len(after),
            "another length": len(after) != len(before),
            "a rack lost": len({rack[one] for one in after}) < len({rack[one] for one in before}),
            "a member in another's place": any(
                new != old and new in before for old, new in zip(before, after, strict=True)
            ),
            "an unknown broker": not set(after) <= set(cluster.brokers),
            "too small": move.size < request.partition_size_threshold * MIB,
            "not from a source": not set(move.dropped) <= sources,
            "to a source": not request.any_broker and bool(set(move.added) & sources),
            "to an old broker": request.scale and not all(cluster.brokers[one].new for one in move.added),
            "to another rack": request.locality_scoped
            and any(rack[a] != rack[b] for a, b in zip(before, after, strict=True) if a != b),
        }
        found += [f"{name}: {move}" for name, is_so in checks.items() if is_so]
        if request.tolerance and request.balance is Balance.STORAGE:
            reach = Fraction(request.tolerance) * mean
            for is_so, one, name in (
                *((end[one] > mean + reach, one, "source {} too free") for one in move.dropped),
                *((end[one] < mean - reach, one, "taker {} too full") for one in move.added),
            ):
                # Where any broker moves, one beyond the tolerance may come nearer.
                nearer = abs(end[one] - mean) < abs(cluster.brokers[one].free - mean)
                if is_so and not (request.any_broker and nearer):
                    found.append(name.format(one))
    # In any order: every copy is made before any old one is freed.
    full = {broker.id: broker.free for broker in cluster.brokers.values()}
    for move in plan.moves:
        for one in move.added:
            full[one] -= move.size
    found += [f"broker {one} below 0" for one, free in full.items() if free < 0]
    if request.balance is Balance.STORAGE and spread(plan) > spread(Plan(cluster, ())):
        found.append("a wider range")
    return found


def test_no_plan_breaks_a_rule_of_sets_racks_space_or_options() -> None:
    broken = {seed: rules for seed in seeds(CLUSTERS) if (rules := broken_rules(seed))}
    assert broken == {}
    assert any(planned(*asked(seed)).moves for seed in range(0, CLUSTERS, 10))


# --- the rows


def test_r3_sources_are_below_the_harmonic_mean_by_more_than_the_threshold() -> None:
    free = {1: 100, 2: 200, 3: 400, 4: 400}
    cluster = flat(free, {})
    mean = 4 / (1 / 100 + 1 / 200 + 2 / 400)
    assert harmonic_mean([one * GIB for one in free.values()]) == pytest.approx(mean * GIB)
    assert offload_targets(cluster, (1, 2, 3, 4), Rebalance(storage_threshold=0.2)) == (1,)
    assert offload_targets(cluster, (1, 2, 3, 4), Rebalance(storage_threshold=0.49)) == (1,)
    # As topicmappr does, 0 takes every old broker.
    assert offload_targets(cluster, (1, 2, 3, 4), Rebalance(storage_threshold=0)) == (1, 2, 3, 4)
    # 100 is below 200 by exactly half of it: not by more.
    assert offload_targets(cluster, (1, 2, 3, 4), Rebalance(storage_threshold=0.5)) == ()


def test_r3_a_full_broker_is_a_source() -> None:
    assert offload_targets(flat({1: 0, 2: 300, 3: 400}, {}), (1, 2, 3), Rebalance()) == (1,)


def test_r4_sources_have_fewer_free_gib_and_no_new_broker_is_one() -> None:
    cluster = flat({1: 99, 2: 100, 3: 50, 4: 90}, {}, new=(4,))
    request = Rebalance(storage_threshold=0.9, storage_threshold_gb=100)
    assert offload_targets(cluster, (1, 2, 3, 4), request) == (1, 3)


def test_r5_no_move_takes_a_broker_beyond_the_tolerance() -> None:
    cluster = flat({1: 100, 2: 300}, {1: [60, 90]})
    # The mean is 200: with 60 moved both stand 40 from it, with 90 moved 10.
    assert [move.size // GIB for move in planned(cluster, Rebalance(tolerance=0.5)).moves] == [90]
    # The mean is 200. Moved, 130 leave source and taker at 230 here, and both at 170 there.
    for free in ({1: 100, 2: 360, 3: 140}, {1: 40, 2: 260, 3: 300}):
        one = flat(free, {1: [130]})
        assert planned(one, Rebalance(tolerance=0.1)).moves == ()
        assert planned(one, Rebalance(tolerance=0.2)).moves != ()


@pytest.mark.parametrize("seed", seeds(6))
def test_r6_tolerance_0_is_as_good_as_the_best_of_98_values(seed: int) -> None:
    cluster = made(seed, new=seed % 2)
    request = Rebalance(scale=bool(seed % 2), effort=1000)
    mean = sum(broker.free for broker in cluster.brokers.values()) / len(cluster.brokers)
    best = min(spread(planned(cluster, replace(request, tolerance=value))) for value in SWEEP)
    found = spread(planned(cluster, request))
    assert found <= best or found[0] <= 0.02 * mean


def test_r6_the_sweep_has_98_values() -> None:
    assert sorted(SWEEP) == [n / 100 for n in range(1, 99)]


def test_r6_a_narrower_tolerance_may_lead_to_a_better_plan_and_is_tried() -> None:
    assert any(
        spread(planned(made(seed), Rebalance(effort=1000)))
        < spread(planned(made(seed), Rebalance(tolerance=SWEEP[0])))
        for seed in range(30)
    )


def test_r7_only_the_largest_partitions_that_are_left_are_offered() -> None:
    cluster = flat({1: 100, 2: 200}, {1: [70, 40, 30, 20]})
    # The mean is 150. Two offers: 70 and 40, then 30 too.
    sizes = [move.size // GIB for move in planned(cluster, Rebalance(partition_limit=1)).moves]
    assert sizes == [70]
    sizes = [move.size // GIB for move in planned(cluster, Rebalance(partition_limit=2)).moves]
    assert sizes == [40]
    sizes = [move.size // GIB for move in planned(cluster, Rebalance(partition_limit=4)).moves]
    assert sizes == [30, 20]


@pytest.mark.parametrize("seed", seeds(40))
def test_r7_each_source_could_have_given_its_replicas_pass_by_pass(seed: int) -> None:
    cluster = made(seed)
    limit = 1 + seed % 4
    plan = planned(cluster, Rebalance(partition_limit=limit, storage_threshold=0.1, effort=0))
    least = Rebalance().partition_size_threshold * MIB
    for source in given_and_taken(plan)[0]:
        held = [one for one in cluster.partitions if source in one.replicas and (one.size or 0) >= least]
        held.sort(key=lambda one: one.size or 0, reverse=True)
        gone = {move.name for move in plan.moves if source in move.dropped}
        for place, one in enumerate(held):
            if one.name in gone:
                assert sum(other.name not in gone for other in held[:place]) < limit


def test_r8_no_smaller_partition_moves() -> None:
    cluster = flat({1: 100, 2: 200}, {1: [10] * 5})
    assert len(planned(cluster, Rebalance(partition_size_threshold=10 * 1024)).moves) == 5
    assert planned(cluster, Rebalance(partition_size_threshold=10 * 1024 + 1)).moves == ()


def test_r9_a_replica_stays_in_its_rack_and_no_set_names_a_broker_twice() -> None:
    moved = 0
    for seed in seeds(40):
        cluster = made(seed, brokers=8, racks=2, rf=3)
        plan = planned(cluster, Rebalance(locality_scoped=True, effort=0))
        for move in plan.moves:
            moved += 1
            assert len(set(move.after)) == 3
            for old, new in zip(move.before, move.after, strict=True):
                assert cluster.rack(old) == cluster.rack(new)
    assert moved > 40


def test_r13_a_partition_whose_set_stays_is_not_in_the_plan() -> None:
    plan = planned(made(1), Rebalance())
    assert 0 < len(plan.moves) < len(plan.cluster.partitions)
    assert all(move.before != move.after for move in plan.moves)


def test_r15_a_plan_that_widens_the_range_of_free_bytes_says_that_it_refuses() -> None:
    partitions = [
        Partition("hot", 0, (1,), 50 * GIB, 1e6),
        Partition("hot", 1, (1,), 50 * GIB, 1e6),
        Partition("cold", 0, (2,), GIB, 0.0),
    ]
    cluster = Cluster.of([Broker(1, "", 200 * GIB), Broker(2, "", 150 * GIB)], partitions)
    plan = planned(cluster, Rebalance(balance=Balance.RATE))
    assert [move.after for move in plan.moves] == [(2,)]
    (notice,) = (one for one in plan.notices if one.refuses)
    assert notice.id == "placement.worse-range"
    assert notice.refuses
    assert str(50 * GIB) in notice.text
    assert str(150 * GIB) in notice.text


def test_r15_a_plan_that_narrows_it_says_nothing() -> None:
    assert planned(made(1), Rebalance()).notices == ()


def test_r17_the_same_input_gives_the_same_plan_in_any_process_and_order() -> None:
    cluster = made(3, new=2)
    shuffled = Cluster.of([*cluster.brokers.values()][::-1], cluster.partitions[::-1])
    plan = planned(cluster, Rebalance(scale=True))
    assert planned(shuffled, Rebalance(scale=True)).moves == plan.moves
    code = (
        "from tests.unit.cluster.placement.test_rebalance import *;"
        "print(planned(made(3, new=2), Rebalance(scale=True)).moves)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[4],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {repr(plan.moves)}


def test_s1_scale_requires_additional_brokers() -> None:
    refused = rebalance(made(1), Rebalance(scale=True))
    assert isinstance(refused, Refused)
    assert "requires additional brokers" in refused.reasons[0].text
    assert refused.reasons[0].id == "placement.no-new-broker"


def test_s2_every_old_broker_is_a_source_and_only_new_ones_take() -> None:
    cluster = made(2, new=2)
    request = Rebalance(scale=True, storage_threshold=0.9, storage_threshold_gb=1)
    assert offload_targets(cluster, tuple(cluster.brokers), request) == tuple(range(1001, 1007))
    gave, took = given_and_taken(planned(cluster, request))
    assert gave <= set(range(1001, 1007))
    assert took == {1007, 1008}


# --- any broker


def test_any_broker_both_gives_and_takes_and_narrows_what_the_thresholds_cannot() -> None:
    cluster = flat({1: 100, 2: 300, 3: 180}, {1: [60, 50], 3: [30, 9]})
    assert "broker 3 has the least free space" in planned(cluster, Rebalance()).limited
    plan = planned(cluster, Rebalance(any_broker=True))
    assert spread(plan)[0] < spread(planned(cluster, Rebalance()))[0]
    assert 3 in given_and_taken(plan)[0]
    both = set.intersection(
        *given_and_taken(planned(made(1, brokers=9, racks=0), Rebalance(any_broker=True)))
    )
    assert both


def test_a_broker_has_no_room_for_what_it_takes_from_what_it_gives() -> None:
    # Broker 2 has 10 free: it would have to give 30 first. Old copies count until the new ones are in sync.
    cluster = flat({1: 100, 2: 10, 3: 130}, {1: [30], 2: [60]})
    plan = planned(cluster, Rebalance(any_broker=True))
    assert plan.moves
    assert all(2 not in move.added for move in plan.moves)


@pytest.mark.parametrize("seed", seeds(12))
def test_any_broker_comes_near_the_bytes_that_every_plan_needs(seed: int) -> None:
    cluster = made(seed, brokers=9, partitions=120, racks=(0, 3, 9)[seed % 3])
    plan = planned(cluster, Rebalance(any_broker=True, partition_size_threshold=0, partition_limit=10**9))
    free = [broker.free for broker in cluster.brokers.values()]
    assert plan.bytes <= 1.10 * lower_bound(free, spread(plan)[0])


def test_a_cheap_level_answer_ends_the_sweep() -> None:
    cluster = made(1, brokers=9, partitions=120, racks=0)
    plan = planned(cluster, Rebalance(any_broker=True, partition_size_threshold=0, effort=0))
    assert plan.limited == "the range is within 2% of the mean, so further copies would not help"


# --- what is spread, what limits


def test_rates_are_spread_where_they_are_asked_for() -> None:
    partitions = [Partition("t", n, (1,), GIB, 1e6 * (n + 1)) for n in range(4)]
    cluster = Cluster.of([Broker(1, "", 100 * GIB), Broker(2, "", 90 * GIB)], partitions)
    plan = planned(cluster, Rebalance(balance=Balance.RATE))
    assert sum(cluster.by_name[move.name].rate or 0 for move in plan.moves) == 5e6
    assert planned(cluster, Rebalance()).moves == ()


def test_both_spreads_the_sum_of_both_shares() -> None:
    # Broker 1 holds all of the rate, broker 2 has the fewest free bytes.
    partitions = [Partition("t", n, (1,), GIB, 1e6) for n in range(4)]
    partitions += [Partition("u", n, (2,), 10 * GIB, 0.0) for n in range(4)]
    cluster = Cluster.of(
        [Broker(1, "", 100 * GIB), Broker(2, "", 60 * GIB), Broker(3, "", 100 * GIB)], partitions
    )
    plan = planned(cluster, Rebalance(balance=Balance.BOTH))
    assert {move.topic for move in plan.moves} == {"t"}
    assert {move.after for move in plan.moves} == {(2,), (3,)} or {move.after for move in plan.moves} == {
        (3,)
    }


def test_a_partition_without_a_rate_refuses_to_spread_rates() -> None:
    cluster = Cluster.of([Broker(1, "", 1), Broker(2, "", 9)], [Partition("t", 7, (1,), 1)])
    refused = rebalance(cluster, Rebalance(balance=Balance.BOTH))
    assert isinstance(refused, Refused)
    assert "t-7" in refused.reasons[0].text
    assert isinstance(rebalance(cluster, Rebalance()), Plan)


def test_a_source_finds_the_taker_of_its_rack_behind_many_with_more_room_in_another() -> None:
    brokers = [Broker(1, "a", 100 * GIB), Broker(2, "a", 300 * GIB)]
    brokers += [Broker(one, "b", 400 * GIB) for one in range(11, 31)]
    sets = [Partition("t", number, (1, 11 + number), 90 * GIB) for number in range(2)]
    (move,) = planned(Cluster.of(brokers, sets), Rebalance()).moves
    assert move.after[0] == 2


@pytest.mark.parametrize(
    "bad",
    [
        Partition("t", 9, (1001, 99), GIB),
        Partition("t", 9, (1001, 1002), None),
    ],
)
def test_r11_x13_a_gone_broker_and_a_missing_size_are_refused(bad: Partition) -> None:
    good = made(1)
    found = rebalance(Cluster.of(good.brokers.values(), [*good.partitions, bad]), Rebalance())
    assert isinstance(found, Refused)


@pytest.mark.parametrize(
    ("cluster", "request_", "limited"),
    [
        (flat({1: 100, 2: 100}, {1: [1]}), Rebalance(), "no chosen broker is a source"),
        (flat({1: 1, 2: 1}, {1: [1]}), Rebalance(storage_threshold_gb=2), "every chosen broker is a source"),
        (flat({1: 100, 2: 300}, {1: [100]}), Rebalance(), "the range is within 2% of the mean"),
        (flat({1: 100, 2: 300, 3: 180}, {1: [60, 50]}), Rebalance(), "broker 3 has the least free space"),
        (flat({1: 300, 2: 310}, {1: [5, 5]}, new=(2,)), Rebalance(scale=True), "the range is within"),
        (
            flat({1: 100, 2: 500, 3: 200}, {1: [50, 50, 20]}, new=(3,)),
            Rebalance(scale=True),
            "broker 2 has the most free space; it is an old broker",
        ),
        (
            flat({1: 100, 2: 200}, {1: [1] * 9}),
            Rebalance(partition_size_threshold=4096, tolerance=0.5),
            "partition-size-threshold 4096 MiB, partition-limit 30, tolerance 0.5",
        ),
        (
            flat({1: 100, 2: 200}, {1: [1] * 9}),
            Rebalance(locality_scoped=True),
            "locality-scoped",
        ),
    ],
)
def test_a_plan_says_what_limited_it(cluster: Cluster, request_: Rebalance, limited: str) -> None:
    assert limited in planned(cluster, request_).limited


def test_a_plan_says_that_its_effort_ended_the_search() -> None:
    cluster = made(4, new=2)
    assert "effort 0 ended the search" in planned(cluster, Rebalance(scale=True, effort=0)).limited
    assert "ended the search" not in planned(cluster, Rebalance(scale=True, effort=1000)).limited


def test_the_fullest_broker_is_relieved_first_by_its_largest_replica() -> None:
    cluster = flat({1: 100, 2: 60, 3: 900, 4: 900}, {1: [90, 80, 70, 60], 2: [90, 80, 70, 60]})
    plan = planned(cluster, Rebalance(storage_threshold=0.01))
    firsts = [(cluster.brokers[move.before[0]].free, -move.size) for move in plan.moves]
    assert firsts == sorted(firsts)
    assert len({move.before for move in plan.moves}) == 2


@pytest.mark.parametrize("seed", seeds(12))
@pytest.mark.parametrize("scale", [False, True])
def test_max_bytes_is_kept_and_no_range_is_wider_than_topicmappr_reaches(seed: int, scale: bool) -> None:
    """Wider than 2 % of the mean, that is: such a range is level."""
    cluster = made(seed, brokers=8, partitions=60, new=2 * scale)
    asked_for = Rebalance(scale=scale, storage_threshold=(1 + seed % 3) / 10, partition_size_threshold=0)
    peer = placement_peer.planned(cluster, asked_for)
    for limit in (peer.moved // 3, peer.moved):
        plan = planned(cluster, replace(asked_for, max_bytes=limit))
        assert plan.bytes <= limit
    level = int(LEVEL * sum(cluster.free.values()) / len(cluster.free))
    assert spread(plan)[0] <= max(peer.range, level)


def test_topicmappr_s_own_choice_of_moves_is_compared_where_bytes_are_limited() -> None:
    """Without it this range is 0.3 % wider than topicmappr's."""
    cluster = placement.made(0)
    peer = placement_peer.planned(cluster, Rebalance())
    plan = planned(cluster, Rebalance(max_bytes=peer.moved))
    assert plan.bytes <= peer.moved
    assert spread(plan)[0] <= peer.range


def test_fewer_bytes_than_the_plan_would_move_give_a_plan_between() -> None:
    cluster = made(3, brokers=8, partitions=60, new=2)
    request = Rebalance(scale=True, partition_size_threshold=0)
    whole = planned(cluster, request)
    half = planned(cluster, replace(request, max_bytes=whole.bytes // 2))
    none = planned(cluster, replace(request, max_bytes=0))
    assert none.moves == ()
    assert "max-bytes 0" in none.limited
    assert 0 < half.bytes <= whole.bytes // 2
    assert spread(whole) < spread(half) < spread(none)


def test_a_set_that_a_program_makes_longer_is_counted(tmp_path: Path) -> None:
    cluster = Cluster.of([Broker(n, "", 9) for n in (1, 2)], [Partition("t", n, (1,), 1) for n in (0, 1)])
    entries = [{"topic": "t", "partition": n, "replicas": [1, 2][: 2 - n]} for n in (0, 1)]
    written = tmp_path / "plan.json"
    written.write_text(json.dumps({"version": 1, "partitions": entries}))
    found = placement_peer.judged(cluster, 0, "", written)
    assert (found.long, found.sets, found.moved) == (1, 1, 1)
