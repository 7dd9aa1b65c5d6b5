"""Read and change a Kafka cluster through its brokers, release 2.3 to 3.9, with kafka-python.

Brokers before 2.4 cannot list reassignments. For those the caller reads the znode
``/admin/reassign_partitions`` (Kafka's ReassignPartitionsZNode), where that is allowed already.
"""

from __future__ import annotations

import logging
import queue
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, overload

from kafka import TopicPartition, TopicPartitionReplica
from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    BrokerIdNotRegisteredError,
    ElectionNotNeededError,
    IncompatibleBrokerVersion,
    KafkaError,
    KafkaTimeoutError,
    NoError,
    NoReassignmentInProgressError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.admin.topics import ElectionType
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions
from kafka.protocol.metadata import MetadataRequest

from zkmigrate import json_text
from zkmigrate.errors import HostError
from zkmigrate.hosts.parallel import together
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
from zkmigrate.kafka.clients import controller, schemas
from zkmigrate.kafka.clients.canary import BrokerCanary
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.kafka.said import reason, said
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look, Pulse

T = TypeVar("T")

MIN_ISR = "min.insync.replicas"
REASSIGNMENTS = "/admin/reassign_partitions"
"""Path below the chroot; before Kafka 2.4 the znode exists exactly while a reassignment runs."""

_PULSE_S = 3.0
_SILENT_S = 10.0
"""Seconds for which a broker gets no further question after one timed out."""
_QUESTION_S = 20.0
"""Seconds until a question times out. Five seconds were too few for brokers that had a quarter of two
cores."""
GARBLED = (KeyError, ValueError, TypeError)
"""The exceptions that reading an unexpected answer raises."""

_ELECTION_S, _TOLD_S = 60.0, 20.0
"""Seconds to wait for the answer to an election, and then until every broker knows the new leaders."""

ALTERED, _TOLD = "OK", re.compile(r"\[Error (-?\d+)\] \w+: (.*)", re.DOTALL)
"""The text in which kafka-python reports that a resource was altered, and the form in which it reports a
broker's error."""
TIMED_OUT = RequestTimedOutError.message
"""The beginning of the error text in which a broker reports that its controller did not respond in time."""

_OWN = "DYNAMIC_TOPIC_CONFIG"
_OFFLINE = (5, 9)
"""LEADER_NOT_AVAILABLE and REPLICA_NOT_AVAILABLE: metadata errors that describe a partition's state."""

logging.getLogger("kafka").addHandler(logging.NullHandler())  # errors are reported in the Reading


def view(
    brokers: Sequence[str],
    reassignments: Callable[[], Reading[bytes] | None],
    deadline_s: float = _QUESTION_S,
    witnesses: int | None = None,
) -> Reading[KafkaView]:
    """Return the state of the cluster at ``brokers`` (``host:port``).

    reassignments: reads the znode ``REASSIGNMENTS`` if the brokers cannot list reassignments. It returns None
    if no server may be read yet. deadline_s: seconds for each question. Brokers that hang get no questions.
    witnesses: how many brokers report metadata; None for all.
    """

    def question(admin: Any, releases: Mapping[str, str]) -> Reading[KafkaView]:
        everybody = len(releases) == len(set(brokers))
        return _view(admin, reassignments, releases, everybody=everybody, witnesses=witnesses)

    return ask(brokers, question, deadline_s)


def partitions_of(brokers: Sequence[str], topic: str) -> Reading[Sequence[PartitionState]]:
    """Return the partitions of a topic of the cluster at ``brokers`` (``host:port``)."""

    def question(admin: Any, _releases: Mapping[str, str]) -> Reading[Sequence[PartitionState]]:
        partitions = _partitions(admin.describe_topics([topic]))
        return partitions if isinstance(partitions, Unknown) else Seen(partitions)

    return ask(brokers, question)


def ask(
    brokers: Sequence[str],
    question: Callable[[Any, Mapping[str, str]], Reading[T]],
    deadline_s: float = _QUESTION_S,
) -> Reading[T]:
    """Return the result of ``question(client, releases)`` for the cluster at ``brokers`` (``host:port``).

    releases: the release of each broker that answers. Errors of Kafka, of the network and in the answer
    become Unknown.
    """
    releases = _answering(brokers)
    if not releases:
        return Unknown("timeout", f"no broker of {', '.join(brokers)} answered in {_PULSE_S:g} s")
    try:
        if isinstance(brokers, Brokers):
            return brokers.put(question, releases)
        with closing(_client(brokers, releases, deadline_s)) as admin:
            return question(admin, releases)
    except KafkaTimeoutError as error:
        silent = f"no broker of {', '.join(brokers)} answered in {deadline_s:g} s"
        return Unknown("timeout", f"{silent}: {reason(error)}")
    except AuthorizationError as error:
        return Unknown("denied", f"Kafka at {', '.join(brokers)}: {reason(error)}")
    except (KafkaError, OSError) as error:
        return Unknown("failed", f"Kafka at {', '.join(brokers)}: {reason(error)}")
    except GARBLED as error:
        return Unknown(
            "garbled", f"Kafka at {', '.join(brokers)} answered something not understood: {reason(error)}"
        )


def _client(brokers: Sequence[str], answering: Collection[str], deadline_s: float) -> Any:
    """Return a client that sends its requests only to brokers that answer."""
    admin = _admin(answering, deadline_s)
    if len(answering) < len(set(brokers)):
        _keep_to(admin, answering)
    return admin


class Brokers(Sequence[str]):
    """The brokers of one cluster, each ``host:port``, with their open connections.

    Each question sent with :func:`ask` reuses the connections of earlier ones. It does not wait again for a
    broker that recently timed out.
    """

    def __init__(self, at: Iterable[str]) -> None:
        self._at = tuple(at)
        self._canary = BrokerCanary({broker: _split(broker) for broker in self._at})
        self._idle: queue.SimpleQueue[tuple[Any, frozenset[str]]] = queue.SimpleQueue()
        self._silent_until: dict[str, float] = {}

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._at[at]

    def __len__(self) -> int:
        return len(self._at)

    def releases(self) -> dict[str, str]:
        """Return the brokers that answer now, each with its release as MAJOR.MINOR, by their ApiVersions."""
        now = time.monotonic()
        heard = [broker for broker in self._at if self._silent_until.get(broker, now) <= now]
        pulses = together({broker: partial(self._pulse, broker) for broker in heard or self._at})
        return {broker: _release(pulse.apis) for broker, pulse in pulses.items() if not pulse.why}

    def _pulse(self, broker: str) -> Pulse:
        began = time.monotonic()
        pulse = self._canary.ask(broker, _PULSE_S)
        now = time.monotonic()
        self._silent_until[broker] = now + _SILENT_S if pulse.why and now - began >= _PULSE_S else now
        return pulse

    def put(self, question: Callable[[Any, Mapping[str, str]], T], releases: Mapping[str, str]) -> T:
        """Return the answer to a question, over an idle client if there is one, otherwise over a new one.

        If the idle client fails, a new one asks again, because the brokers may have closed the old
        connections. Raises what the question raises; a timeout is not retried.
        """
        kept = self._taken(frozenset(releases))
        if kept is not None:
            try:
                return self._asked(kept, question, releases)
            except (KafkaTimeoutError, RequestTimedOutError):
                raise
            except (KafkaError, OSError):
                pass
        return self._asked(_client(self, releases, _QUESTION_S), question, releases)

    def _asked(
        self, admin: Any, question: Callable[[Any, Mapping[str, str]], T], releases: Mapping[str, str]
    ) -> T:
        try:
            answer = question(admin, releases)
        except BaseException:
            admin.close()
            raise
        self._idle.put((admin, frozenset(releases)))
        return answer

    def _taken(self, answering: frozenset[str]) -> Any:
        """Return an idle client that knows exactly these brokers, or None if there is none.

        Other clients are closed: they may be connected to a broker that hangs, or not to one that is back.
        """
        with suppress(queue.Empty):
            while True:
                admin, knows = self._idle.get_nowait()
                if knows == answering:
                    return admin
                admin.close()
        return None

    def close(self) -> None:
        """Close every connection."""
        self._taken(frozenset())
        self._canary.close()


def _admin(answering: Collection[str], deadline_s: float) -> Any:
    """Return a client for these brokers, which answer.

    Brokers without ZooKeeper pass requests for the controller on, so one of these brokers gets them. Their
    Metadata may name any broker as the controller, even one that is dead but has not left the cluster yet.
    """
    milliseconds = int(deadline_s * 1000)
    admin = KafkaAdminClient(
        bootstrap_servers=list(answering),
        client_id="zkmigrate",
        request_timeout_ms=milliseconds,
        bootstrap_timeout_ms=milliseconds,
    )
    if UnregisterBrokerRequest.API_KEY in admin._manager.broker_version_data.api_versions:
        here = [b.node_id for b in admin._manager.cluster.brokers() if f"{b.host}:{b.port}" in answering]
        admin._controller_id = next(iter(here), None)
    return admin


def _keep_to(admin: Any, answering: Collection[str]) -> None:
    """Connect the client to one of these brokers.

    A client prefers a broker that it is connected to. Otherwise it takes any of the cluster, perhaps one that
    hangs.
    """
    for broker in admin._manager.cluster.brokers():
        if f"{broker.host}:{broker.port}" in answering:
            admin._manager.run(_metadata, admin, broker.node_id, ())
            return


def _answering(brokers: Sequence[str]) -> dict[str, str]:
    """Return the brokers that answer now, each with its release as MAJOR.MINOR, by their ApiVersions.

    A client that started from a hanging broker would wait in vain.
    """
    if isinstance(brokers, Brokers):
        return brokers.releases()
    with closing(Brokers(brokers)) as asked:
        return asked.releases()


def _release(apis: Mapping[int, tuple[int, int]]) -> str:
    # kafka-python knows which version of which API came with which release.
    return ".".join(map(str, infer_broker_version_from_api_versions(apis)))


def _split(broker: str) -> tuple[str, int]:
    address, _, port = broker.rpartition(":")
    return address.strip("[]"), int(port)


def _view(
    admin: Any,
    reassignments: Callable[[], Reading[bytes] | None],
    releases: Mapping[str, str],
    everybody: bool,
    witnesses: int | None,
) -> Reading[KafkaView]:
    """Return the state of the cluster from the answers of several brokers.

    everybody: whether no broker hangs. Then every broker in the metadata is queried, otherwise only those in
    ``releases``.
    """
    first = admin._manager.run(_metadata, admin, None)
    answers = [first]
    here = reachable(first, releases, everybody=everybody)
    for id in here[:witnesses]:
        with suppress(KafkaError):  # it went down meanwhile
            answers.append(admin._manager.run(_metadata, admin, id))
    # A broker that has just started answers without topics until its controller informs it, and may name all
    # brokers in the same answer (2.8 reads topics and brokers one after the other).
    answers = [answer for answer in answers if answer["topics"]] or answers
    cluster = answers[-1]
    brokers = {
        b["node_id"]: (b["host"], b["port"], b["rack"] or "")
        for b in cluster["brokers"]
        if all(b["node_id"] in {other["node_id"] for other in answer["brokers"]} for answer in answers)
    }
    partitions = agreed(answer["topics"] for answer in answers)
    if isinstance(partitions, Unknown):
        return partitions
    moving = _reassigning(admin, reassignments)
    if isinstance(moving, Unknown):
        return moving
    names = [t["name"] for t in cluster["topics"]]
    return Seen(
        KafkaView(
            cluster["cluster_id"],
            cluster["controller_id"],
            brokers,
            partitions,
            _min_isr(admin, names, [id for id in here if id in brokers]),
            moving,
            releases,
        )
    )


def reachable(cluster: Mapping[str, Any], releases: Mapping[str, str], *, everybody: bool) -> list[int]:
    """Return the sorted ids of the brokers in a Metadata answer that do not hang.

    everybody: whether all brokers of the inventory answer. If not, only those in ``releases`` count.
    """
    return sorted(
        broker["node_id"]
        for broker in cluster["brokers"]
        if everybody or f"{broker['host']}:{broker['port']}" in releases
    )


async def _metadata(admin: Any, broker: int | None, topics: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the metadata of these topics (None for all) from one broker (None for any).

    kafka-python 3.0.12 has no public call for this, and its describe_cluster fails on brokers 2.8 to 3.6
    (KeyError: endpoint_type).
    """
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=t) for t in topics]
    request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    answer: dict[str, Any] = (await admin._manager.send(request, node_id=broker)).to_dict()
    return answer


def agreed(answers: Iterable[Sequence[Mapping[str, Any]]]) -> tuple[PartitionState, ...] | Unknown:
    """Merge the partitions in several brokers' answers, in order, with the leader of the last answer.

    A replica counts as in sync only if every broker reports it so, because one may not know of a change yet.
    Returns Unknown for an error other than an offline leader or replica.
    """
    partitions: dict[tuple[str, int], PartitionState] = {}
    for topics in answers:
        answer = _partitions(topics)
        if isinstance(answer, Unknown):
            return answer
        for p in answer:
            known = partitions.get((p.topic, p.partition))
            isr = p.isr if known is None else tuple(id for id in p.isr if id in known.isr)
            partitions[p.topic, p.partition] = replace(p, isr=isr)
    return tuple(partitions[key] for key in sorted(partitions))


def _partitions(topics: Sequence[Mapping[str, Any]]) -> list[PartitionState] | Unknown:
    """Return the partitions in one answer.

    Returns Unknown for an error other than an offline leader or replica.
    """
    found = []
    for topic in topics:
        if topic["error_code"] not in (0, *_OFFLINE):
            return Unknown("failed", f"metadata of topic {topic['name']}: {said(topic['error_code'])}")
        for p in topic["partitions"]:
            if p["error_code"] not in (0, *_OFFLINE):
                where = f"{topic['name']}-{p['partition_index']}"
                return Unknown("failed", f"metadata of {where}: {said(p['error_code'])}")
            found.append(
                PartitionState(
                    topic["name"],
                    p["partition_index"],
                    p["leader_id"],
                    tuple(p["replica_nodes"]),
                    tuple(p["isr_nodes"]),
                )
            )
    return found


def _min_isr(admin: Any, topics: Sequence[str], brokers: Sequence[int]) -> dict[str, int]:
    """Return the effective min.insync.replicas of each topic: its own setting, else the brokers' largest.

    Brokers may differ and the leader's value counts, so the largest is safe. Brokers that cannot answer, or
    are not allowed to, are skipped.
    """

    def default(id: int) -> list[int]:
        with suppress(KafkaError):
            return [value for value, _ in _settings(admin, ConfigResourceType.BROKER, [str(id)]).values()]
        return []

    topic_settings = _settings(admin, ConfigResourceType.TOPIC, topics)
    told = together({str(id): partial(default, id) for id in brokers})
    defaults = [value for own in told.values() for value in own]
    return {name: value if own else max([value, *defaults]) for name, (value, own) in topic_settings.items()}


def _settings(admin: Any, kind: ConfigResourceType, names: Sequence[str]) -> dict[str, tuple[int, bool]]:
    """Return min.insync.replicas of each topic or broker, and whether it is a topic's own setting.

    Raises KafkaError if a value is missing; the library drops the broker's reason.
    """
    asked = [ConfigResource(kind, name, [MIN_ISR]) for name in names]
    found = admin.describe_configs(asked, config_filter="all") if asked else {}
    settings = found.get(kind.name.lower(), {})
    if untold := [name for name in names if MIN_ISR not in settings.get(name, {})]:
        why = "it was deleted just now, or the account may not describe its configs"
        raise KafkaError(f"{MIN_ISR} of {kind.name.lower()} {untold[0]} was not told: {why}")
    return {
        name: (int(settings[name][MIN_ISR]["value"]), settings[name][MIN_ISR]["config_source"] == _OWN)
        for name in names
    }


def alterer(inventory: Inventory, _look: Look) -> Alter:
    """Return the sender of changes to the inventory's Kafka cluster."""
    return Alter([broker.endpoint for broker in inventory.brokers])


class Alter:
    """A sender of changes to the cluster at ``brokers`` (``host:port``).

    It reuses clients, so that thousands of changes open few connections.
    """

    def __init__(self, brokers: Sequence[str]) -> None:
        self._brokers = brokers
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
            refusal = self._sent(send, admin, change)
        except BaseException:
            admin.close()
            self.close()  # the idle clients may use the same broker, which failed
            raise
        self._idle.put(admin)
        return (1, refusal) if refusal else (0, change.describe())

    def close(self) -> None:
        """Close the idle clients."""
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait().close()

    def _new_client(self, change: ClusterChange) -> Any:
        answering = list(_answering(self._brokers))
        if not answering:
            asked = ", ".join(self._brokers)
            raise HostError(f"no broker of {asked} answered in {_PULSE_S:g} s; nothing was sent to Kafka")
        try:
            return _admin(answering, _ELECTION_S if isinstance(change, ElectLeaders) else _QUESTION_S)
        except (KafkaError, OSError) as error:
            raise self._not_known(change, reason(error)) from None

    def _sent(self, send: Callable[[Any, Any], str], admin: Any, change: ClusterChange) -> str:
        """Return why Kafka refused a change; empty if Kafka accepted it.

        Raises HostError if the outcome is unknown.
        """
        try:
            refusal = send(admin, change)
        except IncompatibleBrokerVersion as error:  # the client knows that before it sends
            return reason(error)
        except (KafkaError, OSError, RuntimeError, *GARBLED) as error:  # RuntimeError: no controller
            raise self._not_known(change, reason(error)) from None
        if TIMED_OUT in refusal:  # the broker timed out waiting for its controller
            raise self._not_known(change, refusal)
        return refusal

    def _not_known(self, change: ClusterChange, why: str) -> HostError:
        asked = f"Kafka at {', '.join(self._brokers)} did not confirm: {change.describe()}"
        return HostError(f"{asked}. Whether that was done is not known: {why}")


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
    told = _TOLD.fullmatch(outcome)
    return said(int(told[1]), "" if told[2] == "None" else told[2]) if told else outcome


def _reassign(admin: Any, change: ReassignPartition | CancelReassignment) -> str:
    """Start or cancel a reassignment with AlterPartitionReassignments (KIP-455, Kafka 2.4).

    The answer contains the partition's error as a value.
    """
    partition = TopicPartition(change.topic, change.partition)
    target = list(change.replicas) if isinstance(change, ReassignPartition) else None
    error = admin.alter_partition_reassignments({partition: target})[partition]
    if target is None and error is NoReassignmentInProgressError:  # it is finished or cancelled already
        return ""
    return "" if error is None else f"{change.topic}-{change.partition}: {said(error.errno)}"


def _place(admin: Any, change: PlaceReplica) -> str:
    """Choose the directory of a replica with AlterReplicaLogDirs (KIP-113, Kafka 1.0).

    A broker without the replica remembers the directory and answers REPLICA_NOT_AVAILABLE
    (``ReplicaManager.alterReplicaLogDirs``).
    """
    replica = TopicPartitionReplica(change.topic, change.partition, change.broker)
    error = admin.alter_replica_log_dirs({replica: change.path})[replica]
    if error in (NoError, ReplicaNotAvailableError):
        return ""
    return f"{change.topic}-{change.partition} on broker {change.broker}: {said(error.errno)}"


def _elect(admin: Any, change: ElectLeaders) -> str:
    """Elect preferred replicas with ElectLeaders (KIP-460, Kafka 2.2), and wait until brokers know them.

    If every partition is elected, Kafka's refusal of some is no refusal: it skips those whose preferred
    replica is not in sync.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, number in change.partitions:
        by_topic.setdefault(topic, []).append(number)
    answer = admin.elect_leaders(ElectionType.PREFERRED, by_topic or None, raise_errors=False).to_dict()
    elected, left = _election(answer)
    _until_told(admin, elected, tuple(by_topic) or None)
    return ", ".join(left[:5]) if change.partitions else ""


def create_topic(admin: Any, change: CreateTopic, *, only_validate: bool = False) -> str:
    """Create a topic and return why Kafka refused; empty if Kafka accepted.

    only_validate: let Kafka check the request without creating the topic.
    """
    wanted = {change.topic: {"assignments": dict(enumerate(map(list, change.sets)))}}
    answer = admin.create_topics(wanted, raise_errors=False, validate_only=only_validate)
    [told] = answer["topics"]
    return _topic_refused(change.topic, told)


def grow_topic(admin: Any, change: GrowTopic, *, only_validate: bool = False) -> str:
    """Add partitions to a topic and return why Kafka refused; empty if Kafka accepted.

    only_validate: let Kafka check the request without adding partitions.
    """
    wanted = {change.topic: {"count": change.count, "assignments": [list(of) for of in change.sets]}}
    answer = admin.create_partitions(wanted, raise_errors=False, validate_only=only_validate).to_dict()
    [told] = answer["results"]
    return _topic_refused(change.topic, told)


def _delete_topic(admin: Any, change: DeleteTopic) -> str:
    which = uuid.UUID(change.before) if change.before else change.topic
    [told] = admin.delete_topics([which], raise_errors=False)["topics"]
    if for_code(told["error_code"]) in (UnknownTopicOrPartitionError, UnknownTopicIdError):  # gone already
        return ""
    return _topic_refused(change.topic, told)


def _topic_refused(topic: str, told: Mapping[str, Any]) -> str:
    code = told["error_code"]
    return f"topic {topic}: {said(code, told.get('error_message'))}" if code else ""


class UnregisterBrokerRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """An UnregisterBroker request (KIP-631, Kafka 2.8), which only brokers without ZooKeeper accept."""


class UnregisterBrokerResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
    """The answer to an UnregisterBrokerRequest.

    Defining the class registers it with kafka-python, which then decodes answers with it.
    """


async def _forget(admin: Any, broker: int) -> dict[str, Any]:
    answer: dict[str, Any] = (await admin._manager.send(UnregisterBrokerRequest(broker_id=broker))).to_dict()
    return answer


def _unregister(admin: Any, change: UnregisterBroker) -> str:
    answer = admin._manager.run(_forget, admin, change.broker)
    error = for_code(answer["error_code"])
    if error in (NoError, BrokerIdNotRegisteredError):  # it was unregistered already
        return ""
    return f"broker {change.broker}: {said(answer['error_code'], answer['error_message'])}"


_SENDERS: Mapping[type[ClusterChange], Callable[[Any, Any], str]] = {
    AlterTopicConfig: _alter_config,
    AlterBrokerConfig: _alter_config,
    ReassignPartition: _reassign,
    CancelReassignment: _reassign,
    PlaceReplica: _place,
    ElectLeaders: _elect,
    UnregisterBroker: _unregister,
    AlterAtController: controller.alter,
    CreateTopic: create_topic,
    DeleteTopic: _delete_topic,
    GrowTopic: grow_topic,
}
"""The function that sends each kind of change over a client. It returns why Kafka refused; empty if Kafka
accepted."""


def _election(answer: Mapping[str, Any]) -> tuple[set[tuple[str, int]], list[str]]:
    """Return the partitions that were elected, and why others were not.

    Raises KafkaError if Kafka refused all.
    """
    if code := answer.get("error_code", 0):  # brokers before 2.4 have no top-level error
        raise for_code(code)
    results = [
        (topic["topic"], p["partition_id"], p["error_code"])
        for topic in answer["replica_election_results"]
        for p in topic["partition_result"]
    ]
    elected = {(topic, partition) for topic, partition, code in results if code == 0}
    left = [
        f"{topic}-{partition}: {said(code)}"
        for topic, partition, code in results
        if code not in (0, ElectionNotNeededError.errno)
    ]
    return elected, left


def _until_told(
    admin: Any, elected: Collection[tuple[str, int]], topics: Sequence[str] | None = None
) -> None:
    """Wait until every broker knows the elected leaders, or ``_TOLD_S`` is over.

    topics: the topics to ask about; None for all.
    """
    end = time.monotonic() + _TOLD_S
    while elected and _led_by_others(admin, topics).intersection(elected) and time.monotonic() < end:
        time.sleep(_TOLD_S / 100)


def _led_by_others(admin: Any, topics: Sequence[str] | None) -> set[tuple[str, int]]:
    """Return the partitions that, according to any broker, their preferred replica does not lead."""
    found = set()
    for broker in admin._manager.run(_metadata, admin, None)["brokers"]:
        with suppress(KafkaError):  # it went down meanwhile
            asked = (broker["node_id"],) if topics is None else (broker["node_id"], topics)
            answer = _partitions(admin._manager.run(_metadata, admin, *asked)["topics"])
            partitions = answer if isinstance(answer, list) else []
            found |= {(p.topic, p.partition) for p in partitions if p.leader != p.replicas[0]}
    return found


def _reassigning(
    admin: Any, reassignments: Callable[[], Reading[bytes] | None]
) -> tuple[tuple[str, int], ...] | Unknown | None:
    try:
        return tuple(sorted((tp.topic, tp.partition) for tp in admin.list_partition_reassignments()))
    except IncompatibleBrokerVersion:
        reading = reassignments()
    if reading is None:
        return None
    if isinstance(reading, Absent):
        return ()
    if isinstance(reading, Unknown):
        return Unknown(
            reading.cause, f"these brokers cannot list reassignments; {REASSIGNMENTS}: {reading.why}"
        )
    return parse_reassignments(reading.value)


def parse_reassignments(data: bytes) -> tuple[tuple[str, int], ...] | Unknown:
    """Return the partitions in the reassignment znode, or Unknown if its content is not understood.

    Format: JSON, ``{"version":1,"partitions":[{"topic":…,"partition":…},…]}``.
    """
    try:
        listed = [(one["topic"], one["partition"]) for one in json_text.loads(data)["partitions"]]
        if not all(type(topic) is str and type(number) is int for topic, number in listed):
            raise ValueError("a topic is not a text, or a partition is not a number")
        return tuple(sorted(listed))
    except (ValueError, KeyError, TypeError) as error:
        return Unknown("garbled", f"{REASSIGNMENTS} is not what Kafka writes there: {reason(error)}")
