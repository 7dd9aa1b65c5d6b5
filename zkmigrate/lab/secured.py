"""Compute what a secured lab has beyond a plain one: settings, Java options and files of servers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zkmigrate.lab.credentials import KAFKA, OPERATOR, QUORUM, USERS, Credentials, kafka_login_of
from zkmigrate.lab.security import OF_KAFKA, Kind
from zkmigrate.lab.shape import release
from zkmigrate.lab.spec import SECURE_PORT, LabSpec

ZOOKEEPER_FOLDER, KAFKA_FOLDER = "/etc/zookeeper/security", "/etc/kafka/security"
"""The directories of the files below, on each host of the product."""
JAAS, STORE, AUTHORITY = "jaas.conf", "host.pem", "ca.pem"
"""Users and passwords; the host's certificate with its key; the certificate of the lab's authority."""
KAFKA_STORE = f"{KAFKA_FOLDER}/listener.p12"
"""The store of a broker's listener. Kafka 2.8 takes PEM stores only with an encrypted key, whose newer
algorithms Java 17 does not find.
"""
_FIPS = (3, 9)
"""ZooKeeper's first release with FIPS mode on by default, and with TLSv1.3 alone at the port for clients."""
_DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def zookeeper_settings(spec: LabSpec, version: str) -> dict[str, str]:
    """Return the lines of zoo.cfg that secure a server of this version; source and dest have the same."""
    kinds, new = spec.security, release(version) >= _FIPS
    store, authority = f"{ZOOKEEPER_FOLDER}/{STORE}", f"{ZOOKEEPER_FOLDER}/{AUTHORITY}"
    lines: dict[str, str] = {}
    if Kind.QUORUM_SASL in kinds:
        required = ("enableSasl", "learnerRequireSasl", "serverRequireSasl")
        lines |= {f"quorum.auth.{name}": "true" for name in required}
        # In FIPS mode servers refuse DIGEST-MD5 among themselves, and never elect a leader.
        lines |= {"fips-mode": "false"} if new else {}
    if Kind.QUORUM_TLS in kinds:
        lines |= {"sslQuorum": "true"}
        lines |= {"ssl.quorum.keyStore.location": store, "ssl.quorum.trustStore.location": authority}
    if Kind.SASL in kinds:
        lines |= {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    if Kind.ENFORCE in kinds:
        lines |= {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
    if Kind.TLS in kinds:
        lines |= {"serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory"}
        lines |= {"secureClientPort": str(SECURE_PORT)}
        lines |= {"ssl.keyStore.location": store, "ssl.trustStore.location": authority}
        # Brokers with a client of ZooKeeper 3.8 or older speak TLSv1.2 only.
        lines |= {"ssl.enabledProtocols": "TLSv1.2,TLSv1.3"} if new else {}
    return lines


def zookeeper_flags(spec: LabSpec, credentials: Credentials) -> str:
    """Return the Java options of a ZooKeeper server, each after a blank.

    The value of superDigest is a hash of a random password, so it may be in a command line.
    """
    flags = ""
    if {Kind.SASL, Kind.QUORUM_SASL} & set(spec.security):
        flags += f" -Djava.security.auth.login.config={ZOOKEEPER_FOLDER}/{JAAS}"
    if Kind.ACL in spec.security:
        flags += f" -Dzookeeper.DigestAuthenticationProvider.superDigest={credentials.super_digest}"
    return flags


def kafka_settings(spec: LabSpec) -> dict[str, str]:
    """Return the lines of server.properties that secure a broker with ZooKeeper, except its listener.

    Brokers accept `zookeeper.set.acl` only if they have an identity, by SASL or by certificate.
    """
    kinds = spec.security
    lines: dict[str, str] = {}
    if Kind.TLS in kinds:
        lines |= {"zookeeper.ssl.client.enable": "true"}
        lines |= {"zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty"}
        lines |= {"zookeeper.ssl.keystore.location": f"{KAFKA_FOLDER}/{STORE}"}
        lines |= {"zookeeper.ssl.truststore.location": f"{KAFKA_FOLDER}/{AUTHORITY}"}
    if Kind.ACL in kinds and {Kind.SASL, Kind.TLS} & set(kinds):
        lines |= {"zookeeper.set.acl": "true"}
    if OF_KAFKA & set(kinds):
        lines |= {"security.inter.broker.protocol": protocol(spec)}
    if Kind.KAFKA_TLS in kinds:
        lines |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": KAFKA_STORE}
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": f"{KAFKA_FOLDER}/{AUTHORITY}"}
        lines |= {"ssl.client.auth": "none" if Kind.KAFKA_SASL in kinds else "required"}
    if Kind.KAFKA_SASL in kinds:
        lines |= {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
        lines |= {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
    if Kind.KAFKA_ACL in kinds:
        lines |= {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
        lines |= {"super.users": ";".join(principal(spec, user) for user in (KAFKA, OPERATOR))}
    return lines


def protocol(spec: LabSpec) -> str:
    """Return the protocol of the brokers' listener."""
    return kafka_login_of(Path(), spec, KAFKA).protocol


def principal(spec: LabSpec, user: str) -> str:
    """Return the name by which brokers know a user who has logged in."""
    return f"User:{user}" if Kind.KAFKA_SASL in spec.security else f"User:CN={user}"


def kafka_flags(spec: LabSpec) -> str:
    """Return the Java options of a broker, each after a blank."""
    if not {Kind.SASL, Kind.KAFKA_SASL} & set(spec.security):
        return ""
    # Without this the client of ZooKeeper looks for its section in the file, and fails.
    off = "" if Kind.SASL in spec.security else " -Dzookeeper.sasl.client=false"
    return f" -Djava.security.auth.login.config={KAFKA_FOLDER}/{JAAS}{off}"


def zookeeper_files(spec: LabSpec, credentials: Credentials, host: str) -> dict[str, str]:
    """Return the secured files of a ZooKeeper host, by path: text of JAAS, certificates, key."""
    passwords, sections = credentials.passwords, ""
    if Kind.SASL in spec.security:
        sections += _section("Server", (_DIGEST, {f"user_{user}": passwords[user] for user in USERS}))
    if Kind.QUORUM_SASL in spec.security:
        sections += _section("QuorumServer", (_DIGEST, {f"user_{QUORUM}": passwords[QUORUM]}))
        own = {"username": QUORUM, "password": passwords[QUORUM]}
        sections += _section("QuorumLearner", (_DIGEST, own))
    tls = {Kind.TLS, Kind.QUORUM_TLS} & set(spec.security)
    return _files(ZOOKEEPER_FOLDER, sections, credentials, host if tls else None)


def kafka_files(spec: LabSpec, credentials: Credentials, host: str) -> dict[str, str]:
    """Return the secured files of a broker, by path."""
    secret, sections = credentials.passwords[KAFKA], ""
    own = {"username": KAFKA, "password": secret}
    if Kind.SASL in spec.security:
        sections += _section("Client", (_DIGEST, own))
    if Kind.KAFKA_SASL in spec.security:
        sections += _section("KafkaServer", (_PLAIN, {**own, f"user_{KAFKA}": secret}), (_SCRAM, {}))
    tls = {Kind.TLS, Kind.KAFKA_TLS} & set(spec.security)
    return _files(KAFKA_FOLDER, sections, credentials, host if tls else None)


def _files(folder: str, sections: str, credentials: Credentials, host: str | None) -> dict[str, str]:
    made = {f"{folder}/{JAAS}": sections} if sections else {}
    if host is not None:
        own = credentials.certificates[host]
        made[f"{folder}/{STORE}"] = own.certificate + own.key
        made[f"{folder}/{AUTHORITY}"] = credentials.ca
    return made


def _section(name: str, *modules: tuple[str, Mapping[str, str]]) -> str:
    """Return a section of a JAAS file. modules: login modules with their options."""
    texts = ""
    for module, options in modules:
        lines = "".join(f'\n        {key}="{value}"' for key, value in options.items())
        texts += f"    {module} required{lines};\n"
    return f"{name} {{\n{texts}}};\n"
