"""The rules that every plan and every intermediate reassignment keeps, whatever the options."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.cluster.placement.cluster import Cluster


def racks_needed(cluster: Cluster, before: Sequence[int], length: int) -> int:
    """Return how many racks a partition with ``length`` replicas must span so that it loses no rack.

    before: the partition's present replica list. The rack of a broker that is gone is unknown. Such a broker
    counts as a rack of its own, but the result is never above the number of racks that are left.
    """
    return min(cluster.racks(before), length, cluster.rack_count)
