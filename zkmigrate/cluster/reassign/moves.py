"""The moves of a run, and the records in which a run keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import ClassVar

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.placement.plan import Reassignment
from zkmigrate.cluster.reassign.section import Pace, PacedInventory, ReassignInventory
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.model.step import Context, Records, Way
from zkmigrate.runbook.model.step_record import Recorded, known, recorded


@dataclass(frozen=True, slots=True)
class Move(Reassignment):
    """One partition's planned change of replicas.

    leader: the id of the leader when the plan was recorded; -1 for none.
    dirs: the log directory that the plan names for each replica of ``after``; empty if Kafka may choose.
    held: the log directory that the way back names for each replica of ``before``; empty if Kafka may choose.
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
    """The moves of a run, and the state before its first change.

    moves: the moves in the order of the plan, without partitions that already had their new replica list.
    gone: brokers of the old replica lists that were down.
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
        """One move per partition, from its first replica list to its last one over all phases."""
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
    """The moves that were added by the step that stops brokers.

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


def goal(move: Move, way: Way) -> tuple[int, ...]:
    """Return the replica list that a partition has after a move in the given direction."""
    return move.after if way is Way.FORWARD else move.before


class Stand(Enum):
    """The state of one move.

    The wanted replica list is the new one, or on the way back the former one.
    """

    DONE = "done"
    """The partition has the wanted replica list in order, and all of its replicas are in sync."""
    BEHIND = "behind"
    """The partition has the wanted replica list in order, but a replica is not in sync yet."""
    MOVING = "moving"
    """The reassignment to the wanted replica list is in flight."""
    INSIDE = "moving inside a broker"
    """The partition has the wanted replica list, and a replica is being copied into its named directory."""
    MISPLACED = "in another directory"
    """The partition has the wanted list, but a replica is in a wrong directory, and no copy moves it."""
    UNTOLD = "in an unknown directory"
    """The partition has the wanted replica list, but a broker does not report a replica's directory."""
    TURNED = "turned"
    """A reassignment in the opposite direction is in flight, to the other of the run's two replica lists."""
    TO_SUBMIT = "to submit"
    """Nothing is in flight, and the partition has the brokers of one of the run's two replica lists."""
    DISPUTED = "disputed"
    """The brokers report the move as complete, but ZooKeeper does not."""
    FOREIGN = "foreign"
    """A reassignment to a third replica list is in flight, or the partition has other brokers."""
    GONE = "gone"
    """The partition does not exist."""
    ADRIFT = "adrift"
    """The reassignment is in flight, but the wanted replica list names a broker that was given up."""
    LEFT = "left"
    """Nothing is in flight, and the wanted list names a given-up broker, so another plan is needed."""
