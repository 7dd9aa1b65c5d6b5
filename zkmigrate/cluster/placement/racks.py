"""Find replica lists that could span more racks, and plan the repairs of ``--fix-racks``.

A repair moves one replica out of a rack that its replica list uses twice into a rack that the list does not
use. It always copies one replica, so the fewest moves are also the fewest bytes. The search chooses which
replica moves, and to which broker: leaders stay if possible, and the brokers' free bytes become more equal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from zkmigrate.cluster.placement.cluster import Cluster, Name, Partition, Set
from zkmigrate.cluster.placement.order import in_order
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment, Refused
from zkmigrate.cluster.placement.rebalance import worse
from zkmigrate.cluster.placement.request import FixRacks, Rebalance, Rebuild
from zkmigrate.cluster.placement.validation import SHOWN, chosen, sizes_missing

ROUNDS = 8
"""The largest number of times that each repair is chosen again."""

LOOKS = 100_000
"""The largest number of other choices that are compared if the range of free bytes would grow."""

TOGETHER = 3
"""The largest number of replica lists whose repairs are changed at once."""


def racks_possible(cluster: Cluster, replicas: Set, racks: Collection[str]) -> int:
    """Return how many racks a replica list could span. racks: the racks of the chosen brokers."""
    return min(len(replicas), len({cluster.rack(broker) for broker in replicas}.union(racks)))


def shared_racks(
    cluster: Cluster,
    request: Rebalance | Rebuild | FixRacks,
    partitions: Sequence[Partition],
    brokers: Sequence[int],
    moves: Sequence[Reassignment],
) -> tuple[Notice, ...]:
    """Return a notice that refuses the plan if chosen partitions stay in fewer racks than possible.

    ``rebuild`` requires at most ``--min-rack-ids`` racks, and none with ``--use-meta=false``.
    """
    if isinstance(request, Rebuild) and not request.use_meta:
        return ()
    asked = request.min_rack_ids if isinstance(request, Rebuild) else 0
    racks = {cluster.rack(broker) for broker in brokers}
    after = {move.name: move.after for move in moves}
    found = []
    for one in partitions:
        replicas = after.get(one.name, one.replicas)
        spanned, possible = cluster.racks(replicas), racks_possible(cluster, replicas, racks)
        if spanned < min(possible, asked or possible):
            found.append(f"{one.topic}-{one.number} ({spanned} of {possible} racks)")
    if not found:
        return ()
    shown = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
    text = (
        f"{len(found)} replica list{'s' * (len(found) > 1)} would span fewer racks than possible: {shown}. "
        "Next: plan the repairs with placement rebalance --fix-racks and submit them first, or accept this "
        "with --ignore-warnings."
    )
    return (Notice("placement.rack-shared", text, refuses=True),)


def fix_racks(cluster: Cluster, request: FixRacks) -> Plan | Refused:
    """Return only the moves after which every chosen replica list spans as many racks as possible.

    Each list makes as many moves as it lacks racks. If the range of free bytes grows, a notice refuses the
    plan. A refusal names the partition for which no broker of another rack has room.
    """
    choice = chosen(cluster, request.choice)
    if isinstance(choice, Refused):
        return choice
    if unknown := sizes_missing(choice.partitions):
        return unknown
    repairs = _Repairs(cluster, choice.partitions, choice.brokers)
    if no_place := repairs.fill():
        return Refused((no_place,))
    repairs.settle()
    repairs.narrow()
    moves = []
    for name in dict.fromkeys(repair.name for repair in repairs.made):
        one = cluster.by_name[name]
        moves.append(Reassignment(*name, one.replicas, tuple(repairs.sets[name]), one.size or 0))
    ordered = in_order(cluster, sorted(moves, key=lambda move: (-move.size, move.name)))
    if isinstance(ordered, Refused):
        return ordered
    limited = "" if ordered else "every chosen replica list spans as many racks as possible"
    notices = (*choice.notices, *worse(cluster, choice.brokers, ordered))
    return Plan(cluster, ordered, limited=limited, notices=notices)


@dataclass(slots=True)
class _Repair:
    """A move of one replica to a broker. slot is the replica's index in its replica list."""

    name: Name
    size: int
    slot: int
    home: int
    to: int


_Way = tuple[int, int, int]
"""One way to make a repair: the replica's slot, its old broker and its new one."""


class _Repairs:
    """The replica lists while they are repaired.

    free: bytes that each broker has free after the repairs.
    room: bytes for further copies. Replicas that a broker gives away add no room, so the moves fit in any
    order.
    """

    def __init__(self, cluster: Cluster, partitions: Sequence[Partition], brokers: Sequence[int]) -> None:
        self.brokers = brokers
        self.rack = {broker: cluster.rack(broker) for one in partitions for broker in one.replicas}
        self.rack |= {broker: cluster.rack(broker) for broker in brokers}
        racks = {self.rack[broker] for broker in brokers}
        self.short = [
            (one, short)
            for one in sorted(partitions, key=lambda one: (-(one.size or 0), one.name))
            if (short := racks_possible(cluster, one.replicas, racks) - cluster.racks(one.replicas))
        ]
        self.sets = {one.name: list(one.replicas) for one, _ in self.short}
        self.free = dict(cluster.free)
        self.room = {broker: cluster.brokers[broker].room for broker in brokers}
        self.count = dict.fromkeys(self.rack, 0)
        for one in partitions:
            for broker in one.replicas:
                self.count[broker] += 1
        self.made: list[_Repair] = []
        self.range = self.spread()[0]

    def spread(self) -> tuple[int, int]:
        """Return the range and the sum of squares of the chosen brokers' free bytes."""
        free = [self.free[broker] for broker in self.brokers]
        return max(free) - min(free), sum(one * one for one in free)

    # One repair

    def put(self, repair: _Repair) -> None:
        self.sets[repair.name][repair.slot] = repair.to
        self._copied(repair, 1)

    def take_back(self, repair: _Repair) -> None:
        self.sets[repair.name][repair.slot] = repair.home
        self._copied(repair, -1)

    def _copied(self, repair: _Repair, sign: int) -> None:
        size = sign * repair.size
        self.room[repair.to] -= size
        self.free[repair.to] -= size
        self.count[repair.to] += sign
        self.count[repair.home] -= sign
        if repair.home in self.free:
            self.free[repair.home] += size

    def slots(self, name: Name) -> list[int]:
        """Return the slots whose rack the partition's replica list uses twice."""
        racks = [self.rack[broker] for broker in self.sets[name]]
        return [slot for slot, rack in enumerate(racks) if racks.count(rack) > 1]

    def takers(self, name: Name) -> list[int]:
        """Return the chosen brokers in racks that the partition's replica list does not use."""
        racks = {self.rack[broker] for broker in self.sets[name]}
        return [broker for broker in self.brokers if self.rack[broker] not in racks]

    def best(self, name: Name, size: int) -> _Repair | None:
        """Return the repair from the fullest broker to the emptiest one with room, or None if none has room.

        The leader moves only if no other replica can.
        """
        roomy = [broker for broker in self.takers(name) if self.room[broker] >= size]
        if not roomy:
            return None
        held = self.sets[name]
        slot = min(
            self.slots(name),
            key=lambda slot: (slot == 0, self.free.get(held[slot], 0), -self.count[held[slot]], slot),
        )
        to = min(roomy, key=lambda broker: (-self.free[broker], self.count[broker], broker))
        return _Repair(name, size, slot, held[slot], to)

    # All repairs

    def fill(self) -> Notice | None:
        """Choose a repair for each rack that a partition lacks, the largest partition first.

        Returns a notice if a rack has no repair.
        """
        for one, short in self.short:
            for _ in range(short):
                size = one.size or 0
                repair = self.best(one.name, size) or self.made_room(one.name, size)
                if repair is None:
                    takers = self.takers(one.name)
                    most = max(takers, key=lambda broker: (self.room[broker], -broker))
                    return Notice(
                        "placement.no-place",
                        f"{one.topic}-{one.number} could span {short} more racks: the limit is disk; needed: "
                        f"{size} bytes, and the "
                        f"{len(takers)} brokers of other racks have at most {self.room[most]} left (broker "
                        f"{most}). Next: free space there, choose more brokers, or exclude this topic.",
                    )
                self.put(repair)
                self.made.append(repair)
        return None

    def made_room(self, name: Name, size: int) -> _Repair | None:
        """Move a smaller planned copy to another broker, and return a repair that fits then, if any."""
        for full in sorted(self.takers(name), key=lambda broker: (-self.room[broker], broker)):
            for other in sorted(self.made, key=lambda one: (one.size, one.name, one.slot)):
                if other.to != full or self.room[full] + other.size < size:
                    continue
                self.take_back(other)
                elsewhere = [b for b in self.takers(other.name) if b != full and self.room[b] >= other.size]
                other.to = max(elsewhere, key=lambda b: (self.free[b], -b), default=full)
                self.put(other)
                if other.to != full:
                    return self.best(name, size)
        return None

    def settle(self) -> None:
        """Choose each repair again, given all the others, until none changes."""
        for _ in range(ROUNDS):
            changed = False
            for repair in self.made:
                again = self.again(repair)
                if again and (again.slot, again.to) != (repair.slot, repair.to):
                    before = self.spread()[1]
                    old = repair.slot, repair.home, repair.to
                    self.change(repair, (again.slot, again.home, again.to))
                    if self.spread()[1] < before:
                        changed = True
                    else:
                        self.change(repair, old)
            if not changed:
                return

    def again(self, repair: _Repair) -> _Repair | None:
        """Return the best repair that could replace an existing one."""
        self.take_back(repair)
        found = self.best(repair.name, repair.size)
        self.put(repair)
        return found

    def change(self, repair: _Repair, way: _Way) -> None:
        self.take_back(repair)
        repair.slot, repair.home, repair.to = way
        self.put(repair)

    def narrow(self) -> None:
        """Try other repairs, also of leaders, while the range of free bytes is wider than before."""
        looks = LOOKS
        better = True
        while better and self.spread()[0] > self.range:
            better = False
            for changes in self.others():
                looks -= 1
                if looks < 0:
                    return
                before = self.spread()
                old = [(repair, (repair.slot, repair.home, repair.to)) for repair, _ in changes]
                for repair, way in changes:
                    self.change(repair, way)
                if min(self.room.values()) >= 0 and self.spread() < before:
                    better = True
                    break
                for repair, way in old:
                    self.change(repair, way)

    def others(self) -> Iterator[list[tuple[_Repair, _Way]]]:
        """Yield other choices of one repair, then of the repairs of two and three partitions together.

        Each choice changes the broker with the least or the most free bytes.
        """
        free = sorted(self.brokers, key=lambda broker: (self.free[broker], broker))
        ends = {free[0], free[-1]}
        ways = [(repair, self.ways(repair)) for repair in self.made]
        for many in range(1, TOGETHER + 1):
            for some in combinations(ways, many):
                if len({repair.name for repair, _ in some}) < many:
                    continue
                before = {broker for repair, _ in some for broker in (repair.home, repair.to)}
                for chosen_ways in product(*(others for _, others in some)):
                    if not ends.isdisjoint(before.union(*(way[1:] for way in chosen_ways))):
                        yield [(repair, way) for (repair, _), way in zip(some, chosen_ways, strict=True)]

    def ways(self, repair: _Repair) -> list[_Way]:
        """Return all ways to make a repair, whatever the brokers have free."""
        self.take_back(repair)
        held = self.sets[repair.name]
        found = [
            (slot, held[slot], to) for slot in self.slots(repair.name) for to in self.takers(repair.name)
        ]
        self.put(repair)
        return found
