"""Facts of a run that moves partitions: the moves, the sets before them, and where each of them stands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.change import KAFKA
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import InFlight, LogDir, Look, PartitionState, TopicPartitions
from zkmigrate.model.step import Context, Records, Way
from zkmigrate.model.step_record import Recorded, known, recorded
from zkmigrate.placement.cluster import Name
from zkmigrate.placement.plan import Reassignment
from zkmigrate.reassign.section import Reassign, ReassignInventory, Sets

WITNESSES = 2
"""Brokers that each look at partitions asks."""

LOOKS = 30
"""How often, a second apart, brokers are asked again that show neither the state before a confirmed change
nor the one after it: with KRaft each broker learns of it by itself."""


@dataclass(frozen=True, slots=True)
class Move(Reassignment):
    """One partition of the plan as it was found. leader: who led it; -1 for nobody."""

    leader: int

    @property
    def target(self) -> str:
        """What the journal calls it."""
        return f"{self.topic}-{self.number}"

    @property
    def copies(self) -> bool:
        """Whether it copies going forward or going back, and not only changes the order."""
        return bool(self.added or self.dropped)

    @property
    def preferred(self) -> bool:
        """Whether the preferred leader led it."""
        return self.leader == self.before[0]


@dataclass(frozen=True)
class Originals(Recorded):
    """moves: in the order of the plan, without the partitions that had their new set already."""

    step: ClassVar[str] = "originals"

    moves: tuple[Move, ...]

    @cached_property
    def by_target(self) -> Mapping[str, Move]:
        """The moves by what the journal calls them."""
        return {move.target: move for move in self.moves}


def originals(c: Context) -> Originals | None:
    """The moves of this run; None where the journal does not hold them."""
    return known(Originals, c)


def to_move(_inventory: Inventory, records: Records) -> tuple[str, ...]:
    """The partitions that a run moves, moved or not; none before it has looked at them."""
    body = records.get(Originals.step)
    return tuple(move.target for move in recorded(Originals, body, "").moves) if body else ()


def wanted(inventory: Inventory) -> ReassignInventory:
    """The inventory with its section. TypeError where it has none."""
    if not isinstance(inventory, ReassignInventory):
        raise TypeError("the inventory of this playbook has a section reassign")
    return inventory


def section(inventory: Inventory) -> Reassign:
    """How the plan is carried out."""
    return wanted(inventory).reassign


Flights = Mapping[Name, InFlight]
"""The reassignments in flight, by topic and partition."""


@dataclass(frozen=True)
class Cluster:
    """What the brokers tell about some topics.

    in_flight: every reassignment of the cluster. seen: the partitions of the topics.
    """

    in_flight: Reading[Flights]
    seen: Reading[TopicPartitions]

    @property
    def unheard(self) -> Reading[object] | None:
        """The first answer that is missing; None when both are there."""
        return next((one for one in (self.in_flight, self.seen) if not isinstance(one, Seen)), None)

    @property
    def missing(self) -> Reading[object] | None:
        """The same, and a topic that may not be described."""
        return self.unheard or next(iter(self.dark.values()), None)

    @property
    def alive(self) -> frozenset[int]:
        """The brokers that every witness names; none where nobody told."""
        return self.seen.value.brokers if isinstance(self.seen, Seen) else frozenset()

    @property
    def flights(self) -> Flights:
        """Those in flight; none where nobody told."""
        return self.in_flight.value if isinstance(self.in_flight, Seen) else {}

    @cached_property
    def partitions(self) -> Mapping[Name, PartitionState]:
        """By topic and partition, what is there."""
        if not isinstance(self.seen, Seen):
            return {}
        return {
            (p.topic, p.partition): p
            for topic in self.seen.value.topics.values()
            if isinstance(topic, Seen)
            for p in topic.value
        }

    @property
    def dark(self) -> Mapping[str, Unknown]:
        """The topics that may not be described."""
        if not isinstance(self.seen, Seen):
            return {}
        return {name: topic for name, topic in self.seen.value.topics.items() if isinstance(topic, Unknown)}


def cluster(look: Look, names: Iterable[Name]) -> Cluster:
    """Look at what is in flight, then at the topics of these partitions: a move that ends in between is seen
    in flight and looked at again."""
    return described(look, look.reassignments(KAFKA), names)


def described(look: Look, in_flight: Reading[Flights], names: Iterable[Name]) -> Cluster:
    """Look at the topics of these partitions. in_flight: what was told just before."""
    topics = tuple(dict.fromkeys(topic for topic, _ in names))
    if not isinstance(in_flight, Seen) or not topics:
        return Cluster(in_flight, Seen(TopicPartitions("", frozenset(), (), {})))
    return Cluster(in_flight, look.topic_partitions(KAFKA, topics, WITNESSES))


def goal(move: Move, way: Way) -> tuple[int, ...]:
    """The set that a move ends at."""
    return move.after if way is Way.FORWARD else move.before


class Stand(Enum):
    """Where one move stands, towards the set that it is to have."""

    DONE = "done"
    """It has the set, in order, and all of it is in sync."""
    BEHIND = "behind"
    """It has the set, in order; a replica is not in sync yet."""
    MOVING = "moving"
    """The set is in flight."""
    TURNED = "turned"
    """The other of the run's two sets is in flight."""
    TO_SUBMIT = "to submit"
    """Nothing is in flight, and it has the brokers of one of the run's two sets."""
    FOREIGN = "foreign"
    """Another set is in flight, or it has brokers of neither."""
    GONE = "gone"
    """The partition does not exist."""


@dataclass(frozen=True)
class Stands:
    """Where moves stand, by name. way: forward they are to have the plan's set, back the one before."""

    moves: Sequence[Move]
    of: Mapping[Name, Stand]

    def at(self, *stands: Stand) -> tuple[Move, ...]:
        """The moves that stand so, in their order."""
        return tuple(move for move in self.moves if self.of[move.name] in stands)


def stands(moves: Sequence[Move], found: Cluster, way: Way) -> Stands:
    """Where each move stands. On the way back a broker that is down is not waited for."""
    partitions, flights = found.partitions, found.flights
    told = {
        move.name: _stand(move, flights.get(move.name), partitions.get(move.name), found.alive, way)
        for move in moves
    }
    return Stands(moves, told)


def _stand(
    move: Move, flight: InFlight | None, state: PartitionState | None, alive: Collection[int], way: Way
) -> Stand:
    wished = goal(move, way)
    other = move.before if way is Way.FORWARD else move.after
    if flight is not None:
        return {wished: Stand.MOVING, other: Stand.TURNED}.get(flight.target, Stand.FOREIGN)
    if state is None:
        return Stand.GONE
    if state.replicas == wished:
        needed = wished if way is Way.FORWARD else tuple(broker for broker in wished if broker in alive)
        return Stand.DONE if set(needed) <= set(state.isr) else Stand.BEHIND
    known_sets = (set(wished), set(other))
    return Stand.TO_SUBMIT if set(state.replicas) in known_sets else Stand.FOREIGN


@dataclass(frozen=True)
class FirstLook:
    """What is there before anything is changed. sizes: bytes of the largest replica, by partition; of those
    that a broker told. room: free bytes by broker, of those that tell. throttles: settings, in words."""

    cluster: Cluster
    sizes: Mapping[Name, int]
    room: Mapping[int, int]
    throttles: tuple[str, ...]

    def moves(self, sets: Sets) -> tuple[Move, ...]:
        """The moves of a plan that are not made yet."""
        partitions = self.cluster.partitions
        return tuple(
            Move(topic, number, state.replicas, after, self.sizes.get((topic, number), 0), state.leader)
            for (topic, number), after in sets.items()
            if (state := partitions.get((topic, number))) is not None and state.replicas != after
        )


@dataclass(frozen=True)
class Disks:
    """What brokers tell of their disks. sizes: bytes of replicas, by broker and partition. room: free bytes
    of the brokers that tell them, from Kafka 3.3 on."""

    sizes: Mapping[tuple[int, Name], int]
    room: Mapping[int, int]


def disks(look: Look, brokers: Iterable[int], names: Iterable[Name]) -> Disks:
    """Look at the disks of these brokers, and there at the replicas of these partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in names:
        by_topic.setdefault(topic, []).append(number)
    told = look.log_dirs(KAFKA, tuple(brokers), by_topic) if by_topic else Absent("partitions")
    if not isinstance(told, Seen):
        return Disks({}, {})
    usable = {
        broker: [one.value for one in dirs.value.values() if isinstance(one, Seen)]
        for broker, dirs in told.value.items()
        if isinstance(dirs, Seen)
    }
    return Disks(
        {
            (broker, (replica.topic, replica.partition)): replica.size
            for broker, dirs in usable.items()
            for one in dirs
            for replica in one.replicas
            if not replica.future
        },
        {broker: room for broker, dirs in usable.items() if (room := _room(dirs)) is not None},
    )


def _room(dirs: Sequence[LogDir]) -> int | None:
    """Free bytes of a broker; None where one directory does not tell them. Directories that tell the same may
    share a volume and count once."""
    volumes = {(one.total, one.usable) for one in dirs}
    if not volumes or any(usable is None for _, usable in volumes):
        return None
    return sum(usable or 0 for _, usable in volumes)
