"""Query brokers about partitions, log directories and log ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from zkmigrate.cluster.placed import by_topic
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.moves import Move, Stand
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import (
    DescribeLogDirs,
    DescribePartitions,
    InFlight,
    ListReassignments,
    LogDir,
    LogEnd,
    PartitionState,
    ReadLogEnds,
    TopicPartitions,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Way

WITNESSES = 2
"""The number of brokers that answer each query about partitions."""


Flights = Mapping[Name, InFlight]
"""The reassignments in flight, by topic and partition."""


@dataclass(frozen=True)
class Cluster:
    """The brokers' answers about some topics.

    in_flight: every reassignment of the cluster. seen: the partitions of the topics.
    """

    in_flight: Reading[Flights]
    seen: Reading[TopicPartitions]

    @property
    def missing_answer(self) -> Reading[object] | None:
        """The first missing answer; None if both arrived."""
        return next((one for one in (self.in_flight, self.seen) if not isinstance(one, Seen)), None)

    @property
    def missing(self) -> Reading[object] | None:
        """The first missing answer, or else a topic that cannot be described; None if nothing is missing."""
        return self.missing_answer or next(iter(self.undescribed.values()), None)

    @property
    def alive(self) -> frozenset[int]:
        """The registered brokers that every queried broker reports; empty without an answer."""
        return self.seen.value.brokers if isinstance(self.seen, Seen) else frozenset()

    @property
    def flights(self) -> Flights:
        """The reassignments in flight; empty without an answer."""
        return self.in_flight.value if isinstance(self.in_flight, Seen) else {}

    @cached_property
    def partitions(self) -> Mapping[Name, PartitionState]:
        """The state of each described partition, by topic and partition."""
        if not isinstance(self.seen, Seen):
            return {}
        return {
            (p.topic, p.partition): p
            for topic in self.seen.value.topics.values()
            if isinstance(topic, Seen)
            for p in topic.value
        }

    def missing_from(self, name: Name) -> tuple[int, ...]:
        """Return the brokers whose replica of a partition is not in sync yet."""
        if name in self.flights:
            return self.flights[name].adding
        state = self.partitions.get(name)
        return tuple(broker for broker in state.replicas if broker not in state.isr) if state else ()

    @property
    def undescribed(self) -> Mapping[str, Unknown]:
        """The topics that could not be described, with the reason."""
        if not isinstance(self.seen, Seen):
            return {}
        return {name: topic for name, topic in self.seen.value.topics.items() if isinstance(topic, Unknown)}


def cluster(look: Look, names: Iterable[Name]) -> Cluster:
    """List the reassignments in flight, then describe the topics of these partitions.

    In this order, a move that ends between both queries is seen in flight, and is queried again later.
    """
    return described(look, look.ask(ListReassignments(KAFKA)), names)


def described(look: Look, in_flight: Reading[Flights], names: Iterable[Name]) -> Cluster:
    """Describe the topics of these partitions. in_flight: the reassignments that were just listed."""
    topics = tuple(dict.fromkeys(topic for topic, _ in names))
    if not isinstance(in_flight, Seen) or not topics:
        return Cluster(in_flight, Seen(TopicPartitions("", frozenset(), (), {})))
    return Cluster(in_flight, look.ask(DescribePartitions(KAFKA, topics, WITNESSES)))


@dataclass(frozen=True)
class Disks:
    """The log directories of some brokers, as these brokers report them.

    sizes: bytes of replicas, by broker and partition.
    room: free bytes of the brokers that report them, since Kafka 3.3.
    places: the log directory of each replica.
    futures: the directory into which a replica is being copied inside its broker, and how many bytes are
    there.
    paths: the usable log directories of each broker.
    cordoned: the log directories that accept no replica that is assigned to them by name.
    """

    sizes: Mapping[tuple[int, Name], int]
    room: Mapping[int, int]
    places: Mapping[tuple[int, Name], str] = field(default_factory=dict)
    futures: Mapping[tuple[int, Name], tuple[str, int]] = field(default_factory=dict)
    paths: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    cordoned: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def shut(self, broker: int) -> bool:
        """Return whether all log directories of a broker are cordoned."""
        return bool(self.paths.get(broker)) and self.cordoned.get(broker, frozenset()) >= {
            *self.paths[broker]
        }

    def stand(self, broker: int, name: Name, path: str) -> Stand:
        """Return the state of one replica. path: the log directory that it should be in."""
        if (broker, name) in self.futures:
            return Stand.INSIDE if self.futures[broker, name][0] == path else Stand.MISPLACED
        if (broker, name) not in self.places:
            return Stand.UNTOLD
        return Stand.DONE if self.places[broker, name] == path else Stand.MISPLACED


def placed(look: Look, moves: Iterable[Move], alive: Collection[int], way: Way) -> Disks:
    """Look up where the replicas with named directories are. alive: the brokers to query."""
    named = [move for move in moves if move.paths(way)]
    brokers = sorted({broker for move in named for broker in move.paths(way) if broker in alive})
    return disks(look, brokers, (move.name for move in named)) if brokers else Disks({}, {})


def disks(look: Look, brokers: Iterable[int], names: Iterable[Name]) -> Disks:
    """Look up the log directories of these brokers, and the replicas of these partitions there."""
    numbers = by_topic(names)
    told = look.ask(DescribeLogDirs(KAFKA, tuple(brokers), numbers)) if numbers else Absent("partitions")
    if not isinstance(told, Seen):
        return Disks({}, {})
    usable = {
        broker: {path: one.value for path, one in dirs.value.items() if isinstance(one, Seen)}
        for broker, dirs in told.value.items()
        if isinstance(dirs, Seen)
    }
    replicas = [
        ((broker, (replica.topic, replica.partition)), path, replica)
        for broker, dirs in usable.items()
        for path, one in dirs.items()
        for replica in one.replicas
    ]
    return Disks(
        {at: replica.size for at, _, replica in replicas if not replica.future},
        {broker: room for broker, dirs in usable.items() if (room := _room(dirs.values())) is not None},
        {at: path for at, path, replica in replicas if not replica.future},
        {at: (path, replica.size) for at, path, replica in replicas if replica.future},
        {broker: tuple(dirs) for broker, dirs in usable.items()},
        {
            broker: frozenset(path for path, one in dirs.items() if one.cordoned)
            for broker, dirs in usable.items()
        },
    )


@dataclass(frozen=True)
class LogEnds:
    """The reported log ends of replicas that are not in sync and of their leaders."""

    told: Mapping[tuple[int, Name], LogEnd] = field(default_factory=dict)

    def words(self, broker: int, leader: int, name: Name) -> str:
        """Describe how far one replica's log reaches compared with its leader's.

        Missing figures read "unknown".
        """
        own, led = self.told.get((broker, name)), self.told.get((leader, name))
        offset, end = own.offset if own else None, led.offset if led else None
        behind = None if offset is None or end is None else max(0, end - offset)
        words = f"LEO {_count(offset)} of {_count(end)}, records behind: {_count(behind)}, "
        words += f"HW {_count(led.high_watermark if led else None)}, "
        epoch, of_leader = own.epoch if own else None, led.epoch if led else None
        words += f"leader epoch {_count(of_leader)}"
        return words if epoch in (None, of_leader) else f"{words} and {_count(epoch)} by this broker"


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def log_ends(look: Look, found: Cluster, names: Iterable[Name], most: int) -> LogEnds:
    """Look up the log ends of the replicas that are not in sync yet, and of their leaders.

    most: the largest number of partitions to query.
    """
    partitions = found.partitions
    behind = ((partitions[name], found.missing_from(name)) for name in names if name in partitions)
    replicas: dict[int, dict[str, list[int]]] = {}
    for state, missing in islice((one for one in behind if one[1]), most):
        for broker in sorted({*missing, state.leader} & found.alive):
            replicas.setdefault(broker, {}).setdefault(state.topic, []).append(state.partition)
    told = look.ask(ReadLogEnds(KAFKA, replicas)) if replicas else Absent("replicas behind")
    by_broker = told.value if isinstance(told, Seen) else {}
    return LogEnds(
        {
            (broker, name): end.value
            for broker, ends in by_broker.items()
            if isinstance(ends, Seen)
            for name, end in ends.value.items()
            if isinstance(end, Seen)
        }
    )


def _room(dirs: Collection[LogDir]) -> int | None:
    """Return the free bytes of a broker, or None if one of its directories does not report them.

    Directories that report equal figures may share a volume and are counted once. Cordoned directories are
    counted only if all are cordoned: Kafka uses them then, for instance when a run returns replicas to
    brokers that it has cordoned.
    """
    kept = [one for one in dirs if not one.cordoned] or dirs
    volumes = {(one.total, one.usable) for one in kept}
    if not volumes or any(usable is None for _, usable in volumes):
        return None
    return sum(usable or 0 for _, usable in volumes)
