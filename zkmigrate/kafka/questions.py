"""The questions about a Kafka cluster.

Each question but the first three first asks every broker for its ApiVersions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from zkmigrate.kafka.changes import AlterAtController, CreateTopic, GrowTopic
from zkmigrate.runbook.model.fact import Reading
from zkmigrate.runbook.model.look import Pulse, Request

_ANSWERS = "zkmigrate.kafka.clients.answers:KafkaAnswers"


@dataclass(frozen=True)
class PartitionState:
    """One partition in a broker's metadata; ``leader`` is -1 when offline."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class KafkaView:
    """The Kafka cluster as its brokers answer. controller: -1 when unknown. brokers: id → (host, port, rack).
    min_isr: topic → effective min.insync.replicas. reassigning: partitions with a reassignment in flight;
    None where neither brokers (before 2.4) nor a joined dest host can tell. releases: ``ADDRESS:PORT`` of
    each broker that answered → its release as MAJOR.MINOR."""

    cluster_id: str
    controller: int
    brokers: Mapping[int, tuple[str, int, str]]
    partitions: tuple[PartitionState, ...]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    reassigning: tuple[tuple[str, int], ...] | None = ()
    releases: Mapping[str, str] = field(default_factory=dict)

    def without(self, retired: Collection[int]) -> KafkaView:
        """The same, with these brokers counted as replicas only where they are in the ISR: nobody waits for
        them."""
        return replace(
            self,
            partitions=tuple(
                replace(p, replicas=tuple(r for r in p.replicas if r not in retired or r in p.isr))
                for p in self.partitions
            ),
        )


@dataclass(frozen=True)
class ClusterTopics:
    """The sorted names of a cluster's topics, and the id of the cluster that named them."""

    cluster_id: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class TopicSetting:
    """One config of one topic or broker. own: its own value, None where a default holds. read_only: Kafka
    takes no other value. value: of a broker, what is in force; None where it is null or the broker does not
    list the config."""

    own: str | None
    read_only: bool = False
    value: str | None = None


Settings: TypeAlias = Reading[Mapping[str, Reading[TopicSetting]]]
"""One config of several topics, by name. A topic is Absent where it does not exist, Unknown where its config
may not be read. All of it is Absent where Kafka has no such config."""


@dataclass(frozen=True)
class TopicPartitions:
    """Some topics as a few brokers, the witnesses, see them. brokers: ids that every witness names.
    witnesses: ids that answered. topics: partitions by topic; Absent where no witness knows the topic,
    Unknown where it may not be described. A replica is in sync where every witness that knows the topic says
    so. ids: the topic ids, where brokers tell them (Kafka 2.8)."""

    cluster_id: str
    brokers: frozenset[int]
    witnesses: tuple[int, ...]
    topics: Mapping[str, Reading[tuple[PartitionState, ...]]]
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InFlight:
    """A reassignment in flight. replicas: the present set, the target's first, in the target's order."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The set that the partition will have."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


@dataclass(frozen=True)
class LogEnd:
    """Where a replica's log ends. offset: the log end offset (LEO), of the record that it will get next.
    high_watermark: of the partition, told by its leader alone. epoch: the leader epoch by which the broker
    holds the replica. None where the broker does not tell."""

    offset: int
    high_watermark: int | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class ReplicaLog:
    """One replica on a disk of a broker. size: bytes of its segments. lag: messages still to fetch, -1 where
    unknown. future: it is being copied from another directory of this broker, which it replaces when its lag
    is 0."""

    topic: str
    partition: int
    size: int
    lag: int
    future: bool


@dataclass(frozen=True)
class LogDir:
    """One log directory of a broker.

    total, usable: bytes of its volume; None from brokers before 3.3. cordoned: whether
    ``cordoned.log.dirs`` (Kafka 4.3) names it, so that it accepts no replica that is assigned to it by
    name. Kafka chooses a cordoned directory only if all directories of the broker are cordoned.
    """

    replicas: tuple[ReplicaLog, ...]
    total: int | None = None
    usable: int | None = None
    cordoned: bool = False


LogDirs: TypeAlias = Reading[Mapping[str, Reading[LogDir]]]
"""The log directories of one broker, by path; Unknown for one that the broker cannot use."""


@dataclass(frozen=True)
class DescribeCluster(Request[Reading[KafkaView]]):
    """Ask for the whole cluster. witnesses: how many brokers describe its partitions; None for all."""

    witnesses: int | None = None
    answered_by = f"{_ANSWERS}.kafka"


@dataclass(frozen=True)
class PingBrokers(Request[Mapping[str, Pulse]]):
    """Make one round trip to each broker of the inventory, all at once, within this many seconds."""

    within_s: float
    answered_by = f"{_ANSWERS}.pulses"


@dataclass(frozen=True)
class ListTopics(Request[Reading[ClusterTopics]]):
    """Ask for the names of all topics."""

    cluster: str
    answered_by = f"{_ANSWERS}.topics"
    costs = "one Metadata request for all partitions of all topics, to one broker"


@dataclass(frozen=True)
class DescribePartitions(Request[Reading[TopicPartitions]]):
    """Ask for the partitions of these topics. witnesses: how many brokers are asked; fewer may answer.

    Brokers answer from memory, not from disk or ZooKeeper.
    """

    cluster: str
    topics: Sequence[str]
    witnesses: int
    answered_by = f"{_ANSWERS}.topic_partitions"
    costs = "one Metadata request for these topics alone, to each witness"


@dataclass(frozen=True)
class DescribeLogDirs(Request[Reading[Mapping[int, LogDirs]]]):
    """Ask for the replicas on the disks of these brokers, by broker id.

    partitions: the partitions to describe, by topic; None for all. A broker knows the sizes from memory and
    asks its file system for the volumes.
    """

    cluster: str
    brokers: Sequence[int]
    partitions: Mapping[str, Sequence[int]] | None = None
    answered_by = f"{_ANSWERS}.log_dirs"
    costs = "one DescribeLogDirs request for these partitions alone, to each of these brokers"


@dataclass(frozen=True)
class ReadLogEnds(Request[Reading[Mapping[int, Reading[Mapping[tuple[str, int], Reading[LogEnd]]]]]]):
    """Ask where the logs of these replicas end, by broker id and partition.

    replicas: by broker id, partitions by topic. Brokers answer from memory. It needs the right to describe
    the topics.
    """

    cluster: str
    replicas: Mapping[int, Mapping[str, Sequence[int]]]
    answered_by = f"{_ANSWERS}.log_ends"
    costs = "two ListOffsets requests for these partitions alone, to each of these brokers"


@dataclass(frozen=True)
class ReadTopicSettings(Request[Settings]):
    """Ask for one config of these topics. Brokers without ZooKeeper answer from memory."""

    cluster: str
    key: str
    topics: Sequence[str]
    answered_by = f"{_ANSWERS}.topic_settings"
    costs = "one DescribeConfigs request for each 500 topics, to one broker, which reads each from ZooKeeper"


@dataclass(frozen=True)
class ValidateTopic(Request[Reading[str]]):
    """Ask why Kafka would refuse to create or grow a topic. The answer is empty if it would not."""

    change: CreateTopic | GrowTopic
    answered_by = f"{_ANSWERS}.refused_topic"
    costs = "one CreateTopics or CreatePartitions request, which the controller validates only"


@dataclass(frozen=True)
class ValidateAtController(Request[Reading[str]]):
    """Ask why the controller would refuse to change a config of a broker.

    The answer is empty if it would not. It is Unknown if the controller does not answer from here, and Absent
    in a cluster with ZooKeeper. The controller validates only.
    """

    change: AlterAtController
    answered_by = f"{_ANSWERS}.refused_at_controller"
    costs = "one DescribeQuorum request, and one IncrementalAlterConfigs request to the active controller"


@dataclass(frozen=True)
class ReadBrokerSettings(Request[Reading[Mapping[int, Reading[TopicSetting]]]]):
    """Ask for one dynamic config of these brokers, by id. It is Unknown if the broker does not answer."""

    cluster: str
    key: str
    brokers: Sequence[int]
    answered_by = f"{_ANSWERS}.broker_settings"
    costs = "one DescribeConfigs request to each of these brokers"


@dataclass(frozen=True)
class ListReassignments(Request[Reading[Mapping[tuple[str, int], InFlight]]]):
    """Ask for the reassignments in flight, by topic and partition. Brokers before 2.4 list none: Absent."""

    cluster: str
    answered_by = f"{_ANSWERS}.reassignments"
    costs = "one ListPartitionReassignments request for all partitions, to one broker, the controller"
