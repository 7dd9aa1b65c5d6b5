"""Facts of a run that moves partitions: the moves, the original replica lists, and the state of each move."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.placement.log_dirs import nameable
from zkmigrate.cluster.placement.maps import ANY
from zkmigrate.cluster.reassign.answers import Cluster, Disks, Flights
from zkmigrate.cluster.reassign.moves import Move, Stand, goal, reassign_inventory
from zkmigrate.cluster.reassign.second_view import Ends, disputes
from zkmigrate.cluster.reassign.section import Dirs, Phases, ReassignInventory, Sets
from zkmigrate.kafka.questions import (
    InFlight,
    PartitionState,
    TopicSetting,
)
from zkmigrate.runbook.model.fact import Reading
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Way

LOOKS = 30
"""The number of queries, one second apart, to brokers that report the state neither before a change nor
after.

With KRaft each broker learns of a change independently.
"""


@dataclass(frozen=True)
class Stands:
    """The state of each move in a run, by topic and partition."""

    moves: Sequence[Move]
    of: Mapping[Name, Stand]

    def but(self, disputed: Collection[Name]) -> Stands:
        """Return a copy in which the state of these partitions' moves is disputed by ZooKeeper."""
        return Stands(self.moves, {**self.of, **dict.fromkeys(disputed, Stand.DISPUTED)})

    def at(self, *stands: Stand) -> tuple[Move, ...]:
        """Return the moves that are in one of these states, in their order."""
        return tuple(move for move in self.moves if self.of[move.name] in stands)


def ends_in(c: Context, done: Iterable[Move], alive: Collection[int]) -> Ends:
    """Return, by partition, the replica list that ZooKeeper should show and the brokers that must be in sync.

    done: the completed moves. On the way back, brokers that are down need not be in sync.
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
    chroot = (inventory.kafka.__dict__.get("chroot") or "").rstrip("/")
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
    """Return the state of a move that is in sync, judged by the log directories of its replicas.

    brokers: the brokers whose replicas count.
    """
    found = {
        placed.stand(broker, move.name, path) for broker, path in move.paths(way).items() if broker in brokers
    }
    order = (Stand.MISPLACED, Stand.INSIDE, Stand.UNTOLD)
    return next((stand for stand in order if stand in found), Stand.DONE)


@dataclass(frozen=True)
class FirstLook:
    """The state of the cluster before a run's first change.

    sizes: bytes of the largest reported replica, by partition.
    throttles: throttle settings that are set, in words.
    disks: log directories of the brokers of the moves.
    copying: broker settings that limit the speed of a copy, by key and broker.
    limits: throttle settings by target and key.
    loads: why the load of a broker cannot be read, if the throttle follows the load.
    wall: the time of these answers, in seconds since the epoch.
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

        sets, dirs: the replica lists and the log directories that the plan names.
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

        A partition continues after the last phase whose replica list it has.
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
        names: the partitions of the plan, whose replica lists no other tool may change.
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
