"""Reads groups and their commits from both clusters, and commits on target."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka.errors import for_code
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import ConsumerProtocolAssignment, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients.cluster import Cluster, Part
from zkmigrate.mirror.rules.commits import INACTIVE, Commit, Commits, Group
from zkmigrate.model.look import GroupReads

_AT_ONCE = 4
"""Requests in flight to one cluster."""
_GROUP = 0
_CONSUMERS = "consumer"
"""The type of a group whose members read partitions."""
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


def reads(source: Cluster, topics: Collection[str], named: Collection[str]) -> dict[str, GroupReads]:
    """What groups with members read of the topics, and how far they have committed. named: only these;
    empty: all."""
    here, troubles = _coordinators(source), dict[str, str]()
    brokers = {name: here[name] for name in named or sorted(here) if name in here}
    assigned = _members(source, brokers, topics, troubles)
    commits = _commits(source, {name: here[name] for name in assigned}, topics, troubles)
    found = {
        name: GroupReads({part: own[part].offset if part in own else None for part in sorted(assigned[name])})
        for name, own in commits.items()
    }
    return found | {name: GroupReads({}, why) for name, why in troubles.items()}


@dataclass(frozen=True)
class Others:
    """Groups on the topics beside the named ones. commits: by group. members: groups that have some.
    troubles: by group."""

    commits: Mapping[str, Mapping[Part, int]]
    members: frozenset[str]
    troubles: Mapping[str, str]


def others(source: Cluster, topics: Collection[str], named: Collection[str]) -> Others:
    """The groups beside the named ones that have committed on the topics, or have members that read them."""
    here = {name: broker for name, broker in _coordinators(source).items() if name not in named}
    troubles = dict[str, str]()
    commits = _commits(source, here, topics, troubles)
    members = _members(source, here, topics, troubles)
    return Others(
        {name: {part: one.offset for part, one in own.items()} for name, own in commits.items() if own},
        frozenset(members.keys() & commits.keys()),
        troubles,
    )


def _members(
    source: Cluster, brokers: Mapping[str, int], topics: Collection[str], troubles: dict[str, str]
) -> dict[str, set[Part]]:
    """The partitions of the topics that the members of groups are assigned; without groups that have none.
    brokers: each group's coordinator. troubles: filled with groups of which that is not known."""
    by_broker = defaultdict[int, list[str]](list)
    for name, broker in brokers.items():
        by_broker[broker].append(name)
    asked = {
        broker: (DescribeGroupsRequest(groups=names, max_version=5), broker)
        for broker, names in by_broker.items()
    }
    found = dict[str, set[Part]]()
    for broker, answer in _each(source, asked).items():
        if isinstance(answer, HostError):
            troubles |= dict.fromkeys(by_broker[broker], str(answer))
            continue
        for group in answer.groups:
            told = _assigned(group, topics)
            if isinstance(told, str):
                troubles[group.group_id] = told
            elif told:
                found[group.group_id] = told
    return found


def _assigned(group: Any, topics: Collection[str]) -> set[Part] | str:
    """The partitions of the topics that a described group's members have; or why that is not known."""
    if group.error_code:
        return f"source does not describe it: {for_code(group.error_code).__name__}"
    if group.group_state in INACTIVE or group.protocol_type != _CONSUMERS:
        return set()
    if group.group_state != "Stable":
        return f"its members are joining ({group.group_state})"
    told = [one.member_assignment for one in group.members if one.member_assignment]
    try:
        parts = {part for one in told for part in ConsumerProtocolAssignment.decode(one).partitions()}
    except (struct.error, ValueError, TypeError) as error:
        return f"its assignment is not understood: {error}"
    return {(topic, number) for topic, number in parts if topic in topics}


def touch(target: Cluster, read: Read) -> Read:
    """Ask target who coordinates the groups that it does not know. The first question ever makes Kafka's
    topic of commits; it is answered later."""
    unknown = [one.name for one in read.groups if one.name not in read.brokers]
    asked = {
        name: (FindCoordinatorRequest(key=name, key_type=_GROUP, max_version=3), None) for name in unknown
    }
    found = {
        name: answer
        for name, answer in _each(target, asked).items()
        if not isinstance(answer, HostError) and not answer.error_code
    }
    missing = {name: "target does not tell its coordinator yet" for name in unknown if name not in found}
    brokers = {name: int(answer.node_id) for name, answer in found.items()}
    return replace(read, brokers={**read.brokers, **brokers}, troubles={**read.troubles, **missing})


def commit(target: Cluster, wanted: Mapping[str, tuple[int, Commits]]) -> dict[str, str | HostError]:
    """Commit for groups without members, by their coordinators. Why it was not done, by group; HostError
    where that is unknown."""
    asked = {name: (_request(name, commits), broker) for name, (broker, commits) in wanted.items()}
    found: dict[str, str | HostError] = {}
    for name, answer in _each(target, asked).items():
        if isinstance(answer, HostError):
            found[name] = answer
            continue
        errors = {p.error_code for topic in answer.topics for p in topic.partitions} - {0}
        if errors & _ACTIVE:
            found[name] = "active on target, left alone"
        elif errors:
            names = ", ".join(sorted(for_code(error).__name__ for error in errors))
            found[name] = f"target did not take its offsets: {names}"
    return found


def _request(group: str, commits: Commits) -> OffsetCommitRequest:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for (topic, number), one in commits.items():
        by_topic[topic].append(
            kind.OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=one.offset,
                committed_leader_epoch=-1,
                committed_metadata=one.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[kind(name=name, partitions=own) for name, own in by_topic.items()],
        max_version=8,  # later ones name topics by id
    )


def _coordinators(cluster: Cluster) -> dict[str, int]:
    """The coordinator of each group."""
    return {name: broker for name, (broker, _) in _listed(cluster).items()}


def _listed(cluster: Cluster) -> dict[str, tuple[int, str]]:
    """Coordinator and state of each group; the state is empty before Kafka 2.6."""
    answer = cluster.end(cluster.begin(MetadataRequest(topics=[], allow_auto_topic_creation=False)))
    asked = {one.node_id: (ListGroupsRequest(max_version=5), one.node_id) for one in answer.brokers}
    found = {}
    for broker, told in _each(cluster, asked).items():
        if isinstance(told, HostError):
            raise told
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
        if isinstance(answer, HostError):
            troubles[name] = str(answer)
            continue
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
    """The answers by key, or the HostError. A few requests are in flight."""
    found, keys = dict[Any, Any](), list(asked)
    for at in range(0, len(keys), _AT_ONCE):
        sent = [(key, cluster.begin(*asked[key])) for key in keys[at : at + _AT_ONCE]]
        for key, one in sent:
            try:
                found[key] = cluster.end(one)
            except HostError as error:
                found[key] = error
    return found
