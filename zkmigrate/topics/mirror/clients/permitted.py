"""Find out from a cluster's brokers which rights this account has, without changing anything.

No topic is created either. For topics, also missing ones, and for the cluster, brokers report the permitted
operations. For groups and transactional ids brokers report nothing, so a request is sent that any broker
refuses: if a right is lacking, for that reason, and otherwise for another reason. The request is a heartbeat
without a member, or the end of a transaction without a producer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka.admin import ACLOperation
from kafka.protocol.admin import DescribeGroupsRequest, ListTransactionsRequest
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import EndTxnRequest

from zkmigrate.errors import HostError
from zkmigrate.topics.mirror.clients.cluster import NO_TOPIC, Cluster
from zkmigrate.topics.mirror.clients.leads import GROUP
from zkmigrate.topics.mirror.clients.listing import each
from zkmigrate.topics.mirror.clients.owners import owned
from zkmigrate.topics.mirror.clients.transactions import ID_DENIED, describes_every_id
from zkmigrate.topics.mirror.rules.needed import (
    COMMITS,
    EVERY,
    TRANSACTIONS,
    Lacking,
    Permitted,
    Purpose,
    Side,
    lacking,
    needed,
)

_GROUP_DENIED = 30
"""Kafka's error code GROUP_AUTHORIZATION_FAILED."""


def missing_rights(
    source: Cluster,
    target: Cluster,
    purpose: Purpose,
    partitions: Mapping[str, int],
    groups: Collection[str],
    hidden: Collection[str] = (),
) -> list[Lacking]:
    """Return the rights that the accounts on both clusters lack.

    purpose: what the account is used for. partitions: how many partitions each topic has on source. groups:
    the groups whose offsets are copied. hidden: groups of source that could not be read. Raises HostError if
    a cluster does not respond.
    """
    ids = {owned((topic, n)): topic for topic, count in partitions.items() for n in range(count)}
    sides: tuple[tuple[Side, Cluster, Collection[str]], ...] = (
        ("source", source, ()),
        ("target", target, ids),
    )
    found = list[Lacking]()
    for side, cluster, own in sides:
        some = [*groups, *hidden] if side == "source" else groups
        told = permitted(cluster, partitions, [*some, GROUP], own)
        rights = needed(side, purpose, partitions, some, GROUP, ids, told)
        found += lacking(side, cluster.account, cluster.at, rights, told)
    return found


def permitted(
    cluster: Cluster, topics: Iterable[str], groups: Sequence[str], ids: Collection[str]
) -> Permitted:
    """Return the operations that the brokers of a cluster permit to this account.

    topics, groups: the names of topics and groups. ids: transactional ids of the mirror. Raises HostError if
    the cluster does not respond.
    """
    logged = not cluster.offers(ListTransactionsRequest)
    every: dict[str, Collection[str]] = {}
    if not logged:
        every = {EVERY: ("Describe",) if describes_every_id(cluster) else ()}
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in (*topics, COMMITS, TRANSACTIONS)]
    answer = cluster.ask(
        MetadataRequest(
            topics=named,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
            min_version=8,
            max_version=10,
        )
    )
    return Permitted(
        {one.name: _names(one.authorized_operations) for one in answer.topics},
        _names(answer.authorized_operations),
        _groups(cluster, groups),
        _writable(cluster, ids) | every,
        [one.name for one in answer.topics if one.error_code == NO_TOPIC],
        logged,
    )


def _names(operations: Collection[int] | None) -> frozenset[str]:
    """Return the operations by their names in kafka-acls.sh.

    operations: Kafka's numbers of operations.
    """
    found = (ACLOperation(one).name for one in operations or ())
    return frozenset(name.title().replace("_", "") for name in found)


def _groups(cluster: Cluster, groups: Sequence[str]) -> dict[str, Collection[str]]:
    told = cluster.ask(DescribeGroupsRequest(groups=list(groups), max_version=5))
    hidden = {one.group_id for one in told.groups if one.error_code == _GROUP_DENIED}
    asked: dict[Any, Any] = {
        name: (HeartbeatRequest(group_id=name, generation_id=-1, member_id="", max_version=3), None)
        for name in groups
    }
    denied = {name for name, code in _codes(cluster, asked).items() if code == _GROUP_DENIED}
    return {
        name: [*(() if name in hidden else ("Describe",)), *(() if name in denied else ("Read",))]
        for name in groups
    }


def _writable(cluster: Cluster, ids: Collection[str]) -> dict[str, Collection[str]]:
    asked: dict[Any, Any] = {
        name: (
            EndTxnRequest(
                transactional_id=name, producer_id=-1, producer_epoch=-1, committed=False, max_version=3
            ),
            None,
        )
        for name in ids
    }
    return {name: () if code == ID_DENIED else ("Write",) for name, code in _codes(cluster, asked).items()}


def _codes(cluster: Cluster, asked: Mapping[Any, tuple[Any, int | None]]) -> dict[str, int]:
    """Send requests, and return the error code in each response by the request's key.

    Raises HostError if a response is missing.
    """
    found = {}
    for name, answer in each(cluster, asked).items():
        if isinstance(answer, HostError):
            raise answer
        found[name] = int(answer.error_code)
    return found
