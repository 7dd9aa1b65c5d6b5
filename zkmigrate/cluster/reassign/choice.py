"""Choose the moves that may start next, within caps and free bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from zkmigrate.cluster.placement.cluster import Broker
from zkmigrate.cluster.placement.cluster import Cluster as Placed
from zkmigrate.cluster.placement.order import after, in_order
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.cluster.reassign.estimate import ends, load
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.cluster.reassign.section import Pace
from zkmigrate.runbook.model.step import Way


def next_moves(wanted: Pace, flying: Iterable[Move], todo: Iterable[Move], way: Way) -> tuple[Move, ...]:
    """Return the moves that may start now within all caps, in order.

    A move that must wait for a broker does not hold up those after it.
    """
    now = load(flying, way)
    total, to, of = now.total, Counter(now.to), Counter(now.of)
    chosen = []
    for move in todo:
        if total >= wanted.in_flight:
            break
        sender, receivers = ends(move, way)
        written = (*receivers, *move.inside)
        full = any(to[broker] >= wanted.per_broker for broker in written)
        if full or (receivers and of[sender] >= wanted.per_broker):
            continue
        total += 1
        to.update(written)
        of.update((sender,) if receivers else ())
        chosen.append(move)
    return tuple(chosen)


def fitting(moves: Iterable[Move], way: Way, room: Mapping[int, int]) -> tuple[Move, ...]:
    """Return the moves for which every receiving broker has room, in their order.

    room: free bytes of the brokers that are short of space, less the bytes that copies in flight still need.
    A move that waits also makes later moves to the same brokers wait.
    """
    left, chosen = dict(room), []
    for move in moves:
        scarce = [broker for broker in ends(move, way)[1] if broker in left]
        fits = all(left[broker] >= move.size for broker in scarce)
        if fits:
            chosen.append(move)
        for broker in scarce:
            left[broker] = left[broker] - move.size if fits else -1
    return tuple(chosen)


def tight(moves: Iterable[Move], room: Mapping[int, int]) -> tuple[int, ...]:
    """Return the brokers without room for all their new replicas at once.

    Brokers that do not report their free bytes are left out.
    """
    gets: Counter[int] = Counter()
    for move in moves:
        gets.update(dict.fromkeys(move.added, move.size))
    return tuple(broker for broker, count in sorted(gets.items()) if count > room.get(broker, count))


def in_room(moves: Sequence[Move], room: Mapping[int, int]) -> tuple[Move, ...] | Refused:
    """Return the moves in an order in which each broker has room.

    Each move that ends frees the bytes of its old replicas.

    room: free bytes by broker; a broker that is not in it limits nothing. Returns Refused if there is no such
    order.
    """
    brokers = {broker for move in moves for broker in (*move.before, *move.after)}
    endless = sum(move.bytes for move in moves)
    free = {id: room.get(id, endless) for id in brokers}
    found: list[Move] = []
    for phase in sorted({move.phase for move in moves}):
        by_name = {move.name: move for move in moves if move.phase == phase}
        cluster = Placed.of((Broker(id, "", left) for id, left in free.items()), ())
        ordered = in_order(cluster, by_name.values())
        if isinstance(ordered, Refused):
            return ordered
        free = after(free, ordered)
        found += (by_name[move.name] for move in ordered)
    return tuple(found)
