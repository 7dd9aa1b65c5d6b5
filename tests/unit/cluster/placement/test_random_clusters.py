"""The clusters that properties are tried on are the same for a seed, and of the shapes that are asked for."""

from __future__ import annotations

from tests.examples import seeds
from tests.unit.cluster.placement.random_clusters import random_cluster


def test_one_seed_gives_one_cluster() -> None:
    assert random_cluster(5, gone=1, dirs=2, rates=True) == random_cluster(5, gone=1, dirs=2, rates=True)
    assert random_cluster(5) != random_cluster(6)


def test_shapes_are_those_asked_for() -> None:
    for seed in seeds(200):
        cluster = random_cluster(seed, brokers=5, partitions=9, racks=3, rf=3, new=2, gone=1, dirs=2)
        assert len(cluster.brokers) == 7
        assert sum(broker.new for broker in cluster.brokers.values()) == 2
        assert {broker.rack for broker in cluster.brokers.values()} == {"a", "b", "c"}
        assert len(cluster.partitions) == len(cluster.by_name) == 9
        for partition in cluster.partitions:
            assert len(set(partition.replicas)) == len(partition.replicas) == len(partition.dirs) == 3
            assert set(partition.replicas) & set(cluster.brokers)
            assert not {b for b in partition.replicas if b in cluster.brokers and cluster.brokers[b].new}
        for broker in cluster.brokers.values():
            assert broker.free == sum(directory.free for directory in broker.dirs)


def test_some_seeds_give_gone_brokers_no_racks_and_full_brokers() -> None:
    clusters = [random_cluster(seed, gone=1) for seed in seeds(200)]
    assert any(set(p.replicas) - set(c.brokers) for c in clusters for p in c.partitions)
    assert any(not broker.rack for c in clusters for broker in c.brokers.values())
    assert any(
        broker.free < max((p.size or 0) for p in cluster.partitions)
        for cluster in clusters
        for broker in cluster.brokers.values()
    )
