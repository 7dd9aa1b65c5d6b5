"""Read where logs end, including records that cannot be read yet because too few replicas have them.

A leader acknowledges a record with acks=1 at once. Since KIP-966 the leader's high watermark does not advance
while fewer than min.insync.replicas are in sync. Until it advances, consumers cannot read the record, and the
record is lost if the leader is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.topics.mirror.clients.cluster import Cluster, Latest, Part
from zkmigrate.topics.mirror.rules.replicas import below, held_back


@dataclass(frozen=True)
class Reached:
    """The end of a partition's log, and the state of its replicas.

    below: why too few of its replicas are in sync; empty if enough are.
    """

    latest: Latest
    below: str = ""

    @property
    def unread(self) -> int:
        """The number of offsets that consumers cannot read yet."""
        one = self.latest
        return 0 if one.last is None or one.end is None else one.last - one.end

    @property
    def held(self) -> str:
        """The reason why the last records cannot be read yet, or too few replicas are in sync; else empty."""
        return held_back(self.latest.log_end, self.latest.end, self.below)


def reached(cluster: Cluster, topics: Collection[str]) -> dict[Part, Reached]:
    """Return the end of the log and the state of the replicas of each partition.

    The setting min.insync.replicas is read only for topics that have a replica out of sync.
    """
    found = cluster.latest(topics)
    lagging = {part[0] for part, one in found.items() if len(one.in_sync) < len(one.replicas)}
    least, why = dict[str, int](), ""
    try:
        least = cluster.least_in_sync(sorted(lagging)) if lagging else {}
    except HostError as error:
        why = str(error)
    return {
        part: Reached(one, below(one.in_sync, one.replicas, least.get(part[0]), why))
        for part, one in found.items()
    }
