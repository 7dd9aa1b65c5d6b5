"""Elections of preferred leaders: which partitions need one, and the changes that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.moves import Move
from zkmigrate.kafka.changes import KAFKA, ElectLeaders
from zkmigrate.kafka.questions import PartitionState
from zkmigrate.runbook.model.change import Changes

LEADERS = "preferred leaders"
"""The name in the journal for the partitions of an election."""

AT_ONCE = 500
"""The largest number of partitions in one election."""


@dataclass(frozen=True)
class Election:
    """Partitions that may need an election of their preferred leader.

    moves: the moves whose preferred leaders are to lead. now: the current state of the partitions.
    """

    moves: Sequence[Move]
    now: Mapping[Name, PartitionState]

    @property
    def todo(self) -> tuple[Name, ...]:
        """The partitions that another broker leads although the preferred leader is in sync.

        Kafka elects only a leader that is in sync. The client returns once brokers report the new leaders, so
        a partition that is still listed then needs another election.
        """
        states = (self.now[move.name] for move in self.moves)
        return tuple(
            (state.topic, state.partition)
            for state in states
            if state.leader != state.replicas[0] and state.replicas[0] in state.isr
        )


def elect(todo: Sequence[Name]) -> Changes:
    """Return the elections as changes, in batches, one after the other."""
    return tuple(ElectLeaders(KAFKA, tuple(todo[at : at + AT_ONCE])) for at in range(0, len(todo), AT_ONCE))
