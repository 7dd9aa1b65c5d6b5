"""Rebuild: where replicas go when brokers leave, sets grow or shrink, or all are placed anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations, product

import pytest

from tests.examples import seeds
from tests.unit.cluster.placement.random_clusters import random_cluster
from zkmigrate.cluster.placement.check import faults
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.constraints import racks_needed
from zkmigrate.cluster.placement.plan import Plan, Refused
from zkmigrate.cluster.placement.rebuild import rebuild
from zkmigrate.cluster.placement.request import MAPPED, REGISTERED, By, Choice, Optimize, Rebuild

COUNT, STORAGE = By.COUNT, By.STORAGE
Sets = dict[int, tuple[int, ...]]


def cluster(racks: str, *sets: tuple[int, ...], size: int = 10, free: int = 1000, gone: str = "") -> Cluster:
    """Brokers 1, 2, … in the racks that letters name, and one topic. gone: those that are not registered."""
    return Cluster.of(
        [
            Broker(number, rack.strip("-"), free)
            for number, rack in enumerate(racks, 1)
            if str(number) not in gone
        ],
        [Partition("t", number, replicas, size) for number, replicas in enumerate(sets)],
    )


def sized(racks: str, free: Iterable[int], sets: Iterable[tuple[int, tuple[int, ...]]]) -> Cluster:
    """The same with free bytes of each broker and the size of each partition."""
    return Cluster.of(
        [Broker(number, rack, left) for number, (rack, left) in enumerate(zip(racks, free, strict=True), 1)],
        [Partition("t", number, replicas, size) for number, (size, replicas) in enumerate(sets)],
    )


def on(*brokers: int) -> Choice:
    return Choice(brokers=brokers)


def planned(seen: Cluster, request: Rebuild) -> tuple[Plan, Sets]:
    """The plan, which keeps every rule, and all sets after it."""
    plan = rebuild(seen, request)
    assert isinstance(plan, Plan), plan
    assert kept_rules(seen, plan, request)
    sets = {one.number: one.replicas for one in seen.partitions}
    return plan, sets | {move.number: move.after for move in plan.moves}


def kept_rules(seen: Cluster, plan: Plan, request: Rebuild) -> bool:
    maps = [{move.name: move.after} for move in plan.moves]
    wrong = faults(seen, maps, replication=request.replication)
    wrong += tuple(
        text for move in plan.moves if (text := broken(seen, move.before, move.after, len(move.after)))
    )
    assert wrong == ()
    assert all(move.after != move.before for move in plan.moves)
    return True


def broken(cluster: Cluster, before: Sequence[int], after: Sequence[int], length: int) -> str:
    """The first rule that ``after`` breaks in place of ``before``, or the empty text.

    length: how many replicas are asked for. A set holds each broker once, has the asked length, names
    registered brokers where it is new, and spans as many racks as before.
    """
    if len(set(after)) != len(after):
        return f"{list(after)} names a broker twice"
    if len(after) != length:
        return f"{list(after)} has {len(after)} replicas; needed: {length}"
    unknown = [broker for broker in after if broker not in before and broker not in cluster.brokers]
    if unknown:
        return f"{list(after)} names broker {unknown[0]}, which is not registered"
    needed = racks_needed(cluster, before, length)
    if cluster.racks(after) < needed:
        return f"{list(after)} spans {cluster.racks(after)} racks; needed: {needed}, as before"
    return ""


def refused(seen: Cluster, request: Rebuild) -> dict[str, str]:
    answer = rebuild(seen, request)
    assert isinstance(answer, Refused), answer
    return {reason.id: reason.text for reason in answer.reasons}


def counts(seen: Cluster, sets: Sets) -> list[int]:
    return [sum(broker in replicas for replicas in sets.values()) for broker in seen.brokers]


# What a plan is about


def test_b1_partitions_by_name_plan_as_their_topics_do() -> None:
    seen = random_cluster(7, brokers=6, partitions=20, racks=3, rf=2, room=2.0)
    topics = ("t0", "t1")
    names = frozenset(one.name for one in seen.partitions if one.topic in topics)
    brokers = (1001, 1002, 1003, 1004, 1005)
    by_topic = rebuild(seen, Rebuild(Choice(topics, brokers=brokers)))
    assert rebuild(seen, Rebuild(Choice(brokers=brokers, partitions=names))) == by_topic
    assert isinstance(by_topic, Plan)
    assert by_topic.moves


def test_b2_without_meta_racks_count_for_nothing_but_none_is_lost() -> None:
    seen = cluster("aab", (1, 2), (1, 3), gone="2")
    assert "placement.few-racks" in refused(cluster("aa", (1,)), Rebuild(on(1, 2), replication=2))
    _, sets = planned(cluster("aab", (1,)), Rebuild(on(1, 2), use_meta=False, replication=2))
    assert set(sets[0]) == {1, 2}
    _, sets = planned(seen, Rebuild(on(1, 3), use_meta=False))
    assert sets[0] == (1, 3)


def test_b8_more_racks_than_there_are_cannot_be_asked_for() -> None:
    seen = cluster("abc", (1, 2))
    told = refused(seen, Rebuild(on(1, 2), min_rack_ids=3))
    assert told == {"placement.few-racks": "--min-rack-ids is 3; the limit: 2 racks of chosen brokers"}
    plan, sets = planned(seen, Rebuild(on(1, 3), min_rack_ids=2))
    assert sets[0] == (1, 3)
    assert "placement.few-replicas" not in [notice.id for notice in plan.notices]


def test_b8_a_set_with_fewer_replicas_than_racks_asked_for_is_told() -> None:
    seen = cluster("abcd", (1, 2), (1, 2, 3), gone="1")
    plan, sets = planned(seen, Rebuild(min_rack_ids=3))
    assert [len(replicas) for replicas in sets.values()] == [2, 3]
    [notice] = [notice for notice in plan.notices if notice.id == "placement.few-replicas"]
    assert (notice.text, notice.refuses) == (
        "--min-rack-ids is 3; partitions with fewer replicas span one rack for each replica: t-0",
        False,
    )
    assert list(refused(seen, Rebuild(replication=2, min_rack_ids=3))) == ["placement.racks-above-replicas"]


def test_b2_placement_by_storage_without_meta_is_refused() -> None:
    request = Rebuild(on(1, 2), placement=STORAGE, use_meta=False)
    assert list(refused(cluster("ab", (1,)), request)) == ["placement.storage-without-meta"]


@pytest.mark.parametrize("use_meta", [True, False])
def test_x13_an_unknown_size_is_refused_by_storage_and_told_by_count(use_meta: bool) -> None:
    unknown, known = Partition("t", 0, (1,), None), Partition("t", 1, (2,), 5)
    seen = Cluster.of([Broker(1, "a", 0), Broker(2, "b", 0)], [unknown])
    assert list(refused(seen, Rebuild(on(2), placement=STORAGE))) == ["placement.size-missing"]
    for partitions, refuses in (([unknown], False), ([unknown, known], True)):
        plan = rebuild(replace(seen, partitions=tuple(partitions)), Rebuild(on(2), use_meta=use_meta))
        assert isinstance(plan, Plan)
        told = {one.id: one.refuses for one in plan.notices}
        assert told["placement.capacity-unknown"] is refuses


@pytest.mark.parametrize("use_meta", [True, False])
def test_b2_a_known_size_limits_what_fits_with_and_without_meta(use_meta: bool) -> None:
    """topicmappr reads no sizes by count. Here nothing is planned onto a broker that is known to be full."""
    full = Cluster.of([Broker(1, "a", 0), Broker(2, "b", 4)], [Partition("t", 0, (1,), 5)])
    assert list(refused(full, Rebuild(on(2), use_meta=use_meta))) == ["placement.no-place"]


# Which replicas move


def test_b3_force_places_all_slots_anew_and_counts_their_bytes_as_free() -> None:
    seen = cluster("abcd", *[(1, 2)] * 8, size=10, free=5)
    seen = replace(seen, brokers={**seen.brokers, 3: Broker(3, "c", 60), 4: Broker(4, "d", 60)})
    for placement in By:
        plan, sets = planned(seen, Rebuild(placement=placement, force_rebuild=True))
        assert counts(seen, sets) == [4, 4, 4, 4] if placement is COUNT else plan.moves
    _, stay = planned(seen, Rebuild())
    assert stay == dict.fromkeys(range(8), (1, 2))


def test_b3_force_and_sub_affinity_exclude_each_other() -> None:
    request = Rebuild(force_rebuild=True, sub_affinity=True)
    assert list(refused(cluster("ab", (1,)), request)) == ["placement.force-and-affinity"]


def test_b4_three_from_two_adds_one_slot() -> None:
    plan, sets = planned(cluster("abc", (1, 2), (3, 1)), Rebuild(replication=3))
    assert sets == {0: (1, 2, 3), 1: (3, 1, 2)}
    assert [len(move.added) for move in plan.moves] == [1, 1]


def test_b4_two_from_three_cuts_the_tail() -> None:
    plan, sets = planned(cluster("abc", (1, 2, 3), (3, 1, 2)), Rebuild(replication=2))
    assert sets == {0: (1, 2), 1: (3, 1)}
    assert plan.bytes == 0


def test_b4_the_tail_stays_where_its_rack_would_be_lost() -> None:
    _, sets = planned(cluster("aab", (1, 2, 3)), Rebuild(replication=2))
    assert sets[0] == (1, 3)
    _, sets = planned(cluster("aabb", (1, 2, 4, 3)), Rebuild(replication=2))
    assert sets[0] == (1, 4)


def test_b4_a_replica_on_a_gone_broker_goes_before_the_tail() -> None:
    plan, sets = planned(cluster("abc", (1, 2, 3), gone="1"), Rebuild(replication=2))
    assert sets[0] == (2, 3)
    assert plan.bytes == 0


def test_b5_each_slot_of_an_old_broker_is_filled_by_its_pair() -> None:
    seen = cluster("ababab", (1, 2), (2, 1), (1, 4), (3, 2))
    _, sets = planned(seen, Rebuild(on(3, 4, 5, 6), sub_affinity=True))
    assert sets == {0: (5, 6), 1: (6, 5), 2: (5, 4), 3: (3, 6)}


def test_b5_a_pair_is_sought_for_each_old_broker_though_the_first_choice_fits_only_one() -> None:
    """New broker 4 suits both old ones, 5 only the registered one: a full disk keeps 5 from the other."""
    seen = sized("aaaaa", (0, 0, 0, 100, 50), [(50, (1,)), (90, (2,)), (1, (3,))])
    _, sets = planned(seen, Rebuild(on(3, 4, 5), sub_affinity=True))
    assert sets == {0: (5,), 1: (4,), 2: (3,)}


def test_b5_too_few_new_brokers_are_refused() -> None:
    seen = cluster("ababa", (1, 2), (3, 4))
    told = refused(seen, Rebuild(on(3, 4, 5), sub_affinity=True))["placement.no-substitute"]
    assert "none for broker 2; new brokers: " in told
    full = sized("aa", (0, 9), [(10, (1,))])
    assert list(refused(full, Rebuild(on(2), sub_affinity=True))) == ["placement.no-substitute"]


def test_b5_a_dead_broker_is_replaced_by_one_that_suits_all_its_sets() -> None:
    seen = cluster("abcab", (1, 2), (2, 3), (1, 3), gone="1")
    _, sets = planned(seen, Rebuild(on(2, 3, 4, 5), sub_affinity=True))
    assert sets == {0: (4, 2), 1: (2, 3), 2: (4, 3)}


def test_b5_with_a_shorter_and_a_longer_set() -> None:
    seen = cluster("abca", (1, 2, 3), (2, 3, 1))
    _, sets = planned(seen, Rebuild(on(2, 3, 4), sub_affinity=True, replication=2))
    assert sets == {0: (2, 3), 1: (2, 3)}
    seen = cluster("abcda", (1, 2), (3, 1))
    _, sets = planned(seen, Rebuild(on(2, 3, 4, 5), sub_affinity=True, replication=3))
    assert [replicas[:2] for replicas in sets.values()] == [(5, 2), (3, 5)]


def test_b5_a_pair_stays_where_bytes_that_a_shorter_set_frees_are_needed() -> None:
    seen = Cluster.of(
        [Broker(1, "a", 0), Broker(2, "b", 0), Broker(3, "c", 0), Broker(4, "d", 10)],
        [Partition("t", 0, (1, 2, 3), 10), Partition("t", 1, (1,), 10), Partition("t", 2, (9, 2), 10)],
    )
    _, sets = planned(seen, Rebuild(on(1, 2, 3, 4), sub_affinity=True, replication=2))
    assert sets == {0: (1, 2), 1: (1, 3), 2: (4, 2)}


def test_b11_without_a_gone_broker_and_without_force_nothing_moves() -> None:
    crowded = cluster("aabc", (1, 2), (1, 2), (2, 1), (1, 3))
    for placement, optimize in product(By, Optimize):
        plan, _ = planned(crowded, Rebuild(placement=placement, optimize=optimize))
        assert plan.moves == ()


def test_b11_a_set_without_a_gone_broker_stays() -> None:
    for seed in seeds(40):
        seen = random_cluster(seed, brokers=6, rf=2, room=2.0)
        choice = on(1001, 1002, 1003, 1004, 1005)
        for placement in By:
            plan, _ = planned(seen, Rebuild(choice, placement=placement, min_rack_ids=1))
            for move in plan.moves:
                assert 1006 in move.before
                assert [new for old, new in zip(move.before, move.after, strict=True) if old != 1006] == [
                    old for old in move.before if old != 1006
                ]


# Where replicas go


def test_b6_counts_are_within_one_and_the_answer_is_the_same_each_time() -> None:
    for seed in seeds(30):
        seen = random_cluster(seed, brokers=5, rf=3, racks=0, room=20.0)
        request = Rebuild(force_rebuild=True)
        plan, _ = planned(seen, request)
        moved = {move.name: move.after for move in plan.moves}
        sets = [moved.get(one.name, one.replicas) for one in seen.partitions]
        held = [sum(broker in one for one in sets) for broker in seen.brokers]
        assert max(held) - min(held) <= 1
        assert rebuild(seen, request) == rebuild(seen, request)


def test_b6_a_replica_moves_on_where_the_next_one_has_no_choice() -> None:
    """t-0 may go to 2 or 3 and goes to 2 first; t-1 may only go to 2."""
    seen = sized("xbcc", (0, 100, 100, 0), [(10, (1,)), (10, (1, 4))])
    assert planned(seen, Rebuild(on(2, 3, 4)))[1] == {0: (3,), 1: (2, 4)}


def test_b6_a_chain_evens_counts_that_one_move_cannot() -> None:
    """t-0 goes to 2 first, t-1 and t-2 to 1, for racks keep them from 3. So t-1 goes to 2 and t-0 on to 3."""
    seen = sized("abcac", (100, 100, 100, 0, 0), [(10, (9, 4)), (10, (9, 5)), (10, (9, 5))])
    assert planned(seen, Rebuild())[1] == {0: (3, 4), 1: (2, 5), 2: (1, 5)}


def test_b7_the_largest_goes_first_to_the_most_free_and_none_below_0() -> None:
    seen = sized("abcd", (0, 100, 90, 50), [(10, (1,)), (80, (1,)), (60, (1,))])
    _, sets = planned(seen, Rebuild(on(2, 3, 4), placement=STORAGE))
    assert sets == {0: (4,), 1: (2,), 2: (3,)}
    tight = sized("ab", (0, 99), [(60, (1,)), (40, (1,))])
    assert "1" in refused(tight, Rebuild(on(2), placement=STORAGE))["placement.no-place"]


@pytest.mark.parametrize("placement", list(By))
def test_b8_zero_asks_for_all_racks_different_and_k_for_k(placement: By) -> None:
    seen = cluster("aaabbc", *[(1,)] * 6)
    _, sets = planned(seen, Rebuild(placement=placement, replication=3, force_rebuild=True))
    assert {seen.racks(replicas) for replicas in sets.values()} == {3}
    _, sets = planned(
        cluster("aaaab", *[(1,)] * 6),
        Rebuild(placement=placement, replication=3, force_rebuild=True, min_rack_ids=2),
    )
    assert {cluster("aaaab").racks(replicas) for replicas in sets.values()} == {2}


def test_b8_too_few_racks_are_refused_with_the_limit() -> None:
    told = refused(cluster("aabb", (1, 3)), Rebuild(replication=3))["placement.few-racks"]
    assert "t-0" in told
    assert "2 racks" in told
    planned(cluster("aabb", (1, 3)), Rebuild(replication=3, min_rack_ids=2))


def test_b8_the_rack_of_a_gone_broker_asks_for_no_more_racks_than_are_left() -> None:
    _, sets = planned(cluster("aabba", (1, 3, 5), gone="5"), Rebuild(min_rack_ids=2))
    assert set(sets[0][:2]) == {1, 3}


def test_r15_a_wider_range_of_free_bytes_is_written_only_in_spite_of_a_warning() -> None:
    seen = sized("abcd", (100, 90, 60, 0), [(30, (1, 2)), (5, (1, 4))])
    plan, _ = planned(seen, Rebuild(on(1, 2, 3), placement=STORAGE, replication=3))
    assert [one.id for one in plan.notices if one.refuses] == ["placement.worse-range"]
    by_count, _ = planned(seen, Rebuild(on(1, 2, 3), replication=3))
    assert not [one for one in by_count.notices if one.refuses]
    level, _ = planned(seen, Rebuild(on(1, 2, 3), placement=STORAGE))
    assert not [one for one in level.notices if one.refuses]


def test_b9_distribution_places_all_leaders_first_and_storage_set_by_set() -> None:
    seen = sized("abcde", (100, 90, 60, 55, 0), [(30, (5,)), (20, (5,))])
    by_slot = Rebuild(on(1, 2, 3, 4), placement=STORAGE, replication=2, optimize=Optimize.DISTRIBUTION)
    by_set = replace(by_slot, optimize=Optimize.STORAGE)
    assert planned(seen, by_slot)[1] == {0: (1, 2), 1: (2, 1)}
    assert planned(seen, by_set)[1] == {0: (1, 2), 1: (1, 2)}


def test_b10_the_size_factor_is_reserved_for_each_placement() -> None:
    seen = sized("ab", (0, 149), [(100, (1,))])
    told = refused(seen, Rebuild(on(2), placement=STORAGE, partition_size_factor=1.5))["placement.no-place"]
    assert "150 bytes" in told
    assert "149" in told
    planned(seen, Rebuild(on(2), placement=STORAGE, partition_size_factor=1.49))
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        assert "placement.size-factor" in refused(seen, Rebuild(on(2), partition_size_factor=wrong))


@pytest.mark.parametrize("brokers", [MAPPED, REGISTERED])
def test_b16_a_dead_broker_is_replaced_by_mapped_or_registered_ones(brokers: int) -> None:
    seen = cluster("abcd", (1, 2), (2, 3), (3, 1), gone="1")
    plan, sets = planned(seen, Rebuild(on(brokers)))
    assert all(1 not in replicas for replicas in sets.values())
    used = {broker for move in plan.moves for broker in move.added}
    assert used == ({2, 3} if brokers == MAPPED else {4})
    assert plan.notices[0].id == "placement.broker-gone"


# What cannot be placed


def test_b18_a_set_that_cannot_grow_is_refused_and_never_shorter() -> None:
    for placement in By:
        full = sized("abc", (100, 100, 9), [(10, (1, 2)), (5, (1, 2))])
        told = refused(full, Rebuild(placement=placement, replication=3))["placement.no-place"]
        assert "t-0" in told or "t-1" in told
        assert "disk" in told


def test_b18_bytes_that_a_shorter_set_frees_are_used_where_nothing_else_has_room() -> None:
    seen = Cluster.of(
        [Broker(1, "a", 0), Broker(2, "b", 0), Broker(3, "c", 0)],
        [Partition("t", 0, (1, 2, 3), 10), Partition("t", 1, (1, 9), 10)],
    )
    plan, sets = planned(seen, Rebuild(replication=2))
    assert sets == {0: (1, 2), 1: (1, 3)}
    assert [move.number for move in plan.moves] == [0, 1]


@pytest.mark.parametrize("placement", list(By))
def test_b18_a_planned_replica_makes_room(placement: By) -> None:
    """t-1 fits only broker 3, for its set has the others; t-0 went there first. No search is needed."""
    seen = sized("abcd", (0, 60, 100, 0), [(60, (1,)), (50, (1, 2)), (1, (4,))])
    _, sets = planned(seen, Rebuild(on(2, 3, 4), placement=placement, min_rack_ids=1, effort=0))
    assert sets == {0: (2,), 1: (3, 2), 2: (4,)}


@pytest.mark.parametrize(("seed", "placement"), [(47, COUNT), (2335, STORAGE)])
def test_b18_a_replica_that_makes_room_goes_where_it_fits(seed: int, placement: By) -> None:
    seen = random_cluster(seed, brokers=5, partitions=6, gone=1, rf=3, racks=seed % 3, room=0.3)
    planned(seen, Rebuild(placement=placement, replication=4, min_rack_ids=1))


@pytest.mark.parametrize("placement", list(By))
def test_b18_all_ways_are_tried_where_one_move_makes_no_room(placement: By) -> None:
    """3 and 3 fill one broker, 2, 2 and 2 the other: the largest first spoils it for any one move."""
    seen = sized("abc", (0, 6, 6), [(size, (1,)) for size in (3, 3, 2, 2, 2)])
    _, sets = planned(seen, Rebuild(on(2, 3), placement=placement))
    assert sets == {0: (2,), 1: (2,), 2: (3,), 3: (3,), 4: (3,)}
    told = refused(seen, Rebuild(on(2, 3), placement=placement, effort=0))
    assert "the search gave up after 0 attempts; a placement may still exist" in told["placement.no-place"]
    less = sized("abc", (0, 6, 5), [(size, (1,)) for size in (3, 3, 2, 2, 2)])
    told = refused(less, Rebuild(on(2, 3), placement=placement, effort=0))
    assert "no placement of all replicas exists" in told["placement.no-place"]


def test_x3_too_few_brokers_racks_or_bytes_are_refused_with_the_limit() -> None:
    seen = cluster("abc", (1, 2, 3))
    told = refused(seen, Rebuild(on(1, 2)))["placement.few-brokers"]
    assert "t-0 needs 3 replicas" in told
    assert "2 chosen brokers" in told
    same_rack = refused(cluster("abcb", (1, 2, 3)), Rebuild(on(1, 2, 4)))
    assert list(same_rack) == ["placement.few-racks"]
    no_disk = refused(cluster("abcd", (1, 2, 3), free=9), Rebuild(on(1, 2, 4)))["placement.no-place"]
    assert "no placement of all replicas exists" in no_disk
    assert "limit is disk" in no_disk


def test_x21_five_replicas_on_four_brokers_are_refused() -> None:
    told = refused(cluster("abcd", (1, 2, 3)), Rebuild(replication=5))
    assert list(told) == ["placement.few-brokers"]


def test_x21_disks_too_short_for_old_and_new_copies_together_are_refused() -> None:
    """Both full brokers would have to swap their partitions at once."""
    seen = sized("ab", (0, 0), [(10, (1,)), (20, (1,)), (30, (2,))])
    answer = rebuild(seen, Rebuild(placement=STORAGE, force_rebuild=True))
    assert isinstance(answer, Refused)
    assert "short" in answer.reasons[0].text


def test_x14_a_removed_load_is_spread_over_the_rest() -> None:
    """The range is at most 1.25 times the least that the same copies permit."""
    for seed in seeds(25):
        seen = random_cluster(seed, brokers=5, partitions=12, racks=0, rf=2, room=2.0)
        rest = tuple(seen.brokers)[:-1]
        plan, _ = planned(seen, Rebuild(on(*rest), placement=STORAGE, min_rack_ids=1))
        best = least_range(seen, rest)
        assert spread(seen, rest, {move.name: move.after for move in plan.moves}) <= 1.25 * best


def spread(seen: Cluster, brokers: Iterable[int], after: dict[tuple[str, int], tuple[int, ...]]) -> int:
    free = {broker: seen.brokers[broker].free for broker in brokers}
    for name, replicas in after.items():
        for broker in set(replicas) - set(seen.by_name[name].replicas):
            free[broker] -= seen.by_name[name].size or 0
    return max(free.values()) - min(free.values())


def least_range(seen: Cluster, rest: tuple[int, ...]) -> int:
    """By trying all ways."""
    states = {tuple(seen.brokers[broker].free for broker in rest)}
    for one in seen.partitions:
        if set(one.replicas) <= set(rest):
            continue
        places = [place for place, broker in enumerate(rest) if broker not in one.replicas]
        states = {
            (*state[:place], state[place] - (one.size or 0), *state[place + 1 :])
            for state in states
            for place in places
            if state[place] >= (one.size or 0)
        }
    return min(max(state) - min(state) for state in states)


# Properties


@pytest.mark.parametrize("placement", list(By))
def test_b18_a_placement_is_found_exactly_where_one_exists(placement: By) -> None:
    """Beside all ways of a small cluster that is nearly full."""
    outcomes = []
    for seed in seeds(120):
        seen = random_cluster(seed, brokers=4, partitions=5, gone=1, room=0.15)
        request = Rebuild(Choice(), placement=placement, min_rack_ids=1)
        answer = rebuild(seen, request)
        exists = placeable(seen)
        assert isinstance(answer, Plan) == exists, (seed, answer)
        if isinstance(answer, Plan):
            assert kept_rules(seen, answer, request)
        outcomes.append(exists)
    assert min(outcomes.count(True), outcomes.count(False)) > 10


def placeable(seen: Cluster) -> bool:
    states = {tuple(broker.free for broker in seen.brokers.values())}
    ids = list(seen.brokers)
    for one in seen.partitions:
        kept = [broker for broker in one.replicas if broker in seen.brokers]
        lost = len(one.replicas) - len(kept)
        ways = [
            added
            for added in combinations([broker for broker in ids if broker not in kept], lost)
            if seen.racks((*kept, *added)) >= racks_needed(seen, one.replicas, len(one.replicas))
        ]
        states = {
            tuple(left - (one.size or 0) * (broker in added) for broker, left in zip(ids, state, strict=True))
            for state in states
            for added in ways
            if all(state[ids.index(broker)] >= (one.size or 0) for broker in added)
        }
    return bool(states)


@pytest.mark.parametrize("seed", seeds(30))
def test_no_plan_breaks_a_rule_under_any_option(seed: int) -> None:
    seen = random_cluster(seed, new=seed % 3, gone=seed % 2)
    removed = list(seen.brokers)[seed % len(seen.brokers)]
    rest = on(*(broker for broker in seen.brokers if broker != removed))
    for choice, placement, optimize, force, replication in product(
        (Choice(), rest), By, Optimize, (False, True), (0, 2)
    ):
        request = Rebuild(choice, placement=placement, optimize=optimize, force_rebuild=force)
        request = replace(request, replication=replication, min_rack_ids=seed % 4, effort=seed % 10 == 0)
        answer = rebuild(seen, request)
        if isinstance(answer, Plan):
            assert kept_rules(seen, answer, request)
        else:
            assert all(reason.text for reason in answer.reasons)
