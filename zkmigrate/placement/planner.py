"""The whole planner: a cluster and a request become a plan, and an independent check reads its maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkmigrate.placement.check import faults, sets_of
from zkmigrate.placement.cluster import Cluster
from zkmigrate.placement.leaders import barred
from zkmigrate.placement.phases import cut
from zkmigrate.placement.plan import Plan, Refused
from zkmigrate.placement.rebalance import rebalance
from zkmigrate.placement.rebuild import rebuild
from zkmigrate.placement.request import Rebalance, Rebuild
from zkmigrate.placement.validation import chosen


def planned(cluster: Cluster, request: Rebalance | Rebuild) -> Plan | Refused:
    """The whole plan: where replicas go, who leads, and the maps on the way."""
    found = chosen(cluster, request.choice)
    if isinstance(found, Refused):
        return found
    plan = rebuild(cluster, request) if isinstance(request, Rebuild) else rebalance(cluster, request)
    if isinstance(plan, Refused):
        return plan
    return cut(plan, request.rollout, {one.name for one in found.partitions})


def broken(plan: Plan, request: Rebalance | Rebuild, made: Mapping[str, str]) -> Sequence[str]:
    """What the independent checker says of a plan's files, as ``maps.files`` makes them. The first of them is
    the way back, which is not read."""
    _, *forward = made.values()
    away = barred(request.rollout, sorted({one.topic for one in plan.cluster.partitions}))
    return faults(
        plan.cluster,
        [sets_of(content) for content in forward],
        replication=request.replication if isinstance(request, Rebuild) else 0,
        away=None if isinstance(away, Refused) else away,
    )
