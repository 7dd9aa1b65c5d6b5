"""Show the groups, ACLs and transactional producers of a mirror as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zkmigrate.kafka.rights import Changed
from zkmigrate.topics.mirror.clients.follow import Finding, Told
from zkmigrate.topics.mirror.clients.survey import Beside
from zkmigrate.topics.mirror.rules.commits import Committed
from zkmigrate.topics.mirror.rules.follow import Configure, Grow


def lines(found: Beside) -> Iterator[str]:
    """Yield the groups, ACLs and transactional producers as lines of text."""
    for name, one in sorted(found.groups.items()):
        yield f"group {name}: {one.why}"
    for rule in sorted(found.rights.grant):
        yield f"ACL to grant on target: {rule}"
    for rule, why in sorted(found.rights.left.items()):
        yield f"ACL: {rule}: {why}"
    for name, why in sorted(found.writers.named.items()):
        yield f"transactional producer {name}: {why}"
    if found.writers.dark:
        yield f"transactional producers: {found.writers.dark}"
    for about, why in found.notes.items():
        yield f"{about}: {why}"


def body(found: Beside) -> dict[str, Any]:
    """Return the groups, ACLs and transactional producers as JSON."""
    return {
        "groups": [
            {"group": name, "state": one.state, "behind": one.behind, "why": one.why}
            for name, one in sorted(found.groups.items())
        ],
        "acls": {
            "grant": [str(rule) for rule in sorted(found.rights.grant)],
            "not_copied": {str(rule): why for rule, why in sorted(found.rights.left.items())},
        },
        "transactional": {"producers": dict(found.writers.named), "unknown": found.writers.dark},
        "notes": dict(found.notes),
    }


def told(what: Told) -> tuple[str, str, dict[str, Any]]:
    """Return the event name, the text, and the JSON object of a change or finding."""
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
