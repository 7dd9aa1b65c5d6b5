"""The rules that every plan and every intermediate reassignment keeps, whatever the options."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.cluster.placement.cluster import Cluster


def racks_needed(cluster: Cluster, before: Sequence[int], length: int) -> int:
    """Return how many racks a partition with ``length`` replicas must span so that it loses no rack.

    The rack of a broker that is gone is unknown. It counts as a different rack, up to the number of racks
    left.
    """
    return min(cluster.racks(before), length, cluster.rack_count)
