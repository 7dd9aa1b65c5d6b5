"""The result of a placement: new replica lists in the order in which they are made, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.cluster.placement.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replica list of one partition, before and after. size: bytes of one replica."""

    topic: str
    number: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: int

    @property
    def name(self) -> tuple[str, int]:
        return self.topic, self.number

    @property
    def added(self) -> tuple[int, ...]:
        """The brokers that get a copy."""
        return tuple(broker for broker in self.after if broker not in self.before)

    @property
    def dropped(self) -> tuple[int, ...]:
        """The brokers that lose their copy once the new copies are in sync."""
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def bytes(self) -> int:
        """The bytes that are copied over the network."""
        return self.size * len(self.added)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the planner noticed.

    id: its id, such as ``placement.no-rack``.
    text: what was seen, what is needed, and what to do next.
    refuses: whether the plan is written only with ``--ignore-warnings``.
    """

    id: str
    text: str
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class Offload:
    """The brokers that give replicas away in a plan, and the limits of its moves.

    sources: the ids of these brokers.
    rule: the rule that makes a broker a source, in words.
    mean, harmonic_mean: means of the brokers' free bytes.
    tolerance: the tolerance of the chosen plan.
    highest: the most free bytes with which a move leaves a source.
    lowest: the fewest free bytes with which a move leaves a taker.

    mean, harmonic_mean, highest and lowest are None if the plan does not balance free bytes. tolerance,
    highest and lowest are None if no move was tried.
    """

    sources: tuple[int, ...]
    rule: str
    mean: int | None = None
    harmonic_mean: int | None = None
    tolerance: float | None = None
    highest: int | None = None
    lowest: int | None = None


@dataclass(frozen=True)
class Plan:
    """A plan for a cluster.

    cluster: the cluster before the plan.
    moves: the moves in the order in which they are made, without partitions whose replica list stays.
    phases: reassignments to carry out one after the other, the last of which ends at the replica lists of
    ``moves``; empty if one suffices.
    limited: the reason why no better plan was found, in words.
    notices: everything that a reader should know.
    dirs: by partition and broker, the log directory that the plan names for a replica.
    offload: the brokers that gave replicas away, for ``rebalance`` and ``scale``.
    """

    cluster: Cluster
    moves: tuple[Reassignment, ...]
    phases: tuple[tuple[Reassignment, ...], ...] = ()
    limited: str = ""
    notices: tuple[Notice, ...] = ()
    dirs: Mapping[tuple[tuple[str, int], int], str] = field(default_factory=dict)
    offload: Offload | None = None

    @property
    def bytes(self) -> int:
        """The bytes that the whole plan copies."""
        return sum(move.bytes for move in self.moves)


@dataclass(frozen=True)
class Refused:
    """The answer to a request for which there is no plan.

    reasons: notices that name what was seen and needed; ``--ignore-warnings`` lifts none of them.
    options: whether the request contradicts itself, whatever the cluster.
    """

    reasons: tuple[Notice, ...]
    options: bool = False
