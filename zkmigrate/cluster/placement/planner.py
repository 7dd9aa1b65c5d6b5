"""Turn a cluster and a request into a whole plan, whose files are checked independently."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from zkmigrate.cluster.placement.check import faults, log_dir_faults, log_dirs_of, sets_of
from zkmigrate.cluster.placement.cluster import Cluster, Name
from zkmigrate.cluster.placement.leaders import barred
from zkmigrate.cluster.placement.log_dirs import laid, levelled, narrowed, without_log_dirs
from zkmigrate.cluster.placement.phases import cut
from zkmigrate.cluster.placement.plan import Plan, Refused
from zkmigrate.cluster.placement.racks import fix_racks, shared_racks
from zkmigrate.cluster.placement.rebalance import rebalance
from zkmigrate.cluster.placement.rebuild import rebuild
from zkmigrate.cluster.placement.request import By, FixRacks, LogDirs, Rebuild, Request
from zkmigrate.cluster.placement.validation import chosen


def planned(cluster: Cluster, request: Request) -> Plan | Refused:
    """Return the whole plan: the replica lists, leaders, phases and log directories.

    If the copies do not fit into the directories, it makes another plan whose copies are sure to fit.
    """
    found = chosen(cluster, request.choice)
    if isinstance(found, Refused):
        return found
    if request.rollout.log_dirs is LogDirs.KAFKA:
        cluster = without_log_dirs(cluster)
    names = {one.name for one in found.partitions}
    plan = _laid(cluster, cluster, request, names)
    if isinstance(plan, Refused) and any(one.id == "placement.no-log-dir" for one in plan.reasons):
        again = _laid(cluster, narrowed(cluster, names), request, names)
        plan = plan if isinstance(again, Refused) else again
    if isinstance(plan, Refused):
        return plan
    shared = shared_racks(cluster, request, found.partitions, found.brokers, plan.moves)
    plan = replace(plan, notices=(*plan.notices, *shared))
    if request.rollout.log_dirs is not LogDirs.BALANCE:
        return plan
    return levelled(plan, names, found.brokers)


def _laid(cluster: Cluster, seen: Cluster, request: Request, names: Collection[Name]) -> Plan | Refused:
    """Plan, cut the plan into reassignments, and choose log directories.

    seen: the cluster as the planners see it.
    """
    if isinstance(request, Rebuild):
        plan = rebuild(seen, request)
    else:
        plan = fix_racks(seen, request) if isinstance(request, FixRacks) else rebalance(seen, request)
    if isinstance(plan, Refused):
        return plan
    whole = cut(replace(plan, cluster=cluster), request.rollout, names)
    return whole if isinstance(whole, Refused) else laid(whole)


def broken(plan: Plan, request: Request, made: Mapping[str, str]) -> Sequence[str]:
    """Check a plan's files independently of the planners, and return the faults in words.

    made: the files as ``maps.files`` returns them. The first file is the way back, which is not checked.
    """
    _, *forward = made.values()
    maps = [sets_of(content) for content in forward]
    away = barred(request.rollout, sorted({one.topic for one in plan.cluster.partitions}))
    rebuilt = request if isinstance(request, Rebuild) else None
    wrong = faults(
        plan.cluster,
        maps,
        replication=rebuilt.replication if rebuilt else 0,
        away=None if isinstance(away, Refused) else away,
        sized=rebuilt is None or rebuilt.placement is not By.COUNT,
    )
    return wrong or log_dir_faults(plan.cluster, maps, [log_dirs_of(content) for content in forward])
