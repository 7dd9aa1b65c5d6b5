"""Check that a set is complete: all topics of its applications, and all users of its topics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings
from zkmigrate.topics.gateway.rules.seen import ALL, MORE
from zkmigrate.topics.topic_move.facts import AppSeen, Gateways

_INTERNAL = "__"
_UNNAMED = {ALL: "all topics", MORE: "topics that the gateway does not list by name"}


def app_topics(found: Gateways, topics: Collection[str]) -> Iterator[Finding]:
    """Check that clients of the set request only topics of the set."""
    for app, requested in _requested_topics(found.at).items():
        others = sorted(requested - {*topics, *_UNNAMED})
        for topic in others:
            yield _app_topics(f"{app}:{topic}", False, "its clients requested this topic")
        unnamed = _unnamed(requested)
        if unnamed or not requested:
            seen = few(unnamed) or "no client has requested a topic"
            yield _app_topics(app, False if unnamed else None, seen, Severity.WARN)
        elif not others:
            yield _app_topics(app, True, few(sorted(requested)))


def _app_topics(target: str, held: bool | None, seen: str, severity: Severity = Severity.BLOCK) -> Finding:
    return claim(
        "switch.app-topics",
        "clients of the set request only topics of the set",
        held,
        target=target,
        seen=seen,
        needed="only topics of the set: after the switch they would request any other topic on target",
        severity=severity,
    )


def other_apps(found: Gateways, topics: Collection[str], source: str) -> Iterator[Finding]:
    """Check that no other application on source has clients that request topics of the set."""
    staying = {at: app for at, app in found.others.items() if app.route == source}
    told = []
    for app, requested in _requested_topics(staying).items():
        told += [
            _other_apps(f"{app}:{topic}", "its clients requested this topic")
            for topic in sorted(requested & {*topics})
        ]
        if unnamed := _unnamed(requested):
            told.append(_other_apps(app, few(unnamed), Severity.WARN))
    yield from told or (_other_apps("", "none"),)


def _other_apps(target: str, seen: str, severity: Severity = Severity.BLOCK) -> Finding:
    return claim(
        "switch.other-apps",
        "no other application's clients request topics of the set",
        not target,
        target=target,
        seen=seen,
        needed="none: such a client would continue to read or write on source",
        severity=severity,
    )


def _requested_topics(apps: Mapping[tuple[str, str], AppSeen]) -> dict[str, set[str]]:
    """Return by application the topics that its clients request at any gateway, except Kafka's own."""
    requested: dict[str, set[str]] = {}
    for (_, name), app in apps.items():
        told = app.table("topics") if "topics" in app.seen else (MORE,)
        requested.setdefault(name, set()).update(one for one in told if not one.startswith(_INTERNAL))
    return requested


def _unnamed(requested: Collection[str]) -> list[str]:
    return [words for name, words in _UNNAMED.items() if name in requested]


def other_groups(others: Mapping[str, str]) -> Iterator[Finding]:
    """Check that every group that uses the set's topics belongs to the set.

    others: by group that does not belong to the set, why it counts as a user of the topics.
    """
    for name, why in others.items():
        yield _other_groups(name, why)
    if not others:
        yield _other_groups("", "none")


def _other_groups(target: str, seen: str) -> Finding:
    return claim(
        "switch.other-groups",
        "every group that uses the set's topics belongs to the set",
        not target,
        target=target,
        seen=seen,
        needed="a name under sets.groups: the commits of other groups are not copied to target",
    )


def superusers(found: Gateways, sides: Collection[str]) -> Finding:
    """Check that ACLs apply to all clients of the applications.

    sides: the clusters that have super users, to which no ACLs apply. Kafka does not show which accounts are
    super users, so the result is unknown if clients log in.
    """
    users = sorted({one for app in found.at.values() for one in app.table("principals")})
    seen = f"super.users is set on {few(sides)}, but Kafka hides its value; users of the set: {few(users)}"
    return claim(
        "switch.superusers",
        "no client of the set is a super user",
        None if users and sides else True,
        seen=seen if users and sides else "none",
        needed="accounts that ACLs restrict: a super user could write without going through the gateways",
        severity=Severity.WARN,
    )


def users(found: Gateways, target: str) -> Finding:
    """Check that target knows the users as whom the set's clients log in.

    Nobody but target's brokers can check a password, so the result is unknown if clients log in.
    """
    names = sorted({one for app in found.at.values() for one in app.table("principals")})
    return claim(
        "switch.users",
        f"{target} knows the users as whom clients of the set log in",
        None if names else True,
        seen=few(names) or "no client of the set logs in with SASL",
        needed=f"the same users with the same passwords on {target}, where clients log in after the switch",
        severity=Severity.WARN,
    )


def staged_elsewhere(found: Gateways, target: str) -> Iterator[Finding]:
    """Yield a finding for each application whose staged route leads to a cluster other than target."""
    for (host, name), app in found.at.items():
        if app.staged not in ("", target):
            yield claim(
                "switch.staged",
                "no route to another cluster is staged",
                False,
                target=f"{host}:{name}",
                seen=app.staged,
                needed=f"a route to {target}, or no staged route",
                severity=Severity.WARN,
            )


def node_ids(source: Collection[int], target: Collection[int]) -> Finding:
    """Check that each port of source leads to the broker of target with the same node id, if there is one.

    source, target: the node ids of the brokers. A Java client identifies brokers by their node ids.
    """
    here, there = sorted(source), sorted(target)
    apart = [node for at, node in enumerate(here) if node in there and there[at % len(there)] != node]
    return claim(
        "switch.node-ids",
        "each node id that both clusters use has the same position in both lists of node ids",
        not apart,
        seen=few(map(str, apart)) or "every shared node id has the same position in both lists",
        needed="equal or disjoint node ids: ports map to brokers by position, "
        "and Java clients identify brokers by node id",
        severity=Severity.WARN,
    )


MEANINGS = meanings(
    """
    switch.app-topics: Clients of the set request a topic that is not in it, or all topics. Cause: The
    application uses more topics, or subscribes by a pattern. To do: Add the topic to the set, and mirror it.
    If the application does not need it, accept the finding. After the switch a client that requests all
    topics sees those of target.

    switch.other-apps: Clients of another application request a topic of the set, or all topics. Cause: The
    application uses the topic too, or somebody read it with a tool. To do: Add the application to the
    set. If it was a tool, accept the finding.

    switch.other-groups: A consumer group that is not in sets.groups has commits or members on the set's
    topics. Cause: The list is incomplete, or the group is an old one. To do: Add the group to sets.groups, or
    delete its commits. If it is no longer used, accept the finding.

    switch.superusers: A client of the set may be a super user of a cluster. Cause: super.users is set, and
    Kafka does not show which accounts it names. To do: Check super.users in the brokers' files. If it names
    the application's account, give the application another account, or allow only gateways to connect to the
    brokers.

    switch.users: Clients of the set log in, and zkmigrate cannot check whether target accepts them. Cause:
    Each cluster has users of its own; delegation tokens belong to one cluster. To do: Log in to target with
    each user's own settings before the switch, for example with kafka-topics.sh --list.

    switch.staged: A route to a third cluster is staged. Cause: Another run is active, or an earlier one was
    aborted. To do: Check whether another run is active. If not, continue: the run stages its own route.

    switch.node-ids: The clusters use the same node ids in another order. Cause: Both clusters number their
    brokers, with an offset. To do: Restart consumers that stop reading after the switch.
    """
)
