"""The figures of a plan, and a lower bound that no plan undercuts."""

from __future__ import annotations

from itertools import combinations, permutations, product

import pytest

from tests.examples import seeds
from tests.unit.cluster.placement.random_clusters import random_cluster
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Reassignment
from zkmigrate.cluster.placement.statistics import Held, Spread, lower_bound, statistics

CLUSTER = Cluster.of(
    [Broker(1, "a", 10), Broker(2, "b", 100), Broker(3, "a", 70), Broker(4, "b", 5)],
    [
        Partition("t", 0, (1, 2), 30, 2.0),
        Partition("t", 1, (1, 3), 20, 3.0),
        Partition("t", 2, (2, 3), 10, 5.0),
    ],
)
MOVES = (Reassignment("t", 0, (1, 2), (3, 2), 30), Reassignment("t", 2, (2, 3), (3, 2), 10))


def test_r14_range_spread_deviation_and_each_broker_before_and_after() -> None:
    told = statistics(CLUSTER, MOVES, (1, 2, 3))
    assert told.before == Spread(10, 100, 37)  # 60, and ±50, 40, 10: 37.4
    assert told.after == Spread(40, 100, 28)  # 40, 100, 40: 28.3
    assert (told.before.range, told.before.percent) == (90, 900.0)
    assert (told.after.range, told.after.percent) == (60, 150.0)
    assert (told.moves, told.moved) == (2, 30)
    first = told.brokers[0]
    assert (first.broker, first.rack, first.bytes_in, first.bytes_out) == (1, "a", 0, 30)
    assert first.before == Held(free=10, leaders=2, replicas=2, degree=2, rate=5.0)
    assert first.after == Held(free=40, leaders=1, replicas=1, degree=1, rate=3.0)
    third = told.brokers[2]
    assert (third.bytes_in, third.bytes_out) == (30, 0)
    assert third.after == Held(free=40, leaders=2, replicas=3, degree=2, rate=10.0)
    assert told.leaders == (Spread(0, 2, 0), Spread(0, 2, 0))
    assert told.degree == (Spread(2, 2, 0), Spread(1, 2, 0))
    assert (told.rate_before, told.rate_after) == (Spread(5, 8, 1), Spread(3, 10, 2))


def test_r14_all_registered_brokers_count_unless_some_are_named() -> None:
    assert statistics(CLUSTER, MOVES).before == Spread(5, 100, 40)
    assert [one.broker for one in statistics(CLUSTER, MOVES, (1,)).brokers] == [1, 2, 3, 4]


def test_r14_a_rate_that_is_not_known_hides_the_spread_of_rates() -> None:
    silent = Cluster.of(CLUSTER.brokers.values(), [Partition("t", 0, (1, 2), 30)])
    assert statistics(silent, ()).rate_before is None
    assert statistics(silent, (), (3, 4)).rate_before == Spread(0, 0, 0)


def test_r14_no_percentage_of_nothing_free_and_no_ratio_of_no_bytes() -> None:
    full = Cluster.of([Broker(1, "", 0), Broker(2, "", 9)], [Partition("t", 0, (1,), 3)])
    told = statistics(full, ())
    assert told.before.percent is None
    assert told.eta is None
    assert told.lower_bound == 0


@pytest.mark.parametrize(
    ("free", "reached", "least"),
    [
        ([10, 10, 10], 0, 0),
        ([0, 100], 100, 0),
        ([0, 100], 0, 50),  # both at 50
        ([0, 100], 40, 30),  # 30 and 70
        ([0, 0, 90], 0, 60),  # all at 30: two get 30 each
        ([0, 90, 90], 0, 60),
        ([0, 50, 100], 50, 25),  # 25 to 75
        ([7], 0, 0),
        ([], 0, 0),
    ],
)
def test_the_bound_of_hand_made_cases(free: list[int], reached: int, least: int) -> None:
    assert lower_bound(free, reached) == least


def test_the_bound_of_moves_that_are_asked_for() -> None:
    emptied = Reassignment("t", 0, (3,), (2,), 40)
    assert lower_bound([0, 100], 0, (emptied,), (1, 2)) == 70  # both end at 30
    longer, shorter = Reassignment("t", 0, (1,), (1, 2), 7), Reassignment("t", 1, (1, 2), (1,), 10)
    assert lower_bound([50, 50], 100, (longer, shorter), (1, 2)) == 7
    assert lower_bound([50, 50], 100, (shorter,), (1, 2)) == 0


def test_the_bound_is_that_of_every_level_tried_one_by_one() -> None:
    for free in product(range(0, 13, 3), repeat=3):
        for reached in range(0, 13, 2):
            tried = min(
                max(sum(max(low - f, 0) for f in free), sum(max(f - low - reached, 0) for f in free))
                for low in range(-20, 20)
            )
            assert lower_bound(free, reached) == tried


def every_plan(cluster: Cluster, lengths: dict[tuple[str, int], int]) -> list[tuple[Reassignment, ...]]:
    """All plans of a small cluster whose sets get these lengths."""
    choices = [
        [
            Reassignment(one.topic, one.number, one.replicas, after, one.size or 0)
            for after in combinations(sorted(cluster.brokers), lengths[one.name])
        ]
        for one in cluster.partitions
    ]
    return [tuple(move for move in plan if set(move.before) != set(move.after)) for plan in product(*choices)]


@pytest.mark.parametrize("seed", seeds(12))
def test_no_plan_of_a_small_cluster_undercuts_the_bound_of_its_range(seed: int) -> None:
    cluster = random_cluster(seed, brokers=4, partitions=4, racks=0, rf=1 + seed % 3)
    kept = {one.name: len(one.replicas) for one in cluster.partitions}
    plans = every_plan(cluster, kept)
    assert len(plans) > 1
    for plan in plans:
        told = statistics(cluster, plan)
        assert told.lower_bound <= told.moved
        assert told.eta is None or 0 <= told.eta <= 1


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("length", [1, 2, 3])
def test_nor_does_one_that_empties_brokers_or_changes_the_replication(seed: int, length: int) -> None:
    cluster = random_cluster(seed, brokers=4, partitions=3, racks=0, rf=2, gone=1)
    leaving = min(cluster.brokers)
    staying = [broker for broker in cluster.brokers if broker != leaving]
    for plan in every_plan(cluster, {one.name: length for one in cluster.partitions}):
        told = statistics(cluster, plan, staying)
        assert told.lower_bound <= told.moved


def test_bytes_of_a_broker_that_is_emptied_are_in_the_bound() -> None:
    cluster = Cluster.of(
        [Broker(1, "", 0), Broker(2, "", 50), Broker(3, "", 50)], [Partition("t", 0, (1,), 40)]
    )
    moves = (Reassignment("t", 0, (1,), (2,), 40),)
    assert statistics(cluster, moves, (2, 3)).eta == 1.0
    assert statistics(cluster, moves).lower_bound == 7  # of 0, 50, 50: to 7, 47, 46


def test_a_set_that_keeps_a_broker_outside_is_not_taken_for_one_that_leaves_it() -> None:
    cluster = Cluster.of([Broker(1, "", 5), Broker(2, "", 5)], [Partition("t", 0, (1, 2), 40)])
    told = statistics(cluster, (Reassignment("t", 0, (1, 2), (2, 1), 40),), (1,))
    assert (told.moved, told.lower_bound) == (0, 0)


def test_the_order_of_brokers_and_partitions_changes_no_figure() -> None:
    told = statistics(CLUSTER, MOVES)
    for partitions in permutations(CLUSTER.partitions):
        other = Cluster.of(list(CLUSTER.brokers.values())[::-1], partitions)
        assert statistics(other, MOVES[::-1]) == told
