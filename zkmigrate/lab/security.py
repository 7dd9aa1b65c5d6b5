"""Name the kinds of security that a lab's servers and their clients can have."""

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

    kafka-tls, kafka-sasl: brokers and their clients use TLS, and log in with SASL (brokers PLAIN, clients
    SCRAM-SHA-256, or by a delegation token). kafka-acl: AclAuthorizer, with ACLs in ZooKeeper.
    """

    QUORUM_SASL = "quorum-sasl"
    QUORUM_TLS = "quorum-tls"
    SASL = "sasl"
    TLS = "tls"
    ACL = "acl"
    ENFORCE = "enforce"
    KAFKA_TLS = "kafka-tls"
    KAFKA_SASL = "kafka-sasl"
    KAFKA_ACL = "kafka-acl"


OF_KAFKA = frozenset({Kind.KAFKA_TLS, Kind.KAFKA_SASL, Kind.KAFKA_ACL})
"""The kinds that concern brokers and their clients alone."""


FULL = tuple(kind for kind in Kind if kind is not Kind.ENFORCE)
"""All kinds that every version of ZooKeeper with TLS has."""
FIRST_TLS = (3, 5)
"""ZooKeeper's first release with TLS between servers, and with the server that offers it to clients."""
FIRST_ENFORCE = (3, 7)
"""ZooKeeper's first release with `enforce.auth.enabled`."""
FIRST_KAFKA = (2, 5)
"""Kafka's first release with `zookeeper.ssl.*` in server.properties."""
FIRST_PEM = (2, 7)
"""Kafka's first release that reads PEM files, and that creates SCRAM users by its own protocol."""


def parse(text: str) -> tuple[str, ...]:
    """Return the kinds in a list with commas: none for an empty text, and `FULL` for "full"."""
    if text.strip() == "full":
        return FULL
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def check(kinds: Collection[str], zookeeper: Iterable[str], kafka: Iterable[str], others: bool) -> None:
    """Raise LabError if these kinds are unknown, or not possible with these versions.

    kafka: the versions of clusters with ZooKeeper. others: whether there are clusters with KRaft, gateways or
    mirrors.
    """
    if unknown := sorted(set(kinds) - set(Kind)):
        raise LabError(f"security {', '.join(unknown)} is not possible; possible: {', '.join(Kind)}")
    if Kind.ENFORCE in kinds and Kind.SASL not in kinds:
        raise LabError("security enforce needs sasl: without it nobody could log in")
    first = FIRST_ENFORCE if Kind.ENFORCE in kinds else FIRST_TLS
    if Kind.KAFKA_ACL in kinds and not {Kind.KAFKA_TLS, Kind.KAFKA_SASL} & set(kinds):
        raise LabError("security kafka-acl needs kafka-tls or kafka-sasl: without them clients have no name")
    own = OF_KAFKA & set(kinds)
    if own and others:
        raise LabError(
            f"security {', '.join(sorted(own))} is possible only for clusters with ZooKeeper, without "
            "gateways and mirrors"
        )
    for version in zookeeper if set(kinds) - OF_KAFKA else ():
        if release(version) < first:
            raise LabError(
                f"ZooKeeper {version} has no {', '.join(kinds)}; needed: {'.'.join(map(str, first))} or newer"
            )
    least = FIRST_PEM if own else FIRST_KAFKA
    for version in kafka if own or Kind.TLS in kinds else ():
        if release(version) < least:
            raise LabError(
                f"Kafka {version} cannot have {', '.join(kinds)} in a lab; needed: "
                f"{'.'.join(map(str, least))} or newer"
            )
