"""Plan ``rebalance`` and ``scale``: brokers that are too full give replicas to brokers that are not.

The sources are brokers with too few free bytes, or in ``scale`` every old broker; only sources give replicas
away. The takers are the other brokers, or in ``scale`` the new ones; only takers receive replicas. With
``any_broker`` every broker is both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zkmigrate.cluster.placement.board import Replicas, Task, numbered
from zkmigrate.cluster.placement.cluster import Cluster
from zkmigrate.cluster.placement.constraints import racks_needed
from zkmigrate.cluster.placement.order import after as free_after
from zkmigrate.cluster.placement.passes import by_passes
from zkmigrate.cluster.placement.plan import Notice, Offload, Plan, Reassignment, Refused
from zkmigrate.cluster.placement.request import GIB, MIB, Balance, Rebalance
from zkmigrate.cluster.placement.search import Found, refined, search
from zkmigrate.cluster.placement.statistics import lower_bound
from zkmigrate.cluster.placement.validation import Chosen, additions_only, chosen, sizes_missing

SWEEP = tuple(hundredth / 100 for hundredth in range(98, 0, -1))
"""The tolerances to try for tolerance 0. The widest comes first, as it allows all moves of the others."""

LEVEL = 2 * SWEEP[-1]
"""The share of the mean below which a range counts as balanced.

The value is within the narrowest tolerance. To narrow the range further would copy bytes without benefit.
"""

CHEAP = 1.02
"""The search ends at a balanced plan that copies at most this many times the lower bound of bytes."""

SWEEP_STEPS = 4_000
"""The number of changes, for each ``effort``, after which the search tries no further tolerances."""

FIRST_STEPS = 30_000
"""The largest number of changes that the search looks for with one tolerance."""

SHARES = 10**12
"""The total weight of all bytes, and of all rates, if both are balanced."""


def rebalance(cluster: Cluster, request: Rebalance) -> Plan | Refused:
    """Return the moves that make the chosen brokers' free bytes, or load, more equal for few bytes.

    With tolerance 0 each tolerance in ``SWEEP`` is tried, and the plan with the smallest range and then the
    smallest standard deviation wins. If the range is within ``LEVEL``, the plan that copies the fewest bytes
    wins, and a cheap plan ends the search. The result depends on the input alone.

    Returns Refused if a broker is gone or left out, if ``scale`` has no new broker, if a partition has no
    size, or if rates are balanced and a partition has no rate.
    """
    choice = chosen(cluster, request.choice)
    if isinstance(choice, Refused):
        return choice
    if reasons := additions_only(choice):
        return Refused(reasons)
    if unknown := sizes_missing(choice.partitions):
        return unknown
    if request.scale and not any(cluster.brokers[broker].new for broker in choice.brokers):
        text = (
            f"Scaling requires additional brokers: none of the {len(choice.brokers)} chosen brokers is new. "
            'A broker is new if it holds no replica; in a cluster file, if it says "new": true. Next: '
            "register new brokers and choose them, mark them, or rebalance."
        )
        return Refused((Notice("placement.no-new-broker", text),))
    silent = [one for one in cluster.partitions if one.rate is None]
    if silent and request.balance is not Balance.STORAGE:
        text = (
            f"{len(silent)} partitions have no rate, first {silent[0].topic}-{silent[0].number}. Needed to "
            f"balance {request.balance.value}: a rate of each. Next: add the rates, or balance storage."
        )
        return Refused((Notice("placement.no-rate", text),))
    sources = offload_targets(cluster, choice.brokers, request)
    takers = tuple(
        broker
        for broker in choice.brokers
        if request.any_broker
        or (broker not in sources and (cluster.brokers[broker].new or not request.scale))
    )
    offload = Offload(sources, _rule(request))
    if request.balance is Balance.STORAGE:
        free = [cluster.brokers[broker].free for broker in choice.brokers]
        mean, harmonic = sum(free) // len(free), int(harmonic_mean(free))
        offload = replace(offload, mean=mean, harmonic_mean=harmonic)
    if not sources or not takers:
        missing = "no chosen broker is a source" if not sources else "every chosen broker is a source"
        return Plan(cluster, (), limited=missing, notices=choice.notices, offload=offload)
    gauge = _gauge(cluster, choice.brokers, request.balance)
    task = _task(cluster, choice, request, gauge, sources, takers)
    found, tolerance, unfinished = _swept(task, gauge, request)
    offload = replace(offload, tolerance=tolerance)
    if request.balance is Balance.STORAGE:
        bounded = _bounded(task, gauge, tolerance)
        offload = replace(offload, highest=bounded.highest, lowest=bounded.lowest)
    moves = _moves(cluster, choice, task, found)
    return Plan(
        cluster,
        moves,
        limited="; ".join(filter(None, (_limit(choice, request, task, found), unfinished))),
        notices=(*choice.notices, *worse(cluster, choice.brokers, moves)),
        offload=offload,
    )


def _rule(request: Rebalance) -> str:
    """Describe what makes a broker a source."""
    if request.any_broker:
        return "every chosen broker"
    if request.scale or (not request.storage_threshold_gb and not request.storage_threshold):
        return "every old broker"
    if request.storage_threshold_gb:
        return f"less than {request.storage_threshold_gb:g} GiB free"
    if request.balance is Balance.STORAGE:
        return f"free bytes more than {100 * request.storage_threshold:.4g} % below the harmonic mean"
    return f"load more than {100 * request.storage_threshold:.4g} % of the mean above it"


def offload_targets(cluster: Cluster, brokers: Sequence[int], request: Rebalance) -> tuple[int, ...]:
    """Return the brokers that give replicas away.

    With ``any_broker`` these are all brokers, and with ``scale`` all old brokers. With
    ``storage_threshold_gb`` they are the old brokers with fewer free GiB. Otherwise ``storage_threshold``
    decides: 0 selects every old broker, as in topicmappr, and another value selects old brokers whose free
    bytes are below the harmonic mean by more than that share. If rates are balanced, it selects old brokers
    whose level is that much below the mean.
    """
    if request.any_broker:
        return tuple(brokers)
    old = [broker for broker in brokers if not cluster.brokers[broker].new]
    if request.scale or not old:
        return tuple(old)
    if request.storage_threshold_gb:
        return tuple(b for b in old if cluster.brokers[b].free < request.storage_threshold_gb * GIB)
    if request.storage_threshold == 0:
        return tuple(old)
    if request.balance is Balance.STORAGE:
        mean = harmonic_mean([cluster.brokers[broker].free for broker in brokers])
        level: Mapping[int, int] = {broker: cluster.brokers[broker].free for broker in brokers}
        scale = mean
    else:
        gauge = _gauge(cluster, brokers, request.balance)
        level, mean, scale = gauge.level, gauge.mean, gauge.scale
    return tuple(b for b in old if mean - level[b] > request.storage_threshold * scale)


def harmonic_mean(free: Sequence[int]) -> float:
    """Return the harmonic mean of free bytes.

    A full broker counts as one byte, because there is no mean with 0.
    """
    return len(free) / math.fsum(1 / max(one, 1) for one in free) if free else 0.0


@dataclass(frozen=True, slots=True)
class _Gauge:
    """The quantity that is balanced.

    level: the amount of this quantity that each broker can spare.
    weight: the amount that a replica of each partition takes.
    mean: the mean of the levels.
    scale: the value of which tolerances and thresholds are a share.
    """

    level: Mapping[int, int]
    weight: Mapping[tuple[str, int], int]
    mean: float
    scale: float


def _gauge(cluster: Cluster, brokers: Sequence[int], balance: Balance) -> _Gauge:
    """Return the quantity to balance: free bytes, load, or the sum of both as shares of their totals.

    A broker's load is the bytes per second that it writes: the rate of each replica that it holds, leader or
    follower. Its level is how far its load is below the highest.
    """
    sizes = {one.name: one.size or 0 for one in cluster.partitions}
    rates = {one.name: round(one.rate or 0) for one in cluster.partitions}
    free = {broker: cluster.brokers[broker].free for broker in brokers}
    load = dict.fromkeys(brokers, 0)
    for one in cluster.partitions:
        for broker in one.replicas:
            if broker in load:
                load[broker] += rates[one.name]
    count = len(brokers)
    if balance is Balance.STORAGE:
        mean = sum(free.values()) / count
        return _Gauge(free, sizes, mean, mean)
    if balance is Balance.RATE:
        top = max(load.values())
        level = {broker: top - load[broker] for broker in brokers}
        return _Gauge(level, rates, sum(level.values()) / count, sum(load.values()) / count)
    all_free, all_load = max(sum(free.values()), 1), max(sum(load.values()), 1)
    level = {b: free[b] * SHARES // all_free - load[b] * SHARES // all_load for b in brokers}
    weight = {n: sizes[n] * SHARES // all_free + rates[n] * SHARES // all_load for n in sizes}
    return _Gauge(level, weight, sum(level.values()) / count, 2 * SHARES / count)


def _task(
    cluster: Cluster,
    choice: Chosen,
    request: Rebalance,
    gauge: _Gauge,
    sources: Sequence[int],
    takers: Sequence[int],
) -> Task:
    """Return the input of the search, at the widest tolerance.

    Brokers that only occur in a replica list come last.
    """
    ids, number, racks = numbered(cluster, choice)
    giving = set(sources)
    least = request.partition_size_threshold * MIB
    rows = []
    for row, one in enumerate(choice.partitions):
        bytes_ = one.size or 0
        if bytes_ < least or not gauge.weight[one.name]:
            continue
        for place, broker in enumerate(one.replicas):
            if broker in giving:
                rows.append((row, place, number[broker], gauge.weight[one.name], bytes_))
    return Task(
        sets=[[number[broker] for broker in one.replicas] for one in choice.partitions],
        racks=racks,
        needed=[racks_needed(cluster, one.replicas, len(one.replicas)) for one in choice.partitions],
        level=[gauge.level.get(broker, 0) for broker in ids],
        room=[cluster.brokers[broker].room if broker in gauge.level else 0 for broker in ids],
        ranked=range(len(choice.brokers)),
        sources=[number[broker] for broker in sources],
        takers=[number[broker] for broker in takers],
        replicas=Replicas.of(rows),
        local=request.locality_scoped,
        window=request.partition_limit,
        enough=int(LEVEL * gauge.scale),
        steps=FIRST_STEPS,
        limit=math.inf if request.max_bytes is None else request.max_bytes,
    )


def _swept(task: Task, gauge: _Gauge, request: Rebalance) -> tuple[Found, float, str]:
    """Search with each tolerance, and return the best result.

    Returns three values: the result, its tolerance, and in words what ended the search early (empty if
    nothing did). A tolerance is skipped if the search before came nowhere near it, because its result would
    be the same. With a limit of bytes, topicmappr's own choice of moves is compared too, so that the result
    is no worse for the same bytes.
    """
    tolerances = (request.tolerance,) if request.tolerance else SWEEP
    best: tuple[tuple[float, float, int], float, Found] | None = None
    spent, cut, ended = 0, False, ""
    nearest = math.inf
    for tolerance in tolerances:
        reach = tolerance * gauge.scale
        if reach >= nearest:
            continue
        if best and spent >= request.effort * SWEEP_STEPS:
            ended = f"effort {request.effort} ended the search at tolerance {tolerance:g}"
            break
        bounded = _bounded(task, gauge, tolerance)
        found = search(bounded)
        nearest = found.reach
        spent += found.spent
        cut |= found.spent >= task.steps
        value = _value(task, found)
        if best is None or value < best[0]:
            best = value, tolerance, found
        if request.balance is Balance.STORAGE and _cheapest(task, value):
            break
    assert best
    if request.max_bytes is not None:
        for tolerance in tolerances:
            found = by_passes(_bounded(task, gauge, tolerance))
            best = min(best, (_value(task, found), tolerance, found), key=lambda one: one[0])
    _, tolerance, found = best
    return (
        refined(_bounded(task, gauge, tolerance), found),
        tolerance,
        ended or (f"the search ended after {task.steps} attempts" if cut else ""),
    )


def _bounded(task: Task, gauge: _Gauge, tolerance: float) -> Task:
    reach = tolerance * gauge.scale
    return replace(task, lowest=math.ceil(gauge.mean - reach), highest=math.floor(gauge.mean + reach))


def _value(task: Task, found: Found) -> tuple[int, float, int]:
    """Return the key by which results are compared; the lowest is the best.

    The key is (range of levels, standard deviation, bytes moved). All results whose range is at most
    ``Task.enough`` have the same range and deviation, so only their bytes are compared.
    """
    levels = [found.level[broker] for broker in task.ranked]
    moved = sum(task.replicas.size[row] for row in found.moves)
    range_ = max(levels) - min(levels)
    if range_ <= task.enough:
        return task.enough, 0.0, moved
    return range_, statistics.pstdev(levels), moved


def _cheapest(task: Task, value: tuple[int, float, int]) -> bool:
    """Return whether a result is balanced, and no other result can be much cheaper."""
    free = [task.level[broker] for broker in task.ranked]
    return value[0] <= task.enough and value[2] <= CHEAP * lower_bound(free, task.enough)


def _moves(cluster: Cluster, choice: Chosen, task: Task, found: Found) -> tuple[Reassignment, ...]:
    """Return the moves of a result: the fullest broker gives first, its largest replica first."""
    after: dict[int, list[int]] = {}
    for row, to in found.moves.items():
        partition = task.replicas.partition[row]
        replicas = after.setdefault(partition, list(choice.partitions[partition].replicas))
        replicas[task.replicas.slot[row]] = choice.brokers[to]
    moves = []
    for row, replicas in after.items():
        one = choice.partitions[row]
        moves.append(Reassignment(one.topic, one.number, one.replicas, tuple(replicas), one.size or 0))
    free = cluster.free
    return tuple(sorted(moves, key=lambda one: (min(free[b] for b in one.dropped), -one.size, one.name)))


def _limit(choice: Chosen, request: Rebalance, task: Task, found: Found) -> str:
    """Describe what prevents a narrower range."""
    ranked = sorted(task.ranked, key=lambda number: (found.level[number], number))
    lowest, highest = ranked[0], ranked[-1]
    if found.level[highest] - found.level[lowest] <= task.enough:
        return f"the range is within {LEVEL:.0%} of the mean, so further copies would not help"
    if lowest not in task.sources:
        return (
            f"broker {choice.brokers[lowest]} has the least free space, but the thresholds do not "
            "let it give replicas"
        )
    if highest not in task.takers:
        kind = (
            "an old broker, and only new ones receive replicas"
            if request.scale
            else "a source, and no source receives replicas"
        )
        return f"broker {choice.brokers[highest]} has the most free space; it is {kind}"
    held = [
        f"partition-size-threshold {request.partition_size_threshold} MiB",
        f"partition-limit {request.partition_limit}",
    ]
    if request.tolerance:
        held.append(f"tolerance {request.tolerance:g}")
    if request.locality_scoped:
        held.append("locality-scoped")
    if request.max_bytes is not None:
        held.append(f"max-bytes {request.max_bytes}")
    limits = ", ".join(held)
    return (
        f"no move and no exchange makes the range narrower within these limits: racks, free bytes, {limits}"
    )


def worse(cluster: Cluster, brokers: Sequence[int], moves: Sequence[Reassignment]) -> tuple[Notice, ...]:
    """Return a notice that refuses the plan if the range of free bytes grows."""
    before, after = (
        max(free[broker] for broker in brokers) - min(free[broker] for broker in brokers)
        for free in (cluster.free, free_after(cluster.free, moves))
    )
    if after <= before:
        return ()
    text = (
        f"The range of free bytes grows from {before} to {after}. Needed: at most {before}. "
        "Next: correct the request, or accept it with --ignore-warnings."
    )
    return (Notice("placement.worse-range", text, refuses=True),)
