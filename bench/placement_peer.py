"""Our reading of how topicmappr 3.18 rebalances and scales: written from a description of its algorithm, not
from its code.

Each pass visits each source, the fullest first, and tries its largest partitions. The destination is the one
broker with the most free bytes that is no source, is not in the set and shares no rack with the rest of it;
with ``locality_scoped`` it is one of the same rack, and the set is not looked at. The first that fits the
tolerance moves. A source that moves nothing is counted, and as many counts as sources end the planning. Of 98
tolerances the lowest range wins, then the lowest standard deviation; the bytes moved count nothing.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from zkmigrate.placement.cluster import Cluster
from zkmigrate.placement.rebalance import SWEEP, offload_targets
from zkmigrate.placement.request import MIB, Rebalance


@dataclass(frozen=True, slots=True)
class Planned:
    """free: by broker, after. moved: bytes."""

    free: dict[int, int]
    moved: int

    @property
    def range(self) -> int:
        return max(self.free.values()) - min(self.free.values())


def planned(cluster: Cluster, request: Rebalance) -> Planned:
    """The best of the tolerances."""
    tolerances = (request.tolerance,) if request.tolerance else SWEEP
    plans = [_pass_by_pass(cluster, request, tolerance) for tolerance in tolerances]
    return min(plans, key=lambda plan: (plan.range, statistics.pstdev(plan.free.values())))


def _pass_by_pass(cluster: Cluster, request: Rebalance, tolerance: float) -> Planned:
    sources = offload_targets(cluster, tuple(cluster.brokers), request)
    takers = [broker for broker in cluster.brokers if broker not in sources]
    if request.scale:
        takers = [broker for broker in takers if cluster.brokers[broker].new]
    free = dict(cluster.free)
    mean = statistics.mean(free.values())
    sets = {one.name: list(one.replicas) for one in cluster.partitions}
    held: dict[int, list[tuple[int, tuple[str, int]]]] = {broker: [] for broker in sources}
    for one in cluster.partitions:
        if (one.size or 0) < request.partition_size_threshold * MIB:
            continue
        for broker in one.replicas:
            if broker in held:
                held[broker].append((one.size or 0, one.name))
    for entries in held.values():
        entries.sort(reverse=True)
    moved, stuck = 0, 0
    while stuck < len(sources):
        for source in sorted(sources, key=lambda broker: free[broker]):
            for entry in held[source][: request.partition_limit]:
                size, name = entry
                to = _most_free(cluster, request, takers, free, sets[name], source)
                if to is None or free[source] + size > mean * (1 + tolerance):
                    continue
                if free[to] - size < mean * (1 - tolerance):
                    continue
                held[source].remove(entry)
                sets[name][sets[name].index(source)] = to
                free[source] += size
                free[to] -= size
                moved += size
                break
            else:
                stuck += 1
    return Planned(free, moved)


def _most_free(
    cluster: Cluster,
    request: Rebalance,
    takers: list[int],
    free: dict[int, int],
    replicas: list[int],
    source: int,
) -> int | None:
    if request.locality_scoped:
        fit = [one for one in takers if cluster.rack(one) == cluster.rack(source)]
    else:
        rest = {cluster.rack(one) for one in replicas if one != source}
        fit = [one for one in takers if one not in replicas and cluster.rack(one) not in rest]
    return max(fit, key=lambda broker: (free[broker], -broker), default=None)
