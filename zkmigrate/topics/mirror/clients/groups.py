"""Read consumer groups and their committed offsets from both clusters, and commit offsets on target."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka.protocol.consumer import ConsumerProtocolAssignment, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from zkmigrate.errors import HostError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part
from zkmigrate.topics.mirror.clients.listing import SHARE, Listed, described, each, listed, uses, with_states
from zkmigrate.topics.mirror.questions import GroupReads
from zkmigrate.topics.mirror.rules.commits import INACTIVE, Commit, Commits, Group, beyond, lacking
from zkmigrate.topics.mirror.rules.position import Ends

_GROUP = 0
_CONSUMERS = "consumer"
"""The protocol type of groups whose members read partitions."""
_ACTIVE = frozenset({22, 25, 27})
"""Kafka's error codes ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID and REBALANCE_IN_PROGRESS.

A broker refuses a commit with one of these errors because the group has members.
"""


@dataclass(frozen=True)
class Read:
    """The commits of consumer groups on both clusters.

    groups: the groups that have commits for the topics, use the topics, or were named. brokers: by group, the
    id of its coordinator on target, as far as target knows the group. troubles: by group, why the group could
    not be read.
    """

    groups: tuple[Group, ...]
    brokers: Mapping[str, int]
    troubles: Mapping[str, str]


def read(source: Cluster, target: Cluster, topics: Collection[str], named: Collection[str]) -> Read:
    """Read the commits of consumer groups from source, then from target.

    If target has a later commit than source, the group is read from source again. Its consumers may have
    committed meanwhile, and a copier may have copied that commit.

    named: the groups to read. If empty, these groups are read: all groups that committed offsets of the
    topics or have members that read the topics, and KIP-848 groups with members, share groups and streams
    groups that use the topics.
    """
    here, troubles = listed(source), dict[str, str]()
    wanted = {name: here[name] for name in (named or sorted(here)) if name in here}
    read = _commits(source, wanted, topics, troubles)
    refused = _newer(source, wanted, topics, {name for name, own in read.items() if own} | {*named})
    bare = {name: one for name, one in wanted.items() if not read.get(name)}
    # A group without commits may use any topic while its members are joining.
    members = {} if named else _members(source, bare, topics, {})
    ours = {
        name: read.get(name, {})
        for name in wanted
        if name in named or name in refused or name in members or read.get(name)
    }
    # Read after the commits, because a log only grows.
    ends = {part: one.last for part, one in source.latest(topics).items()} if any(ours.values()) else {}
    refused |= {name: why for name, own in ours.items() if name not in refused and (why := beyond(own, ends))}
    refused |= _lacking(source, target, {name: own for name, own in ours.items() if name not in refused})
    troubles |= {name: "source does not have this group" for name in named if name not in here}
    known = listed(target)
    there = with_states(target, {name: known[name] for name in ours if name in known})
    theirs = _commits(target, there, topics, troubles)
    # Consumers may have committed on source since it was read, and a copier has copied that to target.
    ahead = {name: wanted[name] for name, own in theirs.items() if _above(own, ours[name])}
    ours |= _commits(source, ahead, topics, troubles)
    groups = [
        Group(name, _state(there.get(name)), commits, theirs.get(name, {}), refused.get(name, ""))
        for name, commits in ours.items()
        if name not in troubles
    ]
    return Read(tuple(groups), {name: one.broker for name, one in there.items()}, troubles)


def _above(theirs: Commits, ours: Commits) -> bool:
    """Return True if target has a commit that is later than the commit on source, or missing on source.

    theirs: the commits on target. ours: the commits on source.
    """
    return any(part not in ours or one.offset > ours[part].offset for part, one in theirs.items())


def _lacking(source: Cluster, target: Cluster, groups: Mapping[str, Commits]) -> dict[str, str]:
    """Find the groups whose consumers would next read records that target does not have.

    Returns a text with the reason for each such group.
    """
    parts = sorted({part for own in groups.values() for part in own})
    there = _starts(target, parts)
    low = {part for own in groups.values() for part, one in own.items() if one.offset < there.get(part, 0)}
    here = _starts(source, sorted(low))
    return {name: why for name, own in groups.items() if (why := lacking(own, here, there))}


def _starts(cluster: Cluster, parts: Collection[Part]) -> dict[Part, int]:
    """Return the log start offset of each partition for which a leader reports it."""
    ends = cluster.ends(parts) if parts else {}
    return {part: one.start for part, one in ends.items() if isinstance(one, Ends)}


def _state(there: Listed | None) -> str:
    """Return the state of a group on target.

    there: the group as target lists it, or None if target does not have the group. A KIP-848 group with
    members, a share group and a streams group count as active, because Kafka accepts commits for such a group
    only from its members.
    """
    if there is None:
        return "Dead"
    return there.newer or there.state


def _newer(
    source: Cluster, groups: Mapping[str, Listed], topics: Collection[str], concerned: Collection[str]
) -> dict[str, str]:
    """Find KIP-848 groups with members, share groups and streams groups, because these cannot switch.

    Returns a text with the reason for each such group. Groups that do not use the topics are left out.
    concerned: groups that are included even if they do not use the topics now.
    """
    return {
        name: f"{groups[name].newer}: {what or 'it belongs to the set'}. {_LEFT}"
        for name, what in uses(source, groups, topics).items()
        if what or name in concerned
    }


_LEFT = (
    "A switch does not include it, because gateways serve only classic groups. Next: let its consumers use "
    "group.protocol=classic, or stop them and delete the group, or name the groups of the set without it"
)


def reads(source: Cluster, topics: Collection[str], named: Collection[str]) -> dict[str, GroupReads]:
    """Return the partitions of the topics that each group's members read, with the group's commits.

    named: the groups to read; empty for all groups. Groups without members are left out.
    """
    here, troubles = listed(source), dict[str, str]()
    wanted = {name: here[name] for name in named or sorted(here) if name in here}
    assigned = _members(source, wanted, topics, troubles)
    commits = _commits(source, {name: here[name] for name in assigned}, topics, troubles)
    found = {
        name: GroupReads({part: own[part].offset if part in own else None for part in sorted(assigned[name])})
        for name, own in commits.items()
    }
    return found | {name: GroupReads({}, why) for name, why in troubles.items()}


@dataclass(frozen=True)
class Others:
    """Groups that use the topics but are not among the named groups.

    commits: committed offsets by group and partition. members: by group that uses the topics even without a
    commit, the reason. troubles: by group that could not be read, the reason.
    """

    commits: Mapping[str, Mapping[Part, int]]
    members: Mapping[str, str]
    troubles: Mapping[str, str]


def others(source: Cluster, topics: Collection[str], named: Collection[str]) -> Others:
    """Return the groups that were not named but have commits for the topics or members that read them."""
    here = {name: one for name, one in listed(source).items() if name not in named}
    troubles = dict[str, str]()
    commits = _commits(source, here, topics, troubles)
    members = _members(source, here, topics, troubles).keys() & commits.keys()
    newer = {name: what for name, what in uses(source, here, topics).items() if what}
    return Others(
        {name: {part: one.offset for part, one in own.items()} for name, own in commits.items() if own},
        dict.fromkeys(members, "the group has members")
        | {name: f"the group is {here[name].newer}: {what}" for name, what in newer.items()},
        troubles,
    )


def _members(
    source: Cluster, groups: Mapping[str, Listed], topics: Collection[str], troubles: dict[str, str]
) -> dict[str, set[Part]]:
    """Return, by group, the partitions of the topics that are assigned to members of classic groups.

    Groups without such partitions are left out. troubles: a dict to which a reason is added for each group
    with an assignment that cannot be read.
    """
    found = dict[str, set[Part]]()
    brokers = {name: one.broker for name, one in groups.items() if not one.newer}
    for name, group in described(source, brokers):
        told = group if isinstance(group, str) else _assigned(group, topics)
        if isinstance(told, str):
            troubles[name] = told
        elif told:
            found[name] = told
    return found


def _assigned(group: Any, topics: Collection[str]) -> set[Part] | str:
    """Return the partitions of the topics that are assigned to a group's members.

    If the partitions are not known, a text with the reason is returned instead. group: the response that
    describes the group.
    """
    if group.error_code:
        return f"source does not describe the group: {describe_error(group.error_code)}"
    if group.group_state in INACTIVE or group.protocol_type != _CONSUMERS:
        return set()
    if group.group_state != "Stable":
        return f"the group's members are still joining ({group.group_state})"
    told = [one.member_assignment for one in group.members if one.member_assignment]
    try:
        parts = {part for one in told for part in ConsumerProtocolAssignment.decode(one).partitions()}
    except (struct.error, ValueError, TypeError) as error:
        return f"the assignment of a member cannot be read: {error}"
    return {(topic, number) for topic, number in parts if topic in topics}


def touch(target: Cluster, read: Read) -> Read:
    """Find target's coordinators of the groups that target does not know yet.

    The first such request to a cluster makes Kafka create ``__consumer_offsets``; such requests succeed only
    some time later. Returns ``read`` with the coordinators that were found, and with a reason in ``troubles``
    for each group without a coordinator.
    """
    unknown = [one.name for one in read.groups if one.name not in read.brokers]
    asked = {
        name: (FindCoordinatorRequest(key=name, key_type=_GROUP, max_version=3), None) for name in unknown
    }
    found = {
        name: answer
        for name, answer in each(target, asked).items()
        if not isinstance(answer, HostError) and not answer.error_code
    }
    missing = {
        name: "target does not report the group's coordinator yet" for name in unknown if name not in found
    }
    brokers = {name: int(answer.node_id) for name, answer in found.items()}
    return replace(read, brokers={**read.brokers, **brokers}, troubles={**read.troubles, **missing})


def commit(target: Cluster, wanted: Mapping[str, tuple[int, Commits]]) -> dict[str, str | HostError]:
    """Commit offsets on target for groups without members, at their coordinators.

    wanted: by group, the id of the coordinator and the commits. Returns the groups whose offsets were not
    committed, each with the reason as a text, or with a HostError if the outcome is unknown.
    """
    asked = {name: (_request(name, commits), broker) for name, (broker, commits) in wanted.items()}
    found: dict[str, str | HostError] = {}
    for name, answer in each(target, asked).items():
        if isinstance(answer, HostError):
            found[name] = answer
            continue
        errors = {p.error_code for topic in answer.topics for p in topic.partitions} - {0}
        if errors & _ACTIVE:
            found[name] = "the group is active on target, so its commits are not copied"
        elif errors:
            names = "; ".join(sorted(map(describe_error, errors)))
            found[name] = f"target refused the group's offsets: {names}"
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


def _commits(
    cluster: Cluster, groups: Mapping[str, Listed], topics: Collection[str], troubles: dict[str, str]
) -> dict[str, dict[Part, Commit]]:
    """Return the commits of these groups for the topics. Share groups are left out; they have no commits.

    troubles: a dict to which a reason is added for each group with commits that cannot be read.
    """
    asked = {
        name: (OffsetFetchRequest(group_id=name, topics=None, min_version=2, max_version=7), one.broker)
        for name, one in groups.items()
        if one.type != SHARE
    }
    found = {}
    for name, answer in each(cluster, asked).items():
        if isinstance(answer, HostError):
            troubles[name] = str(answer)
            continue
        errors = {answer.error_code, *(p.error_code for topic in answer.topics for p in topic.partitions)}
        if error := max(errors, key=abs):
            troubles[name] = f"{cluster.what} does not return the group's offsets: {describe_error(error)}"
            continue
        found[name] = {
            (topic.name, p.partition_index): Commit(p.committed_offset, p.metadata or "")
            for topic in answer.topics
            for p in topic.partitions
            if p.committed_offset >= 0 and topic.name in topics
        }
    return found
