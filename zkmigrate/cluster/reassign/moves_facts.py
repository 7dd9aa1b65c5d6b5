"""Facts of moves while they are made: which are in flight, which may begin, and what brokers tell of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign import facts
from zkmigrate.cluster.reassign.estimate import ends
from zkmigrate.cluster.reassign.facts import Cluster, Disks, Flights, LogEnds, Move, Originals, Stands, goal
from zkmigrate.cluster.reassign.rate_control import Copying
from zkmigrate.cluster.reassign.rules import fitting, next_moves
from zkmigrate.cluster.reassign.section import Pace
from zkmigrate.cluster.reassign.throttle import RatesInForce
from zkmigrate.runbook.model.step import Context, Way


@dataclass(frozen=True)
class MovesFacts:
    """plan: the moves of the run. found: what brokers tell about ``looked``. copied: bytes of the replicas
    that are being added, by broker and partition. whole: these are all moves of the run. disks: where the
    replicas are whose directories are named. rates: of the throttle; None where there is none. taken: moves
    of another hand that are in flight and throttled along. disputes: why ZooKeeper shows a move that seems
    to be at its end as not done. cramped: moves that wait until a broker has room. wall: when it was looked,
    seconds since the epoch. phase: whose moves these are, from 0 to ``last_phase``. ends: of the logs of
    replicas that are not in sync, and of their leaders."""

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
        """Bytes of a partition: clients may have written to it since the run began."""
        return max(move.size, self.sizes.get(move.name, 0))

    def stands(self, way: Way) -> Stands:
        """Where the moves stand that were looked at."""
        assert self.found is not None
        gone = self.given_up if way is Way.FORWARD else ()
        return facts.stands(self.looked, self.found, way, self.disks, gone).but(self.disputes)


@dataclass(frozen=True)
class Queue:
    """The moves of one phase, in the order of a direction, by what is in flight; no broker has told of their
    partitions yet. left: not seen at their end. sent: of these, those that were sent. ready: of the others,
    those that may begin: brokers that are down are left for last. flying: in flight. taken: of another hand,
    in flight. whole: none is left, and all are looked at."""

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
        """All that is in flight."""
        return (*self.flying, *self.taken)

    @cached_property
    def short(self) -> tuple[Move, ...]:
        """Those about to begin, where brokers are short of room. What was sent may not have reached Kafka."""
        if not self.plan.tight:
            return ()
        begins = {move.name for move in (*self.ready, *self.sent)} - self.flights.keys()
        return tuple(move for move in self.left if move.name in begins)

    @cached_property
    def tight(self) -> frozenset[int]:
        """The brokers that are short of room for them."""
        receivers = {broker for move in self.short for broker in ends(move, self.way)[1]}
        return frozenset(receivers.intersection(self.plan.tight))

    @property
    def asked(self) -> tuple[list[int], list[Name]]:
        """The brokers whose disks are looked at, and the partitions there."""
        adding = {broker for move in self.copying for broker in self.flights[move.name].adding}
        senders = {ends(move, self.way)[0] for move in self.copying}
        return sorted(adding | senders | self.tight), [move.name for move in (*self.copying, *self.short[:1])]

    def copied(self, told: Disks) -> dict[tuple[int, Name], int]:
        """Bytes of the replicas that are being added."""
        return {
            (broker, name): size
            for (broker, name), size in told.sizes.items()
            if name in self.flights and broker in self.flights[name].adding
        }

    def sizes(self, told: Disks) -> dict[Name, int]:
        """Bytes of the partitions in flight, where they are copied from."""
        found = {move.name: told.sizes.get((ends(move, self.way)[0], move.name)) for move in self.copying}
        return {name: size for name, size in found.items() if size is not None}

    def cramped(self, told: Disks) -> tuple[Move, ...]:
        """The moves that wait until a broker has room."""
        copied = self.copied(told)
        room = {b: told.room.get(b, -1) - self._to_come(copied, b) for b in self.tight}
        fit = {move.name for move in fitting(self.short, self.way, room)}
        return tuple(move for move in self.short if move.name not in fit)

    def _to_come(self, copied: Mapping[tuple[int, Name], int], broker: int) -> int:
        """Bytes that copies in flight will still take on a broker."""
        return sum(
            max(0, move.size - copied.get((broker, move.name), 0))
            for move in self.copying
            if broker in self.flights[move.name].adding
        )

    def starting(self, wanted: Pace, cramped: Collection[Move]) -> tuple[Move, ...]:
        """The moves that may start now."""
        wait = {move.name for move in cramped}
        fit = [move for move in self.ready if move.name not in wait]
        return next_moves(wanted, self.flying, fit, self.way)

    def looked(self, starting: Collection[Move], cramped: Collection[Move]) -> tuple[Move, ...]:
        """The moves whose partitions brokers are asked about, each once."""
        some = (*self.sent, *self.flying, *starting, *cramped)
        return self.moves if self.whole else tuple({move.name: move for move in some}.values())

    def load(self, c: Context, starting: tuple[Move, ...], found: Cluster) -> Copying:
        """What the throttle carries."""
        begun = {move.name for move in self.moves if move.name in self.flights or not pending(c, move)}
        begun |= {move.name for move in self.plan.others}
        return Copying(self.plan.moves, self.copying, starting, frozenset(begun), found)


def queued(c: Context, plan: Originals, phase: int, flights: Flights) -> Queue:
    """The moves of a phase."""
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
    """The phase at which a process goes on. Forward the last one with a move that was sent: it began when the
    one before was complete. Back the last one that is not undone; the one after it may still be on its way,
    unless this one was begun."""
    if not plan.last_phase:
        return 0
    sent = {move.phase for move in plan.moves if move.target in c.unrestored}
    last = max(sent, default=0 if c.way is Way.FORWARD else -1)
    if c.way is Way.FORWARD:
        return last
    begun = any(move.target not in c.unrestored for move in plan.moves if move.phase == last)
    return max(last, 0) if begun else min(last + 1, plan.last_phase)


def pending(c: Context, move: Move) -> bool:
    """Whether nothing is sent yet in this direction: back, the move itself is still to be undone."""
    return (move.target in c.unrestored) is (c.way is Way.BACK)


def sent_back(c: Context, move: Move) -> bool:
    """Whether it is undone already."""
    return c.way is Way.BACK and move.target not in c.unrestored
