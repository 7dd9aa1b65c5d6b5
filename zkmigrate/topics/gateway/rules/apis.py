"""List the kinds of request that the gateway supports, and the versions of each.

The gateway does not support topic ids, leaders in answers (KIP-951), the last fetched epoch (FETCH 12),
transactions of version 2 (KIP-890), KIP-848 and share groups, or requests between brokers. It does not
support other requests for addresses either, because clients can get these from METADATA.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Api:
    """A kind of request that the gateway serves.

    schema: the name of Kafka's message.
    least, most: the first and the last version that the gateway serves.
    listed: the first version that the answer to API_VERSIONS lists, if clients expect an older one than
    ``least``.
    free: whether the request changes nothing, so that it is served while an application is held.
    look: the names of the request's fields that the gateway reads.
    streamed: whether the gateway passes the rest of the request on without reading it.
    rewritten: whether the gateway changes the answer.
    denied: Kafka's error code with which a read-only listener answers the request, or 0 if it serves the
    request. A kind with ``GroupId`` in ``look`` is denied only for groups whose offsets a mirror commits.
    """

    key: int
    schema: str
    least: int
    most: int
    listed: int | None = None
    free: bool = False
    look: tuple[str, ...] = ()
    streamed: bool = True
    rewritten: bool = False
    denied: int = 0

    @property
    def name(self) -> str:
        """The name of the request in capitals, as in Kafka's documentation."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.schema).upper()


PRODUCE, FETCH, METADATA, FIND_COORDINATOR, SYNC_GROUP, INIT_PRODUCER_ID = 0, 1, 3, 10, 14, 22
JOIN_GROUP, HEARTBEAT = 11, 12
MEMBERS = frozenset({JOIN_GROUP, HEARTBEAT, SYNC_GROUP})
"""Requests that only members of a group send."""
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
_TOPIC, _GROUP, _CLUSTER, _TRANSACTION = 29, 30, 31, 53
"""Kafka's error codes ``…_AUTHORIZATION_FAILED``. Every client knows these codes and does not retry."""

APIS = {
    one.key: one
    for one in (
        # librdkafka takes a broker without PRODUCE 0 for one older than 0.9, so 0 is listed (KAFKA-18659).
        Api(PRODUCE, "Produce", 3, 9, listed=0, look=("TransactionalId", "Acks"), denied=_TOPIC),
        Api(FETCH, "Fetch", 4, 11, streamed=False),
        Api(2, "ListOffsets", 1, 7, streamed=False, rewritten=True),
        Api(METADATA, "Metadata", 0, 9, free=True, rewritten=True, look=("Topics",), streamed=False),
        Api(8, "OffsetCommit", 2, 8, streamed=False, look=("GroupId",), denied=_GROUP),
        Api(9, "OffsetFetch", 1, 8, rewritten=True),
        Api(FIND_COORDINATOR, "FindCoordinator", 0, 4, free=True, rewritten=True),
        Api(JOIN_GROUP, "JoinGroup", 0, 9, look=("GroupId",), denied=_GROUP),
        Api(HEARTBEAT, "Heartbeat", 0, 4),
        Api(13, "LeaveGroup", 0, 5),
        Api(SYNC_GROUP, "SyncGroup", 0, 5),
        Api(15, "DescribeGroups", 0, 5, free=True),
        Api(16, "ListGroups", 0, 4, free=True),
        Api(SASL_HANDSHAKE, "SaslHandshake", 1, 1, listed=0, free=True, look=("Mechanism",), streamed=False),
        Api(API_VERSIONS, "ApiVersions", 0, 3, free=True, streamed=False, rewritten=True,
            look=("ClientSoftwareName", "ClientSoftwareVersion")),
        Api(19, "CreateTopics", 2, 6, denied=_TOPIC),
        Api(20, "DeleteTopics", 1, 5, denied=_TOPIC),
        Api(21, "DeleteRecords", 0, 2, denied=_TOPIC),
        Api(INIT_PRODUCER_ID, "InitProducerId", 0, 4, look=("TransactionalId",), denied=_CLUSTER),
        Api(24, "AddPartitionsToTxn", 0, 3, denied=_TRANSACTION),
        Api(25, "AddOffsetsToTxn", 0, 3, denied=_TRANSACTION),
        Api(26, "EndTxn", 0, 3, denied=_TRANSACTION),
        Api(28, "TxnOffsetCommit", 0, 3, streamed=False, denied=_TRANSACTION),
        Api(29, "DescribeAcls", 1, 3, free=True),
        Api(30, "CreateAcls", 1, 3, denied=_CLUSTER),
        Api(31, "DeleteAcls", 1, 3, denied=_CLUSTER),
        Api(32, "DescribeConfigs", 1, 4, free=True),
        Api(33, "AlterConfigs", 0, 2, denied=_CLUSTER),
        Api(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, free=True, look=("AuthBytes",), streamed=False),
        Api(37, "CreatePartitions", 0, 3, denied=_TOPIC),
        Api(42, "DeleteGroups", 0, 2, denied=_GROUP),
        Api(44, "IncrementalAlterConfigs", 0, 1, denied=_CLUSTER),
        Api(47, "OffsetDelete", 0, 0, denied=_GROUP),
    )
}  # fmt: skip
"""The requests that the gateway offers to clients, by Kafka's number of the request."""

_NOT_OFFERED = {
    23: "OFFSET_FOR_LEADER_EPOCH",
    60: "DESCRIBE_CLUSTER",
    68: "CONSUMER_GROUP_HEARTBEAT",
    69: "CONSUMER_GROUP_DESCRIBE",
    71: "GET_TELEMETRY_SUBSCRIPTIONS",
    75: "DESCRIBE_TOPIC_PARTITIONS",
    76: "SHARE_GROUP_HEARTBEAT",
    77: "SHARE_GROUP_DESCRIBE",
    78: "SHARE_FETCH",
    79: "SHARE_ACKNOWLEDGE",
    88: "STREAMS_GROUP_HEARTBEAT",
}
"""Names of some requests that the gateway does not offer, by Kafka's number of the request."""


def name_of(key: int) -> str:
    """Return the name of a request, or its number if it has no known name."""
    api = APIS.get(key)
    return api.name if api else _NOT_OFFERED.get(key, f"request {key}")


Ranges = dict[int, tuple[int, int]]
"""The first and the last version of each request, by Kafka's number of the request."""


def offered(clusters: list[Ranges]) -> Ranges:
    """Return the versions of each request that all clusters support and the gateway serves.

    clusters: for each cluster, the versions that its brokers support.
    """
    found: Ranges = {}
    for key, api in APIS.items():
        if any(key not in one for one in clusters):
            continue
        told = api.least if api.listed is None else api.listed
        first = max(told, *(one[key][0] for one in clusters)) if clusters else told
        last = min(api.most, *(one[key][1] for one in clusters)) if clusters else api.most
        if first <= last and api.least <= last:
            found[key] = (first, last)
    return found
