"""Which partitions another replica leads than the one that should."""

from __future__ import annotations

from zkmigrate.model.look import KafkaView, PartitionState


def misled(view: KafkaView) -> tuple[PartitionState, ...]:
    """Partitions that their preferred replica, the first of the list, does not lead although it is registered
    and in sync, so that an election would give it the lead."""
    return tuple(
        p
        for p in view.partitions
        if p.replicas
        and p.leader != p.replicas[0]
        and p.replicas[0] in p.isr
        and p.replicas[0] in view.brokers
    )
