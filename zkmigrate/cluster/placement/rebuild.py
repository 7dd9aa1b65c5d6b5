"""``rebuild``: each replica on a broker that is gone or left out moves; with force every replica does.

Places are chosen one by one, as ``Rebuild.placement`` says. If the next replica fits nowhere, planned
replicas make room for it. As a last resort all placements are tried, up to a limit. No set ends shorter than
requested.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil

from zkmigrate.cluster.placement.cluster import Cluster, Name, Partition
from zkmigrate.cluster.placement.constraints import racks_needed
from zkmigrate.cluster.placement.order import in_order
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment, Refused
from zkmigrate.cluster.placement.rebalance import worse
from zkmigrate.cluster.placement.request import By, Optimize, Rebuild
from zkmigrate.cluster.placement.validation import Chosen, chosen, partition_names, sizes_missing

Slot = tuple[Name, int]
"""A place in the replica set of a partition; places count from 0."""

LOOKS = 200_000
"""How many places ``effort`` 1 looks at when all placements are tried."""

PAIRS = 20_000
"""How many pairs of brokers ``effort`` 1 compares to make free bytes more equal."""

NEAR = 3
"""How many replicas are tried on each side of the size that a swap needs."""


def rebuild(cluster: Cluster, request: Rebuild) -> Plan | Refused:
    """Return the moves that leave every chosen set on chosen brokers with the requested length.

    A set that needs no change keeps its brokers. A refusal names the partition and the limit.
    """
    choice = chosen(cluster, request.choice)
    if isinstance(choice, Refused):
        return choice
    if faults := _faulty_options(request):
        return Refused(faults, options=True)
    racks = cluster.racks(choice.brokers)
    if request.min_rack_ids > racks:
        text = f"--min-rack-ids is {request.min_rack_ids}; the limit: {racks} racks of chosen brokers"
        return Refused((Notice("placement.few-racks", text),))
    notices = choice.notices + _short_sets(choice.partitions, request)
    if unknown := sizes_missing(choice.partitions):
        if request.placement is By.STORAGE:
            return unknown
        notices += _capacity_unknown(choice.partitions)
    started = _Board.of(cluster, choice, request)
    if isinstance(started, Refused):
        return started
    board, freed = started
    if request.sub_affinity and (no_pair := _substitute(board, choice)):
        return Refused(no_pair)
    if (no_place := _fill(board, request)) and freed:
        board.give_back(freed)
        no_place = _fill(board, request)
    if no_place:
        return Refused(no_place)
    if request.placement is By.COUNT:
        board.even()
    else:
        board.level(PAIRS * request.effort)
    moves = (
        Reassignment(*one.name, one.replicas, board.filled(one.name), one.size or 0)
        for one in choice.partitions
    )
    ordered = in_order(cluster, [move for move in moves if move.after != move.before])
    if isinstance(ordered, Refused):
        return ordered
    if request.placement is By.STORAGE:
        notices += worse(cluster, choice.brokers, ordered)
    return Plan(cluster, ordered, notices=notices)


def _capacity_unknown(partitions: Sequence[Partition]) -> tuple[Notice, ...]:
    """Return a notice that room on brokers is not checked.

    It refuses the plan if only some sizes are known, because the input lacks the others.
    """
    unknown = [one for one in partitions if one.size is None]
    text = (
        f"The size of {len(unknown)} of {len(partitions)} partitions is not known: "
        f"{partition_names(unknown)}. Whether their copies fit on brokers is not checked. Next: compare them "
        "with what brokers have free."
    )
    return (Notice("placement.capacity-unknown", text, refuses=len(unknown) < len(partitions)),)


def _short_sets(partitions: Sequence[Partition], request: Rebuild) -> tuple[Notice, ...]:
    """Return a notice about sets with too few replicas to span the requested racks."""
    short = [one for one in partitions if (request.replication or len(one.replicas)) < request.min_rack_ids]
    if not short:
        return ()
    text = (
        f"--min-rack-ids is {request.min_rack_ids}; sets with fewer replicas span a rack for each: "
        f"{partition_names(short)}"
    )
    return (Notice("placement.few-replicas", text),)


def _faulty_options(request: Rebuild) -> tuple[Notice, ...]:
    return tuple(
        Notice(id, text)
        for id, wrong, text in (
            (
                "placement.storage-without-meta",
                request.placement is By.STORAGE and not request.use_meta,
                "--placement storage needs sizes, which --use-meta=false leaves out. Next: drop one of them.",
            ),
            (
                "placement.racks-without-meta",
                request.min_rack_ids > 0 and not request.use_meta,
                "--min-rack-ids needs racks, which --use-meta=false leaves out. Next: drop one of them.",
            ),
            (
                "placement.racks-above-replicas",
                0 < request.replication < request.min_rack_ids,
                f"--min-rack-ids is {request.min_rack_ids}, --replication is {request.replication}; needed: "
                "no more racks than replicas",
            ),
            (
                "placement.force-and-affinity",
                request.force_rebuild and request.sub_affinity,
                "--force-rebuild and --sub-affinity exclude each other. Next: drop one of them.",
            ),
            (
                "placement.size-factor",
                not 0 < request.partition_size_factor < float("inf"),
                f"--partition-size-factor is {request.partition_size_factor}; needed: a number above 0",
            ),
            (
                "placement.option-negative",
                request.replication < 0 or request.min_rack_ids < 0,
                f"--replication is {request.replication}, --min-rack-ids is {request.min_rack_ids}; "
                "needed: 0 or more",
            ),
        )
        if wrong
    )


class _Board:
    """The sets while they are filled. A slot that still needs a broker contains None.

    free: bytes that each target has left after reservations.
    count: replicas of the chosen sets on each target.
    goal: racks that each set must span.
    reserve: bytes to reserve for a replica of each set.
    placed: the slots filled here, by broker.
    """

    def __init__(
        self, cluster: Cluster, free: dict[int, int], sets: Mapping[Name, list[int | None]], by: By
    ) -> None:
        self.cluster = cluster
        self.by = by
        self.free = free
        self.sets = sets
        self.open = [
            (name, slot) for name in sets for slot, broker in enumerate(sets[name]) if broker is None
        ]
        self.rack = {broker: cluster.rack(broker) for broker in cluster.brokers}
        self.goal: dict[Name, int] = {}
        self.reserve: dict[Name, int] = {}
        self.placed: dict[int, dict[Slot, None]] = {broker: {} for broker in free}
        self.count = dict.fromkeys(free, 0)
        for held in sets.values():
            for broker in held:
                if broker is not None:
                    self.count[broker] += 1
        self.ranking = sorted(self.rank(broker) for broker in free)

    @classmethod
    def of(
        cls, cluster: Cluster, choice: Chosen, request: Rebuild
    ) -> tuple[_Board, dict[int, int]] | Refused:
        """Return the board before any slot is filled, and the bytes that shortened sets free later."""
        targets = set(choice.brokers)
        free = {broker: cluster.brokers[broker].room for broker in choice.brokers}
        freed: dict[int, int] = {}
        sets: dict[Name, list[int | None]] = {}
        for one in choice.partitions:
            length = request.replication or len(one.replicas)
            if request.force_rebuild:
                kept: list[int | None] = [None] * length
                for broker in targets & set(one.replicas):
                    free[broker] += one.size or 0
            else:
                short = _shortened(cluster, one.replicas, targets, length)
                kept = [broker if broker in targets else None for broker in short]
                kept += [None] * (length - len(kept))
                for broker in targets & set(one.replicas) - set(kept):
                    freed[broker] = freed.get(broker, 0) + (one.size or 0)
            sets[one.name] = kept
        board = cls(cluster, free, sets, request.placement)
        factor = Fraction(str(request.partition_size_factor))
        refused = []
        for one in choice.partitions:
            board.reserve[one.name] = ceil((one.size or 0) * factor)
            if no_goal := board.aim(one, request, targets):
                refused.append(no_goal)
        return Refused(tuple(refused)) if refused else (board, freed)

    def aim(self, one: Partition, request: Rebuild, targets: Collection[int]) -> Notice | None:
        """Set how many racks the set must span, or return why it cannot."""
        held = self.sets[one.name]
        kept = [broker for broker in held if broker is not None]
        if None not in held:
            return None
        length, open_slots = len(held), len(held) - len(kept)
        if length > len(targets):
            return Notice(
                "placement.few-brokers",
                f"{one.topic}-{one.number} needs {length} replicas; the limit: {len(targets)} chosen brokers",
            )
        asked = min(request.min_rack_ids or length, length) if request.use_meta else 0
        spanned = self.cluster.racks(kept)
        goal = min(max(asked, racks_needed(self.cluster, one.replicas, length)), spanned + open_slots)
        racks = self.cluster.racks((*kept, *targets))
        if goal > racks:
            return Notice(
                "placement.few-racks",
                f"{one.topic}-{one.number} needs {goal} racks; the limit: {racks} racks of chosen brokers",
            )
        self.goal[one.name] = goal
        return None

    def filled(self, name: Name) -> tuple[int, ...]:
        """Return a set without its open slots."""
        return tuple(broker for broker in self.sets[name] if broker is not None)

    def rank(self, broker: int) -> tuple[int, int, int]:
        """Return the key that orders brokers: the first one gets the next replica."""
        return self.count[broker] if self.by is By.COUNT else 0, -self.free[broker], broker

    # One replica

    def suits(self, at: Slot, broker: int) -> bool:
        """Return whether a broker keeps the rules of a set in this slot, whatever it has free."""
        name, slot = at
        others = [one for place, one in enumerate(self.sets[name]) if place != slot]
        if broker in others:
            return False
        racks = {self.rack[one] for one in others if one is not None}
        racks.add(self.rack[broker])
        return len(racks) + others.count(None) >= self.goal[name]

    def fits(self, at: Slot, broker: int) -> bool:
        """Return whether a broker may take the replica of this slot."""
        return self.free[broker] >= self.reserve[at[0]] and self.suits(at, broker)

    def put(self, at: Slot, broker: int | None) -> None:
        """Put the replica of a slot on a broker, or remove it with None."""
        name, slot = at
        for one, sign in ((self.sets[name][slot], -1), (broker, 1)):
            if one is None:
                continue
            del self.ranking[bisect_left(self.ranking, self.rank(one))]
            self.count[one] += sign
            self.free[one] -= sign * self.reserve[name]
            insort(self.ranking, self.rank(one))
            if sign > 0:
                self.placed[one][at] = None
            else:
                del self.placed[one][at]
        self.sets[name][slot] = broker

    def fix(self, at: Slot, broker: int) -> None:
        """Fill a slot permanently."""
        self.put(at, broker)
        self.open.remove(at)
        del self.placed[broker][at]

    def give_back(self, freed: Mapping[int, int]) -> None:
        """Clear all filled slots, and count the bytes of replicas that are dropped as free."""
        self.clear()
        for broker, size in freed.items():
            self.free[broker] += size
        self.ranking = sorted(self.rank(broker) for broker in self.free)

    def clear(self) -> None:
        for at in self.open:
            self.put(at, None)

    # All replicas

    def best(self, at: Slot) -> int | None:
        """Return the first broker by rank that may take the replica, or None.

        By count, among equal brokers one that already has the replica comes first.
        """
        found = next((broker for *_, broker in self.ranking if self.fits(at, broker)), None)
        if found is None or self.by is not By.COUNT:
            return found
        for broker in self.cluster.by_name[at[0]].replicas:
            if self.count.get(broker) == self.count[found] and self.fits(at, broker):
                return broker
        return found

    def make_room(self, at: Slot) -> bool:
        """Fill a slot by moving one planned replica elsewhere, of a full broker or of the same set.

        Returns whether that was possible.
        """
        name, _ = at
        for *_, full in list(self.ranking):
            if not self.suits(at, full):
                continue
            short = self.reserve[name] - self.free[full]
            for other in sorted(self.placed[full], key=lambda one: (self.reserve[one[0]], one)):
                if self.reserve[other[0]] >= short and self.moved_away(at, full, other):
                    return True
        for slot, broker in enumerate(self.sets[name]):
            if broker is not None and (name, slot) in self.placed[broker]:
                for *_, to in list(self.ranking):
                    if to != broker and self.swapped_in_set(at, (name, slot), to):
                        return True
        return False

    def moved_away(self, at: Slot, broker: int, other: Slot) -> bool:
        """Give a broker this slot in exchange for another one, if that one fits elsewhere.

        Returns whether it did.
        """
        self.put(other, None)
        self.put(at, broker)
        to = self.best(other)
        if to is not None:
            self.put(other, to)
            return True
        self.put(at, None)
        self.put(other, broker)
        return False

    def swapped_in_set(self, at: Slot, other: Slot, to: int) -> bool:
        """Move another slot of the set to a broker if this slot can then be filled.

        Returns whether it can.
        """
        before = self.sets[other[0]][other[1]]
        self.put(other, None)
        if self.fits(other, to):
            self.put(other, to)
            if (found := self.best(at)) is not None:
                self.put(at, found)
                return True
        self.put(other, before)
        return False

    def searched(self, looks: int) -> bool | None:
        """Try all ways to fill the open slots.

        Returns whether one was found, or None if the looks did not suffice. Slots of one set take brokers in
        ascending order, because their order among each other changes nothing.
        """
        self.clear()
        if sum(self.reserve[name] for name, _ in self.open) > sum(self.free.values()):
            return False
        slots = sorted(self.open, key=lambda one: (-self.reserve[one[0]], one))
        stack: list[Iterator[int]] = []
        brokers = sorted(self.free)
        while len(stack) <= len(slots):
            if len(stack) == len(slots):
                return True
            at = slots[len(stack)]
            earlier = slots[len(stack) - 1] if stack else None
            lowest = self.sets[at[0]][earlier[1]] if earlier and earlier[0] == at[0] else None
            stack.append(iter(brokers if lowest is None else brokers[bisect_left(brokers, lowest + 1) :]))
            while stack:
                at = slots[len(stack) - 1]
                self.put(at, None)
                for broker in stack[-1]:
                    looks -= 1
                    if self.fits(at, broker):
                        self.put(at, broker)
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
        """Pass planned replicas on, over other brokers if needed, until counts are as equal as possible."""
        settled: set[int] = set()
        while len(settled) < len(self.count):
            start = min(self.count.keys() - settled, key=lambda broker: (-self.count[broker], broker))
            settled |= self.handed_on(start)

    def handed_on(self, start: int) -> set[int]:
        """Pass one replica on from a broker to one that has at least two fewer.

        Returns an empty set if that was done. Otherwise it returns the brokers that a replica of this broker
        can reach, because none of them can pass one on either.
        """
        came_by: dict[int, Slot | None] = {start: None}
        edge = [start]
        while edge and min(self.count.values()) <= self.count[start] - 2:
            further = []
            unseen = sorted(self.free.keys() - came_by.keys(), key=lambda one: (self.count[one], one))
            for source in edge:
                for at in self.placed[source]:
                    found = [broker for broker in unseen if self.fits(at, broker)]
                    came_by.update(dict.fromkeys(found, at))
                    further += found
                    unseen = [broker for broker in unseen if broker not in came_by]
            for end in further:
                if self.count[end] <= self.count[start] - 2 and self.carried(came_by, end):
                    return set()
            edge = further
        return set(came_by)

    def carried(self, came_by: Mapping[int, Slot | None], end: int) -> bool:
        """Move the replicas of a chain that ends at a broker, all of them or none.

        Returns whether they moved.
        """
        done: list[tuple[Slot, int]] = []
        to = end
        while (at := came_by[to]) is not None:
            source = self.sets[at[0]][at[1]]
            if source is None or any(at == moved for moved, _ in done) or not self.fits(at, to):
                for moved, before in reversed(done):
                    self.put(moved, before)
                return False
            self.put(at, to)
            done.append((at, source))
            to = source
        return True

    def level(self, looks: int) -> None:
        """Make free bytes more equal, in at most this many looks at two brokers.

        A copy that is made anyway costs as much on any broker, so no step costs a byte.
        """
        while True:
            order = sorted(self.free, key=lambda broker: (self.free[broker], broker))
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

        Returns whether that was possible.
        """
        gap = self.free[high] - self.free[low]
        back = sorted((self.reserve[one[0]], one) for one in self.copies(high))
        for at in sorted(self.copies(low), key=lambda one: (abs(2 * self.reserve[one[0]] - gap), one)):
            size = self.reserve[at[0]]
            if 0 < size < gap and self.fits(at, high):
                self.put(at, high)
                return True
            nearest = bisect_left(back, size - gap // 2, key=lambda one: one[0])
            for other, one in back[max(0, nearest - NEAR) : nearest + NEAR]:
                if 0 < size - other < gap and self.exchanged(at, one):
                    return True
        return False

    def copies(self, broker: int) -> list[Slot]:
        """Return the planned replicas that a broker does not hold yet."""
        return [at for at in self.placed[broker] if broker not in self.cluster.by_name[at[0]].replicas]

    def exchanged(self, at: Slot, back: Slot) -> bool:
        """Swap two planned replicas of different sets if both sets keep their rules.

        Returns whether they were swapped.
        """
        here, there = self.sets[at[0]][at[1]], self.sets[back[0]][back[1]]
        if at[0] == back[0] or here is None or there is None:
            return False
        self.put(at, None)
        self.put(back, None)
        if self.fits(at, there) and self.suits(back, here):
            self.put(at, there)
            if self.fits(back, here):
                self.put(back, here)
                return True
            self.put(at, None)
        self.put(at, here)
        self.put(back, there)
        return False


def _shortened(
    cluster: Cluster, replicas: tuple[int, ...], targets: Collection[int], length: int
) -> tuple[int, ...]:
    """Return the replicas that a set of this length keeps: the first ones.

    A replica that must move anyway is dropped before the last ones. One of the last ones is kept if its rack
    would be lost.
    """
    if len(replicas) <= length:
        return replicas
    needed = racks_needed(cluster, replicas, length)
    kept: list[int] = []
    rest = sorted(replicas, key=lambda broker: broker not in targets)
    while len(kept) < length:
        broker = rest.pop(0)
        racks = cluster.racks((*kept, broker))
        to_come = cluster.racks((*kept, broker, *rest)) - racks
        if racks + min(to_come, length - len(kept) - 1) >= needed:
            kept.append(broker)
    return tuple(broker for broker in replicas if broker in kept)


def _fill(board: _Board, request: Rebuild) -> tuple[Notice, ...]:
    """Fill the open slots. Return nothing, or the partition that could not be placed and its limit."""
    for at in _turns(board, request):
        if (broker := board.best(at)) is not None:
            board.put(at, broker)
        elif not board.make_room(at):
            why = _limit(board, at)
            looks = LOOKS * request.effort
            found = board.searched(looks)
            if found:
                return ()
            sure = "no placement of all sets exists" if found is False else f"none was found in {looks} looks"
            return (Notice("placement.no-place", f"{why}; {sure}"),)
    return ()


def _turns(board: _Board, request: Rebuild) -> Sequence[Slot]:
    """Return the open slots in the order in which to fill them: slot by slot over all sets, or set by set."""
    by_set = request.placement is By.STORAGE and request.optimize is Optimize.STORAGE
    waiting = [at for at in board.open if board.sets[at[0]][at[1]] is None]

    def turn(at: Slot) -> tuple[int, int, Name, int]:
        name, slot = at
        size = board.reserve[name] if request.placement is By.STORAGE else 0
        return 0 if by_set else slot, -size, name, slot

    return sorted(waiting, key=turn)


def _limit(board: _Board, at: Slot) -> str:
    """Return why no broker takes the replica of a slot."""
    (topic, number), slot = at
    size = board.reserve[topic, number]
    suited = [broker for broker in board.free if board.suits(at, broker)]
    if not suited:
        return (
            f"{topic}-{number} replica {slot + 1}: the limit is racks; needed: "
            f"{board.goal[topic, number]}, and no chosen broker outside the set is in another rack"
        )
    most = max(suited, key=lambda broker: (board.free[broker], -broker))
    return (
        f"{topic}-{number} replica {slot + 1}: the limit is disk; needed: {size} bytes, and the "
        f"{len(suited)} brokers that may take it have at most {board.free[most]} left (broker {most})"
    )


def _substitute(board: _Board, choice: Chosen) -> tuple[Notice, ...]:
    """Fill each slot of a gone broker with the new broker that replaces it.

    Return nothing, or why none does.
    """
    by_broker: dict[int, list[Slot]] = {broker: [] for broker in (*choice.missing, *choice.replaced)}
    for at in board.open:
        replicas = board.cluster.by_name[at[0]].replicas
        held = board.sets[at[0]]
        gone = [broker for broker in replicas if broker in by_broker]
        if len(held) >= len(replicas):
            if at[1] < len(replicas):
                by_broker[replicas[at[1]]].append(at)
        else:
            place = [slot for slot, broker in enumerate(held) if broker is None].index(at[1])
            by_broker[gone[place]].append(at)
    pairs: dict[int, int] = {}

    def paired(old: int, seen: set[int]) -> bool:
        for new in choice.new:
            if new in seen or not _replaces(board, old, new, by_broker[old]):
                continue
            seen.add(new)
            if new not in pairs or paired(pairs[new], seen):
                pairs[new] = old
                return True
        return False

    alone = [old for old in sorted(by_broker) if by_broker[old] and not paired(old, set())]
    if alone:
        text = (
            "sub-affinity needs a new broker of the same rack with room for all replicas; none for "
            f"broker{'s' * (len(alone) > 1)} {', '.join(map(str, alone))}; new brokers: "
            f"{', '.join(map(str, choice.new)) or 'none'}"
        )
        return (Notice("placement.no-substitute", text),)
    for new, old in sorted(pairs.items()):
        for at in by_broker[old]:
            board.fix(at, new)
    return ()


def _replaces(board: _Board, old: int, new: int, slots: Sequence[Slot]) -> bool:
    """Return whether a new broker is in an old one's rack and has room for its replicas.

    The rack of a broker that is not registered is unknown; any broker that suits all its sets will do.
    """
    brokers = board.cluster.brokers
    if old in brokers and brokers[old].rack != brokers[new].rack:
        return False
    room = sum(board.reserve[name] for name, _ in slots) <= board.free[new]
    return room and all(board.suits(at, new) for at in slots)
