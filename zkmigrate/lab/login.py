"""Log the lab's own clients in to ZooKeeper: TLS, SASL with DIGEST-MD5, and the scheme digest."""

from __future__ import annotations

import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from zkmigrate.zookeeper.data.digest_md5 import answer


@dataclass(frozen=True)
class Login:
    """How a client logs in; an empty text stands for what it does not use.

    ca, certificate, key: PEM files for TLS. sasl_user, digest_user: the user of DIGEST-MD5, and that of the
    scheme digest. sasl_password, digest_password: the files with their passwords.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    sasl_user: str = ""
    sasl_password: str = ""
    digest_user: str = ""
    digest_password: str = ""

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of new connections; None without TLS."""
        if not self.ca:
            return None
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.certificate, self.key)
        return context

    @property
    def acl(self) -> Any:
        """The ACL, in kazoo's form, of what the client creates: with a digest user only its identities."""
        return CREATOR_ALL_ACL if self.digest_user else OPEN_ACL_UNSAFE

    def client(self, hosts: str, **options: Any) -> KazooClient:
        """Return a client that logs in at each connection. It is not started."""
        if self.ca:
            options |= {"use_ssl": True, "check_hostname": True}
            options |= {"ca": self.ca, "certfile": self.certificate, "keyfile": self.key}
        if self.digest_user:
            options["auth_data"] = [("digest", f"{self.digest_user}:{_secret(self.digest_password)}")]
        made = KazooClient(hosts=hosts, **options)
        if self.sasl_user:
            connection = made._connection
            connection.sasl_options = {}  # kazoo logs in only if this is not None
            user, password = self.sasl_user, _secret(self.sasl_password)
            connection._authenticate_with_sasl = lambda _host, timeout_s: _log_in(
                connection, user, password, timeout_s
            )
        return made


OPEN = Login()
"""The login of a client that needs none."""


def _secret(file: str) -> str:
    return Path(file).read_text().removesuffix("\n")


def _log_in(connection: ConnectionHandler, user: str, password: str, timeout_s: float) -> None:
    """Log in with DIGEST-MD5 on a new connection of kazoo.

    kazoo's own method needs the package pure-sasl. It also takes a connection that is lost meanwhile for a
    refused password, and then never connects again; this one lets kazoo try again. A wrong password is
    therefore tried for ever where servers only close the connection (3.5). Raises AuthFailedError if the
    server refuses the login, or does not know the password either.
    """
    answered = answer(_exchange(connection, 1, b"", timeout_s), user, password, secrets.token_hex(16))
    if _exchange(connection, 2, answered.message, timeout_s) != answered.confirmation:
        raise AuthFailedError("the server does not know the password")


def _exchange(connection: ConnectionHandler, xid: int, message: bytes, timeout_s: float) -> bytes:
    """Send one message of the login and return the server's."""
    connection._submit(SASL(message), timeout_s, xid)
    header, data, offset = connection._read_header(timeout_s)
    if header.err:
        raise AuthFailedError(f"the server refused the login with {EXCEPTIONS[header.err].__name__}")
    return SASL.deserialize(data, offset)[0] or b""
