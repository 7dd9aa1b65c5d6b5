"""The rules that no plan and no intermediate map breaks. Every planner applies them; no option lifts them."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.cluster.placement.cluster import Cluster


def racks_needed(cluster: Cluster, before: Sequence[int], length: int) -> int:
    """Return how many racks a set of ``length`` replicas must span so that no rack is lost.

    The rack of a broker that is gone is unknown. It counts as a different rack, up to the number of racks
    left.
    """
    return min(cluster.racks(before), length, cluster.rack_count)
