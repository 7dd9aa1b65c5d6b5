"""What the mirror keeps equal beside the records, as text and JSON: groups, ACLs, each change of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients import groups
from zkmigrate.mirror.clients import rights as acls
from zkmigrate.mirror.clients.cluster import Cluster
from zkmigrate.mirror.clients.follow import NO_AUTHORIZER, Finding, Told
from zkmigrate.mirror.rules.commits import Committed, Standing, standing
from zkmigrate.mirror.rules.follow import Configure, Grow
from zkmigrate.mirror.rules.rights import Changed, Rights, rights
from zkmigrate.mirror.verbs.survey import Request

_NONE = Rights(frozenset(), frozenset(), {}, frozenset())


@dataclass(frozen=True)
class Beside:
    """Groups by name, and ACLs. notes: what could not be looked at, and why."""

    groups: Mapping[str, Standing]
    rights: Rights
    notes: Mapping[str, str]


def beside(source: Cluster, target: Cluster, asked: Request) -> Beside:
    """How groups and ACLs stand. It changes nothing and asks for no coordinator, which would make a topic."""
    standings, found, notes = dict[str, Standing](), _NONE, dict[str, str]()
    try:
        read = groups.read(source, target, asked.topics, asked.groups)
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
            found = rights(here, there, asked.topics, list(standings))
    except HostError as error:
        notes["ACLs"] = str(error)
    return Beside(standings, found, notes)


def lines(found: Beside) -> Iterator[str]:
    """As text."""
    for name, one in sorted(found.groups.items()):
        yield f"group {name}: {one.why}"
    for rule in sorted(found.rights.grant):
        yield f"ACL to grant on target: {rule}"
    for rule, why in sorted(found.rights.left.items()):
        yield f"ACL: {rule}: {why}"
    for about, why in found.notes.items():
        yield f"{about}: {why}"


def body(found: Beside) -> dict[str, Any]:
    """As JSON."""
    return {
        "groups": [
            {"group": name, "state": one.state, "behind": one.behind, "why": one.why}
            for name, one in sorted(found.groups.items())
        ],
        "acls": {
            "grant": [str(rule) for rule in sorted(found.rights.grant)],
            "not_copied": {str(rule): why for rule, why in sorted(found.rights.left.items())},
        },
        "notes": dict(found.notes),
    }


def told(what: Told) -> tuple[str, str, dict[str, Any]]:
    """Event, text and JSON of a change or finding."""
    match what:
        case Grow():
            text = f"added partitions to topic {what.topic}, now: {what.partitions}"
            return "PartitionsAdded", text, {"topic": what.topic, "partitions": what.partitions}
        case Configure():
            done = [f"{key}={value}" for key, value in sorted(what.put.items())]
            done += [f"{key} removed" for key in what.remove]
            text = f"changed settings of topic {what.topic}: {', '.join(done)}"
            put = {"topic": what.topic, "set": dict(what.put), "removed": list(what.remove)}
            return "SettingsChanged", text, put
        case Committed():
            offsets = {f"{name}-{n}": one.offset for (name, n), one in sorted(what.commits.items())}
            text = f"committed for group {what.group}: {len(offsets)} partitions"
            return "OffsetsCommitted", text, {"group": what.group, "offsets": offsets}
        case Changed():
            granted, revoked = ([str(one) for one in sorted(some)] for some in (what.granted, what.revoked))
            text = "; ".join([*(f"added {one}" for one in granted), *(f"deleted {one}" for one in revoked)])
            return "AclsChanged", f"ACLs on target: {text}", {"added": granted, "deleted": revoked}
        case Finding():
            return "Finding", f"{what.about}: {what.why}", {"about": what.about, "why": what.why}
