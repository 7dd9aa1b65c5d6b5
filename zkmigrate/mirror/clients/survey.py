"""What both clusters show of all that is mirrored: topics, partitions, groups, ACLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.errors import HostError, UsageError
from zkmigrate.mirror.clients import groups
from zkmigrate.mirror.clients import rights as acls
from zkmigrate.mirror.clients.cluster import Cluster, Part, Topic
from zkmigrate.mirror.clients.codecs import KafkaCodecs
from zkmigrate.mirror.clients.follow import NO_AUTHORIZER
from zkmigrate.mirror.clients.reading import PartError, position
from zkmigrate.mirror.rules.commits import Standing, standing
from zkmigrate.mirror.rules.follow import Memory, State, follow
from zkmigrate.mirror.rules.position import Ends, Failed, Sides
from zkmigrate.mirror.rules.rights import Rights, rights
from zkmigrate.mirror.rules.topic import NOT_COPIED, deletes, differences, refusal, wanted


@dataclass(frozen=True)
class Mirrored:
    """A topic. found: target's partitions, 0 without the topic. replicas: target's. settings: those that
    target needs. left: those that stay different, and why. differ: settings that target has otherwise, needed
    and found. refused: why it cannot be mirrored."""

    topic: str
    partitions: int
    found: int
    replicas: int
    settings: Mapping[str, str]
    left: Mapping[str, str]
    differ: Mapping[str, tuple[str | None, str | None]]
    refused: str

    @property
    def exists(self) -> bool:
        return self.found > 0


@dataclass(frozen=True)
class Place:
    """A partition on both sides. stable: source's last stable offset. state: missing, behind, equal, failed
    or unknown."""

    part: Part
    source: Ends | None
    stable: int
    target: Ends | None
    state: str
    why: str = ""

    @property
    def lag(self) -> int:
        """Offsets that target lacks."""
        return max(0, self.stable - (self.target.end if self.target else 0))


@dataclass(frozen=True)
class Beside:
    """Groups by name, and ACLs. notes: what could not be looked at, and why."""

    groups: Mapping[str, Standing]
    rights: Rights
    notes: Mapping[str, str]


_NO_RIGHTS = Rights(frozenset(), frozenset(), {}, frozenset())


def topics(source: Cluster, target: Cluster, names: Sequence[str]) -> list[Mirrored]:
    """The topics as they are to be. UsageError for a topic that source does not have."""
    here, there = source.topics(names), target.topics(names)
    if missing := [name for name in names if name not in here]:
        raise UsageError(f"source has no topic {', '.join(missing)}")
    brokers = len(target.brokers())
    return [_mirrored(name, here[name], there.get(name), brokers) for name in names]


def _mirrored(name: str, here: Topic, there: Topic | None, brokers: int) -> Mirrored:
    replicas = min(here.replicas, brokers) if there is None else there.replicas
    settings = wanted(here.settings, replicas)
    found = {} if there is None else there.settings
    left: Mapping[str, str] = {key: NOT_COPIED[key] for key in here.settings if key in NOT_COPIED}
    if there is not None:
        left = follow(name, _state(here), _state(there), Memory()).left
    return Mirrored(
        name,
        len(here.leaders),
        0 if there is None else len(there.leaders),
        replicas,
        settings,
        left,
        {} if there is None else differences(settings, found),
        refusal(name, len(here.leaders), None if there is None else len(there.leaders), found),
    )


def _state(one: Topic) -> State:
    return State("", len(one.leaders), one.replicas, one.settings, one.own, one.known)


def places(source: Cluster, target: Cluster, mirrored: Sequence[Mirrored]) -> list[Place]:
    """Every partition of the topics that are not refused."""
    parts = [(one.topic, n) for one in mirrored if not one.refused for n in range(one.partitions)]
    there = [(one.topic, n) for one in mirrored if not one.refused for n in range(one.found)]
    clears = {one.topic for one in mirrored if deletes(one.settings)}
    # Target first: it only grows up to what source already has.
    targets, settled = target.ends(there), target.ends(there, committed=True)
    stable, sources = source.ends(parts, committed=True), source.ends(parts)
    led = [side.leaders({name for name, _ in there}) for side in (source, target)]
    found = []
    for part in parts:
        ends, last = sources.get(part), stable.get(part)
        own, quiet = targets.get(part), settled.get(part)
        if not isinstance(ends, Ends) or not isinstance(last, Ends):
            found.append(Place(part, None, 0, None, "unknown", "source's leader does not answer"))
        elif part not in there:
            found.append(Place(part, ends, last.end, None, "missing"))
        elif not isinstance(own, Ends) or not isinstance(quiet, Ends):
            found.append(Place(part, ends, last.end, None, "unknown", "target's leader does not answer"))
        else:
            leaders = [side[part[0]][part[1]] for side in led]
            sides = Sides(ends, own, (last.end, quiet.end))
            state, why = _state_of((source, target), leaders, part, sides, deletes=part[0] in clears)
            found.append(Place(part, ends, last.end, own, state, why))
    return found


def _state_of(
    clusters: Sequence[Cluster], leaders: Sequence[int], part: Part, sides: Sides, *, deletes: bool
) -> tuple[str, str]:
    """The state, and why the copier could not go on from here; empty if it could."""
    try:
        begun = position(clusters, leaders, part, sides, KafkaCodecs(), deletes=deletes)
    except PartError as error:
        return "unknown", str(error)
    if isinstance(begun, Failed):
        return "failed", begun.why
    return "behind" if sides.stable[0] > sides.target.end else "equal", ""


def beside(source: Cluster, target: Cluster, names: Sequence[str], named: Sequence[str]) -> Beside:
    """How groups and ACLs stand. names: of topics. named: groups; empty: all that committed on the topics.

    It changes nothing and asks for no coordinator, which would make a topic.
    """
    standings, found, notes = dict[str, Standing](), _NO_RIGHTS, dict[str, str]()
    try:
        read = groups.read(source, target, names, named)
        standings = {one.name: standing(one) for one in read.groups}
        notes |= {f"group {name}": why for name, why in read.troubles.items()}
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
    return Beside(standings, found, notes)
