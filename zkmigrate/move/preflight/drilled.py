"""The versions between which a move has been drilled on real hosts and succeeded: docs/track-record.md.

The readers of ZooKeeper's files are tested on files of more versions, but that does not replace a drill.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Drill:
    """One drilled move: ZooKeeper's versions at source and dest, and Kafka's version."""

    source: str
    dest: str
    kafka: str

    def __str__(self) -> str:
        return f"{self.source} to {self.dest} with Kafka {self.kafka}"


DRILLED = (
    Drill("3.5.8", "3.5.8", "2.3.1"),
    Drill("3.5.8", "3.5.8", "2.8.2"),
    Drill("3.4.14", "3.8.4", "2.8.2"),
    Drill("3.6.4", "3.8.4", "2.8.2"),
    Drill("3.8.4", "3.8.4", "3.9.1"),
    Drill("3.9.5", "3.9.5", "3.9.1"),
    Drill("3.5.8", "3.9.5", "2.8.2"),
    Drill("3.8.4", "3.9.5", "3.9.1"),
)
"""The rows of the track record; a test compares them with the document."""

NEEDED = "; ".join(map(str, DRILLED))
