"""R10, P7 and B13: who leads, without a byte moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product

import pytest

from tests.examples import seeds
from tests.unit.cluster.placement.random_clusters import random_cluster
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.leaders import barred, evacuated, spread_leaders
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.cluster.placement.request import Rollout

Sets = Mapping[tuple[str, int], tuple[int, ...]]


def cluster_of(*sets: Iterable[int]) -> Cluster:
    brokers = (Broker(number, "", 0) for number in sorted({b for replicas in sets for b in replicas}))
    return Cluster.of(brokers, (Partition("t", n, tuple(replicas), 1) for n, replicas in enumerate(sets)))


def sets_of(cluster: Cluster) -> dict[tuple[str, int], tuple[int, ...]]:
    return {partition.name: partition.replicas for partition in cluster.partitions}


def range_of(cluster: Cluster, leaders: Iterable[int]) -> int:
    """The most less the fewest leaders, of registered brokers that hold a replica."""
    led = Counter(leaders)
    holders = {b for partition in cluster.partitions for b in partition.replicas} & cluster.brokers.keys()
    return max(led[b] for b in holders) - min(led[b] for b in holders)


def leaders(sets: Sets) -> list[int]:
    return [replicas[0] for replicas in sets.values()]


def test_r10_skewed_leaders_are_spread() -> None:
    cluster = cluster_of([1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 3, 2], [1, 3, 2], [1, 2, 3])
    spread = spread_leaders(cluster, sets_of(cluster))
    assert sorted(Counter(leaders(spread)).items()) == [(1, 2), (2, 2), (3, 2)]


def test_r10_a_leadership_is_handed_on_over_a_chain() -> None:
    """1 shares no set with 3; the way leads over 2."""
    cluster = cluster_of([1, 2], [1, 2], [1, 2], [2, 3], [2, 3])
    assert sorted(Counter(leaders(spread_leaders(cluster, sets_of(cluster)))).values()) == [1, 2, 2]


def test_r10_the_others_of_a_set_keep_their_order_and_level_sets_stay() -> None:
    cluster = cluster_of([1, 2, 3], [1, 2, 3], [1, 3, 2])
    spread = spread_leaders(cluster, sets_of(cluster))
    assert set(spread.values()) <= {(1, 2, 3), (2, 1, 3), (3, 1, 2), (1, 3, 2)}
    assert spread_leaders(cluster, spread) == spread


def test_r10_the_clusters_other_partitions_count_with_their_leaders() -> None:
    cluster = cluster_of([1, 2], [1, 2], [1, 2], [2, 1])
    some = {("t", 2): (1, 2), ("t", 3): (2, 1)}
    assert leaders(spread_leaders(cluster, some)) == [2, 2]


def test_r10_a_gone_broker_leads_nothing() -> None:
    cluster = cluster_of([1, 2], [9, 2], [9])
    alive = Cluster.of((broker for broker in cluster.brokers.values() if broker.id != 9), cluster.partitions)
    assert leaders(spread_leaders(alive, sets_of(alive))) == [1, 2, 9]


def test_r10_leaders_are_optimal_and_no_byte_moves() -> None:
    """Random clusters: never worse; the small ones against every choice of leaders."""
    better = exact = 0
    for seed in seeds(4000):
        cluster = random_cluster(seed, partitions=1 + seed % 14)
        before = sets_of(cluster)
        after = spread_leaders(cluster, before)
        assert {name: set(replicas) for name, replicas in after.items()} == {
            name: set(replicas) for name, replicas in before.items()
        }
        found = range_of(cluster, leaders(after))
        assert found <= range_of(cluster, leaders(before)), seed
        better += found < range_of(cluster, leaders(before))
        if len(before) <= 5:
            exact += 1
            assert found == min(range_of(cluster, choice) for choice in product(*before.values())), seed
    assert better > len(seeds(1500))
    assert exact > len(seeds(1000))


def test_r10_the_order_of_a_mapping_does_not_show() -> None:
    cluster = random_cluster(3, partitions=24)
    sets = sets_of(cluster)
    assert spread_leaders(cluster, dict(reversed(sets.items()))) == spread_leaders(cluster, sets)


def test_r10_barred_brokers_get_no_leadership() -> None:
    cluster = cluster_of([1, 2, 3], [1, 2, 3], [2, 1], [3])
    away = {"t": frozenset({2})}
    assert Counter(leaders(spread_leaders(cluster, sets_of(cluster), away))) == {1: 2, 3: 2}


@pytest.mark.parametrize(
    ("rollout", "text"),
    [
        (
            Rollout(leader_evac_brokers=(1,)),
            "leader-evac-brokers is given without leader-evac-topics; needed: both or neither",
        ),
        (
            Rollout(leader_evac_topics=("t",)),
            "leader-evac-topics is given without leader-evac-brokers; needed: both or neither",
        ),
        (
            Rollout(leader_evac_brokers=(1,), leader_evac_topics=("(t",)),
            "leader-evac-topics contains '(t', which is not a regular expression: "
            "missing ), unterminated subpattern at position 0",
        ),
    ],
)
def test_b13_half_an_evacuation_is_refused(rollout: Rollout, text: str) -> None:
    refused = barred(rollout, ["t"])
    assert isinstance(refused, Refused)
    assert [reason.text for reason in refused.reasons] == [text]


def test_b13_topics_are_names_or_patterns_that_are_searched() -> None:
    rollout = Rollout(leader_evac_brokers=(1, 2), leader_evac_topics=("a.b", "^log[0-9]$"))
    evacuation = barred(rollout, ["a.b", "axb", "log1", "log12", "blog1"])
    assert evacuation == {"a.b": frozenset({1, 2}), "log1": frozenset({1, 2})}


def test_b13_no_evacuated_broker_leads_and_the_sets_stay() -> None:
    cluster = cluster_of([1, 2, 3], [2, 1], [3, 1])
    sets = {**sets_of(cluster), ("u", 0): (1, 2)}
    assert evacuated(cluster, sets, {"t": frozenset({1})}) == {
        ("t", 0): (2, 1, 3),
        ("t", 1): (2, 1),
        ("t", 2): (3, 1),
        ("u", 0): (1, 2),
    }


def test_b13_a_partition_that_only_evacuated_brokers_hold_is_refused() -> None:
    cluster = cluster_of([1, 2, 3], [2, 1])
    refused = evacuated(cluster, sets_of(cluster), {"t": frozenset({1, 2})})
    assert isinstance(refused, Refused)
    assert [reason.text for reason in refused.reasons] == [
        "t-1 has no broker that may lead it: [2, 1]; evacuated: [1, 2]"
    ]


def test_b13_a_gone_broker_is_no_way_out_of_an_evacuation() -> None:
    cluster = Cluster.of([Broker(1, "", 0)], [Partition("t", 0, (1, 9), 1)])
    assert isinstance(evacuated(cluster, sets_of(cluster), {"t": frozenset({1})}), Refused)
