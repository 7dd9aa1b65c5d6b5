"""Which partitions get their preferred leader by an election."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.facts import Move
from zkmigrate.kafka.changes import KAFKA, ElectPreferred
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.runbook.model.change import Changes

LEADERS = "preferred leaders"
"""What the journal calls the partitions of an election."""

AT_ONCE = 500
"""Partitions in one election."""


@dataclass(frozen=True)
class Election:
    """moves: the partitions that their preferred leader is to lead. now: as they are."""

    moves: Sequence[Move]
    now: Mapping[Name, PartitionState]

    @property
    def todo(self) -> tuple[Name, ...]:
        """Those that another broker leads while the preferred one is in sync: Kafka elects no other. The
        client returns once brokers tell the new leaders, so what is left here is left."""
        states = (self.now[move.name] for move in self.moves)
        return tuple(
            (state.topic, state.partition)
            for state in states
            if state.leader != state.replicas[0] and state.replicas[0] in state.isr
        )


def elect(todo: Sequence[Name]) -> Changes:
    """The elections, one after the other."""
    return tuple(ElectPreferred(KAFKA, tuple(todo[at : at + AT_ONCE])) for at in range(0, len(todo), AT_ONCE))
