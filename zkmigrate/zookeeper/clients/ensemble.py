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
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.txn import Acl

logging.getLogger("kazoo").addHandler(logging.NullHandler())  # its errors say what matters

ANSWER_S = 30.0
"""The time limit for the answer to one request, in seconds."""

NOT_ITS_OWN = (RolledBackError, RuntimeInconsistency)
"""The errors that ZooKeeper reports for those operations of a failed multi that did not fail themselves."""

_CONNECT_S, _SESSION_S = 10.0, 30.0


@contextmanager
def named(ensemble: str, what: str) -> Iterator[None]:
    """Convert kazoo's errors in the block to HostError. what: the operation, for the message."""
    try:
        yield
    except (KazooTimeoutError, OSError) as error:
        raise HostError(
            f"the connection to {ensemble} was lost ({what}): {type(error).__name__} {error}".rstrip()
        ) from error
    except KazooException as error:
        raise HostError(f"{ensemble} failed ({what}): {type(error).__name__} {error}".rstrip()) from error


def new_client(hosts: str, timeout_s: float) -> KazooClient:
    """Return a client of these servers that is not started and never repeats a request.

    hosts: ``address:port,…``. timeout_s: the session timeout in seconds.
    """
    return KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        randomize_hosts=False,
        connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 1, "max_delay": 0.5},
        command_retry={"max_tries": 0},
    )


def closed(client: KazooClient) -> None:
    """End the client's session and close the client; errors are ignored."""
    with suppress(KazooException, OSError):
        client.stop()
        client.close()


@contextmanager
def connect(ensemble: str, servers: Sequence[Server]) -> Iterator[KazooClient]:
    """Yield a client with a session on one of the servers, and close it at the end of the block.

    ensemble: the ensemble's name for messages. Raises HostError if no session is open within 10 seconds.
    """
    hosts = ",".join(map(str, servers))
    client = new_client(hosts, _SESSION_S)
    try:
        with named(ensemble, hosts.replace(",", ", ")):
            client.start(timeout=_CONNECT_S)
        yield client
    finally:
        closed(client)


def to_kazoo(acl: Iterable[Acl]) -> list[Any]:
    """Convert an ACL to kazoo's type."""
    return [ACL(one.perms, Id(one.scheme, one.id)) for one in acl]


def from_kazoo(acl: Iterable[Any]) -> tuple[Acl, ...]:
    """Convert an ACL from kazoo's type."""
    return tuple(Acl(one.perms, one.id.scheme, one.id.id) for one in acl)
