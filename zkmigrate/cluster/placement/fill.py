"""Fill the open slots of replica lists, and then make the brokers more equal.

Slots are filled one by one. If no broker has room for the next replica, planned replicas are moved to make
room. As a last resort all placements are tried, up to a limit.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence

from zkmigrate.cluster.placement.board import Board, Task
from zkmigrate.cluster.placement.request import By
from zkmigrate.cluster.placement.search import NEAR


class Fill(Board):
    """The positions of replicas while a planner fills the open slots of replica lists.

    Each row is an open slot, and its size is the bytes to reserve for the slot's replica. A slot that is not
    filled yet is on a placeholder broker in a rack of its own.

    held: the replicas of each partition before the plan.
    ids: the brokers' ids.
    count: the replicas of the chosen partitions on each broker.
    ranking: the takers in order; the first one gets the next replica.
    """

    def __init__(self, task: Task, held: Sequence[Sequence[int]], ids: Sequence[int], by: By) -> None:
        super().__init__(task)
        self.held, self.ids, self.by = held, ids, by
        self.count = [0] * len(self.level)
        for replicas in self.sets:
            for broker in replicas:
                self.count[broker] += 1
        self.ranking = sorted(map(self.key, task.takers))

    def key(self, broker: int) -> tuple[int, int, int]:
        """Return the key by which brokers are ranked; the lowest one gets the next replica."""
        return self.count[broker] if self.by is By.COUNT else 0, -self.room[broker], broker

    # One replica

    def open(self, row: int) -> bool:
        return self.at[row] == self.task.replicas.home[row]

    def fits(self, row: int, broker: int) -> bool:
        """Return whether a broker may take a replica."""
        return self.room[broker] >= self.task.replicas.size[row] and self.suits(row, broker)

    def go(self, row: int, broker: int) -> None:
        """Put a replica on a broker, or open its slot again by putting it on its home."""
        ends = self.at[row], broker
        for end in ends:
            if self.takes[end]:
                del self.ranking[bisect_left(self.ranking, self.key(end))]
        super().go(row, broker)
        for end, more in zip(ends, (-1, 1), strict=True):
            self.count[end] += more
            if self.takes[end]:
                insort(self.ranking, self.key(end))

    def remove(self, row: int) -> None:
        self.go(row, self.task.replicas.home[row])

    def clear(self, freed: Mapping[int, int] | None = None) -> None:
        """Open all slots again. freed: bytes by broker to count as free from now on."""
        for row in range(len(self.at)):
            if row not in self.barred:
                self.remove(row)
        for broker, size in (freed or {}).items():
            self.room[broker] += size
        self.ranking = sorted(map(self.key, self.task.takers))

    def planned(self, broker: int) -> list[int]:
        """Return the replicas on a broker that may move, the lightest first."""
        return [row for _, row in self.took[broker] if row not in self.barred]

    # All replicas

    def best(self, row: int) -> int | None:
        """Return the first broker by rank that may take the replica, or None.

        If brokers are ranked by the number of their replicas, a broker that already has this replica comes
        before other brokers with the same number.
        """
        found = next((broker for *_, broker in self.ranking if self.fits(row, broker)), None)
        if found is None or self.by is not By.COUNT:
            return found
        for broker in self.held[self.task.replicas.partition[row]]:
            if self.takes[broker] and self.count[broker] == self.count[found] and self.fits(row, broker):
                return broker
        return found

    def make_room(self, row: int) -> bool:
        """Fill a slot by moving another planned replica, either on a full broker or of the same partition.

        Returns whether the slot was filled.
        """
        home, size, partition = (getattr(self.task.replicas, name) for name in ("home", "size", "partition"))
        for *_, full in list(self.ranking):
            short = size[row] - self.room[full]
            for other in self.planned(full) if self.suits(row, full) else ():
                if size[other] >= short and self.moved_all((other, home[other]), (row, full), (other, None)):
                    return True
        for other in [one for broker in self.sets[partition[row]] for one in self.planned(broker)]:
            for *_, to in list(self.ranking) if partition[other] == partition[row] else ():
                if self.moved_all((other, home[other]), (other, to), (row, None)):
                    return True
        return False

    def moved_all(self, *steps: tuple[int, int | None]) -> bool:
        """Make all of these moves or none. Return whether they were made.

        steps: each is (row, broker); None as broker means the best broker for that row.
        """
        mark = len(self.log)
        for row, broker in steps:
            to = self.best(row) if broker is None else broker
            if to is None or not (to == self.task.replicas.home[row] or self.fits(row, to)):
                self.back_to(mark)
                return False
            self.make(((row, to),))
        return True

    def searched(self, looks: int) -> bool | None:
        """Try all ways to fill the open slots.

        Returns whether the slots were filled, or None if ``looks`` attempts were too few to decide. Slots of
        one replica list take brokers in ascending order, because the order of these slots does not matter.
        """
        self.clear()
        replicas = self.task.replicas
        rows = [row for row in range(len(self.at)) if row not in self.barred]
        brokers = sorted(self.task.takers)
        if sum(replicas.size[row] for row in rows) > sum(self.room[broker] for broker in brokers):
            return False
        rows.sort(key=lambda row: (-replicas.size[row], row))
        stack: list[Iterator[int]] = []
        while len(stack) <= len(rows):
            if len(stack) == len(rows):
                return True
            row, earlier = rows[len(stack)], rows[len(stack) - 1]
            same = stack and replicas.partition[earlier] == replicas.partition[row]
            lowest = self.at[earlier] + 1 if same else 0
            stack.append(iter(brokers[bisect_left(brokers, lowest) :]))
            while stack:
                row = rows[len(stack) - 1]
                self.remove(row)
                for broker in stack[-1]:
                    looks -= 1
                    if self.fits(row, broker):
                        self.go(row, broker)
                        break
                else:
                    stack.pop()
                    continue
                break
            if not stack:
                return False
            if looks < 0:
                return None
        return True

    # Spread

    def even(self) -> None:
        """Move planned replicas, over other brokers if needed, until the counts are as equal as possible."""
        unsettled = set(self.task.takers)
        while unsettled:
            start = min(unsettled, key=lambda broker: (-self.count[broker], broker))
            unsettled -= self.handed_on(start)

    def handed_on(self, start: int) -> set[int]:
        """Pass one replica on, over other brokers if needed, to a broker that has at least two fewer.

        start: the broker that gives the replica. Returns an empty set if a replica was passed on. Otherwise
        returns the brokers that a replica of ``start`` can reach; none of these can pass a replica on either.
        """
        came_by: dict[int, int | None] = {start: None}
        edge = [start]
        few = self.count[start] - 2
        while edge and min(self.count[broker] for broker in self.task.takers) <= few:
            further = []
            rest = [broker for broker in self.task.takers if broker not in came_by]
            unseen = sorted(rest, key=lambda one: (self.count[one], one))
            for source in edge:
                for row in self.planned(source):
                    found = [broker for broker in unseen if self.fits(row, broker)]
                    came_by.update(dict.fromkeys(found, row))
                    further += found
                    unseen = [broker for broker in unseen if broker not in came_by]
            for end in further:
                if self.count[end] <= few and self.moved_all(*self.chain(came_by, end)):
                    return set()
            edge = further
        return set(came_by)

    def chain(self, came_by: Mapping[int, int | None], end: int) -> Iterator[tuple[int, int]]:
        """Yield the moves of a chain, each as (row, broker), from the broker ``end`` back to its beginning.

        came_by: for each broker of the chain, the row that moves there; None for the first broker.
        """
        while (row := came_by[end]) is not None:
            source = self.at[row]
            yield row, end
            end = source

    def level_out(self, looks: int) -> None:
        """Make free bytes more equal, in at most ``looks`` comparisons of two brokers.

        A copy that is made anyway costs as much on any broker, so no step costs a byte.
        """
        while True:
            order = sorted(self.task.takers, key=lambda broker: (self.room[broker], broker))
            pairs = [(order[0], high) for high in reversed(order)] + [(low, order[-1]) for low in order]
            for low, high in pairs:
                if looks <= 0:
                    return
                looks -= 1
                if self.relieved(low, high):
                    break
            else:
                return

    def relieved(self, low: int, high: int) -> bool:
        """Move a copy between two brokers, or swap two, so that their free bytes become more equal.

        Returns whether a change was made.
        """
        gap, sizes = self.room[high] - self.room[low], self.task.replicas.size
        back = [(sizes[row], row) for row in self.copies(high)]
        for row in sorted(self.copies(low), key=lambda row: (abs(2 * sizes[row] - gap), row)):
            size = sizes[row]
            if 0 < size < gap and self.allowed(row, high):
                self.go(row, high)
                return True
            nearest = bisect_left(back, size - gap // 2, key=lambda one: one[0])
            for other, one in back[max(0, nearest - NEAR) : nearest + NEAR]:
                if 0 < size - other < gap and self.allowed(row, high, one):
                    self.make(((row, high), (one, low)))
                    return True
        return False

    def copies(self, broker: int) -> list[int]:
        """Return the planned replicas that a broker does not hold yet, the lightest first."""
        partition = self.task.replicas.partition
        return [row for row in self.planned(broker) if broker not in self.held[partition[row]]]
