"""Read the certificates and keys of the gateway's configuration, when it starts and on SIGHUP."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from zkmigrate.credentials import client_context, server_context
from zkmigrate.inventory.login import Tls
from zkmigrate.secret import SecretError


@dataclass(frozen=True)
class Certificates:
    """The TLS contexts of a gateway. A listener or cluster without one uses plain text.

    listeners, clusters: the contexts by name. asking: the listeners whose clients must show a certificate.
    shown: the clusters to whose brokers the gateway shows a certificate. ends: by key of the configuration,
    when the first certificate of its file expires, in seconds since the epoch.
    """

    listeners: Mapping[str, ssl.SSLContext] = field(default_factory=dict)
    clusters: Mapping[str, ssl.SSLContext] = field(default_factory=dict)
    asking: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()
    ends: Mapping[str, float] = field(default_factory=dict)


def read(listeners: Mapping[str, Tls], clusters: Mapping[str, Tls]) -> Certificates:
    """Read all files of the sections ``tls``.

    listeners, clusters: the sections by name. Raises SecretError if a file cannot be used.
    """
    keys = {f"listeners.{name}.tls": tls for name, tls in listeners.items()}
    keys |= {f"tls.{name}": tls for name, tls in clusters.items()}
    made = Certificates(
        {name: server_context(tls, f"listeners.{name}.tls") for name, tls in listeners.items()},
        {name: client_context(tls, f"tls.{name}") for name, tls in clusters.items()},
        frozenset(name for name, tls in listeners.items() if tls.ca is not None),
        frozenset(name for name, tls in clusters.items() if tls.certificate is not None),
        {key: _end(tls.certificate, key) for key, tls in keys.items() if tls.certificate is not None},
    )
    for context in (*made.listeners.values(), *made.clusters.values()):
        context.options |= ssl.OP_NO_RENEGOTIATION  # a peer could demand costly handshakes without end
    return made


def _end(path: str, key: str) -> float:
    try:
        found = x509.load_pem_x509_certificates(Path(path).read_bytes())
        return min(one.not_valid_after_utc.timestamp() for one in found)
    except (OSError, ValueError) as error:
        raise SecretError(f"{key}.certificate: {path}: {error}. Needed: certificates in PEM format") from None
