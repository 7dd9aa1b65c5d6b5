"""Cut a plan into reassignments: settle the leaders, form chunks of moves, and split each into two phases."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import combinations

from zkmigrate.cluster.placement.cluster import Cluster, Name, Set
from zkmigrate.cluster.placement.constraints import racks_needed
from zkmigrate.cluster.placement.leaders import barred, evacuated, led_by, may_lead, spread_leaders
from zkmigrate.cluster.placement.order import after, in_order
from zkmigrate.cluster.placement.plan import Notice, Plan, Reassignment, Refused
from zkmigrate.cluster.placement.request import Rollout


def cut(plan: Plan, rollout: Rollout, names: Collection[Name] | None = None) -> Plan | Refused:
    """Return the plan with the rollout's leaders and reassignments, each in an order that has room.

    names: the partitions whose leaders may change, besides those of the plan's moves; None for all of the
    cluster.

    1. Evacuated brokers pass their leadership on. 2. Leaders are spread over the brokers. 3. The moves are
    cut into chunks of source brokers. 4. Each chunk becomes two reassignments: in the first the old leader
    stays preferred. A reassignment contains the replica lists that it changes. A list that is only reordered,
    or only grows, is in the last chunk.
    """
    cluster = plan.cluster
    planned = {move.name: move for move in plan.moves}
    sets = {
        partition.name: planned[partition.name].after if partition.name in planned else partition.replicas
        for partition in cluster.partitions
        if names is None or partition.name in names or partition.name in planned
    }
    away = barred(rollout, sorted({topic for topic, _ in sets}))
    if isinstance(away, Refused):
        return away
    led = evacuated(cluster, sets, away)
    if isinstance(led, Refused):
        return led
    if rollout.optimize_leadership:
        led = spread_leaders(cluster, led, away)
    moves = []
    for name in (*planned, *(name for name in led if name not in planned)):
        partition = cluster.by_name[name]
        size = planned[name].size if name in planned else partition.size or 0
        if led[name] != partition.replicas:
            moves.append(Reassignment(*name, partition.replicas, led[name], size))
    maps = _chunks(cluster, moves, rollout.chunk_step_size, away)
    if isinstance(maps, Refused):
        return maps
    if rollout.phased:
        maps = [half for chunk in maps for half in _phases(cluster, chunk, away)]
    ordered = _in_order(cluster, [one for one in maps if one])
    if isinstance(ordered, Refused):
        return ordered
    notices = plan.notices
    if rollout.leader_evac_topics and not away:
        text = f"leader-evac-topics matches none of the plan's topics: {list(rollout.leader_evac_topics)}"
        notices += (Notice("placement.evacuation-nothing", text, refuses=True),)
    holding = {broker for partition in cluster.partitions for broker in partition.replicas}
    if unknown := sorted({*rollout.leader_evac_brokers} - {*cluster.brokers} - holding):
        text = f"leader-evac-brokers names {unknown}: neither registered nor in any replica list"
        notices += (Notice("placement.evacuation-broker", text, refuses=True),)
    by_name = {move.name: move for move in moves}
    last = dict.fromkeys(move.name for one in reversed(ordered) for move in reversed(one))
    done = tuple(by_name[name] for name in reversed(last))
    if len(ordered) == 1:
        return replace(plan, moves=done, notices=notices)
    alone = in_order(cluster, done)
    if isinstance(alone, Refused):
        text = (
            "the brokers have no room for one file with all moves, whatever their order; they have "
            "room for the phases. Next: submit the phases"
        )
        notices += (Notice("placement.phases-only", text),)
        alone = done
    return replace(plan, moves=alone, phases=ordered, notices=notices)


def _in_order(
    cluster: Cluster, maps: Iterable[Iterable[Reassignment]]
) -> tuple[tuple[Reassignment, ...], ...] | Refused:
    """Return the moves of each reassignment in an order that has room after the ones before it."""
    left, found = cluster, list[tuple[Reassignment, ...]]()
    maps = list(maps)
    for number, one in enumerate(maps, 1):
        ordered = in_order(left, one)
        if isinstance(ordered, Refused):
            where = f"reassignment {number} of {len(maps)}: " if len(maps) > 1 else ""
            return Refused(tuple(replace(why, text=where + why.text) for why in ordered.reasons))
        found.append(ordered)
        free = after(left.free, ordered)
        left = Cluster.of((replace(broker, free=free[broker.id]) for broker in left.brokers.values()), ())
    return tuple(found)


def _phases(
    cluster: Cluster, chunk: list[Reassignment], away: Mapping[str, frozenset[int]]
) -> tuple[list[Reassignment], list[Reassignment]]:
    """Split a chunk into two reassignments: first with the old leader in front, then the new replica lists.

    A leader that is gone or evacuated leaves at once.
    """
    first, second = [], []
    for move in chunk:
        leader = move.before[0]
        keeps = may_lead(cluster, leader, away.get(move.topic, frozenset()))
        middle = led_by(leader, move.after) if keeps else move.after
        if middle != move.before:
            first.append(replace(move, after=middle))
        if middle != move.after:
            second.append(replace(move, before=middle))
    return first, second


def _chunks(
    cluster: Cluster, moves: list[Reassignment], step: int, away: Mapping[str, frozenset[int]]
) -> list[list[Reassignment]] | Refused:
    """Return one list of moves for each ``step`` brokers that lose a copy, the highest ids first."""
    sources = sorted({broker for move in moves for broker in move.dropped}, reverse=True)
    if step <= 0 or len(sources) <= step:
        return [moves]
    chunk_of = {broker: place // step for place, broker in enumerate(sources)}
    chunks: list[list[Reassignment]] = [[] for _ in range(max(chunk_of.values()) + 1)]
    stuck = []
    for move in moves:
        turns = sorted({chunk_of[broker] for broker in move.dropped}) or [len(chunks) - 1]
        leaving = [frozenset(broker for broker in move.dropped if chunk_of[broker] == turn) for turn in turns]
        way = _intermediate_sets(cluster, move, leaving, away.get(move.topic, frozenset()))
        if way is None:
            stuck.append(move)
            continue
        for turn, old, new in zip(turns, (move.before, *way), way, strict=False):
            chunks[turn].append(replace(move, before=old, after=new))
    if not stuck:
        return chunks
    return Refused(
        tuple(
            Notice(
                "placement.chunks-evacuation",
                f"{move.topic}-{move.number} goes from {list(move.before)} to {list(move.after)}; on its way "
                f"in chunks of {step} it would lose a rack or be led by an evacuated broker",
            )
            for move in stuck
        )
    )


def _intermediate_sets(
    cluster: Cluster, move: Reassignment, leaving: list[frozenset[int]], away: frozenset[int]
) -> list[Set] | None:
    """Return the replica list of a move after each of its chunks.

    leaving: the brokers that lose their copy in each chunk.

    Brokers that leave are replaced by as many of the new brokers as the length allows. The first choice that
    keeps the racks, contains no broker twice and has an allowed leader is taken. The racks alone always allow
    a choice: the last list has enough of them, so new brokers bring as many further racks as were lost.
    Returns None if evacuated brokers leave no choice.
    """
    needed = racks_needed(cluster, move.before, len(move.after))
    longest = max(len(move.before), len(move.after))

    def on(turn: int, now: Set) -> list[Set] | None:
        if turn == len(leaving) - 1:
            return [move.after]
        kept = [broker for broker in now if broker not in leaving[turn]]
        waiting = [broker for broker in move.after if broker not in now]
        for chosen in combinations(waiting, min(len(waiting), longest - len(kept))):
            middle = _in_places(now, leaving[turn], chosen)
            leaders = [broker for broker in (now[0], move.after[0], *middle) if broker in middle]
            leader = next((broker for broker in leaders if may_lead(cluster, broker, away)), None)
            if leader is None or cluster.racks(middle) < needed:
                continue
            further = on(turn + 1, led_by(leader, middle))
            if further is not None:
                return [led_by(leader, middle), *further]
        return None

    return on(0, move.before)


def _in_places(now: Set, leaving: frozenset[int], chosen: Iterable[int]) -> Set:
    """Return the replica list with new brokers in place of leaving ones; further new brokers come last."""
    new = iter(chosen)
    held = (next(new, None) if broker in leaving else broker for broker in now)
    return (*(broker for broker in held if broker is not None), *new)
