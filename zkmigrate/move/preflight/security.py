"""Find the keys that switch SASL or TLS on. zkmigrate refuses such keys until a move with them has been
drilled.

No cut-over has been tried with SASL or TLS. An observer outside the JAAS or trust configuration of source
cannot join, and a reform with SASL or TLS has never been tried. Sources of the keys: QuorumPeerConfig and the
administrator's guide of ZooKeeper, KafkaConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from zkmigrate.kafka.rules.listeners import secured
from zkmigrate.move.preflight.check import Judged, unseen
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.zookeeper.facts.config import ZooConfig

_OFF = frozenset({"", "false", "none", "-1", "0"})

# zoo.cfg keys; a JVM flag for the same thing has "zookeeper." before it.
_ZOOKEEPER = re.compile(
    r"(?:zookeeper\.)?(?:ssl\..*|sslQuorum|secureClientPort(?:Address)?|portUnification|client\.portUnification"
    r"|quorum\.auth\..*|authProvider\..*|requireClientAuthScheme|sessionRequireClientSASLAuth"
    r"|enforce\.auth\..*|kerberos\..*|jaasLoginRenew|sasl\..*|client\.secure|superUser"
    r"|DigestAuthenticationProvider\.superDigest|X509AuthenticationProvider\.superUser)"
    r"|java\.security\.auth\.login\.config|javax\.net\.ssl\..*"
)
_NETTY = "NettyServerCnxnFactory"
_KAFKA = re.compile(
    r"zookeeper\.(?:ssl\..*|set\.acl|clientCnxnSocket)|(?:sasl|ssl)\..*|listener\.name\..*\.(?:sasl|ssl)\..*"
)


def in_zookeeper(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the zoo.cfg keys or JVM flags that configure SASL, TLS or their accounts, in order."""
    found = [key for key, value in values.items() if _ZOOKEEPER.fullmatch(key) and _on(value)]
    found += [key for key, value in values.items() if key.endswith("erverCnxnFactory") and _NETTY in value]
    return tuple(found)


def in_kafka(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of a server.properties that use SASL or TLS, towards any peer, in the file's order."""
    found = [key for key, value in values.items() if _KAFKA.fullmatch(key) and _on(value)]
    return (*found, *secured(values))


def _on(value: str) -> bool:
    return value.strip().lower() not in _OFF


def security_of(
    host: str, config: Reading[ZooConfig], flags: Reading[Mapping[str, str]], move: str
) -> Judged:
    """Check one ZooKeeper host's config and JVM flags for SASL and TLS.

    move: what the operator can do about keys that are found.
    """
    found = in_zookeeper(config.value.values) if isinstance(config, Seen) else ()
    found += in_zookeeper(flags.value) if isinstance(flags, Seen) else ()
    for reading in (config, flags):
        if not isinstance(reading, Seen) and not found:
            return unseen(reading, "a config and JVM flags that can be read", host)
    return Judged(not found, ", ".join(found) or "none", "none of these keys", host, (move,))
