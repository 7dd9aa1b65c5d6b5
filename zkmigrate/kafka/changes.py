"""Define the changes that can be made to a Kafka cluster."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace

from zkmigrate.runbook.model.change import ClusterChange

KAFKA = "kafka"
"""The name of the cluster in the inventory's ``kafka`` section."""

BOOTSTRAP = "BOOTSTRAP"
"""The placeholder for ``address:port`` of any broker in a command."""


@dataclass(frozen=True)
class AlterTopicConfig(ClusterChange):
    """A change that sets or unsets one config of one topic.

    value: the new value. before: the value found on the topic itself. None means unset, so that the brokers'
    default applies.
    """

    cluster: str
    topic: str
    key: str
    value: str | None
    before: str | None
    verb = "alter-topic-config"
    expect = "`Completed updating config` for each topic"

    @property
    def command(self) -> str:
        return _configs_command(f"topics --entity-name {shlex.quote(self.topic)}", self.key, self.value)

    def describe(self) -> str:
        return _configs_words(f"topic {self.topic}", self.key, self.value, self.before)

    def inverse(self, _operation: str = "") -> AlterTopicConfig:
        return replace(self, value=self.before, before=self.value)


@dataclass(frozen=True)
class AlterBrokerConfig(ClusterChange):
    """A change that sets or unsets one dynamic config of one broker, by broker id.

    value: the new value. before: the value found on the broker itself. None means unset.
    """

    cluster: str
    broker: int
    key: str
    value: str | None
    before: str | None
    verb = "alter-broker-config"
    expect = "`Completed updating config` for the broker"

    @property
    def command(self) -> str:
        return _configs_command(f"brokers --entity-name {self.broker}", self.key, self.value)

    def describe(self) -> str:
        return _configs_words(f"broker {self.broker}", self.key, self.value, self.before)

    def inverse(self, _operation: str = "") -> AlterBrokerConfig:
        return replace(self, value=self.before, before=self.value)


def _configs_command(entity: str, key: str, value: str | None) -> str:
    if value is None:
        act = f"--delete-config {shlex.quote(key)}"
    else:  # in brackets, because otherwise the tool ends a value at its first comma
        act = f"--add-config {shlex.quote(f'{key}=[{value}]')}"
    return f"kafka-configs.sh --bootstrap-server {BOOTSTRAP} --alter --entity-type {entity} {act}"


def _configs_words(entity: str, key: str, value: str | None, before: str | None) -> str:
    found = "unset" if before is None else f"{key}={before}"
    act = f"unset {key}" if value is None else f"set {key}={value}"
    return f"{act} of {entity} (found: {found})"


@dataclass(frozen=True)
class ReassignPartition(ClusterChange):
    """A change that gives one partition another replica list.

    replicas: broker ids in order, the preferred leader first. before: the replica list that the way back
    restores. Kafka silently replaces a reassignment in flight, so only a partition without one may be
    reassigned.
    """

    cluster: str
    topic: str
    partition: int
    replicas: tuple[int, ...]
    before: tuple[int, ...]
    verb = "reassign-partition"
    expect = "`Successfully started partition reassignment`"

    @property
    def command(self) -> str:
        row = {"topic": self.topic, "partition": self.partition, "replicas": list(self.replicas)}
        return _reassign_command("--execute --additional", row)

    def describe(self) -> str:
        return (
            f"reassign {self.topic}-{self.partition} to brokers {_ids(self.replicas)} "
            f"(before: {_ids(self.before)})"
        )

    def inverse(self, _operation: str = "") -> ReassignPartition:
        return replace(self, replicas=self.before, before=self.replicas)


@dataclass(frozen=True)
class CancelReassignment(ClusterChange):
    """A change that cancels the reassignment of one partition.

    replicas: the target of the reassignment. The remaining replicas keep the target's order, so a
    reassignment to the original list must follow.
    """

    cluster: str
    topic: str
    partition: int
    replicas: tuple[int, ...]
    verb = "cancel-reassignment"
    expect = "`Successfully cancelled partition reassignments`"

    @property
    def command(self) -> str:
        row = {"topic": self.topic, "partition": self.partition, "replicas": list(self.replicas)}
        return _reassign_command("--cancel --preserve-throttles", row)

    def describe(self) -> str:
        return f"cancel the reassignment of {self.topic}-{self.partition} to brokers {_ids(self.replicas)}"


@dataclass(frozen=True)
class PlaceReplica(ClusterChange):
    """A change that puts one replica into a log directory of its broker.

    A broker that has the replica copies it to the directory and removes the old copy. A broker that does not
    have it yet remembers the directory, until it stops, for the reassignment that follows. before: the
    current directory of the replica; empty if the broker has none.
    """

    cluster: str
    broker: int
    topic: str
    partition: int
    path: str
    before: str
    verb = "place-replica"
    expect = ""

    def describe(self) -> str:
        found = f"found: {self.before}" if self.before else "the broker has no replica yet"
        return (
            f"move {self.topic}-{self.partition} on broker {self.broker} to the directory {self.path} "
            f"({found})"
        )

    def inverse(self, _operation: str = "") -> PlaceReplica | None:
        return replace(self, path=self.before, before=self.path) if self.before else None


@dataclass(frozen=True)
class ElectLeaders(ClusterChange):
    """A change that elects the preferred replica of partitions as leader.

    partitions: (topic, partition number) of each; none for every partition of the cluster.
    """

    cluster: str
    partitions: tuple[tuple[str, int], ...] = ()
    verb = "elect-leaders"
    expect = "no error; `Election not needed` means that the preferred replica leads already"

    @property
    def command(self) -> str:
        rows = [{"topic": topic, "partition": number} for topic, number in self.partitions]
        some = f"--path-to-json-file <(echo {shlex.quote(json.dumps({'partitions': rows}))})"
        return (
            f"kafka-leader-election.sh --bootstrap-server {BOOTSTRAP} --election-type preferred "
            f"{some if rows else '--all-topic-partitions'}"
        )

    def describe(self) -> str:
        named = [f"{topic}-{number}" for topic, number in self.partitions[:5]] or ["every partition"]
        more = f" and {len(self.partitions) - 5:,} more" if len(self.partitions) > 5 else ""
        return f"elect the preferred leader of {', '.join(named)}{more}"


@dataclass(frozen=True)
class CreateTopic(ClusterChange):
    """A change that creates a topic.

    sets: the replica list of each partition, from partition 0 on.
    """

    cluster: str
    topic: str
    sets: tuple[tuple[int, ...], ...]
    verb = "create-topic"
    expect = "`Created topic`"

    @property
    def command(self) -> str:
        return _topics_command("--create", self.topic, f"--replica-assignment {_assignment(self.sets)}")

    def describe(self) -> str:
        return f"create topic {self.topic} with {len(self.sets):,} partitions, the first on {self.sets[0]}"

    def inverse(self, _operation: str = "") -> DeleteTopic:
        return DeleteTopic(self.cluster, self.topic, "")


@dataclass(frozen=True)
class DeleteTopic(ClusterChange):
    """A change that deletes a topic.

    before: the topic id that was found, so that a later topic of the same name is not deleted. It is empty if
    the brokers report no topic ids.
    """

    cluster: str
    topic: str
    before: str
    verb = "delete-topic"
    expect = "nothing"

    @property
    def command(self) -> str:
        return _topics_command("--delete", self.topic, "")

    def describe(self) -> str:
        return f"delete topic {self.topic}" + (f" with id {self.before}" if self.before else "")


@dataclass(frozen=True)
class GrowTopic(ClusterChange):
    """A change that adds partitions to a topic; it cannot be undone.

    old: the replica lists of the existing partitions. sets: the replica lists of the new partitions.
    """

    cluster: str
    topic: str
    old: tuple[tuple[int, ...], ...]
    sets: tuple[tuple[int, ...], ...]
    verb = "grow-topic"
    expect = "nothing"

    @property
    def count(self) -> int:
        """The number of partitions after the change."""
        return len(self.old) + len(self.sets)

    @property
    def command(self) -> str:
        every = _assignment((*self.old, *self.sets))
        return _topics_command(
            "--alter", self.topic, f"--partitions {self.count} --replica-assignment {every}"
        )

    def describe(self) -> str:
        return f"let topic {self.topic} grow from {len(self.old):,} to {self.count:,} partitions"


def _topics_command(act: str, topic: str, rest: str) -> str:
    words = f"kafka-topics.sh --bootstrap-server {BOOTSTRAP} {act} --topic {shlex.quote(topic)} {rest}"
    return words.rstrip()


def _assignment(sets: tuple[tuple[int, ...], ...]) -> str:
    """Return replica lists in the format of ``kafka-topics.sh --replica-assignment``."""
    return ",".join(":".join(map(str, of)) for of in sets)


@dataclass(frozen=True)
class UnregisterBroker(ClusterChange):
    """A change that removes a broker that is down from a cluster without ZooKeeper.

    A broker that starts again registers again.
    """

    cluster: str
    broker: int
    verb = "unregister-broker"
    expect = "`Broker N is no longer registered.`"

    @property
    def command(self) -> str:
        return f"kafka-cluster.sh unregister --bootstrap-server {BOOTSTRAP} --id {self.broker}"

    def describe(self) -> str:
        return f"unregister broker {self.broker} from Kafka"


@dataclass(frozen=True)
class AlterAtController(ClusterChange):
    """A change to one dynamic config of a broker that is down, in a cluster without ZooKeeper.

    The other brokers reject the change. The controller accepts it until the broker is unregistered. before:
    the value that the run recorded, because a broker that is down does not report its own.
    """

    cluster: str
    broker: int
    key: str
    value: str | None
    before: str | None
    verb = "alter-at-controller"
    expect = "`Completed updating config` for the broker"

    @property
    def command(self) -> str:
        line = _configs_command(f"brokers --entity-name {self.broker}", self.key, self.value)
        return line.replace(f"--bootstrap-server {BOOTSTRAP}", "--bootstrap-controller CONTROLLER:PORT")

    def describe(self) -> str:
        return (
            f"{_configs_words(f'broker {self.broker}', self.key, self.value, self.before)} at the controller"
        )

    def inverse(self, _operation: str = "") -> AlterBrokerConfig:
        """Return the opposite change, sent to the broker itself, which is up again by then."""
        return AlterBrokerConfig(self.cluster, self.broker, self.key, self.before, self.value)

    def by_default(self) -> AlterBrokerConfig:
        return AlterBrokerConfig(**vars(self))


def _reassign_command(act: str, row: dict[str, object]) -> str:
    plan = shlex.quote(json.dumps({"version": 1, "partitions": [row]}))
    return (
        f"kafka-reassign-partitions.sh --bootstrap-server {BOOTSTRAP} {act} "
        f"--reassignment-json-file <(echo {plan})"
    )


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))
