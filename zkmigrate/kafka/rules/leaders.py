"""Find partitions that are not led by their preferred replica."""

from __future__ import annotations

from zkmigrate.kafka.questions import KafkaView, PartitionState


def not_led_by_preferred(view: KafkaView) -> tuple[PartitionState, ...]:
    """Return the partitions for which an election would make the preferred replica the leader.

    Their preferred replica, the first of the replica list, is registered and in sync but does not lead.
    """
    return tuple(
        p
        for p in view.partitions
        if p.replicas
        and p.leader != p.replicas[0]
        and p.replicas[0] in p.isr
        and p.replicas[0] in view.brokers
    )
