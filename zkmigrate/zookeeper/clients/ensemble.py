"""Open kazoo sessions with an ensemble, and convert kazoo's errors to HostError."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, RolledBackError, RuntimeInconsistency
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import ACL, Id

from zkmigrate.errors import HostError
from zkmigrate.zookeeper.clients.login import OPEN, Connection, Credentials, Handler, log_in_with
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.txn import Acl

_LOG = logging.getLogger("kazoo")
_LOG.addHandler(logging.NullHandler())  # its errors say what matters
_LOG.setLevel(logging.INFO)  # below DEBUG it logs identities

ANSWER_S = 30.0
"""The time limit for the answer to one request, in seconds."""

NOT_ITS_OWN = (RolledBackError, RuntimeInconsistency)
"""The errors that ZooKeeper reports for those operations of a failed multi that did not fail themselves."""

_CONNECT_S, _SESSION_S = 10.0, 30.0


@contextmanager
def named(ensemble: str, what: str, client: KazooClient | None = None) -> Iterator[None]:
    """Convert kazoo's errors in the block to HostError. what: the operation, for the message.

    client: one that is connecting. Its handler may know why that failed.
    """
    try:
        yield
    except (KazooTimeoutError, OSError, KazooException) as error:
        if client is not None and client.handler.failure:
            raise HostError(f"no session with {ensemble} ({what}): {client.handler.failure}") from error
        if isinstance(error, KazooException):
            raise HostError(f"{ensemble} failed ({what}): {type(error).__name__} {error}".rstrip()) from error
        raise HostError(
            f"the connection to {ensemble} was lost ({what}): {type(error).__name__} {error}".rstrip()
        ) from error


def new_client(hosts: str, timeout_s: float, credentials: Credentials) -> KazooClient:
    """Return a client of these servers that is not started and never repeats a request.

    hosts: ``address:port,…``. timeout_s: the session timeout in seconds. Raises SecretError.
    """
    digest = credentials.digest()
    client = KazooClient(
        hosts=hosts,
        handler=Handler(credentials),
        auth_data=None if digest is None else [("digest", digest)],
        timeout=timeout_s,
        randomize_hosts=False,
        connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 1, "max_delay": 0.5},
        command_retry={"max_tries": 0},
    )
    log_in_with(client, credentials)
    return client


def start(client: KazooClient, within_s: float) -> None:
    """Open a client's session, and wait until the server has confirmed its login.

    kazoo reports CONNECTED before the login. Raises kazoo's errors; the handler's ``failure`` may say why.
    """
    client.start(timeout=within_s)
    if isinstance(client._connection, Connection):
        client.sync_async("/").get(timeout=within_s)


def closed(client: KazooClient) -> None:
    """End the client's session and close the client; errors are ignored."""
    with suppress(KazooException, OSError):
        client.stop()
        client.close()


@contextmanager
def connect(
    ensemble: str, servers: Sequence[Server], credentials: Credentials = OPEN
) -> Iterator[KazooClient]:
    """Yield a client with a session on one of the servers, and close it at the end of the block.

    ensemble: the ensemble's name for messages. Raises HostError if no session is open within 10 seconds, and
    SecretError.
    """
    hosts = ",".join(map(str, servers))
    client = new_client(hosts, _SESSION_S, credentials)
    try:
        with named(ensemble, hosts.replace(",", ", "), client):
            start(client, _CONNECT_S)
        yield client
    finally:
        closed(client)


def to_kazoo(acl: Iterable[Acl]) -> list[Any]:
    """Convert an ACL to kazoo's type."""
    return [ACL(one.perms, Id(one.scheme, one.id)) for one in acl]


def from_kazoo(acl: Iterable[Any]) -> tuple[Acl, ...]:
    """Convert an ACL from kazoo's type."""
    return tuple(Acl(one.perms, one.id.scheme, one.id.id) for one in acl)
