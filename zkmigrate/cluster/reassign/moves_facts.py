"""Facts of moves under way: which are in flight, which may begin, and what brokers report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign import facts
from zkmigrate.cluster.reassign.answers import Cluster, Disks, Flights, LogEnds
from zkmigrate.cluster.reassign.choice import fitting, next_moves
from zkmigrate.cluster.reassign.estimate import ends
from zkmigrate.cluster.reassign.facts import Stands
from zkmigrate.cluster.reassign.moves import Move, Originals, goal
from zkmigrate.cluster.reassign.rate_control import Copying
from zkmigrate.cluster.reassign.rates import RatesInForce
from zkmigrate.cluster.reassign.section import Pace
from zkmigrate.runbook.model.step import Context, Way


@dataclass(frozen=True)
class MovesFacts:
    """The state of a run's moves, as read at one time.

    plan: the moves of the run.
    looked: the moves whose state was read.
    found: the brokers' answers about the moves in ``looked``.
    copied: bytes of the replicas that are being added, by broker and partition.
    whole: whether ``looked`` has all moves of the run.
    disks: where the replicas with named directories are.
    rates: the rates of the throttle; None without one.
    taken: reassignments of other tools that are in flight and throttled too.
    disputes: why ZooKeeper shows a move as not done that seems complete.
    cramped: moves that wait until a broker has room.
    wall: the time of the reading, in seconds since the epoch.
    phase: the phase of these moves, from 0 to ``last_phase``.
    ends: the log ends of replicas that are not in sync, and of their leaders.
    given_up: brokers that are down and that the run does not wait for.
    sizes: current bytes of the partitions in flight, as their senders report them.
    """

    plan: Originals | None = None
    found: Cluster | None = None
    looked: tuple[Move, ...] = ()
    copied: Mapping[tuple[int, Name], int] = field(default_factory=dict)
    whole: bool = False
    disks: Disks = field(default_factory=lambda: Disks({}, {}))
    rates: RatesInForce | None = None
    taken: tuple[Move, ...] = ()
    disputes: Mapping[Name, str] = field(default_factory=dict)
    cramped: tuple[Move, ...] = ()
    wall: float = 0.0
    phase: int = 0
    last_phase: int = 0
    ends: LogEnds = field(default_factory=LogEnds)
    given_up: frozenset[int] = frozenset()
    sizes: Mapping[Name, int] = field(default_factory=dict)

    def size(self, move: Move) -> int:
        """Return the current bytes of a partition, including clients' writes since the run began."""
        return max(move.size, self.sizes.get(move.name, 0))

    def stands(self, way: Way) -> Stands:
        """Return the state of each move that was read."""
        assert self.found is not None
        gone = self.given_up if way is Way.FORWARD else ()
        return facts.stands(self.looked, self.found, way, self.disks, gone).but(self.disputes)


@dataclass(frozen=True)
class Queue:
    """The moves of one phase, in the order of the run's direction, sorted by whether they are in flight.

    left: the moves that were not seen complete yet.
    sent: the moves among ``left`` that were sent.
    ready: the moves among ``left`` that may begin. A move to a broker that is down is ready only when every
    other move is complete.
    flying: the moves in flight.
    taken: reassignments of other tools in flight.
    whole: whether no move is left, so that the state of all is read.
    """

    plan: Originals
    way: Way
    flights: Flights
    moves: tuple[Move, ...]
    left: tuple[Move, ...]
    sent: tuple[Move, ...]
    ready: tuple[Move, ...]
    flying: tuple[Move, ...]
    taken: tuple[Move, ...]
    whole: bool

    @property
    def copying(self) -> tuple[Move, ...]:
        """All reassignments in flight, of this run and of other tools."""
        return (*self.flying, *self.taken)

    @cached_property
    def short(self) -> tuple[Move, ...]:
        """The moves that are about to begin; empty if all brokers have room for all their new replicas.

        Moves that were sent but are not in flight are included, because Kafka may not have received them.
        """
        if not self.plan.tight:
            return ()
        begins = {move.name for move in (*self.ready, *self.sent)} - self.flights.keys()
        return tuple(move for move in self.left if move.name in begins)

    @cached_property
    def tight(self) -> frozenset[int]:
        """The brokers that are short of room for the moves in ``short``."""
        receivers = {broker for move in self.short for broker in ends(move, self.way)[1]}
        return frozenset(receivers.intersection(self.plan.tight))

    @property
    def log_dirs_to_read(self) -> tuple[list[int], list[Name]]:
        """The brokers whose log directories are to be read, and the partitions to find there."""
        adding = {broker for move in self.copying for broker in self.flights[move.name].adding}
        senders = {ends(move, self.way)[0] for move in self.copying}
        return sorted(adding | senders | self.tight), [move.name for move in (*self.copying, *self.short[:1])]

    def copied(self, told: Disks) -> dict[tuple[int, Name], int]:
        """Return the bytes of the replicas that are being added, by broker and partition."""
        return {
            (broker, name): size
            for (broker, name), size in told.sizes.items()
            if name in self.flights and broker in self.flights[name].adding
        }

    def sizes(self, told: Disks) -> dict[Name, int]:
        """Return the bytes of the partitions in flight, as their senders report them."""
        found = {move.name: told.sizes.get((ends(move, self.way)[0], move.name)) for move in self.copying}
        return {name: size for name, size in found.items() if size is not None}

    def cramped(self, told: Disks) -> tuple[Move, ...]:
        """Return the moves that wait until a broker has room."""
        copied = self.copied(told)
        room = {b: told.room.get(b, -1) - self._to_come(copied, b) for b in self.tight}
        fit = {move.name for move in fitting(self.short, self.way, room)}
        return tuple(move for move in self.short if move.name not in fit)

    def _to_come(self, copied: Mapping[tuple[int, Name], int], broker: int) -> int:
        """Return the bytes that copies in flight will still take on a broker."""
        return sum(
            max(0, move.size - copied.get((broker, move.name), 0))
            for move in self.copying
            if broker in self.flights[move.name].adding
        )

    def starting(self, wanted: Pace, cramped: Collection[Move]) -> tuple[Move, ...]:
        """Return the moves that may start now."""
        wait = {move.name for move in cramped}
        fit = [move for move in self.ready if move.name not in wait]
        return next_moves(wanted, self.flying, fit, self.way)

    def looked(self, starting: Collection[Move], cramped: Collection[Move]) -> tuple[Move, ...]:
        """Return the moves whose partitions are to be described, each once."""
        some = (*self.sent, *self.flying, *starting, *cramped)
        return self.moves if self.whole else tuple({move.name: move for move in some}.values())

    def load(self, c: Context, starting: tuple[Move, ...], found: Cluster) -> Copying:
        """Return the moves that the throttle carries."""
        begun = {move.name for move in self.moves if move.name in self.flights or not pending(c, move)}
        begun |= {move.name for move in self.plan.others}
        return Copying(self.plan.moves, self.copying, starting, frozenset(begun), found)


def queued(c: Context, plan: Originals, phase: int, flights: Flights) -> Queue:
    """Return the queue of the moves of a phase."""
    own, forward = plan.of_phase(phase), c.way is Way.FORWARD
    moves = own.moves if forward else own.moves[::-1]
    finished, down = c.kept.get("finished", frozenset()), c.kept.get("down", frozenset())
    left = tuple(move for move in moves if move.name not in finished)
    waiting = tuple(move for move in left if pending(c, move) and move.name not in flights)
    up = tuple(move for move in waiting if down.isdisjoint(goal(move, c.way)))
    taken = tuple(move for move in own.others if move.name in flights and forward)
    return Queue(
        own,
        c.way,
        flights,
        moves,
        left,
        sent=tuple(move for move in left if not pending(c, move)),
        ready=up or waiting,
        flying=tuple(move for move in moves if move.name in flights),
        taken=taken,
        whole=not left and not (taken and phase == plan.last_phase),
    )


def resumed_phase(c: Context, plan: Originals) -> int:
    """Return the phase at which a new process continues.

    Going forward, this is the last phase with a move that was sent, because that phase began when the one
    before was complete. On the way back, it is the last phase that is not undone. If no move of that phase is
    undone, the phase after it may still be in flight, so the process continues there.
    """
    if not plan.last_phase:
        return 0
    sent = {move.phase for move in plan.moves if move.target in c.unrestored}
    last = max(sent, default=0 if c.way is Way.FORWARD else -1)
    if c.way is Way.FORWARD:
        return last
    begun = any(move.target not in c.unrestored for move in plan.moves if move.phase == last)
    return max(last, 0) if begun else min(last + 1, plan.last_phase)


def pending(c: Context, move: Move) -> bool:
    """Return whether a move was not sent yet in this direction.

    On the way back this means that the move is still to be undone.
    """
    return (move.target in c.unrestored) is (c.way is Way.BACK)


def sent_back(c: Context, move: Move) -> bool:
    """Return whether a move was already undone."""
    return c.way is Way.BACK and move.target not in c.unrestored
