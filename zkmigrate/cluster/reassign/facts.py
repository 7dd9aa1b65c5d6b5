"""Facts of a run that moves partitions: the moves, the original replica sets, and the state of each move."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import ClassVar

from zkmigrate.cluster.placed import by_topic
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.placement.log_dirs import nameable
from zkmigrate.cluster.placement.maps import ANY
from zkmigrate.cluster.placement.plan import Reassignment
from zkmigrate.cluster.reassign.second_view import Ends, disputes
from zkmigrate.cluster.reassign.section import Dirs, Pace, PacedInventory, Phases, ReassignInventory, Sets
from zkmigrate.inventory.inventory import Inventory
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
    TopicSetting,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Records, Way
from zkmigrate.runbook.model.step_record import Recorded, known, recorded

WITNESSES = 2
"""The number of brokers that answer each query about partitions."""

LOOKS = 30
"""How often, a second apart, to query brokers that show neither the state before a change nor after it.

With KRaft each broker learns of a change independently.
"""


@dataclass(frozen=True, slots=True)
class Move(Reassignment):
    """One partition's planned change of replicas.

    leader: the id of the leader when the plan was recorded; -1 for none.
    dirs: the log directory that the plan names for each replica of ``after``; empty where Kafka may choose.
    held: the log directory that the way back names for each replica of ``before``; empty where Kafka may
    choose.
    phase: the number of the phase that makes the move. A phase begins when the one before is complete.
    """

    leader: int
    dirs: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    phase: int = 0

    @property
    def target(self) -> str:
        """The name of the move in the journal; no topic name has a colon."""
        return f"{self.topic}-{self.number}" + (f":{self.phase}" if self.phase else "")

    @property
    def copies(self) -> bool:
        """Whether the move adds or drops a replica, and does not only change the order."""
        return bool(self.added or self.dropped)

    def paths(self, way: Way) -> dict[int, str]:
        """Return the log directories that a direction names, by broker id.

        Brokers where Kafka chooses are left out.
        """
        replicas, dirs = (self.after, self.dirs) if way is Way.FORWARD else (self.before, self.held)
        return {broker: path for broker, path in zip(replicas, dirs, strict=bool(dirs)) if path}

    @property
    def inside(self) -> tuple[int, ...]:
        """The brokers that keep their replica and copy it into another log directory."""
        old = self.paths(Way.BACK)
        return tuple(
            broker
            for broker, path in self.paths(Way.FORWARD).items()
            if broker in self.before and path != old.get(broker)
        )

    @property
    def preferred(self) -> bool:
        """Whether the preferred leader was the leader when the plan was recorded."""
        return self.leader == self.before[0]


def _of_phase(moves: Iterable[Move], phase: int) -> tuple[Move, ...]:
    return tuple(move for move in moves if move.phase == phase)


def joined(moves: Sequence[Move]) -> tuple[Move, ...]:
    """Merge the moves of all phases into one move per partition, ordered by each partition's first move."""
    by_name: dict[Name, list[Move]] = {}
    for move in moves:
        by_name.setdefault(move.name, []).append(move)
    if len(by_name) == len(moves):
        return tuple(moves)
    found = []
    for own in by_name.values():
        first, last = own[0], own[-1]
        held = {broker: path for move in reversed(own) for broker, path in move.paths(Way.BACK).items()}
        dirs = {broker: path for move in own for broker, path in move.paths(Way.FORWARD).items()}
        found.append(
            replace(
                first,
                after=last.after,
                dirs=tuple(dirs.get(broker, "") for broker in last.after) if dirs else (),
                held=tuple(held.get(broker, "") for broker in first.before) if held else (),
                phase=0,
            )
        )
    return tuple(found)


@dataclass(frozen=True)
class Originals(Recorded):
    """The moves of a run, and what was there before its first change.

    moves: the moves in the order of the plan, without partitions that already had their new set.
    gone: brokers of the old sets that were down.
    others: reassignments that other tools had in flight; this run throttles them too.
    at: when the moves were planned, in seconds since the epoch, if the run itself plans them.
    tight: brokers without room for all their new replicas at once. Moves to them wait until old replicas are
    gone.
    """

    step: ClassVar[str] = "originals"

    moves: tuple[Move, ...]
    gone: tuple[int, ...] = ()
    others: tuple[Move, ...] = ()
    at: float = 0.0
    tight: tuple[int, ...] = ()

    @cached_property
    def last_phase(self) -> int:
        """The number of the last phase; the first is 0."""
        return max((move.phase for move in self.moves), default=0)

    def of_phase(self, phase: int) -> Originals:
        """Return a copy with only the moves of one phase."""
        return self if not self.last_phase else replace(self, moves=_of_phase(self.moves, phase))

    @cached_property
    def whole(self) -> tuple[Move, ...]:
        """One move per partition, from its first set to its last one over all phases."""
        return joined(self.moves)

    @property
    def throttled(self) -> tuple[Move, ...]:
        """All moves that the throttle covers: those of the run and of other tools."""
        return (*self.moves, *self.others)

    @cached_property
    def by_target(self) -> Mapping[str, Move]:
        """The moves by their name in the journal."""
        return {move.target: move for move in self.moves}


@dataclass(frozen=True)
class Stragglers(Recorded):
    """Moves that a run adds to those that it recorded before its first change.

    found: the throttle lists of their topics before the run, as
    :class:`zkmigrate.cluster.reassign.throttle.Throttles` records them.
    planned_at: the ``at`` of the :class:`Originals` that these moves extend.
    """

    step: ClassVar[str] = "sweep"

    moves: tuple[Move, ...] = ()
    found: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    planned_at: float = 0.0


@dataclass(frozen=True)
class LateStragglers(Stragglers):
    """Moves that the step that stops brokers adds.

    stopped: the hosts of the stopped brokers, in the order of the stops.
    """

    step: ClassVar[str] = "stop"

    stopped: tuple[str, ...] = ()


def added(record: Originals | None, records: Records) -> tuple[Stragglers, ...]:
    """Return the records of moves that a run added to these original moves."""
    bodies = ((kind, records.get(kind.step)) for kind in (Stragglers, LateStragglers))
    every = (recorded(kind, body, "") for kind, body in bodies if body)
    return tuple(one for one in every if record is not None and one.planned_at == record.at)


def stragglers(c: Context) -> Stragglers:
    """Return all moves that a run added to its current moves, as one record."""
    every = added(planned(c), c.records)
    found = {target: own for record in every for target, own in record.found.items()}
    return Stragglers(tuple(move for record in every for move in record.moves), found)


def planned(c: Context) -> Originals | None:
    """Return the moves that this run recorded before its first change, or None if the journal lacks them."""
    return known(Originals, c)


def originals(c: Context) -> Originals | None:
    """Return all moves of this run, including added ones, or None if the journal lacks the original moves."""
    record, more = planned(c), stragglers(c).moves
    return record if record is None or not more else replace(record, moves=(*record.moves, *more))


def to_move(_inventory: Inventory, records: Records) -> tuple[str, ...]:
    """Return the journal names of all moves that a run recorded; empty before it has recorded any."""
    body = records.get(Originals.step)
    return tuple(move.target for move in recorded(Originals, body, "").moves) if body else ()


def reassign_inventory(inventory: Inventory) -> ReassignInventory:
    """Return the inventory with its section ``reassign``. Raises TypeError if it has none."""
    if not isinstance(inventory, ReassignInventory):
        raise TypeError("the inventory of this playbook needs a section reassign")
    return inventory


def section(inventory: Inventory) -> Pace:
    """Return the settings for how fast partitions move.

    Raises TypeError if the playbook moves no partitions.
    """
    if not isinstance(inventory, PacedInventory):
        raise TypeError("the inventory of this playbook must say how fast partitions move")
    return inventory.pace


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

    In this order, a move that ends in between is seen in flight and looked at again.
    """
    return described(look, look.ask(ListReassignments(KAFKA)), names)


def described(look: Look, in_flight: Reading[Flights], names: Iterable[Name]) -> Cluster:
    """Describe the topics of these partitions. in_flight: the reassignments that were just listed."""
    topics = tuple(dict.fromkeys(topic for topic, _ in names))
    if not isinstance(in_flight, Seen) or not topics:
        return Cluster(in_flight, Seen(TopicPartitions("", frozenset(), (), {})))
    return Cluster(in_flight, look.ask(DescribePartitions(KAFKA, topics, WITNESSES)))


def goal(move: Move, way: Way) -> tuple[int, ...]:
    """Return the replica set that a move ends at in a direction."""
    return move.after if way is Way.FORWARD else move.before


class Stand(Enum):
    """The state of one move relative to the replica set that it should reach."""

    DONE = "done"
    """The partition has the set in order, and all of its replicas are in sync."""
    BEHIND = "behind"
    """The partition has the set in order, but a replica is not in sync yet."""
    MOVING = "moving"
    """The reassignment to the set is in flight."""
    INSIDE = "moving inside a broker"
    """The partition has the set, and a replica is being copied into its named directory."""
    MISPLACED = "in another directory"
    """The partition has the set, but a replica is in a wrong directory, and no copy moves it."""
    UNTOLD = "in an unknown directory"
    """The partition has the set, but a broker does not report which directory its replica is in."""
    TURNED = "turned"
    """A reassignment to the other of the run's two sets is in flight."""
    TO_SUBMIT = "to submit"
    """Nothing is in flight, and the partition has the brokers of one of the run's two sets."""
    DISPUTED = "disputed"
    """The brokers report the move as complete, but ZooKeeper does not."""
    FOREIGN = "foreign"
    """A reassignment to a third set is in flight, or the partition has the brokers of neither set."""
    GONE = "gone"
    """The partition does not exist."""
    ADRIFT = "adrift"
    """The reassignment is in flight, but its set names a broker that was given up."""
    LEFT = "left"
    """Nothing is in flight, and the set names a given-up broker, so the move must be planned anew."""


@dataclass(frozen=True)
class Stands:
    """The state of each move, by topic and partition."""

    moves: Sequence[Move]
    of: Mapping[Name, Stand]

    def but(self, disputed: Collection[Name]) -> Stands:
        """Return a copy in which these partitions are disputed by ZooKeeper."""
        return Stands(self.moves, {**self.of, **dict.fromkeys(disputed, Stand.DISPUTED)})

    def at(self, *stands: Stand) -> tuple[Move, ...]:
        """Return the moves that are in one of these states, in their order."""
        return tuple(move for move in self.moves if self.of[move.name] in stands)


def ends_in(c: Context, done: Iterable[Move], alive: Collection[int]) -> Ends:
    """Return what ZooKeeper should show for completed moves: each set, and which of it must be in sync.

    On the way back, brokers that are down need not be in sync.
    """
    ends = {move.name: goal(move, c.way) for move in done}
    forward = c.way is Way.FORWARD
    return {name: (of, [one for one in of if forward or one in alive]) for name, of in ends.items()}


def disputed(
    c: Context, look: Look, moves: Sequence[Move], found: Cluster, placed: Disks
) -> Mapping[Name, str]:
    """Return the moves that the brokers report as complete and ZooKeeper does not, with the reason.

    Empty if the inventory names no ZooKeeper servers or an answer of the brokers is missing.
    """
    inventory = c.inventory
    named = isinstance(inventory, ReassignInventory) and inventory.reassign.zookeeper
    if not named or found.missing is not None:
        return {}
    chroot = inventory.kafka.__dict__.get("chroot") or ""
    done = stands(moves, found, c.way, placed).at(Stand.DONE)
    return disputes(look, named, chroot, ends_in(c, done, found.alive))


def stands(
    moves: Sequence[Move], found: Cluster, way: Way, placed: Disks, given_up: Collection[int] = ()
) -> Stands:
    """Return the state of each move.

    placed: where the replicas with named directories are.
    given_up: brokers that are down and that the run does not wait for. The way back waits for no broker that
    is down.
    """
    partitions, flights = found.partitions, found.flights
    awaited = found.alive if way is Way.BACK else frozenset(b for m in moves for b in m.after) - {*given_up}
    told = {
        move.name: _stand(move, flights.get(move.name), partitions.get(move.name), awaited, way, placed)
        for move in moves
    }
    without = {Stand.MOVING: Stand.ADRIFT, Stand.TO_SUBMIT: Stand.LEFT}
    told |= {
        move.name: without[told[move.name]]
        for move in moves
        if told[move.name] in without and not {*given_up}.isdisjoint(goal(move, way))
    }
    return Stands(moves, told)


def _stand(
    move: Move,
    flight: InFlight | None,
    state: PartitionState | None,
    awaited: Collection[int],
    way: Way,
    placed: Disks,
) -> Stand:
    wished = goal(move, way)
    other = move.before if way is Way.FORWARD else move.after
    if flight is not None:
        return {wished: Stand.MOVING, other: Stand.TURNED}.get(flight.target, Stand.FOREIGN)
    if state is None:
        return Stand.GONE
    if state.replicas == wished:
        needed = tuple(broker for broker in wished if broker in awaited)
        return _placed(move, way, needed, placed) if set(needed) <= set(state.isr) else Stand.BEHIND
    known_sets = (set(wished), set(other))
    return Stand.TO_SUBMIT if set(state.replicas) in known_sets else Stand.FOREIGN


def _placed(move: Move, way: Way, brokers: Collection[int], placed: Disks) -> Stand:
    """Return the state of an in-sync move from the directories of its replicas on these brokers."""
    found = {
        placed.stand(broker, move.name, path) for broker, path in move.paths(way).items() if broker in brokers
    }
    order = (Stand.MISPLACED, Stand.INSIDE, Stand.UNTOLD)
    return next((stand for stand in order if stand in found), Stand.DONE)


@dataclass(frozen=True)
class FirstLook:
    """What a run sees before its first change.

    sizes: bytes of the largest reported replica, by partition.
    throttles: throttle settings that are set, in words.
    disks: log directories of the brokers of the moves.
    copying: broker settings that bound a copy, by key and broker.
    limits: throttle settings by target and key.
    loads: why the load of a broker cannot be read, if the throttle follows the load.
    wall: the time of the look, in seconds since the epoch.
    """

    cluster: Cluster
    sizes: Mapping[Name, int]
    throttles: tuple[str, ...]
    disks: Disks
    copying: Mapping[str, Mapping[int, Reading[TopicSetting]]]
    limits: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    loads: Mapping[int, str] = field(default_factory=dict)
    wall: float = 0.0

    def moves(self, sets: Sets, dirs: Dirs) -> tuple[Move, ...]:
        """Return the moves of a plan that are not complete yet.

        sets, dirs: the replica sets and the log directories that the plan names.
        """
        partitions = self.cluster.partitions
        made = (
            self._move(state, after, dirs.get(name, ()))
            for name, after in sets.items()
            if (state := partitions.get(name)) is not None
        )
        return tuple(move for move in made if move.before != move.after or move.inside)

    def phased(self, phases: Phases) -> tuple[Move, ...]:
        """Return the moves of all phases that are not complete yet, first phase first.

        A partition continues after the last phase whose set it has.
        """
        have = {name: state.replicas for name, state in self.cluster.partitions.items()}
        ends: dict[Name, int] = {}
        for number, (sets, _) in enumerate(phases):
            ends |= {name: number for name, after in sets.items() if have.get(name) == after}
        found: list[Move] = []
        for number, (sets, dirs) in enumerate(phases):
            states = {
                name: PartitionState(*name, state.leader, have[name], state.isr)
                for name, state in self.cluster.partitions.items()
                if name in sets and ends.get(name, number) <= number
            }
            own = {name: sets[name] for name in sets if name in states}
            made = (self._move(states[name], after, dirs.get(name, ())) for name, after in own.items())
            found += (
                replace(move, phase=number) for move in made if move.before != move.after or move.inside
            )
            have |= own
        return tuple(found)

    def of_others(self, names: Collection[Name]) -> tuple[Move, ...]:
        """Return the reassignments in flight on partitions outside the plan, as moves.

        names: partitions of the plan.
        """
        partitions = self.cluster.partitions
        return tuple(
            Move(*name, before, flight.target, self.sizes.get(name, 0), partitions[name].leader)
            for name, flight in self.cluster.flights.items()
            if name not in names and name in partitions
            for before in (tuple(broker for broker in flight.replicas if broker not in flight.adding),)
        )

    def awaited(self, others: str, names: Collection[Name]) -> Flights:
        """Return the other tools' reassignments that must end before the run records the current state.

        others: ``reassign.others`` of the inventory.
        names: the partitions of the plan, whose sets no other tool may change.
        """
        flights = self.cluster.flights
        if others == "take":
            return {name: flight for name, flight in flights.items() if name in names}
        return flights if others == "wait" else {}

    def _move(self, state: PartitionState, after: tuple[int, ...], named: tuple[str, ...]) -> Move:
        name, before = (state.topic, state.partition), state.replicas
        dirs = tuple("" if path == ANY else path for path in named)
        chosen = dict(zip(after, dirs, strict=bool(dirs)))
        held = tuple(self._directory_back(broker, name, after, chosen) for broker in before)
        return Move(
            *name, before, after, self.sizes.get(name, 0), state.leader, dirs, held if any(held) else ()
        )

    def _directory_back(
        self, broker: int, name: Name, after: Collection[int], chosen: Mapping[int, str]
    ) -> str:
        """Return the log directory that the way back names for a replica; empty to let Kafka choose."""
        path = self.disks.places.get((broker, name), "")
        if path in self.disks.cordoned.get(broker, ()):
            return ""  # Kafka would refuse it
        if broker in after:
            return path if chosen.get(broker) else ""
        return path if len(self.disks.paths.get(broker, ())) > 1 and nameable(name) else ""


def unmade(c: Context, first: FirstLook) -> tuple[Move, ...]:
    """Return the moves of the run's plan that are not complete yet."""
    plan = reassign_inventory(c.inventory)
    return first.phased(plan.phases) if len(plan.phases) > 1 else first.moves(plan.sets, plan.dirs)


@dataclass(frozen=True)
class Disks:
    """What brokers report about their log directories.

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
