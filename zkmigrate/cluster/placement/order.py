"""Order moves so that no broker ever has less than 0 bytes free.

A new copy takes its bytes before the old copy frees any.

Between two moves a broker's free bytes are those that it had at first, less the copies that it got, plus the
copies that it lost. A move is possible if the brokers that get a copy have room for it. So an order works
exactly if no broker is below 0 between any two of its moves, and the reversed order works for the way back.

A broker is *ample* if it has room for all copies that it will still get; such a broker limits no order. A
move may come first if only ample brokers get its copies, and last if only ample brokers lose a copy. Neither
choice makes a possible order impossible. The planner then searches for an order of the remaining moves, one
group at a time; the moves of a group share brokers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.cluster.placement.cluster import Cluster
from zkmigrate.cluster.placement.plan import Notice, Reassignment, Refused

LOOKS = 2_000_000
"""The number of checks of a move after which the search gives up; repeated checks count too."""


def in_order(cluster: Cluster, moves: Iterable[Reassignment]) -> tuple[Reassignment, ...] | Refused:
    """Return the moves in an order in which no broker ever needs more bytes than it has free.

    The given order is kept if it works. A refusal names the broker and how many bytes are short.
    """
    given = tuple(moves)
    free = dict(cluster.free)
    if short := _short_after(free, given):
        return Refused(short)
    if _works(free, given):
        return given
    eased = _eased(free, given)
    found = list(eased.head)
    for group in _groups(eased.rest, eased.tight):
        ordered = _by_rule(free, group)
        if isinstance(ordered, _Stuck):
            searched, sure = _searched(free, group)
            if searched is None:
                return Refused((_no_order(ordered, sure),))
            ordered = searched
        found += ordered
    return (*found, *eased.tail)


def after(free: Mapping[int, int], moves: Iterable[Reassignment]) -> dict[int, int]:
    """Return the free bytes of brokers once the moves are complete."""
    left = dict(free)
    for move in moves:
        _do(left, move)
    return left


@dataclass(frozen=True, slots=True)
class _Stuck:
    """The move that came nearest to fitting when no further move fitted."""

    short: int
    broker: int
    free: int
    move: Reassignment


def _blocked(free: Mapping[int, int], move: Reassignment) -> int | None:
    """Return the first broker that has no room for its copy of a move, or None if all have room."""
    return next((broker for broker in move.added if free.get(broker, 0) < move.size), None)


def _do(free: dict[int, int], move: Reassignment) -> None:
    for broker in move.added:
        free[broker] = free.get(broker, 0) - move.size
    for broker in move.dropped:
        if broker in free:
            free[broker] += move.size


def _works(free: Mapping[int, int], moves: Iterable[Reassignment]) -> bool:
    left = dict(free)
    for move in moves:
        if _blocked(left, move) is not None:
            return False
        _do(left, move)
    return True


def _short_after(free: Mapping[int, int], moves: Sequence[Reassignment]) -> tuple[Notice, ...]:
    """Return a notice for each broker that holds too much after all moves, so that no order helps."""
    getting = {broker for move in moves if move.size for broker in move.added}
    left = after(free, moves)
    return tuple(
        Notice(
            "placement.no-room",
            f"broker {broker} is {-left[broker]} bytes short after all moves; "
            f"free now: {free.get(broker, 0)}",
        )
        for broker in sorted(getting)
        if left[broker] < 0
    )


def _no_order(stuck: _Stuck, sure: bool) -> Notice:
    move = stuck.move
    return Notice(
        "placement.no-order",
        f"broker {stuck.broker} is {stuck.short} bytes short: {move.topic}-{move.number} needs "
        f"{move.size} bytes there, {stuck.free} are free when this move is due; "
        + (
            "no order of whole moves works"
            if sure
            else f"the search gave up after {LOOKS:,} checks of a move; an order may still exist"
        ),
    )


@dataclass(frozen=True, slots=True)
class _Eased:
    """Moves sorted by whether their position matters.

    head: moves that may come first. rest: moves whose position matters. tail: moves that may come last.
    tight: brokers that limit the rest.
    """

    head: list[Reassignment]
    rest: list[Reassignment]
    tail: list[Reassignment]
    tight: set[int]


def _eased(free: dict[int, int], moves: Sequence[Reassignment]) -> _Eased:
    """Separate the moves whose position does not matter.

    free: changed in place to what is free after the moves of the head.
    """
    wanted: dict[int, int] = {}
    by_broker: dict[int, list[int]] = {}
    for place, move in enumerate(moves):
        for broker in move.added:
            wanted[broker] = wanted.get(broker, 0) + move.size
        for broker in (*move.added, *move.dropped):
            by_broker.setdefault(broker, []).append(place)
    tight = {broker for broker, size in wanted.items() if free.get(broker, 0) < size}
    gets = [sum(broker in tight for broker in move.added) for move in moves]
    loses = [sum(broker in tight for broker in move.dropped) for move in moves]
    ready = [place for place in range(len(moves)) if not gets[place] or not loses[place]]
    left = dict.fromkeys(range(len(moves)))
    head: list[Reassignment] = []
    tail: list[Reassignment] = []
    while ready:
        place = heapq.heappop(ready)
        if place not in left:
            continue
        del left[place]
        move = moves[place]
        if gets[place]:
            tail.append(move)
            touched = move.added
        else:
            head.append(move)
            _do(free, move)
            touched = move.added + move.dropped
        for broker in move.added:
            wanted[broker] -= move.size
        for broker in touched:
            if broker in tight and free.get(broker, 0) >= wanted[broker]:
                tight.remove(broker)
                for other in by_broker[broker]:
                    counts = gets if broker in moves[other].added else loses
                    counts[other] -= 1
                    if not counts[other] and other in left:
                        heapq.heappush(ready, other)
    return _Eased(head, [moves[place] for place in left], tail[::-1], tight)


def _groups(moves: Sequence[Reassignment], tight: set[int]) -> list[list[Reassignment]]:
    """Group moves that share a tight broker, directly or through others."""
    parent: dict[int, int] = {}

    def root(broker: int) -> int:
        while parent.setdefault(broker, broker) != broker:
            parent[broker] = broker = parent[parent[broker]]
        return broker

    firsts = []
    for move in moves:
        first, *others = (broker for broker in (*move.added, *move.dropped) if broker in tight)
        firsts.append(first)
        for other in others:
            parent[root(other)] = root(first)
    groups: dict[int, list[Reassignment]] = {}
    for move, first in zip(moves, firsts, strict=True):
        groups.setdefault(root(first), []).append(move)
    return list(groups.values())


def _by_rule(free: Mapping[int, int], moves: Sequence[Reassignment]) -> list[Reassignment] | _Stuck:
    """Return an order by a simple rule, or the move at which all rules got stuck.

    The rules are the given order, small moves first and large moves first, each forwards and then backwards.
    """
    rules: tuple[Callable[[Reassignment], int], ...] = (lambda _: 0, lambda m: m.size, lambda m: -m.size)
    back = [Reassignment(m.topic, m.number, m.after, m.before, m.size) for m in moves]
    forth = {move.name: move for move in moves}
    at_end = after(free, moves)
    nearest = []
    for rule in rules:
        found = _greedy(free, moves, rule)
        if isinstance(found, list):
            return found
        nearest.append(found)
        backwards = _greedy(at_end, back, rule)
        if isinstance(backwards, list):
            return [forth[move.name] for move in reversed(backwards)]
    return min(nearest, key=lambda stuck: (stuck.short, stuck.broker, stuck.move.name))


def _greedy(
    free: Mapping[int, int], moves: Sequence[Reassignment], rule: Callable[[Reassignment], int]
) -> list[Reassignment] | _Stuck:
    """Return the order that always takes the first move that fits, or the move at which it gets stuck.

    rule: the key that sorts the moves. A move that does not fit waits until its broker loses a copy.
    """
    left = dict(free)
    heap = [(rule(move), place) for place, move in enumerate(moves)]
    heapq.heapify(heap)
    waiting: dict[int, list[tuple[int, int]]] = {}
    done: list[Reassignment] = []
    while heap:
        entry = heapq.heappop(heap)
        move = moves[entry[1]]
        blocked = _blocked(left, move)
        if blocked is not None:
            waiting.setdefault(blocked, []).append(entry)
            continue
        done.append(move)
        _do(left, move)
        for broker in move.dropped:
            for woken in waiting.pop(broker, ()):
                heapq.heappush(heap, woken)
    short = [
        _Stuck(moves[place].size - left.get(broker, 0), broker, left.get(broker, 0), moves[place])
        for broker, entries in waiting.items()
        for _, place in entries
    ]
    return min(short, key=lambda stuck: (stuck.short, stuck.broker, stuck.move.name)) if short else done


def _searched(
    free: Mapping[int, int], moves: Sequence[Reassignment]
) -> tuple[list[Reassignment] | None, bool]:
    """Search for an order by trying every move that fits, depth first.

    Returns two values: the order, or None if none was found; and whether the search was complete, so that
    None means that no order exists.
    """
    seen: set[tuple[frozenset[tuple[str, int]], tuple[int, ...]]] = set()
    stack: list[_Way] = [_Way(dict(free), tuple(moves), (), ())]
    looks = 0
    while stack:
        way = stack.pop()
        looks += len(way.left)
        if looks > LOOKS:
            return None, False
        left = dict(way.free)
        eased = _eased(left, way.left)
        head, tail = (*way.head, *eased.head), (*eased.tail, *way.tail)
        if not eased.rest:
            return [*head, *tail], True
        state = frozenset(move.name for move in eased.rest), tuple(left.values())
        if state in seen:
            continue
        seen.add(state)
        for move in sorted(eased.rest, key=lambda move: (len(move.dropped) - len(move.added)) * move.size):
            if _blocked(left, move) is None:
                next_free = dict(left)
                _do(next_free, move)
                rest = tuple(other for other in eased.rest if other is not move)
                stack.append(_Way(next_free, rest, (*head, move), tail))
    return None, True


@dataclass(frozen=True, slots=True)
class _Way:
    """The start and the end of an order, and the moves that are still to be placed between them."""

    free: dict[int, int]
    left: tuple[Reassignment, ...]
    head: tuple[Reassignment, ...]
    tail: tuple[Reassignment, ...]
