"""A Kafka cluster as placement sees it: brokers with racks and disks, partitions with replicas and bytes.

All sizes are bytes, all rates bytes per second. The values are ordered, so that the same cluster gives the
same plan on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

Name = tuple[str, int]
"""A partition's topic and number."""

Set = tuple[int, ...]
"""A replica list: broker ids in order; the first broker is the preferred leader."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log directory of a broker, as ``log.dirs`` names it. total: its bytes; 0 if unknown."""

    path: str
    free: int
    total: int = 0


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker.

    rack: its rack; empty for none.
    free: the free bytes of all its log directories together.
    dirs: its log directories, if they are known individually.
    new: whether it holds no replica yet and joined to take some.
    host: its address; brokers on one address fail together.
    limit: the most bytes that new copies may take; None for all free bytes.
    """

    id: int
    rack: str
    free: int
    new: bool = False
    dirs: tuple[LogDir, ...] = ()
    host: str = ""
    limit: int | None = None

    @property
    def room(self) -> int:
        """The bytes available for new copies."""
        return self.free if self.limit is None else min(self.free, self.limit)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and its replicas; the first of them is the preferred leader.

    size: the bytes of its largest replica; None if unknown.
    rate: bytes per second that are produced to it; None if unknown.
    dirs: the log directory of each replica; empty if unknown.
    """

    topic: str
    number: int
    replicas: tuple[int, ...]
    size: int | None
    rate: float | None = None
    dirs: tuple[str, ...] = ()

    @property
    def name(self) -> Name:
        """The topic and number, which identify the partition and order it."""
        return self.topic, self.number


@dataclass(frozen=True)
class Cluster:
    """A cluster's registered brokers and its partitions.

    brokers: the registered brokers by id, in the order of their ids.
    partitions: the partitions in the order of their names. They may name brokers that are gone, which are not
    in ``brokers``.
    """

    brokers: Mapping[int, Broker]
    partitions: tuple[Partition, ...]

    @classmethod
    def of(cls, brokers: Iterable[Broker], partitions: Iterable[Partition]) -> Cluster:
        """Return a cluster with its brokers and partitions in order."""
        ordered = {broker.id: broker for broker in sorted(brokers, key=lambda broker: broker.id)}
        return cls(ordered, tuple(sorted(partitions, key=lambda partition: partition.name)))

    @cached_property
    def free(self) -> dict[int, int]:
        """The free bytes of the registered brokers."""
        return {broker.id: broker.free for broker in self.brokers.values()}

    @cached_property
    def by_name(self) -> dict[Name, Partition]:
        """The partitions by topic and number."""
        return {partition.name: partition for partition in self.partitions}

    @cached_property
    def in_dir(self) -> Counter[tuple[int, str]]:
        """The number of replicas that each known log directory holds, by broker and path."""
        return Counter(
            place for one in self.partitions for place in zip(one.replicas, one.dirs, strict=bool(one.dirs))
        )

    def rack(self, broker: int) -> str:
        """Return a key to compare racks by. A broker that is gone or has no rack has a key of its own."""
        found = self.brokers.get(broker)
        return f"rack {found.rack}" if found and found.rack else f"broker {broker}"

    def racks(self, replicas: Iterable[int]) -> int:
        """Return the number of racks that a replica list spans."""
        return len({self.rack(broker) for broker in replicas})

    @cached_property
    def rack_count(self) -> int:
        """The number of racks of the registered brokers."""
        return self.racks(self.brokers)


@dataclass(frozen=True)
class Assigned:
    """A cluster without sizes: racks by registered broker, replica lists, and hosts by broker."""

    racks: Mapping[int, str]
    sets: Mapping[Name, Set]
    hosts: Mapping[int, str]

    @cached_property
    def holding(self) -> set[int]:
        """The brokers that hold a replica. Any other registered broker is new."""
        return {broker for replicas in self.sets.values() for broker in replicas}
