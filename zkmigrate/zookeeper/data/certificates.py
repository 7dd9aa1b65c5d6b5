"""Read the certificates in PEM and PKCS12 stores, and judge them as a Java server of ZooKeeper does.

Private keys in a store are not kept. Sources: RFC 5280, Java's PKIX validation, ZooKeeper's X509Util and
ZKHostnameVerifier.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import Certificate
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from zkmigrate.zookeeper.data.errors import ZkDataError

Certificates = tuple[Certificate, ...]

_JKS = b"\xfe\xed\xfe\xed"
_USES = {ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth", ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth"}
_CAUSE = re.compile(
    r"validation failed: (?:candidates exhausted: )?(.*?)(?: \(encountered processing .*)?", re.DOTALL
)


class StoreError(ZkDataError):
    """A store that cannot be read. The message never contains its content or its password."""


def read_store(content: bytes, file: str, password: str = "") -> Certificates:
    """Return the certificates of a PEM or PKCS12 store, that of its private key first.

    Raises StoreError for another format, a wrong password or a store without certificates.
    """
    if content.startswith(_JKS):
        raise StoreError("it is a JKS store, which zkmigrate does not read", file)
    try:
        if b"-----BEGIN" in content:
            found = tuple(x509.load_pem_x509_certificates(content))
        else:
            store = pkcs12.load_pkcs12(content, password.encode() or None)
            every = ([store.cert] if store.cert is not None else []) + list(store.additional_certs)
            found = tuple(one.certificate for one in every)
        for certificate in found:
            assert certificate.extensions is not None  # ValueError for extensions that cannot be read
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise StoreError(
            "it is no PEM or PKCS12 store with certificates, or its password is another one", file
        ) from None
    if not found:
        raise StoreError("it has no certificate", file)
    return found


def subject(certificate: Certificate) -> str:
    """Return the subject of a certificate as text."""
    return certificate.subject.rfc4514_string() or "(no name)"


def not_now(certificate: Certificate, at: float) -> str:
    """Return why a certificate is not valid at this time, or an empty text. at: seconds since the epoch."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    time = datetime.fromtimestamp(at, UTC)
    if time < begin:
        return f"it is valid only from {_instant(begin)} on"
    return f"it is valid only until {_instant(end)}" if time > end else ""


def _instant(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%MZ")


def names(certificate: Certificate) -> tuple[str, ...]:
    """Return the addresses and DNS names that a certificate's subjectAltName names."""
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = alternative.get_values_for_type(x509.IPAddress)
    return (*map(str, addresses), *alternative.get_values_for_type(x509.DNSName))


def covers(certificate: Certificate, address: str) -> bool:
    """Return whether a certificate names this IP address or host name."""
    given = names(certificate)
    try:
        wanted = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        name = address.lower().rstrip(".")
        below = name.partition(".")[2]
        lower = {one.lower() for one in given}
        return name in lower or (bool(below) and f"*.{below}" in lower)
    return str(wanted) in given


def missing_uses(
    certificate: Certificate, needed: Collection[str] = ("clientAuth", "serverAuth")
) -> tuple[str, ...]:
    """Return the uses that a certificate's extensions forbid: clientAuth, serverAuth, digitalSignature.

    Without the extension every use is permitted.
    """
    extensions = certificate.extensions
    found: list[str] = []
    try:
        usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in usage:
            found += [name for oid, name in _USES.items() if name in needed and oid not in usage]
    except x509.ExtensionNotFound:
        pass
    try:
        if not extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature:
            found.append("digitalSignature")
    except x509.ExtensionNotFound:
        pass
    return tuple(found)


def why_not_trusted(chain: Sequence[Certificate], trusted: Sequence[Certificate], at: float) -> str:
    """Return why a trust store does not verify a chain, or an empty text.

    chain: the certificate of a peer and those of the authorities that it sends. trusted: the certificates in
    the trust store. at: the time for which they must be valid, in seconds since the epoch. As in Java a
    certificate that is itself in the trust store is trusted.
    """
    first = chain[0]
    if first in trusted:
        return ""
    every = ExtensionPolicy.permit_all()
    authority = every.require_present(x509.BasicConstraints, Criticality.AGNOSTIC, None)
    policy = PolicyBuilder().store(Store(list(trusted))).time(datetime.fromtimestamp(at, UTC))
    verifier = policy.extension_policies(ca_policy=authority, ee_policy=every).build_client_verifier()
    try:
        verifier.verify(first, list(chain[1:]))
    except VerificationError as error:
        if not any(one.subject == first.issuer for one in (*trusted, *chain[1:])):
            return f"its issuer {first.issuer.rfc4514_string()} is not there"
        match = _CAUSE.fullmatch(str(error))
        return match[1] if match else "its chain does not verify"
    return ""
