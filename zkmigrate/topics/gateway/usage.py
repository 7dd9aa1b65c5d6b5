"""Check in a gateway's status whether an application's clients are ready for a switch.

A producer's setting ``retries`` cannot be checked, nor can producers that do not connect to the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zkmigrate.runbook.model.finding import Finding, Severity, claim, few, meanings

_JAVA = re.compile(r"apache-kafka-java (\d+)\.(\d+)\.(\d+)")
_STUCK = frozenset({(2, 5, 0), (2, 5, 1), (2, 6, 0), (2, 6, 1), (2, 7, 0)})
"""Java releases with KAFKA-10793: a consumer that loses its group coordinator may never find another one."""
_ASSIGNED = (2, 6, 2), (3, 2, 0)
"""The first and the last Java release with KAFKA-13563: a consumer with assign() may stop committing."""
_ALL = "-1"
SOON_DAYS = 14
"""How many days before its end a certificate is reported."""
_NEW_GROUPS = tuple(f"api: {name}" for name in ("CONSUMER_GROUP_", "SHARE_", "STREAMS_GROUP_"))


def usage(name: str, seen: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return the findings about an application's clients.

    name: the name of the application. seen: the application's tables of counts in the status. If a client did
    not report its release, the finding about releases is unknown.
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
    java = {
        software_name: release
        for software_name in software
        if (release := _release(software_name)) is not None
    }
    stuck = [software_name for software_name, release in java.items() if release in _STUCK]
    later = {software_name: release for software_name, release in java.items() if release not in _STUCK}
    assigned = [
        software_name for software_name, release in later.items() if _ASSIGNED[0] <= release <= _ASSIGNED[1]
    ]
    unsure = f"; {silent:,} connections did not report a release" if silent > 0 else ""
    unsure = unsure or ("" if software else "; no client has connected")
    return (
        claim(
            "gateway.client-stuck",
            "no client has a release in which consumers may permanently lose their coordinator",
            False if stuck else None if unsure else True,
            seen=f"{few(stuck) or few(software) or 'none'}{unsure}",
            needed="a release other than Java 2.5.0, 2.5.1, 2.6.0, 2.6.1 and 2.7.0 (KAFKA-10793)",
            target=name,
        ),
        claim(
            "gateway.client-assign",
            "no client has a release in which assign() stops committing when the coordinator changes",
            not assigned,
            seen=few(assigned) or "none",
            needed="Java 3.2.1 or later for consumers that use assign() with a group (KAFKA-13563)",
            target=name,
            severity=Severity.WARN,
        ),
    )


def _release(software_name: str) -> tuple[int, int, int] | None:
    match = _JAVA.match(software_name)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _acks(name: str, acks: Mapping[str, int]) -> Finding:
    fewer = [f"acks={key}: {count:,} requests" for key, count in acks.items() if key != _ALL]
    return claim(
        "gateway.acks",
        "producers wait for all in-sync replicas",
        not fewer,
        seen=few(fewer) or ("acks=all" if acks else "no producer"),
        needed="acks=all, because other records may be lost, and with acks=0 their outcome is never known",
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
            needed="none: open transactions and producers' states are not copied to the other cluster",
            target=f"{name}:{id}" if id else name,
        )


def _groups(name: str, refused: Mapping[str, int]) -> Finding:
    tried = [what for what in refused if what.startswith(_NEW_GROUPS)]
    return claim(
        "gateway.new-groups",
        "no client requests groups of KIP-848, share groups or streams groups",
        not tried,
        seen=f"refused: {few(tried)}" if tried else "none",
        needed="group.protocol=classic, because the gateway offers no other protocol",
        target=name,
    )


def _lost(name: str, lost: Mapping[str, int]) -> Finding:
    return claim(
        "gateway.lost",
        "each request received a response",
        not lost,
        seen=few(f"{kind} {count:,}" for kind, count in lost.items()) or "all",
        needed="a response to each request; otherwise clients may resend it (see outcomes in the status)",
        target=name,
        severity=Severity.WARN,
    )


def certificates(host: str, seen: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings about the certificates that a gateway shows to clients and brokers.

    host: the gateway's host, or an empty text. seen: the part ``certificates`` of the gateway's status.
    """
    for key, left_s in seen["left_s"].items():
        days = left_s / 86400
        yield claim(
            "gateway.certificate",
            f"the gateway's certificate is valid for {SOON_DAYS} days",
            days > SOON_DAYS,
            seen=f"it expires in {days:.1f} days" if days > 0 else f"it expired {-days:.1f} days ago",
            needed=f"a new certificate at {key}.certificate in the gateway's file",
            target=f"{host}:{key}" if host else key,
            severity=Severity.WARN if days > 0 else Severity.BLOCK,
        )
    if seen["kept"]:
        yield claim(
            "gateway.certificates-kept",
            "the gateway uses the newest files of certificates",
            False,
            seen=seen["kept"],
            needed="files that the gateway can read",
            target=host,
            severity=Severity.WARN,
        )


MEANINGS = meanings(
    """
    gateway.certificate: A certificate of the gateway has expired, or expires soon. Then no client or no
    broker trusts the gateway. Cause: Nobody has renewed the certificate. To do: Put new files in place of the
    old ones, and send the gateway's process SIGHUP.

    gateway.certificates-kept: The gateway could not read its new certificates, and still uses the former
    ones. Cause: A file is missing, or does not fit to another one. To do: Correct the file, and send the
    gateway's process SIGHUP.

    gateway.client-stuck: A client's release may permanently lose its group's coordinator, or clients do not
    report their release. Cause: KAFKA-10793, or a client older than 2.4. To do: Update the client, or plan to
    restart it after the switch.

    gateway.client-assign: A client's release may stop committing when the coordinator changes, if it uses
    assign() with a group. Cause: KAFKA-13563. To do: Ask the client's owners whether it uses assign() with a
    group. If it does, update the client, or restart the client after the switch.

    gateway.acks: A producer does not wait for all replicas in sync. Cause: Its acks setting is not all. To
    do: Set acks=all, or continue if its last records may be lost.

    gateway.transactions: A producer uses transactions, whose state is not copied to the other cluster. Cause:
    The producer has a transactional.id. To do: Stop the producer, accept the finding for its id, and start it
    again after the switch. Or do not switch its topics.

    gateway.new-groups: A client requested a group protocol that the gateway does not offer. Cause:
    group.protocol is consumer, or the client uses a share group or a streams group. To do: Set
    group.protocol=classic.

    gateway.lost: A broker closed a connection with requests in flight, so their outcome is unknown. Cause:
    The broker failed, or closed the connection. To do: Find the reason in the broker's log.
    """
)
