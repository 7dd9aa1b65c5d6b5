"""Name the kinds of security that a lab's ZooKeeper ensembles and their clients can have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.shape import release


class Kind(StrEnum):
    """One kind of security.

    quorum-sasl, quorum-tls: servers log in to each other with DIGEST-MD5; their connections use TLS with
    certificates on both sides. sasl, tls: the same for clients. With `tls` there is no port without TLS.
    acl: brokers (`zookeeper.set.acl`) and the load protect what they create, and the super user has a
    password. enforce: servers serve only clients that have logged in with SASL.
    """

    QUORUM_SASL = "quorum-sasl"
    QUORUM_TLS = "quorum-tls"
    SASL = "sasl"
    TLS = "tls"
    ACL = "acl"
    ENFORCE = "enforce"


FIRST_TLS = (3, 5)
"""ZooKeeper's first release with TLS between servers, and with the server that offers it to clients."""
FIRST_ENFORCE = (3, 7)
"""ZooKeeper's first release with `enforce.auth.enabled`."""
FIRST_KAFKA = (2, 5)
"""Kafka's first release with `zookeeper.ssl.*` in server.properties."""


def parse(text: str) -> tuple[str, ...]:
    """Return the kinds in a list with commas; none for an empty text."""
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def check(kinds: Collection[str], zookeeper: Iterable[str], kafka: Iterable[str]) -> None:
    """Raise LabError if these kinds are unknown, or not possible with these versions."""
    if unknown := sorted(set(kinds) - set(Kind)):
        raise LabError(f"security {', '.join(unknown)} is not possible; possible: {', '.join(Kind)}")
    if Kind.ENFORCE in kinds and Kind.SASL not in kinds:
        raise LabError("security enforce needs sasl: without it nobody could log in")
    first = FIRST_ENFORCE if Kind.ENFORCE in kinds else FIRST_TLS
    for version in zookeeper if kinds else ():
        if release(version) < first:
            raise LabError(
                f"ZooKeeper {version} has no {', '.join(kinds)}; needed: {'.'.join(map(str, first))} or newer"
            )
    for version in kafka if Kind.TLS in kinds else ():
        if release(version) < FIRST_KAFKA:
            raise LabError(f"Kafka {version} cannot use TLS to ZooKeeper; needed: 2.5 or newer")
