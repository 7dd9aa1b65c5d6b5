"""Model one Kafka cluster with topics and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.answers import Answering
from zkmigrate.kafka.changes import AlterAtController, CreateTopic, GrowTopic
from zkmigrate.kafka.questions import (
    ClusterTopics,
    InFlight,
    LogDir,
    LogDirs,
    LogEnd,
    PartitionState,
    ReplicaLog,
    Settings,
    TopicPartitions,
    TopicSetting,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

BROKERS = (1, 2, 3)
"""Ids of the cluster's brokers."""

KEYS = frozenset({"cleanup.policy", "min.insync.replicas", "retention.bytes", "retention.ms"})


@dataclass
class TopicWorld:
    """Model the cluster.

    Each topic has one partition with a replica on two of the brokers, in turn.

    topics: by name, what each of them sets. down: ids of the brokers that are down. silent: no broker
    answers. denied: topics whose config may not be read.
    """

    cluster_id: str
    topics: dict[str, dict[str, str]]
    down: set[int] = field(default_factory=set)
    silent: bool = False
    denied: frozenset[str] = frozenset()

    def names(self) -> Reading[ClusterTopics]:
        """Answer ``ListTopics``."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        return Seen(ClusterTopics(self.cluster_id, tuple(sorted(self.topics))))

    def partitions(self, topics: Sequence[str], witnesses: int) -> Reading[TopicPartitions]:
        """Answer ``DescribePartitions``."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        up = [id for id in BROKERS if id not in self.down]
        states = {state.topic: state for state in self._states()}
        told = {topic: self._told(topic, states) for topic in topics}
        return Seen(TopicPartitions(self.cluster_id, frozenset(up), tuple(up[:witnesses]), told))

    def _told(self, topic: str, states: Mapping[str, PartitionState]) -> Reading[tuple[PartitionState, ...]]:
        if topic in self.denied:
            return Unknown("denied", f"metadata of topic {topic}: TOPIC_AUTHORIZATION_FAILED")
        return Seen((states[topic],)) if topic in states else Absent(topic)

    def _states(self) -> Iterator[PartitionState]:
        for number, topic in enumerate(self.topics):
            replicas = tuple(BROKERS[(number + n) % len(BROKERS)] for n in range(2))
            isr = tuple(id for id in replicas if id not in self.down)
            yield PartitionState(topic, 0, isr[0] if isr else -1, replicas, isr)

    def log_dirs(
        self, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None
    ) -> Reading[Mapping[int, LogDirs]]:
        """Answer ``DescribeLogDirs``: each broker has one directory, each replica in it is empty."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        held = [s for s in self._states() if partitions is None or s.partition in partitions.get(s.topic, ())]
        return Seen({id: self._disk(id, held) for id in brokers})

    def _disk(self, id: int, held: Sequence[PartitionState]) -> LogDirs:
        if id in self.down or id not in BROKERS:
            return Unknown("timeout", f"broker {id} does not answer, or the cluster does not name it")
        replicas = [ReplicaLog(s.topic, s.partition, 0, 0, False) for s in held if id in s.replicas]
        return Seen({"/var/lib/kafka": Seen(LogDir(tuple(replicas)))})

    def log_ends(
        self, replicas: Mapping[int, Mapping[str, Sequence[int]]]
    ) -> Reading[Mapping[int, Reading[Mapping[tuple[str, int], Reading[LogEnd]]]]]:
        """Answer ``ReadLogEnds``: every log is empty."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        return Seen(
            {
                id: Seen({(topic, n): Seen(LogEnd(0, 0, 0)) for topic, ns in asked.items() for n in ns})
                for id, asked in replicas.items()
            }
        )

    def settings(self, key: str, topics: Sequence[str]) -> Settings:
        """Answer ``ReadTopicSettings``."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        if key not in KEYS and any(topic in self.topics for topic in topics):
            return Absent(key)
        return Seen({topic: self._setting(topic, key) for topic in topics})

    def _setting(self, topic: str, key: str) -> Reading[TopicSetting]:
        if topic in self.denied:
            return Unknown("denied", f"config {key} of topic {topic}: TOPIC_AUTHORIZATION_FAILED")
        if topic not in self.topics:
            return Absent(topic)
        return Seen(TopicSetting(self.topics[topic].get(key)))

    def broker_settings(
        self, key: str, brokers: Sequence[int]
    ) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        """Answer ``ReadBrokerSettings``: no broker sets anything."""
        return (
            Unknown("timeout", "no broker answers")
            if self.silent
            else Seen(dict.fromkeys(brokers, Seen(TopicSetting(None))))
        )

    def reassignments(self) -> Reading[Mapping[tuple[str, int], InFlight]]:
        """Answer ``ListReassignments``: none is in flight."""
        return Unknown("timeout", "no broker answers") if self.silent else Seen({})


class TopicQuestions(Answering):
    """The part of a ``Look`` that asks one cluster about its topics, whatever the cluster is called."""

    @property
    def cluster(self) -> TopicWorld:
        """The cluster that answers."""
        raise NotImplementedError

    def topics(self, _cluster: str) -> Reading[ClusterTopics]:
        return self.cluster.names()

    def topic_partitions(
        self, _cluster: str, topics: Sequence[str], witnesses: int
    ) -> Reading[TopicPartitions]:
        return self.cluster.partitions(topics, witnesses)

    def log_dirs(
        self, _cluster: str, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None = None
    ) -> Reading[Mapping[int, LogDirs]]:
        return self.cluster.log_dirs(brokers, partitions)

    def log_ends(
        self, _cluster: str, replicas: Mapping[int, Mapping[str, Sequence[int]]]
    ) -> Reading[Mapping[int, Reading[Mapping[tuple[str, int], Reading[LogEnd]]]]]:
        return self.cluster.log_ends(replicas)

    def topic_settings(self, _cluster: str, key: str, topics: Sequence[str]) -> Settings:
        return self.cluster.settings(key, topics)

    def refused_topic(self, _change: CreateTopic | GrowTopic) -> Reading[str]:
        return Unknown("failed", "this world has no topic that could be created or grow")

    def refused_at_controller(self, _change: AlterAtController) -> Reading[str]:
        return Unknown("failed", "this world has no controller without ZooKeeper")

    def broker_settings(
        self, _cluster: str, key: str, brokers: Sequence[int]
    ) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        return self.cluster.broker_settings(key, brokers)

    def reassignments(self, _cluster: str) -> Reading[Mapping[tuple[str, int], InFlight]]:
        return self.cluster.reassignments()
