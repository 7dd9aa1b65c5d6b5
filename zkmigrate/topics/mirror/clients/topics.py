"""Read topics for the mirror, and create and change topics on target.

The module also sends trial requests, to find out which changes target would accept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.errors import for_code
from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from zkmigrate.errors import HostError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.topics.mirror.clients.cluster import NO_TOPIC, REQUEST_S, Cluster
from zkmigrate.topics.mirror.rules.follow import Configure, Grow, State
from zkmigrate.topics.mirror.rules.topic import Settings, describe

_EXISTS = 36
"""Kafka's error code TOPIC_ALREADY_EXISTS."""
_TOPIC, _SET, _DELETE = 2, 0, 1
"""Codes of IncrementalAlterConfigs: the resource type of topics, and the operations to set and to delete."""


class RefusedError(HostError):
    """Raised if Kafka refused a request, so that nothing was changed."""


@dataclass(frozen=True)
class New:
    """A topic to be created on target."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Tried:
    """The result of a trial creation of a topic on target.

    refused: Kafka's reason to refuse the topic; empty if it would be created. settings: the settings that the
    topic would have; None if Kafka does not report them.
    """

    refused: str
    settings: Settings | None


def states(cluster: Cluster, names: Sequence[str]) -> tuple[dict[str, State | None], dict[str, str]]:
    """Read the current state of topics.

    Returns two dicts by topic: the states, and the reasons why other topics could not be read. A state is
    None for a topic that does not exist. Raises HostError if no topic can be read.
    """
    ids, hidden = _ids(cluster, names)
    found, unread = cluster.topics([name for name, id in ids.items() if id is not None])
    hidden |= unread
    told: dict[str, State | None] = {}
    for name, id in ids.items():
        if id is None:
            told[name] = None
        elif name in found:
            one = found[name]
            told[name] = State(id, len(one.leaders), one.replicas, one.settings)
        else:
            hidden.setdefault(name, f"{cluster.what} does not report topic {name} at the moment")
    return told, hidden


def _ids(cluster: Cluster, names: Sequence[str]) -> tuple[dict[str, str | None], dict[str, str]]:
    """Read the ids of topics.

    Returns two dicts by topic: the ids, and the reasons why other ids could not be read. An id is empty if
    the brokers have none (before 2.8), and None for a topic that does not exist.
    """
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    answer = cluster.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    if answer.controller_id < 0:
        raise HostError(f"{cluster.what}: a broker that has just started has not loaded the topics yet")
    found, hidden = dict[str, str | None](), dict[str, str]()
    for one in answer.topics:
        if one.error_code == NO_TOPIC:
            found[one.name] = None
        elif one.partitions:
            found[one.name] = str(one.topic_id) if one.topic_id and one.topic_id.int else ""
        else:
            hidden[one.name] = (
                f"{cluster.what} does not report topic {one.name}: {describe_error(one.error_code)}"
            )
    return found, hidden


def make(cluster: Cluster, new: New) -> None:
    """Create a topic. A topic that exists already stays as it is.

    Raises RefusedError with Kafka's reason, or HostError if the outcome is unknown.
    """
    told = cluster.end(_begin_making(cluster, new, cluster.controller(), trial=False)).topics[0]
    if told.error_code not in (0, _EXISTS):
        why = describe_error(told.error_code, told.error_message)
        raise RefusedError(f"{cluster.what} did not create topic {new.name}: {why}")


def try_making(cluster: Cluster, new: Iterable[New]) -> dict[str, Tried]:
    """Find out how target would answer the creation of topics that do not exist yet.

    Nothing is changed. All requests are in flight at the same time. Raises HostError if target cannot
    validate the requests at the moment.
    """
    wanted = list(new)
    node = cluster.controller() if wanted else -1
    sent = {one.name: _begin_making(cluster, one, node, trial=True) for one in wanted}
    found = {}
    for name, one in sent.items():
        told = cluster.end(one).topics[0]
        if for_code(told.error_code).retriable:  # the error is not about the topic
            raise HostError(f"{cluster.what}: {describe_error(told.error_code, told.error_message)}")
        configs = [(c.name, c.value or "", c.config_source, ()) for c in told.configs or ()]
        why = (
            describe_error(told.error_code, told.error_message) if told.error_code not in (0, _EXISTS) else ""
        )
        found[name] = Tried(why, describe(configs) if configs else None)
    return found


def _begin_making(cluster: Cluster, new: New, node: int, *, trial: bool) -> Any:
    kind = CreateTopicsRequest.CreatableTopic
    topic = kind(
        name=new.name,
        num_partitions=new.partitions,
        replication_factor=new.replicas,
        assignments=[],
        configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in new.settings.items()],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(REQUEST_S * 1000), validate_only=trial)
    return cluster.begin(request, node)


def grow(cluster: Cluster, change: Grow) -> None:
    """Add partitions to a topic.

    Raises RefusedError with Kafka's reason.
    """
    new = CreatePartitionsRequest.CreatePartitionsTopic(
        name=change.topic, count=change.partitions, assignments=None
    )
    request = CreatePartitionsRequest(topics=[new], timeout_ms=int(REQUEST_S * 1000), validate_only=False)
    [told] = cluster.end(cluster.begin(request, cluster.controller())).results
    if told.error_code:
        why = describe_error(told.error_code, told.error_message)
        raise RefusedError(f"{cluster.what} did not add partitions to topic {change.topic}: {why}")


def configure(cluster: Cluster, change: Configure) -> None:
    """Set and remove settings of a topic. Each setting that Kafka accepts is changed.

    Raises RefusedError with Kafka's reason for each setting that it refuses.
    """
    if told := _refused(cluster, [change], trial=False)[change.topic]:
        several = len(change.put) + len(change.remove) > 1
        wrong = _each(cluster, change, trial=False) if several else {}
        if wrong or not several:
            why = "; ".join(f"{key}: {why}" for key, why in wrong.items()) or told
            raise RefusedError(f"{cluster.what} did not change settings of topic {change.topic}: {why}")


def try_configuring(cluster: Cluster, changes: Iterable[Configure]) -> dict[str, dict[str, str]]:
    """Return, by topic, the settings that target would refuse to change, each with the reason.

    Nothing is changed. The key "" gives the reason if target refuses only the combination of settings.
    """
    found = {}
    every = {one.topic: one for one in changes}
    for name, why in _refused(cluster, every.values(), trial=True).items():
        if why:
            found[name] = _each(cluster, every[name], trial=True) or {"": why}
    return found


def _each(cluster: Cluster, change: Configure, *, trial: bool) -> dict[str, str]:
    """Send each setting of a change on its own, and return the refused settings with Kafka's reasons.

    trial: whether Kafka only validates the settings.
    """
    parts = {key: Configure(change.topic, {key: value}, ()) for key, value in change.put.items()}
    parts |= {key: Configure(change.topic, {}, (key,)) for key in change.remove}
    told = {key: _refused(cluster, [one], trial=trial)[change.topic] for key, one in parts.items()}
    return {key: why for key, why in told.items() if why}


def _refused(cluster: Cluster, changes: Iterable[Configure], *, trial: bool) -> dict[str, str]:
    """Send changes, and return, by topic, the reason why target refuses them; empty if it accepts them.

    trial: whether Kafka only validates the changes.
    """
    kind = IncrementalAlterConfigsRequest.AlterConfigsResource
    asked = [
        kind(
            resource_type=_TOPIC,
            resource_name=one.topic,
            configs=[
                kind.AlterableConfig(name=key, config_operation=act, value=value)
                for key, act, value in (
                    *((key, _SET, value) for key, value in one.put.items()),
                    *((key, _DELETE, None) for key in one.remove),
                )
            ],
        )
        for one in changes
    ]
    if not asked:
        return {}
    request = IncrementalAlterConfigsRequest(resources=asked, validate_only=trial)
    found = {}
    for told in (cluster.ask(request) if trial else cluster.end(cluster.begin(request))).responses:
        found[told.resource_name] = (
            describe_error(told.error_code, told.error_message) if told.error_code else ""
        )
    return found
