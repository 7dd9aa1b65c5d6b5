"""Check an application's clients for what hinders a switch, by the gateway's status.

A producer's ``retries``, and producers that do not connect to the gateway, cannot be checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings

_JAVA = re.compile(r"apache-kafka-java (\d+)\.(\d+)\.(\d+)")
_STUCK = frozenset({(2, 5, 0), (2, 5, 1), (2, 6, 0), (2, 6, 1), (2, 7, 0)})
"""Java releases with KAFKA-10793: a consumer that loses its coordinator may never look for another one."""
_ASSIGNED = (2, 6, 2), (3, 2, 0)
"""First and last Java release with KAFKA-13563: a consumer with assign() may stop committing."""
_ALL = "-1"
_NEW_GROUPS = tuple(f"api: {name}" for name in ("CONSUMER_GROUP_", "SHARE_", "STREAMS_GROUP_"))


def usage(name: str, seen: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the findings about an application's clients.

    seen: the application's tables of counts in the status. If a client did not report its release, it is
    unknown whether all releases are safe.
    """
    return (
        *_software(name, seen),
        _acks(name, seen["acks"]),
        *_transactions(name, seen["transactional"]),
        _groups(name, seen["refused"]),
        _lost(name, seen["lost"]),
    )


def _software(name: str, seen: Mapping[str, Any]) -> tuple[Finding, ...]:
    software = seen["software"]
    silent = seen["answered"].get("API_VERSIONS", 0) - sum(software.values())
    java = {told: release for told in software if (release := _release(told)) is not None}
    stuck = [told for told, release in java.items() if release in _STUCK]
    later = {told: release for told, release in java.items() if release not in _STUCK}
    assigned = [told for told, release in later.items() if _ASSIGNED[0] <= release <= _ASSIGNED[1]]
    unsure = f"; {silent:,} connections did not tell theirs" if silent > 0 else ""
    unsure = unsure or ("" if software else "; no client has connected")
    return (
        claim(
            "gateway.client-stuck",
            "no client has a release whose consumers may lose their coordinator for good",
            False if stuck else None if unsure else True,
            seen=f"{few(stuck) or few(software) or 'none'}{unsure}",
            needed="another release than Java's 2.5.0, 2.5.1, 2.6.0, 2.6.1 and 2.7.0 (KAFKA-10793)",
            moves=("update the client", "plan to restart it after the switch"),
            target=name,
        ),
        claim(
            "gateway.client-assign",
            "no client has a release whose assign() stops committing when the coordinator changes",
            not assigned,
            seen=few(assigned) or "none",
            needed="Java 3.2.1 or later for consumers that use assign() with a group (KAFKA-13563)",
            moves=("ask whether it uses assign() with a group; if so, update it or restart it afterwards",),
            target=name,
            severity=Severity.WARN,
        ),
    )


def _release(told: str) -> tuple[int, int, int] | None:
    match = _JAVA.match(told)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _acks(name: str, acks: Mapping[str, int]) -> Finding:
    fewer = [f"acks={key}: {count:,} requests" for key, count in acks.items() if key != _ALL]
    return claim(
        "gateway.acks",
        "producers wait for all replicas in sync",
        not fewer,
        seen=few(fewer) or ("acks=all" if acks else "no producer"),
        needed="acks=all: what fewer replicas acknowledged may be lost; of acks=0 nobody knows what arrived",
        moves=("set acks=all", "go on: its last records may be lost"),
        target=name,
        severity=Severity.WARN,
    )


def _transactions(name: str, ids: Mapping[str, int]) -> Iterator[Finding]:
    """Yield one finding for each transactional id, so that an operator can accept each one separately."""
    for id, requests in ids.items() or (("", 0),):
        yield claim(
            "gateway.transactions",
            "no producer uses transactions",
            not id,
            seen=f"{requests:,} requests with this transactional id" if id else "none",
            needed="none: open transactions and producers' states stay on the cluster that is left",
            moves=(
                "stop this producer, accept the finding, and start it again after the switch",
                "leave it on its cluster",
            ),
            target=f"{name}:{id}" if id else name,
        )


def _groups(name: str, refused: Mapping[str, int]) -> Finding:
    tried = [what for what in refused if what.startswith(_NEW_GROUPS)]
    return claim(
        "gateway.new-groups",
        "no client asks for groups of KIP-848, share groups or streams groups",
        not tried,
        seen=f"refused: {few(tried)}" if tried else "none",
        needed="group.protocol=classic: the gateway does not offer the others",
        moves=("set group.protocol=classic",),
        target=name,
    )


def _lost(name: str, lost: Mapping[str, int]) -> Finding:
    return claim(
        "gateway.lost",
        "each request was answered",
        not lost,
        seen=few(f"{kind} {count:,}" for kind, count in lost.items()) or "all",
        needed="an answer: without one the client may send the request again; see outcomes in status",
        moves=("see which broker ended its connections, and why",),
        target=name,
        severity=Severity.WARN,
    )


MEANINGS = meanings(
    """
    gateway.client-stuck: A client's release may lose its group's coordinator for good, or clients do not tell
    their release. Cause: KAFKA-10793, or a client older than 2.4. To do: Update it, or restart it after the
    switch.

    gateway.client-assign: A client's release may stop committing when the coordinator changes, if it uses
    assign() with a group. Cause: KAFKA-13563. To do: Ask its owners. Update it, or restart it after the
    switch.

    gateway.acks: A producer does not wait for all replicas in sync. Cause: Its acks setting. To do: Set
    acks=all, or go on if its last records may be lost.

    gateway.transactions: A producer uses transactions, which do not follow to the other cluster. Cause: Its
    transactional.id. To do: Stop it, accept the finding for its id, and start it again after the switch. Or
    leave it where it is.

    gateway.new-groups: A client asked for a group protocol that the gateway does not offer. Cause:
    group.protocol is consumer, or it uses a share or streams group. To do: Set group.protocol=classic.

    gateway.lost: A broker ended a connection with requests in flight, so their outcome is unknown. Cause: The
    broker died, or closed the connection. To do: See its log.
    """
)
