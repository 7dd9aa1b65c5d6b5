"""Choose the replica lists of a new topic or of added partitions, as Kafka's own code does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import islice, product

from zkmigrate.cluster.placement.assignment import Sets, assigned, grown, rack_alternating
from zkmigrate.cluster.placement.cluster import Broker, Cluster
from zkmigrate.cluster.placement.cluster_file import TOPIC, TOPIC_NEEDED
from zkmigrate.cluster.placement.plan import Notice, Refused

INTERNAL = ("__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state")
"""Kafka's own topics.

Kafka creates them itself, and finds a group or transaction by their number of partitions.
"""

_TRIES = 100
"""The most pairs of start and shift that are tried for the most even growth; it limits the time."""


@dataclass(frozen=True)
class TopicSets:
    """The replica lists of a topic's new partitions.

    sets: the replica lists by partition number; the first number is 0 for a new topic.
    start, shift: values that give the same replica lists again.
    after: the replica lists of all partitions of the topic, including these.
    """

    topic: str
    sets: Sets
    start: int
    shift: int
    after: Sets
    notices: tuple[Notice, ...] = ()


def new_topic(
    cluster: Cluster, topic: str, partitions: int, replication: int, start: int, shift: int | None = None
) -> TopicSets | Refused:
    """Return the replica lists of a new topic.

    start: the position of partition 0's leader in the order of brokers, modulo their number.
    shift: the distance from the leader to the next replica; None for the value of ``start``.
    """
    if wrong := (*_name_faults(topic), *_name_conflicts(topic, {one.topic for one in cluster.partitions})):
        return Refused(wrong)
    brokers = tuple(cluster.brokers.values())
    turn = start if shift is None else shift
    sets = assigned(brokers, partitions, replication, start=start, shift=turn)
    if isinstance(sets, Refused):
        return sets
    return TopicSets(topic, sets, start, turn, sets, _few_racks(cluster, replication))


def more_partitions(
    cluster: Cluster, topic: str, partitions: int, start: int | None = None, shift: int | None = None
) -> TopicSets | Refused:
    """Return the replica lists of a topic's new partitions; those of old partitions stay.

    start: as for :func:`new_topic`; None puts the leaders on brokers that lead the fewest of the topic.
    shift: as for :func:`new_topic`; None puts the replicas on brokers that hold the fewest of the topic.

    Kafka itself begins at the leader of partition 0, wherever the others are.
    """
    have = {one.number: one.replicas for one in cluster.partitions if one.topic == topic}
    if topic in INTERNAL:
        return Refused((_internal(topic),))
    if not have:
        text = (
            f"there is no topic {topic}; needed: an existing topic. Next: use zkmigrate placement new-topic"
        )
        return Refused((Notice("placement.topic-unknown", text),))
    if partitions == len(have):
        return TopicSets(topic, {}, start or 0, shift or 0, have)
    starts = _evenest_starts(cluster, have, partitions) if start is None else [start]
    shifts = range(max(len(cluster.brokers) - 1, 1)) if shift is None else [shift]
    best, least = None, None
    for begin, turn in islice(product(starts, shifts), _TRIES):
        sets = grown(cluster, topic, partitions, start=begin, shift=turn)
        if isinstance(sets, Refused):
            return sets
        uneven = sum(count**2 for count in _replica_counts((*have.values(), *sets.values())).values())
        if least is None or uneven < least:
            best, least = (sets, begin, turn), uneven
    if best is None:
        return Refused((Notice("placement.few-brokers", "no registered broker may receive a replica"),))
    new, begin, turn = best
    keys = (
        f"after this, records with a key go to other partitions of {topic}; "
        "the topic can never have fewer partitions again"
    )
    notices = (Notice("placement.only-grows", keys), *_few_racks(cluster, len(have[0])))
    return TopicSets(topic, new, begin, turn, {**have, **new}, notices)


def without(cluster: Cluster, brokers: Collection[int]) -> Cluster:
    """Return the cluster without these brokers, so that they get no new replica."""
    return replace(cluster, brokers={id_: of for id_, of in cluster.brokers.items() if id_ not in brokers})


def racks_ignored(cluster: Cluster) -> Cluster:
    """Return the cluster as if no broker had a rack."""
    return replace(cluster, brokers={id_: Broker(id_, "", of.free) for id_, of in cluster.brokers.items()})


def _evenest_starts(cluster: Cluster, have: Sets, partitions: int) -> list[int]:
    """Return the indices in the order of brokers from which the topic's leaders are spread most evenly."""
    brokers = tuple(cluster.brokers.values())
    order = rack_alternating(brokers) if brokers and brokers[0].rack else tuple(cluster.brokers)
    led = Counter(replicas[0] for replicas in have.values())
    uneven = []
    for start in range(len(order)):
        new = Counter(order[(number + start) % len(order)] for number in range(len(have), partitions))
        uneven.append(sum((led[broker] + new[broker]) ** 2 for broker in order))
    return [start for start, of in enumerate(uneven) if of == min(uneven)]


def _replica_counts(sets: Iterable[tuple[int, ...]]) -> Counter[int]:
    return Counter(broker for replicas in sets for broker in replicas)


def _name_faults(topic: str) -> tuple[Notice, ...]:
    if topic in INTERNAL:
        return (_internal(topic),)
    if re.fullmatch(TOPIC, topic) and topic not in (".", ".."):
        return ()
    text = f'the name {topic[:260]!r} is not legal; needed: {TOPIC_NEEDED}, and neither "." nor ".."'
    return (Notice("placement.topic-name", text),)


def _internal(topic: str) -> Notice:
    text = (
        f"{topic} is Kafka's own topic; needed: another topic. Kafka creates it itself and depends "
        "on its number"
    )
    return Notice("placement.topic-internal", f"{text} of partitions")


def _name_conflicts(topic: str, names: Collection[str]) -> tuple[Notice, ...]:
    """Return why a topic name is taken.

    Kafka's metrics write "." as "_", so names that differ in nothing else collide (``Topic.hasCollision``).
    """
    if topic in names:
        text = f"topic {topic} exists already. Next: choose another name, or use zkmigrate placement grow"
        return (Notice("placement.topic-exists", text),)
    alike = sorted(name for name in names if name.replace(".", "_") == topic.replace(".", "_"))
    if not alike:
        return ()
    text = (
        f"{topic} and the topic {alike[0]} differ only in . and _, which Kafka refuses. Next: "
        "choose another name"
    )
    return (Notice("placement.topic-collides", text),)


def _few_racks(cluster: Cluster, replication: int) -> tuple[Notice, ...]:
    racks = len({broker.rack for broker in cluster.brokers.values() if broker.rack})
    if not 0 < racks < replication:
        return ()
    text = (
        f"{replication} replicas are in {racks} racks, so some rack has more than one replica of a partition"
    )
    return (Notice("placement.few-racks", text),)
