"""B12, B14, B17: a plan cut into maps, none of which breaks a rule that no plan breaks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.examples import seeds
from tests.unit.cluster.placement.random_clusters import random_cluster
from zkmigrate.cluster.placement.check import faults
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.phases import cut
from zkmigrate.cluster.placement.plan import Plan, Reassignment, Refused
from zkmigrate.cluster.placement.planner import planned
from zkmigrate.cluster.placement.request import Choice, Rebuild, Rollout

Sets = dict[tuple[str, int], tuple[int, ...]]


def plan_of(*wanted: tuple[Sequence[int], Sequence[int]], racks: str = "", free: int = 100) -> Plan:
    """Partitions t-0, t-1, … of 1 byte. racks: one letter each for brokers 1, 2, …"""
    ids = sorted({broker for pair in wanted for replicas in pair for broker in replicas})
    brokers = (Broker(b, racks[b - 1] if racks else "", free) for b in ids)
    cluster = Cluster.of(brokers, (Partition("t", n, tuple(old), 1) for n, (old, _) in enumerate(wanted)))
    moves = (Reassignment("t", n, tuple(old), tuple(new), 1) for n, (old, new) in enumerate(wanted))
    return Plan(cluster, tuple(move for move in moves if move.before != move.after))


def maps_of(plan: Plan | Refused) -> list[Sets]:
    assert not isinstance(plan, Refused)
    return [{move.name: move.after for move in one} for one in plan.phases or (plan.moves,)]


def steps(plan: Plan | Refused, number: int = 0) -> list[tuple[int, ...]]:
    """The sets of t-number in the maps that name it."""
    return [one["t", number] for one in maps_of(plan) if ("t", number) in one]


def texts(refused: Plan | Refused) -> list[str]:
    assert isinstance(refused, Refused)
    return [reason.text for reason in refused.reasons]


def test_b12_the_old_leader_stays_preferred_in_the_first_of_two_maps() -> None:
    plan = plan_of(([1, 2, 3], [4, 5, 6]), ([1, 2, 3], [1, 4, 2]), ([1, 2], [2, 1]), ([1, 2, 3], [2, 4, 1]))
    first, second = maps_of(cut(plan, Rollout(phased=True)))
    assert first == {("t", 0): (1, 4, 5, 6), ("t", 1): (1, 4, 2), ("t", 3): (1, 2, 4)}
    assert second == {("t", 0): (4, 5, 6), ("t", 2): (2, 1), ("t", 3): (2, 4, 1)}


def test_b12_a_gone_leader_is_not_kept() -> None:
    plan = plan_of(([1, 2], [3, 4]))
    gone = {broker.id: broker for broker in plan.cluster.brokers.values() if broker.id != 1}
    cluster = replace(plan.cluster, brokers=gone)
    assert steps(cut(replace(plan, cluster=cluster), Rollout(phased=True))) == [(3, 4)]


def test_b12_the_kept_leader_needs_its_room_in_the_first_map() -> None:
    """1 has lost its copy of t-0 only after the second map, so t-1 finds no room there in the first."""
    plan = plan_of(([1], [2]), ([2], [1]), free=0)
    brokers = {1: Broker(1, "", 0), 2: Broker(2, "", 1)}
    plan = replace(plan, cluster=replace(plan.cluster, brokers=brokers))
    assert not isinstance(cut(plan, Rollout()), Refused)
    (text,) = texts(cut(plan, Rollout(phased=True)))
    assert text.startswith("reassignment 1 of 2: broker 1 is 1 bytes short after all moves")


def test_b14_chunks_go_from_the_highest_source_broker_down() -> None:
    plan = plan_of(([1, 9], [2, 9]), ([3, 9], [4, 9]), ([5, 9], [6, 9]), ([9, 1], [1, 9]))
    assert maps_of(cut(plan, Rollout(chunk_step_size=2))) == [
        {("t", 1): (4, 9), ("t", 2): (6, 9)},
        {("t", 0): (2, 9), ("t", 3): (1, 9)},
    ]


def test_b14_a_new_broker_in_the_place_of_one_that_stays_is_not_named_twice() -> None:
    """By places, 3 would be replaced by 2, which the set still holds: [2, 2, 1]."""
    plan = plan_of(([3, 2, 1], [2, 4, 1]), ([5], [6]))
    assert steps(cut(plan, Rollout(chunk_step_size=1))) == [(2, 4, 1)]
    plan = plan_of(([3, 2, 1], [1, 5, 4]))
    assert steps(cut(plan, Rollout(chunk_step_size=1))) == [(1, 5, 2), (1, 5, 4)]


def test_b14_a_new_broker_of_a_further_rack_comes_before_one_that_would_lose_a_rack() -> None:
    """4 stands in the rack of 2: with it in the place of 3, a rack would be lost."""
    plan = plan_of(([3, 2, 1], [1, 4, 5]), racks="abcbc")
    assert steps(cut(plan, Rollout(chunk_step_size=1))) == [(1, 5, 2), (1, 4, 5)]


def test_b14_no_set_is_shorter_than_asked_on_its_way() -> None:
    grows = plan_of(([3, 2], [4, 5, 6]))
    assert steps(cut(grows, Rollout(chunk_step_size=1))) == [(4, 2, 5), (4, 5, 6)]
    shrinks = plan_of(([5, 3, 1], [4, 2]))
    assert steps(cut(shrinks, Rollout(chunk_step_size=1))) == [(4, 3, 1), (4, 2, 1), (4, 2)]
    only_grows = plan_of(([3, 2], [3, 2, 1]), ([3], [1]), ([2], [1]))
    assert [len(one) for one in maps_of(cut(only_grows, Rollout(chunk_step_size=1)))] == [1, 2]


def test_b14_a_plan_of_few_sources_stays_one_map() -> None:
    plan = cut(plan_of(([1], [2]), ([3], [4])), Rollout(chunk_step_size=2))
    assert not isinstance(plan, Refused)
    assert plan.phases == ()
    assert len(plan.moves) == 2


def test_b13_half_an_evacuation_and_one_without_a_way_are_refused() -> None:
    plan = plan_of(([1, 2], [3, 2]))
    half = cut(plan, Rollout(leader_evac_brokers=(1,)))
    assert texts(half) == ["leader-evac-brokers is given without leader-evac-topics; needed: both or neither"]
    nobody = cut(plan, Rollout(leader_evac_brokers=(3, 2), leader_evac_topics=("t",)))
    assert texts(nobody) == ["t-0 has no broker that may lead it: [3, 2]; evacuated: [2, 3]"]


def test_b13_an_evacuation_that_names_no_topic_is_told() -> None:
    plan = cut(plan_of(([1], [2])), Rollout(leader_evac_brokers=(1,), leader_evac_topics=("u",)))
    assert not isinstance(plan, Refused)
    assert [notice.id for notice in plan.notices] == ["placement.evacuation-nothing"]


def test_b13_partitions_that_were_not_chosen_keep_their_leaders() -> None:
    plan = plan_of(([1, 2], [1, 2]), ([1, 2], [1, 2]))
    evacuation = Rollout(leader_evac_brokers=(1,), leader_evac_topics=("t",))
    assert maps_of(cut(plan, evacuation, [("t", 1)])) == [{("t", 1): (2, 1)}]
    assert maps_of(cut(plan, evacuation)) == [{("t", 0): (2, 1), ("t", 1): (2, 1)}]


def test_b17_phases_keep_no_evacuated_leader() -> None:
    plan = plan_of(([1, 2], [3, 2]), ([4, 2], [3, 2]))
    evacuation = Rollout(phased=True, leader_evac_brokers=(1,), leader_evac_topics=("t",))
    assert steps(cut(plan, evacuation)) == [(3, 2)]
    assert steps(cut(plan, evacuation), 1) == [(4, 3, 2), (3, 2)]


def test_b17_chunks_find_another_new_broker_where_an_evacuated_one_would_lead() -> None:
    """5 alone may lead; by its place 4 would come first."""
    plan = plan_of(([3, 2], [5, 4]))
    evacuation = Rollout(chunk_step_size=1, leader_evac_brokers=(2, 4), leader_evac_topics=("t",))
    assert steps(cut(plan, evacuation)) == [(5, 2), (5, 4)]
    plan = plan_of(([3, 2], [4, 5]))
    assert steps(cut(plan, evacuation)) == [(5, 2), (5, 4)]


def test_b17_chunks_that_cannot_keep_the_racks_and_the_evacuation_are_refused() -> None:
    """3 leaves first, and only 4 brings its rack; 4 and 2 must not lead."""
    plan = plan_of(([3, 2], [5, 4]), racks="abccb")
    evacuation = Rollout(chunk_step_size=1, leader_evac_brokers=(2, 4), leader_evac_topics=("t",))
    assert texts(cut(plan, evacuation)) == [
        "t-0 goes from [3, 2] to [5, 4]; on its way in chunks of 1 it would lose a rack or be led by an "
        "evacuated broker"
    ]


def test_r10_leaders_are_spread_within_the_plan_and_no_byte_more_is_moved() -> None:
    plan = plan_of(([1, 2], [1, 3]), ([1, 2], [1, 2]), ([1, 3], [1, 3]))
    spread = cut(plan, Rollout(optimize_leadership=True))
    assert not isinstance(spread, Refused)
    assert spread.bytes == plan.bytes == 1
    led = Counter(replicas[0] for replicas in final(plan, spread).values())
    assert sorted(led.values()) == [1, 1, 1]


def test_r17_one_plan_gives_one_answer() -> None:
    plan = random_plan(5)
    rollout = Rollout(True, True, (), (), 1)
    assert cut(plan, rollout) == cut(plan, rollout)


def final(plan: Plan, done: Plan) -> Sets:
    state = {partition.name: partition.replicas for partition in plan.cluster.partitions}
    for one in maps_of(done):
        state.update(one)
    return state


def random_plan(seed: int, replication: int = 0) -> Plan:
    """New sets of a random cluster that keep the racks; every third cluster has little room."""
    chance = random.Random(seed)
    cluster = random_cluster(
        seed, partitions=1 + seed % 9, new=seed % 2, gone=seed % 5 == 0, room=9.0 if seed % 3 else None
    )
    ids = sorted(cluster.brokers)
    moves = []
    for partition in cluster.partitions:
        length = min(replication or len(partition.replicas), len(ids))
        for _ in range(20):
            new = tuple(chance.sample(ids, length))
            if cluster.racks(new) >= min(cluster.racks(partition.replicas), length) and chance.random() < 0.8:
                if new != partition.replicas:
                    moves.append(Reassignment(*partition.name, partition.replicas, new, partition.size or 0))
                break
    return Plan(cluster, tuple(moves))


@pytest.mark.parametrize("replication", [0, 2, 3])
def test_b17_no_map_of_any_rollout_breaks_a_rule(replication: int) -> None:
    """Random clusters over three lengths: each map, by the independent checker, and the end."""
    seen: Counter[str] = Counter()
    for seed in (replication * 10_000 + one for one in seeds(2000)):
        chance = random.Random(seed)
        plan = random_plan(seed, replication)
        ids = sorted(plan.cluster.brokers)
        topics = sorted({partition.topic for partition in plan.cluster.partitions})
        evacuates = chance.random() < 0.4
        rollout = Rollout(
            optimize_leadership=chance.random() < 0.5,
            phased=chance.random() < 0.5,
            leader_evac_brokers=tuple(chance.sample(ids, 1)) if evacuates else (),
            leader_evac_topics=tuple(chance.sample(topics, 1)) if evacuates else (),
            chunk_step_size=chance.choice((0, 1, 1, 2, 3)),
        )
        names = [move.name for move in plan.moves]
        done = cut(plan, rollout, names)
        if isinstance(done, Refused):
            seen.update({reason.id for reason in done.reasons})
            continue
        seen["cut"] += 1
        maps = maps_of(done)
        seen["several maps"] += len(maps) > 1
        away = {topic: frozenset(rollout.leader_evac_brokers) for topic in rollout.leader_evac_topics}
        lengths = {move.name: len(move.after) for move in plan.moves}
        for length in set(lengths.values()):
            some = [{name: to for name, to in one.items() if lengths[name] == length} for one in maps]
            wrong = faults(plan.cluster, some, replication=length, away=away)
            assert not [text for text in wrong if "bytes short" not in text], (seed, rollout, wrong)
        wrong = faults(plan.cluster, maps)
        assert not [text for text in wrong if "bytes short" in text], (seed, rollout, wrong)
        wanted = {partition.name: set(partition.replicas) for partition in plan.cluster.partitions}
        wanted |= {move.name: set(move.after) for move in plan.moves}
        end = final(plan, done)
        assert {name: set(replicas) for name, replicas in end.items()} == wanted, seed
        assert {move.name: move.after for move in done.moves}.items() <= end.items(), seed
        if not rollout.optimize_leadership and not evacuates:
            assert all(end[move.name] == move.after for move in plan.moves), seed
        if step := rollout.chunk_step_size:
            sources = sorted({broker for move in plan.moves for broker in move.dropped}, reverse=True)
            turn_of = {broker: place // step for place, broker in enumerate(sources)}
            turns = [{turn_of[broker] for move in one for broker in move.dropped} for one in done.phases]
            assert all(len(one) <= 1 for one in turns), (seed, turns)
            flat = [turn for one in turns for turn in one]
            assert flat == sorted(flat), (seed, turns)
    assert seen["cut"] > len(seeds(1000)), seen
    assert seen["several maps"] > len(seeds(400)), seen


def test_the_plan_beside_its_phases_has_room_on_its_own() -> None:
    """Its moves end in another order than that of the phases."""
    cluster = random_cluster(108, new=1, gone=1, dirs=2, room=0.05)
    request = Rebuild(Choice(brokers=(-2,)), Rollout(phased=True), effort=0, force_rebuild=True)
    plan = planned(cluster, request)
    assert not isinstance(plan, Refused)
    assert len(plan.phases) == 2
    assert faults(cluster, [{move.name: move.after for move in plan.moves}]) == ()


@pytest.mark.parametrize(("free", "told"), [(0, ["placement.phases-only"]), (10, [])])
def test_a_plan_with_room_in_phases_alone_is_told(free: int, told: list[str]) -> None:
    """t-0 leaves broker 9 for 7, then t-1 takes its room there, then t-0 takes that of t-1 on 5."""
    brokers = [Broker(1, "", 0), Broker(5, "", free), Broker(7, "", 10), Broker(9, "", 0)]
    cluster = Cluster.of(brokers, [Partition("t", 0, (1, 9), 10), Partition("t", 1, (5,), 10)])
    moves = Reassignment("t", 0, (1, 9), (7, 5), 10), Reassignment("t", 1, (5,), (9,), 10)
    plan = cut(Plan(cluster, moves), Rollout(chunk_step_size=1))
    assert not isinstance(plan, Refused)
    assert faults(cluster, maps_of(plan)) == ()
    assert [one.id for one in plan.notices] == told
