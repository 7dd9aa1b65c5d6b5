"""Change a Kafka cluster through its brokers, release 2.3 to 3.9, with kafka-python."""

from __future__ import annotations

import queue
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka import TopicPartition, TopicPartitionReplica
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
from kafka.errors import (
    BrokerIdNotRegisteredError,
    IncompatibleBrokerVersion,
    KafkaError,
    NoError,
    NoReassignmentInProgressError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)

from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import (
    AlterAtController,
    AlterBrokerConfig,
    AlterTopicConfig,
    CancelReassignment,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    GrowTopic,
    PlaceReplica,
    ReassignPartition,
    UnregisterBroker,
)
from zkmigrate.kafka.clients import controller, library
from zkmigrate.kafka.clients.connections import (
    GARBLED,
    QUESTION_S,
    Brokers,
    NoBrokerError,
    UnregisterBrokerRequest,
    new_client,
    releases_of,
)
from zkmigrate.kafka.clients.elections import ELECTION_S, elect
from zkmigrate.kafka.clients.login import login_of
from zkmigrate.kafka.error_text import describe_error, describe_exception
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.look import Look

ALTERED, _ERROR = "OK", re.compile(r"\[Error (-?\d+)\] \w+: (.*)", re.DOTALL)
"""The text in which kafka-python reports that a resource was altered, and the form in which it reports a
broker's error."""
TIMED_OUT = RequestTimedOutError.message
"""The beginning of the error text in which a broker reports that its controller did not respond in time."""


def alterer(inventory: Inventory, _look: Look) -> Alter:
    """Return the sender of changes to the inventory's Kafka cluster."""
    return Alter(Brokers((broker.endpoint for broker in inventory.brokers), login_of(inventory)))


class Alter:
    """A sender of changes to the cluster at ``brokers`` (``host:port``).

    It reuses clients, so that thousands of changes open few connections.
    """

    def __init__(self, brokers: Sequence[str]) -> None:
        self._brokers = brokers if isinstance(brokers, Brokers) else Brokers(brokers)
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __call__(self, change: ClusterChange) -> tuple[int, str]:
        """Send one change and return (0, result), or (1, reason) if Kafka refused it.

        Raises HostError if no broker answered or the outcome is unknown.
        """
        send = _SENDERS.get(type(change))
        if send is None:
            return 1, f"nothing was sent: {change.describe()} is not a change of Kafka"
        try:
            admin = self._idle.get_nowait()
        except queue.Empty:
            admin = self._new_client(change)
        try:
            refusal = self._send(send, admin, change)
        except BaseException:
            admin.close()
            self.close()  # the idle clients may use the same broker, which failed
            raise
        self._idle.put(admin)
        return (1, refusal) if refusal else (0, change.describe())

    def close(self) -> None:
        """Close the idle clients."""
        self._brokers.close()
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def _new_client(self, change: ClusterChange) -> Any:
        try:
            answering = list(releases_of(self._brokers))
        except NoBrokerError as error:
            raise HostError(f"{error}; nothing was sent to Kafka") from None
        try:
            limit_s = ELECTION_S if isinstance(change, ElectLeaders) else QUESTION_S
            return new_client(answering, limit_s, self._brokers.login)
        except (KafkaError, OSError) as error:
            raise self._unknown_outcome(change, describe_exception(error)) from None

    def _send(self, send: Callable[[Any, Any], str], admin: Any, change: ClusterChange) -> str:
        """Return why Kafka refused a change; empty if Kafka accepted it.

        Raises HostError if the outcome is unknown.
        """
        try:
            refusal = send(admin, change)
        except IncompatibleBrokerVersion as error:  # the client knows that before it sends
            return describe_exception(error)
        except (KafkaError, OSError, RuntimeError, *GARBLED) as error:  # RuntimeError: no controller
            raise self._unknown_outcome(change, describe_exception(error)) from None
        if TIMED_OUT in refusal:  # the broker timed out waiting for its controller
            raise self._unknown_outcome(change, refusal)
        return refusal

    def _unknown_outcome(self, change: ClusterChange, why: str) -> HostError:
        asked = f"Kafka at {', '.join(self._brokers)} did not confirm: {change.describe()}"
        return HostError(f"{asked}. Whether the change was made is unknown: {why}")


def _alter_config(admin: Any, change: AlterTopicConfig | AlterBrokerConfig) -> str:
    """Set or unset one config with IncrementalAlterConfigs (KIP-339, Kafka 2.3), which keeps the others.

    Lists are set as a whole: Kafka 2.8 accepts APPEND to an unset list, writes an empty first entry, and then
    cannot read it.
    """
    act = AlterConfigOp.DELETE if change.value is None else AlterConfigOp.SET
    topic = isinstance(change, AlterTopicConfig)
    kind = ConfigResourceType.TOPIC if topic else ConfigResourceType.BROKER
    name = change.topic if isinstance(change, AlterTopicConfig) else str(change.broker)
    wanted = ConfigResource(kind, name, {change.key: (act, change.value)})
    # Brokers do not list the rates of throttles among their configs.
    answer = admin.alter_configs([wanted], raise_on_unknown=False, incremental=True)
    return refusal(answer[kind.name.lower()][name])


def refusal(outcome: str) -> str:
    """Return why Kafka refused a change of settings, from kafka-python's text; empty if Kafka accepted it."""
    if outcome == ALTERED:
        return ""
    error = _ERROR.fullmatch(outcome)
    return describe_error(int(error[1]), "" if error[2] == "None" else error[2]) if error else outcome


def _reassign(admin: Any, change: ReassignPartition | CancelReassignment) -> str:
    """Start or cancel a reassignment with AlterPartitionReassignments (KIP-455, Kafka 2.4).

    The answer contains the partition's error as a value.
    """
    partition = TopicPartition(change.topic, change.partition)
    target = list(change.replicas) if isinstance(change, ReassignPartition) else None
    error = admin.alter_partition_reassignments({partition: target})[partition]
    if target is None and error is NoReassignmentInProgressError:  # it is finished or cancelled already
        return ""
    return "" if error is None else f"{change.topic}-{change.partition}: {describe_error(error.errno)}"


def _place(admin: Any, change: PlaceReplica) -> str:
    """Choose the directory of a replica with AlterReplicaLogDirs (KIP-113, Kafka 1.0).

    A broker without the replica remembers the directory and answers REPLICA_NOT_AVAILABLE
    (``ReplicaManager.alterReplicaLogDirs``).
    """
    replica = TopicPartitionReplica(change.topic, change.partition, change.broker)
    error = admin.alter_replica_log_dirs({replica: change.path})[replica]
    if error in (NoError, ReplicaNotAvailableError):
        return ""
    return f"{change.topic}-{change.partition} on broker {change.broker}: {describe_error(error.errno)}"


def create_topic(admin: Any, change: CreateTopic, *, only_validate: bool = False) -> str:
    """Create a topic and return why Kafka refused; empty if Kafka accepted.

    only_validate: let Kafka check the request without creating the topic.
    """
    wanted = {change.topic: {"assignments": dict(enumerate(map(list, change.sets)))}}
    answer = admin.create_topics(wanted, raise_errors=False, validate_only=only_validate)
    [result] = answer["topics"]
    return _topic_refusal(change.topic, result)


def grow_topic(admin: Any, change: GrowTopic, *, only_validate: bool = False) -> str:
    """Add partitions to a topic and return why Kafka refused; empty if Kafka accepted.

    only_validate: let Kafka check the request without adding partitions.
    """
    wanted = {
        change.topic: {"count": change.count, "assignments": [list(replicas) for replicas in change.sets]}
    }
    answer = admin.create_partitions(wanted, raise_errors=False, validate_only=only_validate).to_dict()
    [result] = answer["results"]
    return _topic_refusal(change.topic, result)


def _delete_topic(admin: Any, change: DeleteTopic) -> str:
    which = uuid.UUID(change.before) if change.before else change.topic
    [result] = admin.delete_topics([which], raise_errors=False)["topics"]
    if for_code(result["error_code"]) in (UnknownTopicOrPartitionError, UnknownTopicIdError):  # gone already
        return ""
    return _topic_refusal(change.topic, result)


def _topic_refusal(topic: str, result: Mapping[str, Any]) -> str:
    code = result["error_code"]
    return f"topic {topic}: {describe_error(code, result.get('error_message'))}" if code else ""


def _unregister(admin: Any, change: UnregisterBroker) -> str:
    answer = library.send(admin, UnregisterBrokerRequest(broker_id=change.broker))
    error = for_code(answer["error_code"])
    if error in (NoError, BrokerIdNotRegisteredError):  # it was unregistered already
        return ""
    return f"broker {change.broker}: {describe_error(answer['error_code'], answer['error_message'])}"


_SENDERS: Mapping[type[ClusterChange], Callable[[Any, Any], str]] = {
    AlterTopicConfig: _alter_config,
    AlterBrokerConfig: _alter_config,
    ReassignPartition: _reassign,
    CancelReassignment: _reassign,
    PlaceReplica: _place,
    ElectLeaders: elect,
    UnregisterBroker: _unregister,
    AlterAtController: controller.alter,
    CreateTopic: create_topic,
    DeleteTopic: _delete_topic,
    GrowTopic: grow_topic,
}
"""The function that sends each kind of change over a client. It returns why Kafka refused; empty if Kafka
accepted."""
