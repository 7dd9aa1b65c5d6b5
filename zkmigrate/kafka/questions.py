"""Define the questions about a Kafka cluster.

Every question begins with one ApiVersions request to each broker; PingBrokers sends only that request.
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
    """The state of a Kafka cluster, as its brokers report it.

    controller: broker id of the controller; -1 when unknown. brokers: id → (host, port, rack). min_isr: topic
    → effective min.insync.replicas. reassigning: partitions with a reassignment in flight; None if neither
    the brokers (before 2.4) nor a joined dest host can report them. releases: ``ADDRESS:PORT`` of each broker
    that answered → its release as MAJOR.MINOR.
    """

    cluster_id: str
    controller: int
    brokers: Mapping[int, tuple[str, int, str]]
    partitions: tuple[PartitionState, ...]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    reassigning: tuple[tuple[str, int], ...] | None = ()
    releases: Mapping[str, str] = field(default_factory=dict)

    def without(self, retired: Collection[int]) -> KafkaView:
        """Return this view without the replicas on retired brokers that are not in the ISR.

        Nothing then waits for the retired brokers to catch up.
        """
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
    """The value of one config of one topic or broker.

    own: the value set on the topic or broker itself; None if a default applies. read_only: whether Kafka
    rejects any other value. value: the effective value, for brokers only; None if it is null or the broker
    does not list the config.
    """

    own: str | None
    read_only: bool = False
    value: str | None = None


Settings: TypeAlias = Reading[Mapping[str, Reading[TopicSetting]]]
"""One config of several topics, by topic name. A topic is Absent if it does not exist and Unknown if its
config may not be read. The whole reading is Absent if Kafka has no such config."""


@dataclass(frozen=True)
class TopicPartitions:
    """The partitions of some topics, as a few brokers (the witnesses) report them.

    brokers: ids that every witness lists. witnesses: ids of the brokers that answered. topics: partitions by
    topic; Absent if no witness knows the topic, Unknown if it may not be described. A replica counts as in
    sync only if every witness that knows the topic reports it so. ids: topic ids, if the brokers report them
    (Kafka 2.8 and later).
    """

    cluster_id: str
    brokers: frozenset[int]
    witnesses: tuple[int, ...]
    topics: Mapping[str, Reading[tuple[PartitionState, ...]]]
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InFlight:
    """A reassignment in flight.

    replicas: the current replica list, with the target's replicas first, in the target's order.
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replica list of the partition after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


@dataclass(frozen=True)
class LogEnd:
    """The end of one replica's log.

    offset: the log end offset (LEO), which is the offset of the next record. high_watermark: the partition's
    high watermark, which only its leader reports. epoch: the leader epoch in which the broker holds the
    replica. Values that the broker does not report are None.
    """

    offset: int
    high_watermark: int | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class ReplicaLog:
    """One replica in a log directory of a broker.

    size: bytes of its segments. lag: messages still to fetch; -1 when unknown. future: whether this is a copy
    from another directory of the same broker. The copy replaces the original when its lag reaches 0.
    """

    topic: str
    partition: int
    size: int
    lag: int
    future: bool


@dataclass(frozen=True)
class LogDir:
    """One log directory of a broker.

    total, usable: bytes of its volume; None from brokers before 3.3. cordoned: whether ``cordoned.log.dirs``
    (Kafka 4.3) names the directory. A cordoned directory rejects replicas that are assigned to it by name.
    Kafka chooses one only if all directories of the broker are cordoned.
    """

    replicas: tuple[ReplicaLog, ...]
    total: int | None = None
    usable: int | None = None
    cordoned: bool = False


LogDirs: TypeAlias = Reading[Mapping[str, Reading[LogDir]]]
"""The log directories of one broker, by path. A directory that the broker cannot use is Unknown."""


@dataclass(frozen=True)
class DescribeCluster(Request[Reading[KafkaView]]):
    """A question about the state of the whole cluster.

    witnesses: how many brokers describe its partitions; None for all.
    """

    witnesses: int | None = None
    answered_by = f"{_ANSWERS}.kafka"


@dataclass(frozen=True)
class PingBrokers(Request[Mapping[str, Pulse]]):
    """A request for one round trip to each broker of the inventory, all at the same time.

    within_s: seconds until the answers are due.
    """

    within_s: float
    answered_by = f"{_ANSWERS}.pulses"


@dataclass(frozen=True)
class ListTopics(Request[Reading[ClusterTopics]]):
    """A question for the names of all topics."""

    cluster: str
    answered_by = f"{_ANSWERS}.topics"
    costs = "one Metadata request for all partitions of all topics, to one broker"


@dataclass(frozen=True)
class DescribePartitions(Request[Reading[TopicPartitions]]):
    """A question about the partitions of some topics.

    witnesses: how many brokers receive the question; fewer may answer. Brokers answer from memory, not from
    disk or ZooKeeper.
    """

    cluster: str
    topics: Sequence[str]
    witnesses: int
    answered_by = f"{_ANSWERS}.topic_partitions"
    costs = "one Metadata request for only these topics, to each broker that is asked"


@dataclass(frozen=True)
class DescribeLogDirs(Request[Reading[Mapping[int, LogDirs]]]):
    """A question for the replicas in the log directories of some brokers, by broker id.

    partitions: the partitions to describe, by topic; None for all. A broker knows the sizes from memory and
    asks its file system about the volumes.
    """

    cluster: str
    brokers: Sequence[int]
    partitions: Mapping[str, Sequence[int]] | None = None
    answered_by = f"{_ANSWERS}.log_dirs"
    costs = "one DescribeLogDirs request for only these partitions, to each of these brokers"


@dataclass(frozen=True)
class ReadLogEnds(Request[Reading[Mapping[int, Reading[Mapping[tuple[str, int], Reading[LogEnd]]]]]]):
    """A question about where the logs of some replicas end, by broker id and partition.

    replicas: by broker id, the partitions by topic. Brokers answer from memory. The account needs the right
    to describe the topics.
    """

    cluster: str
    replicas: Mapping[int, Mapping[str, Sequence[int]]]
    answered_by = f"{_ANSWERS}.log_ends"
    costs = "two ListOffsets requests for only these partitions, to each of these brokers"


@dataclass(frozen=True)
class ReadTopicSettings(Request[Settings]):
    """A question for one config of some topics.

    Brokers without ZooKeeper answer from memory.
    """

    cluster: str
    key: str
    topics: Sequence[str]
    answered_by = f"{_ANSWERS}.topic_settings"
    costs = "one DescribeConfigs request for each 500 topics, to one broker, which reads each from ZooKeeper"


@dataclass(frozen=True)
class ValidateTopic(Request[Reading[str]]):
    """A question about why Kafka would refuse to create or grow a topic.

    The answer is empty if Kafka would accept the change.
    """

    change: CreateTopic | GrowTopic
    answered_by = f"{_ANSWERS}.refused_topic"
    costs = "one CreateTopics or CreatePartitions request, which the controller only validates"


@dataclass(frozen=True)
class ValidateAtController(Request[Reading[str]]):
    """A question about why the controller would refuse to change a config of a broker.

    The answer is empty if the controller would accept it. It is Unknown if the controller does not answer
    from here, and Absent in a cluster with ZooKeeper. The controller only validates the change.
    """

    change: AlterAtController
    answered_by = f"{_ANSWERS}.refused_at_controller"
    costs = "one DescribeQuorum request, and one IncrementalAlterConfigs request to the active controller"


@dataclass(frozen=True)
class ReadBrokerSettings(Request[Reading[Mapping[int, Reading[TopicSetting]]]]):
    """A question for one dynamic config of some brokers, by broker id.

    The answer is Unknown for a broker that does not respond.
    """

    cluster: str
    key: str
    brokers: Sequence[int]
    answered_by = f"{_ANSWERS}.broker_settings"
    costs = "one DescribeConfigs request to each of these brokers"


@dataclass(frozen=True)
class ListReassignments(Request[Reading[Mapping[tuple[str, int], InFlight]]]):
    """A question for the reassignments in flight, by topic and partition.

    The answer is Absent from brokers before 2.4, which cannot list them.
    """

    cluster: str
    answered_by = f"{_ANSWERS}.reassignments"
    costs = "one ListPartitionReassignments request for all partitions, to one broker, the controller"
