"""The rules that no plan breaks, in no map on its way. Every planner asks them; nothing lifts them."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.placement.cluster import Cluster


def racks_needed(cluster: Cluster, before: Sequence[int], length: int) -> int:
    """How many racks a set of ``length`` replicas must span, so that none is lost that there was.

    The rack of a broker that is gone is not known: it counts as another one, up to all that are left.
    """
    return min(cluster.racks(before), length, cluster.rack_count)


def broken(cluster: Cluster, before: Sequence[int], after: Sequence[int], length: int) -> str:
    """The first rule that ``after`` breaks in place of ``before``, or the empty text.

    length: how many replicas are asked for. A set holds each broker once, has the asked length, names
    registered brokers where it is new, and spans as many racks as before.
    """
    if len(set(after)) != len(after):
        return f"{list(after)} names a broker twice"
    if len(after) != length:
        return f"{list(after)} has {len(after)} replicas; needed: {length}"
    unknown = [broker for broker in after if broker not in before and broker not in cluster.brokers]
    if unknown:
        return f"{list(after)} names broker {unknown[0]}, which is not registered"
    needed = racks_needed(cluster, before, length)
    if cluster.racks(after) < needed:
        return f"{list(after)} spans {cluster.racks(after)} racks; needed: {needed}, as before"
    return ""
