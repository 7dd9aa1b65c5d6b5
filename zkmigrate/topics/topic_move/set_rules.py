"""Make findings about what a set leaves out: topics of its applications, and other users of its topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.topics.gateway.rules.seen import ALL, MORE
from zkmigrate.topics.topic_move.facts import AppSeen, Gateways

_INTERNAL = "__"
_UNNAMED = {ALL: "all topics", MORE: "topics that the gateway does not name"}


def app_topics(found: Gateways, topics: Collection[str]) -> Iterator[Finding]:
    """Check that clients of the set ask only for topics of the set."""
    for app, asked in _asked(found.at).items():
        others = sorted(asked - {*topics, *_UNNAMED})
        for topic in others:
            yield _app_topics(f"{app}:{topic}", False, "its clients asked for it")
        unnamed = _unnamed(asked)
        if unnamed or not asked:
            seen = few(unnamed) or "no client has asked for a topic"
            yield _app_topics(app, False if unnamed else None, seen, Severity.WARN)
        elif not others:
            yield _app_topics(app, True, few(sorted(asked)))


def _app_topics(target: str, held: bool | None, seen: str, severity: Severity = Severity.BLOCK) -> Finding:
    return claim(
        "switch.app-topics",
        "clients of the set ask for topics of the set alone",
        held,
        target=target,
        seen=seen,
        needed="topics of the set: after the switch they would ask target for any other",
        moves=(
            "add the topic to the set, and mirror it",
            "accept it, if the application can do without it or finds it on target",
        ),
        severity=severity,
    )


def other_apps(found: Gateways, topics: Collection[str], source: str) -> Iterator[Finding]:
    """Check that no other application on source has clients that ask for topics of the set."""
    staying = {at: app for at, app in found.others.items() if app.route == source}
    told = []
    for app, asked in _asked(staying).items():
        told += [
            _other_apps(f"{app}:{topic}", "its clients asked for it") for topic in sorted(asked & {*topics})
        ]
        if unnamed := _unnamed(asked):
            told.append(_other_apps(app, few(unnamed), Severity.WARN))
    yield from told or (_other_apps("", "none"),)


def _other_apps(target: str, seen: str, severity: Severity = Severity.BLOCK) -> Finding:
    return claim(
        "switch.other-apps",
        "no other application's clients ask for topics of the set",
        not target,
        target=target,
        seen=seen,
        needed="none: such a client would stay on source, and write or read there",
        moves=(
            "add the application to the set",
            "accept it, if it was a tool that only looked",
        ),
        severity=severity,
    )


def _asked(apps: Mapping[tuple[str, str], AppSeen]) -> dict[str, set[str]]:
    """Return the topics that each application's clients ask for at any gateway, without Kafka's own."""
    asked: dict[str, set[str]] = {}
    for (_, name), app in apps.items():
        told = app.table("topics") if "topics" in app.seen else (MORE,)
        asked.setdefault(name, set()).update(one for one in told if not one.startswith(_INTERNAL))
    return asked


def _unnamed(asked: Collection[str]) -> list[str]:
    return [words for name, words in _UNNAMED.items() if name in asked]


def other_groups(others: Mapping[str, str]) -> Iterator[Finding]:
    """Check that every group that uses the set's topics belongs to the set.

    others: the groups that do not belong to it, and why they count as users.
    """
    for name, why in others.items():
        yield _other_groups(name, why)
    if not others:
        yield _other_groups("", "none")


def _other_groups(target: str, seen: str) -> Finding:
    return claim(
        "switch.other-groups",
        "every group on the set's topics is one of the set",
        not target,
        target=target,
        seen=seen,
        needed="a name under sets.groups: the commits of other groups are not copied to target",
        moves=("add it to sets.groups, or delete its commits", "accept it, if nobody uses it any more"),
    )


def superusers(found: Gateways, sides: Collection[str]) -> Finding:
    """Check that ACLs apply to the applications' clients.

    sides: the clusters that have super users. Kafka does not show which accounts these are, so the result is
    unknown if clients log in.
    """
    users = sorted({one for app in found.at.values() for one in app.table("principals")})
    seen = f"super.users is set on {few(sides)}, and hidden; users of the set: {few(users)}"
    return claim(
        "switch.superusers",
        "no client of the set is a super user",
        None if users and sides else True,
        seen=seen if users and sides else "none",
        needed="accounts that ACLs bind: nothing keeps a super user from writing beside the gateways",
        moves=("look into the brokers' super.users", "let only gateways reach the brokers"),
        severity=Severity.WARN,
    )


def staged_elsewhere(found: Gateways, target: str) -> Iterator[Finding]:
    """Yield a finding for each application that has a route to another cluster staged."""
    for (host, name), app in found.at.items():
        if app.staged not in ("", target):
            yield claim(
                "switch.staged",
                "no route to another cluster is staged",
                False,
                target=f"{host}:{name}",
                seen=app.staged,
                needed=f"{target}, or none",
                moves=("see whether another run is at work", "go on: the run stages its own"),
                severity=Severity.WARN,
            )


def node_ids(source: Collection[int], target: Collection[int]) -> Finding:
    """Check that each port of source leads to the broker of target with the same node id, if there is one.

    A Java client identifies brokers by their node ids.
    """
    here, there = sorted(source), sorted(target)
    apart = [node for at, node in enumerate(here) if node in there and there[at % len(there)] != node]
    return claim(
        "switch.node-ids",
        "node ids that both clusters have stand at the same places",
        not apart,
        seen=few(map(str, apart)) or "none stands elsewhere",
        needed="equal or disjoint ids: left ports lead by place, and a Java client knows brokers by id",
        moves=("restart consumers that stand still after the switch",),
        severity=Severity.WARN,
    )


MEANINGS = meanings(
    """
    switch.app-topics: Clients of the set ask for a topic that is not in it, or for all topics. Cause: The
    application uses more topics, or subscribes by a pattern. To do: Add the topic to the set. Of all topics
    they see those of target.

    switch.other-apps: Clients of another application ask for a topic of the set, or for all topics. Cause:
    It uses the topic too, or somebody looked with a tool. To do: Add the application to the set, or accept
    the finding.

    switch.other-groups: A consumer group outside sets.groups has commits or members on the set's topics.
    Cause: The list is too short, or the group is an old one. To do: Add it, or delete its commits.

    switch.superusers: A client of the set may be a super user of a cluster. Cause: super.users is set, and
    Kafka hides it. To do: Look into the brokers' files. Give the application another account if need be.

    switch.staged: A route to a third cluster is staged. Cause: Another run, or one that was broken off. To
    do: See whether a run is at work.

    switch.node-ids: A node id stands for brokers at different places of the two clusters. Cause: Both
    clusters number their brokers, shifted. To do: Restart consumers that stand still after the switch.
    """
)
