"""Keep the position of every replica while a planner moves replicas, and check the rules of moves.

A broker's level is the quantity that it has to spare, such as free bytes. Sources are brokers that give
replicas away, and takers are brokers that receive replicas; a broker may be both. Replicas that a broker
gives away add no room for those that it receives, so the moves fit in any order.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zkmigrate.cluster.placement.cluster import Cluster
from zkmigrate.cluster.placement.validation import Chosen


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas that may move, as columns of equal length; a row is a replica.

    partition: the row in ``Task.sets``.
    slot: the index in that replica list.
    home: the broker that holds the replica before the plan.
    weight: the amount by which the replica lowers its broker's level.
    size: the bytes that a move copies.
    """

    partition: Sequence[int]
    slot: Sequence[int]
    home: Sequence[int]
    weight: Sequence[int]
    size: Sequence[int]

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, int, int]]) -> Replicas:
        return cls(*(tuple(zip(*rows, strict=True)) or [()] * 5))


@dataclass(frozen=True, slots=True)
class Task:
    """The input of a search. Brokers are numbered from 0, in the order of their ids.

    sets: the replica lists.
    racks: the rack of each broker, as a number.
    needed: how many racks each replica list must span.
    level: the level of each broker.
    room: the bytes of each broker for new copies.
    ranked: the brokers whose levels are to become equal; sources and takers are among them.
    lowest: no move lowers a taker's level below this.
    highest: no move raises a source's level above this.
    local: whether every replica must stay in its rack.
    window: a source always gives one of this many heaviest replicas that remain on it.
    enough: the range of levels that counts as balanced.
    steps: the most attempts to find a change that narrows the range of levels. The search for a cheaper plan
    has no such limit, because it ends by itself.
    limit: the most bytes that the moves may copy.
    """

    sets: Sequence[Sequence[int]]
    racks: Sequence[int]
    needed: Sequence[int]
    level: Sequence[int]
    room: Sequence[int]
    ranked: Sequence[int]
    sources: Sequence[int]
    takers: Sequence[int]
    replicas: Replicas
    lowest: int = -sys.maxsize
    highest: int = sys.maxsize
    local: bool = False
    window: int = sys.maxsize
    enough: int = 0
    steps: int = 0
    limit: float = math.inf


Change = tuple[tuple[int, int], ...]
"""Moves that are applied together, each as (row of the replica, new broker)."""


def numbered(cluster: Cluster, choice: Chosen) -> tuple[list[int], dict[int, int], list[int]]:
    """Number the brokers that a choice selects from 0.

    Returns three values: the broker ids by number, the numbers by broker id, and the number of each broker's
    rack. Brokers that only occur in a replica list come last.
    """
    named = {broker for one in choice.partitions for broker in one.replicas}
    ids = [*choice.brokers, *sorted(named - set(choice.brokers))]
    racks = {rack: place for place, rack in enumerate(dict.fromkeys(map(cluster.rack, ids)))}
    numbers = {broker: place for place, broker in enumerate(ids)}
    return ids, numbers, [racks[cluster.rack(broker)] for broker in ids]


class Board:
    """The position of every replica while a planner moves it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.level = list(task.level)
        self.room = list(task.room)
        self.sets = [list(replicas) for replicas in task.sets]
        self.at = list(task.replicas.home)
        self.gives = [False] * len(self.level)
        for broker in task.sources:
            self.gives[broker] = True
        self.takes = [False] * len(self.level)
        for broker in task.takers:
            self.takes[broker] = True
        # By broker, by rising weight: what a source still holds, what it gave, and what a taker took.
        self.kept: list[list[tuple[int, int]]] = [[] for _ in self.level]
        self.gone: list[list[tuple[int, int]]] = [[] for _ in self.level]
        self.took: list[list[tuple[int, int]]] = [[] for _ in self.level]
        for row, (home, weight) in enumerate(zip(task.replicas.home, task.replicas.weight, strict=True)):
            if self.gives[home]:
                self.kept[home].append((weight, row))
        self.rank = [0] * len(self.at)
        for held in self.kept:
            held.sort()
            for place, (_, row) in enumerate(reversed(held)):
                self.rank[row] = place
        self.log: list[tuple[int, int]] = []
        # The bytes moved, and replicas that must not move.
        self.bytes = 0
        self.barred: set[int] = set()

    def moved(self) -> dict[int, int]:
        """Return the new broker of each replica that has moved."""
        pairs = enumerate(zip(self.at, self.task.replicas.home, strict=True))
        return {row: at for row, (at, home) in pairs if at != home}

    def span(self) -> tuple[int, int]:
        """Return the lowest and the highest level."""
        levels = [self.level[broker] for broker in self.task.ranked]
        return min(levels), max(levels)

    def order(self, broker: int) -> tuple[int, int]:
        return self.level[broker], broker

    def width(self) -> int:
        """Return the range of the levels."""
        low, high = self.span()
        return high - low

    # The rules

    def suits(self, row: int, broker: int) -> bool:
        """Return whether a replica list still spans the needed racks if one of its replicas moves."""
        task = self.task
        partition = task.replicas.partition[row]
        replicas = self.sets[partition]
        if broker in replicas:
            return False
        if broker in task.sets[partition] and broker != task.replicas.home[row]:
            return False  # leaving the replica that was there would cost fewer bytes
        rack = task.racks[broker]
        if rack == task.racks[self.at[row]]:
            return True
        if task.local:
            return False
        slot = task.replicas.slot[row]
        others = {task.racks[other] for place, other in enumerate(replicas) if place != slot}
        others.add(rack)
        return len(others) >= task.needed[partition]

    def offered(self, change: Change) -> bool:
        """Return whether each source gives only its heaviest replicas after a change (``Task.window``)."""
        homes = self.task.replicas.home
        left = {homes[row] for row, to in change if (self.at[row] == homes[row]) != (to == homes[row])}
        for home in left:
            out = [row for row, _ in change if self.at[row] == home == homes[row]]
            back = [row for row, to in change if to == home == homes[row]]
            gone = self.gone[home]
            lightest = next((self.rank[row] for _, row in gone if row not in back), -1)
            lightest = max([lightest, *(self.rank[row] for row in out)])
            # The number of remaining replicas that are heavier than the lightest one given.
            if lightest - (len(gone) + len(out) - len(back) - 1) >= self.task.window:
                return False
        return True

    # Changes

    def go(self, row: int, broker: int) -> None:
        """Put a replica on a broker."""
        self.bytes += self.cost(row, broker)
        replicas = self.task.replicas
        size, home, before = replicas.size[row], replicas.home[row], self.at[row]
        entry = weight, row = replicas.weight[row], row
        if before == home:
            if self.gives[home]:
                del self.kept[home][bisect_left(self.kept[home], entry)]
                insort(self.gone[home], entry)
        else:
            del self.took[before][bisect_left(self.took[before], entry)]
            self.room[before] += size
        if broker == home:
            if self.gives[home]:
                del self.gone[home][bisect_left(self.gone[home], entry)]
                insort(self.kept[home], entry)
        else:
            insort(self.took[broker], entry)
            self.room[broker] -= size
        self.level[before] += weight
        self.level[broker] -= weight
        self.sets[replicas.partition[row]][replicas.slot[row]] = broker
        self.at[row] = broker

    def make(self, change: Change) -> None:
        """Make a change, and record how to undo it."""
        for row, broker in change:
            self.log.append((row, self.at[row]))
            self.go(row, broker)

    def back_to(self, mark: int) -> None:
        """Undo the newest changes until the log has ``mark`` entries."""
        while len(self.log) > mark:
            self.go(*self.log.pop())

    def cost(self, row: int, broker: int) -> int:
        """Return how many more bytes the plan copies if a replica moves to a broker."""
        home, size = self.task.replicas.home[row], self.task.replicas.size[row]
        return (size if broker != home else 0) - (size if self.at[row] != home else 0)

    def allowed(self, row: int, broker: int, other: int | None = None) -> bool:
        """Return whether a replica may move to a broker, alone or in exchange for another one.

        other: the replica of that broker that comes back in exchange; None for none.
        """
        task, giver = self.task, self.at[row]
        replicas = task.replicas
        if other is not None and replicas.partition[row] == replicas.partition[other]:
            return False
        if row in self.barred or other in self.barred:
            return False
        net = replicas.weight[row] - (replicas.weight[other] if other is not None else 0)
        for one, up in ((giver, net), (broker, -net)):
            if up > 0 and self.gives[one] and self.level[one] + up > task.highest:
                return False
            if up < 0 and self.takes[one] and self.level[one] + up < task.lowest:
                return False
        if self.taken(row, broker) - self.taken(other, broker) > max(0, self.room[broker]):
            return False
        if self.taken(other, giver) - self.taken(row, giver) > max(0, self.room[giver]):
            return False
        if not self.suits(row, broker) or (other is not None and not self.suits(other, giver)):
            return False
        return self.offered(((row, broker),) if other is None else ((row, broker), (other, giver)))

    def taken(self, row: int | None, broker: int) -> int:
        """Return the room in bytes that a replica takes on a broker; 0 on its home broker."""
        replicas = self.task.replicas
        return 0 if row is None or replicas.home[row] == broker else replicas.size[row]

    def holds(self, giver: int, taker: int) -> list[Sequence[tuple[int, int]]]:
        """Return the replicas that one broker could give to another, each as (weight, row), lightest first.

        The first list has the giver's own replicas, the second those that it took from other brokers.
        """
        if not self.takes[taker]:
            return [[], [entry for entry in self.gone[taker] if self.at[entry[1]] == giver]]
        own = self.kept[giver][-self.task.window :] if self.gives[giver] else []
        return [own, self.took[giver]]
