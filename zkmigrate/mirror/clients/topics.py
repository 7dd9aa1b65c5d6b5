"""Reads topics as the mirror follows them, and changes target's."""

from __future__ import annotations

from collections.abc import Sequence

from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType
from kafka.errors import for_code
from kafka.protocol.admin import CreatePartitionsRequest
from kafka.protocol.metadata import MetadataRequest

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients.cluster import REQUEST_S, Cluster
from zkmigrate.mirror.rules.follow import Configure, Grow, State

_NO_TOPIC = 3
"""UNKNOWN_TOPIC_OR_PARTITION."""


def states(cluster: Cluster, names: Sequence[str]) -> dict[str, State | None]:
    """The topics now; None for one that does not exist. HostError if that cannot be told."""
    ids = _ids(cluster, names)
    found = cluster.topics([name for name, id in ids.items() if id is not None])
    told: dict[str, State | None] = {}
    for name, id in ids.items():
        if id is None:
            told[name] = None
            continue
        if name not in found:
            raise HostError(f"{cluster.what} does not show topic {name} at the moment")
        one = found[name]
        told[name] = State(id, len(one.leaders), one.replicas, one.settings, one.own, one.known)
    return told


def _ids(cluster: Cluster, names: Sequence[str]) -> dict[str, str | None]:
    """Topic ids, empty from brokers that have none (before 2.8); None for a topic that does not exist."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    answer = cluster.end(cluster.begin(MetadataRequest(topics=topics, allow_auto_topic_creation=False)))
    if answer.controller_id < 0:
        raise HostError(f"{cluster.what}: a broker that has just started does not know the topics yet")
    found: dict[str, str | None] = {}
    for one in answer.topics:
        if one.error_code == _NO_TOPIC:
            found[one.name] = None
        elif one.partitions:
            found[one.name] = str(one.topic_id) if one.topic_id and one.topic_id.int else ""
        else:
            why = for_code(one.error_code).__name__
            raise HostError(f"{cluster.what} does not show topic {one.name}: {why}")
    return found


def grow(cluster: Cluster, change: Grow) -> None:
    """Add partitions to a topic. HostError with Kafka's reason."""
    answer = cluster.end(cluster.begin(MetadataRequest(topics=[], allow_auto_topic_creation=False)))
    new = CreatePartitionsRequest.CreatePartitionsTopic(
        name=change.topic, count=change.partitions, assignments=None
    )
    request = CreatePartitionsRequest(topics=[new], timeout_ms=int(REQUEST_S * 1000), validate_only=False)
    [told] = cluster.end(cluster.begin(request, answer.controller_id)).results
    if told.error_code:
        why = told.error_message or for_code(told.error_code).__name__
        raise HostError(f"{cluster.what} did not add partitions to topic {change.topic}: {why}")


def configure(cluster: Cluster, change: Configure) -> None:
    """Set and remove settings of a topic. HostError with Kafka's reason."""
    settings: dict[str, tuple[AlterConfigOp, str | None]]
    settings = {key: (AlterConfigOp.SET, value) for key, value in change.put.items()}
    settings |= dict.fromkeys(change.remove, (AlterConfigOp.DELETE, None))
    resource = ConfigResource(ConfigResourceType.TOPIC, change.topic, settings)
    told = cluster.call(
        lambda admin: admin.alter_configs([resource], raise_on_unknown=False, incremental=True)
    )
    said = told["topic"][change.topic]
    if said != "OK":
        raise HostError(f"{cluster.what} did not change settings of topic {change.topic}: {said}")
