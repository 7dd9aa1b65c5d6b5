"""Answer the questions about the Kafka cluster of the inventory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.clients import cluster_view, log_dirs, log_ends, reassignments, topics
from zkmigrate.kafka.clients.canary import BrokerCanary
from zkmigrate.kafka.clients.connections import Brokers
from zkmigrate.kafka.clients.login import login_of
from zkmigrate.kafka.questions import (
    ClusterTopics,
    DescribeCluster,
    DescribeLogDirs,
    DescribePartitions,
    InFlight,
    KafkaView,
    ListReassignments,
    ListTopics,
    LogDirs,
    LogEnd,
    PingBrokers,
    ReadBrokerSettings,
    ReadLogEnds,
    ReadTopicSettings,
    Settings,
    TopicPartitions,
    TopicSetting,
    ValidateAtController,
    ValidateTopic,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look, Pulse
from zkmigrate.zookeeper.questions import ReadZnode

T = TypeVar("T")


class KafkaAnswers:
    """The answers to questions about the inventory's brokers, over connections that are kept open."""

    def __init__(self, inventory: Inventory, look: Look) -> None:
        self._inventory, self._look = inventory, look
        login = login_of(inventory)
        self._canary = BrokerCanary({b.name: (b.address, b.port) for b in inventory.brokers}, login)
        self._brokers = Brokers((broker.endpoint for broker in inventory.brokers), login)

    def close(self) -> None:
        """Close the connections."""
        self._canary.close()
        self._brokers.close()

    def kafka(self, request: DescribeCluster) -> Reading[KafkaView]:
        if not self._brokers:
            return Unknown("failed", "the inventory names no broker")
        return cluster_view.view(self._brokers, self._reassignments, witnesses=request.witnesses)

    def pulses(self, request: PingBrokers) -> Mapping[str, Pulse]:
        return self._canary.ask_all(request.within_s)

    def topics(self, request: ListTopics) -> Reading[ClusterTopics]:
        return self._ask(request.cluster, topics.names)

    def topic_partitions(self, request: DescribePartitions) -> Reading[TopicPartitions]:
        return self._ask(request.cluster, lambda at: topics.partitions(at, request.topics, request.witnesses))

    def log_dirs(self, request: DescribeLogDirs) -> Reading[Mapping[int, LogDirs]]:
        return self._ask(
            request.cluster, lambda at: log_dirs.log_dirs(at, request.brokers, request.partitions)
        )

    def log_ends(
        self, request: ReadLogEnds
    ) -> Reading[Mapping[int, Reading[Mapping[tuple[str, int], Reading[LogEnd]]]]]:
        return self._ask(request.cluster, lambda at: log_ends.log_ends(at, request.replicas))

    def topic_settings(self, request: ReadTopicSettings) -> Settings:
        return self._ask(request.cluster, lambda at: topics.settings(at, request.key, request.topics))

    def refused_topic(self, request: ValidateTopic) -> Reading[str]:
        return self._ask(request.change.cluster, lambda at: topics.refused_topic(at, request.change))

    def refused_at_controller(self, request: ValidateAtController) -> Reading[str]:
        return self._ask(
            request.change.cluster, lambda at: reassignments.refused_at_controller(at, request.change)
        )

    def broker_settings(self, request: ReadBrokerSettings) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        return self._ask(
            request.cluster, lambda at: reassignments.broker_settings(at, request.key, request.brokers)
        )

    def reassignments(self, request: ListReassignments) -> Reading[Mapping[tuple[str, int], InFlight]]:
        return self._ask(request.cluster, reassignments.in_flight)

    def _ask(self, cluster: str, ask: Callable[[Sequence[str]], Reading[T]]) -> Reading[T]:
        if cluster != KAFKA:
            return Unknown("failed", f"unknown cluster {cluster}; the clusters are {KAFKA}")
        return ask(self._brokers)

    def _reassignments(self) -> Reading[bytes] | None:
        """Read the reassignment znode through the first ZooKeeper host that serves; return None if none does.

        Hosts that zkmigrate only reads are not used: opening a client session there writes a transaction,
        which is not allowed before the join.
        """
        for host in (host for host in self._inventory.doors if host not in self._inventory.read_only):
            kafka = self._inventory.kafka
            reading = self._look.ask(ReadZnode(host, kafka.prefix + cluster_view.REASSIGNMENTS))
            if isinstance(reading, Seen):
                return Seen(reading.value.data)
            if isinstance(reading, Absent):
                there = self._look.ask(ReadZnode(host, kafka.chroot))
                return reading if isinstance(there, Seen) else Unknown("failed", f"{host} has no such chroot")
        return None
