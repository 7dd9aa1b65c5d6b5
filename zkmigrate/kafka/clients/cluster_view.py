"""Read the state of a Kafka cluster through its brokers, release 2.3 to 3.9.

Brokers before 2.4 cannot list reassignments. For those the caller reads the znode
``/admin/reassign_partitions`` (Kafka's ReassignPartitionsZNode), if it may already be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import IncompatibleBrokerVersion, KafkaError

from zkmigrate import json_text
from zkmigrate.hosts.parallel import together
from zkmigrate.kafka.clients.connections import QUESTION_S, ask
from zkmigrate.kafka.clients.library import metadata
from zkmigrate.kafka.error_text import describe_error, describe_exception
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown

MIN_ISR = "min.insync.replicas"
REASSIGNMENTS = "/admin/reassign_partitions"
"""Path below the chroot; before Kafka 2.4 the znode exists exactly while a reassignment runs."""

_OWN = "DYNAMIC_TOPIC_CONFIG"
_OFFLINE = (5, 9)
"""LEADER_NOT_AVAILABLE and REPLICA_NOT_AVAILABLE: metadata errors that describe a partition's state."""


def view(
    brokers: Sequence[str],
    reassignments: Callable[[], Reading[bytes] | None],
    deadline_s: float = QUESTION_S,
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
        partitions = parse_partitions(admin.describe_topics([topic]))
        return partitions if isinstance(partitions, Unknown) else Seen(partitions)

    return ask(brokers, question)


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
    first = metadata(admin, None)
    answers = [first]
    here = reachable(first, releases, everybody=everybody)
    for id in here[:witnesses]:
        with suppress(KafkaError):  # it went down meanwhile
            answers.append(metadata(admin, id))
    # A broker that has just started answers without topics until its controller informs it, and may name all
    # brokers in the same answer (2.8 reads topics and brokers one after the other).
    answers = [answer for answer in answers if answer["topics"]] or answers
    cluster = answers[-1]
    brokers = {
        b["node_id"]: (b["host"], b["port"], b["rack"] or "")
        for b in cluster["brokers"]
        if all(b["node_id"] in {other["node_id"] for other in answer["brokers"]} for answer in answers)
    }
    partitions = merge_partitions(answer["topics"] for answer in answers)
    if isinstance(partitions, Unknown):
        return partitions
    moving = _moving_partitions(admin, reassignments)
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


def merge_partitions(answers: Iterable[Sequence[Mapping[str, Any]]]) -> tuple[PartitionState, ...] | Unknown:
    """Merge the partitions in several brokers' answers, in order, with the leader of the last answer.

    A replica counts as in sync only if every broker reports it so, because one may not know of a change yet.
    Returns Unknown for an error other than an offline leader or replica.
    """
    partitions: dict[tuple[str, int], PartitionState] = {}
    for topics in answers:
        answer = parse_partitions(topics)
        if isinstance(answer, Unknown):
            return answer
        for p in answer:
            known = partitions.get((p.topic, p.partition))
            isr = p.isr if known is None else tuple(id for id in p.isr if id in known.isr)
            partitions[p.topic, p.partition] = replace(p, isr=isr)
    return tuple(partitions[key] for key in sorted(partitions))


def parse_partitions(topics: Sequence[Mapping[str, Any]]) -> list[PartitionState] | Unknown:
    """Return the partitions in one answer.

    Returns Unknown for an error other than an offline leader or replica.
    """
    found = []
    for topic in topics:
        if topic["error_code"] not in (0, *_OFFLINE):
            return Unknown(
                "failed", f"metadata of topic {topic['name']}: {describe_error(topic['error_code'])}"
            )
        for p in topic["partitions"]:
            if p["error_code"] not in (0, *_OFFLINE):
                where = f"{topic['name']}-{p['partition_index']}"
                return Unknown("failed", f"metadata of {where}: {describe_error(p['error_code'])}")
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
    answers_by_id = together({str(id): partial(default, id) for id in brokers})
    defaults = [value for own in answers_by_id.values() for value in own]
    return {name: value if own else max([value, *defaults]) for name, (value, own) in topic_settings.items()}


def _settings(admin: Any, kind: ConfigResourceType, names: Sequence[str]) -> dict[str, tuple[int, bool]]:
    """Return min.insync.replicas of each topic or broker, and whether it is a topic's own setting.

    Raises KafkaError if a value is missing; the library drops the broker's reason.
    """
    resources = [ConfigResource(kind, name, [MIN_ISR]) for name in names]
    found = admin.describe_configs(resources, config_filter="all") if resources else {}
    settings = found.get(kind.name.lower(), {})
    if missing := [name for name in names if MIN_ISR not in settings.get(name, {})]:
        why = "it was just deleted, or the account may not describe its configs"
        raise KafkaError(f"{MIN_ISR} of {kind.name.lower()} {missing[0]} is missing in the answer: {why}")
    return {
        name: (int(settings[name][MIN_ISR]["value"]), settings[name][MIN_ISR]["config_source"] == _OWN)
        for name in names
    }


def _moving_partitions(
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
            raise ValueError("a topic is not a string, or a partition is not a number")
        return tuple(sorted(listed))
    except (ValueError, KeyError, TypeError) as error:
        return Unknown("garbled", f"cannot parse {REASSIGNMENTS}: {describe_exception(error)}")
