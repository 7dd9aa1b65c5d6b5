"""Decide which directories in a broker's log directory hold no replica of a topic."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.kafka.questions import PartitionState
from zkmigrate.runbook.model.fact import Absent, Reading, Seen

METADATA = "__cluster_metadata"
"""KRaft's own log, which brokers do not list as a topic."""


def why_stray(
    topic: str, number: int, mark: str, broker: int, reading: Reading[Sequence[PartitionState]]
) -> str:
    """Return why this partition's directory on this broker is no replica; empty if it is one, or may be one.

    mark: the suffix of the directory's name, ``delete``, ``future`` or ``stray``, else empty. reading: the
    topic's partitions as the brokers report them; Absent if no broker knows the topic.
    """
    if topic == METADATA:
        return ""
    if mark == "delete":
        return "Kafka deleted the replica but not its directory"
    if mark == "stray":
        return "Kafka marked the directory as stray when the broker started"
    if isinstance(reading, Absent):
        return f"topic {topic} does not exist"
    if not isinstance(reading, Seen):
        return ""
    states = [state for state in reading.value if state.partition == number]
    if not states:
        return f"topic {topic} has no partition {number}"
    if broker not in states[0].replicas:
        return f"broker {broker} is not a replica of {topic}-{number}"
    return ""


def may_be_last_copy(number: int, reading: Reading[Sequence[PartitionState]]) -> bool:
    """Return whether a stray copy may be the last good one.

    It may be if not all replicas of its partition are in sync.
    """
    states = [s for s in reading.value if s.partition == number] if isinstance(reading, Seen) else []
    return any(state.leader < 0 or set(state.isr) != set(state.replicas) for state in states)
