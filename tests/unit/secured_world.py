"""The healthy world of the preflight with every kind of security: quorum and clients with SASL and TLS."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.unit.preflight_world import CMDLINE, SOURCE_CFG, PreflightWorld, context, healthy, words_of
from zkmigrate.inventory.inventory import Inventory, Ports
from zkmigrate.inventory.login import Login, Secret, Tls, ZooKeeper, ZooKeeperClient
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.step import Context

JAAS, STORE, AUTHORITY = "/etc/zookeeper/jaas.conf", "/etc/zookeeper/host.pem", "/etc/zookeeper/ca.pem"
ZOO_CFG, JAVA_ENV = "/etc/zookeeper/conf/zoo.cfg", "/etc/zookeeper/conf/java.env"
BROKER_JAAS, BROKER_STORE, BROKER_CA = "/etc/kafka/jaas.conf", "/etc/kafka/host.pem", "/etc/kafka/ca.pem"
PASSWORDS = {"zk": "canary-quorum", "kafka": "canary-kafka", "super": "canary-super"}
SUPER_DIGEST = "super:canary-digest"
FLAGS = (
    f"-Djava.security.auth.login.config={JAAS} "
    f"-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"
)
SETTINGS = {
    "quorum.auth.enableSasl": "true",
    "quorum.auth.learnerRequireSasl": "true",
    "quorum.auth.serverRequireSasl": "true",
    "sslQuorum": "true",
    "ssl.quorum.keyStore.location": STORE,
    "ssl.quorum.trustStore.location": AUTHORITY,
    "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
    "secureClientPort": "2281",
    "ssl.keyStore.location": STORE,
    "ssl.trustStore.location": AUTHORITY,
    "ssl.keyStore.password": "canary-store",
}
BOTH = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH)
NOW = 1000.0
"""The time of the world, in seconds since the epoch."""


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, both in PEM."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    @property
    def public(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def store(self) -> bytes:
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.public + self.key.private_bytes(encoding, form, serialization.NoEncryption())


@cache
def authority(name: str = "authority") -> Issued:
    return issue(name, by=None)


@cache
def issue(
    name: str,
    *addresses: str,
    by: str | None = "authority",
    days: float = 100,
    uses: tuple[x509.ObjectIdentifier, ...] = BOTH,
    signs: bool = True,
) -> Issued:
    """A certificate for these addresses. by: its authority; None: it is one. days: how long it is valid.
    signs: whether its key may sign."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    above = None if by is None else authority(by)
    begin = datetime.fromtimestamp(NOW, UTC) - timedelta(days=300)
    made = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(own if above is None else above.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(datetime.fromtimestamp(NOW, UTC) + timedelta(days=days))
    )
    if above is None:
        made = made.add_extension(x509.BasicConstraints(True, None), True)
    else:
        usage = x509.KeyUsage(signs, False, True, False, False, False, False, False, False)
        made = made.add_extension(usage, True)
        if uses:
            made = made.add_extension(x509.ExtendedKeyUsage(uses), False)
        if addresses:
            given = [_name(text) for text in addresses]
            made = made.add_extension(x509.SubjectAlternativeName(given), False)
    return Issued(made.sign(key if above is None else above.key, hashes.SHA256()), key)


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def section(name: str, **options: str) -> str:
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    lines = "".join(f'\n        {key}="{value}"' for key, value in options.items())
    return f"{name} {{\n    {module} required{lines};\n}};\n"


def jaas(server: Mapping[str, str] | None = None, learner: str = PASSWORDS["zk"], **quorum: str) -> str:
    """A server's file. server: the users of clients. learner: the own password in the quorum. quorum: the
    users of the quorum."""
    users = server if server is not None else {user: PASSWORDS[user] for user in ("kafka", "super")}
    return (
        section("Server", **{f"user_{user}": password for user, password in users.items()})
        + section("QuorumServer", **(quorum or {"user_zk": PASSWORDS["zk"]}))
        + section("QuorumLearner", username="zk", password=learner)
    )


def secured() -> PreflightWorld:
    """Everything as it should be, with security."""
    world = healthy()
    lines = "".join(f"{key}={value}\n" for key, value in SETTINGS.items())
    env = f'SERVER_JVMFLAGS="-Xmx256m {FLAGS}"\n'.encode()
    ca = Seen(authority().public)
    for role, number in ((role, number) for role in (1, 2) for number in (1, 2, 3)):
        host = f"{'source' if role == 1 else 'dest'}{number}"
        if role == 1:
            world.files[host, ZOO_CFG] = Seen((SOURCE_CFG + lines).encode())
        world.files[host, JAVA_ENV] = Seen(env)
        world.files[host, JAAS] = Seen(jaas().encode())
        world.files[host, STORE] = Seen(issue(host, f"10.71.0.{role}{number}").store)
        world.files[host, AUTHORITY] = ca
        world.process_lists.pop(host, None)
    for number in (1, 2, 3):
        broker = f"broker{number}"
        found = world.files[broker, "/etc/kafka/server.properties"]
        assert isinstance(found, Seen)
        world.files[broker, "/etc/kafka/server.properties"] = Seen(
            found.value
            + b"zookeeper.ssl.client.enable=true\nzookeeper.set.acl=true\n"
            + b"zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
            + f"zookeeper.ssl.keystore.location={BROKER_STORE}\n".encode()
            + f"zookeeper.ssl.truststore.location={BROKER_CA}\n".encode()
            + b"zookeeper.ssl.keystore.password=canary-keystore\n"
        )
        flag = f"-Djava.security.auth.login.config={BROKER_JAAS}"
        world.files[broker, "/proc/311/cmdline"] = words_of(CMDLINE[0], flag, *CMDLINE[1:])
        login = section("Client", username="kafka", password=PASSWORDS["kafka"])
        world.files[broker, BROKER_JAAS] = Seen(login.encode())
        world.files[broker, BROKER_STORE] = Seen(issue("kafka", f"10.71.0.3{number}").store)
        world.files[broker, BROKER_CA] = ca
        world.reached[broker] |= {f"10.71.0.2{n}:2281": "open" for n in (1, 2, 3)}
    return world


def secured_inventory(**settings: str | None) -> Inventory:
    """The inventory of that world. settings: changes of ``dest.settings``; None removes one."""
    given = context().inventory
    found = {**given.dest.settings, **SETTINGS}
    del found["ssl.keyStore.password"], found["secureClientPort"]
    for key, value in settings.items():
        if value is None:
            del found[key]
        else:
            found[key] = value
    ports = Ports(client=2181, secure=2281)
    sasl = Login(user="operator", password=Secret(env="SASL"))
    tls = Tls(ca="/ca.pem")
    return given.model_copy(
        update={
            "source": given.source.model_copy(update={"ports": ports}),
            "dest": given.dest.model_copy(update={"settings": found, "ports": ports}),
            "zookeeper": ZooKeeper(client=ZooKeeperClient(tls=tls, sasl=sasl)),
        }
    )


def secured_context(**settings: str | None) -> Context:
    return replace(context(), inventory=secured_inventory(**settings))
