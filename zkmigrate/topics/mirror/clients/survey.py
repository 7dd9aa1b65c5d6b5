"""Read from both clusters everything that a mirror copies: topics, partitions, groups and ACLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from zkmigrate.errors import HostError, UsageError
from zkmigrate.kafka.rights import Rights, rights
from zkmigrate.topics.mirror.clients import groups, listing
from zkmigrate.topics.mirror.clients import rights as acls
from zkmigrate.topics.mirror.clients.cluster import Cluster, Part, Topic
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.follow import NO_AUTHORIZER
from zkmigrate.topics.mirror.clients.reading import position
from zkmigrate.topics.mirror.clients.replicas import Reached, reached
from zkmigrate.topics.mirror.clients.topics import New, try_configuring, try_making
from zkmigrate.topics.mirror.clients.transactions import transactional
from zkmigrate.topics.mirror.rules.commits import Standing, standing
from zkmigrate.topics.mirror.rules.direction import Direction, barred, direction
from zkmigrate.topics.mirror.rules.follow import Configure
from zkmigrate.topics.mirror.rules.position import Ends, Failed, Sides
from zkmigrate.topics.mirror.rules.topic import (
    TIME_TYPE,
    align,
    deletes,
    first,
    named,
    not_copied,
    refusal,
    wanted,
)
from zkmigrate.topics.mirror.rules.transactions import Writers


@dataclass(frozen=True)
class Mirrored:
    """A mirrored topic, as it is and as it must be on target.

    partitions: how many partitions source has.
    found: how many partitions target has, 0 if it does not have the topic.
    replicas: the replica count on target.
    settings: the settings to set on target, because source changed them or because target's Kafka has another
    default.
    left: by setting, why it remains different.
    differ: by setting with another value on target, the needed value and the current value.
    refused: why the topic cannot be mirrored; empty if it can.
    values: the settings that the topic will have on target, as far as they are known.
    """

    topic: str
    partitions: int
    found: int
    replicas: int
    settings: Mapping[str, str]
    left: Mapping[str, str]
    differ: Mapping[str, tuple[str, str]]
    refused: str
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        return self.found > 0


@dataclass(frozen=True)
class Place:
    """A partition on both clusters.

    source, target: where its logs begin and end. stable: source's last stable offset. state: missing, behind,
    equal, held, failed or unknown; held means that too few of source's replicas are in sync. why: the reason
    for the state. note: further observations. unread: how many offsets of source's log cannot be read yet.
    """

    part: Part
    source: Ends | None
    stable: int
    target: Ends | None
    state: str
    why: str = ""
    note: str = ""
    unread: int = 0

    @property
    def lag(self) -> int:
        """The number of offsets that target does not have yet."""
        return max(0, self.stable - (self.target.end if self.target else 0)) + self.unread


_NOBODY = Writers({})
_GROUP = "group "
"""The first words of a note about a group."""


@dataclass(frozen=True)
class Beside:
    """The groups, ACLs and transactional producers of a mirror.

    groups: by group, a comparison of its commits. rights: the ACLs that target needs. notes: by subject that
    could not be read, the reason. writers: the producers that write to source's topics in transactions.
    """

    groups: Mapping[str, Standing]
    rights: Rights
    notes: Mapping[str, str]
    writers: Writers = _NOBODY

    @property
    def hidden(self) -> list[str]:
        """The names of the groups that could not be read."""
        return [about.removeprefix(_GROUP) for about in self.notes if about.startswith(_GROUP)]


NOT_TOLD = "the partition's leader is not known at the moment"
_NO_RIGHTS = Rights(frozenset(), frozenset(), {}, frozenset())


def topics(source: Cluster, target: Cluster, names: Sequence[str]) -> list[Mirrored]:
    """Return the topics as they must be on target, including those that cannot be mirrored.

    Raises UsageError if source has none of them.
    """
    here, hidden = source.topics(names)
    there, unseen = target.topics(names)
    if not here and not hidden:
        raise UsageError(f"source has no topic {', '.join(names)}")
    why = dict.fromkeys(set(names) - here.keys(), "source does not have this topic") | hidden | unseen
    new = {name: here[name] for name in names if name not in why and name not in there}
    known = {name: (here[name], there[name]) for name in names if name not in why and name in there}
    found = {name: Mirrored(name, 0, 0, 0, {}, {}, {}, text) for name, text in why.items()}
    found |= _to_make(target, new) | _to_keep(target, known)
    return [found[name] for name in names]


_CHANGE = (
    "Needed: a value that target's release accepts. "
    "Next: change it on source's topic, or do not mirror the topic"
)


def _to_make(target: Cluster, new: Mapping[str, Topic]) -> dict[str, Mirrored]:
    """Return topics that target does not have yet, as they must be created.

    Target validates a trial request, because its release may have other limits, other defaults, and fewer
    settings.
    """
    if not new:
        return {}
    brokers = len(target.brokers())
    bare = {
        name: New(name, len(one.leaders), min(one.replicas, brokers), {})
        for name, one in new.items()
        if not refusal(name, 0, None, {})
    }
    would = try_making(target, bare.values())
    full = {
        name: replace(one, settings=first(new[name].settings, would[name].settings, one.replicas))
        for name, one in bare.items()
    }
    told = try_making(target, [one for name, one in full.items() if not would[name].refused])
    alone = _alone(target, [full[name] for name, one in told.items() if one.refused])
    found = {}
    for name, here in new.items():
        count = len(here.leaders)
        if name not in full:
            found[name] = Mirrored(name, count, 0, 0, {}, {}, {}, refusal(name, count, None, {}))
            continue
        one = full[name]
        why = would[name].refused or alone.get(name) or told[name].refused
        own = would[name].settings
        left = not_copied(here.settings, here.settings.changed if own is None else own.values.keys())
        refused = f"target would not create the topic: {why.rstrip('.')}. {_CHANGE}" if why else ""
        values = {**({} if own is None else own.values), **one.settings}
        found[name] = Mirrored(name, count, 0, one.replicas, one.settings, left, {}, refused, values)
    return found


def _alone(target: Cluster, refused: Sequence[New]) -> dict[str, str]:
    """Find settings that target refuses even if each one is sent alone.

    Returns a text for each topic with such settings, with Kafka's reasons.
    """
    found = dict[str, str]()
    for one in refused:
        wrong = []
        for key, value in sorted(one.settings.items()):
            told = try_making(target, [replace(one, settings={key: value})])[one.name]
            wrong += [f"{key}={value}: {told.refused}"] if told.refused else []
        if wrong:
            found[one.name] = "; ".join(wrong)
    return found


def _to_keep(target: Cluster, known: Mapping[str, tuple[Topic, Topic]]) -> dict[str, Mirrored]:
    """Return topics that target has already, as they are and as they must be.

    known: each topic as it is on source and on target.
    """
    beside = {
        name: align(here.settings, there.settings, there.replicas) for name, (here, there) in known.items()
    }
    changes = [Configure(name, one.put, one.remove) for name, one in beside.items() if one.put or one.remove]
    wrong = try_configuring(target, changes)
    found = {}
    for name, (here, there) in known.items():
        one, count, values = beside[name], len(here.leaders), there.settings.values
        changed = named(here.settings)
        settings = {
            key: value
            for key, value in wanted(here.settings, values.keys(), there.replicas).items()
            if key in changed and key != TIME_TYPE
        }
        told = wrong.get(name, {})
        told = dict.fromkeys([*one.put, *one.remove], told[""]) if "" in told else told
        left = {
            **one.left,
            **{key: f"target does not accept the change: {text}" for key, text in told.items()},
        }
        values = {**values, **{key: pair[0] for key, pair in one.differ.items() if key not in left}}
        why = refusal(name, count, len(there.leaders), values)
        found[name] = Mirrored(
            name, count, len(there.leaders), there.replicas, settings, left, one.differ, why, values
        )
    return found


def fenced_off(source: Cluster, target: Cluster, names: Sequence[str]) -> dict[str, str]:
    """Find the topics that copiers may not write on target. Returns the reason for each.

    The function looks for a coordinator, which creates ``__consumer_offsets`` if that topic does not exist.
    """
    ids, told = (source.id(), target.id()), target.leads.told(names, target.leads.ask(names))
    return {name: why for name in names if (why := barred(name, told.get(name), *ids))}


def standing_direction(source: Cluster, target: Cluster, names: Sequence[str]) -> Direction:
    """Return the clusters on which copiers may write these topics, without changing anything."""
    ids, told = (source.id(), target.id()), (listing.leads(source, names), listing.leads(target, names))
    return direction(names, ids, told)


def places(source: Cluster, target: Cluster, mirrored: Sequence[Mirrored]) -> list[Place]:
    """Return every partition of the topics that are not refused."""
    parts = [(one.topic, n) for one in mirrored if not one.refused for n in range(one.partitions)]
    there = [(one.topic, n) for one in mirrored if not one.refused for n in range(one.found)]
    clears = {one.topic for one in mirrored if deletes(one.values)}
    # Target first: it only grows up to what source already has.
    targets, settled = target.ends(there), target.ends(there, committed=True)
    stable, sources = source.ends(parts, committed=True), source.ends(parts)
    led = [side.leaders({name for name, _ in there}) for side in (source, target)]
    found = []
    for part in parts:
        ends, last = sources.get(part), stable.get(part)
        own, quiet = targets.get(part), settled.get(part)
        if not isinstance(ends, Ends) or not isinstance(last, Ends):
            found.append(Place(part, None, 0, None, "unknown", "source's leader does not respond"))
        elif part not in there:
            found.append(Place(part, ends, last.end, None, "missing"))
        elif not isinstance(own, Ends) or not isinstance(quiet, Ends):
            found.append(Place(part, ends, last.end, None, "unknown", "target's leader does not respond"))
        else:
            leaders = [side.get(part[0], {}).get(part[1], -1) for side in led]
            sides = Sides(ends, own, (last.end, quiet.end))
            state, why, note = _state_of((source, target), leaders, part, sides, deletes=part[0] in clears)
            found.append(Place(part, ends, last.end, own, state, why, lacks(ends, own) or note))
    return _held(source, found)


def _held(source: Cluster, found: Sequence[Place]) -> list[Place]:
    """Mark partitions that have records which cannot be read yet, or too few replicas in sync."""
    logs = reached(source, {one.part[0] for one in found})
    return [_held_back(one, logs[one.part]) if one.part in logs else one for one in found]


def _held_back(place: Place, log: Reached) -> Place:
    if place.state not in ("equal", "behind"):
        return place
    if log.below:
        return replace(place, state="held", why=log.held, unread=log.unread)
    return replace(place, state="behind" if log.unread else place.state, unread=log.unread)


def lacks(source: Ends, target: Ends) -> str:
    """Return a text about records that target has deleted and source has not; empty if there are none.

    source, target: where the logs begin and end. Such records exist even with equal retention, because each
    cluster deletes whole segments, and their segments differ.
    """
    if target.start <= source.start:
        return ""
    return f"target lacks source's records from offset {source.start} to {target.start}, where its log begins"


def _state_of(
    clusters: Sequence[Cluster], leaders: Sequence[int], part: Part, sides: Sides, *, deletes: bool
) -> tuple[str, str, str]:
    """Return three texts about a partition: its state, why a copier could not continue there, and a note.

    The second text is empty if a copier could continue.
    """
    if -1 in leaders:
        return "unknown", NOT_TOLD, ""
    try:
        begun = position(clusters, leaders, part, sides, KafkaCodecs(), deletes=deletes)
    except HostError as error:
        return "unknown", str(error), ""
    if isinstance(begun, Failed):
        return "failed", begun.why, ""
    return "behind" if sides.stable[0] > sides.target.end else "equal", "", begun.note


def beside(source: Cluster, target: Cluster, names: Sequence[str], named: Sequence[str]) -> Beside:
    """Read the groups, ACLs and transactional producers from both clusters.

    names: the topics. named: the groups; empty for all groups that use the topics. The function changes
    nothing, and looks for no coordinator, because that would create ``__consumer_offsets``.
    """
    standings, found, notes = dict[str, Standing](), _NO_RIGHTS, dict[str, str]()
    try:
        read = groups.read(source, target, names, named)
        standings = {one.name: standing(one) for one in read.groups}
        notes |= {f"{_GROUP}{name}": why for name, why in read.troubles.items()}
    except HostError as error:
        notes["groups"] = str(error)
    try:
        here, there = acls.read(source), acls.read(target)
        if here is None or there is None:
            side = "source" if here is None else "target"
            notes["ACLs"] = f"{NO_AUTHORIZER} on {side}"
        else:
            found = rights(here, there, names, list(standings))
    except HostError as error:
        notes["ACLs"] = str(error)
    try:
        writers = transactional(source, names)
    except HostError as error:
        writers = Writers({}, str(error))
    return Beside(standings, found, notes, writers)
