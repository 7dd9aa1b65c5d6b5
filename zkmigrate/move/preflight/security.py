"""Refuse kinds of SASL and TLS that no move has been tried with, by name.

The checks of what a move supports are in ``jaas``, ``login_settings``, ``tls_settings`` and
``certificates``. Sources of the keys: QuorumPeerConfig, X509Util and the administrator's guide of ZooKeeper,
KafkaConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from zkmigrate.kafka.rules.listeners import listeners
from zkmigrate.keyed_digest import is_secret
from zkmigrate.move.facts.secured import CLIENT, QUORUM, Secured, tls_kinds
from zkmigrate.move.preflight.check import Judged, unseen
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.zookeeper.data.jaas import Section

_OFF = frozenset({"", "false", "none", "-1", "0"})
KERBEROS = "Kerberos has never been tried"
_NEVER = "never tried"
_REVOKED = "lists of revoked certificates have never been tried"
NETTY, NIO = "NettyServerCnxnFactory", "NIOServerCnxnFactory"
SASL_PROVIDER = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
X509_PROVIDER = "org.apache.zookeeper.server.auth.X509AuthenticationProvider"
_PROVIDERS = (
    SASL_PROVIDER,
    X509_PROVIDER,
    "org.apache.zookeeper.server.auth.DigestAuthenticationProvider",
    "org.apache.zookeeper.server.auth.IPAuthenticationProvider",
)

_SECURES = re.compile(
    r"ssl\..*|sslQuorum|secureClientPort(?:Address)?|portUnification|client\.portUnification"
    r"|quorum\.auth\..*|authProvider\..*|requireClientAuthScheme|sessionRequireClientSASLAuth"
    r"|enforce\.auth\..*|kerberos\..*|jaasLoginRenew|sasl\..*|client\.secure|superUser"
    r"|DigestAuthenticationProvider\..*|X509AuthenticationProvider\..*|allowSaslFailedClients"
    r"|java\.security\.(?:auth\.login\.config|krb5\..*)|javax\.net\.ssl\..*"
)
"""The keys of zoo.cfg and JVM flags that configure SASL, TLS or their accounts."""
_SUPPORTED = re.compile(
    r"ssl\.(?:quorum\.)?(?:(?:key|trust)Store\.(?:location|password|passwordPath|type)|protocol"
    r"|enabledProtocols|ciphersuites|clientAuth|hostnameVerification|clientHostnameVerification"
    r"|handshakeDetectionTimeoutMillis)"
    r"|sslQuorum|secureClientPort(?:Address)?|portUnification|client\.portUnification"
    r"|quorum\.auth\.(?:enableSasl|learnerRequireSasl|serverRequireSasl|(?:server|learner)\.loginContext)"
    r"|requireClientAuthScheme|sessionRequireClientSASLAuth|enforce\.auth\.(?:enabled|schemes)"
    r"|sasl\.serverconfig|sasl\.client(?:config)?|client\.secure|superUser|jaasLoginRenew"
    r"|DigestAuthenticationProvider\.(?:superDigest|digestAlg)|X509AuthenticationProvider\.superUser"
    r"|java\.security\.auth\.login\.config"
)
_DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
_OF_CLIENTS = (_DIGEST, "org.apache.kafka.common.security.plain.PlainLoginModule")


def _on(value: str) -> bool:
    return value.strip().lower() not in _OFF


def not_supported(values: Mapping[str, str]) -> Iterator[str]:
    """Yield each setting of a ZooKeeper server that a move does not support, with the reason.

    values: its effective settings. A value that may be a secret is never shown.
    """
    for key, value in values.items():
        if key.startswith("authProvider."):
            if value not in _PROVIDERS:
                yield f"{key}={value}: {_NEVER}"
        elif key == "ssl.authProvider" and value in ("", "x509"):
            continue
        elif key == "serverCnxnFactory":
            if not value.endswith((NETTY, NIO)):
                yield f"{key}={value}: {_NEVER}"
        elif _SECURES.fullmatch(key) and _on(value) and not _SUPPORTED.fullmatch(key):
            kerberos = "kerberos" in key or "krb5" in key
            revoked = key.endswith((".crl", ".ocsp"))
            yield f"{key}: {KERBEROS if kerberos else _REVOKED if revoked else _NEVER}"


def modules_not_supported(sections: Mapping[str, Section], names: tuple[str, ...]) -> Iterator[str]:
    """Yield each login module in these sections of a JAAS file that a move does not support."""
    for name in names:
        for module in sections[name].modules if name in sections else ():
            if module.endswith("Krb5LoginModule"):
                yield f"section {name}: {KERBEROS}"
            elif module not in _OF_CLIENTS:
                yield f"section {name}: login module {module}: {_NEVER}"


def section_names(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sections of a JAAS file that a server with these settings uses.

    In order: that for clients, if clients can log in with SASL, then QuorumServer and QuorumLearner, if
    servers log in to each other.
    """
    client = (values.get("sasl.serverconfig") or "Server",) if clients_use_sasl(values) else ()
    return (*client, *(quorum_sections(values) if quorum_uses_sasl(values) else ()))


def quorum_sections(values: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of the sections with the users of the servers, and with the own user."""
    return (
        values.get("quorum.auth.server.loginContext") or "QuorumServer",
        values.get("quorum.auth.learner.loginContext") or "QuorumLearner",
    )


def clients_use_sasl(values: Mapping[str, str]) -> bool:
    """Return whether clients can log in to a server with SASL."""
    return any(key.startswith("authProvider.") and value == SASL_PROVIDER for key, value in values.items())


def quorum_uses_sasl(values: Mapping[str, str]) -> bool:
    """Return whether servers log in to each other with SASL."""
    return values.get("quorum.auth.enableSasl", "").lower() == "true"


def security_of(host: str, secured: Secured, move: str, own: Mapping[str, str] | None = None) -> Judged:
    """Check one ZooKeeper host's settings and JAAS file for security that a move does not support.

    move: what the operator can do about it. own: ``dest.settings``, which must not hold secrets.
    """
    needed = "only SASL with DIGEST-MD5, TLS without lists of revoked certificates, digest and x509"
    for key in own or ():
        if is_secret(key):
            seen = f"dest.settings.{key}: a secret would stand in migration.yml and in the run's journal"
            moves = (
                f"remove {key} from dest.settings, and name a file with it (passwordPath, or a JVM flag)",
            )
            return Judged(False, seen, "no secret in dest.settings", host, moves)
    values = secured.values
    if not isinstance(values, Seen):
        return unseen(values, "a config and JVM flags that can be read", host)
    found = list(not_supported(values.value))
    if isinstance(secured.jaas, Seen):
        found += modules_not_supported(secured.jaas.value, section_names(values.value))
    return Judged(not found, "; ".join(found) or _kinds(values.value), needed, host, (move,))


def _kinds(values: Mapping[str, str]) -> str:
    kinds = {
        "SASL between servers": quorum_uses_sasl(values),
        "TLS between servers": QUORUM in tls_kinds(values),
        "SASL of clients": clients_use_sasl(values),
        "TLS of clients": CLIENT in tls_kinds(values),
    }
    return ", ".join(kind for kind, there in kinds.items() if there) or "neither SASL nor TLS"


_MECHANISMS = ("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol")
_SOCKETS = ("ClientCnxnSocketNetty", "ClientCnxnSocketNIO")


def in_kafka(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a broker's server.properties has of SASL and TLS that a move does not support."""
    inner = values.get("security.inter.broker.protocol", "").strip().upper()
    sasl = any(
        protocol.startswith("SASL") for protocol in (inner, *(one.protocol for one in listeners(values)))
    )
    found = []
    for key, value in values.items():
        odd = {word.strip().upper() for word in value.split(",")} & {"GSSAPI", "OAUTHBEARER"}
        if sasl and odd and key.endswith(_MECHANISMS):
            found.append(f"{key}={value}: {KERBEROS if 'GSSAPI' in odd else _NEVER}")
        elif key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable") and _on(value):
            found.append(f"{key}: {_REVOKED}")
        elif key == "zookeeper.clientCnxnSocket" and not value.strip().endswith(_SOCKETS):
            found.append(f"{key}={value}: {_NEVER}")
    if sasl and not any(key.endswith(_MECHANISMS[0]) for key in values):
        found.append(f"no {_MECHANISMS[0]}, so brokers take GSSAPI: {KERBEROS}")
    return tuple(found)
