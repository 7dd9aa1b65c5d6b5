"""Log in to ZooKeeper: TLS, SASL DIGEST-MD5 and the digest scheme, for kazoo and for our own connections."""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Callable
from typing import Any, NoReturn

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, AuthFailedError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import SASL

from zkmigrate import secret
from zkmigrate.credentials import tls_context
from zkmigrate.hosts.transport.failure import socket_text
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.inventory.login import ZooKeeperClient
from zkmigrate.zookeeper.data.digest_md5 import Answer, answer
from zkmigrate.zookeeper.data.errors import MalformedError

UNPROVEN = "the server did not prove that it knows the password (SASL)"
_KEY = "zookeeper.client"


class Credentials:
    """How clients log in to ZooKeeper. Each method reads its secrets anew, and may raise SecretError."""

    def __init__(self, client: ZooKeeperClient | None = None) -> None:
        self._client = client or ZooKeeperClient()

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for a connection without TLS."""
        tls = self._client.tls
        return None if tls is None else tls_context(tls, f"{_KEY}.tls")

    def secure(self, sock: socket.socket, address: str) -> socket.socket:
        """Begin TLS on a connection, if the client uses it. Raises OSError."""
        context = self.context()
        return sock if context is None else context.wrap_socket(sock, server_hostname=address)

    def sasl(self) -> Callable[[bytes], Answer] | None:
        """Return the function that answers a server's challenge, or None without SASL."""
        login = self._client.sasl
        if login is None:
            return None
        password = secret.read(login.password, f"{_KEY}.sasl.password")
        return lambda challenge: answer(challenge, login.user, password, secrets.token_hex(16))

    def digest(self) -> str | None:
        """Return the identity of the ``digest`` scheme as ``user:password``, or None."""
        login = self._client.digest
        if login is None:
            return None
        return f"{login.user}:{secret.read(login.password, f'{_KEY}.digest.password')}"

    @property
    def tls(self) -> bool:
        """Whether the connections use TLS."""
        return self._client.tls is not None

    @property
    def user(self) -> str:
        """The user of SASL, for messages; empty without SASL."""
        return "" if self._client.sasl is None else self._client.sasl.user


OPEN = Credentials()
"""Connections in plain text without a login."""


def credentials_of(inventory: Inventory) -> Credentials:
    """Return how to log in to the inventory's ensembles."""
    return Credentials(inventory.zookeeper.client)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler of threads and sockets, with TLS contexts of our own.

    failure: why the last connection failed, or empty.
    """

    def __init__(self, credentials: Credentials) -> None:
        super().__init__()
        self._context = credentials.context()
        self.failure = ""

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        """Connect, with TLS if the client uses it. kazoo passes TLS settings, which are not used."""
        try:
            sock = socket.create_connection(address, timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_hostname=hostname)
        except OSError as error:
            self.failure = socket_text(error)
            raise
        self.failure = ""
        return sock


class Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which logs in with our DIGEST-MD5. kazoo's own needs another package.

    kazoo 2.11.0 gives a client up for ever if the login fails or the connection is lost during it, so a
    client in the state LOST has to be made anew.
    """

    login: Callable[[bytes], Answer]
    user: str

    def _authenticate_with_sasl(self, _host: str, timeout: float) -> None:
        self.handler.failure = (
            f"the server did not accept the login of {self.user} (SASL), or the connection was lost during it"
        )
        try:
            own = self.login(self._exchange(1, b"", timeout))
        except MalformedError as error:
            self.handler.failure = str(error)
            raise AuthFailedError(str(error)) from None
        if self._exchange(2, own.message, timeout) != own.confirmation:
            self.handler.failure = UNPROVEN
            raise AuthFailedError(UNPROVEN)
        self.handler.failure = ""

    def _exchange(self, xid: int, token: bytes, timeout: float) -> bytes:
        """Send a token and return the server's."""
        self._submit(SASL(token), timeout, xid)
        try:
            header, buffer, offset = self._read_header(timeout)
        except Exception as error:
            self._lost(error)
        if header.err:
            raise EXCEPTIONS[header.err]()
        return SASL.deserialize(buffer, offset)[0] or b""

    def _lost(self, error: Exception) -> NoReturn:
        """Give the client up."""
        raise AuthFailedError("the connection was lost during the login") from error


def log_in_with(client: KazooClient, credentials: Credentials, kind: type[Connection] = Connection) -> None:
    """Let a client that is not started log in with SASL at each connection, if the credentials say so.

    Raises SecretError.
    """
    sasl = credentials.sasl()
    if sasl is not None:
        retry = client._conn_retry.copy()
        client._connection = kind(client, retry, logger=client.logger, sasl_options={})
        client._connection.login, client._connection.user = sasl, credentials.user
