"""Looks at a model Kafka cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.answers import Answering
from tests.world.cluster import Cluster
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.removal.rules import UNREGISTER
from zkmigrate.kafka.changes import AlterAtController, CreateTopic, GrowTopic
from zkmigrate.kafka.questions import (
    ClusterTopics,
    InFlight,
    KafkaView,
    LogDirs,
    LogEnd,
    Settings,
    TopicPartitions,
    TopicSetting,
)
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Pulse, Volume
from zkmigrate.runbook.site.exporter import metrics_text
from zkmigrate.zookeeper.questions import Rights, Znode

T = TypeVar("T")

DEAD_DOOR = "zk1:2181"
"""A server of ZooKeeper that never answers."""


class TopicQuestions(Answering):
    """The part of a ``Look`` that asks one cluster about its topics, whatever the cluster is called."""

    @property
    def cluster(self) -> Cluster:
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
    ) -> Reading[Mapping[int, Reading[Mapping[Name, Reading[LogEnd]]]]]:
        return self.cluster.log_ends(replicas)

    def topic_settings(self, _cluster: str, key: str, topics: Sequence[str]) -> Settings:
        return self.cluster.settings(key, topics)

    def refused_topic(self, _change: CreateTopic | GrowTopic) -> Reading[str]:
        return Seen(self.cluster.refuses)

    def refused_at_controller(self, change: AlterAtController) -> Reading[str]:
        return self.cluster.refused_at_controller(change)

    def broker_settings(
        self, _cluster: str, key: str, brokers: Sequence[int]
    ) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        return self.cluster.broker_settings(key, brokers)

    def reassignments(self, _cluster: str) -> Reading[Mapping[Name, InFlight]]:
        return self.cluster.reassignments()


@dataclass(frozen=True)
class ClusterLook(TopicQuestions):
    """A look at a cluster, its znodes, and the hosts of its brokers. chroot: below which the znodes are."""

    world: Cluster
    chroot: str = ""

    @property
    def cluster(self) -> Cluster:
        return self.world

    def now(self) -> float:
        return self.world.clock.now()

    def wall(self) -> float:
        return self.world.clock.wall()

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        return {host: ask(host) for host in hosts}

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        return self.world.view()

    def pulses(self, within_s: float) -> Mapping[str, Pulse]:
        apis = {UNREGISTER: (0, 0)} if self.world.kraft else {}
        return {f"broker{id}": Pulse(0.0, apis=apis) for id in self.world.up}

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        loads = self.world.loads.items()
        timed = {id: one.canary_ms for id, one in loads if one.canary_ms is not None}
        return {f"broker{id}": (Pulse(0.0, took_s=ms(self.now()) / 1000),) for id, ms in timed.items()}

    def metrics(self, url: str) -> Reading[str]:
        return metrics_text(url, 20.0)

    def znode(self, door: str, path: str) -> Reading[Znode]:
        if door == DEAD_DOOR:
            return Unknown("timeout", f"{door} is down")
        return self.world.znode(path.removeprefix(self.chroot))

    def acls(self, _door: str, paths: Sequence[str]) -> Reading[Mapping[str, Rights]]:
        return self.world.acls({path: path.removeprefix(self.chroot) for path in paths})

    def load_counters(self, host: str) -> Reading[str]:
        one = self.world.loads[self.world.id_of(host)]
        if one.blind(self.now()):
            return Unknown("unreachable", f"{host} does not answer")
        return Seen(one.text(self.now()))

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        return Unknown("unreachable", f"{host} does not answer")

    def zkm(self, host: str, *words: str) -> Reading[str]:
        return self.world.zkm(host, *words)

    def file(self, host: str, path: str) -> Reading[bytes]:
        return self.world.file(host, path)

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        return self.world.listing(host, path)
