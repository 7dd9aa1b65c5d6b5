"""What a placement answers: the new replica sets in the order in which they are made, or why there is
none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.cluster.placement.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The replica set of one partition, before and after. size: of one replica in bytes."""

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
        """The brokers that lose theirs, once the new copies are in sync."""
        return tuple(broker for broker in self.before if broker not in self.after)

    @property
    def bytes(self) -> int:
        """What is copied over the network."""
        return self.size * len(self.added)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the planner noticed.

    id: its name, such as ``placement.no-rack``. text: what was seen, what is needed, what to do next.
    refuses: only ``--ignore-warnings`` lets the plan be written.
    """

    id: str
    text: str
    refuses: bool = False


@dataclass(frozen=True, slots=True)
class Offload:
    """Which brokers gave, and within which limits. sources: their ids. rule: what made a broker a source, in
    words. mean, harmonic_mean: of free bytes. tolerance: of the chosen plan; highest, lowest: free bytes that
    a move leaves a source at most, and a taker at least. None where no byte is spread, or nothing was tried.
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
    """cluster: before. moves: in the order in which they are made; a partition whose set stays is left
    out.

    phases: maps to be done one after the other, the last of them ends at ``moves``; empty when one map does
    it. limited: what kept the planner from a better plan. notices: all that a reader should know. dirs: by
    partition and broker, the log directory of each replica that goes into a chosen one. offload: which
    brokers gave, of ``rebalance`` and ``scale``.
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
        """What the whole plan copies."""
        return sum(move.bytes for move in self.moves)


@dataclass(frozen=True)
class Refused:
    """There is no plan. reasons: each names what was seen and needed; ``--ignore-warnings`` lifts none of
    them. options: the request contradicts itself, whatever the cluster."""

    reasons: tuple[Notice, ...]
    options: bool = False
