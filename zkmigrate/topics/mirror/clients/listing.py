"""List a cluster's groups with state and type, and read the topics that groups of newer types use.

DescribeGroups describes only classic groups: up to version 5 it reports a live group of another type as Dead.
kafka-python has no messages for the other types, so their schemas are stored beside this module.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import MetadataRequest

from zkmigrate.errors import HostError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.runbook.model.finding import few
from zkmigrate.topics.mirror.clients import schemas
from zkmigrate.topics.mirror.clients.cluster import Cluster
from zkmigrate.topics.mirror.clients.leads import GROUP, told_of
from zkmigrate.topics.mirror.rules.commits import INACTIVE
from zkmigrate.topics.mirror.rules.direction import Lead
from zkmigrate.topics.mirror.rules.needed import COMMITS

_AT_ONCE = 4
"""The most requests in flight to one cluster."""
_HIDDEN = 30
"""Kafka's error code GROUP_AUTHORIZATION_FAILED."""
SHARE = "share"
_CONSUMER, _STREAMS = "consumer", "streams"
_NEWER = {
    _CONSUMER: "a group of KIP-848 (group.protocol=consumer)",
    SHARE: "a share group (KIP-932)",
    _STREAMS: "a streams group (KIP-1071)",
}
"""For messages: descriptions of the types of groups that cannot switch."""

with warnings.catch_warnings():
    # This is how kafka-python itself reads its schemas.
    warnings.simplefilter("ignore", DeprecationWarning)

    class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
        """The request for the members of KIP-848 consumer groups."""

    class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
        """The response to ``ConsumerGroupDescribeRequest``."""

    class ShareGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
        """The request for the members of share groups."""

    class ShareGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
        """The response to ``ShareGroupDescribeRequest``."""

    class StreamsGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
        """The request for the topologies of streams groups."""

    class StreamsGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
        """The response to ``StreamsGroupDescribeRequest``."""

    class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
        """The request for the start offsets of share groups."""

    class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc, call-arg]
        """The response to ``DescribeShareGroupOffsetsRequest``."""


class Listed(NamedTuple):
    """A group as Kafka's ListGroups reports it.

    broker: the id of the group's coordinator. state: Kafka's name for the group's state, empty before Kafka
    2.6. type: classic, consumer, share or streams; empty before Kafka 3.8, where almost all groups are
    classic.
    """

    broker: int
    state: str
    type: str = ""

    @property
    def newer(self) -> str:
        """A description of a group that cannot switch, for messages; empty if the group can switch.

        A KIP-848 group without members can switch, because it consists only of its commits, which are copied.
        """
        if self.type == _CONSUMER and self.state in INACTIVE:
            return ""
        return f"{_NEWER[self.type]}, {self.state}" if self.type in _NEWER else ""


def leads(cluster: Cluster, topics: Collection[str]) -> dict[str, Lead]:
    """Return the leading cluster of each topic, as this cluster has recorded it.

    The function does not look for a coordinator, because that would create ``__consumer_offsets``. It raises
    HostError if the request fails, or if this account may not see the mirror's group.
    """
    known = _every(cluster).get(GROUP)
    if known is not None:
        return cluster.leads.told_by(known.broker, topics)
    answer = cluster.ask(DescribeGroupsRequest(groups=[GROUP], max_version=5))
    if any(one.error_code == _HIDDEN for one in answer.groups):
        raise HostError(f"{cluster.what} does not report the recorded direction: {told_of(_HIDDEN)}")
    return {}


def listed(cluster: Cluster) -> dict[str, Listed]:
    """Return every group that the brokers list, except the mirror's own group.

    Raises HostError if a broker does not list its groups, or if no broker could list some of the groups.
    """
    return {name: one for name, one in _every(cluster).items() if name != GROUP}


def _every(cluster: Cluster) -> dict[str, Listed]:
    commits = MetadataRequest.MetadataRequestTopic(name=COMMITS)
    answer = cluster.ask(MetadataRequest(topics=[commits], allow_auto_topic_creation=False))
    if away := [
        part.partition_index for topic in answer.topics for part in topic.partitions if part.leader_id < 0
    ]:
        raise HostError(
            f"{cluster.what}: no broker lists the groups of {few(f'{COMMITS}-{n}' for n in sorted(away))}, "
            "which has no leader"
        )
    asked = {one.node_id: (ListGroupsRequest(max_version=5), one.node_id) for one in answer.brokers}
    found = {}
    for broker, told in each(cluster, asked).items():
        if isinstance(told, HostError):
            raise told
        if told.error_code:
            why = describe_error(told.error_code)
            raise HostError(f"{cluster.what}: groups of broker {broker}: {why}")
        found.update(
            {
                one.group_id: Listed(broker, one.group_state or "", (one.group_type or "").lower())
                for one in told.groups
            }
        )
    return found


def with_states(cluster: Cluster, groups: Mapping[str, Listed]) -> dict[str, Listed]:
    """Return the groups with the states that ListGroups does not report before Kafka 2.6.

    If the coordinator does not report the state of a group either, the state remains empty.
    """
    silent = {name: one.broker for name, one in groups.items() if not one.state}
    found = dict(groups)
    for name, group in described(cluster, silent):
        if not isinstance(group, str) and not group.error_code:
            found[name] = groups[name]._replace(state=group.group_state)
    return found


def described(cluster: Cluster, brokers: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    """Yield the name of each classic group with its description.

    If there is no description, a text that says why takes its place. brokers: by group, the id of the
    coordinator.
    """
    yield from _described(cluster, brokers, lambda names: DescribeGroupsRequest(groups=names, max_version=5))


def _described(cluster: Cluster, brokers: Mapping[str, int], request: Any) -> Iterator[tuple[str, Any]]:
    by_broker = defaultdict[int, list[str]](list)
    for name, broker in brokers.items():
        by_broker[broker].append(name)
    asked = {broker: (request(names), broker) for broker, names in by_broker.items()}
    for broker, answer in each(cluster, asked).items():
        if isinstance(answer, HostError):
            yield from ((name, str(answer)) for name in by_broker[broker])
        else:
            yield from ((group.group_id, group) for group in answer.groups)


def uses(cluster: Cluster, groups: Mapping[str, Listed], topics: Collection[str]) -> dict[str, str]:
    """Return, by group, how a group that cannot switch uses these topics; an empty text if it does not.

    Groups that cannot switch are KIP-848 groups with members, share groups and streams groups.
    """
    newer = {name: one for name, one in groups.items() if one.newer}
    found = {
        name: _read(group, newer[name], topics)
        for type, request in _DESCRIBE.items()
        for name, group in _described(
            cluster, {name: one.broker for name, one in newer.items() if one.type == type}, request
        )
        if name in newer
    }
    resting = {name: one.broker for name, one in newer.items() if one.type == SHARE and not found.get(name)}
    for name, group in _described(cluster, resting, _share_offsets):
        found[name] = _stands(group, topics)
    return found


def _share_offsets(names: Collection[str]) -> Any:
    kind = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    return DescribeShareGroupOffsetsRequest(groups=[kind(group_id=name, topics=None) for name in names])


def _read(group: Any, one: Listed, topics: Collection[str]) -> str:
    if isinstance(group, str) or group.error_code:
        return f"the topics that the group reads are not known: {_why(group)}"
    if one.type == _STREAMS:
        if group.topology is None:
            return "the topics that the group reads are not known: it has reported no topology yet"
        parts = group.topology.subtopologies or ()
        read = {topic for part in parts for topic in (*part.source_topics, *part.repartition_sink_topics)}
    else:
        read = {topic for member in group.members for topic in member.subscribed_topic_names or ()}
        read |= {
            part.topic_name
            for member in group.members
            for assigned in (member.assignment, getattr(member, "target_assignment", None))
            for part in (assigned.topic_partitions if assigned else ())
        }
    if used := sorted(read & {*topics}):
        return f"the group reads {', '.join(used)}"
    patterns = [getattr(member, "subscribed_topic_regex", None) for member in group.members]
    if any(patterns) and one.state != "Stable":
        return f"the group's members subscribe by a pattern, and are still joining ({one.state})"
    return ""


def _stands(group: Any, topics: Collection[str]) -> str:
    if isinstance(group, str) or group.error_code:
        return f"the topics that the group reads are not known: {_why(group)}"
    used = sorted(
        one.topic_name
        for one in group.topics
        if one.topic_name in topics and any(part.start_offset >= 0 for part in one.partitions)
    )
    return f"the group has a position in {', '.join(used)}" if used else ""


def _why(group: Any) -> str:
    return group if isinstance(group, str) else describe_error(group.error_code, group.error_message)


_DESCRIBE: Mapping[str, Any] = {
    type: lambda names, request=request: request(group_ids=names, include_authorized_operations=False)
    for type, request in (
        (_CONSUMER, ConsumerGroupDescribeRequest),
        (SHARE, ShareGroupDescribeRequest),
        (_STREAMS, StreamsGroupDescribeRequest),
    )
}


def each(cluster: Cluster, asked: Mapping[Any, tuple[Any, int | None]]) -> dict[Any, Any]:
    """Send several requests, and return the responses by the requests' keys.

    A request that failed has a HostError in place of the response. asked: by key, the request and the id of
    the broker that gets it; None for any broker. At most ``_AT_ONCE`` requests are in flight.
    """
    found, keys = dict[Any, Any](), list(asked)
    for at in range(0, len(keys), _AT_ONCE):
        sent = [(key, cluster.begin(*asked[key])) for key in keys[at : at + _AT_ONCE]]
        for key, one in sent:
            try:
                found[key] = cluster.end(one)
            except HostError as error:
                found[key] = error
    return found
