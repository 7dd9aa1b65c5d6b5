"""Reads groups and their commits from both clusters, and commits on target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka import TopicPartition
from kafka.errors import for_code
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.structs import OffsetAndMetadata

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients.cluster import Cluster, Part
from zkmigrate.mirror.rules.commits import Commit, Group

_AT_ONCE = 4
"""Requests in flight to one cluster."""
_GROUP, _NO_EPOCH = 0, -1
_ACTIVE = frozenset({22, 25, 27})
"""ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and REBALANCE_IN_PROGRESS: the group has members. The broker decides
that at the commit itself."""


@dataclass(frozen=True)
class Read:
    """groups: with commits for the topics, or named. brokers: target's coordinator of those that it knows.
    troubles: by group."""

    groups: tuple[Group, ...]
    brokers: Mapping[str, int]
    troubles: Mapping[str, str]


def read(source: Cluster, target: Cluster, topics: Collection[str], named: Collection[str]) -> Read:
    """Source is read first: its offsets grow. named: only these; empty: all that committed on the topics."""
    here, troubles = _listed(source), dict[str, str]()
    wanted = [name for name in named if name in here] if named else sorted(here)
    read = _commits(source, {name: here[name][0] for name in wanted}, topics, troubles)
    ours = {name: commits for name, commits in read.items() if commits or named}
    troubles |= {name: "source has no such group" for name in named if name not in here}
    there = _listed(target)
    brokers = {name: there[name][0] for name in ours if name in there}
    theirs = _commits(target, brokers, topics, troubles)
    groups = [
        Group(name, there[name][1] if name in there else "Dead", commits, theirs.get(name, {}))
        for name, commits in ours.items()
        if name not in troubles
    ]
    return Read(tuple(groups), brokers, troubles)


def touch(target: Cluster, read: Read) -> Read:
    """Ask target who coordinates the groups that it does not know. The first question ever makes Kafka's
    topic of commits; it is answered later."""
    unknown = [one.name for one in read.groups if one.name not in read.brokers]
    asked = {
        name: (FindCoordinatorRequest(key=name, key_type=_GROUP, max_version=3), None) for name in unknown
    }
    found = {name: answer for name, answer in _each(target, asked).items() if not answer.error_code}
    missing = {name: "target does not tell its coordinator yet" for name in unknown if name not in found}
    brokers = {name: int(answer.node_id) for name, answer in found.items()}
    return replace(read, brokers={**read.brokers, **brokers}, troubles={**read.troubles, **missing})


def commit(target: Cluster, group: str, broker: int, commits: Mapping[Part, Commit]) -> str:
    """Commit for a group without members. Why it was not done; empty if it was."""
    offsets = {
        TopicPartition(*part): OffsetAndMetadata(one.offset, one.metadata, _NO_EPOCH)
        for part, one in commits.items()
    }
    told = target.call(lambda admin: admin.alter_group_offsets(group, offsets, group_coordinator_id=broker))
    errors = {error.errno: error.__name__ for error in told.values() if error.errno}
    if errors.keys() & _ACTIVE:
        return "active on target, left alone"
    return f"target did not take its offsets: {', '.join(sorted(errors.values()))}" if errors else ""


def _listed(cluster: Cluster) -> dict[str, tuple[int, str]]:
    """Coordinator and state of each group; the state is empty before Kafka 2.6."""
    answer = cluster.end(cluster.begin(MetadataRequest(topics=[], allow_auto_topic_creation=False)))
    asked = {one.node_id: (ListGroupsRequest(max_version=5), one.node_id) for one in answer.brokers}
    found = {}
    for broker, told in _each(cluster, asked).items():
        if told.error_code:
            why = for_code(told.error_code).__name__
            raise HostError(f"{cluster.what}: groups of broker {broker}: {why}")
        found.update({one.group_id: (broker, one.group_state or "") for one in told.groups})
    return found


def _commits(
    cluster: Cluster, brokers: Mapping[str, int], topics: Collection[str], troubles: dict[str, str]
) -> dict[str, dict[Part, Commit]]:
    """The commits of these groups for the topics. troubles: filled with those that cannot be read."""
    asked = {
        name: (OffsetFetchRequest(group_id=name, topics=None, min_version=2, max_version=7), broker)
        for name, broker in brokers.items()
    }
    found = {}
    for name, answer in _each(cluster, asked).items():
        errors = {answer.error_code, *(p.error_code for topic in answer.topics for p in topic.partitions)}
        if error := max(errors, key=abs):
            troubles[name] = f"{cluster.what} does not show its offsets: {for_code(error).__name__}"
            continue
        found[name] = {
            (topic.name, p.partition_index): Commit(p.committed_offset, p.metadata or "")
            for topic in answer.topics
            for p in topic.partitions
            if p.committed_offset >= 0 and topic.name in topics
        }
    return found


def _each(cluster: Cluster, asked: Mapping[Any, tuple[Any, int | None]]) -> dict[Any, Any]:
    """The answers by key, a few requests in flight."""
    found, keys = {}, list(asked)
    for at in range(0, len(keys), _AT_ONCE):
        sent = [(key, cluster.begin(*asked[key])) for key in keys[at : at + _AT_ONCE]]
        found.update({key: cluster.end(one) for key, one in sent})
    return found
