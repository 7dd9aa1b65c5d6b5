"""Answer the requests for facts about a mirror by reading from both clusters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from zkmigrate.errors import HostError, UsageError
from zkmigrate.hosts.parallel import together
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.error_text import describe_exception
from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.look import Look
from zkmigrate.topics.mirror.clients import groups, rights
from zkmigrate.topics.mirror.clients.ahead import looked
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.follow import NO_AUTHORIZER
from zkmigrate.topics.mirror.clients.pair import Pair
from zkmigrate.topics.mirror.clients.permitted import missing_rights
from zkmigrate.topics.mirror.clients.reading import compared
from zkmigrate.topics.mirror.clients.replicas import Reached, reached
from zkmigrate.topics.mirror.clients.survey import Place, beside, lacks, places, standing_direction, topics
from zkmigrate.topics.mirror.questions import (
    BothEnds,
    ClusterAt,
    CompareCommits,
    CompareRecords,
    FindGranted,
    FindGroupReads,
    Granted,
    GroupPair,
    GroupReads,
    MirrorRequest,
    MirrorSurvey,
    RangeCompared,
    ReadDirection,
    ReadMirrorEnds,
    SurveyMirror,
)
from zkmigrate.topics.mirror.rules.batch import BatchError
from zkmigrate.topics.mirror.rules.commits import Standing, standing
from zkmigrate.topics.mirror.rules.direction import Direction
from zkmigrate.topics.mirror.rules.position import Ends

T = TypeVar("T")

_GARBLED = (KeyError, ValueError, TypeError)
"""The exceptions that are raised while an unexpected response is read."""
Range = tuple[int, int]


class MirrorAnswers:
    """A client that answers requests for facts about two clusters.

    It keeps the connections to each pair of clusters, and answers one request at a time for each pair.
    """

    def __init__(self, _inventory: Inventory, _look: Look) -> None:
        self._guard = threading.Lock()
        self._pairs: dict[tuple[ClusterAt, ClusterAt], Pair] = {}

    def close(self) -> None:
        for pair in self._pairs.values():
            pair.close()

    def survey(self, asked: SurveyMirror) -> Reading[MirrorSurvey]:
        return self._ask(asked, lambda here, there: _survey(here, there, asked.topics, asked.groups))

    def ends(self, asked: ReadMirrorEnds) -> Reading[Mapping[Part, BothEnds]]:
        return self._ask(asked, lambda here, there: _ends(here, there, asked.topics))

    def direction(self, asked: ReadDirection) -> Reading[Direction]:
        return self._ask(asked, lambda here, there: standing_direction(here, there, asked.topics))

    def commits(self, asked: CompareCommits) -> Reading[Mapping[str, GroupPair]]:
        return self._ask(asked, lambda here, there: _commits(here, there, asked.topics, asked.groups))

    def granted(self, asked: FindGranted) -> Reading[Granted]:
        return self._ask(asked, lambda _, there: _granted(there, asked.acls))

    def reads(self, asked: FindGroupReads) -> Reading[Mapping[str, GroupReads]]:
        return self._ask(asked, lambda here, _there: groups.reads(here, asked.topics, asked.groups))

    def differences(self, asked: CompareRecords) -> Reading[Mapping[Part, Reading[RangeCompared]]]:
        return self._ask(asked, lambda here, there: _differences(here, there, asked.ranges))

    def _ask(self, asked: MirrorRequest[Reading[T]], question: Callable[[Cluster, Cluster], T]) -> Reading[T]:
        with self._guard:
            ends = asked.source, asked.target
            pair = self._pairs.setdefault(ends, Pair(*ends))
        try:
            with pair.clusters() as (here, there):
                return Seen(question(here, there))
        except (HostError, UsageError) as error:
            return Unknown("failed", str(error))
        except _GARBLED as error:
            return Unknown("garbled", f"a cluster's response cannot be read: {describe_exception(error)}")


def _survey(here: Cluster, there: Cluster, names: Sequence[str], named: Sequence[str]) -> MirrorSurvey:
    mirrored = topics(here, there, names)
    also = beside(here, there, names, named)
    placed = looked(here, mirrored, places(here, there, mirrored))
    others, dark = _others(here, placed, names, named)
    nobody = f"{NO_AUTHORIZER} on source"
    unread = {
        "every group" if about == "groups" else about.removeprefix("group "): GroupPair("unknown", 0, why)
        for about, why in also.notes.items()
        if about != "ACLs"
    }
    partitions = {one.topic: one.partitions for one in mirrored}
    own = {**dict.fromkeys(named), **also.groups}
    nodes = here.brokers(), there.brokers()
    try:
        over = tuple(
            side.what for side, own in zip((here, there), nodes, strict=True) if side.super_users(own[0])
        )
    except HostError as error:
        over, dark = (), {**dark, "super users": str(error)}
    return MirrorSurvey(
        (here.id(), there.id()),
        nodes,
        {one.topic: one.refused for one in mirrored if one.refused},
        {
            f"{one.topic}: {key}": "; ".join(filter(None, (f"{found}, needed: {needed}", one.left.get(key))))
            for one in mirrored
            for key, (needed, found) in one.differ.items()
        },
        {one.part: (one.state, one.why) for one in placed},
        {name: _pair(one) for name, one in also.groups.items()} | unread,
        tuple(str(acl) for acl in sorted(also.rights.grant)),
        also.rights.later,
        # A source without an authorizer has no ACLs that target could lack.
        {about: why for about, why in also.notes.items() if about == "ACLs" and why != nobody} | dark,
        others,
        over,
        {
            f"{one.topic}: {key}": why
            for one in mirrored
            for key, why in one.left.items()
            if key not in one.differ
        },
        also.writers.named,
        also.writers.dark,
        tuple(missing_rights(here, there, "switch", partitions, own, also.hidden)),
    )


def _others(
    here: Cluster, placed: Sequence[Place], names: Sequence[str], named: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Find the groups that use the topics, although they are not among the named groups.

    Returns two dicts with texts by group: how each group uses the topics, and why a group could not be read.
    A group without members is left out if its commits are all below the starts of the logs. Its consumers
    then begin where auto.offset.reset says, on either cluster.
    """
    if not named:
        return {}, {}
    try:
        read = groups.others(here, names, named)
    except HostError as error:
        return {}, {"other groups": str(error)}
    starts = {one.part: one.source.start for one in placed if one.source}
    found = {}
    for name in sorted({*read.commits, *read.members}):
        kept = [part for part, at in read.commits.get(name, {}).items() if at >= starts.get(part, 0)]
        if name in read.members:
            found[name] = read.members[name]
        elif kept:
            found[name] = f"the group committed on {few(f'{topic}-{n}' for topic, n in sorted(kept))}"
    return found, {f"group {name}": why for name, why in read.troubles.items()}


def _ends(here: Cluster, there: Cluster, names: Sequence[str]) -> dict[Part, BothEnds]:
    # Target first: it only grows up to what source already has.
    target, source = reached(there, names), reached(here, names)
    if missing := sorted(set(names) - {topic for topic, _ in source}):
        raise UsageError(f"source has no topic {', '.join(missing)}")
    return {part: _both(one, target.get(part)) for part, one in source.items()}


def _both(source: Reached, target: Reached | None) -> BothEnds:
    one = source.latest
    end, below = (None, "") if target is None else (target.latest.end, target.below)
    return BothEnds(one.last, one.stable, end, source.held, source.below, below)


def _commits(
    here: Cluster, there: Cluster, names: Collection[str], named: Collection[str]
) -> dict[str, GroupPair]:
    read = groups.read(here, there, names, named)
    unknown = {name: GroupPair("unknown", 0, why) for name, why in read.troubles.items()}
    return {one.name: _pair(standing(one)) for one in read.groups} | unknown


def _granted(there: Cluster, acls: Sequence[Acl]) -> Granted:
    told = [frozenset(acls) & (rights.read(there, node) or frozenset()) for node in there.brokers()]
    return Granted(frozenset.intersection(*told), frozenset.union(*told))


def _pair(one: Standing) -> GroupPair:
    return GroupPair(one.state, one.behind, one.why)


def _differences(
    here: Cluster, there: Cluster, ranges: Mapping[Part, Range]
) -> dict[Part, Reading[RangeCompared]]:
    names = {topic for topic, _ in ranges}
    led = [(side, side.leaders(names), side.ends(ranges)) for side in (here, there)]
    found = together(
        {f"{topic}-{n}": partial(_difference, led, (topic, n), *both) for (topic, n), both in ranges.items()}
    )
    return {(topic, n): found[f"{topic}-{n}"] for topic, n in ranges}


Led = tuple[Cluster, Mapping[str, Mapping[int, int]], Mapping[Part, Ends | int]]
"""A cluster, the leader of each partition, and the end of each partition's log."""


def _difference(led: Sequence[Led], part: Part, begun: int, end: int) -> Reading[RangeCompared]:
    """Compare a partition's two logs from offset ``begun`` to offset ``end``.

    led: source and target with the leaders and ends of their partitions. Records that one of the logs no
    longer has are not compared.
    """
    topic, number = part
    leaders, logs = list[int](), list[Ends]()
    for side, by_topic, ends in led:
        leader, log = by_topic.get(topic, {}).get(number, -1), ends.get(part)
        if leader < 0:
            return Unknown("failed", f"{side.what}: {topic}-{number} has no leader")
        if not isinstance(log, Ends):
            return Unknown("failed", f"{side.what}: {topic}-{number} does not report where its log begins")
        leaders.append(leader)
        logs.append(log)
    begun = max(begun, logs[0].start)
    note = lacks(Ends(begun, end), logs[1]) if begun < end else ""
    begun = max(begun, logs[1].start)
    if begun >= end:
        return Seen(RangeCompared("", 0, note))
    try:
        found, kept = compared([side for side, *_ in led], leaders, part, begun, end, KafkaCodecs())
        if kept > begun:
            gone = f"retention deleted the records from offset {begun} to {kept} while they were compared"
            note = f"{note}; {gone}" if note else gone
        return Seen(RangeCompared(found.first, found.equal, note))
    except HostError as error:
        return Unknown("failed", str(error))
    except BatchError as error:
        return Unknown("garbled", f"{topic}-{number}: {error}")
