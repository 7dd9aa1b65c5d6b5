"""Answer the questions about the Kafka cluster of the inventory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.clients import admin, log_dirs, log_ends, reassignments, topics
from zkmigrate.kafka.clients.canary import BrokerCanary
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
        self._canary = BrokerCanary({b.name: (b.address, b.port) for b in inventory.brokers})
        self._brokers = admin.Brokers(broker.endpoint for broker in inventory.brokers)

    def close(self) -> None:
        """Close the connections."""
        self._canary.close()
        self._brokers.close()

    def kafka(self, asked: DescribeCluster) -> Reading[KafkaView]:
        if not self._brokers:
            return Unknown("failed", "the inventory names no broker")
        return admin.view(self._brokers, self._reassignments, witnesses=asked.witnesses)

    def pulses(self, asked: PingBrokers) -> Mapping[str, Pulse]:
        return self._canary.ask_all(asked.within_s)

    def topics(self, asked: ListTopics) -> Reading[ClusterTopics]:
        return self._ask(asked.cluster, topics.names)

    def topic_partitions(self, asked: DescribePartitions) -> Reading[TopicPartitions]:
        return self._ask(asked.cluster, lambda at: topics.partitions(at, asked.topics, asked.witnesses))

    def log_dirs(self, asked: DescribeLogDirs) -> Reading[Mapping[int, LogDirs]]:
        return self._ask(asked.cluster, lambda at: log_dirs.log_dirs(at, asked.brokers, asked.partitions))

    def log_ends(
        self, asked: ReadLogEnds
    ) -> Reading[Mapping[int, Reading[Mapping[tuple[str, int], Reading[LogEnd]]]]]:
        return self._ask(asked.cluster, lambda at: log_ends.log_ends(at, asked.replicas))

    def topic_settings(self, asked: ReadTopicSettings) -> Settings:
        return self._ask(asked.cluster, lambda at: topics.settings(at, asked.key, asked.topics))

    def refused_topic(self, asked: ValidateTopic) -> Reading[str]:
        return self._ask(asked.change.cluster, lambda at: topics.refused_topic(at, asked.change))

    def refused_at_controller(self, asked: ValidateAtController) -> Reading[str]:
        return self._ask(
            asked.change.cluster, lambda at: reassignments.refused_at_controller(at, asked.change)
        )

    def broker_settings(self, asked: ReadBrokerSettings) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        return self._ask(
            asked.cluster, lambda at: reassignments.broker_settings(at, asked.key, asked.brokers)
        )

    def reassignments(self, asked: ListReassignments) -> Reading[Mapping[tuple[str, int], InFlight]]:
        return self._ask(asked.cluster, reassignments.in_flight)

    def _ask(self, cluster: str, ask: Callable[[Sequence[str]], Reading[T]]) -> Reading[T]:
        if cluster != KAFKA:
            return Unknown("failed", f"unknown cluster {cluster}; the clusters are {KAFKA}")
        return ask(self._brokers)

    def _reassignments(self) -> Reading[bytes] | None:
        """Read the reassignment znode through the first ZooKeeper host that serves; return None if none does.

        Read-only hosts are never used: a client session there is a transaction, and before the join none may
        be ours.
        """
        for host in (host for host in self._inventory.doors if host not in self._inventory.read_only):
            chroot = self._inventory.kafka.chroot
            reading = self._look.ask(ReadZnode(host, chroot + admin.REASSIGNMENTS))
            if isinstance(reading, Seen):
                return Seen(reading.value.data)
            if isinstance(reading, Absent):
                there = self._look.ask(ReadZnode(host, chroot))
                return reading if isinstance(there, Seen) else Unknown("failed", f"{host} has no such chroot")
        return None
