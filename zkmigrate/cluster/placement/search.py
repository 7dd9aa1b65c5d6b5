"""Search for few replica moves that make the levels of brokers nearly equal.

A corridor is a range of levels. The search narrows the corridor step by step. At each step it brings the
brokers outside into the corridor: it moves a replica, undoes a move, moves a replica to another broker than
before, or swaps two replicas. Then it makes the plan cheaper inside the corridor that was reached. The best
plan is refined: the search undoes one move at a time and repairs the levels, and then narrows the corridor
without copying more bytes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Any, Protocol

from zkmigrate.cluster.placement.board import Board, Change, Task

PARTNERS = 12
"""The number of brokers to try at the other end of a move, and the number in the broker's own rack."""

NEAR = 3
"""How many replicas are tried on each side of the wanted size, in case rules forbid the first."""

SHIFTS = 4
"""How many corridors of one width are tried."""

REFINING = 3_000
"""The number of changes to look for while a result is refined, divided by the number of brokers."""

FINEST = 512
"""The search ends at a corridor that cannot be narrowed by this fraction of its width: 1/512."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    moves: the new broker of each moved replica.
    level: the level of each broker afterwards.
    spent: how many changes were looked for.
    reach: the largest distance from the mean of the levels that the search tried. Any wider limit gives the
    same result.
    """

    moves: dict[int, int]
    level: tuple[int, ...]
    spent: int
    reach: float


def search(task: Task) -> Found:
    """Return the moves that make the levels as equal as this search can."""
    board = _Search(task)
    board.narrow(task.enough)
    board.cheapen()
    return Found(
        dict(sorted(board.moved().items())),
        tuple(board.level),
        task.steps - board.steps,
        board.reach,
    )


def refined(task: Task, found: Found) -> Found:
    """Improve a result: first copy fewer bytes, then balance better without copying more.

    task: the task that the result solves.
    """
    board = _Search(task)
    for row, to in found.moves.items():
        board.go(row, to)
    board.steps = REFINING // len(task.level)
    board.refit()
    board.tighten()
    return Found(dict(sorted(board.moved().items())), tuple(board.level), found.spent, found.reach)


def edges(task: Task, width: int) -> range:
    """Return the possible lower edges of a corridor of this width.

    The corridor must contain the mean, and every broker that cannot be brought in.
    """
    level, sources, takers = task.level, set(task.sources), set(task.takers)
    mean = sum(level[broker] for broker in task.ranked) // len(task.ranked)
    low = max([mean, *(level[broker] for broker in task.ranked if broker not in takers)]) - width
    high = min([mean, *(level[broker] for broker in task.ranked if broker not in sources)])
    return range(low, high + 1)


def cheapest(task: Task, width: int, among: range) -> int:
    """Return the lower edge of the corridor that the fewest bytes can reach.

    Brokers below the corridor must give replicas until they reach its lower edge, and brokers above must take
    replicas until they reach its upper edge. So at least the larger of the two sums moves. One sum grows with
    the
    edge and the other falls: the best edge is where both are equal.
    """
    level = task.level
    low, high = among[0], among[-1]
    while low < high:
        edge = (low + high) // 2
        give = sum(edge - level[broker] for broker in task.sources if level[broker] < edge)
        take = sum(level[broker] - edge - width for broker in task.takers if level[broker] > edge + width)
        if give < take:
            low = edge + 1
        else:
            high = edge
    return low


_Changes = Callable[[int, int, int, int], Iterator[tuple[int, Change]]]
"""A function that yields changes between a giver and a taker, each with the weight that it moves."""


class _Pick(Protocol):
    """The signature of ``nlargest`` and ``nsmallest``."""

    def __call__(self, n: int, iterable: Iterable[int], key: Callable[[int], Any]) -> list[int]: ...


class _Search(Board):
    """A board, and the corridor into which the search brings the levels."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.steps = task.steps
        total = sum(task.replicas.size)
        # The weight of one byte compared with a level; it is 1 if levels are bytes.
        self.price = sum(task.replicas.weight) / total if total else 0.0
        self.mean = sum(task.level[broker] for broker in task.ranked) / len(task.ranked)
        self.reach = 0.0
        self.low = self.high = 0
        # The limit of the bytes moved, and whether changes must save bytes.
        self.limit = task.limit
        self.frugal = False

    def outside(self, level: int) -> int:
        """Return how far a level is outside the corridor."""
        if level < self.low:
            return self.low - level
        return level - self.high if level > self.high else 0

    def givers(self, broker: int) -> list[int]:
        """Return the brokers that could give to a broker, the lowest level first."""
        found: list[int] = []
        if self.gives[broker]:
            found += self.foremost(nsmallest, {self.at[row] for _, row in self.gone[broker]}, broker)
        if self.takes[broker]:
            others = [taker for taker in self.task.takers if taker != broker and self.took[taker]]
            found += self.foremost(nsmallest, (one for one in self.task.sources if one != broker), broker)
            found += self.foremost(nsmallest, others, broker)
        return list(dict.fromkeys(found))

    def takers(self, broker: int) -> list[int]:
        """Return the brokers that could take from a broker, the highest level first."""
        takers = {taker for taker in self.task.takers if taker != broker}
        if self.takes[broker]:
            takers |= {self.task.replicas.home[row] for _, row in self.took[broker]}
        return self.foremost(nlargest, takers, broker)

    def foremost(self, pick: _Pick, partners: Iterable[int], broker: int) -> list[int]:
        """Return the first partners overall and the first of the broker's rack.

        If partitions span all racks, only partners of the same rack fit.
        """
        partners = list(partners)
        racks = self.task.racks
        found = pick(PARTNERS, partners, key=self.order)
        near = pick(PARTNERS, [one for one in partners if racks[one] == racks[broker]], key=self.order)
        return list(dict.fromkeys((*found, *near)))

    def better(self, broker: int) -> Change | None:
        """Return the change that brings an outside broker closest to the corridor for the fewest bytes."""
        self.steps -= 1
        below = self.level[broker] < self.low
        partners = self.takers(broker) if below else self.givers(broker)
        pairs = [(broker, other) if below else (other, broker) for other in partners]
        best = self.best(pairs, self.single)
        if best is None or best[0] >= 0:
            best = min(filter(None, (best, self.best(pairs, self.exchange))), default=None)
        return best[1] if best else None

    def best(self, pairs: Iterable[tuple[int, int]], changes: _Changes) -> tuple[float, Change] | None:
        """Return the best change of a kind between pairs of a giver and a taker, with its value, or None.

        The lower the value, the better. Changes that bring no level nearer do not count.
        """
        found: tuple[float, Change] | None = None
        for giver, taker in pairs:
            least = max(0, self.low - self.level[giver], self.level[taker] - self.high)
            most = min(self.high - self.level[giver], self.level[taker] - self.low)
            for net, change in changes(giver, taker, least, most):
                gain = (
                    self.outside(self.level[giver] + net)
                    + self.outside(self.level[taker] - net)
                    - self.outside(self.level[giver])
                    - self.outside(self.level[taker])
                )
                cost = sum(self.cost(row, to) for row, to in change)
                if gain >= 0 or self.bytes + cost > self.limit:
                    continue
                self.seen(giver, taker, net)
                value = 2 * gain + self.price * cost
                if found is None or (value, change) < found:
                    found = value, change
        return found

    def seen(self, giver: int, taker: int, net: int) -> None:
        """Record how far from the mean a change leads."""
        if self.gives[giver]:
            self.reach = max(self.reach, self.level[giver] + net - self.mean)
        if self.takes[taker]:
            self.reach = max(self.reach, self.mean - self.level[taker] + net)

    def single(self, giver: int, taker: int, least: int, most: int) -> Iterator[tuple[int, Change]]:
        """Yield the weight and the change of each allowed move of one replica from ``giver`` to ``taker``.

        Only replicas with a weight in or near the range from ``least`` to ``most`` are tried.
        """
        for entries in self.holds(giver, taker):
            for weight, row in self.near(entries, least, most):
                if self.allowed(row, taker):
                    yield weight, ((row, taker),)

    def near(self, entries: Sequence[tuple[int, int]], least: int, most: int) -> Iterator[tuple[int, int]]:
        """Yield the entries whose weight is near the range from ``least`` to ``most``.

        entries: (weight, row), lightest first. At most ``NEAR`` entries are yielded from ``least`` upwards,
        and at most ``NEAR`` below the lower of ``least`` and ``most + 1``.
        """
        place = bisect_left(entries, (least, -1))
        yield from entries[place : place + NEAR]
        place = bisect_left(entries, (min(least, most + 1), -1))
        yield from entries[max(0, place - NEAR) : place]

    def exchange(self, giver: int, taker: int, least: int, most: int) -> Iterator[tuple[int, Change]]:
        """Yield swaps of two replicas whose difference in weight is near what is needed."""
        backs = self.holds(taker, giver)
        if not any(backs):
            return
        for theirs, entries in enumerate(self.holds(giver, taker)):
            for weight, row in entries:
                for ours, back in enumerate(backs):
                    if not (theirs or ours) and self.frugal:
                        continue  # both replicas would leave their home, which costs bytes
                    place = bisect_left(back, (weight - least + 1, -1))
                    for other_weight, other in back[max(0, place - 2) : place + 1]:
                        net = weight - other_weight
                        if 0 < net <= max(least, most) and self.allowed(row, taker, other):
                            yield net, ((row, taker), (other, giver))

    # The search

    def narrow(self, enough: int) -> None:
        """Narrow the corridor to this width, or as far as possible."""
        step = 2
        while step <= FINEST and self.steps > 0:
            low, high = self.span()
            if high - low <= enough:
                return
            if not self.confine(max(enough, (high - low) * (step - 1) // step)):
                step *= 2

    def confine(self, width: int) -> bool:
        """Bring every broker into a corridor of this width.

        Returns whether that succeeded; if not, nothing has changed. The corridor that the fewest bytes could
        reach is tried first. If racks, space or sizes keep some brokers above or below the corridor, the next
        one to try contains these brokers.
        """
        among = edges(self.task, width)
        tried: set[int] = set()
        low = cheapest(self.task, width, among) if among else 0
        mark = len(self.log)
        while low in among and low not in tried and len(tried) < SHIFTS:
            tried.add(low)
            if self.mend(low, low + width):
                return True
            least, most = self.span()
            self.back_to(mark)
            if least < low and most > low + width:
                return False
            low = min(least, among[-1]) if least < low else max(most - width, among[0])
        return False

    def mend(self, low: int, high: int) -> bool:
        """Bring every broker into a corridor. Return whether that was done."""
        self.low, self.high = low, high
        stuck: set[int] = set()
        progress = False
        while self.steps > 0:
            worst = max(
                (broker for broker in self.task.ranked if broker not in stuck),
                key=lambda broker: (self.outside(self.level[broker]), -broker),
                default=None,
            )
            if worst is None or not self.outside(self.level[worst]):
                if not stuck:
                    return True
                if not progress:
                    return False
                stuck, progress = set(), False
                continue
            change = self.better(worst)
            if change is None:
                stuck.add(worst)
            else:
                self.make(change)
                progress = True
        return False

    def cheapen(self) -> None:
        """Take moves back, or move lighter replicas instead, while the levels stay inside the corridor."""
        self.low, self.high = self.span()
        again = True
        while again:
            again = False
            for row in sorted(self.moved(), key=lambda row: (-self.task.replicas.size[row], row)):
                change = self.cheaper(row)
                if change:
                    self.make(change)
                    again = True

    def cheaper(self, row: int) -> Change | None:
        """Return the change of one move that saves most bytes and leaves all levels inside the corridor."""
        replicas, at = self.task.replicas, self.at[row]
        home, weight = replicas.home[row], replicas.weight[row]
        if (
            self.level[home] - weight >= self.low
            and self.level[at] + weight <= self.high
            and self.allowed(row, home)
        ):
            return ((row, home),)
        spare = min(self.level[home] - self.low, self.high - self.level[at])
        offers = self.kept[home][-self.task.window :]
        for place in range(bisect_left(offers, (weight - spare, -1)), bisect_left(offers, (weight, -1))):
            other = offers[place][1]
            if replicas.size[other] < replicas.size[row] and self.allowed(other, at, row):
                return (other, at), (row, home)
        return None

    def refit(self) -> None:
        """Take moves back and bring the levels into the corridor again, if that saves bytes in all."""
        least, most = self.span()
        width = max(most - least, self.task.enough)
        among = edges(self.task, width)
        edge = cheapest(self.task, width, among) if among else least
        low = max(most - width, min(least, edge))
        self.frugal = again = True
        while again:
            again = False
            for row in sorted(self.moved(), key=lambda row: (-self.task.replicas.size[row], row)):
                home = self.task.replicas.home[row]
                if self.steps <= 0:
                    return
                if self.at[row] == home or not self.allowed(row, home):
                    continue
                mark, self.limit = len(self.log), self.bytes - 1
                self.make(((row, home),))
                self.barred = {row}
                if self.mend(low, low + width):
                    again = True
                else:
                    self.back_to(mark)
                self.barred = set()

    def tighten(self) -> None:
        """Narrow the corridor without copying more bytes.

        If the corridor is not balanced yet, the plan may copy bytes up to its limit.
        """
        least, most = self.span()
        spend = self.bytes < self.task.limit < math.inf and most - least > self.task.enough
        self.limit, self.frugal = (self.task.limit, False) if spend else (self.bytes, True)
        self.narrow(self.task.enough if spend else 0)
