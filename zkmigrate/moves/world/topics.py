"""A model world of one Kafka cluster with topics and nothing else, for playbooks that change these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock

from zkmigrate.errors import HostError
from zkmigrate.mirror.rules.direction import Direction
from zkmigrate.mirror.rules.rights import Acl
from zkmigrate.model.change import (
    AlterAtController,
    AlterTopicConfig,
    ClusterChange,
    CreateTopic,
    GrowTopic,
)
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import (
    BothEnds,
    ClusterAt,
    ClusterTopics,
    Granted,
    GroupPair,
    GroupReads,
    InFlight,
    LogDir,
    LogDirs,
    LogEnd,
    MirrorLook,
    MirrorSurvey,
    PartitionState,
    RangeCompared,
    ReplicaLog,
    Settings,
    TopicPartitions,
    TopicSetting,
)

BROKERS = (1, 2, 3)
"""Ids of the cluster's brokers."""

KEYS = frozenset({"cleanup.policy", "min.insync.replicas", "retention.bytes", "retention.ms"})


def takes_all(_topic: str, _key: str, _value: str) -> str:
    """For a cluster that refuses no value."""
    return ""


@dataclass
class TopicWorld:
    """The cluster. It remembers no change; what came of one is told by a look alone.

    Each topic has one partition with a replica on two of the brokers, in turn.

    topics: by name, what each of them sets. down: ids of the brokers that are down. silent: no broker
    answers. denied: topics whose config may not be read. refuses: why a topic would not take a value, empty
    where it would. read_only: configs that nobody can set. wrong: what befalls the next changes, one after
    the other: the cluster is ``down``, its answer is ``lost`` after the change was made, or the topic is
    ``deleted`` before it. lag: so many looks at a topic still tell what was before a change, as with KRaft.
    altered: the changes that were made. read: how many topics were looked at.
    """

    cluster_id: str
    topics: dict[str, dict[str, str]]
    down: set[int] = field(default_factory=set)
    silent: bool = False
    denied: frozenset[str] = frozenset()
    refuses: Callable[[str, str, str], str] = takes_all
    read_only: frozenset[str] = frozenset()
    wrong: list[str] = field(default_factory=list)
    lag: int = 0
    altered: list[AlterTopicConfig] = field(default_factory=list)
    read: int = 0
    _old: dict[str, tuple[int, str | None]] = field(default_factory=dict, repr=False)
    _turn: RLock = field(default_factory=RLock, repr=False)

    def names(self) -> Reading[ClusterTopics]:
        """As ``Look.topics``."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        return Seen(ClusterTopics(self.cluster_id, tuple(sorted(self.topics))))

    def partitions(self, topics: Sequence[str], witnesses: int) -> Reading[TopicPartitions]:
        """As ``Look.topic_partitions``."""
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
        """As ``Look.log_dirs``: each broker has one directory, each replica in it is empty."""
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
        """As ``Look.log_ends``: every log is empty."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        return Seen(
            {
                id: Seen({(topic, n): Seen(LogEnd(0, 0, 0)) for topic, ns in asked.items() for n in ns})
                for id, asked in replicas.items()
            }
        )

    def settings(self, key: str, topics: Sequence[str]) -> Settings:
        """As ``Look.topic_settings``."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        if key not in KEYS and any(topic in self.topics for topic in topics):
            return Absent(key)
        self.read += len(topics)
        return Seen({topic: self._setting(topic, key) for topic in topics})

    def _setting(self, topic: str, key: str) -> Reading[TopicSetting]:
        if topic in self.denied:
            return Unknown("denied", f"config {key} of topic {topic}: TOPIC_AUTHORIZATION_FAILED")
        if topic not in self.topics:
            return Absent(topic)
        left, own = self._old.get(topic, (0, None))
        if left:
            self._old[topic] = (left - 1, own)
        return Seen(TopicSetting(own if left else self.topics[topic].get(key), key in self.read_only))

    def broker_settings(
        self, key: str, brokers: Sequence[int]
    ) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        """As ``Look.broker_settings``: no broker sets anything."""
        return (
            Unknown("timeout", "no broker answers")
            if self.silent
            else Seen(dict.fromkeys(brokers, Seen(TopicSetting(None))))
        )

    def reassignments(self) -> Reading[Mapping[tuple[str, int], InFlight]]:
        """As ``Look.reassignments``: none is in flight."""
        return Unknown("timeout", "no broker answers") if self.silent else Seen({})

    def refused(self, key: str, value: str, topics: Sequence[str]) -> Reading[Mapping[str, str]]:
        """As ``Look.refused_setting``."""
        if self.silent:
            return Unknown("timeout", "no broker answers")
        said = {topic: self._refusal(topic, key, value) for topic in topics}
        return Seen({topic: why for topic, why in said.items() if why})

    def _refusal(self, topic: str, key: str, value: str | None) -> str:
        if topic not in self.topics:
            return f"UNKNOWN_TOPIC_OR_PARTITION: The topic '{topic}' does not exist."
        return "" if value is None else self.refuses(topic, key, value)

    def alter(self, change: ClusterChange) -> tuple[int, str]:
        """As ``clients.kafka.Alter``: 0, or 1 and why it is refused; HostError where no answer comes."""
        assert isinstance(change, AlterTopicConfig)
        with self._turn:
            trouble = self.wrong.pop(0) if self.wrong else ""
            if trouble == "down" or self.silent:
                raise HostError("no broker answers; nothing was sent to Kafka")
            if trouble == "deleted":
                self.topics.pop(change.topic, None)
            if why := self._refusal(change.topic, change.key, change.value):
                return 1, why
            self.altered.append(change)
            self._old[change.topic] = (self.lag, self.topics[change.topic].get(change.key))
            if change.value is None:
                self.topics[change.topic].pop(change.key, None)
            else:
                self.topics[change.topic][change.key] = change.value
            if trouble == "lost":
                raise HostError("the connection broke; whether that was done is not known")
            return 0, change.describe()


class _NoMirror:
    """Of a world with one cluster."""

    _NOTHING = Unknown("failed", "this world has no second cluster")

    def survey(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[MirrorSurvey]:
        return self._NOTHING

    def ends(self, topics: Sequence[str]) -> Reading[Mapping[tuple[str, int], BothEnds]]:
        return self._NOTHING

    def direction(self, topics: Sequence[str]) -> Reading[Direction]:
        return self._NOTHING

    def commits(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[Mapping[str, GroupPair]]:
        return self._NOTHING

    def granted(self, acls: Sequence[Acl]) -> Reading[Granted]:
        return self._NOTHING

    def reads(self, topics: Sequence[str], groups: Sequence[str]) -> Reading[Mapping[str, GroupReads]]:
        return self._NOTHING

    def differences(
        self, ranges: Mapping[tuple[str, int], tuple[int, int]]
    ) -> Reading[Mapping[tuple[str, int], Reading[RangeCompared]]]:
        return self._NOTHING


class TopicQuestions:
    """The part of a ``Look`` that asks one cluster about its topics, whatever the cluster is called. Nothing
    mirrors it, and no gateway stands before it."""

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

    def refused_setting(
        self, _cluster: str, key: str, value: str, topics: Sequence[str]
    ) -> Reading[Mapping[str, str]]:
        return self.cluster.refused(key, value, topics)

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

    def gateway(self, host: str) -> Reading[str]:
        return Unknown("failed", f"this world has no gateway on {host}")

    def mirror(self, source: ClusterAt, target: ClusterAt) -> MirrorLook:
        return _NoMirror()
