"""Create the certificates and passwords of a secured lab, and keep the operator's and the load's in files."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from zkmigrate.lab.kafka_login import KafkaLogin
from zkmigrate.lab.login import OPEN, Login
from zkmigrate.lab.security import Kind
from zkmigrate.lab.spec import OPERATOR_ADDRESS, LabSpec, Role, hosts_of

KAFKA, OPERATOR, RAW, TENANT = "kafka", "operator", "raw", "tenant"
USERS = (KAFKA, OPERATOR, RAW, TENANT)
"""The users that log in to ZooKeeper with SASL: brokers, the operator and the two kinds of the load."""
STORE = "store"
"""The name of the password of brokers' stores."""
TOKENS = "tokens"
"""The name of the secret by which brokers sign delegation tokens."""
QUORUM, SUPER = "quorum", "super"
"""The user of servers among themselves, and ZooKeeper's super user of the scheme digest."""
CLIENT = "client"
"""The load's user of Kafka, and its certificate."""
_CLIENTS = {RAW: CLIENT, TENANT: CLIENT}
"""The certificate of a user, if it has another name."""
_LIFE = datetime.timedelta(days=365)


@dataclass(frozen=True)
class Certificate:
    """A certificate and its private key, as PEM texts."""

    certificate: str
    key: str

    def pkcs12(self, password: str) -> bytes:
        """Return both as a store with this password."""
        private = serialization.load_pem_private_key(self.key.encode(), None)
        own = x509.load_pem_x509_certificate(self.certificate.encode())
        encrypted = serialization.BestAvailableEncryption(password.encode())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        return pkcs12.serialize_key_and_certificates(None, private, own, None, encrypted)


class Authority:
    """A certificate authority, with a key that is never written."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        basic = x509.BasicConstraints(ca=True, path_length=0)
        built = _builder(self._name, self._name, self._key, self._key).add_extension(basic, critical=True)
        self.certificate = _pem(built.sign(self._key, hashes.SHA256()))

    def issue(self, name: str, hosts: Iterable[tuple[str, str]]) -> Certificate:
        """Issue a certificate for servers and clients.

        name: the common name. hosts: names and addresses that it is valid for.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        names: list[x509.GeneralName] = []
        for host, address in hosts:
            names += [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address(address))]
        built = _builder(_named(name), self._name, key, self._key).add_extension(usage, critical=False)
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Certificate(_pem(built.sign(self._key, hashes.SHA256())), private.decode())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(of_issuer, critical=False)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


@dataclass(frozen=True)
class Credentials:
    """All certificates and passwords of one lab.

    ca: the certificate of the lab's authority. certificates: by host name; those of the operator and of the
    load have the names of their files. passwords: by user.
    """

    ca: str
    certificates: Mapping[str, Certificate]
    passwords: Mapping[str, str]

    @classmethod
    def generate(cls, lab_id: str, spec: LabSpec) -> Credentials:
        """Generate new ones.

        All brokers have one common name: a znode that `zookeeper.set.acl` protects belongs to the name in the
        certificate of the broker that created it.
        """
        authority = Authority(f"lab {lab_id}")
        hosts = [plan for plan in hosts_of(spec) if plan.part is not None]
        made = {
            plan.name: authority.issue(
                KAFKA if plan.role is Role.BROKER else plan.name, [(plan.name, plan.address)]
            )
            for plan in hosts
        }
        made[KAFKA] = authority.issue(KAFKA, [(OPERATOR, OPERATOR_ADDRESS)])
        load = [(plan.name, plan.address) for plan in hosts_of(spec) if plan.role is Role.CLIENT]
        made[OPERATOR] = authority.issue(OPERATOR, [(OPERATOR, OPERATOR_ADDRESS)])
        made[CLIENT] = authority.issue(CLIENT, load)
        named = (*USERS, CLIENT, QUORUM, SUPER, STORE, TOKENS)
        passwords = {name: secrets.token_urlsafe(18) for name in named}
        return cls(authority.certificate, made, passwords)

    @cached_property
    def super_digest(self) -> str:
        """The value of `DigestAuthenticationProvider.superDigest`."""
        digest = hashlib.sha1(f"{SUPER}:{self.passwords[SUPER]}".encode(), usedforsecurity=False).digest()
        return f"{SUPER}:{base64.b64encode(digest).decode()}"

    def write(self, directory: Path) -> None:
        """Write what the operator and the load use into a new directory, which only its owner can read."""
        directory.mkdir(mode=0o700)
        files = {"ca.pem": self.ca}
        for name in (OPERATOR, CLIENT, KAFKA):
            files |= {f"{name}.pem": self.certificates[name].certificate}
            files |= {f"{name}.key": self.certificates[name].key}
        files |= {f"{user}.password": self.passwords[user] + "\n" for user in (*USERS, CLIENT, SUPER)}
        for file, text in files.items():
            (directory / file).touch(0o600)
            (directory / file).write_text(text)


def login_of(directory: Path, spec: LabSpec, user: str) -> Login:
    """Return how this user logs in to the lab's ZooKeeper; with nothing but TLS as it is set in the spec.

    directory: the one that `Credentials.write` has written. With `acl` the operator is also ZooKeeper's super
    user, and the load's users also have an identity of the scheme digest.
    """
    if not spec.security:
        return OPEN
    found: dict[str, str] = {}
    if Kind.TLS in spec.security:
        name = _CLIENTS.get(user, user)
        found |= {"ca": "ca.pem", "certificate": f"{name}.pem", "key": f"{name}.key"}
    if Kind.SASL in spec.security:
        found["sasl_password"] = f"{user}.password"
    if Kind.ACL in spec.security:
        found["digest_password"] = f"{SUPER if user == OPERATOR else user}.password"
    files = {key: str(directory / file) for key, file in found.items()}
    users = {"sasl_user": user, "digest_user": SUPER if user == OPERATOR else user}
    return Login(**files, **{key: name for key, name in users.items() if f"{key[:-5]}_password" in files})


def kafka_login_of(directory: Path, spec: LabSpec, user: str) -> KafkaLogin:
    """Return how a user logs in to the lab's Kafka clusters; `KAFKA` is the administrator.

    directory: the one that `Credentials.write` has written. The administrator's SASL user exists before any
    other, so it uses PLAIN. A client needs no certificate if it has a SASL user.
    """
    tls, sasl = Kind.KAFKA_TLS in spec.security, Kind.KAFKA_SASL in spec.security
    found = {"protocol": ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")}
    if tls:
        found["ca"] = str(directory / "ca.pem")
    if tls and not sasl:
        found |= {"certificate": str(directory / f"{user}.pem"), "key": str(directory / f"{user}.key")}
    if sasl:
        found |= {"user": user, "password": str(directory / f"{user}.password")}
        found["mechanism"] = "PLAIN" if user == KAFKA else "SCRAM-SHA-256"
    return KafkaLogin(**found)
