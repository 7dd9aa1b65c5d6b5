"""The rules that no plan breaks, in no map on its way. Every planner asks them; nothing lifts them."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.cluster.placement.cluster import Cluster


def racks_needed(cluster: Cluster, before: Sequence[int], length: int) -> int:
    """How many racks a set of ``length`` replicas must span, so that none is lost that there was.

    The rack of a broker that is gone is not known: it counts as another one, up to all that are left.
    """
    return min(cluster.racks(before), length, cluster.rack_count)
