"""Kafka's own assignment of replicas to brokers, as Kafka 2.8 and 3.9 compute it for a new topic.

The result depends only on the order of brokers, a start and a shift. Kafka draws start and shift at random.
Here the caller gives both, so the same input gives the same replica lists.
"""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.cluster.placement.cluster import Broker, Cluster
from zkmigrate.cluster.placement.plan import Notice, Refused

Sets = dict[int, tuple[int, ...]]
"""The replica list of each partition, by partition number."""


def rack_alternating(brokers: Sequence[Broker]) -> tuple[int, ...]:
    """Return the broker ids with racks in turns: the first broker of each rack, then the second of each.

    Racks are ordered by name, brokers by id.
    """
    ordered = sorted(brokers, key=lambda broker: (broker.rack, broker.id))
    turns: dict[str, int] = {}
    keyed = []
    for broker in ordered:
        turn = turns[broker.rack] = turns.get(broker.rack, -1) + 1
        keyed.append((turn, broker.rack, broker.id))
    return tuple(broker for *_, broker in sorted(keyed))


def assigned(
    brokers: Sequence[Broker],
    partitions: int,
    replication: int,
    *,
    start: int,
    shift: int | None = None,
    first: int = 0,
) -> Sets | Refused:
    """Return the replica lists that Kafka assigns (``AdminUtils.assignReplicasToBrokers``).

    brokers: without racks they are used in the given order. With racks they are used in ``rack_alternating``
    order, and each replica list spans as many racks as it can.
    partitions: the number of replica lists.
    start: the position of partition 0's leader in the order of brokers.
    shift: the distance from the leader to the next replica; None for the value of ``start``, as in Kafka.
    first: the number of the first partition.
    """
    if faults := _faults(brokers, partitions, replication):
        return Refused(faults)
    racks = {broker.id: broker.rack for broker in brokers}
    aware = bool(brokers[0].rack)
    order = rack_alternating(brokers) if aware else tuple(racks)
    rack_count = len(set(racks.values()))
    count = len(order)
    turn = start if shift is None else shift
    sets = {}
    for number in range(first, first + partitions):
        if number and number % count == 0:
            turn += 1
        leader = (number + start) % count
        chosen = [order[leader]]
        follower = 0
        while len(chosen) < replication:
            step = 1 + (turn * (rack_count if aware else 1) + follower) % (count - 1)
            broker = order[(leader + step) % count]
            follower += 1
            spanned = {racks[one] for one in chosen}
            another = racks[broker] not in spanned or len(spanned) == rack_count
            if broker not in chosen and (another or not aware):
                chosen.append(broker)
        sets[number] = tuple(chosen)
    return sets


def grown(
    cluster: Cluster, topic: str, partitions: int, *, start: int | None = None, shift: int | None = None
) -> Sets | Refused:
    """Return the replica lists of a topic's new partitions; existing partitions keep theirs.

    partitions: the topic's new total number of partitions.

    ``kafka-topics --alter`` places new partitions the same way: with as many replicas as partition 0 has and,
    by default, a start at its leader.
    """
    have = {one.number: one for one in cluster.partitions if one.topic == topic}
    if not have or sorted(have) != list(range(len(have))):
        text = f"topic {topic} has partitions {sorted(have)}; needed: all partitions from 0 on"
        return Refused((Notice("placement.topic-incomplete", text),))
    if partitions < len(have):
        text = (
            f"topic {topic} has {len(have)} partitions; the new number is {partitions}. A topic "
            "cannot lose partitions."
        )
        return Refused((Notice("placement.topic-shrinks", text),))
    if partitions == len(have):
        return {}
    replicas = have[0].replicas
    if start is None:
        start = place_of(cluster, replicas[0])
    brokers = tuple(cluster.brokers.values())
    return assigned(brokers, partitions - len(have), len(replicas), start=start, shift=shift, first=len(have))


def place_of(cluster: Cluster, leader: int) -> int:
    """Return the index at which ``kafka-topics --alter`` starts to place new partitions.

    leader: the broker that leads partition 0 of the topic.
    """
    return next((place for place, broker in enumerate(cluster.brokers) if broker >= leader), 0)


def _faults(brokers: Sequence[Broker], partitions: int, replication: int) -> tuple[Notice, ...]:
    without = [broker.id for broker in brokers if not broker.rack]
    told = []
    if partitions < 1 or replication < 1:
        text = (
            f"{partitions} partitions of {replication} replicas are not possible; needed: at least 1 of each"
        )
        told.append(Notice("placement.assignment-empty", text))
    if replication > len(brokers):
        text = f"{replication} replicas are not possible; the limit is the number of brokers, {len(brokers)}"
        told.append(Notice("placement.few-brokers", text))
    if without and len(without) < len(brokers):
        text = f"brokers {', '.join(map(str, without))} have no rack id; needed: one for each broker, or none"
        told.append(Notice("placement.racks-partly", text))
    return tuple(told)
