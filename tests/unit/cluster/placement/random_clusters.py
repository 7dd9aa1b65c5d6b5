"""Clusters made by chance, the same ones for the same seed: what properties of a placement are tried on."""

from __future__ import annotations

import random

from zkmigrate.cluster.placement.cluster import Broker, Cluster, LogDir, Partition

FIRST_ID = 1001
GB = 10**9


def random_cluster(
    seed: int,
    *,
    brokers: int | None = None,
    partitions: int | None = None,
    racks: int | None = None,
    rf: int | None = None,
    new: int = 0,
    gone: int = 0,
    dirs: int = 0,
    rates: bool = False,
    room: float | None = None,
) -> Cluster:
    """A cluster whose sizes are lognormal and whose brokers hold unequal shares. None: the seed chooses.

    brokers: registered ones that hold replicas. racks: 0 for none. rf: None gives each topic its own. new:
    further brokers without a replica. gone: further ids that sets name and that are not registered; each set
    keeps a registered broker. dirs: log directories of a broker. rates: partitions have rates. room: free
    bytes of all brokers as a share of the used ones.
    """
    chance = random.Random(seed)
    count = brokers if brokers is not None else chance.randint(3, 8)
    names = partitions if partitions is not None else chance.randint(1, 24)
    rack_count = racks if racks is not None else chance.choice((0, 0, 2, 3, 4))
    ids = range(FIRST_ID, FIRST_ID + count)
    extra = range(ids.stop, ids.stop + new)
    lost = range(extra.stop, extra.stop + gone)
    rack = {broker: _rack(chance, place, rack_count) for place, broker in enumerate((*ids, *extra, *lost))}
    weights = {broker: chance.lognormvariate(0, 0.7) for broker in (*ids, *lost)}
    aware = rack_count > 0 and chance.random() < 0.7

    found = []
    topic, number, length = 0, 0, _length(chance, rf, count)
    for _ in range(names):
        if number and chance.random() < 0.2:
            topic, number, length = topic + 1, 0, _length(chance, rf, count)
        replicas = _set(chance, length, weights, rack if aware else {}, ids)
        size = int(chance.lognormvariate(0, 1.3) * GB) if chance.random() > 0.03 else 0
        rate = round(chance.lognormvariate(0, 1.0) * 1e6, 3) if rates else None
        paths = tuple(f"/d{chance.randrange(dirs)}" for _ in replicas) if dirs else ()
        found.append(Partition(f"t{topic}", number, replicas, size, rate, paths))
        number += 1

    used = dict.fromkeys((*ids, *extra), 0)
    for partition in found:
        for broker in set(partition.replicas) & used.keys():
            used[broker] += partition.size or 0
    share = room if room is not None else chance.choice((0.1, 0.3, 1.0, 2.0))
    disk = int(sum(used.values()) * (1 + share) / max(count, 1)) + 1
    registered = []
    for broker in (*ids, *extra):
        free = max(disk - used[broker], int(disk * share * chance.uniform(0, 0.2)))
        registered.append(
            Broker(broker, rack[broker], free, broker in extra, _dirs(chance, dirs, free, used[broker]))
        )
    return Cluster.of(registered, found)


def _rack(chance: random.Random, place: int, racks: int) -> str:
    """The first brokers stand in different racks, the others anywhere."""
    return "" if not racks else chr(ord("a") + (place if place < racks else chance.randrange(racks)))


def _length(chance: random.Random, rf: int | None, brokers: int) -> int:
    return min(rf if rf is not None else chance.choice((1, 2, 3, 3, 3, 4)), brokers)


def _set(
    chance: random.Random, length: int, weights: dict[int, float], rack: dict[int, str], ids: range
) -> tuple[int, ...]:
    """Different brokers by their weights, in different racks while there are such; one is registered."""
    chosen: list[int] = []
    while len(chosen) < length:
        free = [broker for broker in weights if broker not in chosen]
        if len(chosen) == length - 1 and not set(chosen) & set(ids):
            free = [broker for broker in free if broker in ids]
        apart = [broker for broker in free if rack.get(broker) not in {rack[b] for b in chosen if b in rack}]
        among = apart or free
        chosen.append(chance.choices(among, [weights[broker] for broker in among])[0])
    chance.shuffle(chosen)
    return tuple(chosen)


def _dirs(chance: random.Random, dirs: int, free: int, used: int) -> tuple[LogDir, ...]:
    """Log directories that share out what is free, unequally."""
    cuts = sorted(chance.randint(0, free) for _ in range(dirs - 1))
    shares = [high - low for low, high in zip((0, *cuts), (*cuts, free), strict=True)] if dirs else []
    return tuple(LogDir(f"/d{n}", share, share + used // dirs) for n, share in enumerate(shares))
